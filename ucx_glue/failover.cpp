#include "ucx_glue/failover.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "ucx_glue/line.h"
#include "ucx_glue/rail_link.h"
#include "ucx_glue/reach.h"

namespace flx::ucx {

namespace {

constexpr int64_t kTickNs = 10 * kMs;
/// So long between two looks means that this process did not run, or was not here.
constexpr int64_t kAbsentNs = 300 * kMs;
/// Quiet for so long while something is unacknowledged: the line is asked.
constexpr int64_t kSuspectNs = 60 * kMs;
constexpr int64_t kLeastAskGapNs = 25 * kMs;
constexpr int64_t kMostAskGapNs = 200 * kMs;
/// By so much the answers of two lines may overtake each other on their way.
constexpr int64_t kAnswersComeNs = 60 * kMs;
/// Shapers drop datagrams when their queue is full: so many in a row are no accident.
constexpr uint32_t kLeastUnanswered = 5;
constexpr int64_t kCountGapNs = 100 * kMs;
/// What a path that answers must at least deliver something in: a chunk takes 100 ms at 10 Mbit/s.
constexpr int64_t kStandstillNs = 1500 * kMs;
constexpr int64_t kSweepNs = 500 * kMs;

}  // namespace

Failover::Failover(uint64_t uid, const RailOptions &options)
    : uid_(uid),
      timeout_ns_(static_cast<int64_t>(options.timeout_s * 1e9)),
      paths_(options.paths),
      reach_(std::make_unique<Reach>()),
      relay_(*this, uid, options) {
    failed_.reserve(16);
}

Failover::~Failover() = default;

void Failover::add(Line &line) {
    lines_.push_back(&line);
    reach_->add(line);
}

void Failover::add(Target &target) {
    if (partners_.size() <= static_cast<size_t>(target.process))
        partners_.resize(target.process + 1);
    partner(target.process).targets.push_back(&target);
}

void Failover::name(int process, std::string text) {
    if (process >= 0 && partners_.size() <= static_cast<size_t>(process))
        partners_.resize(process + 1);
    if (process >= 0)
        partner(process).name = std::move(text);
}

/// Ends connections that failed, and takes their chunks.
void Failover::bury() {
    const int64_t now = now_ns();
    while (!failed_.empty()) {
        Peer &peer = *failed_.back();
        failed_.pop_back();
        peer.rail->close_endpoint(peer);
        Target *target = peer.target;
        if (target == nullptr)
            continue;
        const bool current = target->peer == &peer;
        if (current && target->standing == Standing::up)
            lose(*target, fmt::format("UCX: {}", reason(peer.failure)), now);
        else if (current && target->standing == Standing::probation)
            give_up(*target, now);
        surrender(peer);
        if (peer.rail->clings(peer)) {
            log().debug("{}: UCX still holds chunks for process {}", target->line->spec().name, target->process);
            dying_.push_back(&peer);
        }
    }
    pump();
}

void Failover::surrender(Peer &peer) {
    std::deque<Resend> &queue = partner(peer.target->process).queue;
    for (Resend resend; peer.rail->surrender(peer, resend);) {
        if (resend.home == nullptr && resend.copy == nullptr)
            continue;  // its communicator is gone, and its memory with it
        if (resend.copy != nullptr)
            resend.source = nullptr;
        resend.lost = peer.target;
        queue.push_back(std::move(resend));
        ++waiting_;
        ++counters_.resent;
    }
    std::stable_sort(queue.begin(), queue.end(),
                     [](const Resend &a, const Resend &b) { return a.header.sequence < b.header.sequence; });
}

/// Sends again what waits, each communicator's chunks in their order: one that finds no way keeps back those behind it,
/// but no other communicator's.
void Failover::pump() {
    std::vector<uint32_t> stuck;  // communicators
    for (size_t process = 0; process < partners_.size(); ++process) {
        std::deque<Resend> &queue = partners_[process].queue;
        stuck.clear();
        for (auto next = queue.begin(); next != queue.end();) {
            const uint32_t comm = next->header.comm;
            if (std::find(stuck.begin(), stuck.end(), comm) != stuck.end()) {
                ++next;
            } else if (resend(static_cast<int>(process), *next)) {
                next = queue.erase(next);
                --waiting_;
            } else {
                stuck.push_back(comm);
                ++next;
            }
        }
    }
}

/// Sends it on the line with the least under way of those that are up. Windows do not count: they may be full of chunks
/// of the next operation, which the receiver keeps until it has what is sent again here. What a connection had taken is
/// a window's worth at most.
bool Failover::resend(int process, Resend &resend) {
    const uint32_t comm = resend.header.comm;
    Target *const lost = resend.lost;
    Target *best = nullptr;
    for (Target *target : partner(process).targets)
        if (target->standing == Standing::up && target->peer->failure == UCS_OK && reach_->may_use(*target, comm) &&
            (best == nullptr || target->peer->unacknowledged_bytes < best->peer->unacknowledged_bytes))
            best = target;
    std::string taker;
    if (best != nullptr && best->peer->rail->resend(*best->peer, best->line->link(comm), resend))
        taker = "over " + best->line->spec().name;
    else if (best == nullptr && relays(comm, process) && relay_.resend(process, resend))
        taker = "through " + partner(relay_.via(comm, process)).name;
    if (!taker.empty() && lost != nullptr)
        ++lost->moved[taker];
    return !taker.empty();
}

size_t Failover::waiting(uint32_t comm, int process) const {
    const std::deque<Resend> &queue = partner(process).queue;
    return std::count_if(queue.begin(), queue.end(), [&](const Resend &each) { return each.header.comm == comm; });
}

bool Failover::relays(uint32_t comm, int process) {
    return !reach_->direct(comm, process) && relay_.carries(comm, process);
}

void Failover::adopt(RailLink &link) {
    for (Line *line : lines_)
        line->adopt(link);
}

void Failover::forget(RailLink &link) {
    for (Partner &partner : partners_) {
        for (Resend &resend : partner.queue)
            if (resend.home == &link)
                resend.home = nullptr;
        waiting_ -= std::erase_if(
            partner.queue, [](const Resend &resend) { return resend.home == nullptr && resend.copy == nullptr; });
    }
    relay_.forget(link);
    for (Line *line : lines_)
        line->let_go(link);
}

/// Goes by the clock and not by turns, of which each may take as long as others have the core: a process that looks
/// seldom takes itself for one that did not run, and no peer's silence for that of a line. This clock costs next to
/// nothing.
bool Failover::due() const {
    constexpr int64_t kSecond = 1'000'000'000;
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return now.tv_sec * kSecond + now.tv_nsec - ticked_ns_ >= kTickNs;
}

void Failover::look() {
    uint64_t uid = 0;
    std::string word;
    while (paths_->hear(uid, word))
        heed(uid, word);
    if (!failed_.empty())
        bury();
    const int64_t now = now_ns();
    if (now - ticked_ns_ >= kTickNs)
        tick(now);
}

void Failover::guard_turn() {
    if (!failed_.empty())
        bury();
    if (waiting_ != 0)
        pump();
    if (!proven_.empty())
        prove_all();
    relay_.turn();
    if (paths_ != nullptr)
        look();
}

void Failover::tick(int64_t now) {
    const bool absent = now - ticked_ns_ > kAbsentNs;
    ticked_ns_ = now;
    std::erase_if(dying_, [&](Peer *peer) {
        surrender(*peer);
        return !peer->rail->clings(*peer);
    });
    size_t troubled = 0;
    for (const Partner &partner : partners_) {
        for (Target *target : partner.targets) {
            if (absent)
                target->quiet_since_ns = target->far_changed_ns = now;
            if (target->standing == Standing::up) {
                watch(*target, now);
                continue;
            }
            const bool wanted = !target->gone && target->line->wanted(*target);
            if (wanted)
                mend(*target, now);
            troubled += wanted && target->standing != Standing::up ? 1 : 0;
        }
    }
    troubled_ = troubled;
    if (now - swept_ns_ > kSweepNs && failed_.empty()) {
        swept_ns_ = now;
        for (Line *line : lines_)
            line->close_unused();
    }
    if (!failed_.empty())
        bury();
    relay_.tick(now);
    if (waiting_ != 0)
        pump();
}

/// Whether the process has answered what it was asked well into the silence of a path, and again what it was asked when
/// the path's own answer would have been here. Where a host has no core for its answers, or this one for reading them,
/// all lines fall silent, one after the other and for as long as that lasts. So no time says anything by itself: what
/// counts is which question was answered, as the process answers first what came to it over paths before.
bool Failover::answers_elsewhere(Target &target, const PathReport &report, int64_t now) const {
    if (report.answers != target.path_answers) {
        target.path_answers = report.answers;
        target.elsewhere_since_ns = 0;
    }
    const int64_t asked = std::max(paths_->process_answered_ns(target.uid), relay_.heard_by_others_ns(target.process));
    if (target.elsewhere_since_ns == 0 && asked >= now - report.silent_ns + timeout_ns_ / 3)
        target.elsewhere_since_ns = now;
    return target.elsewhere_since_ns != 0 && asked >= target.elsewhere_since_ns + kAnswersComeNs;
}

void Failover::watch(Target &target, int64_t now) {
    const Peer &peer = *target.peer;
    const bool waits = peer.unacknowledged_chunks != 0 || peer.remote.state() == RemoteRing::State::asked;
    if (!waits || peer.heard != target.heard) {
        target.heard = peer.heard;
        target.quiet_since_ns = now;
        target.elsewhere_since_ns = 0;
        target.far_answers = 0;
        return;
    }
    const int64_t quiet = now - target.quiet_since_ns;
    if (quiet < kSuspectNs)
        return;
    if (now - target.asked_ns >= std::clamp(quiet / 8, kLeastAskGapNs, kMostAskGapNs)) {
        target.asked_ns = now;
        if (target.path >= 0)
            paths_->ask_path(target.path);
        paths_->ask_process(target.uid);
    }
    if (target.path >= 0) {
        const PathReport report = paths_->path_report(target.path);
        const bool alone = answers_elsewhere(target, report, now);
        if (report.silent_ns >= timeout_ns_ && report.unanswered >= kLeastUnanswered && alone) {
            lose(target, fmt::format("no answer for {:.1f} s", report.silent_ns / 1e9), now);
            return;
        }
        if (report.unanswered >= kLeastUnanswered)
            return;
    }
    if (quiet < timeout_ns_)
        return;
    if (target.far_answers > 0 && target.far_received == peer.sent) {
        // It has everything, and takes its time. What is sent to it from now on is missing since now.
        target.far_answers = 1;
        target.far_changed_ns = now;
        return;
    }
    if (now - target.count_asked_ns >= kCountGapNs) {
        target.count_asked_ns = now;
        tell(target, kAskCountWord, 0, {}, true);
    }
    constexpr uint32_t kAnswers = 3;
    if (target.far_answers >= kAnswers && now - target.far_changed_ns >= std::max(kStandstillNs, 3 * timeout_ns_))
        lose(target, fmt::format("nothing has arrived there for {:.1f} s", (now - target.far_changed_ns) / 1e9), now);
}

void Failover::lose(Target &target, std::string why, int64_t now) {
    target.standing = Standing::lost;
    target.why = std::move(why);
    target.lost_ns = target.since_ns = now;
    target.told_ns = 0;
    target.moved.clear();
    target.next_offer_ns = now;
    target.answers_when_lost = target.path >= 0 && paths_ != nullptr ? paths_->path_report(target.path).answers : 0;
    target.to_report = !target.gone;
    ++troubled_;
    ++counters_.losses;
    target.peer->rail->fail_peer(*target.peer, UCS_ERR_CANCELED);
}

/// Says what became of the chunks that the line had taken, not what might.
void Failover::report_loss(Target &target) {
    target.to_report = false;
    const Partner &to = partner(target.process);
    std::vector<std::string> parts;
    for (const auto &[taker, chunks] : target.moved)
        parts.push_back(fmt::format("{} chunks re-sent {}", chunks, taker));
    const auto waiting =
        std::count_if(to.queue.begin(), to.queue.end(), [&](const Resend &each) { return each.lost == &target; });
    if (waiting != 0)
        parts.push_back(fmt::format("{} chunks wait for a rail", waiting));
    if (parts.empty())
        parts.emplace_back("no chunk was under way");
    log().warn("{} to {} lost ({}), {}", target.line->spec().name, to.name, target.why, fmt::join(parts, ", "));
}

Status Failover::error(uint32_t comm, const Target &target, int rank, int64_t deadline_ns) {
    if (target.standing == Standing::up || reach_->direct(comm, target.process) || relay_.carries(comm, target.process))
        return {};
    const Partner &to = partner(target.process);
    int64_t last = relay_.carried_ns(comm, target.process);
    std::vector<std::string> reasons;
    reach_->each(comm, target.process, [&](const Target &lost) {
        last = std::max(last, lost.lost_ns);
        reasons.push_back(fmt::format("{} ({})", lost.line->spec().name, lost.why));
    });
    const bool mends = paths_ != nullptr && !target.gone;
    if (mends && (now_ns() - last < deadline_ns || relay_.seeks(comm, target.process)))
        return {};
    std::string others;
    for (const Target *other : to.targets)
        if (other->standing == Standing::up)
            others += fmt::format("; {} works, but is not among this communicator's links", other->line->spec().name);
    std::sort(reasons.begin(), reasons.end());
    size_t bytes = 0;
    for (const Resend &resend : to.queue)
        bytes += resend.header.comm == comm ? resend.header.bytes : 0;
    return fail(Fault::rails_lost,
                "rank {}{} is out of reach: every rail to it is lost: {}{}; {} B wait to be sent again", rank,
                to.name.empty() ? "" : " on " + to.name, fmt::join(reasons, ", "), others, bytes);
}

}  // namespace flx::ucx
