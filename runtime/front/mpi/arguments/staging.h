/// \file staging.h
/// Buffers as FLX takes them: bytes one after the other. What lies otherwise is packed into memory of its own, which is
/// each rank's own affair, since FLX moves the same bytes either way.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "runtime/front/mpi/arguments/mirrors.h"
#include "runtime/front/mpi/arguments/types.h"

namespace flx::preload {

/// Memory that lives as long as a call.
class Aside {
  public:
    /// False if there is none.
    bool make(size_t bytes);
    [[nodiscard]] std::byte *data() const { return memory_.get(); }

  private:
    std::unique_ptr<std::byte[]> memory_;
};

/// Bytes from `begin` on.
struct Span {
    const std::byte *begin = nullptr;
    size_t bytes = 0;
    [[nodiscard]] bool overlaps(const Span &other) const {
        return bytes != 0 && other.bytes != 0 && begin < other.begin + other.bytes && other.begin < begin + bytes;
    }
};

/// Elements between the program's buffer and bytes in a row. MPI_SUCCESS, or MPI's error (its handler has run).
int pack(const void *buffer, size_t count, const Layout &layout, std::byte *bytes, MPI_Comm comm);
int unpack(const std::byte *bytes, void *buffer, size_t count, const Layout &layout, MPI_Comm comm);

/// `count` elements at `buffer` as bytes: where they lie, or packed.
class Packed {
  public:
    /// Nothing, which may be asked for its data.
    Packed() = default;
    /// `filled`: the data are to be read. MPI_SUCCESS or an error.
    int take(const void *buffer, size_t count, const Layout &layout, bool filled, MPI_Comm comm);
    /// Gives FLX a copy of data that overlap `other`, as programs may pass them to MPI.
    int keep_apart(const Span &other);
    /// `ranks` blocks of `length` bytes in a row, of which the program's are `count` elements each and have another
    /// length: what both have is copied, the rest is zeros.
    int take_otherwise(const void *buffer, size_t count, const Layout &layout, bool filled, size_t ranks, size_t length,
                       MPI_Comm comm);
    /// Reads them once more, if they are to be read.
    int fill(MPI_Comm comm);
    [[nodiscard]] void *data() const { return data_; }
    /// Brings what FLX wrote to where the program expects it.
    int deliver(MPI_Comm comm) const;
    /// The program may free its datatype from now on.
    int keep_types(std::vector<MPI_Datatype> &kept);

  private:
    Aside aside_;
    Layout layout_;
    size_t count_ = 0;
    void *buffer_ = nullptr;
    void *data_ = nullptr;
    bool filled_ = false;
    size_t blocks_ = 1;    ///< of `count_` elements each
    size_t block_ = 0;     ///< bytes from one to the next in `data_`
    MPI_Aint stride_ = 0;  ///< and in `buffer_`
};

/// Blocks of several ranks, of one datatype or one each, at displacements from a buffer.
class PackedBlocks {
  public:
    struct Block {
        std::byte *begin = nullptr;  ///< the program's memory
        size_t count = 0;
        Layout layout;
        [[nodiscard]] size_t bytes() const { return count * layout.size; }
    };
    /// `sizes` and `displacements` are filled in for FLX, in bytes. Blocks that may overlap `other` are copied, and all
    /// if they are to be `packed`.
    int take(std::vector<Block> blocks, bool filled, size_t *sizes, size_t *displacements, MPI_Comm comm, bool packed,
             const Span &other = {});
    int fill(MPI_Comm comm);
    [[nodiscard]] void *data() const { return data_; }
    /// What all blocks lie in.
    [[nodiscard]] Span span() const { return {static_cast<const std::byte *>(data_), bytes_}; }
    int deliver(MPI_Comm comm) const;
    int keep_types(std::vector<MPI_Datatype> &kept);

  private:
    Aside aside_;
    std::vector<Block> blocks_;  ///< those that are packed one after the other
    void *data_ = nullptr;
    size_t bytes_ = 0;
    bool filled_ = false;
};

/// Memory on a GPU, for FLX's collectives there, of data that this rank has elsewhere.
class Lifted {
  public:
    Lifted() = default;
    ~Lifted();
    Lifted(const Lifted &) = delete;
    Lifted &operator=(const Lifted &) = delete;
    /// Room for `bytes` bytes, which are those at `host` if it is `filled`, and return there if they are `written`.
    /// Empty, or a sentence.
    std::string take(void *host, size_t bytes, bool filled, bool written);
    /// Copies them back, if they are to return. Empty, or a sentence.
    [[nodiscard]] std::string deliver() const;
    [[nodiscard]] void *data() const { return data_; }

  private:
    void *data_ = nullptr;
    void *host_ = nullptr;  ///< null: they are not to return
    size_t bytes_ = 0;
};

/// The buffers of one call.
struct Staging {
    std::unique_ptr<Mirrors> mirrors;  ///< what the rest takes for the program's, where that is on a GPU; or null
    Packed in;
    Packed out;
    PackedBlocks blocks_in;
    PackedBlocks blocks_out;
    std::unique_ptr<Lifted> lifted_in;  ///< null, but where FLX's collective is one on GPUs, and the data are not
    std::unique_ptr<Lifted> lifted_out;
    int late_error = MPI_SUCCESS;  ///< what the call returns once it has taken part, and brought what it could
    std::shared_ptr<const UserReduction> reduction;  ///< of the program, which may free it meanwhile

    /// Called before the operation begins once more. MPI_SUCCESS or an error, as below.
    int read(MPI_Comm comm);
    /// Called after the operation has ended.
    int write(MPI_Comm comm) const;

    Staging() = default;
    Staging(const Staging &) = delete;
    Staging &operator=(const Staging &) = delete;
    ~Staging();
    /// Called where a call returns before its operation ends: the program may free its datatypes then.
    int keep_types();

  private:
    std::vector<MPI_Datatype> kept_;
};

}  // namespace flx::preload
