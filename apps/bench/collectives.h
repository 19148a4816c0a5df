/// \file collectives.h
/// The collectives that are measured, as plain data: names, sizes and bus bandwidth as nccl-tests define them
/// (nccl-tests, doc/PERFORMANCE.md). Pure functions; nothing here calls FLX or MPI.
#pragma once

#include <flx.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/bench/traffic.h"

namespace flx::bench {

enum class Collective {
    kAllreduce,
    kReduceScatterBlock,
    kAllgather,
    kBcast,
    kReduce,
    kBarrier,
    kAlltoall,
    kAlltoallv,
    kSendrecv,
    kGather,
    kScatter,
    kScan,
    kExscan,
    kReduceScatter,
    kAllgatherv,
    kGatherv,
    kScatterv
};

[[nodiscard]] std::string_view name_of(Collective kind);
/// As FLX's functions call it.
[[nodiscard]] std::string_view flx_name_of(Collective kind);
[[nodiscard]] std::string_view name_of(flx_dtype_t dtype);
[[nodiscard]] std::string_view name_of(flx_op_t op);
[[nodiscard]] std::optional<Collective> parse_collective(std::string_view name);
[[nodiscard]] std::optional<flx_dtype_t> parse_dtype(std::string_view name);
[[nodiscard]] std::optional<flx_op_t> parse_op(std::string_view name);
/// `allreduce, reduce_scatter_block, …`, for messages.
[[nodiscard]] std::string known_collectives();
[[nodiscard]] std::string known_dtypes();
[[nodiscard]] std::string known_ops();

/// Bytes of one element.
[[nodiscard]] size_t size_of(flx_dtype_t dtype);
[[nodiscard]] bool is_float8(flx_dtype_t dtype);
[[nodiscard]] bool has_reduction(Collective kind);
/// Whether what goes from rank to rank is told by a matrix.
[[nodiscard]] bool is_exchange(Collective kind);
/// Whether ranks' blocks are of different lengths: by a quarter longer and shorter in turn.
[[nodiscard]] bool is_uneven(Collective kind);
[[nodiscard]] bool is_scan(Collective kind);
/// Whether GPU memory is measured, too.
[[nodiscard]] bool is_for_devices(Collective kind);

/// What one call moves. All counts are elements.
struct Shape {
    size_t count = 0;          ///< the call's count argument (of one rank's block where the collective has blocks)
    size_t send_elements = 0;  ///< input of one rank
    size_t recv_elements = 0;  ///< output of one rank
    uint64_t bytes = 0;        ///< the larger of the two in bytes: the size that the table shows
    /// Exchanges: elements from rank s to rank r at [s · ranks + r]. Then the numbers of elements above are the largest
    /// of any rank, and `bytes` is what a rank sends on average.
    std::vector<size_t> matrix;
    /// Uneven collectives: each rank's block and where it begins; then `count` is the largest one.
    std::vector<size_t> blocks, begins;
    std::vector<int> int_blocks, int_begins;  ///< the same, as MPI counts
};

/// The shape nearest to `bytes` from below that has whole elements and equal blocks, but at least one element a block
/// unless `bytes` is 0.
[[nodiscard]] Shape shape_for(Collective kind, uint64_t bytes, flx_dtype_t dtype, int ranks,
                              const Traffic &traffic = {});

/// Bus bandwidth divided by size over time.
[[nodiscard]] double bus_factor(Collective kind, int ranks, const Traffic &traffic = {});

/// One call's arguments, whichever library serves it.
struct Job {
    Collective kind = Collective::kAllreduce;
    flx_dtype_t dtype = FLX_F32;
    flx_op_t op = FLX_SUM;
    int root = 0;
    bool in_place = false;
    int rank = 0;
    int ranks = 1;
    Shape shape;
    Counts counts;              ///< exchanges
    std::byte *send = nullptr;  ///< not used by bcast and barrier, nor in place
    std::byte *recv = nullptr;  ///< followed by `kGuardBytes` that no call may touch

    /// Elements of a rank's block, where there are blocks, and where it begins.
    [[nodiscard]] size_t block_of(int of) const { return shape.blocks.empty() ? shape.count : shape.blocks[of]; }
    [[nodiscard]] size_t begin_of(int of) const {
        return shape.begins.empty() ? static_cast<size_t>(of) * shape.count : shape.begins[of];
    }
    [[nodiscard]] size_t own_block() const { return block_of(rank); }
};

inline constexpr size_t kGuardBytes = 64;

}  // namespace flx::bench
