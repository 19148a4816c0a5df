/// \file measure.h
/// Measures links through the abstract Link alone: latency, and the rate that a receiver really gets, each link alone
/// and all of them together.
///
/// All ranks of a group call at once and form rings: each sends to its next peer and receives from its previous one, so
/// that what is measured is what a collective gets while all ranks do the same on the same cores and wires. The time is
/// cut into slots that begin at the same moment on all ranks: one to wake the links up, one per link, one for all links
/// together, a rest to drain. What travels:
/// - pings and their answers, 8 bytes each: latency is half the least round trip;
/// - a *train* of data chunks for the length of a slot. The receiver reports now and then how much had arrived when, by
///   its own clock; the rate is the slope of that curve where chunks waited on their way, else of its later half, so
///   neither buffers that fill at the sender nor a shaper's initial burst counts. A train says when each chunk was
///   sent, so that the receiver sees how much longer one took than the quickest one; on a rail that steers it
///   (train.h), and what may be in flight shrinks with the time left, so a slow rail is not clogged beyond its slot.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/link/link.h"

namespace flx::probe {

struct MeasureOptions {
    uint32_t comm = 0;       ///< ChunkHeader::comm of all chunks; their sequence is 0, which no operation uses
    double budget_ms = 150;  ///< for everything; the same on all ranks
    int slots = 0;           ///< the largest number of links of any rank; 0: as many as given here
    int pings = 10;          ///< per link; with rates fewer where they would take more than a tenth of the slot
    bool rates = true;       ///< false: only which links answer, and how soon; it ends when all have
    bool bursts = false;     ///< without rates: also what rails let pass at once, where there are several
    std::function<int64_t()> now = {};  ///< nanoseconds, monotonic; default: steady clock
    /// Called when nothing has moved for `idle_ns`; default: yields, and sleeps a little where that takes long, since
    /// on a busy core a sleeper is back before one who yielded.
    std::function<void(int64_t idle_ns)> idle = {};
};

/// A message that shapers and switches usually let pass at once.
inline constexpr size_t kBurstBytes = 64 << 10;

struct LinkMeasurement {
    double latency_ns = 0;             ///< one way; 0: not measured
    double send_ns = 0;                ///< of that, the sender's work; 0: not measured
    double burst_bytes_per_ns = 0;     ///< of a message of kBurstBytes on a rested rail; 0: not measured
    double bytes_per_ns = 0;           ///< alone; 0: not measured
    double together_bytes_per_ns = 0;  ///< while all links of the group were loaded; 0: not measured
    uint64_t bytes = 0;                ///< payload that arrived, for reports
    bool answered = false;
    bool usable = false;  ///< it answered and a rate is known, if rates were asked for
    std::string reason;   ///< why not; empty if usable
};

struct GroupMeasurement {
    std::vector<LinkMeasurement> links;  ///< as given, in order
    double together_bytes_per_ns = 0;    ///< all links at once: the sum of the links' rates
    double elapsed_ms = 0;
};

/// Measures `links` towards rank `next` and serves rank `previous`, which measures towards this rank; either is -1
/// where there is none. `links` should be in an order that the ranks share where they share rails, so that one slot
/// measures one rail everywhere. Call right after a barrier; no operation may use the links until all ranks have
/// returned (another barrier).
///
/// Returns within about `budget_ms`, whatever the peers do. A link that fails or does not answer gets a reason. Chunks
/// of a link that was too slow may arrive after the return: whoever uses the links next drops arrivals (releasing them)
/// and completions of sequence 0. What was sent stays valid for ever (it is static memory).
GroupMeasurement measure_links(std::span<Link *const> links, int next, int previous, const MeasureOptions &options);

}  // namespace flx::probe
