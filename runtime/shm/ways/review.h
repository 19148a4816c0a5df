/// \file review.h
/// Looks again at which way through shared memory serves a collective, with calls of the program itself: which is best
/// depends on caches, on cores that are near or far from each other, and on neighbours, all of which change after the
/// trial (trial.h). Where data flows one way short calls overlap: there some in a row are timed together. Plain logic:
/// who times the calls and carries the times between ranks is the communicator.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/plan/ways.h"

namespace flx::shm {

class Review {
  public:
    /// The best of some calls of each way, in nanoseconds per byte. Infinity: there was none.
    using Times = Ways::Times;

    /// `fetches`: peer memory exists. `fused_bytes`: of the largest input of one rank that can be fused. Equal on all
    /// ranks, as all that follows is.
    Review(int ranks, bool fetches, size_t fused_bytes);

    struct Look {
        Way way;
        bool begins;  ///< a barrier comes first,
        bool ends;    ///< and another one afterwards
    };
    /// Counts a call. Nothing: it goes the table's way. Else the way that it goes instead, and its time is asked for:
    /// took(), before the next call.
    [[nodiscard]] std::optional<Look> next(algorithms::Collective collective, size_t bytes, const Ways &ways);
    /// Notes the time of the call that was to be timed, with the barrier afterwards. True: all ranks exchange their
    /// times() now, into all(), and then call judge().
    [[nodiscard]] bool took(int64_t ns);
    [[nodiscard]] const Times &times() const { return cell_->times; }
    [[nodiscard]] std::span<Times> all() { return all_; }  ///< by rank
    /// True: `ways` has changed.
    bool judge(Ways &ways);

    [[nodiscard]] uint64_t looks() const { return looks_; }  ///< that are over
    /// What `ways` says for the collectives and sizes that were called, and what it is from.
    [[nodiscard]] std::vector<Decision> explain(const Ways &ways) const;
    [[nodiscard]] uint64_t changes() const { return changes_; }  ///< of the table by them

  private:
    static constexpr int kRounds = 3;
    static constexpr int kRoundsToChange = 6;
    /// Calls of one way in a round: the first finds caches as another way left them.
    static constexpr int kCalls = 2;
    static constexpr int kCallsOverlapping = 8;  ///< timed together
    /// Calls of so many bytes gain little by overlapping, and each that goes a bad way is dear.
    static constexpr size_t kLong = size_t{4} << 20;
    [[nodiscard]] static constexpr bool overlap(algorithms::Collective collective, size_t size_index) {
        return one_way(collective) && Ways::kSizes[size_index] < kLong;
    }
    [[nodiscard]] static constexpr int calls_of(algorithms::Collective collective, size_t size_index) {
        return overlap(collective, size_index) ? kCallsOverlapping : kCalls;
    }

    /// The state of a collective and a size.
    struct Cell {
        uint32_t calls_left = kFirst;  ///< to the next look
        bool called = false;
        uint8_t looks = 0;
        uint8_t round = 0;
        uint8_t call = 0;                    ///< of the round
        uint8_t ways = 0;                    ///< mask of those that are looked at
        Times times{};                       ///< of this rank
        double run_ns = 0;                   ///< of calls that are timed together,
        double run_bytes = 0;                ///< and their bytes
        bool checks = false;                 ///< only whether the table's way takes what it took when it was chosen
        uint32_t check_in = kCheckAfter;     ///< calls,
        uint32_t check_after = kCheckAfter;  ///< and so many after that
        double calls = 0;                    ///< that were timed in this look,
        double taken = 0;                    ///< and how long, per byte, as all ranks know it
    };

    /// The first look does not come at once: what was tried a moment ago is known.
    static constexpr uint32_t kFirst = 128;
    /// It comes sooner where the trial had no time to try.
    static constexpr uint32_t kFirstUntried = 4;

    /// Calls between two checks, fewer of those that take long. The cores of a virtual machine may come to lie far from
    /// each other within a second, where one way takes ten times as long as before and another no longer.
    static constexpr uint32_t kCheckAfter = 128;
    static constexpr uint32_t kMostCheckAfter = 1U << 16;
    [[nodiscard]] static bool check_due(Cell &cell, size_t size_index, const Times &known, Way now);

    [[nodiscard]] uint8_t existing(algorithms::Collective collective, size_t bytes) const;
    [[nodiscard]] static uint8_t worth_a_look(const Cell &cell, const Times &known, Way now, uint8_t existing);
    /// `cost`: in calls of the best way. The dearer, the longer until the next look.
    static void end_look(Cell &cell, double cost);

    int ranks_;
    bool fetches_;
    size_t fused_bytes_;
    std::array<std::array<Cell, Ways::kSizes.size()>, algorithms::kCollectives> cells_{};
    std::vector<Times> all_;
    uint64_t looks_ = 0;
    uint64_t changes_ = 0;

    // The following are of the last look.
    Cell *cell_ = nullptr;
    algorithms::Collective collective_{};
    size_t size_index_ = 0;
    size_t bytes_ = 0;
    Way way_ = Way::fused;
    bool ends_ = true;
};

}  // namespace flx::shm
