/// \file network.h
/// The network devices of this host, from the system (getifaddrs, ioctl, sysfs), without any transport library.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace flx::probe {

/// One IPv4 or IPv6 network on a device.
struct Subnet {
    std::string address;  ///< this host's, text
    int prefix = 0;
    std::string network;  ///< `10.77.1.0/24`
};

struct NetworkDevice {
    std::string name;  ///< `eth0`, or `mlx5_0:1` for an RDMA port
    bool rdma = false;
    bool loopback = false;
    bool up = false;         ///< usable: switched on and with a carrier (RDMA: port active)
    std::string state;       ///< `up`, `down` (switched off), `no carrier`; RDMA: the port's state, e.g. `INIT`
    int mtu = 0;             ///< 0: unknown
    int numa_node = -1;      ///< -1: unknown
    double driver_mbit = 0;  ///< what the driver reports; shown, never used as a weight
    std::vector<Subnet> subnets;
};

/// All devices, in order of name (`eth2` before `eth10`). Devices that cannot be used are included; callers say why
/// they leave one off. Facts come from system calls where there is one, since in a network namespace /sys may still
/// show another namespace's devices. FLX_ERR_SYSTEM only where the system does not list its addresses at all.
Status network_devices(std::vector<NetworkDevice> &devices);

/// The RDMA ports below `root` (`/sys/class/infiniband`), appended to `devices`; `devices` gives RoCE ports the
/// networks of their Ethernet device. A missing folder or entry is no error.
void rdma_ports(const std::string &root, std::vector<NetworkDevice> &devices);

/// The network that `address` (numeric IPv4 or IPv6) with `prefix` bits belongs to, as `10.77.1.0/24`; empty if
/// `address` is none.
std::string network_of(const std::string &address, int prefix);

/// Describes the device for reports, a line each, e.g. `eth0    up          1500  10000 Mbit/s  numa 0  10.0.0.2/24`.
std::vector<std::string> describe(const NetworkDevice &device);

}  // namespace flx::probe
