/// Algorithms and links that a program forces: all give right results, and the bits depend on the algorithm alone.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "tests/mpi/reference.h"

namespace flx::test {
namespace {

/// Names as FLX_ALGORITHM has them: some of FLX's own, and where FLX_TEST_SCHEDULES names the folder that
/// make_schedules.py filled, schedules of files.
std::vector<std::string> algorithms_of(Collective collective) {
    std::vector<std::string> names = {"fused", "direct", "ring", "double_binary_tree", "recursive_doubling"};
    const char *folder = std::getenv("FLX_TEST_SCHEDULES");
    const std::array kEndings = {fmt::format("{}-{}.json", name_of(collective), world_size()),
                                 fmt::format("all_pairs-{}.xml", world_size())};
    const size_t endings = collective == Collective::allreduce ? 2 : 1;
    for (size_t ending = 0; folder != nullptr && ending < endings; ++ending)
        if (const std::string path = fmt::format("{}/{}", folder, kEndings[ending]); std::ifstream(path).is_open())
            names.push_back("file:" + path);
    return names;
}

bool of_file(const std::string &algorithm) {
    return algorithm.starts_with("file:");
}

/// Whether FLX says that `algorithm` serves `collective`; `comm` is set where it does.
bool make_forced(const std::string &algorithm, Collective collective, Settings settings, Comm &comm) {
    settings.algorithm = std::string(name_of(collective)) + ":" + algorithm;
    const flx_config_t config = settings.config();
    flx_comm_t made = nullptr;
    const flx_status_t status = flx_comm_create(MPI_COMM_WORLD, &config, &made);
    if (status != FLX_SUCCESS) {
        EXPECT_EQ(status, FLX_ERR_CONFIG) << flx_last_error();
        EXPECT_NE(std::strstr(flx_last_error(), "FLX_ALGORITHM"), nullptr) << flx_last_error();
        EXPECT_EQ(made, nullptr);
        return false;
    }
    comm = Comm(made);
    return true;
}

std::string random_partition(const std::vector<std::string> &links, Random &random) {
    std::string text;
    for (const std::string &link : links)
        text += (text.empty() ? "" : ",") + link + ":" + std::to_string(random.unit() + 0.001);
    return text;
}

uint64_t bytes_on(flx_comm_t comm, const std::string &link) {
    std::array<flx_link_stats_t, 16> stats{};
    size_t count = 0;
    EXPECT_TRUE(succeeded(flx_comm_link_stats(comm, stats.data(), sizeof stats[0], stats.size(), &count)));
    for (size_t i = 0; i < count; ++i)
        if (link == stats[i].name)
            return stats[i].bytes_sent;
    return 0;
}

TEST(Algorithms, EachServesWhatItSaysItServes) {
    int served = 0;
    for (int index = 0; index < kCollectives; ++index) {
        const auto collective = static_cast<Collective>(index);
        for (const std::string &algorithm : algorithms_of(collective)) {
            Comm comm;
            const bool made = make_forced(algorithm, collective, {}, comm);
            ASSERT_TRUE(everywhere(made) || everywhere(!made));
            ASSERT_TRUE(made || !of_file(algorithm)) << algorithm;
            if (!made)
                continue;
            ++served;
            const char *name = nullptr;
            ASSERT_TRUE(succeeded(flx_comm_algorithm(comm, name_of(collective), 1U << 16, FLX_F32, FLX_SUM, &name)));
            std::vector<std::string> all;
            const auto note = [](const char *one, double predicted_us, void *arg) {
                EXPECT_GE(predicted_us, 0);
                static_cast<std::vector<std::string> *>(arg)->emplace_back(one);
            };
            ASSERT_TRUE(succeeded(flx_comm_algorithms(comm, name_of(collective), 1U << 16, note, &all)));
            EXPECT_TRUE(std::ranges::find(all, name) != all.end()) << name;
            EXPECT_TRUE(algorithm == "fused" || world_size() == 1 || name == algorithm ||
                        (of_file(algorithm) && of_file(name)))
                << name;
            Random random(seed() + index);
            for (const size_t count : {1, 2, 5, 600, 4099, 33333, 400009}) {
                for (int repetition = 0; repetition < 3; ++repetition) {
                    Case c;
                    c.collective = collective;
                    c.count = count;
                    c.dtype = dtype_at(random.below(kDtypes));
                    c.op = fitting(static_cast<flx_op_t>(random.below(kOps)), c.dtype);
                    c.root = static_cast<int>(random.below(world_size()));
                    c.in_place = random.below(2) != 0;
                    c.shift = static_cast<int>(random.below(4));
                    c.data = random.below(2) != 0 ? Data::random : Data::exact;
                    c.seed = random.next();
                    Bytes result;
                    ASSERT_TRUE(check(c, comm, &result)) << algorithm;
                    EXPECT_TRUE(same_everywhere(c, result, MPI_COMM_WORLD)) << algorithm;
                }
            }
        }
    }
    EXPECT_GE(served, 10);
}

TEST(Links, EachAloneCarriesEverything) {
    if (world_size() == 1)
        GTEST_SKIP() << "skipped: one rank has no links";
    for (const std::string &link : complete_links()) {
        Settings settings;
        settings.links = link;
        const flx_config_t config = settings.config();
        const Comm comm = Comm::world(&config);
        ASSERT_TRUE(comm);
        for (int collective = 0; collective < kCollectives; ++collective) {
            for (const size_t count : {1, 3000, 250007}) {
                const Case c{static_cast<Collective>(collective),
                             FLX_F32,
                             FLX_SUM,
                             count,
                             world_size() - 1,
                             false,
                             0,
                             Data::random,
                             seed() + count};
                Bytes result;
                ASSERT_TRUE(check(c, comm, &result)) << "over " << link;
                EXPECT_TRUE(same_everywhere(c, result, MPI_COMM_WORLD)) << "over " << link;
            }
        }
        EXPECT_GT(bytes_on(comm, link), 0U);
        for (const std::string &other : common_links())
            EXPECT_TRUE(other == link || bytes_on(comm, other) == 0) << other << " was not allowed";
    }
}

/// A probe that found a rail fast within a host was disturbed: both go through the same memory.
TEST(Links, WithinAHostTcpIsOffUnlessItIsNamed) {
    if (world_size() == 1 || world_hosts() != 1)
        GTEST_SKIP() << "skipped: needs two ranks of one host";
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    std::array<flx_link_stats_t, 16> stats{};
    size_t count = 0;
    ASSERT_TRUE(succeeded(flx_comm_link_stats(comm, stats.data(), sizeof stats[0], stats.size(), &count)));
    if (!everywhere(count > 0 && stats[0].enabled != 0))
        GTEST_SKIP() << "skipped: no shared memory here";
    for (size_t i = 1; i < std::min(count, stats.size()); ++i) {
        EXPECT_EQ(stats[i].enabled, 0) << stats[i].name;
        EXPECT_STRNE(stats[i].why, "") << stats[i].name;
    }
}

/// Any vector over any links gives the bits that the first link alone gives.
TEST(Links, PartitionsDoNotChangeBits) {
    const std::vector<std::string> links = complete_links();
    if (world_size() == 1 || links.size() < 2)
        GTEST_SKIP() << "skipped: fewer than two links connect all ranks";
    constexpr std::array kReductions = {Collective::allreduce, Collective::reduce_scatter_block, Collective::reduce,
                                        Collective::allgather, Collective::bcast};
    Random random(seed());
    const int vectors = full() ? 20 : 3;
    for (const Collective collective : kReductions) {
        for (const std::string &algorithm : algorithms_of(collective)) {
            if (algorithm == "fused")
                continue;
            Settings settings;
            settings.links = links.front();
            Comm alone;
            if (!make_forced(algorithm, collective, settings, alone))
                continue;
            for (int vector = 0; vector < vectors; ++vector) {
                settings.links.clear();
                for (const std::string &link : links)
                    settings.links += (settings.links.empty() ? "" : ",") + link;
                settings.partition = random_partition(links, random);
                Comm spread;
                ASSERT_TRUE(make_forced(algorithm, collective, settings, spread));
                for (int call = 0; call < 6; ++call) {
                    Case c;
                    c.collective = collective;
                    c.count = std::array{1, 777, 20011, 70001, 150001, 300007}[call];
                    c.dtype = dtype_at(random.below(kDtypes));
                    c.op = fitting(static_cast<flx_op_t>(random.below(kOps)), c.dtype);
                    c.root = static_cast<int>(random.below(world_size()));
                    c.in_place = random.below(2) != 0;
                    c.data = Data::random;
                    c.seed = random.next();
                    if (!reduces(collective) || collective == Collective::reduce_scatter_block)
                        c.count = c.count / world_size() | 1;
                    Bytes expected;
                    Bytes got;
                    ASSERT_TRUE(check(c, alone, &expected)) << algorithm;
                    ASSERT_TRUE(check(c, spread, &got)) << algorithm << ", " << settings.partition;
                    EXPECT_TRUE(expected == got)
                        << to_string(c) << " by " << algorithm << ": other bits with " << settings.partition;
                }
                for (const std::string &link : links)
                    EXPECT_TRUE(collective != Collective::allreduce || bytes_on(spread, link) > 0)
                        << link << " carried nothing of " << settings.partition;
            }
        }
    }
}

/// A communicator keeps its settings when it is dupped or split, also where a part has fewer links.
TEST(Links, SettingsGoWithParts) {
    const std::vector<std::string> links = complete_links();
    if (world_size() == 1)
        GTEST_SKIP() << "skipped: one rank has no links";
    Settings settings;
    settings.links = links.back();
    settings.partition = links.back() + ":1";
    const flx_config_t config = settings.config();
    const Comm comm = Comm::world(&config);
    ASSERT_TRUE(comm);
    flx_comm_t dup = nullptr;
    ASSERT_TRUE(succeeded(flx_comm_dup(comm, &dup)));
    const Comm dupped(dup);
    const Case c{Collective::allreduce, FLX_INT32, FLX_SUM, 5000, 0, false, 0, Data::random, seed()};
    EXPECT_TRUE(check(c, dupped));
    if (world_size() > 2 && world_hosts() == 1) {
        flx_comm_t split = nullptr;
        ASSERT_TRUE(succeeded(flx_comm_split(comm, world_rank() == 0 ? 0 : 1, 0, &split)));
        const Comm part(split);
        EXPECT_TRUE(check(c, part));
    }
}

}  // namespace
}  // namespace flx::test
