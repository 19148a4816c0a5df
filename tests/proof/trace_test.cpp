/// Executors over rails that lose what they carry: results are right, and what every rank recorded is a run that the
/// model of the protocol (failover.pml) allows. Traces that were changed are refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <thread>

#include "runtime/execute/executor.h"
#include "tests/proof/lossy_rails.h"
#include "tests/proof/trace_rules.h"
#include "tests/runtime/execute/fake_fabric.h"
#include "tests/runtime/execute/lone_executor.h"
#include "tests/runtime/link/ranks.h"
#include "tests/runtime/plan/calls.h"

namespace flx {
namespace {

using algorithms::Algorithm;
using algorithms::BitClass;
using algorithms::Collective;
using testing::LoneExecutor;
using testing::LossFacts;
using testing::LossyNetwork;
using testing::LossyRails;
using testing::TestBuffers;
using testing::TestCall;
using testing::TraceRules;
using testing::Traces;

constexpr WaitPolicy kYield{.spins = 0, .sleep_after_ns = 1'000'000'000, .check_ns = 1'000'000};

class Patience final : public Watch {
  public:
    void progress() override {}
    Status check(int64_t waited_ns) override {
        return waited_ns < 30'000'000'000 ? Status() : fail(Fault::peer_died, "waited too long");
    }
};

struct Program {
    const Algorithm *algorithm;
    TestCall call;
};

std::vector<Program> random_programs(int ranks, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<Program> programs;
    for (const Algorithm &algorithm : algorithms::all()) {
        for (const algorithms::Collective collective : algorithms::kScheduled) {
            TestCall call;
            call.collective = collective;
            if (!algorithm.serves(call.collective, ranks))
                continue;
            call.ranks = ranks;
            call.dtype = FLX_INT32;
            call.op = FLX_SUM;
            call.root = static_cast<int>(random() % static_cast<uint32_t>(ranks));
            call.count = call.collective == Collective::barrier ? 1 : 1 + random() % 3000;
            if (call.single_input() || call.single_output())
                call.count = (call.count / ranks + 1) * ranks;
            call.in_place = random() % 3 != 0;
            call.seed = random() % 100'000;
            programs.push_back({&algorithm, call});
        }
    }
    std::shuffle(programs.begin(), programs.end(), random);
    return programs;
}

/// Runs the programs on ranks that do not wait for each other in between; one poll of a rail of `one_in` cuts it. What
/// cannot be used yet is copied after `patience_ns`.
Traces run_programs(int ranks, uint32_t seed, uint32_t one_in, LossFacts &facts, int64_t patience_ns = 20'000'000) {
    const std::vector<Program> programs = random_programs(ranks, seed);
    const int rails = 2 + static_cast<int>(seed % 2);
    LossyNetwork network(ranks, rails, one_in, facts);
    testing::FabricFacts unused;
    std::vector<int> halves;
    for (int rank = 0; rank < ranks; ++rank)
        halves.push_back(rank % 2);
    const std::array placements = {algorithms::Placement::one_host(ranks), algorithms::Placement::of(halves)};
    std::vector<Trace> traces(static_cast<size_t>(ranks));
    testing::run_ranks(ranks, [&](int rank) {
        Trace &trace = traces[static_cast<size_t>(rank)];
        LossyRails lossy(network, rank, seed * 100 + static_cast<uint32_t>(rank), trace);
        testing::RandomRouter router(rails, seed * 7 + static_cast<uint32_t>(rank), unused);
        LoneExecutor executor(rank, ranks, lossy.links(), router, patience_ns);
        executor->record(&trace);
        Patience patience;
        uint64_t sequence = 0;
        for (const auto &[algorithm, call] : programs) {
            const Plan plan(*algorithm, {call.collective, rank, ranks, call.root, &placements[sequence % 2]});
            const TestBuffers buffers(call, rank);
            const Operation operation{call.collective, buffers.in(), buffers.out(), call.count, call.dtype,
                                      call.op,         call.root,    ++sequence,    call.seed};
            Waiter waiter(kYield, patience);
            const Status status = executor.run(operation, plan, waiter);
            EXPECT_TRUE(status.ok()) << algorithm->name << ": " << call.text() << ", seed " << seed << ", rank " << rank
                                     << ": " << status.sentence();
            if (!status.ok())
                break;
            lossy.ended(sequence);
            EXPECT_TRUE(buffers.intact() && buffers.result() == result_of(call, rank))
                << algorithm->name << ": " << call.text() << ", seed " << seed << ", rank " << rank;
        }
        // Outside FLX for good; peers may still need acknowledgements, and copies may have to be sent again.
        ++network.done;
        for (bool drained = false; network.drained < ranks; std::this_thread::yield()) {
            lossy.guard();
            if (!drained && lossy.unacknowledged() == 0 && network.done == ranks) {
                drained = true;
                ++network.drained;
            }
        }
        EXPECT_EQ(lossy.held(), 0U) << "every arrival is released";
    });
    Traces result;
    for (const Trace &trace : traces)
        result.push_back(trace.events());
    return result;
}

size_t count_of(const Traces &traces, TraceKind kind) {
    size_t count = 0;
    for (const auto &trace : traces)
        count += static_cast<size_t>(
            std::count_if(trace.begin(), trace.end(), [kind](const TraceEvent &event) { return event.kind == kind; }));
    return count;
}

class LossyRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, LossyRanks, ::testing::Range(2, 6));

TEST_P(LossyRanks, ResultsAreRightAndTracesAreRunsOfTheModel) {
    const int ranks = GetParam();
    LossFacts facts;
    size_t drops = 0;
    size_t keeps = 0;
    const uint32_t seeds = ranks < 4 ? 20 : 10;  // many ranks take long, and meet more
    for (uint32_t seed = 1; seed <= seeds; ++seed) {
        const int64_t patience_ns = seed % 2 == 0 ? 1'000 : 20'000'000;
        const Traces traces = run_programs(ranks, seed * 10 + static_cast<uint32_t>(ranks), 60, facts, patience_ns);
        if (HasFailure())
            return;
        EXPECT_EQ(TraceRules::check(traces), "") << "seed " << seed;
        drops += count_of(traces, TraceKind::drops);
        keeps += count_of(traces, TraceKind::keeps);
    }
    EXPECT_GT(facts.cuts, 0);
    EXPECT_GT(facts.lost_data, 0);
    EXPECT_GT(facts.lost_acks, 0) << "used, then sent again";
    EXPECT_GT(facts.late, 0);
    EXPECT_GT(facts.resent, 0);
    EXPECT_GT(facts.copied, 0);
    EXPECT_GT(facts.duplicates, 0) << "of operations that ended";
    EXPECT_GT(drops, 0U) << "duplicates of the operation that runs";
    if (ranks > 2) {
        EXPECT_GT(keeps, 0U) << "copied before they could be used";
    }
}

TEST(Lossless, NothingIsSentAgain) {
    LossFacts facts;
    const Traces traces = run_programs(3, 1, 0, facts);
    EXPECT_EQ(TraceRules::check(traces), "");
    EXPECT_EQ(count_of(traces, TraceKind::resends) + count_of(traces, TraceKind::drops), 0U);
}

// ---- traces that are wrong

/// One run, and changed copies of it.
class WrongTraces : public ::testing::Test {
  protected:
    void SetUp() override { ASSERT_EQ(TraceRules::check(whole()), ""); }
    static const Traces &whole() {
        static const Traces kTraces = [] {
            LossFacts facts;
            // Ranks that the machine stops for long copy what came, and other rules find the mistakes.
            for (;;)
                if (Traces traces = run_programs(3, 5, 60, facts, 1'000'000'000);
                    count_of(traces, TraceKind::keeps) == 0)
                    return traces;
        }();
        return kTraces;
    }

    using Change = std::function<void(std::vector<TraceEvent> &, size_t at)>;
    /// Applies `change` at up to 40 events of this kind, each in a fresh copy: every one must be refused.
    static void refuses(TraceKind kind, const char *words, const Change &change,
                        const Traces &whole = WrongTraces::whole()) {
        size_t tried = 0;
        for (size_t rank = 0; rank < whole.size(); ++rank) {
            std::vector<size_t> places;
            for (size_t at = 0; at < whole[rank].size(); ++at)
                if (whole[rank][at].kind == kind)
                    places.push_back(at);
            for (size_t i = 0; i < places.size(); i += places.size() / 12 + 1) {
                Traces changed = whole;
                change(changed[rank], places[i]);
                const std::string error = TraceRules::check(changed);
                EXPECT_FALSE(error.empty()) << "rank " << rank << ", event " << places[i];
                EXPECT_NE(error.find(words), std::string::npos)
                    << "rank " << rank << ", event " << places[i] << ": `" << error << "`";
                ++tried;
            }
        }
        EXPECT_GT(tried, 0U);
    }
    static void remove(std::vector<TraceEvent> &trace, size_t at) {
        trace.erase(trace.begin() + static_cast<std::ptrdiff_t>(at));
    }
    static void repeat(std::vector<TraceEvent> &trace, size_t at) {
        const TraceEvent event = trace[at];
        trace.insert(trace.begin() + static_cast<std::ptrdiff_t>(at), event);
    }
};

TEST_F(WrongTraces, ACellThatCountsTwice) {
    refuses(TraceKind::uses, "counts twice", repeat);
}

TEST_F(WrongTraces, ACellThatIsLost) {
    // Found where it, or a duplicate, is acknowledged.
    refuses(TraceKind::uses, "", remove);
}

TEST_F(WrongTraces, ACopyThatIsLost) {
    LossFacts facts;
    const auto lose = [](std::vector<TraceEvent> &trace, size_t at) {
        const TraceEvent kept = trace[at];
        std::erase_if(trace, [&](const TraceEvent &event) {
            return event.kind == TraceKind::uses && event.peer == kept.peer &&
                   event.header.sequence == kept.header.sequence && event.header.phase == kept.header.phase &&
                   event.header.block == kept.header.block;
        });
    };
    Traces kept;
    while (count_of(kept, TraceKind::keeps) == 0)
        kept = run_programs(3, 5, 60, facts, 1'000);
    refuses(TraceKind::keeps, "", lose, kept);
}

TEST_F(WrongTraces, AnAcknowledgementBeforeTheUse) {
    refuses(TraceKind::uses, "acknowledged before it was used", [](std::vector<TraceEvent> &trace, size_t at) {
        TraceEvent early = trace[at];
        early.kind = TraceKind::acknowledges;
        trace.insert(trace.begin() + static_cast<std::ptrdiff_t>(at), early);
    });
}

TEST_F(WrongTraces, AReturnBeforeTheAcknowledgement) {
    refuses(TraceKind::acknowledged, "is not acknowledged", [](std::vector<TraceEvent> &trace, size_t at) {
        size_t end = at;
        while (trace[end].kind != TraceKind::returns)
            ++end;
        // It is believed only after the return, and so may be sent again until then.
        std::rotate(trace.begin() + static_cast<std::ptrdiff_t>(at),
                    trace.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                    trace.begin() + static_cast<std::ptrdiff_t>(end) + 1);
    });
}

TEST_F(WrongTraces, AnAcknowledgementThatWasMistaken) {
    // For another chunk: a number that was used again.
    refuses(TraceKind::sends, "", [](std::vector<TraceEvent> &trace, size_t at) {
        TraceEvent mistaken = trace[at];
        mistaken.kind = TraceKind::acknowledged;
        trace.insert(trace.begin() + static_cast<std::ptrdiff_t>(at) + 1, mistaken);
    });
    refuses(TraceKind::acknowledged, "not a chunk that waits for an acknowledgement", repeat);
}

TEST_F(WrongTraces, AChunkThatIsSentAgain) {
    refuses(TraceKind::resends, "its link was not lost", repeat);
    refuses(TraceKind::acknowledged, "sent again after it was acknowledged",
            [](std::vector<TraceEvent> &trace, size_t at) {
                TraceEvent again = trace[at];
                again.kind = TraceKind::resends;
                trace.insert(trace.begin() + static_cast<std::ptrdiff_t>(at) + 1, again);
            });
    refuses(TraceKind::sends, "sent twice by the executor", repeat);
    refuses(TraceKind::sends, "", remove);
}

TEST_F(WrongTraces, AResendFromTheUsersMemory) {
    refuses(TraceKind::sends, "", [](std::vector<TraceEvent> &trace, size_t at) {
        TraceEvent again = trace[at];
        again.kind = TraceKind::resends;
        size_t end = at;
        while (trace[end].kind != TraceKind::returns)
            ++end;
        trace.insert(trace.begin() + static_cast<std::ptrdiff_t>(end) + 1, again);
    });
}

TEST_F(WrongTraces, AnArrivalFromNowhere) {
    // Another rank, which waits for this one, may be named first. On a busy machine a chunk is sent many times.
    constexpr size_t kMoreThanSent = 5000;
    refuses(TraceKind::arrives, "", [](std::vector<TraceEvent> &trace, size_t at) {
        const TraceEvent event = trace[at];
        trace.insert(trace.begin() + static_cast<std::ptrdiff_t>(at), kMoreThanSent, event);
    });
}

TEST_F(WrongTraces, ADropOfWhatWasNeverUsed) {
    refuses(TraceKind::uses, "dropped, but never used",
            [](std::vector<TraceEvent> &trace, size_t at) { trace[at].kind = TraceKind::drops; });
}

TEST_F(WrongTraces, ARankThatDoesNotReturn) {
    refuses(TraceKind::returns, "", remove);
    refuses(TraceKind::begins, "", remove);
}

}  // namespace
}  // namespace flx
