/// \file routing.h
/// Which call goes where: a pure function of what all ranks know alike (the call's arguments, and a table that they
/// agreed on when the communicator was made). No CUDA, no NCCL behind it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
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
    own          ///< a message of a rank to itself, where FLX carries no others of the group
};
inline constexpr size_t kReasons = 18;
std::string_view text_of(Reason reason);

/// A call as the program made it.
struct Request {
    Kind kind = Kind::allreduce;
    const void *in = nullptr;
    void *out = nullptr;
    size_t count = 0;  ///< NCCL's
    ncclDataType_t type = ncclInt8;
    ncclRedOp_t op = ncclSum;
    int root = 0;  ///< or the peer
};

/// Bytes of an element; 0: a type that is not known.
size_t size_of(ncclDataType_t type);
/// Bytes of the whole vector, as nccl-tests count: the larger of a rank's input and output.
size_t bytes_of(const Request &request, int ranks);

/// The same for FLX, of a collective.
Operation operation_of(const Request &request, int ranks);

/// Which sizes FLX serves, per kind; messages have one row for both ends. Nothing by default.
class Table {
  public:
    /// Sizes at which is measured: powers of four from 1 KiB to 256 MiB.
    static constexpr size_t kPoints = 10;
    static constexpr size_t bytes_at(size_t point) { return size_t{1024} << 2 * point; }

    /// Microseconds of the slowest rank; 0: not measured.
    struct Times {
        double flx = 0;
        double nccl = 0;
    };
    static constexpr size_t kMessages = kServedKinds;  ///< their row
    static constexpr size_t kRows = kServedKinds + 1;
    using Measured = std::array<std::array<Times, kPoints>, kRows>;

    /// Whatever FLX can do.
    static Table all();
    /// Where FLX was clearly faster: a size between two points where it was so at both.
    static Table of(const Measured &measured);

    [[nodiscard]] bool serves(Kind kind, size_t bytes) const;
    /// At which sizes FLX was faster, a sentence for each kind that was measured. `way`: of FLX, for the sentence.
    [[nodiscard]] std::vector<Decision> explain(std::string_view way) const;

  private:
    [[nodiscard]] std::optional<Decision> explain_row(size_t row, std::string_view way) const;

    Measured measured_{};
    std::array<std::array<bool, kPoints + 1>, kRows> faster_{};  ///< the last: beyond all points
};

/// Both of FLX's ways with large calls (outputs.h).
struct Tables {
    Table slots;
    Table met;

    [[nodiscard]] std::vector<Decision> explain() const;
};

/// Where a call goes on a communicator that FLX serves: a collective that is alone in its group, or a message. Only the
/// two ends know of a message, and each may have it in a group with others: so its size alone decides.
Reason route(const Request &request, int ranks, const Table &table);

/// Whether the NCCL of that version (as ncclGetVersion says) knows the type, which route() does: 8-bit floats came with
/// 2.24.
bool known_to(int version, ncclDataType_t type);

}  // namespace flx::nccl
