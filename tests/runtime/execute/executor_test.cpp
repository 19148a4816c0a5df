/// The executor over links that refuse, delay, repeat and complete late: every algorithm against a serial reference,
/// and what it says of chunks and links that are wrong.
#include "runtime/execute/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <functional>
#include <optional>
#include <thread>

#include "tests/runtime/execute/fake_fabric.h"
#include "tests/runtime/execute/lone_executor.h"
#include "tests/runtime/link/ranks.h"
#include "tests/runtime/plan/calls.h"

namespace flx {
namespace {

using algorithms::Algorithm;
using algorithms::BitClass;
using algorithms::Collective;
using algorithms::StepKind;
using testing::Fabric;
using testing::FabricFacts;
using testing::FakeLink;
using testing::LoneExecutor;
using testing::RandomRouter;
using testing::run_ranks;
using testing::TestBuffers;
using testing::TestCall;

constexpr WaitPolicy kYield{.spins = 0, .sleep_after_ns = 1'000'000'000, .check_ns = 1'000'000};

class TestWatch final : public Watch {
  public:
    TestWatch(const std::atomic<int> &failed, int64_t most_ns) : failed_(failed), most_ns_(most_ns) {}
    /// Called when the wait was too long.
    std::function<void()> ask = [] {};
    void progress() override {}
    Status check(int64_t waited_ns) override {
        if (failed_.load() != 0)
            return fail(Fault::comm_given_up, "another rank failed");
        if (waited_ns <= most_ns_)
            return {};
        ask();
        return fail(Fault::peer_died, "waited too long");
    }

  private:
    const std::atomic<int> &failed_;
    const int64_t most_ns_;
};

struct Program {
    const Algorithm *algorithm;
    TestCall call;
};

/// Each algorithm with each collective that it serves, in random order, so that the next operation is another one.
std::vector<Program> random_programs(int ranks, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<Program> programs;
    for (const Algorithm &algorithm : algorithms::all()) {
        for (const algorithms::Collective collective : algorithms::kScheduled) {
            if (!algorithm.serves(collective, ranks))
                continue;
            for (const size_t most : {size_t{1}, size_t{40}, size_t{2000}, size_t{20000}}) {
                TestCall call;
                call.collective = collective;
                call.ranks = ranks;
                call.dtype = std::array{FLX_INT32, FLX_UINT8, FLX_INT64, FLX_F32, FLX_BF16, FLX_F8E4M3}[random() % 6];
                call.op = static_cast<flx_op_t>(random() % kOps);
                if (!fits(call.op, call.dtype))
                    call.op = FLX_SUM;
                call.root = static_cast<int>(random() % ranks);
                call.count = collective == Collective::barrier ? 1 : 1 + random() % most;
                if (call.scans() && call.op == FLX_AVG)
                    call.op = FLX_SUM;
                if (call.single_input() || call.single_output())
                    call.count = std::max<size_t>(1, call.count / ranks) * ranks;
                call.in_place = random() % 2 == 0;
                call.seed = random() % 100'000;
                programs.push_back({&algorithm, call});
            }
        }
    }
    std::shuffle(programs.begin(), programs.end(), random);
    return programs;
}

using Results = std::vector<std::vector<std::vector<std::byte>>>;  // by program and rank

/// Runs the programs one after the other, on ranks that do not wait for each other between them. `seed`: of everything
/// that must not change results.
void run_programs(const std::vector<Program> &programs, int ranks, uint32_t seed, FabricFacts &facts,
                  Results &results) {
    std::mt19937 random(seed);
    facts.forget_sent();
    const int links = 1 + static_cast<int>(random() % 4);
    std::vector<std::unique_ptr<Fabric>> fabrics;
    for (int link = 0; link < links; ++link)
        fabrics.push_back(
            std::make_unique<Fabric>(fmt::format("link{}", link), link == 0 ? LinkKind::shm : LinkKind::rail, ranks,
                                     1 + static_cast<int>(random() % 4), kMaxCellBytes << random() % 2, facts));
    std::vector<int> uneven;
    std::vector<int> around;
    for (int rank = 0; rank < ranks; ++rank) {
        uneven.push_back(rank * 3 < ranks ? 0 : 1);
        around.push_back(rank % 3);
    }
    const std::array placements = {algorithms::Placement::of(uneven), algorithms::Placement::of(around)};
    std::atomic<int> failed{0};
    std::vector<std::atomic<size_t>> entered(static_cast<size_t>(ranks));
    results.assign(programs.size(), std::vector<std::vector<std::byte>>(static_cast<size_t>(ranks)));
    run_ranks(ranks, [&](int rank) {
        std::vector<std::unique_ptr<FakeLink>> ends;
        std::vector<Link *> pointers;
        std::mt19937 chaos(seed * 31 + static_cast<uint32_t>(rank));
        for (const auto &fabric : fabrics) {
            ends.push_back(std::make_unique<FakeLink>(*fabric, rank, seed * 100 + pointers.size() * 10 + rank));
            pointers.push_back(ends.back().get());
            // All but the first may be lost for a while or for ever; some never say how fast they are.
            if (pointers.size() > 1 && chaos() % 3 == 0)
                ends.back()->lose_after(1 + static_cast<int>(chaos() % 60), static_cast<int>(chaos() % 40));
            if (chaos() % 4 != 0)
                ends.back()->set_pace(std::array{0.001, 0.1, 1.0, 50.0}[chaos() % 4]);
        }
        RandomRouter router(links, seed * 7 + rank, facts);
        LoneExecutor executor(rank, ranks, pointers, router);
        executor->time_phases();
        TestWatch watch(failed, 20'000'000'000);
        for (size_t number = 0; number < programs.size() && failed == 0; ++number) {
            const Algorithm *algorithm = programs[number].algorithm;
            const TestCall &call = programs[number].call;
            const Plan plan(*algorithm, {call.collective, rank, ranks, call.root, &placements[number % 2]});
            const TestBuffers buffers(call, rank);
            Operation operation{call.collective, buffers.in(), buffers.out(), call.count, call.dtype,
                                call.op,         call.root,    number + 1,    call.seed};
            for (const auto &end : ends)
                end->set_sequence(operation.sequence);
            entered[rank] = number + 1;
            Waiter waiter(kYield, watch);
            const Status status = executor.run(operation, plan, waiter);
            const auto where = [&] {
                return fmt::format("{}: {}, operation {}, rank {}, {} links, seed {}", algorithm->name, call.text(),
                                   number + 1, rank, links, seed);
            };
            if (!status.ok() || !buffers.intact())
                ++failed;
            ASSERT_TRUE(status.ok()) << where() << ": " << status.sentence();
            ASSERT_TRUE(buffers.intact()) << where();
            const std::vector<PhaseDone> &phases = executor.phases();
            ASSERT_EQ(phases.size(), plan.schedule().phases) << where();
            for (size_t phase = 1; phase < phases.size(); ++phase)
                EXPECT_EQ(phases[phase].began_ns, phases[phase - 1].ended_ns) << where();
            EXPECT_TRUE(ranks == 1 || phases.back().ended_ns > 0) << where();
            if (call.collective == Collective::barrier) {
                for (const auto &other : entered)
                    ASSERT_GT(other.load(), number) << where() << ": a rank had not come";
            }
            results[number][rank] = buffers.result();
            const bool floats = call.dtype >= FLX_F16;
            const BitClass bits = algorithm->bits(call.collective);
            if (floats && bits != BitClass::none && bits != BitClass::rank_order)
                continue;
            const bool right = results[number][rank] == result_of(call, rank);
            if (!right)
                ++failed;
            ASSERT_TRUE(right) << where();
        }
        for (const auto &end : ends) {
            EXPECT_EQ(end->held(), 0U) << "every arrival is released";
            EXPECT_EQ(end->outstanding(), 0U) << "every source was given back before its operation returned";
        }
    });
    EXPECT_EQ(failed, 0);
}

class ExecutorRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ExecutorRanks, ::testing::Range(2, 6));

TEST_P(ExecutorRanks, AllAlgorithmsOverDifferentLinksAndVectors) {
    const int ranks = GetParam();
    FabricFacts facts;
    for (uint32_t seed = 1; seed <= 5; ++seed) {
        const std::vector<Program> programs = random_programs(ranks, seed * 10 + ranks);
        std::optional<Results> first;
        for (uint32_t links_seed = 1; links_seed <= 3; ++links_seed) {
            Results results;
            run_programs(programs, ranks, links_seed * 5 + seed, facts, results);
            if (HasFailure())
                return;
            if (!first)
                first = results;
            for (size_t number = 0; number < programs.size(); ++number) {
                const auto &[algorithm, call] = programs[number];
                EXPECT_EQ(results[number], (*first)[number])
                    << algorithm->name << ": " << call.text() << ": bits depend on the links";
                if (call.collective != Collective::allreduce)
                    continue;
                for (const auto &result : results[number])
                    EXPECT_EQ(result, results[number][0]) << algorithm->name << ": " << call.text();
            }
        }
    }
    // What this test is about did happen.
    EXPECT_GT(facts.busy, 0);
    EXPECT_GT(facts.in_flight, 0);
    EXPECT_GT(facts.duplicates, 0);
    EXPECT_GT(facts.early, 0);
    EXPECT_GT(facts.split, 0);
    EXPECT_GT(facts.lost, 0);
    EXPECT_GT(facts.returned, 0);
    EXPECT_GT(facts.moved, 0);
    EXPECT_EQ(facts.sent_twice, 0);
}

// ---- where cells go that are moved

/// Half and half over two rails, whatever they do.
class HalfRouter final : public Router {
  public:
    HalfRouter(bool may_move, const std::array<double, 2> &rates)
        : may_move_(may_move), rates_(rates), vector_(make_partition(std::array{1.0, 1.0})) {}
    const PartitionVector &vector(int, size_t, int) override { return vector_; }
    [[nodiscard]] uint32_t incoming_links(int) const override { return 3; }
    [[nodiscard]] uint32_t outgoing_links(int) const override { return 3; }
    [[nodiscard]] double rate(int link, int) const override { return rates_[static_cast<size_t>(link)]; }
    [[nodiscard]] bool may_move_cells() const override { return may_move_; }
    void lost(int link, int) override { lost_links.push_back(link); }

    std::vector<int> lost_links;

  private:
    const bool may_move_;
    const std::array<double, 2> rates_;
    const PartitionVector vector_;
};

struct TwoRails {
    double other_pace = 1;             ///< of the second rail; the first has 1
    std::array<double, 2> believed{};  ///< before the operation
    int slowness = 0;                  ///< of the second rail, see Fabric
    int lose_after = -1;               ///< chunks that rank 0's second rail takes
    bool may_move = true;
    uint32_t early_bytes = 0;  ///< of a later operation, which rank 1 keeps; over the first rail
};

/// Bytes that rank 0 sent over each of two rails in an allgather of two ranks. Results are checked.
std::array<uint64_t, 2> bytes_over(const TwoRails &rails, std::vector<int> *lost = nullptr) {
    FabricFacts facts;
    constexpr int kRoom = 2;
    Fabric first("a", LinkKind::rail, 2, kRoom, kMaxCellBytes, facts);
    Fabric second("b", LinkKind::rail, 2, kRoom, kMaxCellBytes, facts);
    second.slowness = rails.slowness;
    std::array<uint64_t, 2> bytes{};
    std::atomic<int> failed{0};
    run_ranks(2, [&](int rank) {
        FakeLink a(first, rank, 1 + rank);
        FakeLink b(second, rank, 11 + rank);
        a.set_pace(1);
        b.set_pace(rails.other_pace);
        if (rank == 0 && rails.lose_after >= 0)
            b.lose_after(rails.lose_after, 0);
        const std::vector<std::byte> early(rails.early_bytes);
        if (rank == 0 && rails.early_bytes != 0) {
            while (a.send(1, {9, 1, 0, 0, 0, 0, 1, rails.early_bytes, 0}, early.data()) == SendResult::busy) {
            }
        }
        HalfRouter router(rails.may_move, rails.believed);
        LoneExecutor executor(rank, 2, {&a, &b}, router);
        TestWatch watch(failed, 20'000'000'000);
        TestCall call;
        call.collective = Collective::allgather;
        call.ranks = 2;
        call.count = 2 * 400'000;
        const Plan plan(*algorithms::find("direct"), {call.collective, rank, 2, 0});
        const TestBuffers buffers(call, rank);
        const Operation operation{
            call.collective, buffers.in(), buffers.out(), call.count, call.dtype, call.op, 0, 1, 7};
        Waiter waiter(kYield, watch);
        const Status status = executor.run(operation, plan, waiter);
        EXPECT_TRUE(status.ok()) << status.sentence();
        EXPECT_EQ(buffers.result(), result_of(call, rank));
        if (rank != 0)
            return;
        bytes = {a.counters(1).bytes, b.counters(1).bytes};
        if (lost != nullptr)
            *lost = router.lost_links;
    });
    EXPECT_EQ(facts.sent_twice, 0);
    EXPECT_EQ(bytes[0] + bytes[1], 400'000 * sizeof(int32_t) + rails.early_bytes);
    return bytes;
}

/// While its thread has no core the fast rail is no faster: of some runs, with time between them in which other
/// programs may end, one must show that cells moved to it.
std::array<uint64_t, 2> bytes_once_moved(const TwoRails &rails) {
    constexpr int kRuns = 40;
    std::array<uint64_t, 2> bytes = bytes_over(rails);
    for (int run = 1; run < kRuns && bytes[1] >= bytes[0] / 3; ++run) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10 * run));
        bytes = bytes_over(rails);
    }
    return bytes;
}

TEST(MovedCells, GoToTheRailThatIsFaster) {
    const auto bytes = bytes_once_moved({.other_pace = 0.1, .slowness = 40});
    EXPECT_LT(bytes[1], bytes[0] / 3) << "a rail of a tenth of the speed kept its half";
    EXPECT_GT(bytes[1], 0U);
}

TEST(MovedCells, StayWhereSharesAreForced) {
    const auto bytes = bytes_over({.other_pace = 0.1, .slowness = 5, .may_move = false});
    EXPECT_NEAR(static_cast<double>(bytes[0]), static_cast<double>(bytes[1]), kMaxCellBytes);
}

TEST(MovedCells, StayWhereThePaceIsNotKnown) {
    const auto bytes = bytes_over({.other_pace = 0});
    EXPECT_NEAR(static_cast<double>(bytes[0]), static_cast<double>(bytes[1]), kMaxCellBytes);
}

TEST(MovedCells, FollowWhatWasBelievedInAShortOperation) {
    auto bytes = bytes_once_moved({.other_pace = 0, .believed = {1, 0.1}, .slowness = 40});
    EXPECT_LT(bytes[1], bytes[0] / 3) << "a rail of a tenth of the speed kept its half";
    // At these rates it takes a tenth of a second, in which the pace shows itself.
    bytes = bytes_over({.other_pace = 0, .believed = {1e-2, 1e-3}, .slowness = 5});
    EXPECT_NEAR(static_cast<double>(bytes[0]), static_cast<double>(bytes[1]), kMaxCellBytes);
}

TEST(MovedCells, AreNotKeptBackByAMessageThatNobodyAskedFor) {
    // The first rail never empties, and the second is too slow to help it.
    const auto bytes = bytes_over({.other_pace = 0.1, .early_bytes = 32'000});
    EXPECT_GT(bytes[0], bytes[1] / 2);
}

TEST(MovedCells, LeaveALostRailWhateverElseHolds) {
    for (const bool may_move : {true, false}) {
        for (const double pace : {0.0, 1.0, 100.0}) {
            std::vector<int> lost;
            const auto bytes = bytes_over({.other_pace = pace, .lose_after = 3, .may_move = may_move}, &lost);
            EXPECT_LE(bytes[1], 3 * kMaxCellBytes);
            EXPECT_EQ(lost, std::vector<int>{1}) << "it is told once";
        }
    }
}

// ---- one rank, and a link that gives it what the test says

class ScriptedLink : public Link {
  public:
    SendResult answer = SendResult::busy;
    Status broken;
    std::deque<std::pair<ChunkHeader, std::vector<std::byte>>> script;
    int released = 0;
    int looks = 0;

    [[nodiscard]] const std::string &name() const override { return name_; }
    [[nodiscard]] LinkKind kind() const override { return LinkKind::rail; }
    [[nodiscard]] bool reaches(int) const override { return true; }
    [[nodiscard]] size_t max_chunk() const override { return kMaxCellBytes; }
    [[nodiscard]] size_t good_chunk(size_t) const override { return kMaxCellBytes; }
    SendResult send(int, const ChunkHeader &, const void *) override { return answer; }
    bool receive(int peer, Arrival &arrival) override {
        if (script.empty())
            return false;
        given_.push_back(std::move(script.front()));
        script.pop_front();
        arrival = {given_.back().first, peer, given_.back().second.data(), given_.size()};
        return true;
    }
    void release(const Arrival &) override { ++released; }
    bool completed(Completion &) override { return false; }
    bool progress() override {
        ++looks;
        return false;
    }
    [[nodiscard]] size_t outstanding() const override { return 0; }
    [[nodiscard]] size_t unacknowledged(int) const override { return 0; }
    [[nodiscard]] LinkCounters counters(int) const override { return {}; }
    [[nodiscard]] Status error(int) const override { return broken; }

  private:
    const std::string name_ = "scripted";
    std::deque<std::pair<ChunkHeader, std::vector<std::byte>>> given_;
};

/// The first two cells of a sum that rank 0 makes of three: the first comes from rank 1 alone and the second from rank
/// 2 alone, since both links are full. Rank 1's comes again in every turn, until one of them is given back.
class FlappingLink final : public ScriptedLink {
  public:
    int came_again = 0;

    bool receive(int peer, Arrival &arrival) override {
        const bool first = turns_[static_cast<size_t>(peer)]++ == 0;
        const bool again = peer == 1 && released == 0 && came_again < kMost;
        if (!first && !again)
            return false;
        came_again += first ? 0 : 1;
        const ChunkHeader header{5, 1, 77, 0, 0, static_cast<uint32_t>(peer - 1), 1, 256, 0};
        arrival = {header, peer, data_.data(), 1};
        return true;
    }

  private:
    static constexpr int kMost = 2'000;
    std::array<int, 3> turns_{};
    const std::vector<std::byte> data_ = std::vector<std::byte>(256, std::byte{1});
};

/// A rail that is lost and comes back again and again brings what was not acknowledged each time. That is no reason to
/// hold for ever what keeps out the rest.
TEST(HeldCells, GiveTheirRoomBackWhileDuplicatesCome) {
    constexpr size_t kCount = 300;
    constexpr int64_t kPatienceNs = 1'000;
    std::atomic<int> none{0};
    FabricFacts facts;
    TestWatch watch(none, 20'000'000);
    FlappingLink link;
    link.answer = SendResult::copied;
    RandomRouter router(1, 1, facts);
    LoneExecutor executor(0, 3, {&link}, router, kPatienceNs);
    const Plan plan(*algorithms::find("direct"), {Collective::reduce, 0, 3, 0});
    const std::vector<int32_t> in(kCount, 3);
    std::vector<int32_t> out(kCount);
    const Operation operation{Collective::reduce, in.data(), out.data(), kCount, FLX_INT32, FLX_SUM, 0, 5, 77};
    Waiter waiter(kYield, watch);
    EXPECT_EQ(executor.run(operation, plan, waiter).code(), FLX_ERR_PEER) << "no cell is complete";
    EXPECT_GE(link.came_again, 1);
    EXPECT_LT(link.came_again, 1'000) << "held as long as duplicates came";
    EXPECT_GE(link.released, 2);
}

/// Rank 0 of two, in an allreduce of kCount 32-bit integers.
class ExecutorAlone : public ::testing::Test {
  protected:
    static constexpr size_t kCount = 300;

    Status run(const Algorithm &algorithm, Collective collective = Collective::allreduce, uint64_t sequence = 5) {
        const Plan plan(algorithm, {collective, 0, 2, 0});
        std::fill(out_.begin(), out_.end(), -7);
        const bool bcast = collective == Collective::bcast;
        const Operation operation{
            collective, bcast ? out_.data() : in_.data(), out_.data(), kCount, FLX_INT32, FLX_SUM, 0, sequence, 77};
        Waiter waiter(kYield, watch_);
        return executor_.run(operation, plan, waiter);
    }
    [[nodiscard]] bool untouched() const {
        return std::all_of(out_.begin(), out_.end(), [](int32_t value) { return value == -7; });
    }

    /// A chunk of one cell that an allreduce waits for first.
    static ChunkHeader good_header(const Algorithm &algorithm) {
        const Plan plan(algorithm, {Collective::allreduce, 0, 2, 0});
        for (const algorithms::Step &step : plan.schedule().steps)
            if (step.kind != StepKind::send && step.kind != StepKind::copy)
                return {5, 1, 77, step.phase, step.block, 0, 1, 256, 0};
        ADD_FAILURE() << algorithm.name << " receives nothing";
        return {};
    }
    void deliver(const ChunkHeader &header) {
        link_.script.emplace_back(header, std::vector<std::byte>(4096, std::byte{1}));
    }

    std::atomic<int> none_{0};
    FabricFacts facts_;
    TestWatch watch_{none_, 20'000'000};
    ScriptedLink link_;
    RandomRouter router_{1, 1, facts_};
    LoneExecutor executor_{0, 2, {&link_}, router_};
    std::vector<int32_t> in_ = std::vector<int32_t>(kCount, 3);
    std::vector<int32_t> out_ = std::vector<int32_t>(kCount);
};

std::vector<const Algorithm *> allreduces() {
    std::vector<const Algorithm *> result;
    for (const Algorithm &algorithm : algorithms::all())
        if (algorithm.serves(Collective::allreduce, 2))
            result.push_back(&algorithm);
    return result;
}

class ExecutorAlgorithms : public ExecutorAlone, public ::testing::WithParamInterface<const Algorithm *> {};
INSTANTIATE_TEST_SUITE_P(Allreduce, ExecutorAlgorithms, ::testing::ValuesIn(allreduces()), [](const auto &info) {
    std::string name(info.param->name);
    std::ranges::replace_if(
        name, [](char letter) { return std::isalnum(letter) == 0; }, '_');
    return name;
});

TEST_P(ExecutorAlgorithms, TakesAChunkThatFitsAndWaitsForTheRest) {
    deliver(good_header(*GetParam()));
    std::vector<Awaited> awaited;
    Progress progress;
    watch_.ask = [&] {
        awaited.clear();
        executor_->awaited(awaited);
        progress = executor_->progress();
    };
    const Status status = run(*GetParam());
    EXPECT_EQ(status.code(), FLX_ERR_PEER) << "what the watch says: " << status.sentence();
    EXPECT_LT(progress.steps_done, progress.steps);
    EXPECT_LT(progress.phase, progress.phases);
    ASSERT_FALSE(awaited.empty());
    for (const Awaited &entry : awaited) {
        EXPECT_EQ(entry.peer, 1);
        EXPECT_GT(entry.bytes, 0U);
    }
}

/// A look at a rail is a system call: who only sends looks now and then, and who has what it waits for does not look.
TEST_F(ExecutorAlone, LooksAtItsLinksForWhatIsNotThere) {
    const Algorithm &tree = *algorithms::find("binomial_tree");
    constexpr uint64_t kCalls = 64;
    link_.answer = SendResult::copied;
    for (uint64_t call = 1; call <= kCalls; ++call) {
        const Status sent = run(tree, Collective::bcast, call);
        ASSERT_TRUE(sent.ok()) << sent.sentence();
    }
    EXPECT_GE(link_.looks, kCalls / 16);
    EXPECT_LE(link_.looks, kCalls / 4);

    ScriptedLink link;
    LoneExecutor executor(1, 2, {&link}, router_);
    const Plan plan(tree, {Collective::bcast, 1, 2, 0});
    const Operation bcast{Collective::bcast, out_.data(), out_.data(), kCount, FLX_INT32, FLX_SUM, 0, 5, 77};
    const std::vector<std::byte> data(kCount * sizeof(int32_t), std::byte{1});
    const ChunkHeader header{5, 1, 77, 0, 0, 0, 5, kCount * sizeof(int32_t), 0};
    link.script.emplace_back(header, data);
    Waiter waiter(kYield, watch_);
    const Status came = executor.run(bcast, plan, waiter);
    EXPECT_TRUE(came.ok()) << came.sentence();
    EXPECT_EQ(out_[0], 0x01010101);
    EXPECT_EQ(link.looks, 0);
    Operation next = bcast;
    next.sequence = 6;
    EXPECT_EQ(executor.run(next, plan, waiter).code(), FLX_ERR_PEER);
    EXPECT_GT(link.looks, 0);
}

/// Rank 1 of a reduce_scatter_block. In place its result lies over what it sends to rank 0, and waits until that is
/// acknowledged; elsewhere nothing waits, or the slower of two rails would hold back what came over the other.
TEST_F(ExecutorAlone, AResultWaitsForASendOnlyWhereItOverwritesIt) {
    for (const char *name : {"direct", "ring"}) {
        for (const bool in_place : {true, false}) {
            const Plan plan(*algorithms::find(name), {Collective::reduce_scatter_block, 1, 2, 0});
            const void *in = in_place ? out_.data() : in_.data();
            std::fill(out_.begin(), out_.end(), -7);
            ScriptedLink link;
            link.answer = SendResult::in_flight;  // and never acknowledged
            LoneExecutor executor(1, 2, {&link}, router_);
            std::vector<std::byte> data(256, std::byte{1});
            link.script.emplace_back(ChunkHeader{5, 1, 77, 0, 1, 0, 1, 256, 0}, data);
            const Operation operation{
                Collective::reduce_scatter_block, in, out_.data(), kCount, FLX_INT32, FLX_SUM, 0, 5, 77};
            Waiter waiter(kYield, watch_);
            const Status status = executor.run(operation, plan, waiter);
            EXPECT_EQ(status.code(), FLX_ERR_PEER) << status.sentence();
            EXPECT_EQ(out_[0], in_place ? -7 : 0x01010101 + 3) << name;
        }
    }
}

TEST_P(ExecutorAlgorithms, RefusesAHeaderThatDoesNotFit) {
    const auto wrong = [&](void (*change)(ChunkHeader &), const char *what) {
        ScriptedLink link;
        LoneExecutor executor(0, 2, {&link}, router_);
        ChunkHeader header = good_header(*GetParam());
        change(header);
        link.script.emplace_back(header, std::vector<std::byte>(4096, std::byte{1}));
        const Plan plan(*GetParam(), {Collective::allreduce, 0, 2, 0});
        std::fill(out_.begin(), out_.end(), -7);
        const Operation operation{Collective::allreduce, in_.data(), out_.data(), kCount, FLX_INT32, FLX_SUM, 0, 5, 77};
        Waiter waiter(kYield, watch_);
        const Status status = executor.run(operation, plan, waiter);
        EXPECT_EQ(status.code(), FLX_ERR_MISMATCH) << what << ": " << status.sentence();
        EXPECT_EQ(status.sentence().rfind("rank 1 ", 0), 0U) << status.sentence();
        EXPECT_TRUE(untouched()) << what;
    };
    wrong([](ChunkHeader &header) { header.phase += 9; }, "phase");
    wrong([](ChunkHeader &header) { header.block += 9; }, "block");
    wrong([](ChunkHeader &header) { header.block = UINT32_MAX; }, "last block");
    wrong([](ChunkHeader &header) { header.first_cell = 100; }, "cell past the end");
    wrong([](ChunkHeader &header) { header.first_cell = UINT32_MAX; }, "cell that wraps");
    wrong([](ChunkHeader &header) { header.cells = 0; }, "no cell");
    wrong([](ChunkHeader &header) { header.cells = UINT32_MAX; }, "too many cells");
    wrong([](ChunkHeader &header) { header.cells = 2; }, "more cells than bytes");
    wrong([](ChunkHeader &header) { header.bytes -= 1; }, "a byte too few");
    wrong([](ChunkHeader &header) { header.bytes = 0; }, "no bytes");
    wrong([](ChunkHeader &header) { header.bytes = UINT32_MAX; }, "too many bytes");
    wrong([](ChunkHeader &header) { header.signature = 78; }, "signature");
}

TEST_P(ExecutorAlgorithms, DropsChunksOfEarlierOperations) {
    const Algorithm *sender = algorithms::find("double_binary_tree");
    ASSERT_TRUE(sender != nullptr);
    link_.answer = SendResult::copied;
    const Status before = run(*sender, Collective::bcast, 4);
    EXPECT_TRUE(before.ok()) << before.sentence();
    ChunkHeader header = good_header(*GetParam());
    header.sequence = 4;
    header.signature = 1;
    header.cells = 1000;  // nobody looks at it
    deliver(header);
    EXPECT_EQ(run(*GetParam()).code(), FLX_ERR_PEER);
    EXPECT_EQ(link_.released, 1);
    EXPECT_TRUE(untouched());
}

/// What measured a link has no number, and may come when nothing was awaited before.
TEST_P(ExecutorAlgorithms, DropsWhatMeasuredALink) {
    ChunkHeader header = good_header(*GetParam());
    header.sequence = 0;
    deliver(header);
    EXPECT_EQ(run(*GetParam()).code(), FLX_ERR_PEER);
    EXPECT_EQ(link_.released, 1);
    EXPECT_TRUE(untouched());
}

/// A chunk of the next operation is kept, and looked at when that begins.
TEST_P(ExecutorAlgorithms, KeepsChunksOfTheNextOperation) {
    const Algorithm *sender = algorithms::find("double_binary_tree");
    ASSERT_TRUE(sender != nullptr);
    ChunkHeader header = good_header(*GetParam());
    header.signature = 78;
    deliver(header);
    link_.answer = SendResult::copied;
    const Status before = run(*sender, Collective::bcast, 4);
    EXPECT_TRUE(before.ok()) << before.sentence();
    ASSERT_TRUE(link_.script.empty()) << "it came while the first operation ran";
    EXPECT_EQ(link_.released, 0);
    EXPECT_EQ(run(*GetParam()).code(), FLX_ERR_MISMATCH);
    EXPECT_TRUE(untouched());
}

TEST_P(ExecutorAlgorithms, PassesOnWhyALinkFailed) {
    link_.broken = Status(Fault::no_link, "the link to rank 1 is gone");
    link_.answer = SendResult::failed;
    const Status sending = run(*GetParam());
    EXPECT_EQ(sending.code(), FLX_ERR_LINK);
    EXPECT_EQ(sending.sentence(), link_.broken.sentence());

    ScriptedLink link;  // notices it while it waits
    link.broken = link_.broken;
    LoneExecutor executor(0, 2, {&link}, router_);
    const Plan plan(*GetParam(), {Collective::allreduce, 0, 2, 0});
    const Operation operation{Collective::allreduce, in_.data(), out_.data(), kCount, FLX_INT32, FLX_SUM, 0, 5, 77};
    Waiter waiter(kYield, watch_);
    EXPECT_EQ(executor.run(operation, plan, waiter).sentence(), link.broken.sentence());
    EXPECT_TRUE(untouched());
}

}  // namespace
}  // namespace flx
