#include "runtime/front/nccl/agreement.h"

#include <sched.h>

#include <chrono>

#include "runtime/base/clock.h"

namespace flx::nccl {
namespace {

// The word: 32 bits of number, 8 of who has come, 8 of who has seen, 2 of decision.
constexpr uint64_t kUndecided = 0;
constexpr uint64_t kTogether = 1;
constexpr uint64_t kApart = 2;

uint64_t number_in(uint64_t word) {
    return word >> 32;
}
uint64_t come(uint64_t word) {
    return word >> 8 & 0xff;
}
uint64_t seen(uint64_t word) {
    return word >> 16 & 0xff;
}
uint64_t decision(uint64_t word) {
    return word & 3;
}
uint64_t come_bit(int rank) {
    return uint64_t{1} << (8 + rank);
}
uint64_t seen_bit(int rank) {
    return uint64_t{1} << (16 + rank);
}

bool same(const Offers &offers, int ranks) {
    for (int from = 0; from < ranks; ++from) {
        if (offers[from].bytes != offers[0].bytes)
            return false;
        for (int to = 0; to < ranks; ++to)
            if (offers[from].sent[to] != offers[to].received[from])
                return false;
    }
    return true;
}

/// Of an undecided word; keeps the first decision.
void settle(std::atomic<uint64_t> &word, uint64_t number, uint64_t what) {
    uint64_t now = word.load(std::memory_order_acquire);
    while (number_in(now) == number && decision(now) == kUndecided &&
           !word.compare_exchange_weak(now, now | what, std::memory_order_acq_rel)) {
    }
}

constexpr int64_t kStepNs = 1'000'000;

}  // namespace

bool Agreement::offer(const Offer &mine) {
    if (board_.given_up.load(std::memory_order_acquire) != 0)
        return false;
    constexpr uint64_t kNumbers = 0xffffffff;
    number_ = number_ % kNumbers + 1;
    AgreementBoard::Slot &slot = board_.slots[number_ % AgreementBoard::kSlots];
    const int64_t began = now_ns();
    uint64_t word = slot.word.load(std::memory_order_acquire);
    bool written = false;
    while (true) {
        if (number_in(word) > number_)
            return false;  // the others went on without this rank
        if (number_in(word) == number_ && decision(word) != kUndecided)
            return false;  // without this rank's offer that can only be NCCL
        if (number_in(word) < number_ && (come(word) & ~seen(word)) != 0) {
            // Somebody is about to read what was decided in this slot before. Without an offer nobody decides for FLX.
            if (now_ns() - began > kStepNs)
                return false;
            sched_yield();
            word = slot.word.load(std::memory_order_acquire);
            continue;
        }
        // This rank's place is free: its last offer here was decided upon, or it never made one.
        if (!written)
            slot.offers[rank_] = mine;
        written = true;
        const uint64_t next = (number_in(word) == number_ ? word : number_ << 32) | come_bit(rank_);
        if (slot.word.compare_exchange_weak(word, next, std::memory_order_acq_rel)) {
            if (come(next) == (uint64_t{1} << ranks_) - 1)
                settle(slot.word, number_, same(slot.offers, ranks_) ? kTogether : kApart);
            return true;
        }
    }
}

bool Agreement::decide(int64_t patience_ns, Offers *all) {
    AgreementBoard::Slot &slot = board_.slots[number_ % AgreementBoard::kSlots];
    const int64_t began = now_ns();
    constexpr int kSpins = 1000;
    for (int turn = 0; decision(slot.word.load(std::memory_order_acquire)) == kUndecided; ++turn) {
        if (turn < kSpins)
            continue;
        if (now_ns() - began > patience_ns)
            settle(slot.word, number_, kApart);
        else
            sched_yield();
    }
    const bool together = decision(slot.word.load(std::memory_order_acquire)) == kTogether;
    // Until all have seen it the slot is this group's.
    if (together && all != nullptr)
        *all = slot.offers;
    slot.word.fetch_or(seen_bit(rank_), std::memory_order_acq_rel);
    failed_ = together ? 0 : failed_ + 1;
    if (tries_ > 0 && failed_ == tries_)
        board_.given_up.store(1, std::memory_order_release);
    return together;
}

}  // namespace flx::nccl
