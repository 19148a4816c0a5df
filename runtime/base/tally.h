/// \file tally.h
/// A count that threads add to on the path of every operation. A locked instruction there would wait until what was
/// just written for other cores has reached them, which takes longer than a small operation; so each thread has a place
/// of its own.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace flx {

class Tally {
  public:
    /// Any thread; wait-free, a few nanoseconds.
    void add(uint64_t number) {
        const uintptr_t self = this_thread();
        const size_t place = place_of(self);
        if (owners_[place].load(std::memory_order_relaxed) != self) [[unlikely]]
            return add_first(place, self, number);
        std::atomic<uint64_t> &count = counts_[place].count;
        count.store(count.load(std::memory_order_relaxed) + number, std::memory_order_relaxed);
    }
    /// The sum over all threads, also those that have ended. Modulo 2^64.
    [[nodiscard]] uint64_t sum() const {
        uint64_t sum = 0;
        for (const Count &each : counts_)
            sum += each.count.load(std::memory_order_relaxed);
        return sum;
    }

    static constexpr size_t kOwn = 16;       ///< places that one thread at a time may have for itself,
    static constexpr size_t kShared = kOwn;  ///< and the place of all others

  private:
    struct alignas(64) Count {
        std::atomic<uint64_t> count{0};
    };

    /// A number that the calling thread has as long as it lives. It is no thread_local variable: in a library that may
    /// be loaded late, access to one takes a call, or room in each thread's block that such libraries do not find.
    static uintptr_t this_thread() {
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
        return reinterpret_cast<uintptr_t>(__builtin_thread_pointer());
#else
        return static_cast<uintptr_t>(pthread_self());
#endif
    }
    /// Where a thread's place is, in every tally, if it has one. Threads' blocks lie whole stacks apart.
    static size_t place_of(uintptr_t thread) {
        return (thread >> 12 ^ thread >> 23) % kOwn;
    }
    /// Of a thread that does not have the place, and may get it now.
    [[gnu::cold]] void add_first(size_t place, uintptr_t self, uint64_t number);
    /// Makes the place this thread's until it ends. False: it is another one's.
    static bool claim(size_t place, uintptr_t self);

    struct Owner;
    static std::array<std::atomic<uintptr_t>, kOwn> owners_;  ///< by place; 0: nobody's

    std::array<Count, kOwn + 1> counts_;
};

}  // namespace flx
