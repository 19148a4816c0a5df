/// \file rail_plan.h
/// Which network rails to open on this host, and which rails of two hosts belong together. Pure functions of the
/// devices of all hosts: every host that runs them on the same input comes to the same matching.
///
/// A rail's *identity* within a communicator is the network that it is on, with a number where a host has several
/// devices on one network; its name is only what the local host calls the device. So `r1` of one host and `eth2` of
/// another are the same rail where both are on 10.77.1.0/24.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "probe/network.h"
#include "runtime/base/status.h"

namespace flx::probe {

/// One host and its devices.
struct HostDevices {
    std::string host;  ///< the same for all ranks that share this host, and different from all others'
    int ranks = 1;     ///< of the communicator on this host
    std::vector<NetworkDevice> devices;
};

/// A rail to open on this host: the fields that ucx::RailSpec has, and whom it reaches.
struct RailCandidate {
    std::string name;      ///< as users see it: `eth0`, `mlx5_0:1`; `ucx-shm` for UCX's shared memory
    std::string tls;       ///< UCX transports: `tcp`; `rc,ud`; `posix,cma`
    std::string device;    ///< UCX's name of the device: `eth0`, `mlx5_0:1`, `memory`
    bool rma = false;      ///< the transports can put into remote memory
    std::string identity;  ///< equal on two hosts: one rail where `reaches` says so, else alike (each its loopback)
    int numa_node = -1;    ///< of the device; -1: unknown
    std::vector<bool> reaches;  ///< by host: some rank there (other than a lone rank here) can be reached
};

/// What to open, and what not and why.
struct RailPlan {
    std::vector<RailCandidate> rails;
    std::vector<std::pair<std::string, std::string>> left_off;  ///< (device, reason)
};

/// Plans the rails of host `self` (an index into `hosts`). `selection` is FLX_RAILS: empty for automatic choice, or
/// `tcp/eth0,rc+ud/mlx5_0:1,posix/memory` (transports joined by `+`, `/`, device), which overrides it: entries whose
/// device is not on this host, or cannot be used, are left off with a reason. At most `max_rails` rails are planned.
/// FLX_ERR_CONFIG: `selection` cannot be read; the sentence says what is allowed.
///
/// Automatic choice: every Ethernet, loopback and RDMA device that is up and has an address by which a peer can know
/// it. Two hosts are connected by a rail if both have a device of the same kind (TCP, RDMA) on the same IPv4 or IPv6
/// network; of a device with several addresses, the first IPv4 one counts, else the first IPv6 one, as UCX does. Within
/// one host any device serves. Loopback reaches this host only; a network on which two hosts have the same address
/// (`docker0`) is a private one of each.
Status plan_rails(std::span<const HostDevices> hosts, size_t self, const std::string &selection, size_t max_rails,
                  RailPlan &plan);

/// One host's devices as one line of text, for Bootstrap::allgather_text.
std::string to_text(const HostDevices &host);
/// And back. Any text is safe; FLX_ERR_SYSTEM with a sentence if it is not what to_text makes.
Status parse_host_devices(const std::string &text, HostDevices &host);

/// Groups what each rank said of its host: hosts in order of their lowest rank (whose devices count), with `ranks`
/// counted, and each rank's index into `hosts`.
void group_hosts(std::span<const HostDevices> by_rank, std::vector<HostDevices> &hosts, std::vector<int> &host_of_rank);

}  // namespace flx::probe
