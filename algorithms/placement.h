/// \file placement.h
/// Which ranks share a host, as algorithms see it. Plain data; any placement is legal: hosts may have different numbers
/// of ranks, and ranks may go round them.
#pragma once

#include <cstddef>
#include <vector>

namespace flx::algorithms {

/// Whether `ranks`, ascending and not empty, are all from the first to the last.
[[nodiscard]] bool follow_each_other(const std::vector<int> &ranks);

struct Placement {
    std::vector<int> host;                ///< by rank; hosts are numbered in the order of their lowest ranks
    std::vector<int> local;               ///< by rank: its index in its host's list
    std::vector<std::vector<int>> ranks;  ///< by host, ascending

    /// `host_of`: by rank, any numbers that are equal for ranks of one host.
    static Placement of(const std::vector<int> &host_of);
    /// All of `size` ranks on one host.
    static Placement one_host(int size);

    [[nodiscard]] int hosts() const { return static_cast<int>(ranks.size()); }
    [[nodiscard]] int size() const { return static_cast<int>(host.size()); }
    /// Ranks on the host that has most.
    [[nodiscard]] int most() const;
    /// Whether the ranks of each host follow each other, so that those of one host come after those of another.
    [[nodiscard]] bool in_order() const;
    [[nodiscard]] const std::vector<int> &on_host_of(int rank) const {
        return ranks[static_cast<size_t>(host[static_cast<size_t>(rank)])];
    }
    /// The rank that carries lane `lane` of a host between hosts. There are as many lanes as ranks on the host that has
    /// most; ranks of smaller hosts carry several.
    [[nodiscard]] int driver(int at, int lane) const {
        const std::vector<int> &here = ranks[static_cast<size_t>(at)];
        return here[static_cast<size_t>(lane) % here.size()];
    }
};

}  // namespace flx::algorithms
