/// \file slow_links.h
/// Whether a link that a controller believes to be slower really is, before a user is warned of it. In brief
/// operations, and where processes wait for a core, acknowledgements come late, which looks like a slow link: the more,
/// the less the link had to carry.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "runtime/shares/controller.h"

namespace flx {

/// Of one route. One thread at a time.
class SlowLinks {
  public:
    /// The longest time for which what a link delivers may be its processes' doing rather than its own.
    static constexpr uint64_t kLeastBusyNs = 20'000'000;
    /// For how long a link must have been seen to be slow to be slow once, and how many times in a row that must be.
    static constexpr uint64_t kLookNs = 200'000'000;
    static constexpr int kLooks = 3;

    /// `link` seems to be slow beside `rates` (bytes/ns, by link; 0: not known), and its share was `share` before.
    void suspect(int link, std::span<const double> rates, double share);
    /// It is lost, or carries what it did.
    void forget(int link) { links_[link] = {}; }
    /// What one operation put on each link. Only links that had work for long in it are judged, by what others
    /// delivered meanwhile: a suspicion grows, or ends.
    void observe(std::span<const LinkSample> samples);

    struct Slow {
        int link = 0;
        double bytes_per_ns = 0;  ///< of late
        double share = 0;         ///< before
    };
    /// One that is slow beyond doubt; it is told once.
    [[nodiscard]] std::optional<Slow> confirmed();

  private:
    struct Suspicion {
        double rate = 0;  ///< before, bytes/ns; 0: none
        double share = 0;
        uint64_t bytes = 0;  ///< of the current look
        uint64_t busy_ns = 0;
        int looks = 0;
        double seen = 0;  ///< bytes/ns in the last look
    };
    void judge(int link, std::span<const LinkSample> samples);
    [[nodiscard]] bool any() const;
    [[nodiscard]] double slowdown(int link, const LinkSample &sample) const;

    std::array<double, kMaxLinks> rates_{};  ///< of all links when the first of those was suspected
    std::array<Suspicion, kMaxLinks> links_{};
};

}  // namespace flx
