#include "apps/flx_lab/overlap_measure.h"

#include <algorithm>

#include "apps/bench/calls.h"
#include "apps/bench/data.h"
#include "apps/common/clock.h"

namespace flx::bench::lab {
namespace {

using apps::now;

/// Work that touches no memory: about a microsecond each time.
void compute(int64_t times) {
    constexpr int kSteps = 256;
    double x = 1;
    for (int64_t i = 0; i < times; ++i) {
        for (int step = 0; step < kSteps; ++step) {
            x = x * 0.999999 + 1e-6;
            asm volatile("" : "+x"(x));
        }
    }
}

/// Of the slowest rank.
double slowest(double seconds, MPI_Comm mpi) {
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, mpi);
    return seconds;
}

/// How often compute() runs in a second, by its best of a few tries.
double speed_of_compute() {
    constexpr int64_t kTimes = 2000;
    double best = 1;
    for (int i = 0; i < 5; ++i) {
        const double begin = now();
        compute(kTimes);
        best = std::min(best, now() - begin);
    }
    return kTimes / best;
}

class Rounds {
  public:
    Rounds(Job &job, const Pattern &pattern, flx_comm_t comm, MPI_Comm mpi)
        : job_(job), pattern_(pattern), comm_(comm), mpi_(mpi) {}

    flx_status_t measure(int64_t warmup, int64_t rounds, Overlap &overlap) {
        const double speed = speed_of_compute();
        double untimed = 0;
        for (int64_t i = 0; i <= warmup; ++i) {
            if (const flx_status_t status = communicate(untimed, nullptr, 0); status != FLX_SUCCESS) {
                return status;
            }
        }
        for (int64_t round = 0; round < rounds; ++round) {
            double alone = 0;
            double together = 0;
            double issue = 0;
            if (const flx_status_t status = communicate(alone, nullptr, 0); status != FLX_SUCCESS) {
                return status;
            }
            overlap.communication.push_back(alone);
            const auto times = static_cast<int64_t>(summarise(overlap.communication).median * speed);
            MPI_Barrier(mpi_);
            const double begin = now();
            compute(times);
            overlap.computation.push_back(slowest(now() - begin, mpi_));
            if (const flx_status_t status = communicate(together, &issue, times); status != FLX_SUCCESS) {
                return status;
            }
            overlap.together.push_back(together);
            overlap.issue.push_back(issue);
        }
        overlap.wrong = count_wrong(job_, pattern_, call_);
        MPI_Allreduce(MPI_IN_PLACE, &overlap.wrong, 1, MPI_UINT64_T, MPI_SUM, mpi_);
        return FLX_SUCCESS;
    }

  private:
    /// Calls, computes, waits.
    flx_status_t communicate(double &seconds, double *issue, int64_t times) {
        prepare(job_, pattern_, ++call_);
        MPI_Barrier(mpi_);
        flx_request_t request = FLX_REQUEST_NULL;
        const double begin = now();
        flx_status_t status = start_flx(job_, comm_, &request);
        const double issued = now();
        compute(times);
        if (status == FLX_SUCCESS) {
            status = flx_wait(&request);
        }
        const double end = now();
        if (status != FLX_SUCCESS) {
            return status;
        }
        seconds = slowest(end - begin, mpi_);
        if (issue != nullptr) {
            *issue = slowest(issued - begin, mpi_);
        }
        return FLX_SUCCESS;
    }

    Job &job_;
    const Pattern &pattern_;
    flx_comm_t comm_;
    MPI_Comm mpi_;
    uint64_t call_ = 0;
};

}  // namespace

flx_status_t measure_overlap(const Options &options, flx_comm_t comm, MPI_Comm mpi, OverlapResults &results,
                             const std::function<void(const Overlap &)> &row) {
    Job job = job_of(options, mpi);
    const Pattern pattern = pattern_for(job);
    for (const uint64_t bytes : options.sizes) {
        job.shape = shape_of(options, bytes, job.ranks);
        if (is_exchange(job.kind)) {
            job.counts = Counts(job.shape.matrix, job.rank, job.ranks);
        }
        const size_t element = size_of(options.dtype);
        std::vector<std::byte> send(job.shape.send_elements * element + kGuardBytes);
        std::vector<std::byte> recv(std::max<size_t>(job.shape.bytes, job.shape.recv_elements * element) + kGuardBytes);
        job.send = send.data();
        job.recv = recv.data();
        Overlap overlap;
        overlap.bytes = job.shape.bytes;
        if (const flx_status_t status =
                Rounds(job, pattern, comm, mpi).measure(options.warmup, options.iterations, overlap);
            status != FLX_SUCCESS) {
            return status;
        }
        results.sizes.push_back(overlap);
        row(overlap);
    }
    return FLX_SUCCESS;
}

}  // namespace flx::bench::lab
