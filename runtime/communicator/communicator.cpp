#include "runtime/communicator/communicator.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/elements/dtype.h"
#include "runtime/process/outside_waits.h"

namespace flx {

using algorithms::Collective;

namespace {

/// Hash of the words that must be equal on all ranks.
template <typename Words>
uint32_t sign(const Words &words, uint32_t start = 0) {
    // Word by word (constants: Steele, Lea, Flood 2014): a hash by bytes would take a third of a small call's time.
    uint64_t hash = start;
    for (const uint64_t word : words) {
        hash = (hash ^ word) * 0x9E3779B97F4A7C15U;
        hash ^= hash >> 32;
    }
    hash *= 0xBF58476D1CE4E5B9U;
    return static_cast<uint32_t>(hash >> 32);
}

/// What FLX_CHECK compares.
struct CheckedCall {
    uint64_t count, dtype, op;
    int32_t collective, root;
    friend bool operator==(const CheckedCall &, const CheckedCall &) = default;
};

template <typename Handle>
std::string name_of_agreed(uint64_t agreed) {
    return agreed > INT32_MAX ? fmt::format("custom {}", agreed & UINT32_MAX)
                              : std::string(name_of(static_cast<Handle>(agreed)));
}

std::string to_string(const CheckedCall &call) {
    return fmt::format("{}(count {}, {}, {}, root {})", algorithms::name_of(static_cast<Collective>(call.collective)),
                       call.count, name_of_agreed<flx_dtype_t>(call.dtype), name_of_agreed<flx_op_t>(call.op),
                       call.root);
}

}  // namespace

Status Communicator::why_broken() const {
    return fail(FLX_ERR_COMM, "the communicator is broken: {}", broken_.sentence());
}

uint32_t Communicator::signature_of(const Call &call, const Choice &choice, CallKind kind) const {
    const Operation &operation = call.operation;
    // Messages are of bytes, in numbers that each pair of ranks agrees on.
    const bool messages = choice.way == Way::exchanged;
    const uint32_t hash = sign(std::array<uint64_t, 8>{
        static_cast<uint64_t>(operation.collective),
        messages ? operation.count * size_of(operation.dtype) : operation.count, messages ? 0 : agreed(operation.dtype),
        agreed(operation.op), static_cast<uint64_t>(operation.root), static_cast<uint64_t>(choice.way),
        choice.algorithm == nullptr ? 0 : static_cast<uint64_t>(choice.algorithm - algorithms::all().data()) + 1,
        static_cast<uint64_t>(kind)});
    if (choice.way == Way::exchanged || call.blocks.counts == nullptr)  // or counts are not all ranks' knowledge
        return hash;
    return sign(std::span(call.blocks.counts, static_cast<size_t>(size_)), hash);
}

/// By shared memory as a whole.
Status Communicator::carry_out(Call &call, const Decided &decided, const shm::Review::Look *look) {
    Operation &operation = call.operation;
    operation.signature = decided.signature ^ calls_.before();
    shared_sent_ += decided.shown;
    inside_ = true;
    current_ = &operation;
    way_ = decided.choice.way;
    Status status = attempt([&] { return look != nullptr ? carry_timed(call, *look) : carry_out_by(call); });
    if (!status.ok())
        status = investigate(std::move(status));
    current_ = nullptr;
    inside_ = false;
    if (told_blocked_) [[unlikely]]
        leave_blocked();
    return status.ok() ? status : break_off(std::move(status));
}

/// Whether ranks ask each other first if what is to be streamed lies in memory that they have mapped.
bool Communicator::may_be_mapped(const Operation &operation) {
    constexpr size_t kLeast = size_t{64} << 10;  // of which asking is a small part
    return peer_memory_ != nullptr && operation.count * size_of(operation.dtype) >= kLeast && peer_memory_->may_map();
}

Status Communicator::carry_out_by(const Call &call) {
    const Operation &operation = call.operation;
    Waiter waiter(brief_wait_policy(), *this);
    if (way_ == Way::fused)
        return run_fused(call, waiter);
    const bool by_kernel = way_ == Way::fetched;
    if (by_kernel || may_be_mapped(operation)) {
        bool served = false;
        way_ = Way::fetched;  // which is asked whom it waits for
        FLX_TRY(peer_memory_->run(operation.collective, operation.in, operation.out, operation.count, operation.dtype,
                                  operation.op, operation.root, operation.signature, *fused_, waiter, served,
                                  call.blocks, by_kernel));
        if (served)
            return {};
        if (!shm::Stream::serves(operation.collective)) {
            left_to_steps_ = true;
            return {};
        }
        way_ = Way::streamed;
    }
    return stream_->run(operation.collective, operation.in, operation.out, operation.count, operation.dtype,
                        operation.op, operation.root, operation.signature, waiter);
}

/// For shm::Review: ranks come when they like, so between two barriers, before and after one call or several.
Status Communicator::carry_timed(const Call &call, const shm::Review::Look &look) {
    // Not the call's: a rank that takes these steps for the call, or the other way round, is to find a mismatch.
    const uint32_t signature = ~call.operation.signature;
    const Way way = std::exchange(way_, Way::fused);  // which is asked whom it waits for
    Waiter waiter(brief_wait_policy(), *this);
    if (look.begins)
        FLX_TRY(fused_->barrier(signature, waiter));
    const int64_t began = now_ns();
    way_ = way;
    FLX_TRY(carry_out_by(call));
    way_ = Way::fused;
    if (look.ends)
        FLX_TRY(fused_->barrier(signature, waiter));
    if (!review_->took(now_ns() - began))
        return {};
    const std::span all = review_->all();
    FLX_TRY(fused_->allgather(&review_->times(), all.data(), sizeof all[0], signature, waiter));
    if (!review_->judge(ways_))
        return {};
    planner_->set_ways(ways_);
    forget_decided();
    const Operation &operation = call.operation;
    const size_t bytes = operation.count * size_of(operation.dtype);
    if (rank_ == 0)
        log().info("{} of {} bytes goes {} from now on: that was faster than what was chosen before",
                   algorithms::name_of(operation.collective), bytes, choose(operation.collective, bytes).name());
    return {};
}

/// Nothing that a peer may wait for stays behind on the rails: the program may not call again for long. A thread that
/// is inside another call moves the rails anyway and settles when it leaves: the last one out waits.
Status Communicator::settle(Waiter &waiter) {
    int64_t began = 0;
    while (!process_->rails_in_use() && !rails_->settled()) {
        if (rails_->progress()) {
            waiter.moved();
            continue;
        }
        // What is left may be for a peer of another communicator, one that was stopped: the operation is complete, so
        // that is no error of this one, nor worth waiting for without end.
        const int64_t now = now_ns();
        if (began == 0)
            began = now;
        if (static_cast<double>(now - began) > deadline_s_ * 1e9)
            return {};
        FLX_TRY(waiter.pause());
    }
    return {};
}

Status Communicator::run_fused(const Call &call, Waiter &waiter) {
    const auto [collective, in, out, count, dtype, op, root, sequence, signature, divisor] = call.operation;
    const size_t bytes = count * size_of(dtype);
    const size_t block = count / size_;
    switch (collective) {
        case Collective::allreduce:
            return fused_->allreduce(in, out, count, dtype, op, signature, waiter);
        case Collective::reduce:
            return fused_->reduce(in, out, count, dtype, op, root, signature, waiter);
        case Collective::reduce_scatter_block:
            return fused_->reduce_scatter_block(in, out, block, dtype, op, signature, waiter);
        case Collective::allgather:
            return fused_->allgather(in, out, bytes / size_, signature, waiter);
        case Collective::bcast:
            return fused_->bcast(out, bytes, root, signature, waiter);
        case Collective::barrier:
            return fused_->barrier(signature, waiter);
        case Collective::alltoall:
            return fused_->alltoall(in, out, bytes / size_, signature, waiter);
        case Collective::gather:
            return fused_->gather(in, out, bytes / size_, root, signature, waiter);
        case Collective::scatter:
            return fused_->scatter(in, out, bytes / size_, root, signature, waiter);
        case Collective::scan:
        case Collective::exscan:
            return fused_->scan(collective == Collective::exscan, in, out, count, dtype, op, signature, waiter);
        case Collective::allgatherv:
            return fused_->allgatherv(in, out, call.blocks.counts, call.blocks.displacements, size_of(dtype), signature,
                                      waiter);
        case Collective::reduce_scatter:
            return fused_->reduce_scatter(in, out, call.blocks.counts, dtype, op, signature, waiter);
        default:  // as messages
            break;
    }
    return {};
}

/// What this rank shows to others in shared memory, as if a link had carried it.
uint64_t Communicator::shown_bytes(const Call &call, Way way) const {
    const Operation &operation = call.operation;
    const size_t bytes = operation.count * size_of(operation.dtype);
    const size_t part = bytes / size_;
    switch (operation.collective) {
        case Collective::allreduce:
            return bytes;
        case Collective::reduce:
        case Collective::reduce_scatter_block:
            return way == Way::fused ? bytes : bytes - part;
        case Collective::allgather:
            return part;
        case Collective::bcast:
            return rank_ == operation.root ? bytes : 0;
        case Collective::scatter:
            return rank_ == operation.root ? bytes - part : 0;
        case Collective::alltoall:
            return bytes - part;
        case Collective::gather:
            return rank_ == operation.root ? 0 : part;
        case Collective::scan:
        case Collective::exscan:
        case Collective::reduce_scatter:
            return bytes;
        case Collective::allgatherv:
            return call.blocks.counts[rank_] * size_of(operation.dtype);
        default:
            return 0;
    }
}

/// Every rank learns every rank's arguments before anything else is sent.
Status Communicator::compare_calls(const Operation &operation) {
    const CheckedCall mine{operation.count, agreed(operation.dtype), agreed(operation.op),
                           static_cast<int32_t>(operation.collective), operation.root};
    std::vector<CheckedCall> all(size_);
    Call call;
    Operation &exchange = call.operation;
    exchange.collective = Collective::allgather;
    exchange.in = &mine;
    exchange.out = all.data();
    exchange.count = sizeof(CheckedCall) * size_;
    exchange.dtype = FLX_UINT8;
    FLX_TRY(run_now(call, decide(call)));
    for (int peer = 0; peer < size_; ++peer)
        if (!(all[peer] == mine))
            return break_off(fail(FLX_ERR_MISMATCH, "rank {} called {}, rank {} called {}; all ranks must call alike",
                                  rank_, to_string(mine), peer, to_string(all[peer])));
    return {};
}

Choice Communicator::choose(Collective collective, size_t bytes, const Needs &needs) const {
    return planner_->choose(collective, bytes, needs);
}

/// What an exchange sends to another host waits on the own rail, from where others take it while they are idle. What is
/// too short to be cut goes where it is quickest there.
bool Communicator::begins_on_own_rail(int peer, size_t bytes) const {
    return lending_ != nullptr && opens_exchange_ && bytes > Lending::kFreeBytes && lending_->is_far(peer) &&
           own_rail_ >= 0 && (routes_[members_[peer].host].links >> own_rail_ & 1) != 0 &&
           (lost_[peer] >> own_rail_ & 1) == 0;
}

double Communicator::rate(int link, int peer) const {
    return routes_[members_[peer].host].controller->rate(link);
}

uint32_t Communicator::takers(int peer, size_t bytes) const {
    return begins_on_own_rail(peer, bytes) ? routes_[members_[peer].host].links & ~1U & ~lost_[peer] : 0;
}

uint64_t Communicator::bytes_for_other_hosts(const Exchange &exchange) const {
    uint64_t bytes = 0;
    for (uint32_t step = 0; step < exchange.steps().size(); ++step) {
        const algorithms::Step &each = exchange.steps()[step];
        if (each.kind == algorithms::StepKind::send && members_[each.peer].host != host_)
            bytes += exchange.message(step).bytes;
    }
    return bytes;
}

const PartitionVector &Communicator::vector(int peer, size_t bytes, int phase) {
    if (begins_on_own_rail(peer, bytes)) {
        last_vector_ = own_vector_;
        return own_vector_;
    }
    const PartitionVector &vector = routes_[members_[peer].host].controller->vector(bytes, phase);
    last_vector_ = vector;
    return vector;
}

/// What links carried until now is no operation's: a first sample that held the probe's pings and pauses would make a
/// link look a hundred times slower than it is.
void Communicator::forget_probing() {
    take_samples();
}

LinkCounters Communicator::carried(const Route &route, int index) const {
    LinkCounters sum;
    for (const int peer : route.peers) {
        const LinkCounters counters = links_[index].link->counters(peer);
        sum.bytes += counters.bytes - counters.untimed_bytes;
        sum.busy_ns += counters.busy_ns;
    }
    return sum;
}

/// The least that acknowledgements have shown, one way; 0: none yet.
double Communicator::latency_seen(const Route &route, int index) const {
    double least = 0;
    for (const int peer : route.peers)
        if (const double trip = links_[index].link->pace(peer).round_trip_ns; trip > 0 && (least == 0 || trip < least))
            least = trip;
    return least / 2;
}

/// Notes, in each route, what its links carried to it since this was done last.
void Communicator::take_samples() {
    std::array<int, kMaxLinks> users{};
    for (Route &route : routes_) {
        for (uint32_t mask = route.links; mask != 0; mask &= mask - 1) {
            const int index = std::countr_zero(mask);
            const LinkCounters now = carried(route, index);
            const LinkCounters before = std::exchange(route.seen[index], now);
            route.samples[index] = {now.bytes - before.bytes, now.busy_ns - before.busy_ns};
            users[index] += now.bytes != before.bytes ? 1 : 0;
        }
    }
    for (size_t index = 0; index < links_.size(); ++index) {
        if (users[index] == 0)
            continue;
        const LinkCounters now = links_[index].link->timed();
        const LinkCounters before = std::exchange(timed_[index], now);
        for (Route &route : routes_)
            route.samples[index] = fair_sample(route.samples[index],
                                               {now.bytes - before.bytes, now.busy_ns - before.busy_ns}, users[index]);
    }
}

/// Tells each route's controller what its links carried since it was told last.
void Communicator::learn(const Pending &pending, int64_t elapsed_ns) {
    const Operation &operation = pending.operation;
    const Plan *plan = pending.plan;
    size_t bytes = 0;
    if (plan != nullptr)
        bytes = pending.blocks.longest(operation.count, plan->schedule().blocks) * size_of(operation.dtype);
    const int phases = plan != nullptr ? plan->schedule().phases : 1;
    take_samples();
    for (Route &route : routes_) {
        if (std::popcount(route.links) < 2)
            continue;
        // Soon after the probe, and now and then.
        const bool looks = operation.sequence <= 64 || operation.sequence % 64 == 0;
        for (uint32_t mask = looks ? route.links : 0; mask != 0; mask &= mask - 1)
            route.controller->saw_latency(std::countr_zero(mask), latency_seen(route, std::countr_zero(mask)));
        // What was lent for a moment says nothing of what a rail carries in a collective.
        const bool idle =
            std::ranges::all_of(route.samples, [](const LinkSample &sample) { return sample.bytes == 0; });
        if (idle || (plan == nullptr && lending_ != nullptr))
            continue;
        if (plan == nullptr) {
            bytes = 0;
            for (const int peer : route.peers)
                bytes = std::max(bytes, pending.exchange.longest_to(peer));
        }
        // The phases of one operation overlap in time: what a link delivered holds for both.
        for (int phase = 0; phase < phases; ++phase)
            if (route.controller->observe(bytes, phase, std::span(route.samples.data(), links_.size()), elapsed_ns) &&
                phase == 0)
                report_change(route, bytes);
    }
}

/// Says which links' shares have changed much since it was last said, for messages of this size.
void Communicator::report_change(Route &route, size_t bytes) {
    constexpr double kMuch = 0.1;
    constexpr double kLeastFactor = 1.5;
    constexpr double kLeastMove = 1.1;
    if (!log().shows(LogLevel::warn))
        return;
    Told &told = route.told[size_class(bytes)];
    const PartitionVector &vector = route.controller->vector(bytes, 0);
    const bool first = told.vector.links == 0;
    const std::string &host = members_[route.peers.front()].hostname;
    bool much = first;
    for (uint32_t mask = route.links; !first && mask != 0; mask &= mask - 1) {
        const int link = std::countr_zero(mask);
        const double before = told.vector.share(link);
        const double now = vector.share(link);
        const double rate = route.controller->rate(link);
        const double factor = told.rate[link] > 0 && rate > 0 ? rate / told.rate[link] : 1;
        much = much || std::abs(now - before) > kMuch;
        // Of a link that slowed down the others' shares tell nothing new; nor does a rate that moves no share. That of
        // one with nearly all moves little where the others' together move much.
        const bool less = now < before / kLeastMove || 1 - now > (1 - before) * kLeastMove;
        const bool more = now > before * kLeastMove || 1 - now < (1 - before) / kLeastMove;
        if ((factor < 1 / kLeastFactor && less) || (factor > kLeastFactor && more)) {
            much = true;
            log().write(factor < 0.5 ? LogLevel::warn : LogLevel::info,
                        "{} to host {} {} {:.0f} Mbit/s: share {:.2f} -> {:.2f}",
                        links_[link].link->kind() == LinkKind::rail ? "rail " + links_[link].name : links_[link].name,
                        host, factor < 1 ? "slowed to" : "now carries", 8e3 * rate, before, now);
        }
    }
    if (!much)
        return;
    told.vector = vector;
    for (uint32_t mask = route.links; mask != 0; mask &= mask - 1)
        told.rate[std::countr_zero(mask)] = route.controller->rate(std::countr_zero(mask));
    if (!log().shows(LogLevel::info))
        return;
    std::vector<std::string> names;
    for (const LinkSlot &slot : links_)
        names.push_back(slot.name);
    log().info("to host {}: {} for {} B", host, to_string(vector, names), bytes);
}

void Communicator::lost(int link, int peer) {
    set_lost(link, peer, true);
}

/// Links that were lost since the last operation, or that carry again.
void Communicator::look_at_links(const std::vector<int> &peers) {
    for (const int peer : peers) {
        for (uint32_t mask = routes_[members_[peer].host].links; mask != 0; mask &= mask - 1) {
            const int link = std::countr_zero(mask);
            const bool lost = links_[link].link->state(peer) == LinkState::lost;
            if (lost != ((lost_[peer] >> link & 1) != 0))
                set_lost(link, peer, lost);
        }
    }
}

/// A route uses a link while it carries to all peers of the host.
void Communicator::set_lost(int link, int peer, bool lost) {
    const uint32_t bit = 1U << link;
    lost_[peer] = lost ? lost_[peer] | bit : lost_[peer] & ~bit;
    Route &route = routes_[members_[peer].host];
    uint32_t usable = route.links;
    for (const int other : route.peers)
        usable &= ~lost_[other];
    // With all of them lost the shares stay: cells wait for whichever returns.
    for (uint32_t mask = usable != 0 ? route.links : 0; mask != 0; mask &= mask - 1) {
        const int each = std::countr_zero(mask);
        route.controller->set_usable(each, (usable >> each & 1) != 0);
    }
    log().info("{} to {} {}", links_[link].name, describe(peer),
               lost ? "carries nothing now: its share goes to the others" : "carries again");
}

LinkCounters Communicator::counters(int index) const {
    LinkCounters total;
    const LinkSlot &slot = links_[index];
    if (slot.link == nullptr)
        return total;
    for (int peer = 0; peer < size_; ++peer) {
        if (peer == rank_ || !slot.link->reaches(peer))
            continue;
        const LinkCounters counters = slot.link->counters(peer);
        total.bytes += counters.bytes;
        total.chunks += counters.chunks;
        total.busy_ns += counters.busy_ns;
    }
    total.bytes -= slot.bytes_before;
    total.chunks -= slot.chunks_before;
    if (slot.link->kind() == LinkKind::shm)
        total.bytes += shared_sent_;
    return total;
}

double Communicator::last_share(int link) const {
    return link < last_vector_.links ? last_vector_.share(link) : 0;
}

/// What probing sent on a slow link may come late, also on links that no operation polls.
void Communicator::drop_strays() {
    if (rails_ != nullptr)
        rails_->progress();
    for (const LinkSlot &slot : links_) {
        for (int peer = 0; slot.link != nullptr && peer < size_; ++peer) {
            Arrival arrival;
            while (slot.link->reaches(peer) && slot.link->receive(peer, arrival))
                slot.link->release(arrival);
        }
    }
    if (rails_ != nullptr)
        rails_->progress();
}

/// Whether nothing is under way on this rank's links, to or from it.
bool Communicator::settled() const {
    return std::none_of(links_.begin(), links_.end(),
                        [](const LinkSlot &slot) { return slot.link && slot.link->outstanding() != 0; }) &&
           (rails_ == nullptr || process_->rails_in_use() || rails_->flushed());
}

void Communicator::close() {
    if (thread_)
        thread_->remove(*this);
    thread_.reset();
    process_->remove(*this);
    if (!broken_.ok() || size_ == 1)
        return;
    // No rank takes its links away while a peer may still need something from it.
    const uint8_t in = 0;
    uint8_t out = 0;
    Call call;
    Operation &barrier = call.operation;
    barrier.in = &in;
    barrier.out = &out;
    barrier.count = 1;
    barrier.dtype = FLX_UINT8;
    barrier.op = FLX_MAX;
    note_call(CallKind::freed);
    if (!drain().ok() || !run_now(call, decide(call)).ok())
        return;
    close_devices();
    constexpr int64_t kPatienceNs = 1'000'000'000;
    const int64_t began = now_ns();
    while (!settled() && now_ns() - began < kPatienceNs) {
        drop_strays();
        sched_yield();
    }
    if (lending_ != nullptr && own_rail_ >= 0) {
        const LedgerLine &line = lending_->line(own_rail_);
        log().info("rail {} of rank {}: lent for {} chunks, {} refused", links_[own_rail_].name, rank_,
                   line.lent.load(std::memory_order_relaxed), line.refused.load(std::memory_order_relaxed));
    }
    if (board_ != nullptr)
        board_->leave(members_[rank_].local);
}

Communicator::~Communicator() {
    if (thread_)
        thread_->remove(*this);
    process_->remove(*this);
    if (board_ != nullptr)
        OutsideWaits::of_process().remove(*board_);
    if (id_ != 0)
        process_->liveness().say_of(id_, nullptr);
    lent_.clear();
    devices_.reset();
    links_.clear();
    lending_.reset();
    executors_.clear();
}

}  // namespace flx
