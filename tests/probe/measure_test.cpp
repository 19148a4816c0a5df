#include "probe/measure.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/probe/fake_link.h"

namespace flx::probe {
namespace {

/// Runs measure_links on `size` ranks as threads, each with an end of every wire. `absent`: a rank that does not run.
std::vector<GroupMeasurement> measure(const std::vector<FakeWire> &wires, int size, double budget_ms, int absent = -1,
                                      bool rates = true, bool bursts = false) {
    VirtualClock clock(size);
    if (absent >= 0)
        clock.leave(absent);
    std::vector<std::unique_ptr<FakeNetwork>> networks;
    for (const FakeWire &wire : wires)
        networks.push_back(std::make_unique<FakeNetwork>(wire, size, clock));
    std::vector<GroupMeasurement> results(static_cast<size_t>(size));
    {
        std::vector<std::vector<std::unique_ptr<Link>>> ends(static_cast<size_t>(size));
        std::vector<std::thread> ranks;
        for (int rank = 0; rank < size; ++rank) {
            auto &mine = ends[static_cast<size_t>(rank)];
            for (auto &network : networks)
                mine.push_back(network->end(rank));
            if (rank == absent)
                continue;
            ranks.emplace_back([&mine, &results, &clock, rank, size, budget_ms, rates, bursts] {
                clock.begin(rank);
                std::vector<Link *> links;
                for (auto &link : mine)
                    links.push_back(link.get());
                MeasureOptions options;
                options.comm = 7;
                options.budget_ms = budget_ms;
                options.rates = rates;
                options.bursts = bursts;
                options.now = [&clock, rank] { return clock.look(rank); };
                options.idle = [](int64_t) {};
                results[static_cast<size_t>(rank)] =
                    measure_links(links, (rank + 1) % size, (rank + size - 1) % size, options);
                clock.leave(rank);
            });
        }
        for (std::thread &rank : ranks)
            rank.join();
    }
    return results;
}

bool near(double value, double expected) {
    return value > 0.75 * expected && value < 1.25 * expected;
}

FakeWire wire(double bytes_per_ns, const std::string &name = "fake") {
    FakeWire result;
    result.name = name;
    result.bytes_per_ns = bytes_per_ns;
    return result;
}

void expect_rate(const LinkMeasurement &link, double expected) {
    EXPECT_TRUE(link.usable) << link.reason;
    EXPECT_TRUE(near(link.bytes_per_ns, expected)) << link.bytes_per_ns << " bytes/ns instead of " << expected;
}

TEST(Measure, TwoLinksAloneAndTogether) {
    FakeWire fast = wire(1.0, "fast");
    fast.in_flight = false;
    fast.kind = LinkKind::shm;
    for (const GroupMeasurement &group : measure({wire(0.1, "slow"), fast}, 2, 150)) {
        expect_rate(group.links[0], 0.1);
        expect_rate(group.links[1], 1.0);
        EXPECT_TRUE(near(group.together_bytes_per_ns, 1.1)) << group.together_bytes_per_ns;
        EXPECT_DOUBLE_EQ(group.together_bytes_per_ns,
                         group.links[0].together_bytes_per_ns + group.links[1].together_bytes_per_ns);
        for (const LinkMeasurement &link : group.links) {
            EXPECT_GE(link.latency_ns, 20'000);
            EXPECT_LE(link.latency_ns, 60'000);
        }
        EXPECT_LT(group.elapsed_ms, 300);
    }
}

TEST(Measure, BurstOfAShaperDoesNotCount) {
    FakeWire shaped = wire(0.05);
    shaped.bucket = 500'000;  // 10 ms of its rate
    FakeWire other = wire(0.025);
    other.bucket = 250'000;
    for (const GroupMeasurement &group : measure({shaped, other}, 2, 150)) {
        expect_rate(group.links[0], 0.05);
        expect_rate(group.links[1], 0.025);
        EXPECT_LT(group.elapsed_ms, 300);
    }
}

TEST(Measure, FourUnequalRails) {
    for (const GroupMeasurement &group : measure({wire(0.1), wire(0.05), wire(0.025), wire(0.0125)}, 2, 150)) {
        double rate = 0.1;
        for (const LinkMeasurement &link : group.links) {
            expect_rate(link, rate);
            rate /= 2;
        }
        EXPECT_TRUE(near(group.together_bytes_per_ns, 0.1875)) << group.together_bytes_per_ns;
    }
}

TEST(Measure, SlowRailHoldsTheBudget) {
    for (const GroupMeasurement &group : measure({wire(0.00125), wire(0.1)}, 2, 150)) {  // 10 and 800 Mbit/s
        EXPECT_LT(group.elapsed_ms, 300);
        expect_rate(group.links[0], 0.00125);
        expect_rate(group.links[1], 0.1);
    }
}

TEST(Measure, DeadLinksAreReported) {
    FakeWire silent = wire(1, "silent");
    silent.fault = FakeWire::Fault::silent;
    FakeWire cut = wire(1, "cut");
    cut.fault = FakeWire::Fault::failed;
    FakeWire full = wire(1, "full");
    full.fault = FakeWire::Fault::busy;
    const auto results = measure({silent, wire(0.1), cut, full}, 3, 150);
    for (const GroupMeasurement &group : results) {
        EXPECT_LT(group.elapsed_ms, 300);
        EXPECT_FALSE(group.links[0].usable);
        EXPECT_NE(group.links[0].reason.find("no answer from rank"), std::string::npos) << group.links[0].reason;
        EXPECT_TRUE(group.links[1].usable) << group.links[1].reason;
        EXPECT_FALSE(group.links[2].usable);
        EXPECT_EQ(group.links[2].reason, "the cable of cut is cut");
        EXPECT_FALSE(group.links[3].usable);
        // With one link left, together is alone.
        EXPECT_EQ(group.together_bytes_per_ns, group.links[1].bytes_per_ns);
    }
}

TEST(Measure, LinksThatOnlyAnswerTakeNoBudget) {
    for (const int size : {2, 4})
        for (const GroupMeasurement &group : measure({wire(0.1), wire(0.00125), wire(1)}, size, 1000, -1, false)) {
            EXPECT_LT(group.elapsed_ms, 20);
            for (const LinkMeasurement &link : group.links) {
                EXPECT_TRUE(link.usable) << link.reason;
                EXPECT_GE(link.latency_ns, 20'000);
                EXPECT_LE(link.latency_ns, 60'000);
                EXPECT_EQ(link.bytes_per_ns, 0);
            }
        }
}

TEST(Measure, RestedRailsShowTheirBurst) {
    FakeWire shaped = wire(0.05);
    shaped.bucket = 500'000;
    for (const GroupMeasurement &group : measure({shaped, wire(0.05), wire(0.01)}, 2, 200, -1, false, true)) {
        EXPECT_GT(group.links[0].burst_bytes_per_ns, 10 * 0.05);
        EXPECT_TRUE(near(group.links[1].burst_bytes_per_ns, 0.05)) << group.links[1].burst_bytes_per_ns;
        EXPECT_TRUE(near(group.links[2].burst_bytes_per_ns, 0.01)) << group.links[2].burst_bytes_per_ns;
        EXPECT_LT(group.elapsed_ms, 20) << "four messages of each of the first two, and one of the last";
    }
}

TEST(Measure, OneRailHasNoBurstToShow) {
    for (const GroupMeasurement &group : measure({wire(0.001)}, 2, 200, -1, false, true)) {
        EXPECT_EQ(group.links[0].burst_bytes_per_ns, 0);
        EXPECT_LT(group.elapsed_ms, 20);
    }
}

TEST(Measure, OneThatDoesNotAnswerTakesTheBudget) {
    FakeWire silent = wire(1, "silent");
    silent.fault = FakeWire::Fault::silent;
    FakeWire cut = wire(1, "cut");
    cut.fault = FakeWire::Fault::failed;
    for (const GroupMeasurement &group : measure({silent, wire(0.1), cut}, 3, 100, -1, false)) {
        EXPECT_GE(group.elapsed_ms, 80);
        EXPECT_LT(group.elapsed_ms, 200);
        EXPECT_NE(group.links[0].reason.find("no answer from rank"), std::string::npos) << group.links[0].reason;
        EXPECT_TRUE(group.links[1].usable) << group.links[1].reason;
        EXPECT_EQ(group.links[2].reason, "the cable of cut is cut");
    }
}

TEST(Measure, AbsentPeerEndsWithTheBudget) {
    const auto results = measure({wire(0.1)}, 3, 100, 1);
    EXPECT_FALSE(results[0].links[0].usable);  // rank 1 is its next
    EXPECT_FALSE(results[0].links[0].reason.empty());
    EXPECT_TRUE(results[2].links[0].usable) << results[2].links[0].reason;  // rank 0 is its next
    EXPECT_LT(results[0].elapsed_ms, 200);
    EXPECT_LT(results[2].elapsed_ms, 200);
}

TEST(Measure, RingOfFour) {
    for (const GroupMeasurement &group : measure({wire(0.1), wire(0.04)}, 4, 150)) {
        expect_rate(group.links[0], 0.1);
        expect_rate(group.links[1], 0.04);
    }
}

/// In real time, with more threads than cores here: rates depend on the machine, but the end does not.
TEST(Measure, DefaultClockAndIdling) {
    VirtualClock still(4);
    FakeWire prompt = wire(1e9);  // delivers at once
    prompt.delay_ns = 0;
    FakeNetwork network(prompt, 4, still);
    std::vector<std::unique_ptr<Link>> ends;
    for (int rank = 0; rank < 4; ++rank)
        ends.push_back(network.end(rank));
    std::vector<GroupMeasurement> results(4);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 4; ++rank)
        ranks.emplace_back([&ends, &results, rank] {
            MeasureOptions options;
            options.budget_ms = 1000;  // long, for busy machines
            Link *const links[] = {ends[static_cast<size_t>(rank)].get()};
            results[static_cast<size_t>(rank)] = measure_links(links, (rank + 1) % 4, (rank + 3) % 4, options);
        });
    for (std::thread &rank : ranks)
        rank.join();
    for (const GroupMeasurement &group : results) {
        EXPECT_LT(group.elapsed_ms, 2000);
        EXPECT_TRUE(group.links[0].usable) << group.links[0].reason;
        EXPECT_GT(group.links[0].bytes_per_ns, 0);
    }
}

TEST(Measure, NobodyToMeasureWith) {
    VirtualClock clock(2);
    FakeNetwork network(wire(0.1), 2, clock);
    const auto link = network.end(0);
    Link *const links[] = {link.get()};
    MeasureOptions options;
    options.budget_ms = 50;
    const GroupMeasurement alone = measure_links(links, -1, -1, options);
    ASSERT_EQ(alone.links.size(), 1u);
    EXPECT_FALSE(alone.links[0].usable);
    EXPECT_EQ(alone.links[0].reason, "no peer to measure it with");
    const GroupMeasurement far = measure_links(links, 5, -1, options);
    EXPECT_EQ(far.links[0].reason, "does not reach rank 5");
    EXPECT_LT(alone.elapsed_ms + far.elapsed_ms, 50);
}

}  // namespace
}  // namespace flx::probe
