#include "runtime/shares/controller.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <ostream>
#include <random>

namespace flx {
namespace {

constexpr size_t kMiB = 1u << 20;
constexpr double kMbit = 1e6 / 8 / 1e9;  // bytes per ns

uint64_t total(const PartitionVector &vector) {
    return std::accumulate(vector.weight.begin(), vector.weight.end(), uint64_t{0});
}

/// Links as a route's samples show them. An operation takes as long as its slowest link.
struct Simulation {
    struct Link {
        double latency_ns = 0;
        double rate = 0;        // bytes per ns
        bool shared = false;    // needs one resource (the cores) all the time that it is busy
        double noise = 0;       // busy times vary by up to this part
        bool gaussian = false;  // or with this standard deviation
    };
    std::vector<Link> links;
    std::mt19937_64 random{7};
    double elapsed_ns = 0;  // of the last operation

    static Simulation rails(const std::vector<double> &mbit, double noise = 0) {
        Simulation simulation;
        for (const double rate : mbit)
            simulation.links.push_back({100e3, rate * kMbit, false, noise});
        return simulation;
    }

    double factor(const Link &link) {
        if (link.noise == 0)
            return 1;
        return link.gaussian ? std::max(0.2, std::normal_distribution<double>(1, link.noise)(random))
                             : std::uniform_real_distribution<double>(1 - link.noise, 1 + link.noise)(random);
    }

    /// One operation. Links with `shared` divide one resource in equal parts for as long as they are busy, so each is
    /// slowed by their number at most, and the last ends when all their work is done (exact for two links).
    std::vector<LinkSample> run(const PartitionVector &vector, size_t bytes) {
        std::vector<double> alone(links.size());
        double work = 0;
        int sharing = 0;
        for (size_t i = 0; i < links.size(); ++i) {
            alone[i] =
                vector.share(static_cast<int>(i)) * static_cast<double>(bytes) / links[i].rate * factor(links[i]);
            if (links[i].shared && vector.weight[i] > 0) {
                work += alone[i];
                ++sharing;
            }
        }
        std::vector<LinkSample> samples(links.size());
        elapsed_ns = 0;
        for (size_t i = 0; i < links.size(); ++i) {
            if (vector.weight[i] == 0)
                continue;
            const double busy = links[i].latency_ns + (links[i].shared ? std::min(alone[i] * sharing, work) : alone[i]);
            samples[i].bytes = static_cast<uint64_t>(vector.share(static_cast<int>(i)) * static_cast<double>(bytes));
            samples[i].busy_ns = samples[i].bytes == 0 ? 0 : static_cast<uint64_t>(busy);
            elapsed_ns = std::max(elapsed_ns, busy);
        }
        return samples;
    }

    void step(Controller &controller, size_t bytes, int phase = 0) {
        const PartitionVector used = controller.vector(bytes, phase);
        controller.observe(bytes, phase, run(used, bytes));
    }

    /// Shares at which all links would end together, if nothing is shared.
    std::vector<double> optimum() const {
        std::vector<double> shares;
        double sum = 0;
        for (const Link &link : links)
            sum += link.rate;
        for (const Link &link : links)
            shares.push_back(link.rate / sum);
        return shares;
    }

    std::vector<LinkEstimate> probed(double error = 0) {
        std::vector<LinkEstimate> estimates;
        for (const Link &link : links) {
            const double rate = link.rate * (1 + error * (estimates.size() % 2 ? 1 : -1));
            estimates.push_back({link.latency_ns, rate, rate, true});
        }
        return estimates;
    }
};

double distance(const PartitionVector &vector, const std::vector<double> &shares) {
    double largest = 0;
    for (size_t i = 0; i < shares.size(); ++i)
        largest = std::max(largest, std::abs(vector.share(static_cast<int>(i)) - shares[i]));
    return largest;
}

LinkEstimate link_of(double latency, double alone, double together = 0, bool usable = true) {
    return {latency, alone, together, usable};
}

/// What a controller makes of what was probed, before any sample.
PartitionVector first_vector(const std::vector<LinkEstimate> &links, size_t bytes) {
    return Controller(links, {}).vector(bytes, 0);
}

TEST(SizeClass, IsFloorLog2) {
    EXPECT_EQ(size_class(0), 0);
    EXPECT_EQ(size_class(1), 0);
    EXPECT_EQ(size_class(2), 1);
    EXPECT_EQ(size_class(65535), 15);
    EXPECT_EQ(size_class(65536), 16);
    EXPECT_EQ(size_class(std::numeric_limits<size_t>::max()), kSizeClasses - 1);
}

TEST(FirstVector, AllLinksEndTogether) {
    const std::vector<LinkEstimate> links{link_of(10e3, 0.1), link_of(200e3, 0.05), link_of(50e3, 0.2)};
    const size_t bytes = 24 * kMiB;  // for which the vector of its size class is made
    const PartitionVector vector = first_vector(links, bytes);
    EXPECT_EQ(total(vector), PartitionVector::kWhole);
    const auto finish = [&](int i) {
        return links[i].latency_ns + vector.share(i) * static_cast<double>(bytes) / links[i].bytes_per_ns;
    };
    EXPECT_NEAR(finish(1) / finish(0), 1, 0.001);
    EXPECT_NEAR(finish(2) / finish(0), 1, 0.001);
}

TEST(FirstVector, LatencyAboveTheCommonFinishGetsNothing) {
    // Two links end 768 KiB, the middle of the class, after about 4 ms; the third would only begin after 6 ms.
    const std::vector<LinkEstimate> links{link_of(10e3, 0.1), link_of(6e6, 3), link_of(10e3, 0.1)};
    const PartitionVector vector = first_vector(links, kMiB / 2);
    EXPECT_EQ(vector.weight[1], 0u);
    EXPECT_EQ(vector.weight[0], PartitionVector::kWhole / 2);
    EXPECT_GT(first_vector(links, 64 * kMiB).share(1), 0.9);
}

TEST(FirstVector, SmallMessagesTakeTheQuickestLink) {
    const std::vector<LinkEstimate> links{link_of(30e3, 10), link_of(500, 5), link_of(500, 4)};
    for (size_t bytes : {size_t{0}, size_t{1}, size_t{8}}) {
        const PartitionVector vector = first_vector(links, bytes);
        EXPECT_EQ(vector.weight[1], PartitionVector::kWhole) << bytes;
    }
    EXPECT_GT(first_vector(links, 64 * kMiB).share(0), 0.5);
}

TEST(FirstVector, ALinkMoreMustSaveWhatItsMessagesTake) {
    // 2, 1 and 0.5 bytes/ns, 20 us each; 30 us for each link beyond the first. A class's vector is made for its middle:
    // of 128 KiB for 192, which take 20 + 98 us alone and 20 + 66 + 30 with the second link, which saves too little.
    std::vector<LinkEstimate> links(3);
    for (size_t i = 0; i < links.size(); ++i)
        links[i] = {.latency_ns = 20e3,
                    .bytes_per_ns = 2.0 / (1 << i),
                    .together_bytes_per_ns = 2.0 / (1 << i),
                    .work_ns = 30e3};
    const Controller controller(links, {});
    const auto used = [&](size_t bytes) {
        const PartitionVector &vector = controller.vector(bytes, 0);
        return std::count_if(vector.weight.begin(), vector.weight.end(), [](uint32_t weight) { return weight != 0; });
    };
    EXPECT_EQ(used(64 << 10), 1);
    EXPECT_EQ(used(128 << 10), 1);
    EXPECT_GT(controller.vector(64 << 10, 0).weight[0], 0U);
    // 20 + 197 us alone, 20 + 131 + 30 with the second, 20 + 112 + 60 with all.
    EXPECT_EQ(used(256 << 10), 2);
    EXPECT_NEAR(controller.vector(256 << 10, 0).share(0), 2.0 / 3, 0.02);
    // 20 + 786 us, 20 + 524 + 30, 20 + 449 + 60.
    EXPECT_EQ(used(1 << 20), 3);
    // Whoever needs no work takes part as before.
    for (LinkEstimate &link : links)
        link.work_ns = 0;
    const Controller free(links, {});
    EXPECT_GT(free.vector(64 << 10, 0).weight[2], 0U);
}

// One whose latency is long but whose rate is great may look best until others have joined.
TEST(FirstVector, WhatLaterLinksMakeSuperfluousGetsNothing) {
    std::mt19937 random(3);
    std::uniform_real_distribution<double> any(0.1, 1);
    for (int round = 0; round < 2000; ++round) {
        std::vector<LinkEstimate> links(2 + round % 5);
        for (LinkEstimate &link : links) {
            link.latency_ns = 1e6 * any(random) * any(random);
            link.bytes_per_ns = link.together_bytes_per_ns = any(random);
        }
        const size_t bytes = size_t{1} << (15 + round % 8);
        const Controller controller(links, {.min_gain = 0});
        const PartitionVector &vector = controller.vector(bytes, 0);
        double first = std::numeric_limits<double>::infinity();
        double last = 0;
        int used = 0;
        for (size_t i = 0; i < links.size(); ++i) {
            const double share = vector.share(static_cast<int>(i));
            if (share < 0.01)
                continue;
            ++used;
            const double end = links[i].latency_ns + share * 1.5 * static_cast<double>(bytes) / links[i].bytes_per_ns;
            first = std::min(first, end);
            last = std::max(last, end);
        }
        ASSERT_GT(used, 0);
        if (used > 1) {
            EXPECT_LT(last, 1.1 * first) << round;
        }
        for (size_t i = 0; i < links.size(); ++i)
            if (vector.weight[i] == 0 && bytes >= (64U << 10)) {
                EXPECT_GT(links[i].latency_ns, 0.85 * first) << round << " link " << i << " could have helped";
            }
    }
}

struct Lane {
    double latency, rate, cost;
    int link;
    double preference, work;
};

Lane lane_of(double latency, double rate, double work = 0) {
    return {latency, rate, 1 / rate, 0, 0, work};
}

// A link whose latency is the time that the message takes without it, but for what rounding makes of that.
TEST(WaterFill, EndsWhereALinkIsJustOfUse) {
    std::mt19937_64 random(11);
    std::uniform_real_distribution<double> any(0.5, 3);
    for (int round = 0; round < 20000; ++round) {
        const double bytes = std::ldexp(1.5, 11 + round % 12);
        std::array<Lane, 2> lanes{lane_of(std::round(2e4 * any(random)) / 2, any(random)), {}};
        const double alone = lanes[0].latency + bytes * lanes[0].cost;
        lanes[1] = lane_of(round % 2 == 0 ? std::nextafter(alone, 0) : alone, any(random));
        std::array<double, 2> share{};
        const Finish finish = water_fill(lanes, 2, bytes, 0, share.data());
        EXPECT_NEAR(finish.filled, alone, 1e-6 * alone);
        EXPECT_NEAR(share[0] + share[1], 1, 1e-6);
    }
    // Found by a search, together with what a probe says: for ever, once.
    std::array<Lane, 2> lanes{lane_of(16741, 1.0058990560487064), lane_of(114468.5, 1.3)};
    std::array<double, 2> share{};
    EXPECT_GT(water_fill(lanes, 2, 98304, 0, share.data()).filled, 1e5);
}

TEST(WaterFill, TheWorkIsThatOfTheLinksBeyondOne) {
    // The first two are best until the third has joined, beside which they are superfluous.
    const std::array<Lane, 3> lanes{lane_of(20e3, 2, 4e3), lane_of(21e3, 2, 4e3), lane_of(60e3, 12, 40e3)};
    std::array<double, 3> share{};
    for (const double bytes : {98304.0, 196608.0, 1e6, 1e7}) {
        const Finish finish = water_fill(lanes, 3, bytes, 0, share.data());
        EXPECT_GE(finish.work, 0);
        EXPECT_GT(finish.filled, 20e3);
        double sum = 0;
        for (size_t k = 0; k < lanes.size(); ++k) {
            sum += share[k];
            EXPECT_GE(share[k], 0);
            if (share[k] > 0) {
                EXPECT_NEAR(lanes[k].latency + share[k] * bytes / lanes[k].rate, finish.filled, 1);
            }
        }
        EXPECT_NEAR(sum, 1, 1e-9);
    }
}

TEST(FirstVector, LeavesOutWhatIsUnusableOrUnknown) {
    const std::vector<LinkEstimate> links{link_of(0, 0), link_of(0, 1, 0, false), link_of(0, 2), link_of(NAN, NAN)};
    EXPECT_EQ(first_vector(links, kMiB).weight[2], PartitionVector::kWhole);
    EXPECT_EQ(total(first_vector(std::vector<LinkEstimate>{link_of(0, 1, 0, false)}, 8)), 0u);
}

TEST(FairSample, DoesNotDependOnTheOrderInWhichALinkServesRoutes) {
    // 100 KB for each of three routes at 0.1 bytes/ns, one after the other, all asked for at once.
    const LinkSample all{300'000, 3'000'000};
    for (const uint64_t own_ns : {1'000'000, 2'000'000, 3'000'000}) {
        const LinkSample fair = fair_sample({100'000, own_ns}, all, 3);
        EXPECT_EQ(fair.bytes, 100'000U);
        EXPECT_NEAR(static_cast<double>(fair.busy_ns), 3e6, 1);
    }
    EXPECT_EQ(fair_sample({100'000, 1'000'000}, all, 1).busy_ns, 1'000'000U) << "alone it had the link to itself";
    EXPECT_EQ(fair_sample({100'000, 1'000'000}, {}, 3).busy_ns, 1'000'000U) << "nothing is known of the whole";
    EXPECT_EQ(fair_sample({0, 0}, all, 3).bytes, 0U);
}

TEST(FairSample, LeavesSlowPeersTheirOwnTime) {
    // Two routes take 1 ms each, the third one's peers take 40 ms.
    EXPECT_EQ(fair_sample({100'000, 40'000'000}, {300'000, 40'000'000}, 3).busy_ns, 40'000'000U);
    EXPECT_EQ(fair_sample({10'000, 40'000'000}, {210'000, 40'000'000}, 3).busy_ns, 40'000'000U);
}

TEST(Stage1, LinkThatOnlyTakesCyclesIsOff) {
    const std::vector<std::string> names{"shm", "lo"};
    // Together 12.44 + 0.70 = 13.14: no more than shared memory alone.
    const Controller controller(std::vector<LinkEstimate>{link_of(500, 13.1, 12.44), link_of(20e3, 1.4, 0.7)}, {});
    for (size_t bytes : {size_t{8}, kMiB, 64 * kMiB})
        EXPECT_EQ(controller.vector(bytes, 0).weight[0], PartitionVector::kWhole);
    EXPECT_TRUE(controller.verdict(0, names).on);
    EXPECT_FALSE(controller.verdict(1, names).on);
    EXPECT_EQ(controller.verdict(1, names).why, "adds 0.3 % to the rate of shm (13.1 GB/s); 3 % needed");
    EXPECT_NE(controller.verdict(1).why.find("the rate of the others"), std::string::npos);
}

TEST(Stage1, SeveralLinksThatOnlyTakeCyclesAreOff) {
    // Uses .8, .1 and .1 of the cores: rates together are those parts of the rates alone.
    const Controller controller(
        std::vector<LinkEstimate>{link_of(500, 13.0, 10.4), link_of(20e3, 1.0, 0.1), link_of(20e3, 1.2, 0.12)}, {});
    EXPECT_TRUE(controller.verdict(0).on);
    EXPECT_FALSE(controller.verdict(1).on);
    EXPECT_FALSE(controller.verdict(2).on);
    EXPECT_NEAR(controller.rate(0), 13.0, 0.01);  // what it delivers without them
}

TEST(Stage1, LinksOfTheirOwnAreOnByTogetherRates) {
    // A PCIe switch: alone 10 and 10, together 8 and 4, still more than either.
    const Controller controller(std::vector<LinkEstimate>{link_of(1000, 10, 8), link_of(1000, 10, 4)}, {});
    EXPECT_NEAR(controller.vector(64 * kMiB, 0).share(0), 2.0 / 3, 0.01);
    const Controller rails(std::vector<LinkEstimate>{link_of(1000, 0.9), link_of(1000, 0.02)}, {});
    EXPECT_FALSE(rails.verdict(1).on);
}

TEST(Stage1, NothingMeasured) {
    Simulation simulation = Simulation::rails({800, 400, 200});
    Controller controller(std::vector<LinkEstimate>(3), {});
    EXPECT_EQ(controller.vector(8, 0).weight[0], PartitionVector::kWhole);
    EXPECT_FALSE(controller.verdict(1).on);
    for (int op = 0; op < 60; ++op)
        simulation.step(controller, 16 * kMiB);
    EXPECT_LT(distance(controller.vector(16 * kMiB, 0), simulation.optimum()), 0.02);
}

TEST(Stage1, NoLinks) {
    Controller none(std::vector<LinkEstimate>{}, {});
    EXPECT_EQ(total(none.vector(8, 0)), 0u);
    EXPECT_FALSE(none.observe(8, 0, {}));
    const Controller dead(std::vector<LinkEstimate>{link_of(1, 1, 1, false)}, {});
    EXPECT_EQ(total(dead.vector(8, 0)), 0u);
    EXPECT_FALSE(dead.verdict(0).on);
}

struct RailCase {
    std::vector<double> mbit;
    size_t bytes;
};
std::ostream &operator<<(std::ostream &out, const RailCase &rails) {
    for (const double mbit : rails.mbit)
        out << mbit << " ";
    return out << "Mbit/s, " << rails.bytes << " B";
}

class Rails : public testing::TestWithParam<RailCase> {};

TEST_P(Rails, ConvergeFromAWrongProbe) {
    Simulation simulation = Simulation::rails(GetParam().mbit);
    const size_t bytes = GetParam().bytes;
    // The probe saw every link at the same rate, or each off by 20 %.
    for (const bool equal : {true, false}) {
        std::vector<LinkEstimate> probed = simulation.probed(0.2);
        if (equal)
            for (LinkEstimate &link : probed)
                link.bytes_per_ns = link.together_bytes_per_ns = 0.05;
        Controller controller(probed, {});
        for (int op = 0; op < 10; ++op)
            simulation.step(controller, bytes);
        EXPECT_LT(distance(controller.vector(bytes, 0), simulation.optimum()), 0.05) << "equal " << equal;
        for (int op = 0; op < 40; ++op)
            simulation.step(controller, bytes);
        EXPECT_LT(distance(controller.vector(bytes, 0), simulation.optimum()), 0.02) << "equal " << equal;
    }
}

TEST_P(Rails, FollowASlowedRailAndItsReturn) {
    const size_t bytes = GetParam().bytes;
    for (size_t slowed = 0; slowed < 3; ++slowed)
        for (const double factor : {4.0, 8.0})
            for (const double noise : {0.0, 0.2}) {
                Simulation simulation = Simulation::rails(GetParam().mbit, noise);
                Controller controller(simulation.probed(), {});
                const auto settle = [&](int operations) {
                    for (int op = 0; op < operations; ++op)
                        simulation.step(controller, bytes);
                    return distance(controller.vector(bytes, 0), simulation.optimum());
                };
                // A mean of the three samples that show the change has an error of its own under noise.
                const double near = 0.05;
                const int after = noise > 0 ? 20 : 10;
                EXPECT_LT(settle(50), near);
                simulation.links[slowed].rate /= factor;
                EXPECT_LT(settle(after), near) << slowed << " slowed by " << factor << ", " << noise;
                settle(100);
                simulation.links[slowed].rate *= factor;
                EXPECT_LT(settle(after), near) << slowed << " back from 1/" << factor << ", " << noise;
            }
}

TEST_P(Rails, NoiseMovesSharesLittle) {
    const size_t bytes = GetParam().bytes;
    for (const bool gaussian : {false, true}) {
        Simulation simulation = Simulation::rails(GetParam().mbit, gaussian ? 0.15 : 0.2);
        for (Simulation::Link &link : simulation.links)
            link.gaussian = gaussian;
        Controller controller(simulation.probed(), {});
        for (int op = 0; op < 100; ++op)
            simulation.step(controller, bytes);
        const int operations = 4000;
        std::array<double, 3> sum{}, squares{};
        for (int op = 0; op < operations; ++op) {
            simulation.step(controller, bytes);
            for (int i = 0; i < 3; ++i) {
                const double share = controller.vector(bytes, 0).share(i);
                sum[i] += share;
                squares[i] += share * share;
            }
        }
        for (int i = 0; i < 3; ++i) {
            const double mean = sum[i] / operations;
            EXPECT_LE(std::sqrt(squares[i] / operations - mean * mean), 0.02) << i << " gaussian " << gaussian;
            EXPECT_NEAR(mean, simulation.optimum()[i], 0.02) << i << " gaussian " << gaussian;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Rails,
                         testing::Values(RailCase{{800, 400, 200}, 16 * kMiB}, RailCase{{800, 400, 200}, 8 * kMiB},
                                         RailCase{{900, 60, 40}, 16 * kMiB}, RailCase{{900, 60, 40}, 64 * kMiB}));

TEST(Stage2, FollowsSlowDrift) {
    Simulation simulation = Simulation::rails({800, 400});
    Controller controller(simulation.probed(), {});
    double worst = 0;
    for (int op = 0; op < 400; ++op) {
        simulation.links[0].rate = (op < 200 ? 800 - 3.0 * op : 200 + 3.0 * (op - 200)) * kMbit;
        simulation.step(controller, 8 * kMiB);
        worst = std::max(worst, distance(controller.vector(8 * kMiB, 0), simulation.optimum()));
    }
    EXPECT_LT(worst, 0.08);
}

TEST(Stage2, OneHiccupMovesLittle) {
    Simulation simulation = Simulation::rails({800, 400});
    Controller controller(simulation.probed(), {});
    for (int op = 0; op < 30; ++op)
        simulation.step(controller, 8 * kMiB);
    std::vector<LinkSample> samples = simulation.run(controller.vector(8 * kMiB, 0), 8 * kMiB);
    samples[1].busy_ns *= 20;
    controller.observe(8 * kMiB, 0, samples);
    EXPECT_LT(distance(controller.vector(8 * kMiB, 0), simulation.optimum()), 0.02);
}

TEST(Stage2, PhasesAndCacheBandsKeepTheirOwnRates) {
    // In phase 1 the second link is four times slower; above 16 MiB the first one is.
    Simulation simulation = Simulation::rails({800, 400});
    const std::vector<LinkEstimate> probed = simulation.probed();
    Controller controller(probed, {});
    const auto at = [&](double first, double second) {
        simulation.links[0].rate = first * kMbit;
        simulation.links[1].rate = second * kMbit;
    };
    for (int op = 0; op < 30; ++op) {
        at(800, 400);
        simulation.step(controller, 4 * kMiB, 0);
        at(800, 100);
        simulation.step(controller, 4 * kMiB, 1);
        at(200, 400);
        simulation.step(controller, 64 * kMiB, 0);
    }
    EXPECT_NEAR(controller.vector(4 * kMiB, 0).share(0), 8.0 / 12, 0.02);
    EXPECT_NEAR(controller.vector(4 * kMiB, 1).share(0), 8.0 / 9, 0.02);
    EXPECT_NEAR(controller.vector(64 * kMiB, 0).share(0), 2.0 / 6, 0.02);
}

TEST(Stage2, OtherClassesOfABandFollow) {
    Simulation simulation = Simulation::rails({800, 400});
    Controller controller(simulation.probed(), {});
    simulation.links[0].rate /= 4;
    for (int op = 0; op < 2000; ++op)
        simulation.step(controller, 4 * kMiB);
    EXPECT_NEAR(controller.vector(2 * kMiB, 0).share(0), 1.0 / 3, 0.03);
    EXPECT_NEAR(controller.vector(256 * kMiB, 1).share(0), 1.0 / 3, 0.03);  // never observed there
}

TEST(Stage2, SmallMessagesKeepOneLinkAndTeachNothing) {
    Simulation simulation = Simulation::rails({800, 400});
    Controller controller(simulation.probed(), {});
    for (int op = 0; op < 500; ++op) {
        const PartitionVector &vector = controller.vector(64, 0);
        EXPECT_EQ(*std::max_element(vector.weight.begin(), vector.weight.end()), PartitionVector::kWhole);
        // Small messages that wait long for a peer must not make the link look slow.
        controller.observe(64, 0, std::vector<LinkSample>{{64, 50'000'000}, {0, 0}});
    }
    EXPECT_NEAR(controller.rate(0), 800 * kMbit, 1e-6);
}

TEST(Stage2, LinkWithASmallShareIsNotTakenForASlowOne) {
    // 5 ms of latency: with its share the second link is busy for 7.6 ms, of which the latency is most.
    Simulation simulation = Simulation::rails({800, 800});
    simulation.links[1].latency_ns = 5e6;
    Controller controller(simulation.probed(), {});
    const PartitionVector first = controller.vector(kMiB, 0);
    EXPECT_GT(first.share(1), 0.2);
    for (int op = 0; op < 200; ++op)
        simulation.step(controller, kMiB);
    EXPECT_NEAR(controller.vector(kMiB, 0).share(1), first.share(1), 0.02);
}

TEST(Links, LostAndBack) {
    Simulation simulation = Simulation::rails({800, 400, 200});
    Controller controller(simulation.probed(), {});
    const std::vector<double> all = simulation.optimum();
    for (int op = 0; op < 20; ++op)
        simulation.step(controller, 16 * kMiB);
    controller.set_usable(0, false);
    for (int index = 0; index < kSizeClasses; ++index)
        for (int phase = 0; phase < kMaxPhases; ++phase) {
            const PartitionVector &vector = controller.vector(size_t{1} << index, phase);
            EXPECT_EQ(vector.weight[0], 0u);
            EXPECT_EQ(total(vector), PartitionVector::kWhole);
        }
    EXPECT_NEAR(controller.vector(16 * kMiB, 0).share(1), 2.0 / 3, 0.02);
    EXPECT_EQ(controller.verdict(0).why, "does not work, or may not be used");
    controller.set_usable(1, false);
    EXPECT_EQ(controller.vector(16 * kMiB, 0).weight[2], PartitionVector::kWhole);
    controller.set_usable(2, false);
    EXPECT_EQ(total(controller.vector(16 * kMiB, 0)), 0u);
    EXPECT_FALSE(controller.observe(16 * kMiB, 0, std::vector<LinkSample>(3)));
    // The first one back carries at once; the others after one operation each that measures them.
    controller.set_usable(1, true);
    EXPECT_EQ(controller.vector(16 * kMiB, 0).weight[1], PartitionVector::kWhole);
    controller.set_usable(0, true);
    controller.set_usable(2, true);
    for (int op = 0; op < 8; ++op)
        simulation.step(controller, 16 * kMiB);
    EXPECT_LT(distance(controller.vector(16 * kMiB, 0), all), 0.02);
    for (int i = 0; i < 3; ++i)
        EXPECT_TRUE(controller.verdict(i).on) << controller.verdict(i).why;
}

TEST(Links, OneThatIsOffStandsInForTheLost) {
    Controller controller(std::vector<LinkEstimate>{link_of(500, 13.1, 12.44), link_of(20e3, 1.4, 0.7)}, {});
    controller.set_usable(0, false);
    EXPECT_EQ(controller.vector(kMiB, 0).weight[1], PartitionVector::kWhole);
    EXPECT_TRUE(controller.verdict(1).on);
    controller.set_usable(0, true);
    Simulation simulation;
    simulation.links = {{500, 13.1}, {20e3, 1.4}};
    for (int op = 0; op < 5; ++op)
        simulation.step(controller, kMiB);
    EXPECT_EQ(controller.vector(kMiB, 0).weight[0], PartitionVector::kWhole);
    EXPECT_FALSE(controller.verdict(1).on);
}

TEST(Links, OneThatAddedLittleIsTriedWhenTheRestIsSlower) {
    Simulation simulation = Simulation::rails({900, 60, 20});
    Controller controller(simulation.probed(), {});
    EXPECT_FALSE(controller.verdict(2).on);
    controller.set_usable(0, false);
    for (int op = 0; op < 30; ++op)
        simulation.step(controller, 16 * kMiB);
    EXPECT_TRUE(controller.verdict(2).on) << controller.verdict(2).why;
    EXPECT_NEAR(controller.vector(16 * kMiB, 0).share(2), 0.25, 0.03);
}

TEST(Exploration, FindsARailThatBecameFaster) {
    Simulation simulation = Simulation::rails({800, 10}, 0.1);
    Controller controller(simulation.probed(), {});
    EXPECT_EQ(controller.vector(16 * kMiB, 0).weight[1], 0u);
    for (int op = 0; op < 100; ++op)
        simulation.step(controller, 16 * kMiB);
    EXPECT_FALSE(controller.verdict(1).on);
    simulation.links[1].rate = 400 * kMbit;
    for (int op = 0; op < 400; ++op)
        simulation.step(controller, 16 * kMiB);
    EXPECT_TRUE(controller.verdict(1).on) << controller.verdict(1).why;
    EXPECT_LT(distance(controller.vector(16 * kMiB, 0), simulation.optimum()), 0.05);
}

TEST(Exploration, FindsALinkThatIsOnButLostItsShare) {
    // So slow that one link alone is as good; it is on, without a share, until an offer shows that it is back.
    Simulation simulation = Simulation::rails({800, 400});
    Controller controller(simulation.probed(), {});
    simulation.links[1].rate /= 100;
    for (int op = 0; op < 50; ++op)
        simulation.step(controller, 16 * kMiB);
    EXPECT_LT(controller.vector(16 * kMiB, 0).share(1), 0.02);
    simulation.links[1].rate *= 100;
    for (int op = 0; op < 400; ++op)
        simulation.step(controller, 16 * kMiB);
    EXPECT_LT(distance(controller.vector(16 * kMiB, 0), simulation.optimum()), 0.02);
}

TEST(Exploration, ReachesOperationsThatWerePlannedAhead) {
    // Each operation uses the vector from before the last two were observed.
    Simulation simulation = Simulation::rails({800, 10});
    Controller controller(simulation.probed(), {});
    simulation.links[1].rate = 400 * kMbit;
    std::array<PartitionVector, 2> planned;
    planned.fill(controller.vector(16 * kMiB, 0));
    for (int op = 0; op < 200; ++op) {
        const PartitionVector used = planned[op % 2];
        planned[op % 2] = controller.vector(16 * kMiB, 0);
        controller.observe(16 * kMiB, 0, simulation.run(used, 16 * kMiB));
    }
    EXPECT_LT(distance(controller.vector(16 * kMiB, 0), simulation.optimum()), 0.05);
}

TEST(Exploration, CostsLittle) {
    // Idle links that are slow, and very slow: time lost to offers, against operations without them.
    for (const double slow : {10.0, 0.1}) {
        Simulation simulation = Simulation::rails({800, slow});
        for (const size_t bytes : {kMiB, 64 * kMiB}) {
            double time[2] = {0, 0};
            for (const int every : {0, 64}) {
                ControllerOptions options;
                options.explore_every = every;
                Controller controller(simulation.probed(), options);
                for (int op = 0; op < 5000; ++op) {
                    simulation.step(controller, bytes);
                    time[every != 0] += simulation.elapsed_ns;
                }
            }
            EXPECT_LT(time[1] / time[0], 1.015) << slow << " " << bytes;
            if (slow == 10 && bytes == 64 * kMiB) {
                EXPECT_NE(time[1], time[0]);  // offers were made
            }
        }
    }
}

TEST(Exploration, LinkThatOnlyTakesFromTheOthersGoesOffAgain) {
    // Shared memory and TCP over loopback on the same cores; no probe said so.
    Simulation simulation;
    simulation.links = {{500, 13.1, true, 0.05}, {20e3, 2.0, true, 0.05}};
    Controller controller(std::vector<LinkEstimate>{link_of(500, 13.1), link_of(20e3, 0)}, {});
    int both = 0;
    for (int op = 0; op < 3000; ++op) {
        simulation.step(controller, 16 * kMiB);
        both += controller.vector(16 * kMiB, 0).weight[1] > 0;
    }
    EXPECT_GT(both, 0);    // it was offered a share, and tried
    EXPECT_LT(both, 120);  // ever more rarely
    EXPECT_FALSE(controller.verdict(1).on);
    EXPECT_NE(controller.verdict(1).why.find("in use it adds"), std::string::npos) << controller.verdict(1).why;
    EXPECT_NE(controller.verdict(1).why.find("adds nothing, but takes 34.8 % from the rate of the others"),
              std::string::npos)
        << controller.verdict(1).why;
    EXPECT_NE(controller.verdict(1).why.find("; it must add 4 %"), std::string::npos) << controller.verdict(1).why;
}

TEST(Exploration, ElapsedTimeShowsWhatBusyTimesHide) {
    // One thread copies to both links in turn: each looks fast, the operation takes the sum of their times.
    Controller controller(std::vector<LinkEstimate>{link_of(500, 10.0), link_of(500, 0)}, {});
    const size_t bytes = 16 * kMiB;
    int both = 0;
    for (int op = 0; op < 1000; ++op) {
        const PartitionVector &vector = controller.vector(bytes, 0);
        std::vector<LinkSample> samples(2);
        double elapsed = 0;
        for (int i = 0; i < 2; ++i) {
            samples[i].bytes = static_cast<uint64_t>(vector.share(i) * bytes);
            samples[i].busy_ns = static_cast<uint64_t>(static_cast<double>(samples[i].bytes) / 10.0);
            elapsed += static_cast<double>(samples[i].busy_ns);
        }
        both += vector.weight[1] > 0;
        controller.observe(bytes, 0, samples, static_cast<uint64_t>(elapsed));
    }
    EXPECT_GT(both, 0);
    EXPECT_FALSE(controller.verdict(1).on);
}

TEST(Forced, NeverMoves) {
    const PartitionVector forced = make_partition(std::vector<double>{0.9, 0.1, 0});
    Controller controller(forced, {});
    Simulation simulation = Simulation::rails({100, 800, 800}, 0.2);
    for (int op = 0; op < 500; ++op) {
        const size_t bytes = size_t{1} << (op % 30);
        EXPECT_FALSE(controller.observe(bytes, op % 2, simulation.run(forced, bytes)));
        ASSERT_EQ(controller.vector(bytes, op % 2), forced);
    }
    EXPECT_NEAR(controller.rate(0), 100 * kMbit, 40 * kMbit);  // learnt, for reports
    EXPECT_FALSE(controller.verdict(2).on);
    controller.set_usable(0, false);
    EXPECT_EQ(controller.vector(8, 0).weight[1], PartitionVector::kWhole);
    controller.set_usable(1, false);
    EXPECT_EQ(controller.vector(8, 0).weight[2], PartitionVector::kWhole);
    controller.set_usable(0, true);
    controller.set_usable(1, true);
    EXPECT_EQ(controller.vector(8, 0), forced);
}

TEST(Frozen, KeepsStage1) {
    ControllerOptions options;
    options.frozen = true;
    Simulation simulation = Simulation::rails({800, 400, 200});
    Controller controller(simulation.probed(), options);
    const PartitionVector first = controller.vector(16 * kMiB, 0);
    simulation.links[0].rate /= 4;
    for (int op = 0; op < 200; ++op)
        simulation.step(controller, 16 * kMiB);
    EXPECT_EQ(controller.vector(16 * kMiB, 0), first);
    // Nor does a latency that was seen bring in the rates that were learnt for reports.
    for (int link = 0; link < 3; ++link)
        controller.saw_latency(link, 1);
    for (const size_t bytes : {kMiB / 16, kMiB, 16 * kMiB})
        EXPECT_EQ(controller.vector(bytes, 0),
                  Controller(Simulation::rails({800, 400, 200}).probed(), options).vector(bytes, 0));
    EXPECT_NEAR(controller.rate(0), 200 * kMbit, kMbit);
}

TEST(Vectors, StayValidForAnySequence) {
    for (uint64_t seed = 0; seed < 200; ++seed) {
        std::mt19937_64 random(seed);
        const auto uniform = [&](double low, double high) {
            return std::uniform_real_distribution<double>(low, high)(random);
        };
        const int count = 1 + static_cast<int>(random() % kMaxLinks);
        std::vector<LinkEstimate> links(count);
        for (LinkEstimate &link : links) {
            const double odd[] = {0, -1, NAN, INFINITY, 1e-300, 1e300};
            const auto value = [&](double low, double high) {
                return random() % 8 == 0 ? odd[random() % std::size(odd)] : std::pow(10, uniform(low, high));
            };
            link = {value(0, 8), value(-4, 2), value(-4, 2), random() % 4 != 0};
        }
        ControllerOptions options;
        options.explore_every = static_cast<int>(random() % 3 * 5);
        options.window = static_cast<int>(random() % 20);
        Controller controller(links, options);
        std::vector<bool> usable(count);
        for (int i = 0; i < count; ++i)
            usable[i] = links[i].usable;
        for (int op = 0; op < 300; ++op) {
            const auto bytes = static_cast<size_t>(std::pow(2, uniform(0, 40)));
            const int phase = static_cast<int>(random() % kMaxPhases);
            std::vector<LinkSample> samples(count);
            for (int i = 0; i < count; ++i)
                if (random() % 4 != 0)
                    samples[i] = {random() >> (random() % 64), random() >> (random() % 64)};
            controller.observe(bytes, phase, samples, random() % 2 ? random() >> (random() % 64) : 0);
            if (random() % 16 == 0) {
                const int link = static_cast<int>(random() % count);
                usable[link] = random() % 2 == 0;
                controller.set_usable(link, usable[link]);
            }
            const bool any = std::find(usable.begin(), usable.end(), true) != usable.end();
            for (const size_t size : {bytes, size_t{8}, 16 * kMiB}) {
                const PartitionVector &vector = controller.vector(size, phase);
                ASSERT_EQ(vector.links, count);
                ASSERT_EQ(total(vector), any ? PartitionVector::kWhole : 0u) << seed << " " << op;
                for (int i = 0; i < kMaxLinks; ++i) {
                    if (i >= count || !usable[i]) {
                        ASSERT_EQ(vector.weight[i], 0u) << seed << " " << op;
                    }
                }
            }
            for (int i = 0; i < count; ++i)
                ASSERT_TRUE(std::isfinite(controller.rate(i)) && controller.rate(i) >= 0);
        }
    }
}

TEST(Vectors, AreAPureFunctionOfWhatWasObserved) {
    Simulation one = Simulation::rails({800, 400, 200}, 0.2), two = one;
    Controller first(one.probed(), {}), second(two.probed(), {});
    for (int op = 0; op < 500; ++op) {
        one.step(first, 4 * kMiB);
        two.step(second, 4 * kMiB);
        ASSERT_EQ(first.vector(4 * kMiB, 0), second.vector(4 * kMiB, 0));
    }
}

TEST(Explanations, NameWhatEachClassTakesAndFromWhat) {
    const std::vector<std::string> names = {"rail1", "rail2", "rail3"};
    Simulation simulation = Simulation::rails({800, 400, 2}, 0.05);
    Controller controller(simulation.probed(), {});
    for (const Decision &decision : controller.explain(names))
        EXPECT_EQ(decision.decided, "carries nothing") << "nothing was called";
    for (int op = 0; op < 40; ++op)
        simulation.step(controller, 4 * kMiB);
    const std::vector<Decision> decisions = controller.explain(names);
    ASSERT_EQ(decisions.size(), 2U) << "one size, and a link that adds little";
    EXPECT_EQ(decisions[0].bytes, 4 * kMiB);
    EXPECT_EQ(decisions[0].decided.find("rail1 0.6"), 0U) << decisions[0].decided;
    EXPECT_NE(decisions[0].decided.find(", rail2 0.3"), std::string::npos) << decisions[0].decided;
    EXPECT_NE(decisions[0].from.find("GB/s in these calls"), std::string::npos) << decisions[0].from;
    EXPECT_NE(decisions[0].from.find("; 40 calls"), std::string::npos) << decisions[0].from;
    EXPECT_EQ(decisions[1].about, "rail3");
    EXPECT_FALSE(decisions[1].from.empty());
    Controller forced(make_partition(std::array{1.0, 3.0, 0.0}), {});
    simulation.step(forced, 4 * kMiB);
    ASSERT_FALSE(forced.explain(names).empty());
    EXPECT_EQ(forced.explain(names)[0].decided, "rail1 0.25, rail2 0.75");
    EXPECT_EQ(forced.explain(names)[0].from, "forced");
}

TEST(Memory, IsWithinBounds) {
    EXPECT_LE(sizeof(Controller), size_t{64} << 10);
}

}  // namespace
}  // namespace flx
