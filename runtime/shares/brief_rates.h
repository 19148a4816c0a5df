/// \file brief_rates.h
/// Rates of links from brief operations. One of them shows little: a link that is not full lets a burst pass, and
/// acknowledgements come when processes have a core. But where shares stay for a while, buckets run out or fill up, and
/// then a link that is full works until the end of nearly every operation, and shows its rate, while one that is not is
/// done long before, and could carry more: it is taken to be faster, by quanta, until it is full. Whether a change was
/// right is told by the time of operations: one that made them longer is taken back. Plain arithmetic on what is
/// observed; docs/controller.md.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "runtime/shares/partition.h"

namespace flx {

class BriefRates {
  public:
    BriefRates() { forget(); }
    /// Whether a link that was busy for so long in an operation had nothing to do in the end of it, or, if `end_ns` is
    /// that, when the busiest link had.
    [[nodiscard]] static bool ended_early(uint64_t busy_ns, uint64_t end_ns) {
        return static_cast<double>(busy_ns) < kWorked * static_cast<double>(end_ns);
    }
    /// What a link carried in an operation, what it took for it, ns per byte, and whether it ended before the
    /// operation: where all do, it is the peers who make it long.
    void saw(int link, uint64_t bytes, double cost, bool ended_early);
    /// The operation took so long for so much. True every few of them, if something was learnt: factor() says what.
    /// Shares are others then, and it takes as long again until something can be learnt. `believed`: ns per byte of
    /// each link.
    bool ended(double time_ns, uint64_t bytes, std::span<const double> believed);
    /// By which what was believed of a link is to be multiplied now.
    [[nodiscard]] double factor(int link) const { return links_[link].factor; }
    /// By which what is believed of it elsewhere is, since it cannot be measured: it was not full, or it was a mistake
    /// to believe that.
    [[nodiscard]] double unmeasured(int link) const { return links_[link].unmeasured; }
    /// Links are others, or what is known of them.
    void forget();

  private:
    static constexpr double kWorked = 0.8;
    static constexpr int kMostCosts = 32;
    using Costs = std::array<float, kMostCosts>;
    struct Seen {
        int early = 0;       // operations in which it ended early
        int worked = 0;      // and others; the first costs are of them
        double quantum = 0;  // relative
        double bytes = 0;    // since shares were last changed
        double proven = 0;   // ns per byte that it did not exceed with all the rest of an operation; 0: not known
        double factor = 1;
        double unmeasured = 1;
        double moved = 1;  // the products of these two since the best shares
        double moved_unmeasured = 1;
        Costs costs{};
    };
    enum class Judgement : uint8_t { better, alike, worse, slower };

    void begin(bool settling);
    void prove();
    Judgement judge();
    void go_back();
    bool learn(std::span<const double> believed, bool better);
    [[nodiscard]] static double quarter(Costs &costs, int known, int number);

    bool settling_ = false;  // buckets still run out or fill up
    int operations_ = 0;
    double time_ns_ = 0;
    double bytes_ = 0;
    double all_ns_ = 0;  // since shares were last changed
    std::array<Seen, kMaxLinks> links_{};
    Costs costs_{};           // of operations, ns per byte
    double best_ = 0;         // the median of them with the best shares so far; 0: not known
    double best_bytes_ = 0;   // of an operation then
    bool returning_ = false;  // to those shares
    int pause_ = 0;           // rounds without a change that are left
    int after_mistake_ = 0;   // rounds of the last pause after one
    int search_ = 0;          // rounds without a pause that are left
};

}  // namespace flx
