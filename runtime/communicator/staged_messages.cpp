#include "runtime/communicator/staged_messages.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "runtime/elements/dtype.h"
#include "runtime/plan/staged.h"

namespace flx {

using algorithms::Collective;
using algorithms::Placement;

namespace {

/// What a rank shows of an alltoallv.
struct Shown {
    const uint32_t *sends;   ///< by rank: bytes; to itself none
    const uint32_t *awaits;  ///< likewise
    const std::byte *data;   ///< what it sends and is not long, in the order of ranks

    Shown(const std::byte *at, size_t ranks)
        : sends(reinterpret_cast<const uint32_t *>(at)),
          awaits(sends + ranks),
          data(reinterpret_cast<const std::byte *>(awaits + ranks)) {}
};

}  // namespace

StagedMessages::StagedMessages(const Call &call, const Choice &choice, int rank, const Placement &placement,
                               const std::vector<int> &heads, shm::Nearby *near, Between &between, Waiter &waiter)
    : call_(call),
      element_(size_of(call.operation.dtype)),
      led_(choice.by_leaders),
      shown_to_(choice.by_lanes),
      rank_(rank),
      placement_(placement),
      heads_(heads),
      near_(near),
      between_(between),
      waiter_(waiter),
      host_(host_of(rank)),
      own_(local_of(rank)),
      here_(placement.on_host_of(rank).size()),
      ranks_(static_cast<size_t>(placement.size())),
      signature_(call.operation.signature) {}

Status StagedMessages::run() {
    shown_ = {room<const std::byte *>(here_), here_};
    for (std::span<Parcel> *parcels : {&sent_, &awaited_, &came_, &lane_came_, &lane_sent_}) {
        const size_t many = parcels == &lane_sent_ ? ranks_ : hosts();
        *parcels = {room<Parcel>(many), many};
        std::ranges::fill(*parcels, Parcel());
    }
    switch (call_.operation.collective) {
        case Collective::alltoallv:
            return alltoallv();
        case Collective::gatherv:
            return gatherv();
        default:
            break;
    }
    return scatterv();
}

Status StagedMessages::differ(int from, size_t sent, int to, size_t awaited) const {
    return fail(Fault::bytes_differ,
                "rank {} sends {} bytes to rank {} in operation {} where {} bytes are received, or called another "
                "collective; the counts of both sides must agree",
                from, sent, to, call_.operation.sequence, awaited);
}

StagedMessages::Parcel StagedMessages::parcel(size_t messages, size_t bytes) {
    Parcel parcel{nullptr, messages, bytes};
    parcel.lengths = reinterpret_cast<uint32_t *>(between_.aside(parcel.size()));
    return parcel;
}

/// What hosts have for each other, between heads: at least the lengths. They are compared before anything else is
/// awaited, which may never come.
Status StagedMessages::exchange_parcels() {
    for (size_t distance = 1; distance < hosts(); ++distance) {
        const size_t to = (host_ + distance) % hosts();
        const size_t from = (host_ + hosts() - distance) % hosts();
        if (sent_[to].lengths != nullptr)
            between_.messages().send(heads_[to], sent_[to].lengths, sent_[to].size(), call_.operation.sequence);
        if (awaited_[from].lengths != nullptr) {
            came_[from] = parcel(awaited_[from].messages, awaited_[from].bytes);
            between_.messages().receive(heads_[from], came_[from].lengths, came_[from].size(), call_.operation.sequence,
                                        true);
        }
        gave_ = gave_ || sent_[to].lengths != nullptr || awaited_[from].lengths != nullptr;
    }
    FLX_TRY(give(call_.operation.sequence));
    FLX_TRY(between_.carry());
    for (size_t host = 0; host < hosts(); ++host)
        if (came_[host].lengths != nullptr)
            FLX_TRY(check(came_[host], awaited_[host], host, host_));
    return {};
}

/// Numbers of what goes otherwise, which every rank takes. Not before heads have exchanged: of what has a number
/// already when an operation ends, a rank would take nothing any more.
void StagedMessages::take_numbers() {
    if (call_.operation.collective == Collective::alltoallv)
        of_lanes_ = between_.next_number();
    long_ = between_.next_number();
}

/// Whether each message between two hosts has the length that is awaited.
Status StagedMessages::check(const Parcel &parcel, const Parcel &awaited, size_t from, size_t to) const {
    const bool rooted = call_.operation.collective != Collective::alltoallv;
    const bool gathers = call_.operation.collective == Collective::gatherv;
    const size_t receivers = !rooted ? on(to).size() : gathers ? 1 : awaited.messages;
    for (size_t i = 0; i < awaited.messages; ++i)
        if (parcel.lengths[i] != awaited.lengths[i]) {
            const int sender = rooted && !gathers ? call_.operation.root : on(from)[i / receivers];
            const int receiver = gathers ? call_.operation.root : on(to)[i % receivers];
            return differ(sender, parcel.lengths[i], receiver, awaited.lengths[i]);
        }
    return {};
}

/// What was added to messages(), if something was, as an operation of this number. In their order: of a number that is
/// behind the last one given a rank takes nothing any more.
Status StagedMessages::give(uint64_t number) {
    if (!std::exchange(gave_, false))
        return {};
    Operation numbered = call_.operation;
    numbered.sequence = number;
    return between_.give_messages(numbered);
}

void StagedMessages::show(std::byte *place) {
    auto *lengths = reinterpret_cast<uint32_t *>(place);
    std::byte *data = place + 2 * ranks_ * sizeof(uint32_t);
    for (int rank = 0; rank < placement_.size(); ++rank) {
        const bool other = rank != rank_;
        lengths[rank] = other ? told(count(sends(), rank)) : 0;
        lengths[ranks_ + static_cast<size_t>(rank)] = other ? told(count(call_.blocks, rank)) : 0;
        const uint32_t bytes = if_shown(lengths[rank]);
        put(data, sent_from() + (bytes != 0 ? place_of(sends(), rank) : 0), bytes);
        data += bytes;
    }
    shown_bytes_ += static_cast<uint64_t>(data - place);
    shown_[own_] = place;
}

/// What another rank of this host has for this one.
Status StagedMessages::take_from(size_t local) {
    const Shown theirs(shown_[local], ranks_);
    const int from = on(host_)[local];
    const size_t bytes = count(call_.blocks, from);
    if (theirs.sends[rank_] != told(bytes))
        return differ(from, theirs.sends[rank_], rank_, bytes);
    size_t before = 0;
    for (int rank = 0; rank < rank_; ++rank)
        before += if_shown(theirs.sends[rank]);
    const uint32_t shown = if_shown(bytes);
    put(call_.out() + (shown != 0 ? place_of(call_.blocks, from) : 0), theirs.data + before, shown);
    return {};
}

/// What this host's ranks have for each other host, and how much they await from it.
void StagedMessages::pack() {
    std::span<size_t> sent(room<size_t>(hosts()), hosts());
    std::span<size_t> awaited(room<size_t>(hosts()), hosts());
    std::ranges::fill(sent, 0);
    std::ranges::fill(awaited, 0);
    for (const std::byte *at : shown_) {
        const Shown one(at, ranks_);
        for (size_t rank = 0; rank < ranks_; ++rank) {
            const size_t host = host_of(static_cast<int>(rank));
            sent[host] += if_led(one.sends[rank]);
            awaited[host] += if_led(one.awaits[rank]);
        }
    }
    std::span<std::byte *> next(room<std::byte *>(hosts()), hosts());
    for (size_t host = 0; host < hosts(); ++host) {
        if (host == host_)
            continue;
        const size_t messages = here_ * on(host).size();
        sent_[host] = parcel(messages, sent[host]);
        awaited_[host] = parcel(messages, 0);
        awaited_[host].bytes = awaited[host];
        next[host] = sent_[host].first();
    }
    for (size_t local = 0; local < here_; ++local) {
        const Shown one(shown_[local], ranks_);
        const std::byte *data = one.data;
        for (size_t rank = 0; rank < ranks_; data += if_shown(one.sends[rank]), ++rank) {
            const size_t host = host_of(static_cast<int>(rank));
            if (host == host_)
                continue;
            const size_t theirs = local_of(static_cast<int>(rank));
            const uint32_t bytes = if_led(one.sends[rank]);
            sent_[host].lengths[local * on(host).size() + theirs] = one.sends[rank];
            awaited_[host].lengths[theirs * here_ + local] = one.awaits[rank];
            put(next[host], data, bytes);
            next[host] += bytes;
        }
    }
}

/// What this host's ranks have for those ranks of other hosts that have this one's index there, or on larger hosts its
/// lane.
void StagedMessages::pack_lane() {
    const auto collects = [&](size_t rank) {
        return host_of(static_cast<int>(rank)) != host_ && local_of(static_cast<int>(rank)) % here_ == own_;
    };
    std::span<size_t> sent(room<size_t>(ranks_), ranks_);
    std::ranges::fill(sent, 0);
    for (const std::byte *at : shown_)
        for (size_t rank = 0; rank < ranks_; ++rank)
            sent[rank] += if_lane(Shown(at, ranks_).sends[rank]);
    std::span<std::byte *> next(room<std::byte *>(ranks_), ranks_);
    for (size_t rank = 0; rank < ranks_; ++rank)
        if (collects(rank) && sent[rank] != 0) {
            lane_sent_[rank] = parcel(here_, sent[rank]);
            next[rank] = lane_sent_[rank].first();
        }
    for (size_t local = 0; local < here_; ++local) {
        const Shown one(shown_[local], ranks_);
        const std::byte *data = one.data;
        for (size_t rank = 0; rank < ranks_; data += if_shown(one.sends[rank]), ++rank) {
            if (lane_sent_[rank].lengths == nullptr)
                continue;
            const uint32_t bytes = if_lane(one.sends[rank]);
            lane_sent_[rank].lengths[local] = bytes;
            put(next[rank], data, bytes);
            next[rank] += bytes;
        }
    }
}

void StagedMessages::send_lane() {
    for (size_t step = 1; step < ranks_; ++step) {
        const size_t rank = (static_cast<size_t>(rank_) + step) % ranks_;
        if (lane_sent_[rank].lengths == nullptr)
            continue;
        between_.messages().send(static_cast<int>(rank), lane_sent_[rank].lengths, lane_sent_[rank].size(), of_lanes_);
        gave_ = true;
    }
    for (size_t distance = 1; distance < hosts(); ++distance) {
        const size_t from = (host_ + hosts() - distance) % hosts();
        size_t bytes = 0;
        for (const int rank : on(from))
            bytes += if_lane(count(call_.blocks, rank));
        if (bytes == 0)
            continue;
        lane_came_[from] = parcel(on(from).size(), bytes);
        between_.messages().receive(placement_.driver(static_cast<int>(from), static_cast<int>(own_)),
                                    lane_came_[from].lengths, lane_came_[from].size(), of_lanes_, true);
        gave_ = true;
    }
}

/// What came of lanes.
Status StagedMessages::take_lane() {
    for (size_t host = 0; host < hosts(); ++host) {
        const Parcel &came = lane_came_[host];
        const std::byte *next = came.lengths != nullptr ? came.first() : nullptr;
        for (size_t local = 0; local < came.messages; ++local) {
            const int from = on(host)[local];
            const uint32_t awaited = if_lane(count(call_.blocks, from));
            if (came.lengths[local] != awaited)
                return differ(from, came.lengths[local], rank_, awaited);
            put(call_.out() + (awaited != 0 ? place_of(call_.blocks, from) : 0), next, awaited);
            next += awaited;
        }
    }
    return {};
}

void StagedMessages::give_long_of_all() {
    std::byte *const out = call_.out();
    size_t copied = 0;  // in place: bytes
    for (int rank = 0; call_.in_place && rank < placement_.size(); ++rank)
        copied += rank != rank_ && is_long(count(sends(), rank)) ? count(sends(), rank) : 0;
    std::byte *copy = copied != 0 ? between_.aside(copied) : nullptr;
    for (int step = 1; step < placement_.size(); ++step) {
        const int next = (rank_ + step) % placement_.size();
        const int previous = (rank_ + placement_.size() - step) % placement_.size();
        if (const size_t bytes = count(sends(), next); is_long(bytes)) {
            const std::byte *from = sent_from() + place_of(sends(), next);
            if (call_.in_place) {
                from = static_cast<std::byte *>(std::memcpy(copy, from, bytes));
                copy += bytes;
            }
            between_.messages().send(next, from, bytes, long_);
            gave_ = true;
        }
        if (const size_t bytes = count(call_.blocks, previous); is_long(bytes)) {
            between_.messages().receive(previous, out + place_of(call_.blocks, previous), bytes, long_);
            gave_ = true;
        }
    }
}

Status StagedMessages::alltoallv() {
    if (!call_.in_place && count(call_.blocks, rank_) != 0)
        put(call_.out() + place_of(call_.blocks, rank_), call_.in() + place_of(call_.sends, rank_),
            count(call_.blocks, rank_));
    const size_t most = shown_messages(Collective::alltoallv, placement_, shown_to_);
    const auto pack_all = [&] {
        pack_lane();
        if (leads())
            pack();
    };
    Status taken;
    if (alone()) {
        show(between_.aside(most));
        pack_all();
    } else {
        size_t others = 0;
        FLX_TRY(near_->fused().exchange(
            most, [&](std::byte *place) { show(place); },
            [&](int local, const std::byte *theirs) {
                shown_[static_cast<size_t>(local)] = theirs;
                if (taken.ok())
                    taken = take_from(static_cast<size_t>(local));
                if (++others == here_ - 1)
                    pack_all();  // while all of it is shown
            },
            signature_, waiter_));
        FLX_TRY(std::move(taken));
    }
    if (leads())
        FLX_TRY(exchange_parcels());
    take_numbers();
    send_lane();
    FLX_TRY(give(of_lanes_));
    give_long_of_all();
    FLX_TRY(give(long_));
    FLX_TRY(between_.carry());
    FLX_TRY(take_lane());
    return deal();
}

/// Shows where each rank's part begins, and the parts, in the order of hosts and their ranks. The head's own is put
/// where it belongs.
void StagedMessages::deal_out(std::byte *place) {
    auto *begins = reinterpret_cast<uint32_t *>(place);
    std::fill(begins, begins + here_, 0);
    for (const Parcel &awaited : awaited_)
        for (size_t first = 0; first < awaited.messages; first += here_)
            for (size_t local = 0; local < here_; ++local)
                begins[local] += local == own_ ? 0 : if_led(awaited.lengths[first + local]);
    std::exclusive_scan(begins, begins + here_, begins, static_cast<uint32_t>(here_ * sizeof(uint32_t)));
    std::span<std::byte *> to(room<std::byte *>(here_), here_);
    for (size_t local = 0; local < here_; ++local)
        to[local] = place + begins[local];
    for (size_t host = 0; host < hosts(); ++host) {
        const uint32_t *length = came_[host].lengths;  // which are those that were awaited
        if (length == nullptr)
            continue;
        const std::byte *next = came_[host].first();
        for (const int from : on(host))
            for (size_t local = 0; local < here_; ++local, ++length) {
                const uint32_t bytes = if_led(*length);
                if (bytes == 0)
                    continue;
                if (local == own_) {
                    put(call_.out() + place_of(call_.blocks, from), next, bytes);
                } else {
                    put(to[local], next, bytes);
                    to[local] += bytes;
                    shown_bytes_ += bytes;
                }
                next += bytes;
            }
    }
}

/// What came for each rank of the host, from where its head shows it.
Status StagedMessages::deal() {
    const size_t most = dealt_messages(Collective::alltoallv, placement_, led_);
    if (alone()) {
        deal_out(between_.aside(most));
        return {};
    }
    return near_->fused().hand_out(
        most, static_cast<int>(local_of(heads_[host_])), [&](std::byte *place) { deal_out(place); },
        [&](const std::byte *theirs) {
            const std::byte *from = theirs + reinterpret_cast<const uint32_t *>(theirs)[own_];
            for (size_t host = 0; host < hosts(); ++host) {
                for (size_t i = 0; host != host_ && i < on(host).size(); ++i) {
                    const int rank = on(host)[i];
                    const uint32_t bytes = if_led(count(call_.blocks, rank));
                    put(call_.out() + (bytes != 0 ? place_of(call_.blocks, rank) : 0), from, bytes);
                    from += bytes;
                }
            }
        },
        signature_, waiter_);
}

/// Long ones of a gatherv or scatterv, between the root and each rank. `own`: bytes of this rank's part.
Status StagedMessages::carry_long(size_t own) {
    take_numbers();
    const int root = call_.operation.root;
    const bool at_root = rank_ == root;
    const bool receives = at_root == (call_.operation.collective == Collective::gatherv);
    for (int rank = 0; rank < placement_.size(); ++rank) {
        if (rank == root || (!at_root && rank != rank_))
            continue;
        const size_t bytes = at_root ? count(call_.blocks, rank) : own;
        if (!is_long(bytes))
            continue;
        const size_t at = at_root ? place_of(call_.blocks, rank) : 0;
        if (receives)
            between_.messages().receive(at_root ? rank : root, call_.out() + at, bytes, long_);
        else
            between_.messages().send(at_root ? rank : root, call_.in() + at, bytes, long_);
        gave_ = true;
    }
    FLX_TRY(give(long_));
    return between_.carry();
}

/// What this host's ranks have for the root: into a parcel, or at the root where it belongs.
Status StagedMessages::pack_gathered() {
    const int root = call_.operation.root;
    const bool at_root = rank_ == root;
    const auto length = [&](size_t local) { return *reinterpret_cast<const uint32_t *>(shown_[local]); };
    size_t bytes = 0;
    for (size_t local = 0; local < here_; ++local)
        bytes += if_led(length(local));
    Parcel all = at_root ? Parcel() : parcel(here_, bytes);
    std::byte *next = at_root ? nullptr : all.first();
    for (size_t local = 0; local < here_; ++local) {
        const int from = on(host_)[local];
        const uint32_t part = if_led(length(local));
        const std::byte *data = shown_[local] + sizeof(uint32_t);
        if (!at_root) {
            all.lengths[local] = length(local);
            put(next, data, part);
            next += part;
            continue;
        }
        const size_t awaited = from == root ? 0 : count(call_.blocks, from);
        if (length(local) != told(awaited))
            return differ(from, length(local), root, awaited);
        put(call_.out() + (part != 0 ? place_of(call_.blocks, from) : 0), data, part);
    }
    sent_[host_of(root)] = all;
    return {};
}

/// At the root: what it awaits of other hosts.
void StagedMessages::await_gathered() {
    for (size_t host = 0; host < hosts(); ++host) {
        if (host == host_)
            continue;
        awaited_[host] = parcel(on(host).size(), 0);
        for (size_t local = 0; local < on(host).size(); ++local) {
            awaited_[host].lengths[local] = told(count(call_.blocks, on(host)[local]));
            awaited_[host].bytes += if_led(awaited_[host].lengths[local]);
        }
    }
}

/// At the root: what came of other hosts.
void StagedMessages::put_gathered() {
    for (size_t host = 0; host < hosts(); ++host) {
        const Parcel &came = came_[host];
        if (came.lengths == nullptr)
            continue;
        const std::byte *next = came.first();
        for (size_t local = 0; local < came.messages; ++local) {
            const uint32_t bytes = if_led(came.lengths[local]);
            put(call_.out() + (bytes != 0 ? place_of(call_.blocks, on(host)[local]) : 0), next, bytes);
            next += bytes;
        }
    }
}

/// Heads gather what their hosts have, the root what all heads have.
Status StagedMessages::gatherv() {
    const int root = call_.operation.root;
    const bool at_root = rank_ == root;
    const size_t own = at_root ? count(call_.blocks, root) : call_.own * element_;
    if (at_root && !call_.in_place && own != 0)
        put(call_.out() + place_of(call_.blocks, root), call_.in(), own);
    const auto show = [&](std::byte *place) {
        const uint32_t bytes = at_root ? 0 : if_led(own);
        *reinterpret_cast<uint32_t *>(place) = at_root ? 0 : told(own);
        put(place + sizeof bytes, call_.in(), bytes);
        shown_bytes_ += leads() ? 0 : sizeof bytes + bytes;
        shown_[own_] = place;
    };
    const size_t most = shown_messages(Collective::gatherv, placement_, led_);
    if (leads())
        show(between_.aside(most));
    Status packed;
    size_t others = 0;
    if (alone())
        packed = pack_gathered();
    else
        FLX_TRY(near_->fused().hand_in(
            most, static_cast<int>(local_of(heads_[host_])), show,
            [&](int local, const std::byte *theirs) {
                shown_[static_cast<size_t>(local)] = theirs;
                if (++others == here_ - 1)
                    packed = pack_gathered();  // while all of it is shown
            },
            signature_, waiter_));
    FLX_TRY(std::move(packed));
    if (at_root)
        await_gathered();
    FLX_TRY(exchange_parcels());
    FLX_TRY(carry_long(own));
    if (at_root)
        put_gathered();
    return {};
}

/// At the root: what it has for other hosts. Returns what it has for its own.
StagedMessages::Parcel StagedMessages::pack_scattered() {
    Parcel own_host;
    for (size_t host = 0; host < hosts(); ++host) {
        size_t bytes = 0;
        for (const int rank : on(host))
            bytes += rank == rank_ ? 0 : if_led(count(call_.blocks, rank));
        Parcel all = parcel(on(host).size(), bytes);
        std::byte *next = all.first();
        for (size_t local = 0; local < on(host).size(); ++local) {
            const int rank = on(host)[local];
            all.lengths[local] = rank == rank_ ? 0 : told(count(call_.blocks, rank));
            const uint32_t part = if_led(all.lengths[local]);
            put(next, call_.in() + (part != 0 ? place_of(call_.blocks, rank) : 0), part);
            next += part;
        }
        (host == host_ ? own_host : sent_[host]) = all;
    }
    return own_host;
}

/// What the head has for the ranks of its host, to each its part; `own`: bytes of this rank's.
Status StagedMessages::deal_scattered(const Parcel &dealt, size_t own) {
    const auto take = [&](const std::byte *parts, const uint32_t *lengths) {
        const uint32_t bytes = if_led(own);
        for (size_t local = 0; bytes != 0 && local < own_; ++local)
            parts += if_led(lengths[local]);
        put(call_.out(), parts, bytes);
    };
    if (leads() && rank_ != call_.operation.root)
        take(dealt.first(), dealt.lengths);
    if (alone())
        return {};
    return near_->fused().hand_out(
        dealt_messages(Collective::scatterv, placement_, led_), static_cast<int>(local_of(heads_[host_])),
        [&](std::byte *place) {
            put(place, reinterpret_cast<const std::byte *>(dealt.lengths), dealt.size());
            shown_bytes_ += dealt.size();
        },
        [&](const std::byte *theirs) {
            take(theirs + here_ * sizeof(uint32_t), reinterpret_cast<const uint32_t *>(theirs));
        },
        signature_, waiter_);
}

/// The other way round: heads learn first how much their hosts' ranks await.
Status StagedMessages::scatterv() {
    const int root = call_.operation.root;
    const bool at_root = rank_ == root;
    const size_t own = at_root ? count(call_.blocks, root) : call_.own * element_;
    if (at_root && !call_.in_place && own != 0)
        put(call_.out(), call_.in() + place_of(call_.blocks, root), own);
    Parcel here = parcel(here_, 0);
    const auto show = [&](std::byte *place) { *reinterpret_cast<uint32_t *>(place) = at_root ? 0 : told(own); };
    show(reinterpret_cast<std::byte *>(here.lengths + own_));
    if (!alone())
        FLX_TRY(near_->fused().hand_in(
            shown_messages(Collective::scatterv, placement_, led_), static_cast<int>(local_of(heads_[host_])), show,
            [&](int local, const std::byte *theirs) {
                here.lengths[local] = *reinterpret_cast<const uint32_t *>(theirs);
            },
            signature_, waiter_));
    for (size_t local = 0; leads() && local < here_; ++local)
        here.bytes += if_led(here.lengths[local]);
    Parcel own_host;
    if (at_root) {
        own_host = pack_scattered();
        FLX_TRY(check(own_host, here, host_, host_));
    } else if (leads()) {
        awaited_[host_of(root)] = here;
    }
    FLX_TRY(exchange_parcels());
    FLX_TRY(carry_long(own));
    return deal_scattered(at_root ? own_host : came_[host_of(root)], own);
}

}  // namespace flx
