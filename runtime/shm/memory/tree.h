/// \file tree.h
/// In which order data goes from rank to rank of a host: across packages once for each, then across the caches of a
/// package once for each, and last among ranks that share a cache. Plain data, equal on all ranks.
#pragma once

#include <span>
#include <vector>

#include "probe/places.h"

namespace flx::shm {

class Tree {
  public:
    /// A tree of one level: all ranks have what the root has in one hop.
    explicit Tree(int ranks);
    /// A tree from the places by rank. It is flat where a rank's place is not known.
    explicit Tree(std::span<const probe::Place> places);

    /// Whether there are levels.
    [[nodiscard]] bool shaped() const { return depths_.size() > 2; }
    /// Hops from any root to all ranks.
    [[nodiscard]] int hops() const { return static_cast<int>(depths_.size()) - 1; }

    struct Arrival {
        int hop;   ///< -1: the root itself
        int from;  ///< who hands it on
    };
    /// How `rank` gets what `root` has.
    [[nodiscard]] Arrival arrival(int rank, int root) const;
    /// Whether others get it from `rank` in that hop.
    [[nodiscard]] bool hands_on(int hop, int rank, int root) const;

    /// The rank that does part `part` of `parts`, at most one a rank: as far from each other as there are parts.
    [[nodiscard]] int worker(int part, int parts) const;
    /// Groups of ranks that share a cache, by rank within; flat: one of all.
    [[nodiscard]] const std::vector<std::vector<int>> &nests() const { return nests_; }
    [[nodiscard]] int nest_of(int rank) const { return depths_[depths_.size() - 2].group[rank]; }

  private:
    /// One cut of all ranks into groups, finer than the one before.
    struct Depth {
        std::vector<int> group;  ///< by rank
        std::vector<int> first;  ///< by group: its least rank
        std::vector<int> parts;  ///< by group: groups of the next depth in it
    };

    void add(const std::vector<int> &group);
    void finish();
    /// The leader of the group of `rank`: the root, if it is in there.
    [[nodiscard]] int leader(int depth, int rank, int root) const;

    std::vector<Depth> depths_;  ///< from all in one to each alone
    std::vector<std::vector<int>> nests_;
    std::vector<int> spread_;  ///< empty: flat
};

}  // namespace flx::shm
