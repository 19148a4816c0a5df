/// \file registry.h
/// The algorithms: id, name, what they serve, and how to build a schedule. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "algorithms/placement.h"
#include "algorithms/schedule.h"

namespace flx::algorithms {

/// What must agree on all ranks for their schedules to fit together.
struct Request {
    Collective collective = Collective::allreduce;
    int rank = 0;
    int size = 1;
    int root = 0;  ///< bcast, reduce, gather, scatter
    /// Which ranks share a host, for the algorithms that look at it; null: all do.
    const Placement *placement = nullptr;
};

/// Order and rounding points of a reduction: two algorithms of one class give the same bits for the same arguments.
enum class BitClass : uint8_t {
    none,        ///< moves data only
    rank_order,  ///< as if added in rank order, 16-bit floats rounded once
    ring,        ///< block b is added in ring order from its owner's successor, rounded at each step
    tree,
    doubling,
    chain,    ///< in rank order, rounded at each step
    halving,  ///< sums of ranks at distance n/2, n/4, … 1
    tiers,    ///< those of a host first, as the algorithm's inner tier adds them, then the hosts' sums
    own       ///< an order that only the schedule says (written.h): the same on all ranks, and no more is known of it
};

/// Whether an algorithm knows hosts, and who carries what between them (tiers.cpp).
enum class Family : uint8_t {
    flat,     ///< it does not know them
    leaders,  ///< one rank of each
    lanes     ///< all ranks of each, a part of the vector for every one
};

struct Written;

struct Algorithm {
    std::string_view name;         ///< as in FLX_ALGORITHM
    std::string_view description;  ///< one line
    std::string_view source;       ///< paper or text it comes from
    BitClass (*bits_of)(Collective collective);
    bool (*serves_size)(Collective collective, int size);
    Schedule (*build_for)(const Request &request);
    /// Of those that know hosts: what they do between them. Two that do the same there, and within hosts, add in the
    /// same order, whichever ranks carry what.
    const Algorithm *between_hosts = nullptr;
    Family family = Family::flat;
    /// Of one that is no function, but data (written.h): its schedules. The three functions above are null then.
    const Written *written = nullptr;

    [[nodiscard]] BitClass bits(Collective collective) const;
    [[nodiscard]] bool serves(Collective collective, int size) const;
    /// Requires serves(collective, size).
    [[nodiscard]] Schedule build(const Request &request) const;
};

/// All algorithms; the index is the id.
std::span<const Algorithm> all();
/// The schedule of a rank that does something with some ranks alone, `group`, in which it is one. Peers are the whole's
/// ranks; blocks are the group's. `root`: index in the group.
Schedule among(const Algorithm &algorithm, Collective collective, const std::vector<int> &group, int rank, int root);
/// The algorithm of that name; null if there is none.
const Algorithm *find(std::string_view name);
/// What tells algorithms apart that ranks may choose, alike on all of them: of those in all(), the index and one more.
uint64_t identity_of(const Algorithm &algorithm);

}  // namespace flx::algorithms
