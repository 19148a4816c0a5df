/// How communicators end on a GPU that two processes share, with libflx_nccl.so and the NCCL of nccl_on_one_gpu.cpp
/// preloaded: ncclCommAbort of what its peer never calls, how long it takes to return, and until the stream is empty.
/// Skips without a GPU.
///   drain: 600 small calls are queued; other: another stream of the GPU has work that ends only afterwards;
///   flood: a thread puts calls on the stream until launches wait; stuck: FLX's call waits behind one that NCCL has;
///   destroy: both make, use and destroy several, one after the other.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/front/nccl/exports.h"
#include "tests/mpi/parked_stream.h"

namespace {

#define NCCL(function) reinterpret_cast<decltype(&(function))>(dlsym(RTLD_DEFAULT, #function))

pid_t child = -1;  ///< of the parent: ends with it

[[noreturn]] void give_up() {
    std::fflush(stdout);
    if (child > 0)
        kill(child, SIGKILL);
    std::_Exit(1);
}
void must(bool right, const char *what) {
    if (right)
        return;
    std::printf("wrong: %s\n", what);
    give_up();
}
#define MUST_CUDA(call) must((call) == cudaSuccess, #call)

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A thread does it; the program ends if that takes much too long. The seconds.
double timed(const char *what, double most, const std::function<void()> &body) {
    constexpr double kHangs = 20;
    std::atomic<bool> done{false};
    const double begin = now();
    std::thread thread([&] {
        MUST_CUDA(cudaSetDevice(0));
        body();
        done = true;
    });
    while (!done && now() - begin < kHangs)
        usleep(200);
    const double took = now() - begin;
    std::printf("%s: %s after %.3f s, %.2f may be\n", done && took <= most ? "right" : "wrong", what, took, most);
    std::fflush(stdout);
    if (!done || took > most)
        give_up();
    thread.join();
    return took;
}

using AllReduce = decltype(&ncclAllReduce);
constexpr size_t kCount = 1024;

struct Rank {
    AllReduce allreduce = nullptr;
    ncclComm_t comm = nullptr;
    float *data = nullptr;
    cudaStream_t stream = nullptr;
    ncclResult_t add(ncclRedOp_t op = ncclSum) { return allreduce(data, data, kCount, ncclFloat32, op, comm, stream); }
    /// Both ranks': with values of their own.
    void check_add(int rank, int turn) {
        std::vector<float> values(kCount);
        for (size_t i = 0; i < kCount; ++i)
            values[i] = static_cast<float>((rank + 1) * (turn + 1) + static_cast<int>(i % 97));
        MUST_CUDA(cudaMemcpyAsync(data, values.data(), kCount * sizeof(float), cudaMemcpyHostToDevice, stream));
        must(add() == ncclSuccess, "a call");
        MUST_CUDA(cudaMemcpyAsync(values.data(), data, kCount * sizeof(float), cudaMemcpyDeviceToHost, stream));
        MUST_CUDA(cudaStreamSynchronize(stream));
        for (size_t i = 0; i < kCount; ++i)
            must(values[i] == static_cast<float>(3 * (turn + 1) + 2 * static_cast<int>(i % 97)), "a call's values");
    }
};

int run(const std::string &part) {
    int pipes[2];
    must(pipe(pipes) == 0, "a pipe");
    child = fork();  // before CUDA
    const int rank = child == 0 ? 1 : 0;
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        if (rank == 0)
            std::printf("skipped: there is no GPU\n");
        return 77;
    }
    const auto make = NCCL(ncclCommInitRank);
    if (make == nullptr) {
        std::printf("skipped: libflx_nccl.so and libflx_nccl_on_one_gpu.so must be preloaded\n");
        return 77;
    }
    MUST_CUDA(cudaSetDevice(0));
    MUST_CUDA(cudaFree(nullptr));
    Rank mine;
    mine.allreduce = NCCL(ncclAllReduce);
    const auto begin_comm = [&] {
        ncclUniqueId id;
        if (rank == 0)
            must(NCCL(ncclGetUniqueId)(&id) == ncclSuccess && write(pipes[1], &id, sizeof id) == sizeof id, "the id");
        else
            must(read(pipes[0], &id, sizeof id) == sizeof id, "the id");
        must(make(&mine.comm, 2, id, rank) == ncclSuccess, "ncclCommInitRank");
    };
    begin_comm();
    void *memory = nullptr;
    MUST_CUDA(cudaMalloc(&memory, kCount * sizeof(float)));
    mine.data = static_cast<float *>(memory);
    MUST_CUDA(cudaStreamCreateWithFlags(&mine.stream, cudaStreamNonBlocking));
    if (part == "destroy") {
        constexpr int kComms = 3;
        for (int turn = 0; turn < kComms; ++turn) {
            if (turn > 0)
                begin_comm();
            mine.check_add(rank, turn);
            timed("ncclCommDestroy", 3, [&] { must(NCCL(ncclCommDestroy)(mine.comm) == ncclSuccess, "destroying"); });
        }
        int state = 0;
        must(rank == 1 || (waitpid(child, &state, 0) == child && WIFEXITED(state) && WEXITSTATUS(state) == 0),
             "the other process's end");
        return 0;
    }
    for (int turn = 0; turn < 5; ++turn)
        mine.check_add(rank, turn);
    if (rank == 1) {
        constexpr unsigned kLives = 60;
        sleep(kLives);
        std::_Exit(0);
    }
    std::atomic<int> calls{0};
    std::thread caller;
    std::unique_ptr<flx::test::ParkedStream> other;
    constexpr int kFlood = 20'000;
    constexpr int kQueued = 600;
    if (part == "flood") {
        caller = std::thread([&] {
            MUST_CUDA(cudaSetDevice(0));
            while (calls < kFlood && mine.add() == ncclSuccess)
                ++calls;
        });
    } else if (part == "drain") {
        for (; calls < kQueued; ++calls)
            must(mine.add() == ncclSuccess, "a call");
    } else if (part == "stuck") {
        ncclRedOp_t own = ncclSum;
        float two = 2;
        must(NCCL(ncclRedOpCreatePreMulSum)(&own, &two, ncclFloat32, ncclScalarHostImmediate, mine.comm) ==
                     ncclSuccess &&
                 mine.add(own) == ncclSuccess && mine.add() == ncclSuccess,
             "calls");
    } else {
        must(mine.add() == ncclSuccess, "a call");
        other = std::make_unique<flx::test::ParkedStream>();
        must(other->waits(), "a stream that waits");
    }
    constexpr unsigned kBegin = 2;
    sleep(kBegin);
    if (part == "flood") {
        constexpr unsigned kLookUs = 500'000;
        const int seen = calls;
        usleep(kLookUs);
        must(calls == seen && calls < kFlood, "the thread waits for room on the stream");
    }
    std::printf("%s: %d calls more are on the stream\n", part.c_str(), calls.load());
    const double begin = now();
    timed("ncclCommAbort", 0.2, [&] { (void)NCCL(ncclCommAbort)(mine.comm); });
    timed("the stream is empty", 0.3, [&] { MUST_CUDA(cudaStreamSynchronize(mine.stream)); });
    if (caller.joinable())
        timed("the calling thread returns", 1, [&] { caller.join(); });
    std::printf("%s: all after %.3f s\n", part.c_str(), now() - begin);
    other.reset();
    kill(child, SIGKILL);
    return 0;
}

}  // namespace

int main(int argc, char **argv) {
    const int code = run(argc > 1 ? argv[1] : "drain");
    std::fflush(stdout);
    std::_Exit(code);
}
