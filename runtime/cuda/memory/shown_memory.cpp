#include "runtime/cuda/memory/shown_memory.h"

#include <algorithm>

namespace flx::cuda {
namespace {

bool is_set(uint64_t mask, uint32_t bit) {
    return (mask >> bit & 1) != 0;
}

}  // namespace

uint32_t ShownMemory::number_of(unsigned long long name) const {
    const auto found =
        std::find_if(own_.begin(), own_.end(), [&](const Own &own) { return own.allocation.name == name; });
    return found == own_.end() ? Showing::kNone : static_cast<uint32_t>(found - own_.begin());
}

void ShownMemory::forget(Own &own) {
    access_.withdraw(own.offer);
    own = {};
}

void ShownMemory::show(char *output, uint64_t bytes, bool frozen, Showing &mine) {
    mine = {};
    mine.frozen = frozen;
    const unsigned long long name = access_.name_of(output);
    if (name == 0)
        return;
    uint32_t number = number_of(name);
    if (number == Showing::kNone || !own_[number].open) {
        MemoryAccess::Allocation allocation;
        const bool barred = std::find(barred_.begin(), barred_.end(), name) != barred_.end();
        if (frozen || barred || !access_.find(output, allocation))
            return;
        for (uint32_t i = 0; i < kMost; ++i) {
            Own &own = own_[i];
            if (own.allocation.name == 0 || access_.name_of(own.allocation.base) == own.allocation.name)
                continue;
            if (own.open)
                mine.gone |= uint64_t{1} << i;
            else
                forget(own);
        }
        // Numbers of what is gone are free once the peers know.
        if (number == Showing::kNone)
            number = number_of(0);
        if (number == Showing::kNone)
            return;
        Own &own = own_[number];
        if (own.allocation.name == 0) {
            MemoryOffer offer;
            if (!access_.offer(allocation, offer).ok()) {
                barred_.push_back(name);
                return;
            }
            own = {allocation, false, offer};
        }
        mine.offer = own.offer;
        mine.fresh = true;
    }
    const MemoryAccess::Allocation &allocation = own_[number].allocation;
    mine.offset = static_cast<uint64_t>(output - allocation.base);
    if (mine.offset + bytes <= allocation.bytes)
        mine.number = number;
}

bool ShownMemory::writable(std::span<const Showing> all) {
    return std::all_of(all.begin(), all.end(),
                       [&](const Showing &each) {
                           return each.number < kMost && each.offset % kGrain == all[0].offset % kGrain;
                       }) &&
           !(must_open(all) && std::any_of(all.begin(), all.end(), [](const Showing &each) { return each.frozen; }));
}

bool ShownMemory::must_open(std::span<const Showing> all) {
    return std::any_of(all.begin(), all.end(), [](const Showing &each) { return each.fresh; });
}

Status ShownMemory::open(std::span<const Showing> all) {
    for (int rank = 0; rank < ranks_; ++rank)
        for (uint32_t i = 0; i < kMost && rank != rank_; ++i)
            if (is_set(all[rank].gone, i))
                peers_[rank][i].memory.close();
    for (int rank = 0; rank < ranks_; ++rank) {
        const Showing &its = all[rank];
        if (rank == rank_ || !its.fresh)
            continue;
        Peer &peer = peers_[rank][its.number];
        peer.paged = its.offer.allocation_bytes % kPage == 0;
        FLX_TRY(access_.open(its.offer, peer.memory));
    }
    return {};
}

void ShownMemory::settle(std::span<const Showing> all, bool opened) {
    for (int rank = 0; rank < ranks_; ++rank) {
        const Showing &its = all[rank];
        if (!its.fresh)
            continue;
        if (rank != rank_) {
            if (!opened)
                peers_[rank][its.number].memory.close();
            continue;
        }
        for (uint32_t i = 0; i < kMost; ++i)
            if (is_set(its.gone, i))
                forget(own_[i]);
        Own &own = own_[its.number];
        own.open = opened;
        access_.withdraw(own.offer);
        if (!opened) {
            barred_.push_back(own.allocation.name);
            forget(own);
        }
    }
}

PeerOutputs ShownMemory::outputs(std::span<const Showing> all, char *mine) const {
    PeerOutputs outputs;
    outputs.paged = own_[all[rank_].number].allocation.bytes % kPage == 0;
    for (int rank = 0; rank < ranks_; ++rank) {
        const Peer &peer = peers_[rank][all[rank].number];
        outputs.of[rank] = rank == rank_ ? mine : peer.memory.base() + all[rank].offset;
        outputs.paged = outputs.paged && (rank == rank_ || peer.paged);
        outputs.in_place = outputs.in_place || all[rank].in_place;
    }
    return outputs;
}

bool ShownMemory::opened() const {
    return std::any_of(peers_.begin(), peers_.end(), [](const auto &of_rank) {
        return std::any_of(of_rank.begin(), of_rank.end(),
                           [](const Peer &peer) { return peer.memory.base() != nullptr; });
    });
}

void ShownMemory::close() {
    for (auto &of_rank : peers_)
        for (Peer &peer : of_rank)
            peer.memory.close();
    for (Own &own : own_)
        forget(own);
}

}  // namespace flx::cuda
