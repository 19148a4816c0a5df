#include "runtime/communicator/staged.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "runtime/communicator/staged_messages.h"
#include "runtime/elements/dtype.h"
#include "runtime/elements/reduce.h"
#include "runtime/plan/staged.h"

namespace flx {

using algorithms::Algorithm;
using algorithms::Collective;
using algorithms::Family;
using algorithms::Placement;

namespace {

/// What hosts add of an average: only the last sum is divided.
flx_op_t partial(flx_op_t op) {
    return op == FLX_AVG ? FLX_SUM : op;
}

/// The blocks of `ranks`, from where blocks lie in the order of ranks to where they lie side by side, and back.
void take_out(const std::vector<int> &ranks, const std::byte *from, std::byte *to, size_t block) {
    if (algorithms::follow_each_other(ranks))
        return put(to, from + static_cast<size_t>(ranks.front()) * block, ranks.size() * block);
    for (size_t i = 0; i < ranks.size(); ++i)
        put(to + i * block, from + static_cast<size_t>(ranks[i]) * block, block);
}

void put_in(const std::vector<int> &ranks, const std::byte *from, std::byte *to, size_t block) {
    if (algorithms::follow_each_other(ranks))
        return put(to + static_cast<size_t>(ranks.front()) * block, from, ranks.size() * block);
    for (size_t i = 0; i < ranks.size(); ++i)
        put(to + static_cast<size_t>(ranks[i]) * block, from + i * block, block);
}

}  // namespace

Staged::Staged(int rank, const Placement &placement, shm::Nearby *near)
    : rank_(rank),
      placement_(placement),
      near_(near),
      host_(static_cast<size_t>(placement.host[static_cast<size_t>(rank)])),
      in_order_(placement.in_order()),
      collected_(here()),
      sent_(placement.ranks.size()),
      came_(placement.ranks.size()) {
    for (const std::vector<int> &ranks : placement_.ranks)
        for (size_t local = 0; local < ranks.size(); ++local)
            collected_[local % here()].push_back(ranks[local]);
    for (const std::vector<int> &ranks : collected_)
        most_collected_ = std::max(most_collected_, ranks.size());
}

Status Staged::run(const Call &call, const Choice &choice, Between &between, Waiter &waiter) {
    const Operation &operation = call.operation;
    const Algorithm *algorithm = choice.algorithm;
    const Blocks &blocks = call.blocks;
    operation_ = &operation;
    blocks_ = blocks;
    if (blocks.counts != nullptr && blocks.displacements == nullptr) {
        places_.resize(static_cast<size_t>(placement_.size()));
        std::exclusive_scan(blocks.counts, blocks.counts + places_.size(), places_.begin(), size_t{0});
        blocks_.displacements = places_.data();
    }
    between_ = &between;
    waiter_ = &waiter;
    element_ = size_of(operation.dtype);
    shown_ = 0;
    find_heads();
    if (operation.collective == Collective::alltoall)
        return algorithm == nullptr                   ? alltoall_by_lanes()
               : algorithm->family == Family::leaders ? alltoall_by_leaders(*algorithm->between_hosts)
                                                      : alltoall_by_lanes_in_rounds();
    if (may_stage_messages(operation.collective)) {
        StagedMessages messages(call, choice, rank_, placement_, heads_, near_, between, waiter);
        Status status = messages.run();
        shown_ = messages.shown();
        return status;
    }
    if (operation.collective == Collective::scan || operation.collective == Collective::exscan)
        return scanned();
    if (algorithm->family == Family::lanes)
        return allreduce_by_lanes(*algorithm->between_hosts);
    return by_leaders(*algorithm->between_hosts);
}

int Staged::numbers(const Algorithm *algorithm, const Placement &placement) {
    return algorithm != nullptr && algorithm->family == Family::lanes ? placement.most() : 1;
}

void Staged::find_heads() {
    heads_.clear();
    for (const std::vector<int> &ranks : placement_.ranks)
        heads_.push_back(ranks.front());
    if (algorithms::rooted(equal_blocks_of(operation_->collective)))
        heads_[static_cast<size_t>(placement_.host[static_cast<size_t>(operation_->root)])] = operation_->root;
}

Status Staged::by_leaders(const Algorithm &between) {
    switch (operation_->collective) {
        case Collective::allreduce:
        case Collective::barrier:
        case Collective::reduce:
            return reduced(between);
        case Collective::bcast:
            return broadcast(between);
        case Collective::allgather:
        case Collective::allgatherv:
            return exchanged_all(between);
        case Collective::reduce_scatter_block:
        case Collective::reduce_scatter:
            return summed_parts(between);
        case Collective::gather:
            return gathered(between);
        case Collective::scatter:
            return scattered(between);
        default:  // not served
            break;
    }
    return {};
}

/// The operation as one stage has it.
Operation Staged::part(Collective collective, const void *in, void *out, size_t count) const {
    Operation part = *operation_;
    part.collective = collective;
    part.in = in;
    part.out = out;
    part.count = count;
    part.divisor = operation_->divisor != 0 ? operation_->divisor : placement_.size();
    return part;
}

/// The host's sum, at its head. Piece by piece, where a piece is what one rank may show.
Status Staged::reduce_here(const std::byte *in, std::byte *out, size_t count) {
    const size_t most = near_->fused().payload_bytes() / element_;
    shown_ += leads() ? 0 : count * element_;
    for (size_t at = 0; at < count; at += most)
        FLX_TRY(near_->fused().reduce(in + at * element_, out != nullptr ? out + at * element_ : nullptr,
                                      std::min(most, count - at), operation_->dtype, partial(operation_->op),
                                      local_of(head()), operation_->signature, *waiter_));
    return {};
}

/// From a host's head to all of its ranks.
Status Staged::pass_on(std::byte *buffer, size_t bytes) {
    const size_t most = near_->fused().payload_bytes();
    shown_ += leads() ? bytes : 0;
    for (size_t at = 0; at < bytes; at += most)
        FLX_TRY(near_->fused().bcast(buffer + at, std::min(most, bytes - at), local_of(head()), operation_->signature,
                                     *waiter_));
    return {};
}

/// Blocks of a host's ranks to its head, and from it, where they lie side by side.
Status Staged::gather_here(const void *in, std::byte *out) {
    lengths_.clear();
    for (const int rank : placement_.ranks[host_])
        lengths_.push_back(length_of(rank));
    shown_ += leads() ? 0 : length_of(rank_);
    return near_->fused().gatherv(in, out, lengths_.data(), local_of(head()), operation_->signature, *waiter_);
}

Status Staged::scatter_here(const std::byte *in, void *out) {
    lengths_.clear();
    for (const int rank : placement_.ranks[host_])
        lengths_.push_back(length_of(rank));
    shown_ += leads() ? std::accumulate(lengths_.begin(), lengths_.end(), size_t{0}) - length_of(rank_) : 0;
    return near_->fused().scatterv(in, out, lengths_.data(), local_of(head()), operation_->signature, *waiter_);
}

/// allreduce, barrier and reduce. Sums of hosts lie where the result will, or in memory of the operation's own.
Status Staged::reduced(const Algorithm &between) {
    const bool to_all = operation_->collective != Collective::reduce;
    const size_t count = operation_->count;
    const auto *in = static_cast<const std::byte *>(operation_->in);
    auto *out = static_cast<std::byte *>(operation_->out);
    if (leads()) {
        const bool keeps = !to_all && rank_ != operation_->root;
        std::byte *sum = keeps && !alone() ? between_->aside(count * element_) : out;
        if (!alone())
            FLX_TRY(reduce_here(in, sum, count));
        const Collective collective = to_all ? Collective::allreduce : Collective::reduce;
        const int root = to_all ? 0 : placement_.host[static_cast<size_t>(operation_->root)];
        FLX_TRY(between_->give(part(collective, alone() ? in : sum, keeps ? nullptr : out, count), between, {}, heads_,
                               root));
        FLX_TRY(between_->carry());
    } else {
        FLX_TRY(reduce_here(in, nullptr, count));
    }
    return to_all && !alone() ? pass_on(out, count * element_) : Status();
}

Status Staged::broadcast(const Algorithm &between) {
    auto *out = static_cast<std::byte *>(operation_->out);
    if (leads()) {
        FLX_TRY(between_->give(part(Collective::bcast, operation_->in, out, operation_->count), between, {}, heads_,
                               placement_.host[static_cast<size_t>(operation_->root)]));
        FLX_TRY(between_->carry());
    }
    return alone() ? Status() : pass_on(out, operation_->count * element_);
}

/// Bytes of a rank's block, and where it lies.
size_t Staged::length_of(int rank) const {
    return element_ * (blocks_.counts != nullptr ? blocks_.counts[rank]
                                                 : operation_->count / static_cast<size_t>(placement_.size()));
}

size_t Staged::place_of(int rank) const {
    return blocks_.displacements != nullptr ? blocks_.displacements[rank] * element_
                                            : static_cast<size_t>(rank) * length_of(0);
}

/// Whether blocks lie where they would if those of a host, and then hosts, came one after the other.
bool Staged::lie_in_order() const {
    size_t at = 0;
    for (int rank = 0; in_order_ && blocks_.displacements != nullptr && rank < placement_.size(); ++rank) {
        if (place_of(rank) != at)
            return false;
        at += length_of(rank);
    }
    return in_order_;
}

void Staged::set_host_blocks() {
    counts_.clear();
    displacements_.clear();
    size_t at = 0;
    for (const std::vector<int> &ranks : placement_.ranks) {
        size_t bytes = 0;
        for (const int rank : ranks)
            bytes += length_of(rank);
        counts_.push_back(bytes / element_);
        displacements_.push_back(at);
        at += counts_.back();
    }
}

/// Blocks from where they lie to where those of hosts come one after the other, and back.
void Staged::to_host_order(const std::byte *from, std::byte *to) const {
    for (const std::vector<int> &ranks : placement_.ranks)
        for (const int rank : ranks) {
            put(to, from + place_of(rank), length_of(rank));
            to += length_of(rank);
        }
}

void Staged::to_rank_order(const std::byte *from, std::byte *to) const {
    for (const std::vector<int> &ranks : placement_.ranks)
        for (const int rank : ranks) {
            put(to + place_of(rank), from, length_of(rank));
            from += length_of(rank);
        }
}

/// allgather and allgatherv: leaders exchange each host's blocks as one.
Status Staged::exchanged_all(const Algorithm &between) {
    const auto *in = static_cast<const std::byte *>(operation_->in);
    auto *out = static_cast<std::byte *>(operation_->out);
    const bool in_place = lie_in_order();
    std::byte *all = in_place ? out : between_->aside(operation_->count * element_);
    set_host_blocks();
    if (!leads())
        FLX_TRY(gather_here(in, nullptr));
    if (leads()) {
        std::byte *own = all + displacements_[host_] * element_;
        if (!alone())
            FLX_TRY(gather_here(in, own));
        else
            put(own, in, length_of(rank_));
        FLX_TRY(between_->give(part(Collective::allgather, own, all, operation_->count), between,
                               {counts_.data(), displacements_.data()}, heads_, 0));
        FLX_TRY(between_->carry());
    }
    if (!alone())
        FLX_TRY(pass_on(all, operation_->count * element_));
    if (!in_place)
        to_rank_order(all, out);
    return {};
}

/// reduce_scatter_block and reduce_scatter.
Status Staged::summed_parts(const Algorithm &between) {
    const auto *in = static_cast<const std::byte *>(operation_->in);
    auto *out = static_cast<std::byte *>(operation_->out);
    set_host_blocks();
    if (!leads()) {
        FLX_TRY(reduce_here(in, nullptr, operation_->count));
        return scatter_here(nullptr, out);
    }
    const std::byte *partial = in;
    if (!alone()) {
        std::byte *sums = between_->aside(operation_->count * element_);
        FLX_TRY(reduce_here(in, sums, operation_->count));
        partial = sums;
    }
    if (!in_order_) {
        std::byte *ordered = between_->aside(operation_->count * element_);
        to_host_order(partial, ordered);
        partial = ordered;
    }
    // In place, blocks of other lengths than this one's would lie beneath the result before they are sent.
    const bool into_out = alone() && (blocks_.counts == nullptr || in != out);
    std::byte *sums = into_out ? out : between_->aside(counts_[host_] * element_);
    FLX_TRY(between_->give(part(Collective::reduce_scatter_block, partial, sums, operation_->count), between,
                           {counts_.data(), displacements_.data()}, heads_, 0));
    FLX_TRY(between_->carry());
    if (!alone())
        return scatter_here(sums, out);
    put(out, sums, length_of(rank_));
    return {};
}

/// gather.
Status Staged::gathered(const Algorithm &between) {
    const bool root = rank_ == operation_->root;
    const auto *in = static_cast<const std::byte *>(operation_->in);
    auto *out = static_cast<std::byte *>(operation_->out);
    set_host_blocks();
    if (!leads())
        return gather_here(in, nullptr);
    std::byte *all = !root ? nullptr : in_order_ ? out : between_->aside(operation_->count * element_);
    std::byte *here = (root ? all + displacements_[host_] * element_ : between_->aside(counts_[host_] * element_));
    if (!alone())
        FLX_TRY(gather_here(in, here));
    else
        put(here, in, length_of(rank_));
    FLX_TRY(give_blocks(Collective::gather, here, all, between));
    if (root && !in_order_)
        to_rank_order(all, out);
    return {};
}

/// scatter, the other way round.
Status Staged::scattered(const Algorithm &between) {
    const bool root = rank_ == operation_->root;
    auto *out = static_cast<std::byte *>(operation_->out);
    set_host_blocks();
    if (!leads())
        return scatter_here(nullptr, out);
    const auto *all = static_cast<const std::byte *>(operation_->in);
    if (root && !in_order_) {
        std::byte *ordered = between_->aside(operation_->count * element_);
        to_host_order(all, ordered);
        all = ordered;
    }
    // The root's host needs no message: what it would get is where it would come from.
    auto *here = root ? const_cast<std::byte *>(all + displacements_[host_] * element_)
                      : between_->aside(counts_[host_] * element_);
    FLX_TRY(give_blocks(Collective::scatter, all, here, between));
    if (!alone())
        return scatter_here(here, out);
    put(out, here, length_of(rank_));
    return {};
}

/// Hosts' blocks to the root's or from it, carried.
Status Staged::give_blocks(Collective collective, const void *in, void *out, const Algorithm &between) {
    FLX_TRY(between_->give(part(collective, in, out, operation_->count), between,
                           {counts_.data(), displacements_.data()}, heads_,
                           placement_.host[static_cast<size_t>(operation_->root)]));
    return between_->carry();
}

/// The vector at `from` to `memory` of the rank after it, carried. As a bcast of two ranks, since messages do not say
/// which call they are of.
Status Staged::hand_on(int from, std::byte *memory) {
    drivers_ = {from, from + 1};
    FLX_TRY(between_->give(part(Collective::bcast, memory, memory, operation_->count),
                           *algorithms::find("binomial_tree"), {}, drivers_, 0));
    return between_->carry();
}

/// scan and exscan, where hosts lie one after the other: as a chain of ranks combines. The first rank of a host shows
/// what all hosts before it have together with its own, so that its host's scan has that in front; the last one hands
/// on what all ranks up to it have.
Status Staged::scanned() {
    const bool exclusive = operation_->collective == Collective::exscan;
    const size_t count = operation_->count;
    const size_t bytes = count * element_;
    const auto *in = static_cast<const std::byte *>(operation_->in);
    auto *out = static_cast<std::byte *>(operation_->out);
    const std::vector<int> &ranks = placement_.ranks[host_];
    const bool hands_on = rank_ == ranks.back() && rank_ != placement_.size() - 1;
    const std::byte *front = nullptr;
    const std::byte *own = in;  // with what is in front of it
    if (rank_ == ranks.front() && host_ != 0) {
        std::byte *came = between_->aside(bytes);
        FLX_TRY(hand_on(rank_ - 1, came));
        std::byte *sum = between_->aside(bytes);
        reduce_pair(operation_->dtype, operation_->op, sum, came, in, count);
        front = came;
        own = sum;
    }
    std::byte *all = exclusive && hands_on ? between_->aside(bytes) : nullptr;  // up to this rank
    if (all != nullptr)
        put(all, own, bytes);  // in place, what comes lies over it
    if (!alone()) {
        shown_ += bytes;
        FLX_TRY(near_->fused().scan(exclusive, own, out, count, operation_->dtype, operation_->op,
                                    operation_->signature, *waiter_));
        if (all != nullptr && rank_ != ranks.front())
            reduce_pair(operation_->dtype, operation_->op, all, out, all, count);
    } else if (!exclusive) {
        put(out, own, bytes);
    }
    if (exclusive && front != nullptr)
        put(out, front, bytes);
    return hands_on ? hand_on(rank_, all != nullptr ? all : out) : Status();
}

/// How many blocks an allreduce between hosts has.
uint32_t Staged::blocks_of(const Algorithm &between) {
    const auto kept = std::ranges::find(blocks_of_, &between, [](const auto &one) { return one.first; });
    if (kept != blocks_of_.end())
        return kept->second;
    const uint32_t blocks = between.build({Collective::allreduce, 0, placement_.hosts(), 0, nullptr}).blocks;
    blocks_of_.emplace_back(&between, blocks);
    return blocks;
}

/// Each rank carries a lane between hosts, on hosts with fewer ranks than lanes several: those go round by round, in
/// each of which a rank has one at most.
Status Staged::allreduce_by_lanes(const Algorithm &between) {
    const auto lanes = static_cast<size_t>(placement_.most());
    const size_t round = here();
    const auto own = static_cast<size_t>(local_of(rank_));
    const auto *in = static_cast<const std::byte *>(operation_->in);
    auto *out = static_cast<std::byte *>(operation_->out);
    // As the schedule cuts the vector, since it may depend on the block in which order hosts' sums are added.
    const uint32_t each = blocks_of(between);
    const auto begin_of = [&](size_t lane) {
        const auto blocks = static_cast<uint32_t>(lanes) * each;
        return lane == lanes
                   ? operation_->count
                   : algorithms::block_extent(operation_->count, blocks, static_cast<uint32_t>(lane) * each).offset;
    };
    counts_.resize(round);
    displacements_.resize(round);
    const auto set_round = [&](size_t first) {
        for (size_t i = 0; i < round; ++i) {
            displacements_[i] = begin_of(std::min(first + i, lanes));
            counts_[i] = begin_of(std::min(first + i + 1, lanes)) - displacements_[i];
        }
    };
    for (size_t first = 0; first < lanes && !alone(); first += round) {
        set_round(first);
        shown_ += (displacements_.back() + counts_.back() - displacements_[0]) * element_;
        FLX_TRY(near_->fused().reduce_scatter(in + displacements_[0] * element_, out + displacements_[own] * element_,
                                              counts_.data(), operation_->dtype, partial(operation_->op),
                                              operation_->signature, *waiter_));
    }
    for (size_t lane = own; lane < lanes; lane += round) {
        drivers_.clear();
        for (int host = 0; host < placement_.hosts(); ++host)
            drivers_.push_back(placement_.driver(host, static_cast<int>(lane)));
        const size_t at = begin_of(lane) * element_;
        Operation sum =
            part(Collective::allreduce, (alone() ? in : out) + at, out + at, begin_of(lane + 1) - begin_of(lane));
        sum.sequence += lane;
        if (sum.count != 0)
            FLX_TRY(between_->give(sum, between, {}, drivers_, 0));
    }
    FLX_TRY(between_->carry());
    for (size_t first = 0; first < lanes && !alone(); first += round) {
        set_round(first);
        shown_ += counts_[own] * element_;
        FLX_TRY(near_->fused().allgatherv(out + displacements_[own] * element_, out, counts_.data(),
                                          displacements_.data(), element_, operation_->signature, *waiter_));
    }
    return {};
}

/// What each rank shows its host of an alltoall by lanes: for each of its ranks the blocks of those whose messages that
/// one collects. What this rank collects of a rank of its host for the i-th of those goes to `place(i, local)`.
template <typename Place>
Status Staged::collect(size_t block, const Place &place) {
    const auto *in = static_cast<const std::byte *>(operation_->in);
    const auto own = static_cast<size_t>(local_of(rank_));
    const std::vector<int> &mine = collected_[own];
    for (size_t i = 0; i < mine.size(); ++i)
        put(place(i, own), in + static_cast<size_t>(mine[i]) * block, block);
    if (alone())
        return {};
    const size_t part = most_collected_ * block;
    shown_ += (here() - 1) * part;
    return near_->fused().exchange(
        here() * part,
        [&](std::byte *shown) {
            for (size_t local = 0; local < here(); ++local)
                for (size_t i = 0; i < collected_[local].size(); ++i)
                    put(shown + local * part + i * block, in + static_cast<size_t>(collected_[local][i]) * block,
                        block);
        },
        [&](int local, const std::byte *theirs) {
            for (size_t i = 0; i < mine.size(); ++i)
                put(place(i, static_cast<size_t>(local)), theirs + own * part + i * block, block);
        },
        operation_->signature, *waiter_);
}

/// A rank collects what its host has for the ranks with its index on their hosts (on smaller hosts, for those with
/// others, too), and sends it to them as one message each.
Status Staged::alltoall_by_lanes() {
    const size_t block = operation_->count / static_cast<size_t>(placement_.size()) * element_;
    const size_t here = this->here();
    auto *out = static_cast<std::byte *>(operation_->out);
    std::byte *sent = between_->aside(here * most_collected_ * block);
    const std::vector<int> &own_host = placement_.ranks[host_];
    const std::vector<int> &mine = collected_[static_cast<size_t>(local_of(rank_))];
    FLX_TRY(collect(block, [&](size_t i, size_t local) {
        return mine[i] == rank_ ? out + static_cast<size_t>(own_host[local]) * block
                                : sent + (i * here + local) * block;
    }));
    Exchange &messages = between_->messages();
    for (size_t i = 0; i < mine.size(); ++i)
        if (mine[i] != rank_)
            messages.send(mine[i], sent + i * here * block, here * block, operation_->sequence);
    for (size_t host = 0; host < placement_.ranks.size(); ++host) {
        const std::vector<int> &ranks = placement_.ranks[host];
        if (host == host_)
            continue;
        came_[host] = algorithms::follow_each_other(ranks) ? out + static_cast<size_t>(ranks.front()) * block
                                                           : between_->aside(ranks.size() * block);
        messages.receive(placement_.driver(static_cast<int>(host), local_of(rank_)), came_[host], ranks.size() * block,
                         operation_->sequence);
    }
    FLX_TRY(between_->give_messages(*operation_));
    FLX_TRY(between_->carry());
    for (size_t host = 0; host < placement_.ranks.size(); ++host)
        if (host != host_)
            put_in(placement_.ranks[host], came_[host], out, block);
    return {};
}

/// The same in the fewest rounds, where all hosts have equally many ranks.
Status Staged::alltoall_by_lanes_in_rounds() {
    const size_t here = this->here();
    const size_t block = operation_->count / static_cast<size_t>(placement_.size()) * element_;
    auto *out = static_cast<std::byte *>(operation_->out);
    const std::vector<int> &own_host = placement_.ranks[host_];
    std::byte *parts = between_->aside(placement_.ranks.size() * here * block);
    FLX_TRY(collect(block, [&](size_t host, size_t local) {
        return host == host_ ? out + static_cast<size_t>(own_host[local]) * block
                             : parts + (distance_to(host) * here + local) * block;
    }));
    drivers_.clear();
    for (const std::vector<int> &ranks : placement_.ranks)
        drivers_.push_back(ranks[static_cast<size_t>(local_of(rank_))]);
    FLX_TRY(exchange_in_rounds(parts, here * block, drivers_));
    for (size_t host = 0; host < placement_.ranks.size(); ++host)
        if (host != host_)
            put_in(placement_.ranks[host], came_[host], out, block);
    return {};
}

/// What is for a host at some distance goes in steps of 1, 2, 4, …, as the bits of the distance say, in one message a
/// round with all that has such a bit. `parts`: of `part` bytes, by distance, which are overwritten. `carriers`: who
/// sends and receives for each host; the others only take the rounds' numbers.
Status Staged::exchange_in_rounds(std::byte *parts, size_t part, const std::vector<int> &carriers) {
    const size_t hosts = carriers.size();
    const bool carries = carriers[host_] == rank_;
    std::byte *sent = carries ? between_->aside(hosts * part) : nullptr;
    std::byte *came = carries ? between_->aside(hosts * part) : nullptr;
    Operation round = *operation_;
    for (size_t bit = 1; bit < hosts; bit *= 2) {
        // Of a number that is behind the last one nothing is taken any more: each round has one when it begins.
        if (bit > 1)
            round.sequence = between_->next_number();
        if (!carries)
            continue;
        size_t bytes = 0;
        for (size_t distance = bit; distance < hosts; ++distance)
            if ((distance & bit) != 0) {
                put(sent + bytes, parts + distance * part, part);
                bytes += part;
            }
        Exchange &messages = between_->messages();
        messages.send(carriers[(host_ + bit) % hosts], sent, bytes, round.sequence);
        messages.receive(carriers[(host_ + hosts - bit) % hosts], came, bytes, round.sequence);
        FLX_TRY(between_->give_messages(round));
        FLX_TRY(between_->carry());
        const std::byte *next = came;
        for (size_t distance = bit; distance < hosts; ++distance)
            if ((distance & bit) != 0) {
                put(parts + distance * part, next, part);
                next += part;
            }
    }
    for (size_t host = 0; carries && host < hosts; ++host)
        came_[host] = parts + (hosts - distance_to(host)) % hosts * part;
    return {};
}

/// Ranks show all that they have. What is for their own host they take from there; the head takes what is for each
/// other host, for each rank of this one its blocks for the ranks of that one.
Status Staged::collect_at_head(size_t block) {
    const auto *in = static_cast<const std::byte *>(operation_->in);
    auto *out = static_cast<std::byte *>(operation_->out);
    const std::vector<int> &own_host = placement_.ranks[host_];
    const auto take_away = [&](size_t local, const std::byte *from) {
        for (size_t host = 0; leads() && host < placement_.ranks.size(); ++host)
            if (host != host_)
                take_out(placement_.ranks[host], from, sent_[host] + local * placement_.ranks[host].size() * block,
                         block);
    };
    const auto own = static_cast<size_t>(rank_) * block;
    take_away(static_cast<size_t>(local_of(rank_)), in);
    if (alone()) {
        put(out + own, in + own, block);
        return {};
    }
    shown_ += operation_->count * element_ - block;
    return near_->fused().exchange(
        operation_->count * element_,
        [&](std::byte *shown) {
            put(shown, in, operation_->count * element_);
            put(out + own, in + own, block);
        },
        [&](int local, const std::byte *theirs) {
            put(out + static_cast<size_t>(own_host[static_cast<size_t>(local)]) * block, theirs + own, block);
            take_away(static_cast<size_t>(local), theirs);
        },
        operation_->signature, *waiter_);
}

/// The head shows each rank of its host what came for it: the blocks of each other host's ranks.
Status Staged::deal(size_t block) {
    auto *out = static_cast<std::byte *>(operation_->out);
    const size_t here = this->here();
    const size_t part = (static_cast<size_t>(placement_.size()) - here) * block;
    const auto put_in_all = [&](const std::byte *from) {
        for (const std::vector<int> &ranks : placement_.ranks)
            if (&ranks != &placement_.ranks[host_]) {
                put_in(ranks, from, out, block);
                from += ranks.size() * block;
            }
    };
    const auto own = static_cast<size_t>(local_of(rank_));
    const auto deal_to = [&](size_t local, std::byte *to) {
        for (size_t host = 0; host < placement_.ranks.size(); ++host)
            for (size_t i = 0; host != host_ && i < placement_.ranks[host].size(); ++i, to += block)
                put(to, came_[host] + (i * here + local) * block, block);
    };
    if (leads()) {
        std::byte *mine = between_->aside(part);
        deal_to(own, mine);
        put_in_all(mine);
    }
    if (alone())
        return {};
    // The head's own place is left out.
    const auto place_of = [&](size_t local) {
        return (local - (local > static_cast<size_t>(local_of(head())) ? 1 : 0)) * part;
    };
    shown_ += leads() ? (here - 1) * part : 0;
    return near_->fused().hand_out((here - 1) * part, local_of(head()),
                                   [&](std::byte *shown) {
                                       for (size_t local = 0; local < here; ++local)
                                           if (local != own)
                                               deal_to(local, shown + place_of(local));
                                   },
                                   [&](const std::byte *theirs) { put_in_all(theirs + place_of(own)); },
                                   operation_->signature, *waiter_);
}

/// The head of a host sends and receives for all of its ranks: the fewest messages.
Status Staged::alltoall_by_leaders(const Algorithm &between) {
    const bool in_rounds = between.name == "bruck";
    const size_t block = operation_->count / static_cast<size_t>(placement_.size()) * element_;
    const size_t hosts = placement_.ranks.size();
    const auto part_of = [&](size_t host) { return here() * placement_.ranks[host].size() * block; };
    std::byte *parts = nullptr;  // by distance: what is for a host
    if (leads()) {
        size_t at = 0;
        parts = between_->aside((static_cast<size_t>(placement_.size())) * here() * block);
        for (size_t distance = 0; distance < hosts; ++distance) {
            const size_t host = (host_ + distance) % hosts;
            sent_[host] = parts + at;
            at += part_of(host);
        }
    }
    FLX_TRY(collect_at_head(block));
    if (in_rounds)
        FLX_TRY(exchange_in_rounds(parts, part_of(host_), heads_));
    if (!in_rounds && leads()) {
        Exchange &messages = between_->messages();
        for (size_t distance = 1; distance < hosts; ++distance) {
            const size_t to = (host_ + distance) % hosts;
            const size_t from = (host_ + hosts - distance) % hosts;
            messages.send(heads_[to], sent_[to], part_of(to), operation_->sequence);
            came_[from] = between_->aside(part_of(from));
            messages.receive(heads_[from], came_[from], part_of(from), operation_->sequence);
        }
        FLX_TRY(between_->give_messages(*operation_));
        FLX_TRY(between_->carry());
    }
    return deal(block);
}

}  // namespace flx
