#include "apps/flx_perf/measure_device.h"

#include <algorithm>

#include "apps/bench/timing.h"

namespace flx::bench::perf {

Result measure_device(const Options &options, DeviceCalls &calls, flx_comm_t comm, MPI_Comm mpi_comm,
                      LinkCounters &links, const Shape &shape) {
    constexpr double kEnough = 0.002;  // seconds
    calls.take(shape);
    const bool peer = calls.has_nccl();
    Result result;
    result.bytes = shape.bytes;
    result.algorithm = calls.way(comm);
    result.why_no_peer = calls.why_no_nccl();
    Carried first(links, mpi_comm);
    result.wrong = first.in([&] { return calls.checked(comm); });
    result.first_call = first.shares();
    uint64_t peer_wrong = peer ? calls.checked(kNccl) : 0;

    const std::vector<flx_comm_t> sides =
        peer ? std::vector<flx_comm_t>{comm, kNccl, kNccl} : std::vector<flx_comm_t>{comm};
    const auto count = static_cast<int>(sides.size());
    double seconds = 0;
    for (int side = 0; side < std::min(count, 2); ++side) {
        calls.time(sides[side], std::max(options.warmup, 1));
    }
    for (int side = 0; side < std::min(count, 2); ++side) {
        seconds = std::max(seconds, calls.seconds_of_one(sides[side], kEnough));
    }
    const int blocks = options.blocks > 0 ? options.blocks : kFewestBlocks;
    const int64_t each = options.iterations > 0
                             ? (options.iterations + blocks - 1) / blocks
                             : std::clamp<int64_t>(calls_for(options.max_seconds / blocks / count, seconds), 2, 400);
    std::vector<std::vector<double>> us(sides.size());
    Carried timed(links, mpi_comm);
    for (int block = 0; block < blocks; ++block) {
        for (int turn = 0; turn < count; ++turn) {
            const int side = side_in_turn(block, turn, count);
            const double all = timed.in([&] { return calls.time(sides[side], each); });
            us[side].push_back(1e6 * all / static_cast<double>(each));
        }
    }
    result.partition = timed.shares();
    Carried last(links, mpi_comm);
    result.wrong += last.in([&] { return calls.checked(comm); });
    result.last_call = last.shares();
    for (std::vector<double> &side : us) {
        MPI_Allreduce(MPI_IN_PLACE, side.data(), static_cast<int>(side.size()), MPI_DOUBLE, MPI_MAX, mpi_comm);
    }
    result.us = summarise(us[0]);
    result.iterations = each * blocks;
    result.blocks = blocks;
    const Job &job = calls.job();
    result.busbw_GBps = static_cast<double>(shape.bytes) * bus_factor(job.kind, job.ranks) / result.us.median / 1e3;
    if (peer) {
        result.peer = PeerResult{summarise(us[1]), summarise(ratios(us[1], us[0])), summarise(ratios(us[2], us[1])),
                                 std::nullopt};
        peer_wrong += calls.checked(kNccl);
        if (options.check_peer) {
            result.peer->wrong = peer_wrong;
        }
    }
    return result;
}

}  // namespace flx::bench::perf
