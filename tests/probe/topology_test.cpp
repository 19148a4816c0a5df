#include "probe/topology.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "probe/cpus.h"

namespace flx::probe {
namespace {

namespace fs = std::filesystem;

class Synthetic : public testing::Test {
  protected:
    static Topology read(const char *description) {
        setenv("HWLOC_SYNTHETIC", description, 1);
        Topology topology;
        const Status status = read_topology(topology);
        unsetenv("HWLOC_SYNTHETIC");
        EXPECT_TRUE(status.ok()) << status.sentence();
        return topology;
    }
};

TEST_F(Synthetic, TwoPackages) {
    const Topology topology =
        read("pack:2 numa:2 l3:1(size=16777216) core:4 l2:1(size=1048576) l1d:1(size=32768) pu:2");
    EXPECT_EQ(topology.packages, 2);
    EXPECT_EQ(topology.numa_nodes, 4);
    EXPECT_EQ(topology.cores, 16);
    EXPECT_EQ(topology.processing_units, 32);
    EXPECT_EQ(topology.l3_sharers, 8);
    EXPECT_EQ(topology.l1_bytes, 32u << 10);
    EXPECT_EQ(topology.l2_bytes, 1u << 20);
    EXPECT_EQ(topology.l3_bytes, 16u << 20);
    // A made-up machine does not change what this process may run on.
    EXPECT_EQ(topology.allowed_units, affinity_cpus());
}

TEST_F(Synthetic, NoSharedCache) {
    const Topology topology = read("numa:1 core:3 pu:1");
    EXPECT_EQ(topology.l3_bytes, 0u);
    EXPECT_EQ(topology.l3_sharers, 0);
    for (const std::string &line : describe(topology))
        EXPECT_EQ(line.find("caches"), std::string::npos) << line;
}

TEST_F(Synthetic, BadDescriptionIsNotThisMachine) {
    setenv("HWLOC_SYNTHETIC", "nonsense:1", 1);
    Topology topology;
    const Status status = read_topology(topology);
    unsetenv("HWLOC_SYNTHETIC");
    if (!status.ok()) {  // hwloc either refuses or falls back to the machine itself
        EXPECT_EQ(status.code(), FLX_ERR_SYSTEM);
    } else {
        EXPECT_EQ(topology.processing_units, sysconf(_SC_NPROCESSORS_ONLN));
    }
}

TEST(TopologyTest, ThisMachine) {
    Topology topology;
    ASSERT_TRUE(read_topology(topology).ok());
    EXPECT_GE(topology.processing_units, topology.cores);
    EXPECT_GE(topology.cores, 1);
    EXPECT_GE(topology.numa_nodes, 1);
    EXPECT_GT(topology.memory_bytes, 1u << 20);
    EXPECT_FALSE(topology.cpu_model.empty());
    const auto lines = describe(topology);
    ASSERT_GE(lines.size(), 4u);
    for (const std::string &line : lines)
        EXPECT_EQ(line.find('\n'), std::string::npos);
}

TEST(CpusTest, FollowsAffinity) {
    cpu_set_t before;
    ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
        if (CPU_ISSET(cpu, &before)) {
            CPU_SET(cpu, &one);
            break;
        }
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(affinity_cpus(), 1);
    const CpuMask mask = affinity_mask();
    for (int cpu = 0; cpu < static_cast<int>(64 * mask.size()); ++cpu)
        EXPECT_EQ((mask[static_cast<size_t>(cpu) / 64] >> (cpu % 64) & 1) != 0, CPU_ISSET(cpu, &one) != 0) << cpu;
    ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
    EXPECT_EQ(affinity_cpus(), CPU_COUNT(&before));
}

TEST(CpusTest, RanksBoundToCpusOfTheirOwnAreNotCrowded) {
    EXPECT_FALSE(crowded(2, {{0b01}, {0b10}}, 8));
    EXPECT_TRUE(crowded(2, {{0b01}, {0b01}}, 8));
    EXPECT_FALSE(crowded(128, std::vector<CpuMask>(128, CpuMask{~uint64_t{0}, ~uint64_t{0}}), 256));
    // Two halves of the ranks, each bound to a socket, the second one's CPUs in another word.
    std::vector<CpuMask> sockets(64, CpuMask{~uint64_t{0}});
    sockets.resize(128, CpuMask{0, ~uint64_t{0}});
    EXPECT_FALSE(crowded(128, sockets, 256));
    sockets.push_back(CpuMask{0, 1});
    EXPECT_TRUE(crowded(129, sockets, 256));
}

TEST(CpusTest, OthersRunWhereTheKnownOnesDo) {
    EXPECT_TRUE(crowded(4, {{0b11}, {0b11}}, 8));   // not bound: all four are on these two
    EXPECT_FALSE(crowded(4, {{0b01}, {0b10}}, 8));  // bound: the others are elsewhere
    EXPECT_FALSE(crowded(2, {{0b11}, {0b11}}, 8));
    EXPECT_FALSE(crowded(1, {{0b1}}, 8));
}

TEST(CpusTest, ALimitCrowdsBoundRanksToo) {
    EXPECT_TRUE(crowded(4, {{1}, {2}, {4}, {8}}, 3));
    EXPECT_TRUE(crowded(4, {{1}, {2}}, 3));
    EXPECT_FALSE(crowded(3, {{1}, {2}, {4}}, 3));
}

class Cgroup : public testing::Test {
  protected:
    void SetUp() override {
        char name[] = "/tmp/flx_cgroup_XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        root_ = name;
    }
    void TearDown() override { fs::remove_all(root_); }
    void write(const std::string &path, const std::string &text) const {
        fs::create_directories(fs::path(root_ + path).parent_path());
        std::ofstream(root_ + path) << text << '\n';
    }
    std::string root_;
};

TEST_F(Cgroup, Version2TakesTheLeastOfTheAncestors) {
    const std::string mounts = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
    write("/sys/fs/cgroup/job/cpu.max", "150000 100000");
    write("/sys/fs/cgroup/job/step/cpu.max", "max 100000");
    EXPECT_DOUBLE_EQ(cgroup_cpu_quota("0::/job/step\n", mounts, root_), 1.5);
    EXPECT_DOUBLE_EQ(cgroup_cpu_quota("0::/other\n", mounts, root_), 0);
}

TEST_F(Cgroup, Version1) {
    const std::string mounts =
        "31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:5 - cgroup cgroup rw,cpu,cpuacct\n"
        "32 24 0:28 / /sys/fs/cgroup/cpuset rw shared:6 - cgroup cgroup rw,cpuset\n";
    write("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "300000");
    write("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000");
    write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1");
    write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000");
    EXPECT_DOUBLE_EQ(cgroup_cpu_quota("4:cpu,cpuacct:/a\n3:cpuset:/a\n", mounts, root_), 3);
}

TEST_F(Cgroup, ContainerSeesItsGroupAtTheMountPoint) {
    const std::string mounts = "30 24 0:26 /docker/17 /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n";
    write("/sys/fs/cgroup/cpu.max", "50000 100000");
    EXPECT_DOUBLE_EQ(cgroup_cpu_quota("0::/docker/17\n", mounts, root_), 0.5);
}

TEST_F(Cgroup, RubbishIsNoQuota) {
    EXPECT_DOUBLE_EQ(cgroup_cpu_quota("rubbish\n:\n0::\n", "a b c\n - \n - cgroup2 x y\n", root_), 0);
}

}  // namespace
}  // namespace flx::probe
