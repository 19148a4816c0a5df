#include "runtime/shares/partition.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace flx {
namespace {

uint64_t total(const PartitionVector &vector) {
    return std::accumulate(vector.weight.begin(), vector.weight.end(), uint64_t{0});
}

std::vector<double> random_shares(std::mt19937_64 &random) {
    std::vector<double> shares(std::uniform_int_distribution<int>(1, kMaxLinks)(random));
    std::uniform_real_distribution<double> exponent(-12, 12);
    std::bernoulli_distribution zero(0.25);
    for (double &share : shares)
        share = zero(random) ? 0 : std::pow(10.0, exponent(random) * zero(random));
    shares[random() % shares.size()] = 1;
    return shares;
}

TEST(MakePartition, SumsToWholeAndKeepsZeros) {
    std::mt19937_64 random(1);
    for (int round = 0; round < 20000; ++round) {
        const std::vector<double> shares = random_shares(random);
        const PartitionVector vector = make_partition(shares);
        const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
        ASSERT_EQ(vector.links, static_cast<int>(shares.size()));
        ASSERT_EQ(total(vector), PartitionVector::kWhole);
        for (size_t i = 0; i < shares.size(); ++i) {
            if (shares[i] == 0) {
                ASSERT_EQ(vector.weight[i], 0u);
            }
            // Largest remainder: within one unit of the exact value.
            ASSERT_NEAR(vector.weight[i], shares[i] / sum * PartitionVector::kWhole, 1.0);
        }
    }
}

TEST(MakePartition, LargestRemainderFirst) {
    // 65536/3 = 21845.33: one unit is left over, and all remainders are equal: the first link gets it.
    const PartitionVector vector = make_partition(std::vector<double>{1, 1, 1});
    EXPECT_EQ(vector.weight[0], 21846u);
    EXPECT_EQ(vector.weight[1], 21845u);
    EXPECT_EQ(vector.weight[2], 21845u);
    // Remainders .6, .4: the first is rounded up.
    const double whole = PartitionVector::kWhole;
    const PartitionVector two = make_partition(std::vector<double>{10.4, whole - 11, 0.6});
    EXPECT_EQ(two.weight[0], 10u);
    EXPECT_EQ(two.weight[2], 1u);
}

TEST(MakePartition, ExtremeScales) {
    const double huge = std::numeric_limits<double>::max();
    EXPECT_EQ(make_partition(std::vector<double>{huge, huge}).weight[0], PartitionVector::kWhole / 2);
    const double tiny = std::numeric_limits<double>::denorm_min();
    EXPECT_EQ(make_partition(std::vector<double>{tiny, tiny, 0, 0}).weight[1], PartitionVector::kWhole / 2);
    EXPECT_EQ(make_partition(std::vector<double>{0, std::nan(""), -1, 5}).weight[3], PartitionVector::kWhole);
    EXPECT_EQ(total(make_partition(std::vector<double>{0, 0})), 0u);
}

TEST(Cut, TilesAndStaysWithinOneCell) {
    std::mt19937_64 random(2);
    const uint32_t odd[] = {0, 1, 2, 3, 5, 17, 255, 256, 65535, 65536, 65537, 0xffffffffu};
    for (int round = 0; round < 20000; ++round) {
        const PartitionVector vector = make_partition(random_shares(random));
        const uint32_t cells =
            round % 2 ? odd[random() % std::size(odd)]
                      : static_cast<uint32_t>(random() >> std::uniform_int_distribution<int>(32, 63)(random));
        std::array<Slice, kMaxLinks> slices{};
        const int count = cut(vector, cells, slices);
        uint64_t next = 0;
        int last = -1;
        std::array<uint32_t, kMaxLinks> got{};
        for (int i = 0; i < count; ++i) {
            ASSERT_GT(slices[i].link, last);
            ASSERT_LT(slices[i].link, vector.links);
            ASSERT_GT(slices[i].count, 0u);
            ASSERT_EQ(slices[i].offset, next);
            next += slices[i].count;
            last = slices[i].link;
            got[last] = slices[i].count;
        }
        ASSERT_EQ(next, cells);
        for (int i = 0; i < vector.links; ++i) {
            // Exact in integers: |got·kWhole - weight·cells| < kWhole.
            const auto exact = static_cast<int64_t>(uint64_t{vector.weight[i]} * cells);
            const auto scaled = static_cast<int64_t>(uint64_t{got[i]} * PartitionVector::kWhole);
            ASSERT_LT(std::abs(scaled - exact), int64_t{PartitionVector::kWhole});
            if (vector.weight[i] == 0) {
                ASSERT_EQ(got[i], 0u);
            }
        }
    }
}

/// As operations follow each other: each by itself is too short for its shares.
TEST(PieceCutter, KeepsSharesFromOneBlockToTheNext) {
    const PartitionVector vector = make_partition(std::array{0.57, 0.29, 0.14});
    PieceCutter::Owed owed{};
    std::array<uint32_t, kMaxLinks> got{};
    constexpr uint32_t kBlocks = 100;
    constexpr uint32_t kCells = 3;
    std::array<Slice, kMaxLinks> slices{};
    for (uint32_t block = 0; block < kBlocks; ++block) {
        PieceCutter cutter(vector, owed);
        const int count = cutter.next(0, kCells, slices);
        for (int i = 0; i < count; ++i)
            got[slices[i].link] += slices[i].count;
        owed = cutter.owed();
    }
    for (int i = 0; i < vector.links; ++i)
        EXPECT_NEAR(got[i], vector.share(i) * kBlocks * kCells, 1) << i;
    // A link that has no share any more gets nothing of what it is owed.
    const PartitionVector without = make_partition(std::array{0.6, 0.4, 0.0});
    for (uint32_t cells = 1; cells < 10; ++cells) {
        PieceCutter cutter(without, owed);
        const int count = cutter.next(0, cells, slices);
        EXPECT_TRUE(std::none_of(slices.begin(), slices.begin() + count, [](const Slice &s) { return s.link == 2; }));
    }
}

TEST(PieceCutter, TilesAndKeepsSharesOverAllPieces) {
    std::mt19937_64 random(3);
    for (int round = 0; round < 2000; ++round) {
        const PartitionVector vector = make_partition(random_shares(random));
        PieceCutter cutter(vector);
        std::array<uint64_t, kMaxLinks> got{};
        uint32_t first = 0;
        for (int pieces = 0; pieces < 50; ++pieces) {
            const uint32_t cells = 1 + static_cast<uint32_t>(random() % (round % 2 == 0 ? 100 : 5));
            std::array<Slice, kMaxLinks> slices{};
            const int count = cutter.next(first, cells, slices);
            uint32_t next = first;
            for (int i = 0; i < count; ++i) {
                ASSERT_EQ(slices[i].offset, next);
                ASSERT_GT(slices[i].count, 0u);
                ASSERT_GT(vector.weight[slices[i].link], 0u);
                next += slices[i].count;
                got[slices[i].link] += slices[i].count;
            }
            first += cells;
            ASSERT_EQ(next, first);
            for (int i = 0; i < vector.links; ++i) {
                const auto exact = static_cast<int64_t>(uint64_t{vector.weight[i]} * first);
                ASSERT_LT(std::abs(static_cast<int64_t>(got[i] * PartitionVector::kWhole) - exact),
                          int64_t{PartitionVector::kWhole})
                    << "link " << i << " of " << vector.links << " after " << first << " cells";
            }
        }
    }
}

TEST(Cut, KnownCuts) {
    std::array<Slice, kMaxLinks> slices{};
    const PartitionVector vector = make_partition(std::vector<double>{0.5, 0, 0.25, 0.25});
    ASSERT_EQ(cut(vector, 8, slices), 3);
    EXPECT_EQ(slices[0], (Slice{0, 0, 4}));
    EXPECT_EQ(slices[1], (Slice{2, 4, 2}));
    EXPECT_EQ(slices[2], (Slice{3, 6, 2}));
    ASSERT_EQ(cut(vector, 1, slices), 1);
    EXPECT_EQ(slices[0], (Slice{0, 0, 1}));
    EXPECT_EQ(cut(vector, 0, slices), 0);
    EXPECT_EQ(cut(make_partition(std::vector<double>{0, 0}), 8, slices), 0);
}

class Parse : public testing::Test {
  protected:
    const std::vector<std::string> links_{"shm", "eth0", "mlx5_0:1"};
    PartitionVector vector_;
    std::string error(const std::string &text) {
        const Status status = parse_partition(text, links_, vector_);
        EXPECT_EQ(status.code(), FLX_ERR_CONFIG) << text;
        return status.sentence();
    }
};

TEST_F(Parse, Accepts) {
    ASSERT_TRUE(parse_partition("shm:.9,eth0:.1", links_, vector_).ok());
    EXPECT_EQ(vector_, make_partition(std::vector<double>{0.9, 0.1, 0}));
    ASSERT_TRUE(parse_partition(" mlx5_0:1:3 , shm : 1 ", links_, vector_).ok());
    EXPECT_EQ(vector_, make_partition(std::vector<double>{1, 0, 3}));
    ASSERT_TRUE(parse_partition("eth0:0,shm:1e3", links_, vector_).ok());
    EXPECT_EQ(vector_, make_partition(std::vector<double>{1, 0, 0}));
}

TEST_F(Parse, Refuses) {
    vector_ = make_partition(std::vector<double>{1, 2, 3});
    const PartitionVector before = vector_;
    EXPECT_NE(error("ib0:1").find("no link \"ib0\"; the links are shm, eth0, mlx5_0:1"), std::string::npos);
    EXPECT_NE(error("shm:1,shm:2").find("twice"), std::string::npos);
    EXPECT_NE(error("shm:0,eth0:0").find("more than 0"), std::string::npos);
    for (const char *share : {"shm:-1", "shm:inf", "shm:nan", "shm:1x", "shm:", "shm:1e999"})
        EXPECT_NE(error(share).find("not a number of 0 or more"), std::string::npos) << share;
    for (const char *item : {"", "shm", ":1", "shm:1,", ",shm:1"})
        EXPECT_NE(error(item).find("not name:share"), std::string::npos) << item;
    EXPECT_EQ(vector_, before);
}

TEST_F(Parse, Prints) {
    EXPECT_EQ(to_string(make_partition(std::vector<double>{9, 1, 0}), links_), "shm .90, eth0 .10");
    EXPECT_EQ(to_string(make_partition(std::vector<double>{1, 0, 0}), links_), "shm 1.00");
    EXPECT_EQ(to_string(make_partition(std::vector<double>{999, 0, 1}), links_), "shm 1.00, mlx5_0:1 .00101");
}

}  // namespace
}  // namespace flx
