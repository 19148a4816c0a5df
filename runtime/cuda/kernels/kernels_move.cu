#include "runtime/cuda/kernels/anywhere.cuh"
#include "runtime/cuda/kernels/bulk.cuh"
#include "runtime/cuda/kernels/lines.cuh"
#include "runtime/cuda/kernels/packets.cuh"
#include "runtime/cuda/kernels/relay.cuh"
#include "runtime/cuda/protocol/chain.h"
#include "runtime/cuda/protocol/kernels.h"

namespace flx::cuda {
namespace {

__global__ void flag_step(const __grid_constant__ FlagStep step) {
    const Job &job = step.job;
    char *own = job.windows[job.rank];
    auto *told = reinterpret_cast<uint32_t *>(own + WindowLayout::count(step.channel));
    auto *heard = reinterpret_cast<uint32_t *>(own + WindowLayout::packet_count(step.channel));
    const int peer = static_cast<int>(threadIdx.x);
    const uint32_t telling = *told + 1;
    const uint32_t hearing = *heard + 1;
    if (*job.dead != 0)
        return;
    __syncwarp();
    if (peer < job.ranks && (step.tell >> peer & 1) != 0) {
        char *window = job.windows[peer];
        store_release(
            reinterpret_cast<uint32_t *>(window + WindowLayout::flag(Stage::scattered, step.channel, job.rank)),
            telling);
    }
    if (peer < job.ranks && (step.hear >> peer & 1) != 0) {
        Patience patience(job);
        const auto *flag =
            reinterpret_cast<const uint32_t *>(own + WindowLayout::flag(Stage::scattered, step.channel, peer));
        while (static_cast<int32_t>(load_acquire(flag) - hearing) < 0 && patience.more(peer)) {
        }
    }
    __syncwarp();
    if (threadIdx.x == 0) {
        if (step.tell != 0)
            *told = telling;
        if (step.hear != 0)
            *heard = hearing;
    }
}

__global__ void __launch_bounds__(kThreads) local_copy(const __grid_constant__ LocalReduce work) {
    constexpr uint64_t kTile = 64 * 1024;
    Team<uint8_t, Keep> team(work.job);
    if (!team.alive())
        return;
    for (uint64_t at = blockIdx.x * kTile; at < work.bytes; at += gridDim.x * kTile)
        team.copy(work.sources[work.job.rank] + at, Targets{work.out + at, nullptr, 0, 0},
                  work.bytes - at < kTile ? work.bytes - at : kTile);
}

__global__ void __launch_bounds__(kThreads, 2) chain(const __grid_constant__ Job job) {
    Team<uint8_t, Keep> team(job);
    run_chain(team, job, blockIdx.x);
}

}  // namespace

Kernels move_kernels() {
    return {reinterpret_cast<const void *>(&exchange_kernel<uint8_t, Keep>),
            reinterpret_cast<const void *>(&exchange_anywhere_kernel<uint8_t, Keep>),
            reinterpret_cast<const void *>(&packets_kernel<uint8_t, Keep>),
            reinterpret_cast<const void *>(&lines_kernel<uint8_t, Keep>),
            reinterpret_cast<const void *>(&local_copy),
            nullptr};
}

BulkLaunch bulk_launch() {
    return {kBulkThreads, kBulkShared};
}

const void *relay_kernel() {
    return reinterpret_cast<const void *>(&relay);
}

const void *chain_kernel() {
    return reinterpret_cast<const void *>(&chain);
}

const void *flag_step_kernel() {
    return reinterpret_cast<const void *>(&flag_step);
}

}  // namespace flx::cuda
