#include "runtime/shares/bursts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "runtime/base/clock.h"

namespace flx {
namespace {

constexpr double kMbit = 1.25e-4;  // bytes/ns
constexpr double kBucketNs = 10 * kMs;

/// Rails of so many Mbit/s, which let 10 ms of their rate pass at 8 Gbit/s.
std::array<Bucket, kMaxLinks> buckets_of(std::initializer_list<double> rates) {
    std::array<Bucket, kMaxLinks> buckets{};
    size_t link = 0;
    for (const double rate : rates)
        buckets[link++] = {rate * kMbit * kBucketNs, 8000 * kMbit, rate * kMbit};
    return buckets;
}

PartitionVector vector_of(std::initializer_list<double> shares) {
    return make_partition(std::vector<double>(shares));
}

TEST(BurstsTest, TheRailOfTheLargestShareTakesAMessageWholeUntilItsBucketIsEmpty) {
    Bursts bursts;
    bursts.start(buckets_of({800, 400, 200}), 2, 1, nullptr, nullptr);
    const PartitionVector vector = vector_of({4, 2, 1});
    // A million bytes, half a million and a quarter.
    for (int i = 0; i < 15; ++i)
        ASSERT_EQ(bursts.take(1, vector, 64 << 10, 0), 0) << i;
    for (int i = 0; i < 7; ++i)
        ASSERT_EQ(bursts.take(1, vector, 60 << 10, 0), 1) << i;
    // The third one's bucket is too small for a message to be an eighth of it.
    EXPECT_EQ(bursts.take(1, vector, 64 << 10, 0), -1);
    // In a millisecond they save up 100,000 bytes again, 50,000 and 25,000, and nothing goes twice.
    EXPECT_NEAR(bursts.holds(1, 0, kMs) - bursts.holds(1, 0, 0), 100'000, 1);
    for (const int link : {0, 1, -1})
        EXPECT_EQ(bursts.take(1, vector, 60 << 10, kMs), link);
    EXPECT_EQ(bursts.take(1, vector, 64 << 10, 20 * kMs), 0);
}

TEST(BurstsTest, LongMessagesAreShared) {
    Bursts bursts;
    bursts.start(buckets_of({800, 100}), 2, 1, nullptr, nullptr);
    EXPECT_EQ(bursts.take(1, vector_of({8, 1}), Bursts::kMostBytes + 1, 0), -1);
    EXPECT_LT(bursts.holds(1, 0, 0), 800 * kMbit * kBucketNs);
}

TEST(BurstsTest, OnlyRailsThatHaveAShareTakeAny) {
    Bursts bursts;
    bursts.start(buckets_of({800, 400, 200}), 2, 1, nullptr, nullptr);
    EXPECT_EQ(bursts.take(1, vector_of({0, 2, 1}), 32 << 10, 0), 1);
    EXPECT_EQ(bursts.take(1, vector_of({0, 0, 0}), 32 << 10, 0), -1);
}

TEST(BurstsTest, ABurstMustBeFasterThanAllRailsTogether) {
    std::array<Bucket, kMaxLinks> buckets = buckets_of({800, 400, 200});
    for (Bucket &bucket : buckets)
        bucket.peak = 1800 * kMbit;
    Bursts bursts;
    bursts.start(buckets, 2, 1, nullptr, nullptr);
    EXPECT_FALSE(bursts.any());
    EXPECT_EQ(bursts.take(1, vector_of({4, 2, 1}), 64 << 10, 0), -1);
}

TEST(BurstsTest, RailsWithoutABucketTakeNothing) {
    std::array<Bucket, kMaxLinks> buckets = buckets_of({800, 400});
    buckets[0].bytes = 0;
    Bursts bursts;
    bursts.start(buckets, 2, 1, nullptr, nullptr);
    EXPECT_TRUE(bursts.any());
    EXPECT_EQ(bursts.take(1, vector_of({2, 1}), 32 << 10, 0), 1);
}

TEST(BurstsTest, RanksOfAHostDivideABucket) {
    std::array<RailLoad, kMaxLinks> loads{};
    std::array<RailRecord, 2 * kMaxLinks> records{};
    Bursts one;
    Bursts other;
    one.start(buckets_of({800, 10}), 2, 2, loads.data(), records.data());
    other.start(buckets_of({800, 10}), 2, 2, loads.data(), records.data());
    const PartitionVector vector = vector_of({80, 1});
    int taken = 0;
    while ((taken % 2 == 0 ? one : other).take(1, vector, 64 << 10, 0) == 0)
        ++taken;
    EXPECT_EQ(taken, 15);
}

/// What all of them may send at once to one host is what it receives at once.
TEST(BurstsTest, HostsDivideTheBucketOfAReceiver) {
    Bursts bursts;
    bursts.start(buckets_of({800, 10}), 4, 1, nullptr, nullptr);
    const PartitionVector vector = vector_of({80, 1});
    for (const int host : {1, 2, 3})
        for (int i = 0; i < 5; ++i)
            ASSERT_EQ(bursts.take(host, vector, 64 << 10, 0), 0) << "to host " << host << ", message " << i;
    EXPECT_EQ(bursts.take(1, vector, 64 << 10, 0), -1);
    // And what one sends at once is that of its own.
    Bursts many;
    many.start(buckets_of({800, 10}), 16, 1, nullptr, nullptr);
    for (int host = 1; host < 16; ++host)
        for (int i = 0; i < 2; ++i)
            ASSERT_EQ(many.take(host, vector, 32 << 10, 0), 0) << "to host " << host << ", message " << i;
    EXPECT_EQ(many.take(1, vector, 32 << 10, 0), -1);
}

constexpr double kTripNs = 20'000;

/// Messages that were timed: of `bytes` in `busy_ns`, which include the way of an empty one.
void saw(Bursts &bursts, int times, double bytes, double busy_ns, int64_t now) {
    for (int i = 0; i < times; ++i)
        bursts.took(0, static_cast<uint64_t>(bytes), static_cast<uint64_t>(busy_ns), kTripNs, now);
}

TEST(BurstsTest, RailsThatAreSlowDespiteFullBucketsAreNotBelievedForAWhile) {
    constexpr double kBytes = 64 << 10;
    const double slow = kTripNs + kBytes / (800 * kMbit);
    const PartitionVector vector = vector_of({80, 1});
    Bursts bursts;
    bursts.start(buckets_of({800, 10}), 2, 1, nullptr, nullptr);
    saw(bursts, 7, kBytes, slow, 0);
    EXPECT_EQ(bursts.take(1, vector, 64 << 10, 0), 0) << "receivers may have been late";
    saw(bursts, 1, kBytes, slow / 4, 0);
    saw(bursts, 7, kBytes, slow, 0);
    EXPECT_EQ(bursts.take(1, vector, 64 << 10, 0), 0) << "one was fast in between";
    saw(bursts, 1, kBytes, slow, 0);
    EXPECT_EQ(bursts.take(1, vector, 64 << 10, 999 * kMs), -1);
    EXPECT_EQ(bursts.take(1, vector, 64 << 10, 1000 * kMs), 0);
    saw(bursts, 8, kBytes, slow, 1000 * kMs);
    EXPECT_EQ(bursts.take(1, vector, 64 << 10, 2999 * kMs), -1) << "longer the second time";
    EXPECT_EQ(bursts.take(1, vector, 64 << 10, 3000 * kMs), 0);
    saw(bursts, 1, kBytes, slow / 4, 3000 * kMs);
    saw(bursts, 8, kBytes, slow, 3000 * kMs);
    EXPECT_EQ(bursts.take(1, vector, 64 << 10, 4000 * kMs), 0) << "as at first, since one was fast";
}

/// What one rank of eight sees of a rail is an eighth of its rate.
TEST(BurstsTest, RanksThatShareARailAreNotTakenForSlow) {
    constexpr double kBytes = 64 << 10;
    const PartitionVector vector = vector_of({80, 1});
    std::array<RailLoad, kMaxLinks> loads{};
    std::array<RailRecord, 2 * kMaxLinks> records{};
    Bursts bursts;
    bursts.start(buckets_of({800, 10}), 2, 8, loads.data(), records.data());
    saw(bursts, 8, kBytes, kTripNs + 4 * kBytes / (800 * kMbit), 0);
    EXPECT_EQ(bursts.take(1, vector, 64 << 10, 0), 0);
    saw(bursts, 8, kBytes, kTripNs + 8 * kBytes / (800 * kMbit), 0);
    EXPECT_EQ(bursts.take(1, vector, 64 << 10, 0), -1);
}

TEST(BurstsTest, WhatTakesLittleMoreThanATripShowsNothing) {
    constexpr double kBytes = 7 << 10;
    Bursts bursts;
    bursts.start(buckets_of({800, 10}), 2, 1, nullptr, nullptr);
    saw(bursts, 100, kBytes, 1e6, 0);
    EXPECT_GE(bursts.take(1, vector_of({80, 1}), 64 << 10, 0), 0) << "72 us are no four trips of 20";
    saw(bursts, 8, 2 * kBytes, 1e6, 0);
    EXPECT_EQ(bursts.take(1, vector_of({80, 1}), 64 << 10, 0), -1);
}

/// Long messages leave empty buckets behind, which are full again 10 ms after them: however long they were, and however
/// much faster than believed.
TEST(BurstsTest, BucketsAreFullAgainSoonAfterLongMessages) {
    Bursts bursts;
    bursts.start(buckets_of({800, 10}), 4, 1, nullptr, nullptr);
    const PartitionVector vector = vector_of({80, 1});
    constexpr size_t kBytes = 96 << 20;
    constexpr int64_t kLasts = 500 * kMs;  // at twice the rate that is believed
    for (int64_t now = 0; now < 10 * kLasts; now += kLasts)
        EXPECT_EQ(bursts.take(1, vector, kBytes, now), -1);
    const int64_t believed_end = 9 * kLasts + static_cast<int64_t>(vector.share(0) * kBytes / (800 * kMbit));
    EXPECT_LT(bursts.holds(1, 0, believed_end - 1), 10'000);
    EXPECT_NEAR(bursts.holds(1, 0, believed_end + 10 * kMs), 800 * kMbit * kBucketNs / 3, 20'000);
}

/// Whatever is sent when, what goes whole fits into what rails have saved up.
TEST(BurstsTest, WhatGoesWholeFitsIntoARealBucket) {
    for (unsigned seed = 0; seed < 200; ++seed) {
        std::mt19937 random(seed);
        const std::array<Bucket, kMaxLinks> buckets = buckets_of({800, 400, 200});
        std::array<double, 3> tokens{};
        for (int rail = 0; rail < 3; ++rail)
            tokens[rail] = buckets[rail].bytes;
        Bursts bursts;
        bursts.start(buckets, 2, 1, nullptr, nullptr);
        const PartitionVector vector = vector_of({4, 2, 1});
        int64_t now = 0;
        int whole = 0;
        for (int i = 0; i < 400; ++i) {
            // A message ends when the last rail has carried its part.
            double rest = 0;
            for (int rail = 0; rail < 3; ++rail)
                rest = std::max(rest, -tokens[rail] / buckets[rail].rate);
            const int64_t pause =
                static_cast<int64_t>(rest) + std::uniform_int_distribution<int64_t>(0, 8 * kMs)(random);
            now += pause;
            const auto bytes =
                std::uniform_int_distribution<size_t>(1, 1 << std::uniform_int_distribution(12, 21)(random))(random);
            for (int rail = 0; rail < 3; ++rail)
                tokens[rail] =
                    std::min(tokens[rail] + static_cast<double>(pause) * buckets[rail].rate, buckets[rail].bytes);
            const int link = bursts.take(1, vector, bytes, now);
            for (int rail = 0; rail < 3; ++rail)
                tokens[rail] -= static_cast<double>(bytes) * (link < 0 ? vector.share(rail) : rail == link ? 1 : 0);
            if (link >= 0) {
                ++whole;
                ASSERT_GE(tokens[link], -1000) << "seed " << seed << ", message " << i;
            }
        }
        EXPECT_GT(whole, 50);
    }
}

}  // namespace
}  // namespace flx
