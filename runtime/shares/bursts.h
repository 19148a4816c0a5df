/// \file bursts.h
/// Which rail takes a short message whole. Shapers, switches and networks with credits for bursts let what a rail has
/// saved up while it rested pass at once: a token bucket of a depth and a rate (Cruz, IEEE Trans. Inf. Theory 37(1),
/// 1991). While a message fits into that, what it takes is the work for it, of which there is least on one rail; what
/// rails deliver in the long run, which shares follow, matters once their buckets are empty.
///
/// How full buckets are is reckoned from what the ranks of this host sent, by the time at which each would be full (the
/// generic cell rate algorithm, ITU-T I.371). A message passes two of each rail: the one where its host sends, and the
/// one where the other host receives, of which each host that may send there has its part. Whatever else sends may have
/// emptied them: messages that were timed show it, and bursts are not believed in for a while.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "runtime/link/load.h"
#include "runtime/shares/partition.h"

namespace flx {

/// A rail as a token bucket: it lets `bytes` pass at `peak` when it has rested, and carries `rate` in the long run,
/// both in bytes/ns. For all ranks of a host.
struct Bucket {
    double bytes = 0;  ///< 0: none
    double peak = 0;
    double rate = 0;
};

/// Of the rails of one rank. One thread at a time; ranks of one host share `loads`.
class Bursts {
  public:
    /// Longer messages are shared among rails by what these deliver.
    static constexpr size_t kMostBytes = 128 << 10;

    /// `hosts`: how many there are, this one included; `ranks`: of this host. `loads`: by link; `records`: by host and
    /// link; both of all ranks of this host, and outlive it; null: this rank is alone. Buckets that bring nothing (as
    /// all rails together are nearly as fast as a bucket's peak, or there is one rail only) are as none.
    void start(const std::array<Bucket, kMaxLinks> &buckets, int hosts, int ranks, RailLoad *loads,
               RailRecord *records);
    /// Whether any rail has a bucket.
    [[nodiscard]] bool any() const { return any_; }
    /// Messages that one rail took whole.
    [[nodiscard]] uint64_t whole() const { return whole_; }

    /// A message of `bytes` to `host`, which `vector` would share among rails, is about to be sent at `now_ns`. The
    /// rail that takes all of it; -1: none does, and it goes as the vector says. What is sent is taken out of the
    /// buckets.
    [[nodiscard]] int take(int host, const PartitionVector &vector, size_t bytes, int64_t now_ns);
    /// A rail that took messages of this rank whole, `bytes` together, had something under way for `busy_ns`, of which
    /// an empty message's way and its acknowledgement's take `trip_ns`.
    void took(int link, uint64_t bytes, uint64_t busy_ns, double trip_ns, int64_t now_ns);

    /// What the bucket of a rail holds for messages to `host`, in bytes; less than 0: more was sent than it lets pass.
    [[nodiscard]] double holds(int host, int link, int64_t now_ns) const;

  private:
    /// So many times in a row as slow as an empty bucket: a receiver that comes late is no proof.
    static constexpr int kSlow = 8;
    static constexpr double kAsSlow = 0.8;
    static constexpr double kTrips = 4;  ///< what should take less than so many trips shows nothing
    static constexpr int64_t kFirstPauseNs = 1'000'000'000;
    static constexpr int64_t kLongestPauseNs = 60'000'000'000;

    /// A message is at most this part of a bucket, so that one that meets an empty one is not much slower than if it
    /// had been shared.
    static constexpr double kMostPart = 1.0 / 8;

    /// A bucket is full `lasts_ns` later than it would have been, and `most_ns` from now at the latest.
    static void take_out(std::atomic<int64_t> &rested_ns, double lasts_ns, double most_ns, int64_t now_ns);

    std::array<Bucket, kMaxLinks> buckets_{};
    std::array<RailLoad, kMaxLinks> own_{};
    RailLoad *loads_ = own_.data();
    std::vector<RailRecord> own_records_;
    RailRecord *records_ = nullptr;
    int others_ = 1;  ///< hosts that may send to one
    int ranks_ = 1;   ///< of this host, which share a rail's rate
    bool any_ = false;
    uint64_t whole_ = 0;
    int slow_ = 0;  ///< messages in a row that were so
    int64_t pause_ns_ = kFirstPauseNs;
    int64_t again_ns_ = std::numeric_limits<int64_t>::min();  ///< bursts are not believed in until then
};

}  // namespace flx
