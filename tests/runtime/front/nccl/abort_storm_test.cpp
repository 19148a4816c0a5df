/// Communicators that end at random on a GPU that two processes share, with libflx_nccl.so and the NCCL of
/// nccl_on_one_gpu.cpp preloaded: rounds in which both make one to three, queue on them what a seed says (small and
/// large calls, groups, graphs, calls that NCCL has), and then abort, one of them late, stopped or killed; or finish
/// and destroy them. What must be: each abort returns within two seconds and leaves its stream empty, right sums before
/// and where both finish, no error that stays in CUDA, and after each round as much free memory as there was.
/// Arguments: rounds, seed. Skips without a GPU.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "runtime/front/nccl/exports.h"
#include "tests/mpi/random.h"

namespace {

using flx::test::Random;
#define NCCL(function) reinterpret_cast<decltype(&(function))>(dlsym(RTLD_DEFAULT, #function))

constexpr int kRanks = 2;
constexpr int kMostComms = 3;
constexpr double kAbortSeconds = 2;
constexpr size_t kMostCount = size_t{1} << 21;  // floats of a call
constexpr int kSkipped = 77;

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

enum class Load : uint8_t { small, large, graph, foreign };
enum class Event : uint8_t { finish, abort, stop, kill };

/// What a round is: the same for all who draw it.
struct Round {
    int comms = 1;
    Event event = Event::finish;
    int victim = 0;         ///< who is stopped or killed, or aborts later
    unsigned delay_us = 0;  ///< from the queueing to the event
    unsigned later_us = 0;  ///< how much later the victim goes on
    bool in_group = false;  ///< small calls of all communicators are in groups
    struct Work {
        Load load = Load::small;
        size_t count = 1;
        int calls = 1;
        std::array<int, kRanks> missing{};  ///< calls that a rank leaves out
    };
    std::array<Work, kMostComms> work;

    Round(uint64_t seed, int number) {
        Random random(seed * 1'000'003 + static_cast<uint64_t>(number));
        constexpr std::array<size_t, 5> kCounts = {1, 256, 1024, 65536, 300'001};
        comms = 1 + static_cast<int>(random.below(kMostComms));
        const size_t kind = random.below(20);
        event = kind == 0 ? Event::kill : kind < 4 ? Event::stop : kind < 7 ? Event::finish : Event::abort;
        victim = static_cast<int>(random.below(kRanks));
        delay_us = static_cast<unsigned>(random.below(20'000));
        later_us = static_cast<unsigned>(random.below(40'000));
        in_group = event != Event::finish && comms > 1 && random.below(4) == 0;
        for (Work &each : work) {
            const size_t load = random.below(10);
            each.load = load < 5 ? Load::small : load < 7 ? Load::large : load < 9 ? Load::graph : Load::foreign;
            each.count = each.load == Load::large ? kMostCount : kCounts[random.below(kCounts.size())];
            each.calls = 1 + static_cast<int>(random.below(each.load == Load::large ? 20 : 3000));
            each.missing[random.below(kRanks)] = each.calls;  // what it waits for never comes
            if (event == Event::finish) {
                each.load = each.load == Load::foreign ? Load::small : each.load;
                each.calls = 1 + static_cast<int>(random.below(4));
                each.missing = {};
            }
        }
        if (in_group)
            work = {work[0], work[0], work[0]};
        for (Work &each : work)
            if (in_group)
                each.load = Load::small;
    }
};

/// What the processes share.
struct Shared {
    std::array<std::atomic<int64_t>, kRanks> at{};    ///< the step that each has come to, over all rounds
    std::array<std::atomic<int64_t>, kRanks> gone{};  ///< the round in which each was killed, plus one
    std::atomic<int64_t> go{0};                       ///< the last round whose event has happened, plus one
    std::array<ncclUniqueId, kMostComms> ids{};
    std::atomic<int> aborts{0};
    std::atomic<int> failed{0};
    std::atomic<int64_t> slowest_us{0};
    std::atomic<int64_t> free_mib{0};
    std::array<std::atomic<const char *>, kRanks> doing{};  ///< literals, at the same place in all processes
};
constexpr int64_t kSteps = 4;

class Rank {
  public:
    Rank(Shared &shared, int rank, uint64_t seed) : shared_(shared), rank_(rank), seed_(seed) {}

    int run(int first, int rounds) {
        must_cuda(cudaSetDevice(0), "cudaSetDevice");
        for (int lane = 0; lane < kMostComms; ++lane) {
            void *memory = nullptr;
            must_cuda(cudaMalloc(&memory, kMostCount * sizeof(float)), "cudaMalloc");
            lanes_[static_cast<size_t>(lane)].data = static_cast<float *>(memory);
            must_cuda(cudaStreamCreateWithFlags(&lanes_[static_cast<size_t>(lane)].stream, cudaStreamNonBlocking),
                      "a stream");
        }
        for (round_ = first; round_ < rounds; ++round_)
            one();
        return 0;
    }

  private:
    struct Lane {
        float *data = nullptr;
        cudaStream_t stream = nullptr;
        ncclComm_t comm = nullptr;
        cudaGraphExec_t graph = nullptr;
        std::thread caller;
    };

    void must(bool right, const char *what) {
        if (right)
            return;
        std::printf("wrong: round %d, rank %d: %s\n", round_, rank_, what);
        std::fflush(stdout);
        shared_.failed = 1;
        std::_Exit(1);
    }
    void must_cuda(cudaError_t error, const char *what) {
        if (error != cudaSuccess)
            std::printf("wrong: round %d, rank %d: %s: %s\n", round_, rank_, what, cudaGetErrorString(error));
        must(error == cudaSuccess, what);
    }

    void doing(const char *what) { shared_.doing[static_cast<size_t>(rank_)] = what; }

    /// Waits for the other rank, unless it was killed in this round.
    void meet(int64_t step) {
        const auto other = static_cast<size_t>(1 - rank_);
        const int64_t here = round_ * kSteps + step;
        shared_.at[static_cast<size_t>(rank_)] = here;
        doing("waits for the other rank");
        const double begin = now();
        constexpr double kPatience = 100;
        while (shared_.at[other] < here && shared_.gone[other] <= round_ && shared_.failed == 0) {
            usleep(100);
            must(now() - begin < kPatience, "the other rank does not come");
        }
        if (shared_.failed != 0)
            std::_Exit(1);
    }

    ncclResult_t add(Lane &lane, size_t count, ncclRedOp_t op = ncclSum) {
        return NCCL(ncclAllReduce)(lane.data, lane.data, count, ncclFloat32, op, lane.comm, lane.stream);
    }

    void fill(Lane &lane, size_t count) {
        std::vector<float> values(count);
        for (size_t i = 0; i < count; ++i)
            values[i] = static_cast<float>((rank_ + 1) * (1 + static_cast<int>(i % 61)));
        must_cuda(cudaMemcpyAsync(lane.data, values.data(), count * sizeof(float), cudaMemcpyHostToDevice, lane.stream),
                  "a copy to the GPU");
        must_cuda(cudaStreamSynchronize(lane.stream), "the copy's end");
    }
    /// After `calls` sums, the second and later of which double.
    void check(Lane &lane, size_t count, int calls) {
        std::vector<float> values(count);
        must_cuda(cudaMemcpyAsync(values.data(), lane.data, count * sizeof(float), cudaMemcpyDeviceToHost, lane.stream),
                  "a copy from the GPU");
        must_cuda(cudaStreamSynchronize(lane.stream), "the stream's end");
        for (size_t i = 0; i < count; ++i)
            must(values[i] == static_cast<float>(3 * (1 + static_cast<int>(i % 61)) << (calls - 1)), "a sum");
    }

    void capture(Lane &lane, size_t count) {
        cudaGraph_t graph = nullptr;
        must_cuda(cudaStreamBeginCapture(lane.stream, cudaStreamCaptureModeThreadLocal), "a capture");
        must(add(lane, count) == ncclSuccess, "a captured call");
        must_cuda(cudaStreamEndCapture(lane.stream, &graph), "a capture's end");
        must_cuda(cudaGraphInstantiate(&lane.graph, graph, 0), "a graph");
        must_cuda(cudaGraphDestroy(graph), "a graph's end");
    }

    /// Until all are queued, or the communicator is aborted.
    void call(Lane &lane, const Round::Work &work, int calls) {
        (void)cudaSetDevice(0);
        ncclRedOp_t own = ncclSum;
        float two = 2;
        if (work.load == Load::foreign && calls > 0)
            (void)NCCL(ncclRedOpCreatePreMulSum)(&own, &two, ncclFloat32, ncclScalarHostImmediate, lane.comm);
        for (int i = 0; i < calls && aborting_ == 0; ++i) {
            if (work.load == Load::graph ? cudaGraphLaunch(lane.graph, lane.stream) != cudaSuccess
                                         : add(lane, work.count, i == 0 ? own : ncclSum) != ncclSuccess)
                return;
        }
    }
    /// As call(), of all communicators, in groups.
    void call_grouped(const Round &what) {
        (void)cudaSetDevice(0);
        const Round::Work &work = what.work[0];
        for (int i = 0; i < work.calls - work.missing[static_cast<size_t>(rank_)] && aborting_ == 0; ++i) {
            (void)NCCL(ncclGroupStart)();
            for (int lane = 0; lane < what.comms; ++lane)
                (void)add(lanes_[static_cast<size_t>(lane)], work.count);
            if (NCCL(ncclGroupEnd)() != ncclSuccess)
                return;
        }
    }

    void make(const Round &what) {
        if (rank_ == 0)
            for (int lane = 0; lane < what.comms; ++lane)
                must(NCCL(ncclGetUniqueId)(&shared_.ids[static_cast<size_t>(lane)]) == ncclSuccess, "an id");
        meet(0);
        for (int i = 0; i < what.comms; ++i) {
            Lane &lane = lanes_[static_cast<size_t>(i)];
            doing("makes a communicator");
            must(NCCL(ncclCommInitRank)(&lane.comm, kRanks, shared_.ids[static_cast<size_t>(i)], rank_) == ncclSuccess,
                 "ncclCommInitRank");
            doing("makes its first call");
            fill(lane, 1024);
            must(add(lane, 1024) == ncclSuccess, "the first call");
            check(lane, 1024, 1);
        }
        doing("captures");
        for (int i = 0; i < what.comms; ++i) {
            const Round::Work &work = what.work[static_cast<size_t>(i)];
            fill(lanes_[static_cast<size_t>(i)], work.count);
            if (work.load == Load::graph)
                capture(lanes_[static_cast<size_t>(i)], work.count);
        }
    }

    void one() {
        const Round what(seed_, round_);
        const auto mine = static_cast<size_t>(rank_);
        make(what);
        meet(1);
        aborting_ = 0;
        if (what.in_group)
            lanes_[0].caller = std::thread([&] { call_grouped(what); });
        for (int i = 0; i < what.comms && !what.in_group; ++i) {
            const Round::Work &work = what.work[static_cast<size_t>(i)];
            Lane &lane = lanes_[static_cast<size_t>(i)];
            lane.caller =
                std::thread([this, &lane, &work, mine] { call(lane, work, work.calls - work.missing[mine]); });
        }
        doing("finishes, or waits for what happens");
        if (what.event == Event::finish) {
            for (int i = 0; i < what.comms; ++i) {
                Lane &lane = lanes_[static_cast<size_t>(i)];
                lane.caller.join();
                check(lane, what.work[static_cast<size_t>(i)].count, what.work[static_cast<size_t>(i)].calls);
                drop_graph(lane);
                must(NCCL(ncclCommDestroy)(lane.comm) == ncclSuccess, "ncclCommDestroy");
            }
        } else {
            shared_.at[mine] = round_ * kSteps + 2;
            if (what.event == Event::abort)
                usleep(what.delay_us + (rank_ == what.victim ? what.later_us : 0));
            else
                while (shared_.go <= round_ && shared_.failed == 0)
                    usleep(100);
            abort_all(what);
        }
        doing("waits for the GPU");
        must_cuda(cudaDeviceSynchronize(), "the GPU after the round");
        must_cuda(cudaGetLastError(), "what stays");
        meet(3);
        size_t free_bytes = 0;
        size_t all = 0;
        must_cuda(cudaMemGetInfo(&free_bytes, &all), "cudaMemGetInfo");
        if (rank_ == 0)
            shared_.free_mib = static_cast<int64_t>(free_bytes >> 20);
    }

    void abort_all(const Round &what) {
        aborting_ = 1;
        doing("aborts");
        for (int i = 0; i < what.comms; ++i) {
            Lane &lane = lanes_[static_cast<size_t>(i)];
            const double begin = now();
            (void)NCCL(ncclCommAbort)(lane.comm);
            noted(now() - begin, "ncclCommAbort returns");
        }
        doing("waits for aborted streams");
        const double begin = now();
        for (int i = 0; i < what.comms; ++i) {
            Lane &lane = lanes_[static_cast<size_t>(i)];
            if (lane.caller.joinable())
                lane.caller.join();
            must_cuda(cudaStreamSynchronize(lane.stream), "an aborted stream");
        }
        noted(now() - begin, "the streams are empty");
        doing("destroys graphs");
        for (int i = 0; i < what.comms; ++i)
            drop_graph(lanes_[static_cast<size_t>(i)]);
        ++shared_.aborts;
    }
    void noted(double seconds, const char *what) {
        const auto us = static_cast<int64_t>(seconds * 1e6);
        for (int64_t slowest = shared_.slowest_us;
             us > slowest && !shared_.slowest_us.compare_exchange_weak(slowest, us);)
            ;
        if (seconds > kAbortSeconds)
            std::printf("round %d, rank %d: %s after %.2f s\n", round_, rank_, what, seconds);
        must(seconds <= kAbortSeconds, what);
    }
    void drop_graph(Lane &lane) {
        if (lane.graph != nullptr)
            must_cuda(cudaGraphExecDestroy(lane.graph), "a graph's end");
        lane.graph = nullptr;
    }

    Shared &shared_;
    int rank_;
    uint64_t seed_;
    int round_ = 0;
    std::array<Lane, kMostComms> lanes_;
    std::atomic<int> aborting_{0};
};

pid_t start(Shared &shared, int rank, uint64_t seed, int first, int rounds) {
    const pid_t child = fork();
    if (child == 0)
        std::_Exit(Rank(shared, rank, seed).run(first, rounds));
    return child;
}

/// A process of its own asks, as what forks must not have begun with CUDA.
bool has_gpu() {
    const pid_t child = fork();
    if (child == 0) {
        int devices = 0;
        std::_Exit(cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0 ? 0 : 1);
    }
    int state = 0;
    return waitpid(child, &state, 0) == child && WIFEXITED(state) && WEXITSTATUS(state) == 0;
}

int storm(int rounds, uint64_t seed) {
    void *memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 1;
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    Shared &shared = *new (memory) Shared;
    shared.at[0] = shared.at[1] = -1;
    std::array<pid_t, kRanks> ranks{};
    for (int rank = 0; rank < kRanks; ++rank)
        ranks[static_cast<size_t>(rank)] = start(shared, rank, seed, 0, rounds);
    std::array<int, 4> events{};
    std::vector<int64_t> free_mib;
    const auto wait_until = [&](const auto &done) {
        constexpr double kHangs = 45;
        const double begin = now();
        while (!done() && shared.failed == 0) {
            if (now() - begin > kHangs) {
                std::printf("wrong: step %lld of rank 0, %lld of rank 1: rank 0 %s, rank 1 %s, for %.0f s\n",
                            static_cast<long long>(shared.at[0]), static_cast<long long>(shared.at[1]),
                            shared.doing[0].load(), shared.doing[1].load(), kHangs);
                shared.failed = 1;
            }
            int state = 0;
            for (const pid_t rank : ranks)
                if (waitpid(rank, &state, WNOHANG) == rank && !(WIFEXITED(state) && WEXITSTATUS(state) == 0)) {
                    std::printf("wrong: rank's process ended with %d\n", state);
                    shared.failed = 1;
                }
            usleep(200);
        }
    };
    for (int round = 0; round < rounds && shared.failed == 0; ++round) {
        const Round what(seed, round);
        const auto victim = static_cast<size_t>(what.victim);
        ++events[static_cast<size_t>(what.event)];
        if (what.event == Event::kill)
            std::printf("round %d: rank %d is killed\n", round, what.victim);
        const int64_t queued = round * kSteps + 2;
        const int64_t over = round * kSteps + 3;
        if (what.event == Event::stop || what.event == Event::kill) {
            wait_until([&] { return shared.at[0] >= queued && shared.at[1] >= queued; });
            usleep(what.delay_us);
            kill(ranks[victim], what.event == Event::stop ? SIGSTOP : SIGKILL);
            if (what.event == Event::kill) {
                waitpid(ranks[victim], nullptr, 0);
                shared.gone[victim] = round + 1;
            }
            shared.go = round + 1;
            wait_until([&] { return shared.at[1 - victim] >= over; });
            usleep(what.later_us);
            if (what.event == Event::stop)
                kill(ranks[victim], SIGCONT);
            else
                ranks[victim] = start(shared, what.victim, seed, round + 1, rounds);
        }
        wait_until([&] {
            const auto done = [&](size_t rank) { return shared.at[rank] >= over || shared.gone[rank] == round + 1; };
            return done(0) && done(1);
        });
        if (const int64_t now_free = shared.free_mib; now_free > 0)  // of this round or the one before
            free_mib.push_back(now_free);
    }
    for (const pid_t rank : ranks) {
        if (shared.failed != 0)
            kill(rank, SIGKILL);
        waitpid(rank, nullptr, 0);
    }
    std::printf(
        "%d rounds of seed %llu: %d finished, %d aborted, %d stopped, %d killed; %d times a rank aborted; the "
        "slowest step took %.3f s\n",
        rounds, static_cast<unsigned long long>(seed), events[0], events[1], events[2], events[3], shared.aborts.load(),
        static_cast<double>(shared.slowest_us) * 1e-6);
    // What is kept for later communicators is there after the first rounds.
    constexpr size_t kSettled = 100;
    constexpr int64_t kMostMib = 128;
    if (shared.failed == 0 && free_mib.size() >= 3 * kSettled) {
        const int64_t early = *std::min_element(free_mib.begin(), free_mib.begin() + kSettled);
        const int64_t late = *std::min_element(free_mib.end() - kSettled, free_mib.end());
        std::printf("free memory of the GPU: at least %lld MiB in the first rounds, %lld MiB in the last\n",
                    static_cast<long long>(early), static_cast<long long>(late));
        if (late + kMostMib < early) {
            std::printf("wrong: memory does not come back\n");
            return 1;
        }
    }
    return shared.failed;
}

}  // namespace

int main(int argc, char **argv) {
    constexpr int kFew = 60;
    const int rounds = argc > 1 ? std::atoi(argv[1]) : kFew;
    const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
    if (!has_gpu()) {
        std::printf("skipped: there is no GPU\n");
        return kSkipped;
    }
    if (NCCL(ncclCommInitRank) == nullptr) {
        std::printf("skipped: libflx_nccl.so and libflx_nccl_on_one_gpu.so must be preloaded\n");
        return kSkipped;
    }
    return storm(rounds, seed);
}
