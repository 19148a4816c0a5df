/// \file controller.h
/// The adaptive controller: a pure function of measurements. It owns no link and reads no clock; one object serves one
/// route (the peers on one host, as seen from this rank) and is used by one thread at a time. About 20 KiB, all of it
/// inside the object.
///
/// Stage 1 turns what a probe found into first vectors; stage 2 recomputes them between iterations from what each link
/// delivered. The two stages are FlexLink's (arXiv 2510.15882), the rules in them are not: shares are computed from
/// rates instead of being moved in steps. Model, constants and reasons: docs/controller.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/shares/brief_rates.h"
#include "runtime/shares/partition.h"
#include "runtime/shares/water_fill.h"

namespace flx {

/// What is known of one link to the peers of a route. A rate of 0 (or one that is not finite) is unknown.
struct LinkEstimate {
    double latency_ns = 0;             ///< one way, of an empty chunk
    double bytes_per_ns = 0;           ///< alone; equals GB/s
    double together_bytes_per_ns = 0;  ///< while all usable links of the route are loaded; 0 where not measured
    bool usable = true;                ///< false: never gets a share
    /// What a small message takes, by a measurement that all ranks of the route know: among links that would do, small
    /// messages take the one of least, so that both ends choose alike. 0 for all links: by latency and rate.
    double preference = 0;
    double work_ns = 0;  ///< that a message takes from sender and receiver where it uses one link more
};

/// What one operation put on one link, in one phase, and how long that link had something outstanding.
struct LinkSample {
    uint64_t bytes = 0;
    uint64_t busy_ns = 0;
};

/// The sample of one route for a link that `routes` routes of this rank loaded in the same operation, `all` being what
/// it carried to them together. Which route's chunks the link took first says nothing of the link, so each is told its
/// part of the whole, unless `own` took so much longer that it is the peers who are slow.
[[nodiscard]] LinkSample fair_sample(const LinkSample &own, const LinkSample &all, int routes);

inline constexpr int kSizeClasses = 48;  ///< class of a message of b bytes: floor(log2(b))
[[nodiscard]] int size_class(size_t bytes);
inline constexpr int kMaxPhases = 2;

struct ControllerOptions {
    int window = 8;  ///< operations over which rates are averaged, 1 to 255
    /// A new vector is adopted when a share moves by more than this, or when the old one would finish 5 % late.
    double hysteresis = 0.01;
    int explore_every = 64;  ///< operations between offers of a small share to an idle usable link; 0: never
    double explore_share = 0.02;
    double min_gain = 0.03;  ///< a link set is only extended by a link that brings more than this
    /// For how long a link must have been busy to show its rate: shapers, switches and sockets let a burst pass at any
    /// speed. What shorter samples show counts less, and is followed in steps. 0: all samples count alike.
    double burst_ns = 0;
    bool frozen = false;  ///< stage 2 off: rates are learnt for reports, vectors stay
};

/// Why a link has no share, for flx_info; empty if it has one.
struct LinkVerdict {
    bool on = true;
    std::string why;
};

class Controller {
  public:
    /// Stage 1. `links` has at most kMaxLinks entries. A link is off if without it the rest is as fast within min_gain:
    /// rates measured together decide, since links that share a resource (cores, a switch) each look fast alone. Links
    /// whose rate is unknown start idle and are offered small shares soon; if all are unknown the first one carries.
    Controller(std::span<const LinkEstimate> links, const ControllerOptions &options);
    /// With a forced vector, used for every class and phase. Only set_usable changes it.
    Controller(const PartitionVector &forced, const ControllerOptions &options);

    /// The vector for a message (one block, to one peer) of `bytes` in `phase`. Constant time, no allocation. The
    /// reference stays valid; what it refers to changes in observe and set_usable only. Weights sum to kWhole, or are
    /// all 0 where no link is usable.
    [[nodiscard]] const PartitionVector &vector(size_t bytes, int phase) const;

    /// Stage 2: one operation's samples for messages of `bytes` in `phase`, one entry per link. `elapsed_ns`: how long
    /// the phase took on this route; 0: the busiest link's time. It shows what links cost each other where busy times
    /// do not (two links copied to by one thread in turn). Amortised under 100 ns, no allocation. True if the vector of
    /// that class and phase changed.
    bool observe(size_t bytes, int phase, std::span<const LinkSample> samples, uint64_t elapsed_ns = 0);

    /// What some chunk took, one way; 0: not known. Where that is far less than the probe's latency, it takes its
    /// place.
    void saw_latency(int link, double latency_ns);

    /// The link does not work any more: its share goes to the others now, in every class and phase. Or it works again:
    /// it is offered a small share in the next operations and gets its full one when that was measured (at once where
    /// nothing else carries, or where offers are switched off). Microseconds, no allocation.
    void set_usable(int link, bool usable);

    /// `names`: of the links, for the sentence; may be empty.
    [[nodiscard]] LinkVerdict verdict(int link, std::span<const std::string> names = {}) const;
    /// What it decided for each class and phase that was used, and which links carry nothing. `names`: of the links.
    [[nodiscard]] std::vector<Decision> explain(std::span<const std::string> names) const;
    /// The rate that stage 2 believes now, bytes/ns: from the last class and phase that measured the link; 0: unknown.
    [[nodiscard]] double rate(int link) const;

  private:
    // Classes are grouped into bands that share rates: a copy out of cache and one out of memory differ by 5x.
    static constexpr int kBands = 4;
    /// Below 64 KiB, 1 MiB, 16 MiB, and above: what fits a core's L1, its L2, the L3, or none.
    [[nodiscard]] static constexpr int band_of(int size) { return size < 16 ? 0 : size < 20 ? 1 : size < 24 ? 2 : 3; }
    [[nodiscard]] static constexpr int slot_of(int index) {
        return index / kSizeClasses * kBands + band_of(index % kSizeClasses);
    }
    static constexpr int kSlots = kBands * kMaxPhases;
    static constexpr int kClasses = kSizeClasses * kMaxPhases;
    static constexpr int kCosts = 8;

    /// What is believed of one link in one band and phase.
    struct Estimate {
        double cost = 0;       // mean ns per byte beyond the latency; 0: unknown
        double spread = 0;     // mean deviation of samples from it
        double run_sum = 0;    // sum of the samples in the current run of outliers
        double run_busy = 0;   // and for how long the link was busy in them, ns
        int8_t run = 0;        // its length, with the sign of their side
        bool run_far = false;  // all of the run are beyond a factor of 2
        bool own = false;      // measured in this very band and phase
        uint8_t count = 0;     // samples in the mean, up to the window
        [[nodiscard]] double rate() const { return cost > 0 ? 1 / cost : 0; }
    };

    enum class Standing : uint8_t { on, unusable, adds_little, tried, unmeasured, returned };

    struct LinkState {
        double latency = 0;
        double preference = 0;
        double work = 0;
        double sure = 0;                                           // ns per byte, by the probe and by long operations
        double gain = 0;                                           // what it was found to add, relative to rest
        double needed = 0;                                         // what it would have had to add
        double rest = 0;                                           // rate of those that were on then, bytes/ns
        uint64_t last_learnt = 0, last_offer = 0, next_offer = 0;  // in calls of observe
        uint32_t rest_links = 0;                                   // who was on then, as bits
        Standing standing = Standing::on;
        Standing before = Standing::on;  // while unusable, or standing in: what it goes back to
        bool stand_in = false;           // on only because nothing else works
        uint8_t backoff = 0;             // failed trials, as a power of 2 of the time to the next offer
        uint8_t slot = 0;                // that measured it last
    };

    struct ClassState {
        PartitionVector vector;
        uint32_t calls = 0;
        uint32_t next_offer = 0;
        uint8_t refresh_in = 0;
        uint8_t costs_known = 0, costs_at = 0;
        std::array<float, kCosts> costs{};  // ns per byte of the last operations
    };

    /// One operation that gives an idle link a small share.
    struct Offer {
        int link = -1;
        int index = 0;  // class
        int seen = 0;   // operations since
        PartitionVector saved;
    };

    /// Some operations with one more link on, compared with those before.
    struct Trial {
        int link = -1;
        int index = 0;
        int seen = 0;
        uint64_t begun = 0;
        double before = 0, predicted = 0;
        std::array<float, kCosts> costs{};
    };

    /// A link as water-filling sees it.
    struct Lane {
        double latency = 0;
        double rate = 0;  // > 0
        double cost = 0;  // 1 / rate
        int link = 0;
        double preference = 0;
        double work = 0;
    };

    struct Probed;
    void choose_links(std::span<const LinkEstimate> links);
    void leave_little_gains(Probed &probed);
    void seed_estimates(const Probed &probed);
    [[nodiscard]] bool is_brief(int slot, double bytes) const;
    [[nodiscard]] std::array<double, kMaxLinks> trusted_parts(int index) const;
    void make_sure(int slot);
    bool learn_brief(int index, std::span<const LinkSample> samples, uint64_t time_ns, double delay);
    void steady(std::span<Lane> lanes) const;
    int lanes(int index, int extra, std::array<Lane, kMaxLinks> &out) const;
    Finish finish_time(int index, int extra) const;
    double finish_without(int index, int link) const;
    double common_delay(int slot, std::span<const LinkSample> samples, int offered);
    [[nodiscard]] bool lasting(const LinkSample &sample) const;
    [[nodiscard]] std::optional<double> shown_cost(int slot, int link, const LinkSample &sample, double delay,
                                                   bool ended_early) const;
    bool take_outlier(Estimate &believed, int side, double cost, const LinkSample &sample) const;
    void take_into_mean(Estimate &believed, double cost, double busy_ns) const;
    void note_cost(int index, uint64_t bytes, uint64_t time_ns);
    bool follow_rates(int index, bool moved);
    bool learn(int slot, int link, const LinkSample &sample, double delay, bool ended_early);
    void forget_probe();
    void sort_by_latency();
    void adopt(int slot, int link, double cost, bool forget_others);
    bool refresh(int index, bool always);
    void refresh_all();
    void members_changed();
    void use_forced();
    void settle_stand_in();
    void make_offer(int index);
    bool finish_offer(int slot, const LinkSample &sample);
    void step_trial(float cost);
    void record(int link, Standing standing, double gain, double needed);
    [[nodiscard]] bool usable(int link) const { return links_[link].standing != Standing::unusable; }
    [[nodiscard]] bool on(int link) const { return links_[link].standing == Standing::on; }
    [[nodiscard]] const Estimate &estimate(int slot, int link) const { return estimates_[source_[slot][link]][link]; }

    ControllerOptions options_;
    double per_burst_ = 0;  // 1 / burst_ns
    int count_ = 0;         // links
    int on_count_ = 0;      // of them on
    bool forced_ = false;
    bool urgent_ = false;       // some link should be offered a share without waiting
    bool probe_wrong_ = false;  // by far, on a link that has carried something since
    struct Delay {
        double least = 0;  // of the operations in a row in which all links were slow
        int run = 0;       // their number
    };
    PartitionVector forced_vector_;
    uint64_t calls_ = 0;
    uint64_t elapsed_ns_ = 0;  // of the operation that is observed
    int cursor_ = 0;           // class whose vector is refreshed next beside the observed one
    int offer_cursor_ = 0;     // link to be offered a share next
    Offer offer_;
    Trial trial_;
    BriefRates brief_rates_;
    std::array<uint8_t, kMaxLinks> by_latency_{};  // usable order: rising latency
    std::array<uint8_t, kMaxLinks> on_links_{};    // those that are on, rising latency
    std::array<LinkState, kMaxLinks> links_{};
    std::array<std::array<uint8_t, kMaxLinks>, kSlots> source_{};  // slot whose estimate a slot uses
    std::array<std::array<Estimate, kMaxLinks>, kSlots> estimates_{};
    std::array<Delay, kSlots> delays_{};
    std::array<ClassState, kClasses> classes_{};
};

}  // namespace flx
