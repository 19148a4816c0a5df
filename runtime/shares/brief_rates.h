/// \file brief_rates.h
/// What many brief operations show together of the rates of links. One brief operation shows next to nothing: a link
/// that is not full lets a burst pass at any speed, and acknowledgements are seen when a process has a core. But while
/// the shares stay the same, the token buckets of shapers run out or fill up. Then a link that is full works until the
/// end of nearly every operation, and its time shows its rate. A link that is not full is done long before the end, and
/// could carry more. It is taken to be faster, by one quantum after the other, until it is full.
///
/// The time of operations shows whether a change was right: a change that made them longer is taken back. The class is
/// plain arithmetic on what is observed. docs/controller.md explains it, with its constants, under "What many brief
/// operations tell".
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "runtime/shares/partition.h"

namespace flx {

class BriefRates {
  public:
    /// A link that is slowed by so large a factor is expected back, and keeps what is believed of it.
    static constexpr double kFellFar = 4;
    BriefRates() { forget(); }
    /// Whether a link that was busy for `busy_ns` had nothing to do at the end of an operation. `end_ns` is the
    /// operation's time, or that of its busiest link.
    [[nodiscard]] static bool ended_early(uint64_t busy_ns, uint64_t end_ns) {
        return static_cast<double>(busy_ns) < kWorked * static_cast<double>(end_ns);
    }
    /// Notes what a link did in an operation, before ended() is called for that one: the bytes that it carried, its
    /// cost in ns per byte, and whether it was done early. Where all links are done early, the peers make the operation
    /// long, and nothing is learnt.
    void saw(int link, uint64_t bytes, double cost, bool ended_early);
    /// Notes the time and the bytes of an operation. Returns true once every few rounds, when factors were found:
    /// factor() and unmeasured() then say by what the beliefs about each link change. The shares change with them, so
    /// the next round teaches nothing. `believed`: the ns per byte that each link is believed to take; 0: not known.
    bool ended(double time_ns, uint64_t bytes, std::span<const double> believed);
    /// The factor for the sure cost (ns per byte) of a link; less than 1: the link is faster than was believed.
    [[nodiscard]] double factor(int link) const { return links_[link].factor; }
    /// The factor for the other beliefs about a link, which its samples cannot correct. It is not 1 where the link was
    /// not full, and where such a change is taken back.
    [[nodiscard]] double unmeasured(int link) const { return links_[link].unmeasured; }
    /// Forgets all rounds: the links have changed, or what is known of them.
    void forget();

  private:
    /// A link that was busy for this part of an operation's time worked until its end.
    static constexpr double kWorked = 0.8;
    /// Costs that are kept of a round, of each link and of operations.
    static constexpr int kMostCosts = 32;
    using Costs = std::array<float, kMostCosts>;
    /// What is known of one link.
    struct Seen {
        int early = 0;                // operations of this round in which the link was done early,
        int worked = 0;               // and in which it worked until the end: `costs` has the first of these
        double quantum = 0;           // relative step by which the link is taken to be faster
        double bytes = 0;             // carried since prove() was called last
        double proven = 0;            // ns per byte that it reached over such a stretch as a whole; 0: not known
        double factor = 1;            // of the last round that returned true, as factor() gives it
        double unmeasured = 1;        // likewise
        double moved = 1;             // product of all `factor` since the best shares
        double moved_unmeasured = 1;  // likewise, of all `unmeasured`
        Costs costs{};                // ns per byte of operations in which it worked until the end
    };
    /// A round's time, compared with that of the best shares so far. `worse`: the shares differ from those. `slower`:
    /// they are the same, so the links or the peers have become slower.
    enum class Judgement : uint8_t { better, alike, worse, slower };

    /// Begins a round. `settling`: the shares have just changed.
    void begin(bool settling);
    /// Notes what each link delivered since the last call: it can deliver that.
    void prove();
    /// Judges the round by its median time per byte.
    Judgement judge();
    /// Takes back all changes since the best shares.
    void go_back();
    /// Finds the factors from what links did in this round. False: no link was full, so they are all 1.
    bool learn(std::span<const double> believed, bool better);
    /// The `number`-th quartile of the first `known` of `costs`, which it reorders.
    [[nodiscard]] static double quarter(Costs &costs, int known, int number);

    bool settling_ = false;  // nothing is learnt in this round: buckets still run out or fill up
    int operations_ = 0;     // of this round, as the next two
    double time_ns_ = 0;
    double bytes_ = 0;
    double all_ns_ = 0;  // time of all operations since prove() was called last
    std::array<Seen, kMaxLinks> links_{};
    Costs costs_{};           // of this round's operations, ns per byte
    double best_ = 0;         // their median in rounds with the best shares so far; 0: not known
    double best_bytes_ = 0;   // mean bytes of an operation in those rounds
    bool returning_ = false;  // since go_back(), until a round is judged that is not worse
    int pause_ = 0;           // rounds in which nothing will be changed
    int after_mistake_ = 0;   // length of the last pause after a mistake, in rounds
    int search_ = 0;          // rounds in which no pause will be made
};

}  // namespace flx
