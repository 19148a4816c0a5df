#include "runtime/communicator/staged.h"

#include <algorithm>
#include <cstring>

#include "runtime/elements/dtype.h"

namespace flx {

using algorithms::Algorithm;
using algorithms::Collective;
using algorithms::Family;
using algorithms::Placement;

namespace {

bool follow_each_other(const std::vector<int> &ranks) {
    return ranks.back() - ranks.front() + 1 == static_cast<int>(ranks.size());
}

/// What hosts add of an average: only the last sum is divided.
flx_op_t partial(flx_op_t op) {
    return op == FLX_AVG ? FLX_SUM : op;
}

void put(std::byte *to, const std::byte *from, size_t bytes) {
    if (to != from && bytes != 0)
        std::memcpy(to, from, bytes);
}

}  // namespace

Staged::Staged(int rank, const Placement &placement, shm::Nearby *near)
    : rank_(rank),
      placement_(placement),
      near_(near),
      host_(static_cast<size_t>(placement.host[static_cast<size_t>(rank)])),
      in_order_(std::ranges::all_of(placement.ranks, follow_each_other)),
      collected_(here()),
      came_(placement.ranks.size()) {
    for (const std::vector<int> &ranks : placement_.ranks)
        for (size_t local = 0; local < ranks.size(); ++local)
            collected_[local % here()].push_back(ranks[local]);
    for (const std::vector<int> &ranks : collected_)
        most_collected_ = std::max(most_collected_, ranks.size());
}

Status Staged::run(const Operation &operation, const Algorithm *algorithm, Between &between, Waiter &waiter) {
    operation_ = &operation;
    between_ = &between;
    waiter_ = &waiter;
    element_ = size_of(operation.dtype);
    shown_ = 0;
    find_heads();
    if (operation.collective == Collective::alltoall)
        return algorithm == nullptr ? alltoall_by_lanes() : alltoall_by_rounds();
    if (algorithm->family == Family::lanes)
        return allreduce_by_lanes(*algorithm->between_hosts);
    return by_leaders(*algorithm->between_hosts);
}

int Staged::numbers(Collective collective, const Algorithm *algorithm, const Placement &placement) {
    return collective != Collective::alltoall && algorithm->family == Family::lanes ? placement.most() : 1;
}

void Staged::find_heads() {
    heads_.clear();
    for (const std::vector<int> &ranks : placement_.ranks)
        heads_.push_back(ranks.front());
    if (algorithms::rooted(operation_->collective))
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
            return exchanged_all(between);
        case Collective::reduce_scatter_block:
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

/// Blocks of a host's ranks to its head, and from it.
Status Staged::gather_here(const void *in, void *out, size_t block) {
    shown_ += leads() ? 0 : block;
    return near_->fused().gather(in, out, block, local_of(head()), operation_->signature, *waiter_);
}

Status Staged::scatter_here(const void *in, void *out, size_t block) {
    shown_ += leads() ? (here() - 1) * block : 0;
    return near_->fused().scatter(in, out, block, local_of(head()), operation_->signature, *waiter_);
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

/// `block`: elements of a rank's block.
void Staged::set_host_blocks(size_t block) {
    counts_.clear();
    displacements_.clear();
    size_t at = 0;
    for (const std::vector<int> &ranks : placement_.ranks) {
        counts_.push_back(ranks.size() * block);
        displacements_.push_back(at);
        at += counts_.back();
    }
}

/// Blocks of `block` bytes, from the order of ranks to that in which hosts come one after the other, and back.
void Staged::to_host_order(const std::byte *from, std::byte *to, size_t block) const {
    for (const std::vector<int> &ranks : placement_.ranks)
        for (const int rank : ranks) {
            put(to, from + static_cast<size_t>(rank) * block, block);
            to += block;
        }
}

void Staged::to_rank_order(const std::byte *from, std::byte *to, size_t block) const {
    for (const std::vector<int> &ranks : placement_.ranks)
        for (const int rank : ranks) {
            put(to + static_cast<size_t>(rank) * block, from, block);
            from += block;
        }
}

/// allgather: leaders exchange each host's blocks as one.
Status Staged::exchanged_all(const Algorithm &between) {
    const size_t count = operation_->count / static_cast<size_t>(placement_.size());
    const size_t block = count * element_;
    const auto *in = static_cast<const std::byte *>(operation_->in);
    auto *out = static_cast<std::byte *>(operation_->out);
    set_host_blocks(count);
    if (leads()) {
        std::byte *all = in_order_ ? out : between_->aside(operation_->count * element_);
        std::byte *own = all + displacements_[host_] * element_;
        if (!alone())
            FLX_TRY(gather_here(in, own, block));
        else
            put(own, in, block);
        FLX_TRY(between_->give(part(Collective::allgather, own, all, operation_->count), between,
                               {counts_.data(), displacements_.data()}, heads_, 0));
        FLX_TRY(between_->carry());
        if (!in_order_)
            to_rank_order(all, out, block);
    } else {
        FLX_TRY(gather_here(in, nullptr, block));
    }
    return alone() ? Status() : pass_on(out, operation_->count * element_);
}

/// reduce_scatter_block.
Status Staged::summed_parts(const Algorithm &between) {
    const size_t count = operation_->count / static_cast<size_t>(placement_.size());
    const size_t block = count * element_;
    const auto *in = static_cast<const std::byte *>(operation_->in);
    auto *out = static_cast<std::byte *>(operation_->out);
    set_host_blocks(count);
    if (!leads()) {
        FLX_TRY(reduce_here(in, nullptr, operation_->count));
        return scatter_here(nullptr, out, block);
    }
    const std::byte *partial = in;
    if (!alone()) {
        std::byte *sums = between_->aside(operation_->count * element_);
        FLX_TRY(reduce_here(in, sums, operation_->count));
        partial = sums;
    }
    if (!in_order_) {
        std::byte *ordered = between_->aside(operation_->count * element_);
        to_host_order(partial, ordered, block);
        partial = ordered;
    }
    std::byte *sums = alone() ? out : between_->aside(here() * block);
    FLX_TRY(between_->give(part(Collective::reduce_scatter_block, partial, sums, operation_->count), between,
                           {counts_.data(), displacements_.data()}, heads_, 0));
    FLX_TRY(between_->carry());
    return alone() ? Status() : scatter_here(sums, out, block);
}

/// gather.
Status Staged::gathered(const Algorithm &between) {
    const size_t count = operation_->count / static_cast<size_t>(placement_.size());
    const size_t block = count * element_;
    const bool root = rank_ == operation_->root;
    const auto *in = static_cast<const std::byte *>(operation_->in);
    auto *out = static_cast<std::byte *>(operation_->out);
    set_host_blocks(count);
    if (!leads())
        return gather_here(in, nullptr, block);
    std::byte *all = !root ? nullptr : in_order_ ? out : between_->aside(operation_->count * element_);
    std::byte *here = root ? all + displacements_[host_] * element_ : between_->aside(this->here() * block);
    if (!alone())
        FLX_TRY(gather_here(in, here, block));
    else
        put(here, in, block);
    FLX_TRY(give_blocks(Collective::gather, here, all, between));
    if (root && !in_order_)
        to_rank_order(all, out, block);
    return {};
}

/// scatter, the other way round.
Status Staged::scattered(const Algorithm &between) {
    const size_t count = operation_->count / static_cast<size_t>(placement_.size());
    const size_t block = count * element_;
    const bool root = rank_ == operation_->root;
    auto *out = static_cast<std::byte *>(operation_->out);
    set_host_blocks(count);
    if (!leads())
        return scatter_here(nullptr, out, block);
    const auto *all = static_cast<const std::byte *>(operation_->in);
    if (root && !in_order_) {
        std::byte *ordered = between_->aside(operation_->count * element_);
        to_host_order(all, ordered, block);
        all = ordered;
    }
    // The root's host needs no message: what it would get is where it would come from.
    auto *here =
        root ? const_cast<std::byte *>(all + displacements_[host_] * element_) : between_->aside(this->here() * block);
    FLX_TRY(give_blocks(Collective::scatter, all, here, between));
    if (!alone())
        return scatter_here(here, out, block);
    put(out, here, block);
    return {};
}

/// Hosts' blocks to the root's or from it, carried.
Status Staged::give_blocks(Collective collective, const void *in, void *out, const Algorithm &between) {
    FLX_TRY(between_->give(part(collective, in, out, operation_->count), between,
                           {counts_.data(), displacements_.data()}, heads_,
                           placement_.host[static_cast<size_t>(operation_->root)]));
    return between_->carry();
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

/// What each rank shows its host of an alltoall: for each of its ranks the blocks of those whose messages it collects.
/// Returns what this rank has collected: for each of those the blocks of its host's ranks.
Status Staged::collect(const std::byte *in, size_t block, const std::byte *&collected) {
    const size_t here = this->here();
    std::byte *shown = between_->aside(here * most_collected_ * block);
    for (size_t local = 0; local < here; ++local)
        for (size_t i = 0; i < collected_[local].size(); ++i)
            put(shown + (local * most_collected_ + i) * block, in + static_cast<size_t>(collected_[local][i]) * block,
                block);
    collected = shown;
    if (alone())
        return {};
    std::byte *from_all = between_->aside(here * most_collected_ * block);
    shown_ += (here - 1) * most_collected_ * block;
    collected = from_all;
    return near_->fused().alltoall(shown, from_all, most_collected_ * block, operation_->signature, *waiter_);
}

/// A rank collects what its host has for the ranks with its index on their hosts (on smaller hosts, for those with
/// others, too), and sends it to them as one message each.
Status Staged::alltoall_by_lanes() {
    const size_t block = operation_->count / static_cast<size_t>(placement_.size()) * element_;
    const size_t here = this->here();
    auto *out = static_cast<std::byte *>(operation_->out);
    const std::byte *got = nullptr;
    FLX_TRY(collect(static_cast<const std::byte *>(operation_->in), block, got));
    std::byte *sent = between_->aside(here * most_collected_ * block);
    Exchange &messages = between_->messages();
    const std::vector<int> &own_host = placement_.ranks[host_];
    const std::vector<int> &mine = collected_[static_cast<size_t>(local_of(rank_))];
    for (size_t i = 0; i < mine.size(); ++i) {
        for (size_t local = 0; local < here; ++local) {
            std::byte *to = mine[i] == rank_ ? out + static_cast<size_t>(own_host[local]) * block
                                             : sent + (i * here + local) * block;
            put(to, got + (local * most_collected_ + i) * block, block);
        }
        if (mine[i] != rank_)
            messages.send(mine[i], sent + i * here * block, here * block, operation_->sequence);
    }
    for (size_t host = 0; host < placement_.ranks.size(); ++host) {
        const std::vector<int> &ranks = placement_.ranks[host];
        if (host == host_)
            continue;
        came_[host] = follow_each_other(ranks) ? out + static_cast<size_t>(ranks.front()) * block
                                               : between_->aside(ranks.size() * block);
        messages.receive(placement_.driver(static_cast<int>(host), local_of(rank_)), came_[host], ranks.size() * block,
                         operation_->sequence);
    }
    FLX_TRY(between_->give_messages(*operation_));
    FLX_TRY(between_->carry());
    for (size_t host = 0; host < placement_.ranks.size(); ++host) {
        const std::vector<int> &ranks = placement_.ranks[host];
        for (size_t i = 0; host != host_ && !follow_each_other(ranks) && i < ranks.size(); ++i)
            put(out + static_cast<size_t>(ranks[i]) * block, came_[host] + i * block, block);
    }
    return {};
}

/// The same in the fewest rounds, where all hosts have equally many ranks: what is for a host at some distance goes in
/// steps of 1, 2, 4, …, as the bits of the distance say, in one message a round with all that has such a bit.
Status Staged::alltoall_by_rounds() {
    const size_t hosts = placement_.ranks.size();
    const size_t here = this->here();
    const size_t block = operation_->count / static_cast<size_t>(placement_.size()) * element_;
    const size_t part = here * block;  // of a host
    auto *out = static_cast<std::byte *>(operation_->out);
    const std::byte *got = nullptr;
    FLX_TRY(collect(static_cast<const std::byte *>(operation_->in), block, got));
    std::byte *parts = between_->aside(hosts * part);  // by distance
    for (size_t distance = 0; distance < hosts; ++distance)
        for (size_t local = 0; local < here; ++local)
            put(parts + distance * part + local * block,
                got + (local * most_collected_ + (host_ + distance) % hosts) * block, block);
    const auto lane = static_cast<size_t>(local_of(rank_));
    std::byte *sent = between_->aside(hosts * part);
    std::byte *came = between_->aside(hosts * part);
    Operation round = *operation_;
    for (size_t bit = 1; bit < hosts; bit *= 2) {
        // Of a number that is behind the last one nothing is taken any more: each round has one when it begins.
        if (bit > 1)
            round.sequence = between_->next_number();
        size_t bytes = 0;
        for (size_t distance = bit; distance < hosts; ++distance)
            if ((distance & bit) != 0) {
                put(sent + bytes, parts + distance * part, part);
                bytes += part;
            }
        Exchange &messages = between_->messages();
        messages.send(placement_.ranks[(host_ + bit) % hosts][lane], sent, bytes, round.sequence);
        messages.receive(placement_.ranks[(host_ + hosts - bit) % hosts][lane], came, bytes, round.sequence);
        FLX_TRY(between_->give_messages(round));
        FLX_TRY(between_->carry());
        const std::byte *next = came;
        for (size_t distance = bit; distance < hosts; ++distance)
            if ((distance & bit) != 0) {
                put(parts + distance * part, next, part);
                next += part;
            }
    }
    for (size_t distance = 0; distance < hosts; ++distance) {
        const std::vector<int> &ranks = placement_.ranks[(host_ + hosts - distance) % hosts];
        for (size_t local = 0; local < here; ++local)
            put(out + static_cast<size_t>(ranks[local]) * block, parts + distance * part + local * block, block);
    }
    return {};
}

}  // namespace flx
