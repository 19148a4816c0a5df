/// \file mirrors.h
/// A call's data that lie in GPU memory, and their mirrors in host memory, for those who cannot read them there: MPI,
/// or FLX's collectives on host memory. Which of a rank's data are mirrored is its own affair.
#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/front/mpi/arguments/gpu_memory.h"
#include "runtime/front/mpi/arguments/numbers.h"
#include "runtime/front/mpi/arguments/types.h"

namespace flx::preload {

/// Whose memory the data are in that a rank gives and takes in a call. None: there are no data.
enum class Memory : uint8_t { none, host, gpu, both };

class Whereabouts;

/// A function that says where this rank's data of a call are; called where that matters, before the call goes on.
class Description {
  public:
    template <typename Describe>
    Description(const Describe &describe)  // NOLINT(google-explicit-constructor): a lambda is meant
        : closure_(&describe),
          call_([](const void *closure, Whereabouts &where) { (*static_cast<const Describe *>(closure))(where); }) {}
    Description() = default;
    explicit operator bool() const { return call_ != nullptr; }
    void operator()(Whereabouts &where) const { call_(closure_, where); }

  private:
    const void *closure_ = nullptr;
    void (*call_)(const void *, Whereabouts &) = nullptr;
};

/// Where this rank's data of one call are. Arguments that are wrong are passed over: who finds that says so.
class Whereabouts {
  public:
    /// What `describe` says, kept in `made`. It is not asked where this process uses no GPU: all is host memory.
    static const Whereabouts *of(const Description &describe, std::unique_ptr<const Whereabouts> &made);
    /// What is sent, and what is received: `count` elements; MPI_IN_PLACE is nothing.
    void sends(const void *buffer, int64_t count, MPI_Datatype type, int times = 1);
    /// `whole`: all of it is written, whatever was there before.
    void receives(const void *buffer, int64_t count, MPI_Datatype type, int times = 1, bool whole = false);
    /// Blocks of each rank of `size`, at displacements in extents of one type, or in bytes with a type each.
    void sends(const void *buffer, Numbers counts, Numbers displs, const MPI_Datatype *types, bool one_type, int size);
    void receives(const void *buffer, Numbers counts, Numbers displs, const MPI_Datatype *types, bool one_type,
                  int size);
    /// FLX may carry the call out on GPUs, going by what all ranks name alike.
    bool fits_gpus = false;
    /// FLX takes one address for what is sent and what is received, too, as being in place.
    bool may_be_one = false;
    /// This rank's data are not as FLX takes them, and are rearranged by the processor.
    bool rearranged = false;

    [[nodiscard]] Memory memory() const { return memory_; }
    [[nodiscard]] bool any_on_gpu() const { return memory_ == Memory::gpu || memory_ == Memory::both; }
    /// Whether FLX can take all of it where it lies, on a GPU.
    [[nodiscard]] bool is_plain() const;

  private:
    friend class Mirrors;
    struct Piece {
        std::byte *begin = nullptr;  ///< of the first element
        size_t count = 0;
        Layout layout;
        std::byte *low = nullptr;  ///< what the data lie between
        std::byte *high = nullptr;
        bool on_gpu = false;
    };
    enum Side { kSent, kReceived };
    void add(Side side, const void *begin, int64_t count, MPI_Datatype type);
    void add(Side side, const void *buffer, Numbers counts, Numbers displs, const MPI_Datatype *types, bool one_type,
             int size);

    /// What all pieces lie between; null: there are none.
    [[nodiscard]] std::pair<std::byte *, std::byte *> span(Side side) const;

    std::array<std::vector<Piece>, 2> pieces_;
    bool whole_ = false;
    Memory memory_ = Memory::none;
};

/// Host memory in which a call's data lie as they do on the GPU.
class Mirrors {
  public:
    Mirrors() = default;
    /// Before and after all others, in MPI_Init and MPI_Finalize.
    static void begin();
    static void end();
    /// Makes room for what of `where` is on a GPU, and reads it. `whole`: that what is received is written whole can be
    /// relied on. MPI_SUCCESS or an error; `why` says why, unless the program's arguments are wrong.
    int make(const Whereabouts &where, bool whole, std::string &why);
    /// How far what is sent, and received, lies from where the program has it: added to its addresses.
    [[nodiscard]] ptrdiff_t sent_moved() const { return moved_[0]; }
    [[nodiscard]] ptrdiff_t received_moved() const { return moved_[1]; }
    /// Reads the GPU's data once more. Empty, or a sentence.
    [[nodiscard]] std::string read() const;
    /// Brings what was received to the GPU, and nothing else: what lies between may change meanwhile.
    [[nodiscard]] std::string write() const;

  private:
    /// Bytes of one element that its type has data in: `times` runs of `width` bytes, `step` apart, the first one at
    /// `begin` from the element's address.
    struct Pattern {
        MPI_Aint begin = 0;
        size_t width = 0;
        size_t times = 1;
        MPI_Aint step = 0;
    };
    using Patterns = std::map<MPI_Datatype, std::vector<Pattern>>;
    static void add_run(MPI_Aint begin, MPI_Aint end, std::vector<Pattern> &patterns);
    static int find_patterns(const Layout &layout, std::vector<Pattern> &patterns);
    static int flatten(const Whereabouts::Piece &piece, ptrdiff_t moved, Patterns &known, std::vector<Rows> &to_host);
    bool make_room(std::byte *low, std::byte *high, ptrdiff_t &moved);

    std::vector<std::unique_ptr<std::byte[]>> rooms_;
    std::array<ptrdiff_t, 2> moved_{};
    std::vector<Rows> to_host_;
    std::vector<Rows> to_gpu_;
    const void *near_ = nullptr;
};

}  // namespace flx::preload
