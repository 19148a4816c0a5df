#include "apps/flx_report/data/meetings.h"

#include <algorithm>
#include <utility>

namespace flx::report {

double early_us(const Arrival &arrival, double last_us) {
    return std::max(0.0, std::min(arrival.left_us, last_us) - arrival.entered_us);
}

Imbalance imbalance_of(const Meeting &meeting) {
    Imbalance result;
    if (meeting.arrivals.empty())
        return result;
    const auto earlier = [](const Arrival &a, const Arrival &b) { return a.entered_us < b.entered_us; };
    const auto [first, last] = std::minmax_element(meeting.arrivals.begin(), meeting.arrivals.end(), earlier);
    double left_us = last->left_us;
    for (const Arrival &arrival : meeting.arrivals) {
        left_us = std::max(left_us, arrival.left_us);
        result.longest_us = std::max(result.longest_us, arrival.left_us - arrival.entered_us);
        result.early_us += early_us(arrival, last->entered_us);
    }
    result.first_us = first->entered_us;
    result.spread_us = last->entered_us - first->entered_us;
    result.after_us = left_us - last->entered_us;
    result.last_rank = last->rank;
    return result;
}

void Meetings::thin_out() {
    while (arrivals_ >= most_ && stride_ < uint64_t{1} << 40) {
        stride_ *= 2;
        std::erase_if(open_, [&](const auto &entry) {
            const bool goes = entry.first.number % stride_ != 0;
            arrivals_ -= goes ? entry.second.meeting.arrivals.size() : 0;
            return goes;
        });
    }
}

void Meetings::add(uint32_t communicator, uint64_t number, size_t size, size_t call_class, double bytes,
                   Arrival arrival) {
    if (size == 1)
        return;
    if (arrivals_ >= most_)
        thin_out();
    if (number % stride_ != 0)
        return;
    const auto [place, is_new] = open_.try_emplace(Key{communicator, number});
    Open &open = place->second;
    if (is_new) {
        open.meeting = {communicator, number, call_class, bytes, {}};
        open.size = size;
        open.meeting.arrivals.reserve(std::min<size_t>(size, 64));
    }
    open.meeting.arrivals.push_back(arrival);
    ++arrivals_;
    if (size > 0 && open.meeting.arrivals.size() >= size) {
        take_(open.meeting);
        arrivals_ -= open.meeting.arrivals.size();
        open_.erase(place);
    }
}

void Meetings::finish(const Take &leave) {
    for (const auto &[key, open] : open_) {
        const bool all = open.size == 0 && open.meeting.arrivals.size() >= 2;
        (all ? take_ : leave)(open.meeting);
    }
    open_.clear();
    arrivals_ = 0;
}

}  // namespace flx::report
