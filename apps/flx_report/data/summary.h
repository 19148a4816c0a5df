/// \file summary.h
/// What the page shows of a trace: numbers that do not grow with its length. Plain data.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/flx_report/data/durations.h"
#include "apps/flx_report/data/series.h"
#include "apps/traces/event.h"

namespace flx::report {

/// Calls of one collective, of about one size, carried out in one way. A call of each rank counts.
struct CallClass {
    std::string name;
    std::string way;  ///< empty: the trace does not say
    int size = -1;    ///< size_class(); -1: they have no size
    bool non_blocking = false;
    uint64_t calls = 0;
    double bytes = 0;
    Durations took;
    uint64_t errors = 0;
    uint64_t unfinished = 0;
    // Of those that were found on all ranks of their communicator, once a call:
    Durations spread;     ///< from the first rank's entry to the last one's
    Durations after;      ///< from the last rank's entry to the last one's return
    double early_us = 0;  ///< that ranks were in such calls before the last one was, added up
};

/// The class of a size: 0 for nothing, then those up to 64 B, 256 B, 1 KiB and on, by a factor of four.
[[nodiscard]] int size_class(double bytes);
/// `up to 64 KiB`.
[[nodiscard]] std::string size_class_text(int size);

struct RankSummary {
    int64_t rank = 0;
    std::string host;
    int64_t pid = 0;  ///< 0: not known
    uint64_t calls = 0;
    double bytes = 0;
    double in_calls_us = 0;      ///< in calls that block
    double early_us = 0;         ///< part of it: the last rank was not there yet
    double waited_us = 0;        ///< in waits that FLX noted
    uint64_t matched = 0;        ///< calls that were found on all ranks
    uint64_t last = 0;           ///< of those: it was the last to enter
    double kept_waiting_us = 0;  ///< other ranks, added up, while it was the last
};

/// One rank that waits for another one.
struct WaitPair {
    double early_us = 0;   ///< it was in calls which the other one entered last
    uint64_t calls = 0;    ///< so many
    double waited_us = 0;  ///< in waits that FLX noted
};

/// One call that took long, went wrong or did not end.
struct NotedCall {
    size_t call_class = 0;  ///< in Summary::classes
    double at_us = 0;
    double took_us = 0;  ///< on the rank on which it took longest
    double bytes = 0;
    int64_t communicator = 0;
    uint64_t number = 0;     ///< 0: a message
    int64_t rank = -1;       ///< of an event of one rank
    bool matched = false;    ///< then these are known:
    int64_t last_rank = -1;  ///< who entered last
    double spread_us = 0;
    double after_us = 0;
    std::string error;
};

/// A link of a host, of all its ranks together.
struct HostLink {
    double rate_MBps = 0;  ///< measured; 0: not
    double latency_us = 0;
    double bytes = 0;
    double highest_MBps = 0;  ///< delivered over kPeakStep
    Series carried;

    static constexpr double kPeakStep = 1000;  ///< in microseconds
};

struct LinkEvent {
    enum class Kind : uint8_t { lost, returned, other };
    double at_us = 0;
    int64_t rank = 0;
    std::string text;
    std::string link;  ///< empty: the text names none
    Kind kind = Kind::other;
};

struct Summary {
    traces::Header header;
    bool truncated = false;
    uint64_t events = 0;
    double from_us = 0;
    double to_us = 0;

    std::vector<CallClass> classes;
    std::vector<RankSummary> ranks;                         ///< by rank
    std::map<std::pair<int64_t, int64_t>, WaitPair> pairs;  ///< (who waits, for whom); -1: FLX knew of none
    std::vector<NotedCall> slowest;                         ///< the longest first
    std::vector<NotedCall> failed;                          ///< the first ones
    std::vector<NotedCall> unfinished;
    uint64_t failed_count = 0;
    uint64_t unfinished_count = 0;
    uint64_t communicators = 0;
    std::map<int64_t, std::string> communicator_names;  ///< by id, of those that MPI serves
    uint64_t matched = 0;
    uint64_t unmatched = 0;  ///< which some rank of the communicator did not make within the trace
    uint64_t stride = 1;     ///< calls were matched whose numbers are multiples of this
    Series in_calls;
    Series early;

    std::map<std::pair<std::string, std::string>, HostLink> links;  ///< by host and name
    std::map<std::string, MeanSeries> shares;                       ///< by link
    std::vector<LinkEvent> link_events;                             ///< the first ones
    uint64_t link_event_count = 0;

    [[nodiscard]] double run_us() const { return to_us - from_us; }
    /// Of what all ranks together had.
    [[nodiscard]] double share_of_run(double us) const {
        const double all = run_us() * static_cast<double>(ranks.size());
        return all > 0 ? us / all : 0;
    }
};

/// Whether it never leaves a host.
[[nodiscard]] bool is_near(const std::string &link);

}  // namespace flx::report
