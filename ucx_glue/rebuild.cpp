/// How a line that was lost comes back. The process with the lower uid leads: when the path answers again it opens a
/// new incarnation (Line::fresh), offers its address in a word over that very path, takes the other's from the answer,
/// and lets echoes of growing size prove the connection before it is used. A loss ends an epoch at both ends.
#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "ucx_glue/failover.h"
#include "ucx_glue/line.h"
#include "ucx_glue/rail_link.h"

namespace flx::ucx {

namespace {

constexpr int64_t kRepeatNs = 100 * kMs;
constexpr int64_t kOfferNs = 1000 * kMs;
constexpr int64_t kProbationNs = 1500 * kMs;
constexpr int64_t kRetryNs = 700 * kMs;
constexpr uint64_t kAnswersWanted = 3;
constexpr uint32_t kEchoBytes[] = {64, 4 << 10, kMostEcho};
constexpr uint32_t kEchoes = std::size(kEchoBytes);
/// Time between a loss that UCX reports and the line in the log: a peer that ends says goodbye meanwhile.
constexpr int64_t kReportAfterNs = 50 * kMs;

}  // namespace

bool Failover::leads(const Target &target) const {
    return uid_ < target.uid;
}

void Failover::tell(const Target &target, uint32_t kind, uint32_t value, const std::string &address, bool everywhere) {
    Word word{kind, target.line->index(), target.far_index, target.epoch, value, static_cast<uint32_t>(address.size())};
    std::string text(reinterpret_cast<const char *>(&word), sizeof word);
    text += address;
    if (target.path >= 0)
        paths_->tell(target.uid, target.path, text.data(), text.size());
    if (everywhere || target.path < 0)
        paths_->tell(target.uid, -1, text.data(), text.size());
}

void Failover::mend(Target &target, int64_t now) {
    if (paths_ == nullptr)
        return;
    if (paths_->process_gone(target.uid)) {
        target.gone = true;
        target.to_report = false;
        return;
    }
    if (target.to_report && now - target.lost_ns >= kReportAfterNs)
        report_loss(target);
    if (target.standing == Standing::probation) {
        if (target.peer->heard != target.heard) {  // it goes on, however slowly
            target.heard = target.peer->heard;
            target.since_ns = now;
        }
        // Who follows waits longer, for the leader's word.
        if (now - target.since_ns > (leads(target) ? 1 : 2) * kProbationNs)
            target.peer->rail->fail_peer(*target.peer, UCS_ERR_TIMED_OUT);
        return;
    }
    if (now - target.told_ns < kRepeatNs)
        return;
    target.told_ns = now;
    if (target.standing == Standing::offered) {
        if (now - target.since_ns > kOfferNs)
            give_up(target, now);
        else
            tell(target, kOfferWord, 0, target.peer->rail->address(), false);
        return;
    }
    tell(target, kLostWord, 0, {}, true);
    if (target.path >= 0)
        paths_->ask_path(target.path);
    if (leads(target) && now >= target.next_offer_ns)
        offer(target, now);
}

void Failover::offer(Target &target, int64_t now) {
    if (target.path >= 0) {
        const PathReport report = paths_->path_report(target.path);
        constexpr int64_t kRecentNs = 400 * kMs;
        if (report.answers < target.answers_when_lost + kAnswersWanted || now - report.answered_ns > kRecentNs)
            return;
    }
    Peer *peer = nullptr;
    std::string address;
    if (const Status status = target.line->fresh(target, peer, address); !status.ok()) {
        target.next_offer_ns = now + kRepeatNs;
        log().debug("{}", status.sentence());
        return;
    }
    target.peer = peer;
    ++target.epoch;
    target.standing = Standing::offered;
    target.since_ns = now;
    tell(target, kOfferWord, 0, address, false);
}

/// The target becomes lost again, after an offer that found no answer or a probation that failed.
void Failover::give_up(Target &target, int64_t now) {
    target.standing = Standing::lost;
    target.since_ns = now;
    target.next_offer_ns = now + kRetryNs;
    target.answers_when_lost = target.path >= 0 ? paths_->path_report(target.path).answers : 0;
}

void Failover::heed(uint64_t uid, const std::string &text) {
    Word word;
    if (text.size() < sizeof word)
        return;
    std::memcpy(&word, text.data(), sizeof word);
    if (text.size() != sizeof word + word.address_bytes)
        return;
    if (word.kind == kAskReachWord || word.kind == kReachWord || word.kind == kRelayedWord) {
        uint64_t about = 0;
        if (word.address_bytes != sizeof about)
            return;
        std::memcpy(&about, text.data() + sizeof word, sizeof about);
        relay_.heed(uid, word, about);
        return;
    }
    for (const Partner &partner : partners_) {
        for (Target *target : partner.targets) {
            if (target->uid != uid)
                break;
            const int64_t now = now_ns();
            if (word.kind == kByeWord) {
                target->gone = true;
                target->to_report = false;
                continue;
            }
            if (target->line->index() != word.to_line || target->far_index != word.from_line)
                continue;
            const bool current = word.epoch == target->epoch;
            switch (word.kind) {
                case kLostWord:
                    if (current && target->standing == Standing::up)
                        lose(*target, "lost at the other end", now);
                    else if (current && target->standing == Standing::probation)
                        target->peer->rail->fail_peer(*target->peer, UCS_ERR_CANCELED);
                    break;
                case kOfferWord:
                    heed_offer(*target, word, text.substr(sizeof word));
                    break;
                case kAcceptWord:
                    if (!current || target->standing != Standing::offered)
                        break;
                    target->peer->rail->connect(*target, text.substr(sizeof word));
                    target->standing = Standing::probation;
                    target->since_ns = now;
                    target->echoes = 0;
                    prove(*target);
                    break;
                case kAskCountWord:
                    if (!current)
                        break;
                    target->peer->rail->progress(true);  // what nobody has read yet has arrived
                    tell(*target, kCountWord, target->peer->received, {}, true);
                    break;
                case kCountWord:
                    if (!current)
                        break;
                    if (target->far_answers++ == 0 || word.value != target->far_received)
                        target->far_changed_ns = now;
                    target->far_received = word.value;
                    break;
                default:
                    break;
            }
            return;
        }
    }
}

void Failover::heed_offer(Target &target, const Word &word, const std::string &address) {
    if (leads(target) || word.epoch < target.epoch || closing_)
        return;
    if (word.epoch > target.epoch) {
        const int64_t now = now_ns();
        if (target.standing == Standing::up)
            lose(target, "lost at the other end", now);
        else if (target.standing == Standing::probation)
            target.peer->rail->fail_peer(*target.peer, UCS_ERR_CANCELED);
        if (!failed_.empty())
            bury();
        Peer *peer = nullptr;
        std::string own;
        if (const Status status = target.line->fresh(target, peer, own); !status.ok()) {
            log().debug("{}", status.sentence());
            return;
        }
        target.peer = peer;
        target.epoch = word.epoch;
        target.standing = Standing::probation;
        target.since_ns = now;
        peer->rail->connect(target, address);
    }
    if (target.standing == Standing::probation)
        tell(target, kAcceptWord, 0, target.peer->rail->address(), false);
}

/// The next echo, or the end of the probation.
void Failover::prove(Target &target) {
    if (target.echoes < kEchoes)
        target.peer->rail->send_echo(*target.peer, kEchoBytes[target.echoes], false);
    else if (target.peer->rail->send_up(*target.peer))
        back(target);
}

void Failover::prove_all() {
    for (Target *target : std::exchange(proven_, {}))
        if (target->standing == Standing::probation)
            prove(*target);
}

void Failover::echoed(Peer &peer, uint32_t bytes) {
    Target *target = peer.target;
    if (closing_ || target == nullptr || target->peer != &peer || target->standing != Standing::probation ||
        !leads(*target) || bytes != kEchoBytes[target->echoes])
        return;
    ++target->echoes;
    proven_.push_back(target);  // UCX is on the stack
}

void Failover::told_up(Peer &peer) {
    Target *target = peer.target;
    if (!closing_ && target != nullptr && target->peer == &peer && target->standing == Standing::probation &&
        !leads(*target))
        back(*target);
}

void Failover::back(Target &target) {
    if (target.to_report)
        report_loss(target);
    target.standing = Standing::up;
    target.heard = target.peer->heard;
    target.quiet_since_ns = now_ns();
    target.far_answers = 0;
    troubled_ -= troubled_ > 0 ? 1 : 0;
    ++counters_.returns;
    log().warn("{} to {} is back", target.line->spec().name, partner(target.process).name);
}

void Failover::close() {
    closing_ = true;
    if (paths_ == nullptr)
        return;
    for (const Partner &partner : partners_) {
        if (partner.targets.empty())
            continue;
        for (int i = 0; i < 2; ++i) {
            const Word word{kByeWord, 0, 0, 0, 0, 0};
            paths_->tell(partner.targets.front()->uid, -1, &word, sizeof word);
        }
    }
}

}  // namespace flx::ucx
