/// \file brief_rates.h
/// Rates of links from brief operations. One of them shows little: a link that is not full lets a burst pass, and
/// acknowledgements come when processes have a core. But a link that works until the end in many of them has no burst
/// left and shows its rate, and one that never does could carry more: it is taken to be faster, by quanta, until it
/// shows. Plain arithmetic on what is observed; docs/controller.md.
#pragma once

#include <array>
#include <cstdint>

#include "partition.h"

namespace flx {

class BriefRates {
  public:
    BriefRates() { forget(); }
    /// Whether a link that was busy for so long in an operation in which the busiest one was for `most_ns` had nothing
    /// to do in the end.
    [[nodiscard]] static bool ended_early(uint64_t busy_ns, uint64_t most_ns) {
        return static_cast<double>(busy_ns) < kWorked * static_cast<double>(most_ns);
    }
    /// What a link took in an operation, ns per byte.
    void saw(int link, double cost, bool ended_early);
    /// The operation took so long. True every few of them, if something was learnt: factor() says what.
    bool ended(double time_ns);
    /// By which what is believed of a link, ns per byte, is to be multiplied now.
    [[nodiscard]] double factor(int link, double believed) const;
    /// Whether that is because it never worked until the end.
    [[nodiscard]] bool faster(int link) const { return links_[link].faster; }
    /// Links are others, or what is known of them.
    void forget();

  private:
    static constexpr double kWorked = 0.8;
    static constexpr int kMostCosts = 32;
    struct Seen {
        int early = 0;        // operations in which it ended early
        int worked = 0;       // and others; the first costs are of them
        double quantum = 0;   // relative
        double found = 0;     // what it costs, by the last operations; 0: nothing new
        bool faster = false;  // it never worked until the end
        std::array<float, kMostCosts> costs{};
    };
    int operations_ = 0;
    double time_ns_ = 0;
    std::array<Seen, kMaxLinks> links_{};
};

}  // namespace flx
