/// What others can read of a communicator while it is in use, and after its process died (runtime/record/format.h).
#include "runtime/communicator/recording.h"

#include "runtime/base/clock.h"

namespace flx {

void Communicator::begin_recording() {
    if (layout_.size == 1)
        return;
    record::Recorder::Facts facts{id_, layout_.rank, layout_.size, layout_.hosts, layout_.members[0].uid, {}};
    for (const LinkSlot &slot : links_) {
        const LinkMeasured &measured = slot.far.done ? slot.far : slot.near;
        facts.links.push_back({slot.name, measured.bytes_per_ns * 1e9, measured.latency_ns / 1e9});
    }
    recorded_.place = recorded_.recorder->open(facts);
    if (recorded_.recorder->traces())
        queue_.time_phases();
    recorded_.links_gap = (recorded_.recorder->traces() ? 2 : 20) * kMs;
    record_links();
}

void Communicator::record_links() {
    if (recorded_.place == record::Recorder::kNowhere)
        return;
    for (size_t l = 0; l < links_.size(); ++l) {
        const bool is_on = links_[l].link != nullptr && links_[l].why_off.empty();
        const int link = static_cast<int>(l);
        // Shared memory has no rate of its own: it is the cores'.
        const bool has_rate = is_on && links_[l].link->kind() == LinkKind::rail;
        recorded_.recorder->carried(recorded_.place, l,
                                    {.sent = is_on ? counters(link).bytes : 0,
                                     .share = routes_.last_share(link),
                                     .is_on = is_on,
                                     .lost_to = is_on ? routes_.lost_to(link) : -1,
                                     .bytes_per_s = has_rate ? routes_.slowest_rate(link) * 1e9 : 0});
    }
}

void Communicator::record_wait(int64_t since_ns) {
    record::Recorder::Waiting waiting;
    waiting.since_ns = since_ns;
    if (!wait_.awaited.empty())
        waiting.peer = wait_.awaited.front().peer;
    for (const Awaited &awaited : wait_.awaited)
        if (awaited.peer == waiting.peer)
            (awaited.receiving ? waiting.missing : waiting.unacknowledged) += awaited.bytes;
    if (by_links())
        waiting.progress = queue_.progress();
    waiting.progress.part = wait_.part;
    recorded_.recorder->wait(recorded_.place, recorded_.call, waiting);
    recorded_.waits = recorded_.call;
    record_links();
}

/// Of one phase nothing is said that the call does not say.
void Communicator::record_phases(const Pending &pending) {
    if (pending.phases.size() > 1) [[unlikely]]
        for (const PhaseDone &done : pending.phases)
            recorded_.recorder->phase(recorded_.place, pending.call, done);
}

void Communicator::end_wait_record() {
    if (recorded_.waits != 0) [[unlikely]]
        recorded_.recorder->waits_no_more(recorded_.place);
    recorded_.waits = 0;
}

void Communicator::end_record(Pending &pending) {
    record_phases(pending);
    if (recorded_.waits == pending.recorded)  // it was one of several that were waited for at once
        end_wait_record();
    recorded_.recorder->leave(pending.recorded, pending.status);
    pending.recorded = 0;
}

}  // namespace flx
