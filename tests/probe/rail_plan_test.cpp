#include "probe/rail_plan.h"

#include <gtest/gtest.h>

#include "probe/loose_ends.h"

namespace flx::probe {
namespace {

NetworkDevice ethernet(const std::string &name, const std::string &address = "", int prefix = 24) {
    NetworkDevice device;
    device.name = name;
    device.up = true;
    device.state = "up";
    device.mtu = 1500;
    if (!address.empty())
        device.subnets.push_back({address, prefix, network_of(address, prefix)});
    return device;
}

NetworkDevice loopback() {
    NetworkDevice device = ethernet("lo", "127.0.0.1", 8);
    device.loopback = true;
    return device;
}

NetworkDevice broken(const std::string &name, const std::string &state, const std::string &address = "") {
    NetworkDevice device = ethernet(name, address);
    device.up = false;
    device.state = state;
    return device;
}

NetworkDevice rdma(const std::string &name, const std::string &address = "fe80::1") {
    NetworkDevice device = ethernet(name);
    device.rdma = true;
    device.subnets.push_back({address, 64, network_of(address, 64)});
    return device;
}

RailPlan plan_of(const std::vector<HostDevices> &hosts, size_t self, const std::string &selection = "",
                 size_t most = 15) {
    RailPlan plan;
    const Status status = plan_rails(hosts, self, selection, most, plan);
    EXPECT_TRUE(status.ok()) << status.sentence();
    return plan;
}

const RailCandidate *find(const RailPlan &plan, const std::string &name) {
    for (const RailCandidate &rail : plan.rails)
        if (rail.name == name)
            return &rail;
    return nullptr;
}

std::string reason(const RailPlan &plan, const std::string &name) {
    for (const auto &[device, why] : plan.left_off)
        if (device == name)
            return why;
    return "(not left off)";
}

using Reaches = std::vector<bool>;

TEST(RailPlan, NamesMayDifferBetweenHosts) {
    const std::vector<HostDevices> hosts{
        {"a", 2, {ethernet("r1", "10.77.1.1"), ethernet("r2", "10.77.2.1"), loopback()}},
        {"b", 2, {ethernet("eth1", "10.77.2.2"), ethernet("eth2", "10.77.1.2"), loopback()}}};
    const RailPlan a = plan_of(hosts, 0);
    const RailPlan b = plan_of(hosts, 1);
    ASSERT_EQ(a.rails.size(), 3u);
    ASSERT_EQ(b.rails.size(), 3u);
    EXPECT_EQ(find(a, "r1")->identity, find(b, "eth2")->identity);
    EXPECT_EQ(find(a, "r2")->identity, find(b, "eth1")->identity);
    EXPECT_NE(find(a, "r1")->identity, find(a, "r2")->identity);
    EXPECT_EQ(find(a, "r1")->reaches, (Reaches{true, true}));
    EXPECT_EQ(find(a, "r1")->tls, "tcp");
    EXPECT_FALSE(find(a, "r1")->rma);
    // 127.0.0.1 of another host is not reachable although its network has the same name.
    EXPECT_EQ(find(a, "lo")->reaches, (Reaches{true, false}));
    EXPECT_EQ(find(b, "lo")->reaches, (Reaches{false, true}));
    // One slot serves each host's own.
    EXPECT_EQ(find(a, "lo")->identity, find(b, "lo")->identity);
}

TEST(RailPlan, RailThatOnlySomePairsShare) {
    const std::vector<HostDevices> hosts{
        {"a", 1, {ethernet("e0", "10.0.0.1"), ethernet("e1", "10.0.1.1"), ethernet("e2", "10.0.2.1")}},
        {"b", 1, {ethernet("e0", "10.0.0.2"), ethernet("e1", "10.0.1.2")}},
        {"c", 1, {ethernet("e0", "10.0.0.3"), ethernet("e9", "10.0.9.3")}}};
    const RailPlan a = plan_of(hosts, 0);
    ASSERT_EQ(a.rails.size(), 2u);
    EXPECT_EQ(find(a, "e0")->reaches, (Reaches{false, true, true}));
    EXPECT_EQ(find(a, "e1")->reaches, (Reaches{false, true, false}));
    EXPECT_EQ(reason(a, "e2"), "no other host is on its network (tcp 10.0.2.0/24)");
    const RailPlan c = plan_of(hosts, 2);
    ASSERT_EQ(c.rails.size(), 1u);
    EXPECT_EQ(find(c, "e0")->reaches, (Reaches{true, true, false}));
}

TEST(RailPlan, SeveralDevicesOnOneNetworkPairUpInOrder) {
    const std::vector<HostDevices> hosts{
        {"a", 1, {ethernet("e0", "10.0.0.1"), ethernet("e1", "10.0.0.2"), ethernet("e2", "10.0.0.3")}},
        {"b", 1, {ethernet("x", "10.0.0.7"), ethernet("y", "10.0.0.8")}}};
    const RailPlan a = plan_of(hosts, 0);
    const RailPlan b = plan_of(hosts, 1);
    ASSERT_EQ(a.rails.size(), 2u);
    EXPECT_EQ(find(a, "e0")->identity, find(b, "x")->identity);
    EXPECT_EQ(find(a, "e1")->identity, find(b, "y")->identity);
    EXPECT_NE(find(a, "e0")->identity, find(a, "e1")->identity);
    EXPECT_NE(reason(a, "e2"), "(not left off)");
}

TEST(RailPlan, UnusableDevicesSayWhy) {
    const std::vector<HostDevices> hosts{{"a",
                                          2,
                                          {broken("docker0", "no carrier", "172.17.0.1"), broken("eth1", "down"),
                                           ethernet("eth2"), ethernet("eth3", "fe80::1", 64), loopback()}}};
    const RailPlan plan = plan_of(hosts, 0);
    ASSERT_EQ(plan.rails.size(), 1u);
    EXPECT_EQ(plan.rails[0].name, "lo");
    EXPECT_EQ(reason(plan, "docker0"), "no carrier");
    EXPECT_EQ(reason(plan, "eth1"), "down");
    EXPECT_EQ(reason(plan, "eth2"), "no address");
    EXPECT_EQ(reason(plan, "eth3"), "only link-local addresses");
}

TEST(RailPlan, PrivateNetworksOfTheSameNameDoNotConnect) {
    const std::vector<HostDevices> hosts{{"a", 1, {ethernet("docker0", "172.17.0.1", 16), ethernet("e0", "10.0.0.1")}},
                                         {"b", 1, {ethernet("docker0", "172.17.0.1", 16), ethernet("e0", "10.0.0.2")}}};
    const RailPlan plan = plan_of(hosts, 0);
    ASSERT_EQ(plan.rails.size(), 1u);
    EXPECT_EQ(plan.rails[0].name, "e0");
    EXPECT_NE(reason(plan, "docker0").find("172.17.0.1"), std::string::npos);
}

TEST(RailPlan, OneHost) {
    const NetworkDevice eth0 = ethernet("eth0", "192.0.2.2");
    const RailPlan two = plan_of({{"a", 2, {eth0, loopback()}}}, 0);
    ASSERT_EQ(two.rails.size(), 2u);  // an Ethernet device serves between ranks of one host as well
    EXPECT_EQ(two.rails[0].reaches, (Reaches{true}));
    const RailPlan one = plan_of({{"a", 1, {eth0, loopback()}}}, 0);
    EXPECT_TRUE(one.rails.empty());
    EXPECT_EQ(reason(one, "eth0"), "no other rank on this host");
}

TEST(RailPlan, KindsDoNotMix) {
    NetworkDevice roce = rdma("mlx5_0:1");
    roce.subnets = {{"10.0.0.1", 24, "10.0.0.0/24"}};
    const std::vector<HostDevices> hosts{{"a", 1, {ethernet("e0", "10.0.0.1"), roce}},
                                         {"b", 1, {ethernet("e0", "10.0.0.2")}}};
    const RailPlan plan = plan_of(hosts, 0);
    ASSERT_EQ(plan.rails.size(), 1u);
    EXPECT_EQ(plan.rails[0].name, "e0");
    EXPECT_NE(reason(plan, "mlx5_0:1"), "(not left off)");
}

TEST(RailPlan, RdmaPortsPairUpInOrderAndUsePut) {
    const std::vector<HostDevices> hosts{{"a", 8, {rdma("mlx5_0:1", "fe80::1"), rdma("mlx5_1:1", "fe80::2")}},
                                         {"b", 8, {rdma("mlx5_2:1", "fe80::11"), rdma("mlx5_3:1", "fe80::12")}}};
    const RailPlan a = plan_of(hosts, 0);
    const RailPlan b = plan_of(hosts, 1);
    ASSERT_EQ(a.rails.size(), 2u);
    EXPECT_TRUE(a.rails[0].rma);
    EXPECT_EQ(a.rails[0].tls, "rc,ud");
    EXPECT_EQ(a.rails[1].identity, b.rails[1].identity);
    EXPECT_NE(a.rails[0].identity, b.rails[1].identity);
}

TEST(RailPlan, FirstIpv4AddressCounts) {
    NetworkDevice mixed = ethernet("e0", "fd00::1", 64);
    mixed.subnets.push_back({"10.9.9.9", 32, "10.9.9.9/32"});
    mixed.subnets.push_back({"10.0.0.1", 24, "10.0.0.0/24"});
    const std::vector<HostDevices> hosts{{"a", 1, {mixed}}, {"b", 1, {ethernet("e0", "10.0.0.2")}}};
    ASSERT_EQ(plan_of(hosts, 0).rails.size(), 1u);
    const std::vector<HostDevices> six{{"a", 1, {ethernet("e0", "fd00::1", 64)}},
                                       {"b", 1, {ethernet("e5", "fd00::2", 64)}}};
    ASSERT_EQ(plan_of(six, 0).rails.size(), 1u);
}

TEST(RailPlan, AddressesWithoutNetworkAreRouted) {
    const std::vector<HostDevices> hosts{{"a", 1, {ethernet("e0", "10.128.0.4", 32)}},
                                         {"b", 1, {ethernet("e0", "10.128.0.5", 32)}}};
    const RailPlan plan = plan_of(hosts, 0);
    ASSERT_EQ(plan.rails.size(), 1u);
    EXPECT_EQ(plan.rails[0].reaches, (Reaches{false, true}));
}

TEST(RailPlan, SelectionOverrides) {
    const std::vector<HostDevices> hosts{
        {"a", 2, {ethernet("eth0", "10.0.0.1"), ethernet("eth1", "10.0.1.1"), broken("eth2", "no carrier")}},
        {"b", 2, {ethernet("eth0", "10.0.0.2"), ethernet("eth1", "10.0.1.2")}}};
    const RailPlan plan = plan_of(hosts, 0, "tcp/eth0, posix+cma/memory,tcp/eth7,tcp/eth2,sysv/memory");
    ASSERT_EQ(plan.rails.size(), 3u);
    EXPECT_EQ(plan.rails[0].name, "eth0");
    EXPECT_EQ(plan.rails[0].reaches, (Reaches{true, true}));
    EXPECT_EQ(plan.rails[1].name, "ucx-shm");
    EXPECT_EQ(plan.rails[1].tls, "posix,cma");
    EXPECT_EQ(plan.rails[1].device, "memory");
    EXPECT_TRUE(plan.rails[1].rma);
    EXPECT_EQ(plan.rails[1].reaches, (Reaches{true, false}));
    EXPECT_EQ(plan.rails[2].name, "ucx-shm#2");
    EXPECT_EQ(reason(plan, "eth7"), "no such device on this host");
    EXPECT_EQ(reason(plan, "eth2"), "no carrier");
    EXPECT_EQ(find(plan, "eth1"), nullptr);
}

TEST(RailPlan, BadSelection) {
    const std::vector<HostDevices> hosts{{"a", 2, {loopback()}}};
    RailPlan plan;
    for (const char *text : {"eth0", "tcp/", "/eth0", "tcp/lo,,tcp/eth0", ",", "tcp/lo,tcp/lo"}) {
        const Status status = plan_rails(hosts, 0, text, 15, plan);
        EXPECT_EQ(status.code(), FLX_ERR_CONFIG) << text;
        EXPECT_NE(status.sentence().find("FLX_RAILS"), std::string::npos);
    }
    EXPECT_EQ(plan_rails(hosts, 1, "", 15, plan).fault(), Fault::wrong_inside);
}

TEST(RailPlan, NoMoreThanAllowed) {
    HostDevices a{"a", 1, {}};
    HostDevices b{"b", 1, {}};
    for (int i = 0; i < 20; ++i) {
        a.devices.push_back(ethernet(fmt::format("e{}", i), fmt::format("10.0.{}.1", i)));
        b.devices.push_back(ethernet(fmt::format("e{}", i), fmt::format("10.0.{}.2", i)));
    }
    const RailPlan plan = plan_of({a, b}, 1, "", 15);
    EXPECT_EQ(plan.rails.size(), 15u);
    EXPECT_EQ(plan.left_off.size(), 5u);
    EXPECT_EQ(reason(plan, "e19"), "more than 15 rails");
}

TEST(RailPlanText, ComesBackAsItWas) {
    HostDevices host{"node \"1\"\n", 3, {ethernet("e0", "10.0.0.1"), rdma("mlx5_0:1"), broken("d", "no carrier")}};
    host.devices[0].numa_node = 1;
    host.devices[0].driver_mbit = 25000;
    HostDevices back;
    const Status status = parse_host_devices(to_text(host), back);
    ASSERT_TRUE(status.ok()) << status.sentence();
    EXPECT_EQ(to_text(back), to_text(host));
    EXPECT_EQ(back.host, host.host);
    ASSERT_EQ(back.devices.size(), 3u);
    EXPECT_EQ(back.devices[0].subnets[0].network, "10.0.0.0/24");
    EXPECT_EQ(back.devices[0].numa_node, 1);
    EXPECT_TRUE(back.devices[1].rdma);
    EXPECT_EQ(back.devices[2].state, "no carrier");
    EXPECT_EQ(to_text(host).find('\n'), std::string::npos);
}

TEST(RailPlanText, RubbishIsRefused) {
    const std::string good = to_text({"h", 1, {ethernet("e0", "10.0.0.1")}});
    HostDevices host;
    for (size_t cut = 0; cut < good.size(); ++cut)
        EXPECT_EQ(parse_host_devices(good.substr(0, cut), host).fault(), Fault::not_readable) << cut;
    for (const char *text : {"[]", "null", "7", R"({"host":1})", R"({"host":"a","ranks":1,"devices":[7]})", "\xff"})
        EXPECT_EQ(parse_host_devices(text, host).fault(), Fault::not_readable) << text;
    const std::string odd_name = to_text({"\xff\xfe", 1, {}});
    EXPECT_TRUE(parse_host_devices(odd_name, host).ok());
}

TEST(GroupHosts, InOrderOfLowestRank) {
    const std::vector<HostDevices> ranks{{"b", 1, {loopback()}}, {"a", 1, {}}, {"b", 1, {}}, {"b", 1, {}}};
    std::vector<HostDevices> hosts;
    std::vector<int> host_of_rank;
    group_hosts(ranks, hosts, host_of_rank);
    ASSERT_EQ(hosts.size(), 2u);
    EXPECT_EQ(hosts[0].host, "b");
    EXPECT_EQ(hosts[0].ranks, 3);
    EXPECT_EQ(hosts[0].devices.size(), 1u);
    EXPECT_EQ(hosts[1].ranks, 1);
    EXPECT_EQ(host_of_rank, (std::vector<int>{0, 1, 0, 0}));
}

/// Ends of three hosts, `reached` by what `way` says.
struct Ends {
    std::vector<OfferedEnd> list;
    Reached reached;

    template <typename Way>
    Ends(std::vector<OfferedEnd> ends, Way &&way)
        : list(std::move(ends)), reached(list.size(), std::vector<bool>(list.size())) {
        for (size_t a = 0; a < list.size(); ++a)
            for (size_t b = 0; b < list.size(); ++b)
                reached[a][b] = list[a].host != list[b].host && way(list[a], list[b]);
    }
};

TEST(RailPlan, NetworksThatRoutersJoinAreOneRail) {
    // A network a host, and one that two of them share.
    const std::vector<HostDevices> hosts{
        {"a", 1, {ethernet("eth0", "10.1.1.2"), ethernet("eth1", "10.2.0.1")}},
        {"b", 1, {ethernet("eth0", "10.1.2.2"), ethernet("eth1", "10.2.0.2")}},
        {"c", 1, {ethernet("eth0", "10.1.3.2"), ethernet("docker0", "172.17.0.1", 16)}}};
    std::vector<OfferedEnd> ends;
    std::vector<RailPlan> plans;
    for (size_t host = 0; host < hosts.size(); ++host) {
        plans.push_back(plan_of(hosts, host));
        for (const LooseEnd &end : loose_ends(hosts, host, ""))
            ends.push_back({host, end.rail.name, end.rail.identity, end.address, 1});
    }
    ASSERT_EQ(ends.size(), 6u);
    const Ends all(ends, [](const OfferedEnd &a, const OfferedEnd &b) { return a.name == "eth0" && b.name == "eth0"; });
    const std::vector<std::string> why(ends.size(), "no route by it to 10.1.1.2");
    for (size_t host = 0; host < hosts.size(); ++host)
        join_rails(host, loose_ends(hosts, host, ""), all.list, all.reached, why, 15, plans[host]);
    for (const RailPlan &plan : plans) {
        ASSERT_NE(find(plan, "eth0"), nullptr);
        EXPECT_EQ(find(plan, "eth0")->identity, "tcp 10.1.1.0/24");
        EXPECT_EQ(reason(plan, "eth0"), "(not left off)");
    }
    EXPECT_EQ(find(plans[0], "eth0")->reaches, (Reaches{false, true, true}));
    EXPECT_EQ(find(plans[2], "eth0")->reaches, (Reaches{true, true, false}));
    EXPECT_EQ(find(plans[0], "eth1")->reaches, (Reaches{false, true, false})) << "as it was";
    EXPECT_EQ(reason(plans[2], "docker0"),
              "no other host is on its network (tcp 172.17.0.0/16); no route by it to 10.1.1.2");
}

TEST(RailPlan, HostsOfOneNetworkAreNoLooseEnds) {
    const std::vector<HostDevices> hosts{
        {"a", 2, {ethernet("e0", "10.0.0.1"), ethernet("e1", "10.0.1.1"), loopback()}},
        {"b", 2, {ethernet("e0", "10.0.0.2"), ethernet("e1", "10.0.1.2"), loopback()}}};
    EXPECT_TRUE(loose_ends(hosts, 0, "").empty());
    EXPECT_TRUE(loose_ends(std::span(hosts).first(1), 0, "").empty());
    // A bridge that every host has for itself, with one address.
    const NetworkDevice bridge = ethernet("docker0", "172.17.0.1", 16);
    const std::vector<HostDevices> bridged{{"a", 1, {ethernet("e0", "10.0.0.1"), bridge}},
                                           {"b", 1, {ethernet("e0", "10.0.0.2"), bridge}}};
    EXPECT_TRUE(loose_ends(bridged, 0, "").empty());
}

TEST(RailPlan, OfSeveralWaysTheEqualNameIsTaken) {
    // Every end reaches every other one: still a host has one end on a rail.
    const Ends all({{0, "e0", "n00", "1", 1},
                    {0, "e1", "n01", "2", 1},
                    {1, "e1", "n11", "3", 1},
                    {1, "e0", "n10", "4", 1},
                    {2, "e1", "n21", "5", 1}},
                   [](const OfferedEnd &, const OfferedEnd &) { return true; });
    EXPECT_EQ(join_ends(all.list, all.reached), (std::vector<std::string>{"n00", "n01", "n01", "n00", "n01"}));
}

TEST(RailPlan, OneWayIsNoRail) {
    const Ends all({{0, "e0", "n0", "1", 1}, {1, "e0", "n1", "2", 1}},
                   [](const OfferedEnd &a, const OfferedEnd &) { return a.host == 0; });
    EXPECT_EQ(join_ends(all.list, all.reached), (std::vector<std::string>{"n0", "n1"}));
}

TEST(RailPlan, AHostFurtherAwayJoinsThoseOfOneNetwork) {
    const std::vector<HostDevices> hosts{{"a", 1, {ethernet("eth0", "10.1.1.2")}},
                                         {"b", 1, {ethernet("eth0", "10.1.1.3")}},
                                         {"c", 1, {ethernet("net", "10.1.2.2")}}};
    std::vector<OfferedEnd> ends;
    std::vector<RailPlan> plans;
    for (size_t host = 0; host < hosts.size(); ++host) {
        plans.push_back(plan_of(hosts, host));
        for (const LooseEnd &end : loose_ends(hosts, host, ""))
            ends.push_back({host, end.rail.name, end.rail.identity, end.address, 1});
    }
    // The router knows b only.
    const Ends all(ends, [](const OfferedEnd &a, const OfferedEnd &b) { return a.host + b.host == 3; });
    for (size_t host = 0; host < hosts.size(); ++host)
        join_rails(host, loose_ends(hosts, host, ""), all.list, all.reached, std::vector<std::string>(ends.size()), 15,
                   plans[host]);
    EXPECT_EQ(find(plans[0], "eth0")->reaches, (Reaches{false, true, false}));
    EXPECT_EQ(find(plans[1], "eth0")->reaches, (Reaches{true, false, true}));
    EXPECT_EQ(find(plans[2], "net")->reaches, (Reaches{false, true, false}));
    EXPECT_EQ(find(plans[2], "net")->identity, find(plans[0], "eth0")->identity);
}

}  // namespace
}  // namespace flx::probe
