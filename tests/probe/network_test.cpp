#include "probe/network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace flx::probe {
namespace {

namespace fs = std::filesystem;

TEST(NetworkOf, CutsTheHostPart) {
    EXPECT_EQ(network_of("10.77.1.9", 24), "10.77.1.0/24");
    EXPECT_EQ(network_of("10.77.1.9", 20), "10.77.0.0/20");
    EXPECT_EQ(network_of("10.77.1.9", 0), "0.0.0.0/0");
    EXPECT_EQ(network_of("10.77.1.9", 32), "10.77.1.9/32");
    EXPECT_EQ(network_of("fd00:1:2:3:4::5", 64), "fd00:1:2:3::/64");
    EXPECT_EQ(network_of("fd00::ffff", 121), "fd00::ff80/121");
    EXPECT_EQ(network_of("10.77.1.9", 33), "");
    EXPECT_EQ(network_of("eth0", 24), "");
}

TEST(NetworkDevices, LoopbackIsThere) {
    std::vector<NetworkDevice> devices;
    const Status status = network_devices(devices);
    ASSERT_TRUE(status.ok()) << status.sentence();
    const auto lo = std::find_if(devices.begin(), devices.end(), [](const auto &d) { return d.loopback; });
    ASSERT_NE(lo, devices.end());
    EXPECT_GT(lo->mtu, 1000);
    for (const NetworkDevice &device : devices) {
        EXPECT_EQ(device.up, device.state == "up");
        for (const Subnet &subnet : device.subnets)
            EXPECT_EQ(subnet.network, network_of(subnet.address, subnet.prefix));
        const auto lines = describe(device);
        ASSERT_EQ(lines.size(), 1u);
        EXPECT_EQ(lines[0].rfind(device.name, 0), 0u);
    }
}

class Infiniband : public testing::Test {
  protected:
    void SetUp() override {
        char name[] = "/tmp/flx_rdma_XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        root_ = name;
    }
    void TearDown() override { fs::remove_all(root_); }
    void write(const std::string &path, const std::string &text) const {
        fs::create_directories((root_ / path).parent_path());
        std::ofstream(root_ / path) << text << '\n';
    }
    fs::path root_;
};

TEST_F(Infiniband, PortsOfBothKinds) {
    write("mlx5_0/ports/1/state", "4: ACTIVE");
    write("mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)");
    write("mlx5_0/ports/1/link_layer", "InfiniBand");
    write("mlx5_0/ports/1/gids/0", "fe80:0000:0000:0001:9c63:00c0:0012:3456");
    write("mlx5_0/device/numa_node", "1");
    write("mlx5_1/ports/1/state", "1: DOWN");
    write("mlx5_10/ports/1/state", "4: ACTIVE");
    write("mlx5_10/ports/1/link_layer", "Ethernet");
    write("mlx5_10/ports/1/gid_attrs/ndevs/0", "eth7");
    write("mlx5_9/ports/README", "a file where none should be");

    NetworkDevice ethernet;
    ethernet.name = "eth7";
    ethernet.mtu = 9000;
    ethernet.subnets.push_back({"10.1.0.3", 16, "10.1.0.0/16"});
    std::vector<NetworkDevice> devices{ethernet};
    rdma_ports(root_.string(), devices);

    ASSERT_EQ(devices.size(), 5u);
    EXPECT_EQ(devices[1].name, "mlx5_0:1");
    EXPECT_TRUE(devices[1].rdma);
    EXPECT_TRUE(devices[1].up);
    EXPECT_EQ(devices[1].numa_node, 1);
    EXPECT_DOUBLE_EQ(devices[1].driver_mbit, 400000);
    ASSERT_EQ(devices[1].subnets.size(), 1u);
    EXPECT_EQ(devices[1].subnets[0].network, "fe80:0:0:1::/64");
    EXPECT_EQ(devices[2].name, "mlx5_1:1");
    EXPECT_FALSE(devices[2].up);
    EXPECT_EQ(devices[2].state, "DOWN");
    EXPECT_EQ(devices[3].name, "mlx5_9:README");
    EXPECT_FALSE(devices[3].up);
    EXPECT_EQ(devices[4].name, "mlx5_10:1");
    EXPECT_EQ(devices[4].mtu, 9000);
    ASSERT_EQ(devices[4].subnets.size(), 1u);
    EXPECT_EQ(devices[4].subnets[0].network, "10.1.0.0/16");
}

TEST_F(Infiniband, NoFolder) {
    std::vector<NetworkDevice> devices;
    rdma_ports((root_ / "none").string(), devices);
    EXPECT_TRUE(devices.empty());
}

}  // namespace
}  // namespace flx::probe
