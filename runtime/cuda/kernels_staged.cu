#include "lane_step.h"
#include "team.cuh"

namespace flx::cuda {
namespace {

__global__ void lane_step(const __grid_constant__ LaneStep step) {
    const Job &job = step.job;
    const int peer = static_cast<int>(threadIdx.x);
    if (peer >= job.ranks)
        return;
    const auto word = [&](int rank, uint64_t at) { return reinterpret_cast<uint32_t *>(job.windows[rank] + at); };
    if ((step.tell >> peer & 1) != 0) {
        uint32_t *told = word(job.rank, StagingFlags::told(step.signal, peer));
        store_release(word(peer, StagingFlags::flag(step.signal, job.rank)), *told += step.times);
    }
    if ((step.hear >> peer & 1) != 0) {
        uint32_t *heard = word(job.rank, StagingFlags::heard(step.signal, peer));
        const uint32_t wanted = *heard + step.times;
        const uint32_t *flag = word(job.rank, StagingFlags::flag(step.signal, peer));
        Patience patience(job);
        while (static_cast<int32_t>(load_acquire(flag) - wanted) < 0 && patience.more(peer)) {
        }
        *heard = wanted;
    }
}

}  // namespace

const void *lane_step_kernel() {
    return reinterpret_cast<const void *>(&lane_step);
}

}  // namespace flx::cuda
