/// Calls that do not match: what a rank that waits for long learns from those that it waits for
/// (runtime/plan/call_log.h), and when that contradicts. A rank that has not made a call yet is late, however long, and
/// never a contradiction by itself.
///
/// Four things are: another call of the same number; a peer that is done with a call of which this rank still waits for
/// something; one that waits to duplicate or split the communicator, for this rank, which waits in a call for it; and
/// one that cannot make its call before this rank makes one on another communicator, which waits here.
#include <time.h>

#include "runtime/base/clock.h"
#include "runtime/communicator/communicator.h"

namespace flx {

/// One that is no operation.
void Communicator::note_call(CallKind what) {
    CallRecord call;
    call.kind = what;
    call.signature = 0x9E3779B9U * (static_cast<uint32_t>(what) + 1);
    calls_.note(call);
}

/// Which call peers are asked about: an answer has those before it, too, so the oldest that is under way is among them.
uint64_t Communicator::asked_call() const {
    const uint64_t oldest = queue_.oldest_call(calls_.count());
    return std::min(calls_.count(), oldest + CallAnswer::kRecords - 1);
}

/// The call that must complete before this rank can do anything else; 0: none, or one that has no number.
uint64_t Communicator::blocked_call() const {
    return by_links() ? wait_.call : calls_.count();
}

void Communicator::tell_blocked() {
    if (calls_.meeting_word() != 0)
        return;  // it is blocked in a meeting, which moves calls that do not block, and says so itself
    const uint64_t number = blocked_call();
    const std::optional<CallRecord> call = calls_.read(number);
    if (!call)
        return;
    process_->blocked_call().set({id_, process_->alone() ? 1U : 0U, number, *call});
    wait_.told_blocked = true;
}

void Communicator::leave_blocked() {
    process_->blocked_call().clear(id_);
    wait_.told_blocked = false;
}

Status Communicator::mismatch(int peer, const Contradiction &found) {
    wait_.named = true;
    if (found.earlier)
        return fail(Fault::calls_differ,
                    "calls do not match: rank {} and rank {} have not made the same calls on communicator {} before "
                    "call {}, {}",
                    layout_.name(layout_.rank), layout_.name(peer), id_, found.number, to_string(found.own));
    const std::string own = to_string(found.own);
    const std::string theirs = to_string(found.theirs);
    return fail(Fault::calls_differ,
                "calls do not match: rank {} is in call {} of communicator {}, {}; rank {} in call {}, {}{}",
                layout_.name(layout_.rank), found.number, id_, own, layout_.name(peer), found.number, theirs,
                own == theirs ? "; counts of some rank, or types or reductions of the program's own, differ" : "");
}

/// What `peer` has said since it was asked.
Status Communicator::check_calls(int peer) {
    const Liveness::Said said = process_->liveness().said(layout_.members[peer].uid, id_);
    CallAnswer theirs;
    const std::optional<size_t> calls = read_answer(said.bytes, theirs);
    if (!calls)
        return {};
    if (const std::optional<Contradiction> found = contradiction(calls_, theirs, *calls))
        return mismatch(peer, *found);
    FLX_TRY(check_meeting(peer, theirs, said.times));
    return check_crossed(peer, theirs, said.times);
}

/// Neither can go on: the peer's meeting needs this rank, and this rank's call needs the peer.
Status Communicator::check_meeting(int peer, const CallAnswer &theirs, uint64_t times) {
    const std::optional<CallKind> what = CallLog::meeting_of(static_cast<uint32_t>(theirs.meeting));
    const uint64_t number = blocked_call();
    if (!what || calls_.meeting_word() != 0 || number == 0 || theirs.count >= number)
        return {};
    const std::optional<CallRecord> call = calls_.read(number);
    if (!call || !needs(*call, layout_.rank, peer) ||
        !seen_again(wait_.crossed[static_cast<size_t>(peer)], {{number, id_, theirs.count, theirs.meeting}, times}))
        return {};
    CallRecord meeting;
    meeting.kind = *what;
    wait_.named = true;
    return fail(Fault::calls_differ,
                "calls do not match: rank {} is in call {} of communicator {}, {}; rank {} in {} of it, after call {}",
                layout_.name(layout_.rank), number, id_, to_string(*call), layout_.name(peer), to_string(meeting),
                theirs.count);
}

/// Whether it was so before, and the peer has been asked since.
bool Communicator::seen_again(Seen &before, const Seen &now) {
    if (before.facts == now.facts && before.times != 0)
        return now.times > before.times;
    before = now;
    before.since_ns = now_ns();
    return false;
}

/// Messages may be missing though the calls match: counts of both sides differ. Where rails carry them, one that has
/// arrived may be acknowledged late, and one that was given to a rail, as a copy, may be under way for as long as the
/// rail is out of order, or slow: that is a contradiction only if the deadline passes without more.
Status Communicator::check_given(const Awaited &awaited) {
    if (!by_links() || !queue_.runs_one() || (!awaited.receiving && rails_ != nullptr))
        return {};
    const Pending &pending = *queue_.oldest_pending();
    const uint64_t number = pending.call;
    if (pending.plan != nullptr || number == 0 || pending.last_call != number)
        return {};
    const Liveness::Said said = process_->liveness().said(layout_.members[awaited.peer].uid, id_);
    CallAnswer theirs;
    const std::optional<size_t> calls = read_answer(said.bytes, theirs);
    const uint64_t newest = std::min(theirs.asked, theirs.count);
    if (!calls || number > newest || newest - number >= *calls || theirs.calls[newest - number].done == 0)
        return {};
    if (theirs.calls[newest - number].kind == CallKind::grouped)  // beside sends and receives, which match by pairs
        return {};
    const size_t place = 2 * static_cast<size_t>(awaited.peer) + (awaited.receiving ? 1 : 0);
    const std::optional<CallRecord> own = calls_.read(number);
    if (!own || !seen_again(wait_.given[place], {{number, awaited.bytes, own->signature, 0}, said.times, 0}))
        return {};
    constexpr double kMostPatienceS = 60;  // under flx-run the deadline is a day
    if (rails_ != nullptr && !layout_.near(awaited.peer) &&
        static_cast<double>(now_ns() - wait_.given[place].since_ns) < std::min(knobs_.deadline_s, kMostPatienceS) * 1e9)
        return {};
    wait_.named = true;
    return fail(Fault::bytes_differ,
                "calls do not match: rank {} is in call {} of communicator {}, {}, which is complete on rank {} though "
                "{} B {} it are missing; the counts of both sides must agree",
                layout_.name(layout_.rank), number, id_, to_string(*own), layout_.name(awaited.peer), awaited.bytes,
                awaited.receiving ? "from" : "for");
}

/// The peer waits on another communicator for a call that this rank has not made, and cannot make, as it waits here for
/// one that the peer has not made. Only where programs call from one thread: another one might make that call.
Status Communicator::check_crossed(int peer, const CallAnswer &theirs, uint64_t times) {
    const uint64_t number = blocked_call();
    const BlockedIn &there = theirs.blocked;
    if (number == 0 || theirs.count >= number || there.comm == 0 || there.comm == id_ || there.alone == 0 ||
        !process_->alone())
        return {};
    const std::optional<CallRecord> call = calls_.read(number);
    auto *const other = static_cast<Communicator *>(process_->find(there.comm));
    if (!call || other == nullptr || other->entry_.inside || other->calls_.count() >= there.number)
        return {};
    const auto member = std::ranges::find(other->layout_.members, layout_.members[peer].uid, &Member::uid);
    if (member == other->layout_.members.end() || !needs(*call, layout_.rank, peer) ||
        !needs(there.call, static_cast<int>(member - other->layout_.members.begin()), other->layout_.rank))
        return {};
    if (!seen_again(wait_.crossed[static_cast<size_t>(peer)], {{number, there.comm, there.number, 0}, times, 0}))
        return {};
    wait_.named = true;
    Status status = fail(Fault::calls_cross,
                         "calls on two communicators cross: rank {} is in call {} of communicator {}, {}, and waits "
                         "for rank {} there, which waits for it in call {} of communicator {}, {}",
                         layout_.name(layout_.rank), number, id_, to_string(*call), layout_.name(peer), there.number,
                         there.comm, to_string(there.call));
    other->give_up(status);
    return status;
}

/// Chunks and boards tell that a call is not this rank's, not which it is: its rank does, within a moment.
Status Communicator::name_mismatch(Status status) {
    constexpr int64_t kPatienceNs = 1'500'000'000;
    constexpr timespec kNap{0, 2'000'000};
    std::vector<uint64_t> before(static_cast<size_t>(layout_.size));
    for (int peer = 0; peer < layout_.size; ++peer)
        before[static_cast<size_t>(peer)] = process_->liveness().said(layout_.members[peer].uid, id_).times;
    const int64_t began = now_ns();
    for (bool all = false; !all && now_ns() - began < kPatienceNs;) {
        FLX_TRY(hear());
        all = true;
        for (int peer = 0; peer < layout_.size; ++peer) {
            if (peer == layout_.rank)
                continue;
            ask(peer);
            FLX_TRY(check_calls(peer));
            all = all &&
                  process_->liveness().said(layout_.members[peer].uid, id_).times > before[static_cast<size_t>(peer)];
        }
        nanosleep(&kNap, nullptr);
    }
    return status;
}

/// For a warning: how far a late peer is.
std::string Communicator::what_it_does(int peer) const {
    const Liveness::Said said = process_->liveness().said(layout_.members[peer].uid, id_);
    CallAnswer theirs;
    if (!read_answer(said.bytes, theirs))
        return {};
    std::string text;
    if (theirs.count < calls_.count())
        text = fmt::format("; it has made {} calls here, this rank {}", theirs.count, calls_.count());
    if (theirs.blocked.comm != 0 && theirs.blocked.comm != id_)
        text += fmt::format("; it waits in call {} of communicator {}, {}", theirs.blocked.number, theirs.blocked.comm,
                            to_string(theirs.blocked.call));
    return text;
}

}  // namespace flx
