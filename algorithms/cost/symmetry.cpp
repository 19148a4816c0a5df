#include "algorithms/cost/symmetry.h"

#include <algorithm>
#include <bit>

namespace flx::algorithms {
namespace {

bool alike(const Placement &placement) {
    return std::ranges::all_of(placement.ranks,
                               [&](const std::vector<int> &here) { return here.size() == placement.ranks[0].size(); });
}

bool goes_round(const Placement &placement) {
    for (int rank = 0; rank < placement.size(); ++rank)
        if (placement.host[static_cast<size_t>(rank)] != rank % placement.hosts())
            return false;
    return true;
}

}  // namespace

std::optional<Symmetry> Symmetry::find(const Algorithm &algorithm, Collective collective, const Placement &placement) {
    if (!alike(placement))
        return {};
    std::vector kinds = {Kind::hosts_turn};
    if (std::has_single_bit(static_cast<unsigned>(placement.hosts())))
        kinds.push_back(Kind::bits_of_hosts);
    if (goes_round(placement))
        kinds.push_back(Kind::ranks_turn);
    for (const Kind kind : kinds)
        if (const Symmetry symmetry(kind, placement); symmetry.holds(algorithm, collective))
            return symmetry;
    return {};
}

int Symmetry::moved(int rank, int host) const {
    const int hosts = placement_->hosts();
    const auto at = static_cast<size_t>(rank);
    switch (kind_) {
        case Kind::hosts_turn: {
            const auto to = static_cast<size_t>((placement_->host[at] + host) % hosts);
            return placement_->ranks[to][static_cast<size_t>(placement_->local[at])];
        }
        case Kind::bits_of_hosts: {
            const auto to = static_cast<size_t>(placement_->host[at] ^ host);
            return placement_->ranks[to][static_cast<size_t>(placement_->local[at])];
        }
        case Kind::ranks_turn:
            return (rank + host) % placement_->size();
    }
    return rank;
}

int Symmetry::moved_back(int rank, int host) const {
    switch (kind_) {
        case Kind::hosts_turn:
            return moved(rank, host == 0 ? 0 : placement_->hosts() - host);
        case Kind::bits_of_hosts:
            return moved(rank, host);
        case Kind::ranks_turn:
            return (rank - host + placement_->size()) % placement_->size();
    }
    return rank;
}

/// The next host, one far away and the last one are compared: in a tree or a chain they differ.
bool Symmetry::holds(const Algorithm &algorithm, Collective collective) const {
    const int hosts = placement_->hosts();
    const std::vector<int> &here = placement_->ranks[0];
    for (const int rank : {here.front(), here.back()}) {
        const Schedule own = algorithm.build({collective, rank, placement_->size(), 0, placement_});
        for (const int host : {1, hosts / 2, hosts - 1}) {
            const int other = moved(rank, host);
            if (!like(own, algorithm.build({collective, other, placement_->size(), 0, placement_}), host))
                return false;
        }
        if (here.size() == 1)
            break;
    }
    return true;
}

/// What a step depends on is not compared: leaders pass on blocks in the order of their numbers, while those come in
/// another order to each.
bool Symmetry::like(const Schedule &one, const Schedule &other, int host) const {
    if (one.steps.size() != other.steps.size() || one.blocks != other.blocks ||
        one.groups.size() != other.groups.size())
        return false;
    for (size_t i = 0; i < one.steps.size(); ++i) {
        const Step &step = one.steps[i];
        const Step &image = other.steps[i];
        if (step.kind != image.kind || step.phase != image.phase || (step.peer < 0) != (image.peer < 0))
            return false;
        if (step.peer >= 0 && moved(step.peer, host) != image.peer)
            return false;
    }
    for (size_t i = 0; i < one.groups.size(); ++i) {
        std::vector<int32_t> group = one.groups[i];
        std::vector<int32_t> image = other.groups[i];
        for (int32_t &rank : group)
            rank = moved(rank, host);
        std::ranges::sort(group);
        std::ranges::sort(image);
        if (group != image)
            return false;
    }
    return true;
}

}  // namespace flx::algorithms
