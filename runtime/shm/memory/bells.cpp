#include "runtime/shm/memory/bells.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace flx::shm {

/// A rank's futex: how often it was rung, and whether its rank sleeps or is about to.
struct Bells::Bell {
    alignas(64) std::atomic<uint32_t> rings;
    std::atomic<uint32_t> asleep;
};

namespace {
constexpr size_t kLine = 64;

uint32_t *word(std::atomic<uint32_t> &value) {
    static_assert(sizeof(value) == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free);
    return reinterpret_cast<uint32_t *>(&value);
}
}  // namespace

// Memory: number of sleepers, bells [rank].
size_t Bells::bytes(int ranks) {
    return kLine + ranks * sizeof(Bell);
}

Bells::Bells(std::byte *memory, int rank, int ranks)
    : memory_(memory), sleepers_(reinterpret_cast<std::atomic<uint32_t> *>(memory)), rank_(rank), ranks_(ranks) {
    static_assert(sizeof(Bell) == kLine);
}

Bells::Bell &Bells::bell(int rank) const {
    return reinterpret_cast<Bell *>(memory_ + kLine)[rank];
}

bool Bells::end_sleep(Bell &bell) {
    if (bell.asleep.exchange(0) == 0)
        return false;
    sleepers_->fetch_sub(1);
    return true;
}

void Bells::wake() {
    for (int rank = 0; rank < ranks_; ++rank) {
        Bell &theirs = bell(rank);
        if (rank == rank_ || theirs.asleep.load() == 0 || !end_sleep(theirs))
            continue;
        theirs.rings.fetch_add(1);
        syscall(SYS_futex, word(theirs.rings), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }
}

void Bells::arm() {
    Bell &mine = bell(rank_);
    armed_at_ = mine.rings.load();
    sleepers_->fetch_add(1);
    if (mine.asleep.exchange(1) != 0)
        sleepers_->fetch_sub(1);  // was armed already
}

void Bells::disarm() {
    end_sleep(bell(rank_));
}

void Bells::sleep(int64_t ns) {
    constexpr int64_t kSecond = 1'000'000'000;
    const timespec time{ns / kSecond, ns % kSecond};
    syscall(SYS_futex, word(bell(rank_).rings), FUTEX_WAIT, armed_at_, &time, nullptr, 0);
    disarm();
}

}  // namespace flx::shm
