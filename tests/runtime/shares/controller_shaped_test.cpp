// The controller on rails as hosts have them: shaped by a token bucket, so that a rail that had little to do lets a
// burst pass at any speed; with peers that lose their core for some ms; with chunks that move to whichever link is
// free.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "runtime/shares/controller.h"

namespace flx {
namespace {

constexpr size_t kMiB = 1u << 20;
constexpr double kMbit = 1e6 / 8 / 1e9;   // bytes per ns
constexpr double kLine = 10'000 * kMbit;  // at which a burst passes
constexpr double kMs = 1e6;

ControllerOptions between_hosts() {
    ControllerOptions options;
    options.burst_ns = 40 * kMs;
    return options;
}

struct Shaped {
    struct Rail {
        double rate;
        double tokens;
        int wire;  // rails of one wire divide its rate and its bucket
    };
    std::vector<Rail> rails;
    double bucket_ns = 10 * kMs;  // what a bucket holds, as time at its rate
    double noise = 0;             // rates vary by up to this part from one operation to the next
    double hiccups = 0;           // part of the operations in which the peer is late by up to 20 ms
    double starved = 0;           // part of the operations in which the processes lack cores: all rails look slow
    bool steals = false;          // what a rail has not begun moves to one that is free
    double turn_ns = 0;           // acknowledgements are seen when the process gets a core: after so long on average
    std::mt19937_64 random{11};
    double elapsed_ns = 0;  // of the last operation

    explicit Shaped(const std::vector<double> &mbit) {
        for (const double rate : mbit)
            rails.push_back({rate * kMbit, rate * kMbit * bucket_ns, static_cast<int>(rails.size())});
    }

    [[nodiscard]] double sum() const {
        return std::accumulate(rails.begin(), rails.end(), 0.0,
                               [](double s, const Rail &rail) { return s + rail.rate; });
    }

    double part() { return std::uniform_real_distribution<double>(0, 1)(random); }

    static double time_for(double bytes, double rate, double tokens) {
        const double burst = std::min(bytes, tokens);
        return burst / kLine + (bytes - burst) / rate;
    }

    std::vector<LinkSample> run(const PartitionVector &vector, size_t bytes) {
        const size_t n = rails.size();
        std::vector<double> carried(n), rate(n), busy(n);
        for (size_t i = 0; i < n; ++i) {
            carried[i] = vector.share(static_cast<int>(i)) * static_cast<double>(bytes);
            rate[i] = rails[i].rate * (1 + noise * (2 * part() - 1));
        }
        if (steals) {
            // All end together, as nearly as 256 KiB that are under way on a rail allow.
            double low = 0, high = 1e12;
            std::vector<double> can(n);
            for (int step = 0; step < 60; ++step) {
                const double end = (low + high) / 2;
                double all = 0;
                for (size_t i = 0; i < n; ++i) {
                    const double burst = std::min(rails[i].tokens, end * kLine);
                    can[i] = burst + std::max(0.0, end - burst / kLine) * rate[i];
                    all += can[i] = std::max(can[i], std::min(carried[i], 256.0 * 1024));
                }
                (all < static_cast<double>(bytes) ? low : high) = end;
            }
            carried = can;
        }
        const double late = part() < hiccups ? part() * 20 * kMs : 0;
        const double slow = part() < starved ? 1 + 4 * part() : 1;
        elapsed_ns = 0;
        for (size_t i = 0; i < n; ++i) {
            // Rails of one wire: what the others put on it while this one is busy delays it by as much.
            double beside = 0;
            for (size_t k = 0; k < n; ++k)
                if (k != i && rails[k].wire == rails[i].wire)
                    beside += std::min(carried[k], carried[i]);
            busy[i] = carried[i] == 0 ? 0 : 0.1 * kMs + late + time_for(carried[i] + beside, rate[i], rails[i].tokens);
            // No two rails see the same of it.
            busy[i] *= slow > 1 ? std::max(1.0, slow * (0.85 + 0.3 * part())) : 1;
            elapsed_ns = std::max(elapsed_ns, busy[i]);
        }
        if (turn_ns > 0) {
            std::vector<double> seen(n);
            for (double turn = 0; turn < elapsed_ns;) {
                turn += -turn_ns * std::log(1 - part());
                for (size_t i = 0; i < n; ++i)
                    if (seen[i] == 0 && busy[i] <= turn)
                        seen[i] = turn;
            }
            for (size_t i = 0; i < n; ++i)
                elapsed_ns = std::max(elapsed_ns, busy[i] = std::max(busy[i], seen[i]));
        }
        std::vector<LinkSample> samples(n);
        for (size_t i = 0; i < n; ++i) {
            double on_wire = 0;
            for (size_t k = 0; k < n; ++k)
                on_wire += rails[k].wire == rails[i].wire ? carried[k] : 0;
            rails[i].tokens =
                std::clamp(rails[i].tokens + rails[i].rate * elapsed_ns - on_wire, 0.0, rails[i].rate * bucket_ns);
            samples[i] = {static_cast<uint64_t>(carried[i]), static_cast<uint64_t>(busy[i])};
        }
        return samples;
    }

    /// Buckets fill.
    void idle(double ns) {
        for (Rail &rail : rails)
            rail.tokens = std::min(rail.tokens + rail.rate * ns, rail.rate * bucket_ns);
    }

    void step(Controller &controller, size_t bytes) {
        const PartitionVector used = controller.vector(bytes, 0);
        const auto samples = run(used, bytes);
        controller.observe(bytes, 0, samples, static_cast<uint64_t>(elapsed_ns));
    }

    /// `operations` one after the other: their throughput as part of what the rails carry together.
    double throughput(Controller &controller, size_t bytes, int operations) {
        double time = 0;
        for (int op = 0; op < operations; ++op) {
            step(controller, bytes);
            time += elapsed_ns;
        }
        return static_cast<double>(bytes) * operations / time / sum();
    }

    [[nodiscard]] std::vector<LinkEstimate> probed() const {
        std::vector<LinkEstimate> estimates;
        for (const Rail &rail : rails)
            estimates.push_back({0.1 * kMs, rail.rate, rail.rate, true});
        return estimates;
    }
};

TEST(Shaped, ShortOperationsDoNotOscillate) {
    for (const double noise : {0.0, 0.1}) {
        Shaped shaped({800, 400, 200});
        shaped.noise = noise;
        Controller controller(shaped.probed(), between_hosts());
        shaped.throughput(controller, kMiB, 50);
        std::vector<double> first;
        double time = 0;
        for (int op = 0; op < 400; ++op) {
            shaped.step(controller, kMiB);
            time += shaped.elapsed_ns;
            first.push_back(controller.vector(kMiB, 0).share(0));
        }
        EXPECT_GT(400.0 * kMiB / time / shaped.sum(), 0.85) << "noise " << noise;
        const double mean = std::accumulate(first.begin(), first.end(), 0.0) / static_cast<double>(first.size());
        double squares = 0;
        for (const double share : first)
            squares += (share - mean) * (share - mean);
        EXPECT_NEAR(mean, 800.0 / 1400, 0.05) << "noise " << noise;
        // Within what stays unsettled while an operation is shorter than a bucket; it swings by 0.3 and more otherwise.
        EXPECT_LT(std::sqrt(squares / static_cast<double>(first.size())), 0.1) << "noise " << noise;
    }
}

TEST(Shaped, LatePeersDoNotMisleadShortOperations) {
    Shaped shaped({800, 400, 200});
    shaped.hiccups = 0.2;
    Controller controller(shaped.probed(), between_hosts());
    shaped.throughput(controller, kMiB, 100);
    double late = 0, worst = 0;
    for (int op = 0; op < 400; ++op) {
        shaped.step(controller, kMiB);
        const double moved = std::abs(controller.vector(kMiB, 0).share(0) - 800.0 / 1400);
        worst = std::max(worst, moved);
        late += moved;
    }
    EXPECT_LT(late / 400, 0.08);
    EXPECT_LT(worst, 0.25);
}

TEST(Shaped, ARailFallsToAnEighthAndReturns) {
    for (const size_t bytes : {kMiB, 16 * kMiB})
        for (size_t slowed = 0; slowed < 3; ++slowed)
            for (const double noise : {0.0, 0.1}) {
                Shaped shaped({800, 400, 200});
                shaped.noise = noise;
                Controller controller(shaped.probed(), between_hosts());
                shaped.throughput(controller, bytes, 60);
                shaped.rails[slowed].rate /= 8;
                shaped.throughput(controller, bytes, 10);
                EXPECT_GT(shaped.throughput(controller, bytes, 20), 0.85)
                    << bytes << " B, rail " << slowed << " down, noise " << noise;
                shaped.throughput(controller, bytes, 60);
                shaped.rails[slowed].rate *= 8;
                // Operations shorter than a bucket show bursts only: shares rise step by step.
                shaped.throughput(controller, bytes, bytes < 4 * kMiB ? 20 : 10);
                EXPECT_GT(shaped.throughput(controller, bytes, 20), 0.85)
                    << bytes << " B, rail " << slowed << " back, noise " << noise;
            }
}

TEST(Shaped, ARailThatFallsToHalfIsFollowedInBriefOperations) {
    for (size_t slowed = 0; slowed < 3; ++slowed)
        for (const double part : {0.4, 0.5, 0.6}) {
            Shaped shaped({800, 400, 200});
            shaped.noise = 0.05;
            Controller controller(shaped.probed(), between_hosts());
            shaped.throughput(controller, kMiB, 200);
            shaped.rails[slowed].rate *= part;
            shaped.throughput(controller, kMiB, 150);
            EXPECT_GT(shaped.throughput(controller, kMiB, 50), 0.9) << "rail " << slowed << " to " << part;
        }
}

TEST(Shaped, AWrongProbeIsFoundOutSoon) {
    // On a busy machine a probe may have seen next to nothing of a rail, which then has no share to show itself with.
    for (size_t wrong = 0; wrong < 3; ++wrong) {
        Shaped shaped({800, 400, 200});
        std::vector<LinkEstimate> probed = shaped.probed();
        probed[wrong].bytes_per_ns = probed[wrong].together_bytes_per_ns = 0.5 * kMbit;
        Controller controller(probed, between_hosts());
        shaped.throughput(controller, 16 * kMiB, 20);
        EXPECT_GT(shaped.throughput(controller, 16 * kMiB, 20), 0.85) << wrong;
    }
}

TEST(Shaped, RatesStayRightWhereChunksMoveBetweenLinks) {
    // What a link delivered and how long it was busy: after stealing both follow the link, not the vector.
    Shaped shaped({800, 400, 200});
    shaped.steals = true;
    std::vector<LinkEstimate> wrong = shaped.probed();
    for (LinkEstimate &link : wrong)
        link.bytes_per_ns = link.together_bytes_per_ns = 0.05;
    Controller controller(wrong, between_hosts());
    shaped.throughput(controller, 16 * kMiB, 30);
    for (int i = 0; i < 3; ++i) {
        EXPECT_NEAR(controller.rate(i) / shaped.rails[i].rate, 1, 0.12) << i;
        EXPECT_NEAR(controller.vector(16 * kMiB, 0).share(i), shaped.rails[i].rate / shaped.sum(), 0.03) << i;
    }
    shaped.rails[0].rate /= 8;
    shaped.throughput(controller, 16 * kMiB, 10);
    EXPECT_NEAR(controller.vector(16 * kMiB, 0).share(0), 100.0 / 700, 0.04);
}

TEST(Shaped, RailsOnOneWireGetItsShareTogether) {
    Shaped shaped({400, 400, 400});
    shaped.rails[2].wire = 1;
    // As a probe finds them: each alone at 400, these two together at 200 each.
    std::vector<LinkEstimate> probed = shaped.probed();
    probed[1].together_bytes_per_ns = probed[2].together_bytes_per_ns = 200 * kMbit;
    Controller controller(probed, between_hosts());
    for (const int operations : {0, 50, 500}) {
        double time = 0;
        for (int op = 0; op < operations; ++op) {
            shaped.step(controller, 16 * kMiB);
            time += shaped.elapsed_ns;
        }
        const PartitionVector &vector = controller.vector(16 * kMiB, 0);
        EXPECT_NEAR(vector.share(1) + vector.share(2), 0.5, 0.04) << "after " << operations;
        if (operations > 0) {
            EXPECT_GT(16.0 * kMiB * operations / time / (800 * kMbit), 0.9);
        }
    }
}

TEST(Shaped, FollowsRandomRates) {
    for (const unsigned seed : {1u, 2u, 3u, 4u}) {
        Shaped shaped({900, 500, 250, 120});
        const std::vector<Shaped::Rail> first = shaped.rails;
        shaped.noise = 0.1;
        shaped.random.seed(seed);
        Controller controller(shaped.probed(), between_hosts());
        double used = 0, needed = 0;
        for (int op = 0; op < 2000; ++op) {
            if (shaped.part() < 0.02) {
                const auto rail = static_cast<size_t>(shaped.part() * 4);
                shaped.rails[rail].rate = first[rail].rate * (1 + std::floor(8 * shaped.part())) / 8;
            }
            shaped.step(controller, 4 * kMiB);
            used += shaped.elapsed_ns;
            needed += 4.0 * kMiB / shaped.sum();
            const PartitionVector &vector = controller.vector(4 * kMiB, 0);
            ASSERT_EQ(std::accumulate(vector.weight.begin(), vector.weight.end(), uint64_t{0}),
                      PartitionVector::kWhole);
        }
        EXPECT_GT(needed / used, 0.75) << "seed " << seed;
    }
}

/// How far the worst share is from the rail's part of the sum.
double error_of(const PartitionVector &vector, const Shaped &shaped) {
    double worst = 0;
    for (size_t i = 0; i < shaped.rails.size(); ++i)
        worst = std::max(worst, std::abs(vector.share(static_cast<int>(i)) - shaped.rails[i].rate / shaped.sum()));
    return worst;
}

struct Errors {
    double worst = 0;
    double mean = 0;
};

/// After each of so many operations.
Errors errors_over(int operations, size_t bytes, Controller &controller, Shaped &shaped) {
    Errors errors;
    double sum = 0;
    for (int op = 0; op < operations; ++op) {
        shaped.step(controller, bytes);
        const double error = error_of(controller.vector(bytes, 0), shaped);
        errors.worst = std::max(errors.worst, error);
        sum += error;
    }
    errors.mean = sum / operations;
    return errors;
}

TEST(Starved, SharesStayWhereAllRailsLookSlow) {
    for (const double starved : {0.2, 0.5, 0.8})
        for (const unsigned seed : {1U, 2U, 3U}) {
            Shaped shaped({800, 400, 200});
            shaped.starved = starved;
            shaped.noise = 0.05;
            shaped.random.seed(seed);
            Controller controller(shaped.probed(), between_hosts());
            const Errors errors = errors_over(400, 16 * kMiB, controller, shaped);
            EXPECT_LT(errors.worst, 0.08) << starved << " of the operations, seed " << seed;
            EXPECT_LT(errors.mean, 0.03) << starved << " of the operations, seed " << seed;
        }
}

/// Rails that are not full show no rate of their own: their bursts pass at once, and all acknowledgements are seen
/// together when the process gets a core. Learnt from that, shares walk to where they confirm themselves.
TEST(Starved, BriefOperationsKeepTheSharesThatTheProbeFound) {
    for (const double turn : {1.0, 3.0})
        for (const unsigned seed : {1U, 2U, 3U, 4U}) {
            Shaped shaped({800, 400, 200});
            shaped.turn_ns = turn * kMs;
            shaped.random.seed(seed);
            Controller controller(shaped.probed(), between_hosts());
            const Errors errors = errors_over(1000, kMiB / 4, controller, shaped);
            EXPECT_LT(errors.mean, 0.02) << "turns of " << turn << " ms, seed " << seed;
            EXPECT_LT(errors.worst, 0.1) << "turns of " << turn << " ms, seed " << seed;
        }
}

TEST(Shaped, BriefOperationsTakeRatesFromLongOnes) {
    Shaped shaped({800, 400, 200});
    std::vector<LinkEstimate> probed = shaped.probed();
    probed[0].bytes_per_ns = probed[0].together_bytes_per_ns = 560 * kMbit;
    Controller controller(probed, between_hosts());
    shaped.throughput(controller, 16 * kMiB, 20);
    shaped.turn_ns = 2 * kMs;
    shaped.throughput(controller, kMiB / 4, 100);
    EXPECT_LT(error_of(controller.vector(kMiB / 4, 0), shaped), 0.03);
    // One that falls far meanwhile is followed all the same.
    shaped.rails[0].rate /= 8;
    shaped.throughput(controller, kMiB / 4, 60);
    EXPECT_LT(error_of(controller.vector(kMiB / 4, 0), shaped), 0.1);
}

/// A probe is off by some percent, on busy machines by more, and a program may have brief operations only.
TEST(Shaped, BriefOperationsFindOutAProbeThatWasALittleWrong) {
    for (const double wrong : {0.7, 0.85, 1.15, 1.4})
        for (size_t rail = 0; rail < 3; ++rail)
            for (const double turn : {0.0, 0.3}) {
                Shaped shaped({800, 400, 200});
                shaped.turn_ns = turn * kMs;
                shaped.noise = 0.02;
                std::vector<LinkEstimate> probed = shaped.probed();
                probed[rail].together_bytes_per_ns = probed[rail].bytes_per_ns *= wrong;
                Controller controller(probed, between_hosts());
                shaped.throughput(controller, kMiB, 200);
                EXPECT_GT(shaped.throughput(controller, kMiB, 400), 0.96)
                    << "rail " << rail << " believed to have " << wrong << " of its rate, turns of " << turn << " ms";
                EXPECT_LT(errors_over(400, kMiB, controller, shaped).mean, 0.02)
                    << "rail " << rail << " believed to have " << wrong << " of its rate, turns of " << turn << " ms";
            }
}

/// Two hosts that send to each other at once, as in an allreduce: the operation ends when both have, and what one has
/// delivered on a rail is acknowledged behind what the other still sends there.
double throughput_of_two(std::array<Shaped, 2> &hosts, std::array<Controller, 2> &controllers, size_t bytes,
                         int operations) {
    double time = 0;
    for (int op = 0; op < operations; ++op) {
        std::array<std::vector<LinkSample>, 2> samples;
        double elapsed = 0;
        for (size_t host = 0; host < 2; ++host) {
            samples[host] = hosts[host].run(controllers[host].vector(bytes, 0), bytes);
            elapsed = std::max(elapsed, hosts[host].elapsed_ns);
        }
        for (size_t host = 0; host < 2; ++host) {
            hosts[host].idle(elapsed - hosts[host].elapsed_ns);
            std::vector<LinkSample> seen = samples[host];
            for (size_t i = 0; i < seen.size(); ++i)
                seen[i].busy_ns = std::max(seen[i].busy_ns, samples[1 - host][i].busy_ns);
            controllers[host].observe(bytes, 0, seen, static_cast<uint64_t>(elapsed));
        }
        time += elapsed;
    }
    return static_cast<double>(bytes) * operations / time / hosts[0].sum();
}

/// Each believes something else of a rail, and the one that gives it less sees it as slow as the other makes it.
TEST(Shaped, HostsThatBelieveOtherRatesDoNotDriftApart) {
    for (size_t rail = 0; rail < 3; ++rail)
        for (const double wrong : {0.85, 1.2}) {
            std::array<Shaped, 2> hosts{Shaped({800, 400, 200}), Shaped({800, 400, 200})};
            hosts[1].random.seed(12);
            std::vector<LinkEstimate> probed = hosts[0].probed();
            probed[rail].together_bytes_per_ns = probed[rail].bytes_per_ns *= wrong;
            std::array<Controller, 2> controllers{Controller(probed, between_hosts()),
                                                  Controller(hosts[1].probed(), between_hosts())};
            for (Shaped &host : hosts)
                host.noise = 0.02;
            throughput_of_two(hosts, controllers, kMiB, 200);
            EXPECT_GT(throughput_of_two(hosts, controllers, kMiB, 1000), 0.93)
                << "rail " << rail << " believed to have " << wrong << " of its rate by one of the hosts";
        }
}

TEST(Starved, ARailThatSlowsMeanwhileIsFollowed) {
    for (size_t slowed = 0; slowed < 3; ++slowed) {
        Shaped shaped({800, 400, 200});
        shaped.starved = 0.4;
        Controller controller(shaped.probed(), between_hosts());
        shaped.throughput(controller, 16 * kMiB, 40);
        shaped.rails[slowed].rate /= 8;
        shaped.throughput(controller, 16 * kMiB, 10);
        EXPECT_LT(error_of(controller.vector(16 * kMiB, 0), shaped), 0.08) << slowed;
        shaped.throughput(controller, 16 * kMiB, 40);
        shaped.rails[slowed].rate *= 8;
        shaped.throughput(controller, 16 * kMiB, 10);
        EXPECT_LT(error_of(controller.vector(16 * kMiB, 0), shaped), 0.08) << slowed;
    }
}

TEST(Starved, WhereAllRailsSlowForGoodRatesFollowAndSharesStay) {
    Shaped shaped({800, 400, 200});
    Controller controller(shaped.probed(), between_hosts());
    shaped.throughput(controller, 16 * kMiB, 40);
    for (Shaped::Rail &rail : shaped.rails)
        rail.rate /= 3;
    for (int op = 0; op < 30; ++op) {
        shaped.step(controller, 16 * kMiB);
        EXPECT_LT(error_of(controller.vector(16 * kMiB, 0), shaped), 0.03) << op;
    }
    for (int i = 0; i < 3; ++i)
        EXPECT_NEAR(controller.rate(i) / shaped.rails[static_cast<size_t>(i)].rate, 1, 0.15) << i;
}

TEST(Starved, AProbeThatFoundPeersLateIsForgotten) {
    for (size_t late = 0; late < 3; ++late) {
        Shaped shaped({800, 400, 200});
        std::vector<LinkEstimate> probed = shaped.probed();
        probed[late].latency_ns = 40 * kMs;
        Controller controller(probed, between_hosts());
        shaped.throughput(controller, 16 * kMiB, 2);
        controller.saw_latency(static_cast<int>(late), 0.1 * kMs);
        shaped.throughput(controller, 16 * kMiB, 6);
        EXPECT_LT(error_of(controller.vector(16 * kMiB, 0), shaped), 0.03) << "latency of rail " << late;
    }
    // As seen: the receiver took a whole train at once when it got its core, and of the others nothing came in time.
    Shaped shaped({800, 400, 200});
    std::vector<LinkEstimate> probed = shaped.probed();
    for (LinkEstimate &rail : probed)
        rail.bytes_per_ns = rail.together_bytes_per_ns = 4.6 * kMbit;
    probed[2].bytes_per_ns = probed[2].together_bytes_per_ns = 8498 * kMbit;
    Controller controller(probed, between_hosts());
    shaped.throughput(controller, 16 * kMiB, 4);
    EXPECT_GT(shaped.throughput(controller, 16 * kMiB, 10), 0.85);
}

/// Of a recorded operation over three rails: bytes and busy microseconds of each.
std::array<LinkSample, 3> samples_of(const std::array<int, 6> &row) {
    std::array<LinkSample, 3> samples;
    for (size_t i = 0; i < 3; ++i)
        samples[i] = {static_cast<uint64_t>(row[2 * i]), static_cast<uint64_t>(row[2 * i + 1]) * 1000};
    return samples;
}

/// Bytes and busy microseconds of one rank of 4 hosts on 800, 400 and 200 Mbit/s, reduce_scatter_block of 16 MiB on two
/// busy cores: stalls in which all rails look slow, after which the second rail was believed to be half as fast as it
/// is for 30 operations.
TEST(Starved, RecordedStallsAreNotTakenForTheRails) {
    constexpr std::array<std::array<int, 6>, 27> kTrace{
        {{7176192, 66359, 3538944, 62716, 1867776, 67072},    {7503872, 68420, 3244032, 25386, 1835008, 59849},
         {7503872, 68883, 3244032, 34343, 1835008, 67044},    {7438336, 67964, 3309568, 37128, 1835008, 61515},
         {6455296, 131421, 4128768, 135355, 1998848, 135333}, {5931008, 70603, 4653056, 79311, 1998848, 68950},
         {7897088, 126820, 2752512, 125848, 1933312, 126688}, {7471104, 78617, 3211264, 76560, 1900544, 78604},
         {8192000, 83212, 2392064, 77544, 1998848, 82969},    {7634944, 79606, 3080192, 73896, 1867776, 79351},
         {7143424, 73744, 3571712, 68664, 1867776, 77419},    {7372800, 70605, 3440640, 65201, 1769472, 71784},
         {7471104, 76624, 3211264, 71120, 1900544, 75678},    {7176192, 75082, 3670016, 67536, 1736704, 75199},
         {7307264, 76331, 3407872, 67811, 1867776, 76021},    {7503872, 86346, 3178496, 90849, 1900544, 90730},
         {7536640, 73862, 3342336, 63345, 1703936, 63548},    {7405568, 69633, 3244032, 64230, 1933312, 75319},
         {7471104, 67999, 3244032, 68484, 1867776, 67198},    {7307264, 73991, 3670016, 73907, 1605632, 69657},
         {7471104, 78164, 3211264, 72624, 1900544, 72855},    {7471104, 78847, 3244032, 65624, 1900544, 71940},
         {7143424, 73130, 3538944, 65211, 1900544, 73379},    {6782976, 76226, 3932160, 75525, 1867776, 76605},
         {7471104, 78808, 3407872, 71477, 1703936, 68497},    {6848512, 79399, 3801088, 78839, 1933312, 79636},
         {7176192, 67668, 3604480, 67440, 1802240, 67884}}};
    Shaped shaped({800, 400, 200});
    Controller controller(shaped.probed(), between_hosts());
    double sum = 0;
    for (int round = 0; round < 3; ++round)
        for (const auto &row : kTrace) {
            controller.observe(4 * kMiB, 0, samples_of(row));
            sum += error_of(controller.vector(4 * kMiB, 0), shaped);
        }
    EXPECT_LT(sum / (3 * kTrace.size()), 0.035);
    EXPECT_LT(error_of(controller.vector(4 * kMiB, 0), shaped), 0.03);
}

/// Bytes and busy microseconds that 2 hosts on 800, 400 and 200 Mbit/s really saw, allreduce of 1 MiB back to back on
/// two busy cores, while shares swung: rails with little to do seem to carry several Gbit/s.
TEST(Shaped, RecordedBurstsAreNotTakenAtTheirWord) {
    constexpr std::array<std::array<int, 6>, 24> kTrace{
        {{823296, 5064, 90112, 1250, 135168, 1014},     {823296, 9537, 90112, 1333, 135168, 1357},
         {544768, 20049, 380928, 19652, 122880, 19783}, {516096, 26311, 409600, 26113, 122880, 26065},
         {548864, 3091, 376832, 3053, 122880, 3060},    {548864, 10134, 376832, 9925, 122880, 10055},
         {753664, 4533, 172032, 4468, 122880, 4473},    {786432, 6757, 139264, 6412, 122880, 6368},
         {819200, 6251, 106496, 4248, 122880, 4252},    {827392, 7588, 40960, 1034, 180224, 6930},
         {827392, 8037, 40960, 870, 180224, 7311},      {827392, 8012, 40960, 251, 180224, 6860},
         {827392, 7768, 40960, 757, 180224, 8201},      {827392, 7565, 40960, 863, 180224, 11435},
         {851968, 4207, 40960, 1033, 155648, 11422},    {901120, 2450, 73728, 2085, 73728, 5730},
         {868352, 8770, 98304, 1032, 81920, 853},       {868352, 8552, 98304, 838, 81920, 7097},
         {827392, 1877, 147456, 815, 73728, 20104},     {827392, 1170, 147456, 1342, 73728, 6387},
         {892928, 9057, 81920, 668, 73728, 1180},       {892928, 7203, 81920, 771, 73728, 19794},
         {892928, 1495, 81920, 753, 73728, 7708},       {892928, 1413, 81920, 950, 73728, 7814}}};
    Shaped shaped({800, 400, 200});
    Controller controller(shaped.probed(), between_hosts());
    for (int round = 0; round < 4; ++round)
        for (const auto &row : kTrace) {
            controller.observe(kMiB / 2, 0, samples_of(row));
            const PartitionVector &vector = controller.vector(kMiB / 2, 0);
            EXPECT_GT(vector.share(0), 0.3);
            EXPECT_LT(vector.share(0), 0.85);
        }
}

}  // namespace
}  // namespace flx
