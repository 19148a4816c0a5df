/// \file routing.h
/// Which call goes where: a pure function of what all ranks know alike (the call's arguments, and a table that they
/// agreed on when the communicator was made). No CUDA, no NCCL behind it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/front/nccl/abi.h"
#include "runtime/plan/operation.h"

namespace flx::nccl {

/// Ranks of a communicator that FLX can serve (cuda::kMaxRanks).
inline constexpr int kMaxRanks = 8;

enum class Kind : uint8_t {
    allreduce,
    allgather,
    reduce_scatter,
    broadcast,
    reduce,
    alltoall,
    gather,
    scatter,
    send,
    recv
};
inline constexpr size_t kKinds = 10;
/// The first ones: collectives that FLX has a form for.
inline constexpr size_t kServedKinds = 6;
inline constexpr bool is_message(Kind kind) {
    return kind == Kind::send || kind == Kind::recv;
}
std::string_view name_of(Kind kind);
/// The same as FLX names it; messages are send_recv.
algorithms::Collective collective_of(Kind kind);

/// Why a call goes to NCCL.
enum class Reason : uint8_t {
    none,        ///< it does not
    off,         ///< FLX_NCCL=off
    alone,       ///< one rank
    many,        ///< more ranks than FLX serves
    hosts,       ///< ranks on several hosts, or where FLX is switched off
    no_gpu,      ///< FLX has no GPU here, or was built without CUDA
    failed,      ///< FLX could not make a communicator
    revoked,     ///< ncclCommRevoke, ncclCommShrink with abort
    empty,       ///< no bytes
    invalid,     ///< arguments for NCCL to judge
    type,        ///< a product of 8-bit floats, which FLX has not
    reduction,   ///< made by ncclRedOpCreate…
    form,        ///< gather, scatter: FLX has none
    registered,  ///< in a symmetric window, for which NCCL has ways of its own
    slower,      ///< NCCL was measured to be faster at this size
    grouped,     ///< one of several of its communicator in a group, which NCCL carries out as one
    apart,       ///< not all ranks came with the same all-to-all at the same time
    own,         ///< a message of a rank to itself, where FLX carries no others of the group
    configured,  ///< the program chose an algorithm or resources for this call (nccl…Config)
    newer,       ///< the program was built against a later nccl.h than FLX knows
    suspended,   ///< ncclCommSuspend
    room         ///< the communicator has little memory, where this call would be slower than was measured elsewhere
};
inline constexpr size_t kReasons = 22;
std::string_view text_of(Reason reason);

/// A call as the program made it.
struct Request {
    Kind kind = Kind::allreduce;
    const void *in = nullptr;
    void *out = nullptr;
    size_t count = 0;  ///< NCCL's
    ncclDataType_t type = ncclInt8;
    ncclRedOp_t op = ncclSum;
    int root = 0;                              ///< or the peer
    const ncclCollConfig_t *config = nullptr;  ///< the program's, as long as its call, or its group, lasts
};

/// Bytes of an element; 0: a type that is not known.
size_t size_of(ncclDataType_t type);
/// Bytes of the whole vector, as nccl-tests count: the larger of a rank's input and output.
size_t bytes_of(const Request &request, int ranks);

/// The same for FLX, of a collective.
Operation operation_of(const Request &request, int ranks);

/// What makes a call slower or faster than one of 32-bit floats that are added, in parts that begin on lines of 16
/// bytes. All ranks know it alike: where their buffers begin they do not.
enum class Trait : uint8_t {
    half,     ///< 16-bit floats
    eighth,   ///< 8-bit floats
    wide,     ///< elements of 8 bytes
    narrow,   ///< integers of 8 bits
    extreme,  ///< a minimum or maximum
    beside    ///< parts that are no multiple of 16 bytes
};
inline constexpr size_t kTraits = 6;
std::string_view text_of(Trait trait);
/// Those of a call, a bit each.
uint8_t traits_of(const Request &request, int ranks);

/// Which sizes FLX serves, per kind; messages have one row for both ends. Nothing by default.
class Table {
  public:
    /// Sizes at which is measured: from 1 KiB to 256 MiB, those closer together where ways change.
    static constexpr std::array<size_t, 12> kSizes = {
        size_t{1} << 10, size_t{4} << 10, size_t{16} << 10, size_t{64} << 10, size_t{256} << 10, size_t{1} << 20,
        size_t{4} << 20, size_t{8} << 20, size_t{16} << 20, size_t{32} << 20, size_t{64} << 20,  size_t{256} << 20};
    static constexpr size_t kPoints = kSizes.size();
    static constexpr size_t bytes_at(size_t point) { return kSizes[point]; }
    /// Points at which calls with a trait are measured: shorter ones take the time of a message, whatever is in it.
    static constexpr std::array<size_t, 3> kTraitPoints = {4, 7, 9};

    /// Microseconds of the slowest rank; 0: not measured.
    struct Times {
        double flx = 0;
        double nccl = 0;
    };
    static constexpr size_t kMessages = kServedKinds;  ///< their row
    static constexpr size_t kRows = kServedKinds + 1;
    using Measured = std::array<std::array<Times, kPoints>, kRows>;
    /// Calls with one trait each, of the kinds that measured_kinds() names; the others' are taken to differ as these
    /// do.
    using MeasuredTraits = std::array<std::array<std::array<Times, kTraitPoints.size()>, kServedKinds>, kTraits>;
    static std::span<const Kind> measured_kinds(Trait trait);

    /// Whatever FLX can do.
    static Table all();
    /// Where FLX was clearly faster: a size between two points where it was so at both.
    static Table of(const Measured &measured, const MeasuredTraits &traits);

    /// `traits`: as traits_of(). Each must be one with which FLX is faster.
    [[nodiscard]] bool serves(Kind kind, size_t bytes, uint8_t traits = 0) const;
    /// At which sizes FLX was faster, a sentence for each kind that was measured. `way`: of FLX, for the sentence.
    [[nodiscard]] std::vector<Decision> explain(std::string_view way) const;

  private:
    using Faster = std::array<std::array<bool, kPoints + 1>, kRows>;  ///< the last point: beyond all points

    [[nodiscard]] std::optional<Decision> explain_row(size_t row, std::string_view way) const;
    [[nodiscard]] std::optional<Decision> explain_trait(size_t trait, size_t kind, std::string_view way) const;
    static bool serves(const Faster &faster, size_t row, size_t bytes);

    Measured measured_{};
    MeasuredTraits measured_traits_{};
    Faster faster_{};
    std::array<Faster, kTraits> with_trait_{};
};

/// Both of FLX's ways with large calls (outputs.h).
struct Tables {
    Table slots;
    Table met;
    bool of_full = true;  ///< measured where there was no lack of memory

    [[nodiscard]] std::vector<Decision> explain() const;
};

/// Where a call goes on a communicator that FLX serves: a collective that is alone in its group, or a message. Only the
/// two ends know of a message, and each may have it in a group with others: so its size alone decides.
Reason route(const Request &request, int ranks, const Table &table);

/// Whether the NCCL of that version (as ncclGetVersion says) knows the type, which route() does: 8-bit floats came with
/// 2.24.
bool known_to(int version, ncclDataType_t type);

/// Whether a program may call functions of NCCL's that FLX does not know. `built`: the version of the nccl.h that it
/// was built against, where it said so; 0: it did not, and then that is as late as the library's, `version`, at most.
bool is_newer(unsigned built, int version);

}  // namespace flx::nccl
