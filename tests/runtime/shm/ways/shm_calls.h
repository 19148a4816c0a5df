/// \file shm_calls.h
/// For tests of what ranks of one host do: random calls, and waits that end.
#pragma once

#include <algorithm>
#include <atomic>
#include <random>

#include "runtime/base/wait.h"
#include "tests/runtime/plan/calls.h"

namespace flx::testing {

/// Ends waits when a rank has failed, or after a time that no working wait takes.
class TestWatch final : public Watch {
  public:
    explicit TestWatch(const std::atomic<int> &failed) : failed_(failed) {}
    void progress() override {}
    Status check(int64_t waited_ns) override {
        if (failed_.load() != 0)
            return fail(Fault::comm_given_up, "another rank failed");
        if (waited_ns > 30'000'000'000)
            return fail(Fault::peer_died, "waited for 30 s");
        return {};
    }

  private:
    const std::atomic<int> &failed_;
};

inline constexpr WaitPolicy kYield{.spins = 0};

/// The same for all ranks that draw it from equal generators.
inline TestCall random_call(std::mt19937 &random, int ranks, size_t most_bytes, bool barrier) {
    const auto below = [&](size_t limit) { return static_cast<size_t>(random() % limit); };
    TestCall call;
    call.ranks = ranks;
    call.collective = static_cast<Collective>(below(barrier ? 6 : 5));
    call.dtype = static_cast<flx_dtype_t>(below(kDtypes + 2));
    if (call.dtype >= kDtypes)
        call.dtype = call.dtype == kDtypes ? FLX_F8E4M3 : FLX_F8E5M2;
    do
        call.op = static_cast<flx_op_t>(below(kOps));
    while (!fits(call.op, call.dtype));
    call.root = static_cast<int>(below(ranks));
    const size_t most = most_bytes / call.element();
    // As many small ones as large ones.
    call.count = 1 + below(below(2) == 0 ? most : std::min<size_t>(most, 64));
    if (call.collective == Collective::allgather || call.collective == Collective::reduce_scatter_block)
        call.count = std::max<size_t>(1, call.count / ranks) * ranks;
    call.in_place = below(2) == 0;
    call.seed = static_cast<uint32_t>(below(1U << 20));
    return call;
}

}  // namespace flx::testing
