#include "ucx_glue/relay.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "ucx_glue/failover.h"
#include "ucx_glue/line.h"
#include "ucx_glue/rail_link.h"
#include "ucx_glue/reach.h"

namespace flx::ucx {

namespace {

constexpr int64_t kAskGapNs = 100 * kMs;
/// Others that are asked at a time, in turn: each of them asks in its turn, and where many seek at once questions would
/// take the cores that answers need.
constexpr int kAskedAtOnce = 4;
/// So long an answer holds: any datagram may get lost, and a busy machine answers late.
constexpr int64_t kValidNs = 3000 * kMs;
/// When no acknowledgement has come for so long, everything under way is sent again, later after twice the time: the
/// receiver may only be late.
constexpr int64_t kPatienceNs = 1000 * kMs;
constexpr int64_t kMostPatienceNs = 2000 * kMs;
constexpr int64_t kAvoidNs = 5000 * kMs;
constexpr int64_t kHurriedNs = 200 * kMs;
/// A caller that waits asks all the time, so a search ends after kWantedNs without a question. A search may take
/// kSeekNs.
constexpr int64_t kWantedNs = 2000 * kMs;
constexpr int64_t kSeekNs = 1000 * kMs;
constexpr uint32_t kNoComm = 0;
constexpr size_t kAcksAtOnce = 1024;

}  // namespace

Relay::Relay(Failover &failover, uint64_t uid, const RailOptions &options)
    : failover_(failover),
      uid_(uid),
      window_(options.window_bytes),
      most_bytes_(options.relay_bytes < options.chunk_bytes ? 0 : options.relay_bytes),
      timeout_ns_(static_cast<int64_t>(options.timeout_s * 1e9)) {}

Relay::~Relay() = default;

Relay::Way &Relay::way(int process) {
    if (static_cast<size_t>(process) >= ways_.size())
        ways_.resize(static_cast<size_t>(process) + 1);
    return ways_[static_cast<size_t>(process)];
}

const Relay::Detour *Relay::find(uint32_t comm, int process) const {
    if (static_cast<size_t>(process) >= ways_.size())
        return nullptr;
    const auto &detours = ways_[static_cast<size_t>(process)].detours;
    const auto found = detours.find(comm);
    return found == detours.end() ? nullptr : &found->second;
}

bool Relay::carries(uint32_t comm, int process) {
    Detour &detour = way(process).detours[comm];
    const int64_t now = now_ns();
    if (now - detour.wanted_ns > kWantedNs)
        detour.began_ns = now;
    detour.wanted_ns = now;
    return detour.carries;
}

int Relay::via(uint32_t comm, int process) const {
    const Detour *detour = find(comm, process);
    return detour == nullptr ? -1 : detour->via;
}

int64_t Relay::carried_ns(uint32_t comm, int process) const {
    const Detour *detour = find(comm, process);
    return detour == nullptr ? 0 : detour->carried_ns;
}

bool Relay::seeks(uint32_t comm, int process) const {
    const Detour *detour = find(comm, process);
    return detour != nullptr && now_ns() - detour->began_ns < kSeekNs;
}

int64_t Relay::heard_by_others_ns(int process) const {
    return static_cast<size_t>(process) < ways_.size() ? ways_[static_cast<size_t>(process)].heard_ns : 0;
}

int Relay::process_of(uint64_t uid) const {
    for (const Failover::Partner &partner : failover_.partners_)
        if (!partner.targets.empty() && partner.targets.front()->uid == uid)
            return partner.targets.front()->process;
    return -1;
}

bool Relay::hurried() const {
    return active_ && now_ns() - moved_ns_ < kHurriedNs;
}

/// Whether the communicator has a line to the process, which need not be of it.
bool Relay::has_line(uint32_t comm, int process) const {
    const auto &targets = failover_.partner(process).targets;
    return std::any_of(targets.begin(), targets.end(), [&](const Target *target) {
        return target->standing == Standing::up && failover_.reach().may_leave(*target->line, comm);
    });
}

/// Of those lines, the one with the least under way whose path answers. It has to answer, since chunks that are relayed
/// are not counted: a line that carries nothing else would not be found lost. Null: there is none.
Target *Relay::live(uint32_t comm, int process, int64_t now) const {
    Target *best = nullptr;
    if (process < 0 || static_cast<size_t>(process) >= failover_.partners_.size())
        return best;
    const Paths &paths = *failover_.paths_;
    for (Target *target : failover_.partner(process).targets) {
        if (target->standing != Standing::up || target->gone || target->peer->failure != UCS_OK ||
            !failover_.reach().may_leave(*target->line, comm))
            continue;
        const int64_t answered =
            target->path >= 0 ? paths.path_report(target->path).answered_ns : paths.process_answered_ns(target->uid);
        if (answered == 0 || now - answered >= kValidNs)
            continue;
        if (best == nullptr || target->peer->unacknowledged_bytes < best->peer->unacknowledged_bytes)
            best = target;
    }
    return best;
}

/// Asks all lines to the process; until the answers come, live() says no.
void Relay::ask_lines(int process) const {
    Paths &paths = *failover_.paths_;
    for (const Target *target : failover_.partner(process).targets) {
        if (target->standing != Standing::up)
            continue;
        if (target->path >= 0)
            paths.ask_path(target->path);
        paths.ask_process(target->uid);
    }
}

// The origin's part.

bool Relay::has_room(const Detour &detour, size_t bytes) {
    const auto word = std::find_if(detour.words.begin(), detour.words.end(),
                                   [&](const Word &each) { return each.process == detour.via; });
    return detour.chunks == 0 || (word != detour.words.end() && detour.bytes + bytes <= word->grant);
}

SendResult Relay::send(int process, RailLink &link, int rank, const ChunkHeader &header, const void *data) {
    if (!has_room(way(process).detours[header.comm], header.bytes))
        return SendResult::busy;
    link.went_astray();
    start(process, {&link, rank, header, data, nullptr, nullptr});
    return SendResult::in_flight;
}

/// What is older than something under way goes past a full window: the receiver may hold all of that until it has this.
bool Relay::resend(int process, Resend &resend) {
    Way &to = way(process);
    const bool older = std::any_of(to.under_way.begin(), to.under_way.end(), [&](const auto &entry) {
        return resend.header.comm == entry.second.header.comm && resend.header.sequence < entry.second.header.sequence;
    });
    if (!has_room(to.detours[resend.header.comm], resend.header.bytes) && !older)
        return false;
    start(process, std::move(resend));
    return true;
}

void Relay::start(int process, Resend &&resend) {
    Way &to = way(process);
    Detour &detour = to.detours[resend.header.comm];
    if (detour.chunks == 0) {
        detour.moved_ns = now_ns();
        detour.patience_ns = kPatienceNs;
    }
    ++detour.chunks;
    detour.bytes += resend.header.bytes;
    const uint32_t number = to.next_number++;
    const auto entry = to.under_way.emplace(number, std::move(resend)).first;
    active_ = true;
    transmit(process, number, entry->second);
}

/// What finds no line now is sent again later, as what is lost on the way.
void Relay::transmit(int process, uint32_t number, const Resend &resend) {
    const Way &to = way(process);
    const uint32_t comm = resend.header.comm;
    RelayWire wire{};
    wire.from = uid_;
    wire.to = failover_.partner(process).targets.front()->uid;
    wire.kind = RelayWire::kChunk;
    wire.number = number;
    wire.base = to.under_way.begin()->first;
    wire.header = resend.header;
    wire.line = RelayWire::kAnyLine;
    if (resend.home != nullptr)
        if (const Target *target = resend.home->target_of(resend.rank); target != nullptr)
            wire.line = target->far_index;
    const void *source = resend.copy != nullptr ? resend.copy.get() : resend.source;
    // A copy, so that acknowledgements alone decide when the caller has its memory back.
    std::vector<std::byte> payload(resend.header.bytes);
    std::memcpy(payload.data(), source, payload.size());
    post(via(comm, process), wire, payload, 0);
}

/// Takes `payload` if it was sent.
bool Relay::post(int via, RelayWire wire, std::vector<std::byte> &payload, size_t counted) {
    wire.hop = uid_;
    const Target *target = live(wire.header.comm, via, moved_ns_ = now_ns());
    return target != nullptr && target->peer->rail->send_relay(*target->peer, wire, payload, counted);
}

void Relay::acknowledged(const RelayWire &wire, const void *numbers, size_t bytes) {
    const int process = process_of(wire.from);
    if (process < 0)
        return;
    Way &from = way(process);
    moved_ns_ = now_ns();
    for (size_t at = 0; at + sizeof(uint32_t) <= bytes; at += sizeof(uint32_t)) {
        uint32_t number = 0;
        std::memcpy(&number, static_cast<const std::byte *>(numbers) + at, sizeof number);
        const auto found = from.under_way.find(number);
        if (found == from.under_way.end())
            continue;
        const Resend &resend = found->second;
        Detour &detour = from.detours[resend.header.comm];
        detour.moved_ns = moved_ns_;
        detour.patience_ns = kPatienceNs;
        --detour.chunks;
        detour.bytes -= resend.header.bytes;
        if (resend.home != nullptr)
            resend.home->relayed(resend.header, resend.rank, resend.copy == nullptr);
        from.under_way.erase(found);
    }
    if (failover_.paths_ != nullptr)
        failover_.paths_->vouch(wire.from);
}

void Relay::forget(RailLink &link) {
    for (Way &to : ways_) {
        for (auto entry = to.under_way.begin(); entry != to.under_way.end();) {
            Resend &resend = entry->second;
            if (resend.home == &link)
                resend.home = nullptr;
            if (resend.home == nullptr && resend.copy == nullptr) {
                Detour &detour = to.detours[resend.header.comm];
                --detour.chunks;
                detour.bytes -= resend.header.bytes;
                entry = to.under_way.erase(entry);
            } else {
                ++entry;
            }
        }
    }
}

/// No relay is left: the chunks wait for a line, or for another relay.
void Relay::give_back(uint32_t comm, int process, Detour &detour) {
    Way &to = way(process);
    std::deque<Resend> &queue = failover_.partner(process).queue;
    for (auto entry = to.under_way.begin(); entry != to.under_way.end();) {
        if (entry->second.header.comm != comm) {
            ++entry;
            continue;
        }
        queue.push_back(std::move(entry->second));
        ++failover_.waiting_;
        entry = to.under_way.erase(entry);
    }
    detour.chunks = 0;
    detour.bytes = 0;
    std::stable_sort(queue.begin(), queue.end(),
                     [](const Resend &a, const Resend &b) { return a.header.sequence < b.header.sequence; });
}

// The relaying process's part.

void Relay::forward(const RelayWire &wire, const void *data, size_t bytes) {
    // Acknowledgements, which are small and end what is kept elsewhere, find room where chunks do not.
    if (kept_bytes_ + bytes > (wire.kind == RelayWire::kChunk ? room_for_chunks() : most_bytes_)) {
        log().debug("a chunk of {} B to be relayed was dropped: {} B are kept already", bytes, kept_bytes_);
        return;
    }
    kept_bytes_ += bytes;
    FailoverCounters &counters = failover_.counters_;
    ++counters.relayed;
    counters.relayed_most_bytes = std::max<uint64_t>(counters.relayed_most_bytes, kept_bytes_);
    const auto *begin = static_cast<const std::byte *>(data);
    forwards_.push_back({wire, std::vector<std::byte>(begin, begin + bytes)});
    stirred_ = active_ = true;
}

/// An equal part for each pair of each communicator that asked lately.
size_t Relay::grant_to(uint64_t from, uint64_t to, uint32_t comm, int64_t now) {
    granted_[{from, to, comm}] = now;
    std::erase_if(granted_, [&](const auto &entry) { return now - entry.second > 2 * kValidNs; });
    return std::min(window_, room_for_chunks() / granted_.size());
}

// The receiver's part.

bool Relay::take(const RelayWire &wire) {
    const int process = process_of(wire.from);
    if (process < 0)
        return false;
    Way &from = way(process);
    Answer &answer = from.answers[wire.header.comm];
    answer.back = process_of(wire.hop);
    from.base = std::max(from.base, wire.base);
    from.taken.erase(from.taken.begin(), from.taken.lower_bound(from.base));
    const int64_t now = moved_ns_ = now_ns();
    active_ = true;
    active_until_ns_ = now + kValidNs;
    if (failover_.paths_ != nullptr)
        failover_.paths_->vouch(wire.from);
    if (wire.number < from.base)
        return false;
    const auto [number, fresh] = from.taken.try_emplace(wire.number, false);
    if (!fresh && number->second) {
        answer.owed.push_back(wire.number);  // the acknowledgement was lost
        stirred_ = true;
    }
    return fresh;
}

void Relay::leave(const RelayWire &wire) {
    if (const int process = process_of(wire.from); process >= 0)
        way(process).taken.erase(wire.number);
}

void Relay::owe(uint64_t uid, uint32_t comm, uint32_t number) {
    const int process = process_of(uid);
    if (process < 0)
        return;
    Way &from = way(process);
    if (const auto found = from.taken.find(number); found != from.taken.end())
        found->second = true;
    from.answers[comm].owed.push_back(number);
    stirred_ = true;
}

void Relay::refuse(const RelayWire &wire) {
    const int process = process_of(wire.from);
    if (process < 0)
        return;
    // Where nothing of the communicator came before, this is the first that is heard of the way back.
    way(process).answers[wire.header.comm].back = process_of(wire.hop);
    owe(wire.from, wire.header.comm, wire.number);
}

/// Sends on what came, and acknowledgements.
void Relay::act() {
    stirred_ = false;
    while (!forwards_.empty()) {
        Forward next = std::move(forwards_.front());
        forwards_.pop_front();
        const size_t bytes = next.payload.size();
        if (!post(process_of(next.wire.to), next.wire, next.payload, bytes))
            let_go(bytes);  // lost: the origin sends it again
    }
    for (size_t process = 0; process < ways_.size(); ++process) {
        for (auto &[comm, answer] : ways_[process].answers) {
            while (!answer.owed.empty()) {
                const size_t count = std::min(answer.owed.size(), kAcksAtOnce);
                std::vector<std::byte> payload(count * sizeof(uint32_t));
                std::memcpy(payload.data(), answer.owed.data() + (answer.owed.size() - count), payload.size());
                answer.owed.resize(answer.owed.size() - count);
                RelayWire wire{};
                wire.from = uid_;
                wire.to = failover_.partner(static_cast<int>(process)).targets.front()->uid;
                wire.kind = RelayWire::kAcks;
                wire.header.comm = comm;
                if (!post(answer.back, wire, payload, 0) &&
                    !post(via(comm, static_cast<int>(process)), wire, payload, 0))
                    answer.owed.clear();  // the chunks will come again
            }
        }
        std::erase_if(ways_[process].answers, [&](const auto &entry) { return failover_.reach().gone(entry.first); });
    }
}

// Who reaches whom.

void Relay::tell(int process, ucx::Word word, uint64_t about) const {
    word.address_bytes = sizeof about;
    std::string text(reinterpret_cast<const char *>(&word), sizeof word);
    text.append(reinterpret_cast<const char *>(&about), sizeof about);
    failover_.paths_->tell(failover_.partner(process).targets.front()->uid, -1, text.data(), text.size());
}

void Relay::heed(uint64_t uid, const ucx::Word &word, uint64_t about) {
    const uint32_t comm = word.from_line;
    const int asker = process_of(uid);
    const int process = process_of(about);
    const int64_t now = now_ns();
    if (asker < 0 || process < 0)
        return;
    Paths &paths = *failover_.paths_;
    if (word.kind == kAskReachWord) {
        ask_lines(process);
        ask_lines(asker);
        const bool carries = live(comm, process, now) != nullptr;
        const int64_t answered = paths.process_answered_ns(about);
        uint32_t said = answered != 0 && now - answered < kValidNs ? 1 : 0;
        if (carries && most_bytes_ != 0) {
            said = 1 + static_cast<uint32_t>(std::min<size_t>(grant_to(uid, about, comm, now), UINT32_MAX - 1));
            active_ = true;
            active_until_ns_ = now + kValidNs;
            tell(process, {kRelayedWord, comm, 0, 0, 0, 0}, uid);
        }
        tell(asker, {kReachWord, comm, word.to_line, static_cast<uint32_t>((now - answered) / kMs), said, 0}, about);
    } else if (word.kind == kReachWord && word.value != 0) {
        Way &to = way(process);
        // It must have been heard there after it fell silent here: one that was stopped is silent everywhere. The word
        // was under way for as long as may have passed since it was asked for.
        constexpr int64_t kMarginNs = 50 * kMs;
        const int64_t heard = time_of(word.to_line, now) - word.epoch * kMs;
        if (paths.process_silent_ns(about) > now - heard + kMarginNs) {
            to.heard_ns = std::max(to.heard_ns, heard);
            paths.vouch(about);
        }
        const auto detour = to.detours.find(comm);
        if (detour == to.detours.end())
            return;
        std::vector<Word> &words = detour->second.words;
        auto said = std::find_if(words.begin(), words.end(), [&](const Word &other) { return other.process == asker; });
        if (said == words.end())
            said = words.insert(words.end(), Word{asker, 0, 0, 0});
        said->said_ns = now;
        said->grant = word.value - 1;
    } else if (word.kind == kRelayedWord) {
        // What comes may come on a line that nobody looks at otherwise; acknowledgements go back by it.
        ask_lines(asker);
        active_ = true;
        active_until_ns_ = now + kValidNs;
    }
}

void Relay::ask(uint32_t comm, int process, int64_t &asked_ns, int64_t now) {
    if (now - asked_ns < kAskGapNs)
        return;
    asked_ns = now;
    const uint64_t about = failover_.partner(process).targets.front()->uid;
    const auto ask_one = [&](int other) {
        ask_lines(other);
        tell(other, {kAskReachWord, comm, stamp_of(now), 0, 0, 0}, about);
    };
    const int used = via(comm, process);
    if (used >= 0)
        ask_one(used);
    const size_t processes = failover_.partners_.size();
    int asked = 0;
    for (size_t i = 0; i < processes && asked < kAskedAtOnce; ++i) {
        turn_ = (turn_ + 1) % processes;
        const int other = static_cast<int>(turn_);
        if (other != process && other != used && has_line(comm, other)) {
            ask_one(other);
            ++asked;
        }
    }
}

/// Stays with a relay while it does, and where no other one might do better.
void Relay::choose(uint32_t comm, Detour &detour, int64_t now) const {
    const auto worse = [&](const Word &word) {
        return std::pair(now < word.avoid_until_ns, word.process != detour.via);
    };
    const Word *best = nullptr;
    for (const Word &word : detour.words)
        if (word.grant != 0 && now - word.said_ns < kValidNs && (best == nullptr || worse(word) < worse(*best)) &&
            live(comm, word.process, now) != nullptr)
            best = &word;
    detour.via = best == nullptr ? -1 : best->process;
}

void Relay::tick(int64_t now) {
    active_ = now < active_until_ns_ || stirred_;
    for (size_t process = 0; process < failover_.partners_.size(); ++process)
        if (!failover_.partners_[process].targets.empty())
            tick(static_cast<int>(process), now);
}

void Relay::tick(int process, int64_t now) {
    const Failover::Partner &partner = failover_.partner(process);
    // A process that answers nowhere may be heard by others.
    if (failover_.paths_->process_silent_ns(partner.targets.front()->uid) >= timeout_ns_ &&
        std::any_of(partner.targets.begin(), partner.targets.end(),
                    [](const Target *target) { return !target->gone && target->line->wanted(*target); }))
        ask(kNoComm, process, way(process).asked_ns, now);
    if (static_cast<size_t>(process) >= ways_.size())
        return;
    auto &detours = way(process).detours;
    for (auto entry = detours.begin(); entry != detours.end();) {
        Detour &detour = entry->second;
        tick(entry->first, process, detour, now);
        const bool over = !detour.carries && detour.chunks == 0 && now - detour.wanted_ns > kWantedNs;
        entry = over ? detours.erase(entry) : std::next(entry);
    }
}

void Relay::tick(uint32_t comm, int process, Detour &detour, int64_t now) {
    bool wanted = false;
    if (detour.chunks != 0 || now - detour.wanted_ns < kWantedNs)
        failover_.reach().each(comm, process, [&](const Target &target) { wanted = wanted || !target.gone; });
    const bool direct = failover_.reach().direct(comm, process);
    const int before = detour.via;
    if (wanted && !direct) {
        active_ = true;
        ask(comm, process, detour.asked_ns, now);
        choose(comm, detour, now);
    }
    const bool carries = wanted && !direct && detour.via >= 0;
    const bool changed = carries != detour.carries || (carries && detour.via != before);
    if (carries)
        detour.carried_ns = now;
    else
        detour.via = -1;
    detour.carries = carries;
    if (changed) {
        if (carries && failover_.waiting_ != 0)
            failover_.pump();
        say(process, detour, before, direct);
    }
    if (detour.chunks == 0)
        return;
    active_ = true;
    if (!carries) {
        give_back(comm, process, detour);
    } else if (detour.via != before || now - detour.moved_ns > detour.patience_ns) {
        const bool waited = detour.via == before;
        detour.moved_ns = now;
        if (waited) {
            detour.patience_ns = std::min(2 * detour.patience_ns, kMostPatienceNs);
            for (Word &word : detour.words)
                if (word.process == detour.via)
                    word.avoid_until_ns = now + kAvoidNs;
        }
        for (const auto &[number, resend] : way(process).under_way)
            if (resend.header.comm == comm)
                transmit(process, number, resend);
    }
}

/// Once for all communicators that are in the same case.
void Relay::say(int process, const Detour &detour, int before, bool direct) const {
    const Failover::Partner &partner = failover_.partner(process);
    const int via = detour.carries ? detour.via : before;
    for (const auto &[comm, other] : ways_[static_cast<size_t>(process)].detours)
        if (&other != &detour && other.carries && other.via == via)
            return;
    if (detour.carries) {
        for (Target *target : partner.targets)
            if (target->to_report)
                failover_.report_loss(*target);
        log().warn("{}: every rail in use is lost, relaying through {}", partner.name, failover_.partner(via).name);
    } else {
        log().warn("{}: no longer relaying{}", partner.name,
                   direct     ? ", a rail is back"
                   : via >= 0 ? " through " + failover_.partner(via).name + ", which does not reach it any more"
                              : "");
    }
}

}  // namespace flx::ucx
