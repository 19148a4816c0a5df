/// \file ways.h
/// Which way through shared memory serves which collective at which size. Plain data, equal on all ranks: from a rule,
/// or from a trial (runtime/shm/ways/trial.h) when a communicator is made, and from later looks
/// (runtime/shm/ways/review.h). The bits do not depend on it: all ways add in rank order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

#include "algorithms/schedule.h"

namespace flx::shm {

/// The ways, which are in files of runtime/shm/ways.
enum class Way : uint8_t {
    fused,     ///< fused.h
    streamed,  ///< stream.h
    fetched    ///< peer_memory.h
};
constexpr const char *name_of(Way way) {
    return way == Way::fused ? "fused" : way == Way::streamed ? "streamed" : "fetched";
}

/// Where many ranks would each read what all others show (runtime/shm/ways/fused.h), some of them can do it for all:
/// they reduce or gather a part each, and show that. One more wait, and far fewer cache lines go from core to core. The
/// bits are the same.
struct TwoSteps {
    static constexpr int kLeastRanks = 8;  ///< for which it is worth a trial
    static constexpr size_t kNever = SIZE_MAX;
    size_t allreduce = kNever;  ///< from so many bytes of one rank's input on
    size_t allgather = kNever;
    bool barrier = false;
    size_t bcast = kNever;  ///< in as many steps as the tree (runtime/shm/memory/tree.h) has hops
};

/// Whether data flows one way: then fused ranks need not wait for each other at all, and calls overlap.
constexpr bool one_way(algorithms::Collective collective) {
    return collective == algorithms::Collective::bcast || collective == algorithms::Collective::reduce;
}

/// Input of one rank, given the bytes of the whole vector.
constexpr size_t input_bytes(algorithms::Collective collective, size_t bytes, int ranks) {
    using enum algorithms::Collective;
    return collective == allgather || collective == gather ? bytes / static_cast<size_t>(ranks) : bytes;
}

class Ways {
  public:
    /// Bytes of the whole vector. A size takes what was best at the nearest of these.
    static constexpr std::array<size_t, 9> kSizes = {size_t{8} << 10,  size_t{16} << 10,  size_t{32} << 10,
                                                     size_t{64} << 10, size_t{256} << 10, size_t{1} << 20,
                                                     size_t{4} << 20,  size_t{16} << 20,  size_t{64} << 20};
    /// So many of them a trial is made with, the last of those only where many ranks share the host.
    static constexpr size_t kTried = kSizes.size() - 1;
    static constexpr std::array kAll = {Way::fused, Way::streamed, Way::fetched};

    /// Another way is taken where it needs at most this part of the time of the one that is.
    static constexpr double kClearly = 0.88;
    /// Nanoseconds per byte, by way, of the slowest rank.
    using Times = std::array<double, kAll.size()>;
    static constexpr double kUnknown = std::numeric_limits<double>::infinity();

    /// The rule. `fetches`: peer memory exists. It is expected to pay where ranks have a core each: those that take
    /// turns on a core (`crowded`) find in its cache what the last one left there. But of an alltoall all that would be
    /// copied twice. `crowded`: several ranks take turns on a core.
    explicit Ways(bool fetches = false, bool crowded = false);

    [[nodiscard]] Way at(algorithms::Collective collective, size_t bytes) const;
    void set(algorithms::Collective collective, size_t size_index, Way way);
    /// What was last measured.
    [[nodiscard]] const Times &times(algorithms::Collective collective, size_t size_index) const;
    void set_time(algorithms::Collective collective, size_t size_index, Way way, double time);

    /// The nearest of kSizes; none for those that are always fused.
    [[nodiscard]] static std::optional<size_t> size_index(size_t bytes);

    TwoSteps two_steps;  ///< of the fused way: where not tried, never

  private:
    /// Largest size that takes what was best at that index.
    [[nodiscard]] static size_t limit(size_t size_index);

    std::array<std::array<Way, kSizes.size()>, algorithms::kCollectives> ways_{};
    std::array<std::array<Times, kSizes.size()>, algorithms::kCollectives> times_;
};

}  // namespace flx::shm
