// What collectives within a host are made of, between two threads with a core each: memcpy on both at once, reading
// what the other has just written, copies through the kernel, a flag's way there and back, whole fused operations.
#include <benchmark/benchmark.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/wait.h"
#include "runtime/elements/reduce.h"
#include "runtime/shm/ways/fused.h"

namespace {

struct Free {
    void operator()(void *p) const { std::free(p); }
};
using Buffer = std::unique_ptr<std::byte, Free>;

Buffer make_buffer(size_t bytes) {
    constexpr size_t kPage = 4096;
    Buffer buffer(static_cast<std::byte *>(std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage)));
    std::memset(buffer.get(), 1, bytes);
    return buffer;
}

void report(benchmark::State &state, size_t bytes) {
    state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(bytes));
}

/// On one core, or with Threads(2) on both at once: seconds are those of one copy.
void copy(benchmark::State &state) {
    const auto bytes = static_cast<size_t>(state.range(0));
    const Buffer from = make_buffer(bytes), to = make_buffer(bytes);
    for (auto _ : state) {
        std::memcpy(to.get(), from.get(), bytes);
        benchmark::ClobberMemory();
    }
    report(state, bytes);
}

/// Through the kernel, as peers' buffers are read.
void copy_by_kernel(benchmark::State &state) {
    const auto bytes = static_cast<size_t>(state.range(0));
    const Buffer from = make_buffer(bytes), to = make_buffer(bytes);
    const iovec local{to.get(), bytes};
    const iovec remote{from.get(), bytes};
    for (auto _ : state) {
        if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != static_cast<ssize_t>(bytes)) {
            state.SkipWithError("process_vm_readv is not allowed here");
            return;
        }
    }
    report(state, bytes);
}

/// A thread that does its part of a round whenever it is told the round's number, and says when it is done.
class Partner {
  public:
    template <class Part>
    explicit Partner(Part part)
        : thread_([this, part] {
              for (uint64_t round = 1; await(told_, round); ++round) {
                  part(round);
                  done_.store(round, std::memory_order_release);
              }
          }) {}
    ~Partner() {
        told_.store(kEnd, std::memory_order_release);
        thread_.join();
    }
    Partner(const Partner &) = delete;
    Partner &operator=(const Partner &) = delete;

    void tell(uint64_t round) { told_.store(round, std::memory_order_release); }
    void await_done(uint64_t round) { await(done_, round); }

  private:
    static constexpr uint64_t kEnd = UINT64_MAX;
    static bool await(const std::atomic<uint64_t> &flag, uint64_t round) {
        uint64_t value = 0;
        while ((value = flag.load(std::memory_order_acquire)) < round)
            flx::cpu_relax();
        return value != kEnd;
    }
    alignas(64) std::atomic<uint64_t> told_{0};
    alignas(64) std::atomic<uint64_t> done_{0};
    std::thread thread_;
};

/// Half of the time of a flag's way there and back: ns per hop.
void flag_hop(benchmark::State &state) {
    Partner partner([](uint64_t) {});
    uint64_t round = 0;
    for (auto _ : state) {
        partner.tell(++round);
        partner.await_done(round);
    }
    state.counters["ns_per_hop"] = benchmark::Counter(2e-9 * static_cast<double>(state.iterations()),
                                                      benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

/// Lines that the other core has just written: what staging costs the reader.
void read_written(benchmark::State &state) {
    const auto bytes = static_cast<size_t>(state.range(0));
    const Buffer source = make_buffer(bytes), staged = make_buffer(bytes), to = make_buffer(bytes);
    Partner partner([&](uint64_t) { std::memcpy(staged.get(), source.get(), bytes); });
    uint64_t round = 0;
    for (auto _ : state) {
        partner.tell(++round);
        partner.await_done(round);
        const int64_t began = flx::now_ns();
        std::memcpy(to.get(), staged.get(), bytes);
        benchmark::ClobberMemory();
        state.SetIterationTime(1e-9 * static_cast<double>(flx::now_ns() - began));
    }
    report(state, bytes);
}

class NoWatch final : public flx::Watch {
  public:
    void progress() override {}
    flx::Status check(int64_t) override { return {}; }
};

/// A fused allreduce of two ranks; of no bytes, a barrier.
void fused(benchmark::State &state) {
    const auto bytes = static_cast<size_t>(state.range(0));
    constexpr size_t kPayload = 32 * 1024;
    const size_t memory_bytes = flx::shm::Fused::bytes(2, kPayload);
    const Buffer memory = make_buffer(memory_bytes);
    std::memset(memory.get(), 0, memory_bytes);
    const flx::WaitPolicy policy;
    const auto call = [bytes, &policy](flx::shm::Fused &rank, const Buffer &in, const Buffer &out) {
        NoWatch watch;
        flx::Waiter waiter(policy, watch);
        const flx::Status status =
            bytes == 0 ? rank.barrier(1, waiter)
                       : rank.allreduce(in.get(), out.get(), bytes / sizeof(float), FLX_F32, FLX_SUM, 1, waiter);
        if (!status.ok())
            std::abort();
    };
    const Buffer in0 = make_buffer(kPayload), out0 = make_buffer(kPayload), in1 = make_buffer(kPayload),
                 out1 = make_buffer(kPayload);
    flx::shm::Fused rank0(memory.get(), 0, 2, kPayload), rank1(memory.get(), 1, 2, kPayload);
    Partner partner([&](uint64_t) { call(rank1, in1, out1); });
    uint64_t round = 0;
    for (auto _ : state) {
        partner.tell(++round);
        call(rank0, in0, out0);
    }
    partner.await_done(round);
}

BENCHMARK(copy)->RangeMultiplier(16)->Range(1 << 10, 1 << 24)->Arg(1 << 27);
BENCHMARK(copy)->RangeMultiplier(16)->Range(1 << 10, 1 << 24)->Arg(1 << 27)->Threads(2)->UseRealTime();
BENCHMARK(copy_by_kernel)->RangeMultiplier(16)->Range(1 << 10, 1 << 24);
BENCHMARK(flag_hop)->UseRealTime();
BENCHMARK(read_written)->RangeMultiplier(16)->Range(1 << 10, 1 << 24)->UseManualTime();
BENCHMARK(fused)->Arg(0)->Arg(8)->RangeMultiplier(4)->Range(1 << 10, 1 << 15)->UseRealTime();

}  // namespace
