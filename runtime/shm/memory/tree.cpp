#include "runtime/shm/memory/tree.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <utility>

namespace flx::shm {

namespace {

std::vector<int> each_alone(size_t ranks) {
    std::vector<int> group(ranks);
    std::iota(group.begin(), group.end(), 0);
    return group;
}

/// Takes one of each in turn until all are empty.
std::vector<int> in_turn(const std::vector<std::vector<int>> &lists) {
    std::vector<int> merged;
    bool more = true;
    for (size_t i = 0; more; ++i) {
        more = false;
        for (const std::vector<int> &list : lists) {
            if (i < list.size())
                merged.push_back(list[i]);
            more = more || i + 1 < list.size();
        }
    }
    return merged;
}

}  // namespace

Tree::Tree(int ranks) {
    add(std::vector<int>(ranks));
    add(each_alone(ranks));
    finish();
}

Tree::Tree(std::span<const probe::Place> places) {
    const size_t ranks = places.size();
    add(std::vector<int>(ranks));
    const bool known = std::ranges::all_of(places, [](const probe::Place &place) { return place.package >= 0; });
    if (known) {
        std::vector<int> package;
        // A process that moves between caches of its package is near to those that do, too.
        std::map<std::pair<int, int>, int> caches;
        std::vector<int> cache;
        for (const probe::Place &place : places) {
            package.push_back(place.package);
            const auto number = static_cast<int>(caches.size());
            cache.push_back(caches.try_emplace({place.package, place.cache}, number).first->second);
        }
        add(package);
        add(cache);
    }
    add(each_alone(ranks));
    finish();
}

void Tree::add(const std::vector<int> &group) {
    Depth depth;
    std::map<int, int> numbers;  // in order of each group's least rank
    for (size_t rank = 0; rank < group.size(); ++rank) {
        const auto [found, is_new] = numbers.try_emplace(group[rank], static_cast<int>(depth.first.size()));
        if (is_new)
            depth.first.push_back(static_cast<int>(rank));
        depth.group.push_back(found->second);
    }
    // What is the same as the one before, all in one that is, needs no level of its own.
    if (!depths_.empty() && depth.first.size() == depths_.back().first.size())
        return;
    depths_.push_back(std::move(depth));
}

void Tree::finish() {
    if (depths_.size() == 1)  // one rank
        depths_.push_back(depths_[0]);
    for (size_t at = 0; at < depths_.size(); ++at) {
        Depth &depth = depths_[at];
        depth.parts.assign(depth.first.size(), 0);
        if (at + 1 < depths_.size())
            for (const int first : depths_[at + 1].first)
                ++depth.parts[depth.group[first]];
    }
    const Depth &inner = depths_[depths_.size() - 2];
    nests_.resize(inner.first.size());
    for (size_t rank = 0; rank < inner.group.size(); ++rank)
        nests_[inner.group[rank]].push_back(static_cast<int>(rank));
    if (!shaped())
        return;
    // Each group, from the innermost outwards, takes a rank of each of its parts in turn.
    std::vector<std::vector<int>> lists = nests_;
    for (size_t at = depths_.size() - 2; at-- > 0;) {
        std::vector<std::vector<std::vector<int>>> inside(depths_[at].first.size());
        for (const std::vector<int> &list : lists)
            inside[depths_[at].group[list[0]]].push_back(list);
        lists.clear();
        for (const auto &parts : inside)
            lists.push_back(in_turn(parts));
    }
    spread_ = lists[0];
}

int Tree::leader(int depth, int rank, int root) const {
    const std::vector<int> &group = depths_[depth].group;
    return group[rank] == group[root] ? root : depths_[depth].first[group[rank]];
}

Tree::Arrival Tree::arrival(int rank, int root) const {
    if (rank == root)
        return {-1, root};
    int hop = 0;
    while (leader(hop + 1, rank, root) != rank)
        ++hop;
    return {hop, leader(hop, rank, root)};
}

bool Tree::hands_on(int hop, int rank, int root) const {
    return leader(hop, rank, root) == rank && depths_[hop].parts[depths_[hop].group[rank]] > 1;
}

int Tree::worker(int part, int parts) const {
    if (shaped())
        return spread_[part];
    return static_cast<int>(int64_t{part} * static_cast<int64_t>(depths_[0].group.size()) / parts);
}

}  // namespace flx::shm
