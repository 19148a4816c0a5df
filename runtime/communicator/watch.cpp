/// The communicator as a Watch: what a wait looks at besides the links. Who died, who is stopped, who is merely late.
///
/// All ranks shall name the rank that died first, not one that gave up because of it. So whoever gives up first writes
/// on the board of its host and tells the ranks of other hosts; and whoever finds a rank gone looks there again before
/// it says so.
#include <time.h>

#include "runtime/base/clock.h"
#include "runtime/base/core_share.h"
#include "runtime/base/log.h"
#include "runtime/communicator/communicator.h"
#include "runtime/link/board.h"
#include "runtime/process/outside_waits.h"

namespace flx {
namespace {

constexpr int64_t kLookNs = 100'000'000;
constexpr int64_t kAskAfterNs = 250'000'000;
/// A notice that was sent before a process ended is there after this.
constexpr int64_t kNoticeNs = 20'000'000;
constexpr double kNsPerSecond = 1e9;

void nap(int64_t ns) {
    const timespec time{0, ns};
    nanosleep(&time, nullptr);
}

}  // namespace

void Communicator::outlasted() {
    policies_.outlasted();
}

void Communicator::progress_outside() {
    if (!entry_.in_thread)  // which never calls MPI
        bootstrap_->progress();
}

bool Communicator::awaited_outside(int64_t now) {
    return OutsideWaits::of_process().seen(now);
}

void Communicator::progress() {
    progress_outside();
    if (rails_ != nullptr)
        rails_->progress();
    if (!entry_.thread)  // which moves them all
        process_->move_others(this);
}

/// What ranks of this host have to say wakes nobody, and the program's own traffic wants to be looked at.
bool Communicator::doze() {
    constexpr int64_t kMostNs = 500'000;
    if (rails_ == nullptr || !rails_->doze(layout_.here > 1 ? policies_.first().sleep_ns : kMostNs))
        return wait_.woken = false;
    wait_.woken = layout_.here == 1;
    return true;
}

/// What a rank that gave up has said, if one did.
Status Communicator::hear() {
    Status why;
    wait_.told = told_broken(why);
    return why;
}

bool Communicator::told_broken(Status &why) const {
    return (memory_.board != nullptr && memory_.board->read(why)) || process_->liveness().told_broken(id_, why);
}

Status Communicator::died(int rank, const std::string &what) {
    nap(kNoticeNs);
    FLX_TRY(hear());
    return fail(Fault::peer_died, "{} died during {}", layout_.describe(rank), what);
}

/// A death on this host is an error wherever the dead rank stands in the schedule: nobody can finish without it.
Status Communicator::check_host(const std::string &what) {
    for (int peer = 0; memory_.segment && peer < layout_.size; ++peer)
        if (peer != layout_.rank && layout_.members[peer].host == layout_.host &&
            !memory_.segment->alive(layout_.members[peer].local) && !has_left(peer))
            return died(peer, what.empty() ? describe_operation() : what);
    return {};
}

/// One that gave up does not come, and is not waited for. Who hears of it while others may just have come waits a
/// little, so that all pass or none.
Status Communicator::meet_again(CallKind what) {
    constexpr int64_t kGraceNs = 1'000'000'000;
    FLX_TRY(usable());
    CallRecord meeting;
    meeting.kind = what;
    struct Meets {
        CallLog &log;
        ~Meets() { log.meet(nullptr); }
    };
    const Meets meets{calls_};
    calls_.meet(&what);
    Status why;
    if (told_broken(why)) {
        give_up(why);
        return why;
    }
    const int64_t began_ns = now_ns();
    int64_t looked_ns = 0;
    const auto look = [&]() -> Status {
        FLX_TRY(usable());
        Status told;
        if (told_broken(told))
            return told;
        if (now_ns() - looked_ns < kLookNs)
            return {};
        looked_ns = now_ns();
        FLX_TRY(check_host(to_string(meeting)));
        if (looked_ns - began_ns < ask_after_ns())
            return {};
        const auto lock = guard();
        wait_.way = Way::scheduled;
        process_->blocked_call().set({id_, process_->alone() ? 1U : 0U, calls_.count() + 1, meeting});
        for (int peer = 0; peer < layout_.size; ++peer) {
            if (peer == layout_.rank)
                continue;
            ask(peer);
            if (Status status = check_calls(peer); !status.ok()) {
                give_up(status);  // at once, as others wait for it elsewhere
                return status;
            }
        }
        return {};
    };
    int64_t broke_ns = 0;
    Status status = bootstrap_->meet([&]() -> Status {
        process_->move_others(nullptr);
        if (why.ok()) {
            why = look();
            broke_ns = now_ns();
        }
        return now_ns() - broke_ns > kGraceNs ? why : Status();
    });
    process_->blocked_call().clear(id_);
    if (!status.ok())
        give_up(status);
    return status;
}

/// A wait looks every few milliseconds. Where a second goes by between two looks, a signal or a debugger had stopped
/// this process, or it had no core: nobody else is late by that.
void Communicator::note_stop(int64_t now, int64_t waited_ns) {
    constexpr int64_t kStoppedNs = 1'000'000'000;
    const int64_t began_ns = now - waited_ns;
    if (wait_.looked_ns < began_ns)
        wait_.stopped_ns = 0;  // this is the wait's first look
    if (const int64_t gap_ns = now - std::max(wait_.looked_ns, began_ns); gap_ns > kStoppedNs)
        wait_.stopped_ns += gap_ns;
}

Status Communicator::check(int64_t waited_ns) {
    FLX_TRY(hear());
    const int64_t now = now_ns();
    if (now - wait_.looked_ns < kLookNs)
        return {};
    note_stop(now, waited_ns);
    wait_.looked_ns = now;
    FLX_TRY(check_host());
    if (!by_links())
        wait_.awaited.assign(1, Awaited{on_host_.waiting_for(), true, 0});
    else
        queue_.awaited(wait_.awaited);
    record_wait(now - waited_ns);
    const bool settling = wait_.awaited.empty();
    for (int peer = 0; settling && peer < layout_.size; ++peer)
        if (peer != layout_.rank)
            wait_.awaited.push_back({peer, false, 0});
    bool answering = true;
    if (!settling && waited_ns > ask_after_ns())
        tell_blocked();
    for (const Awaited &awaited : wait_.awaited)
        if (awaited.peer >= 0)
            FLX_TRY(check_peer(awaited, waited_ns, answering));
    // A wait may be made of several calls, each of which looks for a moment.
    const int64_t ran_ns = waited_ns - wait_.stopped_ns;
    const bool late = ran_ns > knobs_.late_warning_s * kNsPerSecond;
    wait_.warned = wait_.warned && late;
    if (!wait_.warned && answering && !settling && late) {
        wait_.warned = true;
        const int peer = wait_.awaited.front().peer;
        log().warn("{} waits for {} since {:.0f} s: it runs, but is late{}", describe_operation(),
                   layout_.describe(peer), ran_ns / kNsPerSecond, what_it_does(peer));
        process_->reporter().report(fmt::format("{} is late", layout_.describe(peer)));
    }
    return {};
}

/// Ranks leave the closing barrier one after the other: what the last ones need of the first is on its way to them.
bool Communicator::has_left(int rank) const {
    return memory_.board != nullptr && layout_.members[rank].host == layout_.host &&
           memory_.board->has_left(layout_.members[rank].local);
}

/// A rank that waits for less asks nobody anything.
int64_t Communicator::ask_after_ns() const {
    return std::min(kAskAfterNs, static_cast<int64_t>(knobs_.deadline_s * kNsPerSecond) / 4);
}

Status Communicator::check_peer(const Awaited &awaited, int64_t waited_ns, bool &answering) {
    const auto deadline_ns = static_cast<int64_t>(knobs_.deadline_s * kNsPerSecond);
    if (waited_ns < ask_after_ns() || has_left(awaited.peer))
        return {};
    const PeerReport report = ask(awaited.peer);
    answering = answering && report.answers != 0 && report.silent_ns < kLookNs;
    const auto what = [&] {
        if (!by_links())
            return describe_operation();
        return fmt::format("{} ({} {} B)", describe_operation(), awaited.receiving ? "missing" : "unacknowledged",
                           awaited.bytes);
    };
    if (report.refused)
        return died(awaited.peer, what());
    if (report.silent_ns > deadline_ns - ask_after_ns())
        return silent(awaited.peer, report, what());
    FLX_TRY(check_calls(awaited.peer));
    return check_given(awaited);
}

PeerReport Communicator::ask(int rank) {
    Liveness &liveness = process_->liveness();
    liveness.ask(layout_.members[rank].uid, id_, asked_call());
    return liveness.report(layout_.members[rank].uid);
}

Status Communicator::silent(int rank, const PeerReport &report, const std::string &what) const {
    return fail(Fault::peer_silent, "{} has not answered for {:.1f} s (stopped, or its host is unreachable) during {}",
                layout_.describe(rank), report.silent_ns / kNsPerSecond, what);
}

/// A link that fails may be a peer that died, or one that gave up and closed its end: asks all before it is called the
/// link's error. Takes until all have answered, at most the deadline.
Status Communicator::investigate(Status status) {
    // A peer that gave up may have freed what this rank was reading or writing there: why it did is the reason.
    if (status.code() == FLX_ERR_SYSTEM)
        FLX_TRY(hear());
    if (status.code() == FLX_ERR_MISMATCH && !wait_.told && !wait_.named)
        return name_mismatch(std::move(status));
    if (status.code() != FLX_ERR_LINK)
        return status;
    const auto deadline_ns = static_cast<int64_t>(knobs_.deadline_s * kNsPerSecond);
    std::vector<uint64_t> answers(layout_.size);
    for (int peer = 0; peer < layout_.size; ++peer)
        answers[peer] = process_->liveness().report(layout_.members[peer].uid).answers;
    // An answer that was under way before the peer died says nothing: two are wanted.
    constexpr uint64_t kAnswers = 2;
    for (;;) {
        FLX_TRY(hear());
        FLX_TRY(check_host());
        bool all = true;
        for (int peer = 0; peer < layout_.size; ++peer) {
            if (peer == layout_.rank || has_left(peer))
                continue;
            const PeerReport report = ask(peer);
            if (report.refused)
                return died(peer, fmt::format("{} ({})", describe_operation(), status.words()));
            if (report.silent_ns > deadline_ns)
                return silent(peer, report, describe_operation());
            all = all && report.answers - answers[peer] >= kAnswers;
        }
        if (all)
            return status;
        progress();
        nap(kNoticeNs);
    }
}

std::string Communicator::describe_operation() const {
    if (wait_.operation == nullptr)
        return "no operation";
    if (wait_.operation->sequence == 0)
        return fmt::format("{} of communicator {}", algorithms::name_of(wait_.operation->collective), id_);
    return fmt::format("{} #{} of communicator {}", algorithms::name_of(wait_.operation->collective),
                       wait_.operation->sequence, id_);
}

Status Communicator::declare_broken(Status status) {
    broken_ = status;
    recorded_.recorder->broken(recorded_.place, status.sentence());
    log().error("{}", status.sentence());
    // Sentences about peers and calls hold for everyone; others are this rank's own trouble.
    const bool common = status.code() == FLX_ERR_PEER || status.code() == FLX_ERR_MISMATCH;
    const Status shared =
        common || wait_.told ? status : status.behind(fmt::format("{} gave up: ", layout_.describe(layout_.rank)));
    if (memory_.board != nullptr)
        memory_.board->write(shared);
    std::vector<uint64_t> peers;
    for (int peer = 0; peer < layout_.size && !wait_.told; ++peer)
        if (peer != layout_.rank)
            peers.push_back(layout_.members[peer].uid);
    process_->liveness().declare_broken(id_, shared, peers);
    routes_.drop_lent();
    // The caller may free its buffers now: what is under way from them on a rail must end first.
    for (LinkSlot &slot : links_) {
        if (slot.is_rail()) {
            slot.link.reset();
            slot.why_off = "the communicator is broken";
        }
    }
    if (!wait_.told)
        process_->reporter().report(fmt::format("communicator {} is broken", id_));
    return status;
}

}  // namespace flx
