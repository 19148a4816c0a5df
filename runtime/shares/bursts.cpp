#include "runtime/shares/bursts.h"

#include <algorithm>

namespace flx {

void Bursts::start(const std::array<Bucket, kMaxLinks> &buckets, int hosts, int ranks, RailLoad *loads,
                   RailRecord *records) {
    constexpr double kWorth = 1.3;  // times what all rails deliver together
    others_ = std::max(hosts - 1, 1);
    ranks_ = std::max(ranks, 1);
    if (records == nullptr)
        own_records_ = std::vector<RailRecord>(static_cast<size_t>(hosts) * kMaxLinks);
    loads_ = loads != nullptr ? loads : own_.data();
    records_ = records != nullptr ? records : own_records_.data();
    double together = 0;
    int rails = 0;
    for (const Bucket &bucket : buckets) {
        together += bucket.rate;
        rails += bucket.rate > 0 ? 1 : 0;
    }
    for (int link = 0; link < kMaxLinks && rails > 1; ++link)
        if (buckets[link].bytes > 0 && buckets[link].rate > 0 && buckets[link].peak >= kWorth * together) {
            buckets_[link] = buckets[link];
            any_ = true;
        }
}

double Bursts::holds(int host, int link, int64_t now_ns) const {
    const auto emptied_ns = [&](const std::atomic<int64_t> &rested_ns) {
        return static_cast<double>(std::max<int64_t>(rested_ns.load(std::memory_order_relaxed) - now_ns, 0));
    };
    const Bucket &bucket = buckets_[link];
    const double sent_ns = emptied_ns(loads_[link].rested_ns);
    const double received_ns = emptied_ns(records_[host * kMaxLinks + link].rested_ns);
    return std::min(bucket.bytes - sent_ns * bucket.rate, (bucket.bytes - received_ns * bucket.rate) / others_);
}

/// Ranks that take at the same time may both find enough; one message more is no harm.
void Bursts::take_out(std::atomic<int64_t> &rested_ns, double lasts_ns, double most_ns, int64_t now_ns) {
    const int64_t most = now_ns + static_cast<int64_t>(most_ns);
    int64_t before = rested_ns.load(std::memory_order_relaxed);
    int64_t after = 0;
    do
        after = std::max(before, std::min(std::max(before, now_ns) + static_cast<int64_t>(lasts_ns), most));
    while (!rested_ns.compare_exchange_weak(before, after, std::memory_order_relaxed));
}

int Bursts::take(int host, const PartitionVector &vector, size_t bytes, int64_t now_ns) {
    const auto all = static_cast<double>(bytes);
    int best = -1;
    if (bytes <= kMostBytes && now_ns >= again_ns_)
        for (int link = 0; link < vector.links; ++link)
            if (vector.weight[link] != 0 && all <= kMostPart * buckets_[link].bytes &&
                holds(host, link, now_ns) >= all && (best < 0 || vector.weight[link] > vector.weight[best]))
                best = link;
    for (int link = 0; link < vector.links; ++link) {
        if ((best >= 0 && link != best) || vector.weight[link] == 0 || buckets_[link].bytes <= 0)
            continue;
        // While a long message goes, as much comes back as it takes: it leaves an empty bucket behind.
        const double lasts_ns = (best < 0 ? vector.share(link) : 1) * all / buckets_[link].rate;
        const double most_ns = buckets_[link].bytes / buckets_[link].rate + lasts_ns;
        take_out(loads_[link].rested_ns, lasts_ns, most_ns, now_ns);
        take_out(records_[host * kMaxLinks + link].rested_ns, lasts_ns * others_, most_ns, now_ns);
    }
    whole_ += best >= 0 && vector.weight[best] != PartitionVector::kWhole ? 1 : 0;
    return best;
}

void Bursts::took(int link, uint64_t bytes, uint64_t busy_ns, double trip_ns, int64_t now_ns) {
    const double lasts_ns = buckets_[link].bytes > 0 ? static_cast<double>(bytes) * ranks_ / buckets_[link].rate : 0;
    if (lasts_ns <= kTrips * trip_ns)
        return;
    if (static_cast<double>(busy_ns) - trip_ns < kAsSlow * lasts_ns) {
        slow_ = 0;
        pause_ns_ = kFirstPauseNs;
    } else if (++slow_ == kSlow) {
        slow_ = 0;
        again_ns_ = now_ns + pause_ns_;
        pause_ns_ = std::min(2 * pause_ns_, kLongestPauseNs);
    }
}

}  // namespace flx
