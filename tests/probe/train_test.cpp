#include "probe/train.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <random>
#include <vector>

namespace flx::probe {
namespace {

constexpr int64_t kMs = 1'000'000;

TEST(TrainTest, RateIsThatOfTheLaterHalf) {
    Train train(0, kMs, true, 65536);
    train.sent(1'000'000);
    train.report(500'000, 10, 0);  // a burst
    train.report(600'000, 100'000, 0);
    train.report(700'000, 200'000, 0);
    train.report(800'000, 300'000, 0);
    train.report(900'000, 400'000, 0);
    EXPECT_NEAR(train.rate(), 1.0, 0.01);
    train.report(850'000, 500'000, 0);    // goes backwards
    train.report(2'000'000, 500'000, 0);  // more than was sent
    EXPECT_EQ(train.total_reported(), 900'000u);
}

TEST(TrainTest, RateIsThatOfTheTimeInWhichChunksWaited) {
    Train train(0, 100 * kMs, true, 65536);
    train.sent(10'000'000);
    train.report(2'000'000, 1 * kMs, 0);  // a burst
    train.report(2'100'000, 2 * kMs, kMs);
    train.report(2'600'000, 7 * kMs, kMs);  // 0.1 bytes/ns
    train.report(2'610'000, 17 * kMs, 0);   // the sender had no core: the queue ran empty
    train.report(2'900'000, 18 * kMs, 0);   // what the shaper had saved up meanwhile
    EXPECT_NEAR(train.rate(), 0.1, 1e-9);
}

TEST(TrainTest, FlightGrowsWithWhatArrived) {
    Train train(0, 1000 * kMs, true, 65536);
    const auto send_all = [&](int64_t now) {
        while (const size_t bytes = train.next_chunk(now))
            train.sent(bytes);
    };
    send_all(0);
    EXPECT_EQ(train.total_sent(), Train::kFirstFlight);
    for (int64_t time = 1000; train.total_sent() < 16 * Train::kFirstFlight; time += 1000) {
        ASSERT_LT(time, 100'000);
        const size_t before = train.total_sent();
        train.report(before, time, 0);
        send_all(time);
        EXPECT_LE(train.total_sent() - before, std::max(Train::kFirstFlight, before / 3));
    }
}

TEST(TrainTest, FlightCoversALongWay) {
    constexpr int64_t kTrip = 2 * kMs;
    Train train(0, 1000 * kMs, true, 1 << 20, kTrip);
    while (const size_t bytes = train.next_chunk(0))
        train.sent(bytes);
    for (int64_t time = kTrip; time < 20 * kTrip; time += kTrip) {
        train.report(train.total_sent(), time, 0);
        while (const size_t bytes = train.next_chunk(time))
            train.sent(bytes);
    }
    EXPECT_GT(train.total_sent() - train.total_reported(), 5'000'000u);  // 20 Gbit/s of such a way
}

TEST(TrainTest, FlightEndsWithTheTime) {
    Train train(0, kMs, true, 65536);
    train.sent(200'000);
    train.report(100'000, 100'000, 0);
    train.report(200'000, 200'000, 0);  // 1 byte/ns
    while (const size_t bytes = train.next_chunk(990'000))
        train.sent(bytes);
    EXPECT_LE(train.total_sent(), 210'000u);  // what arrives in the 10 µs that are left
    EXPECT_EQ(train.next_chunk(kMs), 0u);
}

TEST(TrainTest, ALongQueueStopsItAndAnEmptyOneStartsIt) {
    Train train(0, 1000 * kMs, true, 65536);
    train.sent(4'000'000);
    train.report(1'000'000, 1 * kMs, 0);
    train.report(1'100'000, 2 * kMs, 10 * kMs);
    train.report(1'400'000, 5 * kMs, 10 * kMs);
    for (int64_t now = 5 * kMs; now < 9 * kMs; now += 100'000)
        EXPECT_EQ(train.next_chunk(now), 0u);
    train.report(4'000'000, 31 * kMs, 10 * kMs);  // nothing is under way: without more nothing would be reported
    EXPECT_GT(train.next_chunk(31 * kMs), 0u);
}

TEST(TrainTest, UnpacedLinksTakeWhatTheyCan) {
    Train train(0, 1000, false, 65537);
    EXPECT_EQ(train.next_chunk(0), 65536u);
    EXPECT_EQ(train.rate(), 0);
}

/// Two hosts that send trains to each other over one rail: a token bucket and a queue in each direction, which reports
/// of the other direction share.
class Rail {
  public:
    Rail(double rate, double burst_ns, unsigned seed, int64_t round_trip_ns = 20'000)
        : rate_(rate), round_trip_ns_(round_trip_ns), random_(seed) {
        for (Host &host : hosts_)
            host.tokens = rate * burst_ns;
        burst_ = rate * burst_ns;
    }

    /// The rates that the two trains find; the second one begins `late` ns after the first one.
    std::array<double, 2> run(int64_t length, int64_t late, int64_t pause_ns) {
        for (int h = 0; h < 2; ++h)
            hosts_[h].train.emplace_back(h * late, length, true, 128 << 10, round_trip_ns_);
        for (int64_t now = 0; now < length + 100 * kMs; now += kTick) {
            for (int h = 0; h < 2; ++h) {
                transmit(hosts_[h], now);
                // Now and then a process has no core.
                if (pause_ns != 0 && random_() % (4 * pause_ns / kTick) == 0)
                    hosts_[h].sleeps_until = now + pause_ns;
                if (now >= hosts_[h].sleeps_until && now >= h * late)
                    turn(hosts_[h], hosts_[1 - h], now);
            }
        }
        return {hosts_[0].train[0].rate(), hosts_[1].train[0].rate()};
    }

  private:
    static constexpr int64_t kTick = 10'000;
    static constexpr int64_t kReportEvery = 500'000;
    static constexpr double kReportBytes = 100;
    struct Packet {
        double bytes;
        bool report;
        int64_t sent_ns;
        uint64_t arrived;
        int64_t time_ns, queue_ns;
        int64_t there_ns = 0;
    };
    struct Host {
        std::vector<Train> train;
        std::deque<Packet> queue, delivered;
        double tokens = 0;
        int64_t sleeps_until = 0;
        // Of what comes from the other one.
        uint64_t arrived = 0, reported = 0;
        int64_t reported_ns = 0, last_ns = 0, waited_ns = 0, least_ns = INT64_MAX;
    };

    void transmit(Host &host, int64_t now) {
        host.tokens = std::min(host.tokens + rate_ * kTick, std::max(burst_, rate_ * kTick));
        while (!host.queue.empty() && host.tokens > 0) {
            Packet &first = host.queue.front();
            const double part = std::min(first.bytes, host.tokens);
            host.tokens -= part;
            first.bytes -= part;
            if (first.bytes > 0)
                return;
            first.there_ns = now + round_trip_ns_ / 2;
            host.delivered.push_back(first);
            host.queue.pop_front();
        }
    }

    static void turn(Host &host, Host &other, int64_t now) {
        for (; !other.delivered.empty() && other.delivered.front().there_ns <= now; other.delivered.pop_front()) {
            const Packet &packet = other.delivered.front();
            if (packet.report) {
                host.train[0].report(packet.arrived, packet.time_ns, packet.queue_ns);
                continue;
            }
            host.arrived += packet.arrived;
            host.last_ns = now;
            host.least_ns = std::min(host.least_ns, now - packet.sent_ns);
            host.waited_ns = now - packet.sent_ns - host.least_ns;
        }
        if (host.arrived > host.reported &&
            (host.arrived * 8 >= host.reported * 9 || now - host.reported_ns >= kReportEvery)) {
            host.queue.push_back({kReportBytes, true, now, host.arrived, host.last_ns, host.waited_ns});
            host.reported = host.arrived;
            host.reported_ns = now;
        }
        while (const size_t bytes = host.train[0].next_chunk(now)) {
            host.queue.push_back({static_cast<double>(bytes), false, now, bytes, 0, 0});
            host.train[0].sent(bytes);
        }
    }

    double rate_;
    int64_t round_trip_ns_;
    double burst_ = 0;
    std::minstd_rand random_;
    std::array<Host, 2> hosts_;
};

TEST(TrainTest, BothDirectionsFindTheirRate) {
    for (const double rate : {0.0025, 0.025, 0.1, 1.25})
        for (const int64_t burst : {int64_t{0}, 3 * kMs, 10 * kMs})
            for (const int64_t late : {int64_t{0}, int64_t{200'000}, 3 * kMs}) {
                const auto found = Rail(rate, static_cast<double>(burst), 1).run(40 * kMs, late, 0);
                for (const double one : found)
                    EXPECT_NEAR(one / rate, 1, 0.1) << rate << " " << burst << " " << late;
            }
}

TEST(TrainTest, ALongWayIsFilled) {
    for (const double rate : {0.1, 1.25, 12.5, 50.0})
        for (const int64_t trip : {500'000, 2'000'000}) {
            const auto found = Rail(rate, 0, 1, trip).run(40 * kMs, 0, 0);
            for (const double one : found)
                EXPECT_NEAR(one / rate, 1, 0.1) << rate << " " << trip;
        }
}

TEST(TrainTest, ProcessesThatOftenHaveNoCoreFindTheirRateToo) {
    for (const double rate : {0.025, 0.1, 1.25}) {
        std::vector<double> found;
        for (unsigned seed = 1; seed <= 20; ++seed)
            for (const double one : Rail(rate, 10e6, seed).run(40 * kMs, 200'000, 3 * kMs))
                found.push_back(one / rate);
        std::sort(found.begin(), found.end());
        EXPECT_NEAR(found[found.size() / 2], 1, 0.05) << rate;
        EXPECT_GT(found.front(), 0.5) << rate;
        EXPECT_LT(found.back(), 1.5) << rate;
    }
}

}  // namespace
}  // namespace flx::probe
