/// \file slot.h
/// The links of a communicator as one rank has them, and what probing found of each.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/link/link.h"

namespace flx {

/// What probing found of a link.
struct LinkMeasured {
    bool done = false;
    bool answered = false;             ///< also where its rate was not found
    double latency_ns = 0;             ///< one way
    double bytes_per_ns = 0;           ///< alone
    double together_bytes_per_ns = 0;  ///< while all links were loaded
    double burst_bytes_per_ns = 0;     ///< of a short message, when it has rested; 0: not measured
    double send_ns = 0;                ///< of the sender's work for an empty chunk, at least
    double small_ns = 0;               ///< a small chunk's time, equal on all ranks; 0: not measured
    double host_bytes_per_ns = 0;      ///< what all ranks of this host that loaded it at once got of it together
};

/// One link of a communicator. The index is the same on all ranks; a rank that does not have the link has a null one.
struct LinkSlot {
    std::string name;            ///< as this rank's host calls it
    std::string identity;        ///< equal on all ranks
    std::unique_ptr<Link> link;  ///< null: not on this rank
    std::string why_off;         ///< not empty: no share for it, and why
    bool is_tcp = false;         ///< within a host it goes through the host's memory, by the kernel
    LinkMeasured near;           ///< towards ranks of the same host
    LinkMeasured far;            ///< towards ranks of other hosts
    uint64_t bytes_before = 0;   ///< that probing put on it
    uint64_t chunks_before = 0;

    [[nodiscard]] bool is_rail() const { return link != nullptr && link->kind() == LinkKind::rail; }
};

/// The links of a communicator, by index.
using LinkSlots = std::vector<LinkSlot>;

inline std::vector<std::string> names_of(const LinkSlots &links) {
    std::vector<std::string> names;
    names.reserve(links.size());
    for (const LinkSlot &slot : links)
        names.push_back(slot.name);
    return names;
}

}  // namespace flx
