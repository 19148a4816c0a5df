/// \file layout.h
/// Which ranks a communicator has, and which of them share a host. Plain data, agreed when the communicator is made.
/// Any placement is legal: hosts may have different numbers of ranks, and ranks may go round them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace flx {

/// What is known of one rank.
struct Member {
    uint64_t uid = 0;
    int pid = 0;
    int host = 0;     ///< index of the memory host, in order of its lowest rank
    int local = 0;    ///< index among the ranks of that host
    int process = 0;  ///< index for rails
    std::string hostname;
    std::vector<uint64_t> cpus;  ///< its affinity, a bit for each processor
};

struct Layout {
    int rank = 0;
    int size = 1;
    int hosts = 1;
    int host = 0;           ///< this rank's
    int here = 1;           ///< ranks on it
    int most_per_host = 1;  ///< ranks on the host that has most
    std::vector<Member> members;
    std::vector<int> names;  ///< what the program calls ranks; empty: by their numbers

    [[nodiscard]] const Member &own() const { return members[static_cast<size_t>(rank)]; }
    /// Whether `peer` is on this rank's host.
    [[nodiscard]] bool near(int peer) const { return members[static_cast<size_t>(peer)].host == host; }
    [[nodiscard]] int host_of(int peer) const { return members[static_cast<size_t>(peer)].host; }
    [[nodiscard]] int name(int peer) const { return names.empty() ? peer : names[static_cast<size_t>(peer)]; }
    /// The rank as sentences name it: number, process and host.
    [[nodiscard]] std::string describe(int peer) const;
};

}  // namespace flx
