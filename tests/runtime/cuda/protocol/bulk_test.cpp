/// Reductions between two GPUs by bulk copies, run by host threads: one for each lane of each warp, with the very code
/// of the kernel. Copies are carried out by a thread that takes them in any order, as late as it likes.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "runtime/cuda/protocol/bulk_roles.h"
#include "runtime/cuda/protocol/plan.h"
#include "tests/runtime/cuda/protocol/exchange_windows.h"

namespace flx::cuda {
namespace {

using testing::align_up;
using testing::ExchangeWindows;
using testing::job_for;

/// As mbarriers: a phase is over when all have arrived and all bytes have come that they expect.
class HostBarrier {
  public:
    void make(uint32_t arrivals) {
        each_ = left_ = arrivals;
        bytes_ = 0;
        phase_ = 0;
    }
    void arrive(int64_t expected = 0) {
        const std::lock_guard lock(mutex_);
        bytes_ += expected;
        --left_;
        turn();
    }
    void come(int64_t bytes) {
        const std::lock_guard lock(mutex_);
        bytes_ -= bytes;
        turn();
    }
    /// The phase of this parity, as far as parities can tell.
    bool passed(uint32_t parity) {
        const std::lock_guard lock(mutex_);
        return phase_ % 2 != parity;
    }

  private:
    void turn() {
        if (left_ != 0 || bytes_ != 0)
            return;
        ++phase_;
        left_ = each_;
    }

    std::mutex mutex_;
    uint32_t each_ = 0;
    uint32_t left_ = 0;
    int64_t bytes_ = 0;
    uint32_t phase_ = 0;
};

class CopyEngine {
  public:
    CopyEngine() : thread_([this] { run(); }) {}
    ~CopyEngine() {
        {
            const std::lock_guard lock(mutex_);
            over_ = true;
        }
        come_.notify_one();
        thread_.join();
    }
    void push(std::function<void()> copy) {
        {
            const std::lock_guard lock(mutex_);
            copies_.push_back(std::move(copy));
        }
        come_.notify_one();
    }

  private:
    void run() {
        std::mt19937 random(7);
        std::unique_lock lock(mutex_);
        for (;;) {
            come_.wait(lock, [this] { return over_ || !copies_.empty(); });
            if (copies_.empty())
                return;
            const size_t which = random() % copies_.size();
            const std::function<void()> copy = std::move(copies_[which]);
            copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(which));
            lock.unlock();
            if (random() % 4 == 0)
                std::this_thread::yield();
            copy();
            lock.lock();
        }
    }

    std::mutex mutex_;
    std::condition_variable come_;
    std::vector<std::function<void()>> copies_;
    bool over_ = false;
    std::thread thread_;
};

std::atomic<bool> abort_all{false};

struct Warp {
    std::mutex mutex;
    std::condition_variable met;
    uint32_t arrived = 0;
    uint32_t meetings = 0;
    bool all = true;
    bool result = true;
};

class HostLane {
  public:
    using Barrier = HostBarrier;
    class Waiting {
      public:
        explicit Waiting(const Job & /*job*/) {}
        static bool more(int /*peer*/) {
            std::this_thread::yield();
            return !abort_all;
        }
    };
    static constexpr uint32_t kLanes = 2;

    HostLane(CopyEngine &engine, Warp &warp, uint32_t lane) : engine_(engine), warp_(warp), lane_(lane) {}

    [[nodiscard]] uint32_t lane() const { return lane_; }
    void sync_warp() { all(true); }
    bool all(bool yes) {
        std::unique_lock lock(warp_.mutex);
        warp_.all = warp_.all && yes;
        const uint32_t meeting = warp_.meetings;
        if (++warp_.arrived == kLanes) {
            warp_.result = warp_.all;
            warp_.all = true;
            warp_.arrived = 0;
            ++warp_.meetings;
            warp_.met.notify_all();
        }
        warp_.met.wait(lock, [&] { return warp_.meetings != meeting; });
        return warp_.result;
    }
    static uint32_t look(const uint32_t &word) {
        std::this_thread::yield();
        return std::atomic_ref<uint32_t>(const_cast<uint32_t &>(word)).load(std::memory_order_acquire);
    }
    static void post(uint32_t &word, uint32_t value) {
        std::atomic_ref<uint32_t>(word).store(value, std::memory_order_release);
    }
    static void make(HostBarrier &barrier, uint32_t arrivals) { barrier.make(arrivals); }
    static void arrive(HostBarrier &barrier) { barrier.arrive(); }
    static bool passed(HostBarrier &barrier, uint32_t round) {
        if (barrier.passed(round % 2))
            return true;
        std::this_thread::yield();
        return false;
    }
    static void tell(uint32_t *flag, uint32_t value) { post(*flag, value); }
    static uint32_t hear(const uint32_t *flag) { return look(*flag); }
    static void join_proxies() {}
    static void join_shared() {}
    void load(char *to, const char *from, uint32_t bytes, HostBarrier &barrier) {
        expect_aligned(to, from, bytes);
        barrier.arrive(bytes);
        engine_.push([=, &barrier] {
            std::memcpy(to, from, bytes);
            barrier.come(bytes);
        });
    }
    void store(char *to, const char *from, uint32_t bytes) {
        expect_aligned(to, from, bytes);
        auto arrived = std::make_shared<std::atomic<bool>>(false);
        stores_.push_back(arrived);
        engine_.push([=] {
            std::memcpy(to, from, bytes);
            arrived->store(true, std::memory_order_release);
        });
    }
    template <uint32_t kMost>
    void await_stores() {
        while (stores_.size() > kMost) {
            while (!stores_.front()->load(std::memory_order_acquire))
                std::this_thread::yield();
            stores_.pop_front();
        }
    }

  private:
    static void expect_aligned(const char *to, const char *from, uint32_t bytes) {
        EXPECT_EQ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes) % kGrain, 0U);
    }

    CopyEngine &engine_;
    Warp &warp_;
    uint32_t lane_;
    std::deque<std::shared_ptr<std::atomic<bool>>> stores_;
};

/// Not commutative, so that the order shows.
char sum_of(char first, char second) {
    return static_cast<char>(3 * first + second);
}

constexpr uint32_t kRoles = 4;
constexpr uint32_t kAdders = 2;

struct HostAdder {
    uint32_t lane;
    void add(const char *first, const char *second, char *out, uint64_t bytes) const {
        for (uint64_t i = lane; i < bytes; i += kAdders * HostLane::kLanes)
            out[i] = sum_of(first[i], second[i]);
    }
};

/// As bulk_kernel.
void run_block(const Job &job, uint32_t block, CopyEngine &engine) {
    uint32_t *count = reinterpret_cast<uint32_t *>(job.windows[job.rank] + WindowLayout::count(block));
    const BulkTeam team(job, block, *count);
    BulkBoard<HostBarrier> board;
    std::vector<Warp> warps(kRoles + kAdders);
    std::vector<char> memory(kBulkShared + kGrain);
    char *stages = align_up(memory.data(), kGrain);
    char *pairs = stages + kBulkSending * kBulkSlot;
    HostLane first(engine, warps[0], 0);
    BulkRoles<HostLane>(first, job, team, board).prepare(kAdders, true);
    std::vector<std::thread> lanes;
    for (uint32_t warp = 0; warp < warps.size(); ++warp) {
        for (uint32_t number = 0; number < HostLane::kLanes; ++number) {
            lanes.emplace_back([&, warp, number] {
                HostLane lane(engine, warps[warp], number);
                BulkRoles<HostLane> roles(lane, job, team, board);
                const uint32_t adder = warp < kRoles ? 0 : (warp - kRoles) * HostLane::kLanes + number;
                switch (warp) {
                    case 0:
                        return roles.send(stages);
                    case 1:
                        return roles.take(pairs);
                    case 2:
                        return roles.tell(block);
                    case 3:
                        return roles.hear(block);
                    default:
                        return roles.add(HostAdder{adder}, adder == 0, pairs);
                }
            });
        }
    }
    for (std::thread &lane : lanes)
        lane.join();
    if (board.over == 0)
        *count = team.end();
}

struct Case {
    Collective collective;
    uint64_t bytes;  ///< of the whole vector
    bool in_place = false;
    int root = 0;
    uint32_t blocks = 1;
};

Job job_of(const Case &test, int rank, ExchangeWindows &windows) {
    Limits limits{0, UINT64_MAX, test.blocks};
    limits.bulk = true;
    const Plan plan = plan_of(test.collective, test.bytes, 2, {}, windows.layout, limits);
    EXPECT_EQ(plan.way, Way::bulk);
    return job_for(test.collective, test.bytes, test.root, rank, plan, windows);
}

/// One rank's memory for a call: buffers that begin anywhere, between bytes that nobody may write.
class Buffers {
  public:
    Buffers(const Case &test, int rank, size_t turn, std::mt19937 &random)
        : in_(test.bytes + 4 * kGrain, kGuard), out_(test.bytes + 4 * kGrain, kGuard), in_place_(test.in_place) {
        from_ = kGrain + (random() % 2 == 0 ? 0 : random() % kGrain);
        to_ = kGrain + (random() % 2 == 0 ? 0 : random() % kGrain);
        for (uint64_t i = 0; i < test.bytes; ++i)
            at_in()[i] = static_cast<char>(i * 31 + i / 251 * 7 + static_cast<size_t>(rank) * 91 + turn * 13);
        input_.assign(at_in(), at_in() + test.bytes);
    }
    char *at_in() { return in_.data() + from_; }
    char *at_out() { return in_place_ ? at_in() : out_.data() + to_; }
    const std::vector<char> &input() const { return input_; }
    bool wrote_elsewhere(uint64_t out_bytes) {
        std::vector<char> &all = in_place_ ? in_ : out_;
        const auto end =
            static_cast<size_t>(at_out() - all.data()) + std::max<uint64_t>(out_bytes, in_place_ ? input_.size() : 0);
        bool wrote = false;
        for (size_t i = 0; i < all.size(); ++i)
            wrote = wrote || ((i < static_cast<size_t>(at_out() - all.data()) || i >= end) && all[i] != kGuard);
        return wrote;
    }

  private:
    static constexpr char kGuard = 'x';
    std::vector<char> in_, out_;
    bool in_place_;
    size_t from_, to_;
    std::vector<char> input_;
};

TEST(CudaBulk, EveryReductionIsExactInRankOrder) {
    std::vector<Case> cases;
    for (const uint64_t bytes :
         {uint64_t{2}, uint64_t{34}, 2 * kBulkTile, 2 * kBulkTile + 2, uint64_t{150'002}, uint64_t{900'006}}) {
        for (const bool in_place : {false, true}) {
            const uint32_t blocks = bytes % 4 == 2 ? 2 : 1;
            cases.push_back({Collective::allreduce, bytes, in_place, 0, blocks});
            cases.push_back({Collective::reduce_scatter_block, bytes, in_place, 0, blocks});
            for (const int root : {0, 1})
                cases.push_back({Collective::reduce, bytes, in_place, root, blocks});
        }
    }
    std::mt19937 random(11);
    ExchangeWindows windows(2, 64 << 20);
    CopyEngine engine;
    std::vector<std::vector<Buffers>> buffers(2);
    for (size_t c = 0; c < cases.size(); ++c)
        for (int rank = 0; rank < 2; ++rank)
            buffers[rank].emplace_back(cases[c], rank, c, random);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 2; ++rank) {
        ranks.emplace_back([&, rank] {
            for (size_t c = 0; c < cases.size(); ++c) {
                Job job = job_of(cases[c], rank, windows);
                job.in = buffers[rank][c].at_in();
                job.out = buffers[rank][c].at_out();
                std::vector<std::thread> blocks;
                for (uint32_t block = 0; block < job.blocks; ++block)
                    blocks.emplace_back([&, block] { run_block(job, block, engine); });
                for (std::thread &block : blocks)
                    block.join();
            }
        });
    }
    for (std::thread &rank : ranks)
        rank.join();
    for (size_t c = 0; c < cases.size(); ++c) {
        const Case &test = cases[c];
        for (int rank = 0; rank < 2; ++rank) {
            const bool scattered = test.collective == Collective::reduce_scatter_block;
            const bool takes = test.collective != Collective::reduce || rank == test.root;
            const uint64_t bytes = !takes ? 0 : scattered ? test.bytes / 2 : test.bytes;
            const uint64_t from = scattered ? rank * bytes : 0;
            uint64_t wrong = 0;
            for (uint64_t i = 0; i < bytes; ++i)
                if (buffers[rank][c].at_out()[i] !=
                    sum_of(buffers[0][c].input()[from + i], buffers[1][c].input()[from + i]))
                    ++wrong;
            EXPECT_EQ(wrong, 0U) << name_of(test.collective) << " of " << test.bytes << " on rank " << rank
                                 << (test.in_place ? " in place" : "");
            EXPECT_FALSE(buffers[rank][c].wrote_elsewhere(bytes)) << name_of(test.collective) << " of " << test.bytes;
        }
    }
}

TEST(CudaBulk, AllWaitsEndWhenThePeerIsGivenUp) {
    for (const uint64_t bytes : {uint64_t{100}, uint64_t{2'000'000}}) {
        ExchangeWindows windows(2, 64 << 20);
        const Case test{Collective::allreduce, bytes};
        std::mt19937 random(3);
        Buffers buffers(test, 0, 0, random);
        Job job = job_of(test, 0, windows);
        job.in = buffers.at_in();
        job.out = buffers.at_out();
        {
            CopyEngine engine;
            std::thread alone([&] { run_block(job, 0, engine); });
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            abort_all = true;
            alone.join();
        }
        abort_all = false;
        uint32_t count = 0;
        std::memcpy(&count, windows.window(0) + WindowLayout::count(0), sizeof count);
        EXPECT_EQ(count, 0U) << "an operation that was given up does not count";
    }
}

}  // namespace
}  // namespace flx::cuda
