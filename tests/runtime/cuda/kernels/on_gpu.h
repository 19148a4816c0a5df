/// What tests of kernels have in common: ranks in one process on one GPU, each with a stream of its own.
#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace flx::cuda {

inline constexpr int kSkipped = 77;

inline void must(cudaError_t error, const char *what) {
    if (error == cudaSuccess)
        return;
    fmt::print("wrong: {}: {}\n", what, cudaGetErrorString(error));
    std::exit(1);
}

/// Whether there is a GPU; where not, it says that the test is skipped.
inline bool has_gpu() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) == cudaSuccess && devices != 0)
        return true;
    fmt::print("skipped: there is no GPU\n");
    return false;
}

struct Stream {
    cudaStream_t stream = nullptr;
    cudaEvent_t began = nullptr;
    cudaEvent_t ended = nullptr;

    void make() {
        must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
        must(cudaEventCreate(&began), "an event");
        must(cudaEventCreate(&ended), "an event");
    }
};

/// Microseconds of one of `calls` calls of launch(), on the slowest of `ranks`, which are Streams; the best of `turns`.
template <class Ranks, class Launch>
double best_time(Ranks &ranks, int turns, int calls, const Launch &launch) {
    double best = 1e30;
    for (int turn = 0; turn < turns; ++turn) {
        for (Stream &rank : ranks)
            must(cudaEventRecord(rank.began, rank.stream), "an event");
        for (int call = 0; call < calls; ++call)
            launch();
        for (Stream &rank : ranks)
            must(cudaEventRecord(rank.ended, rank.stream), "an event");
        double slowest = 0;
        for (Stream &rank : ranks) {
            float ms = 0;
            must(cudaEventSynchronize(rank.ended), "an end");
            must(cudaEventElapsedTime(&ms, rank.began, rank.ended), "a time");
            slowest = std::max(slowest, 1e3 * static_cast<double>(ms) / calls);
        }
        best = std::min(best, slowest);
    }
    return best;
}

}  // namespace flx::cuda
