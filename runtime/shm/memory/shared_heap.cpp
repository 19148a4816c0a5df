#include "runtime/shm/memory/shared_heap.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "runtime/base/counters.h"
#include "runtime/base/log.h"
#include "runtime/base/pages.h"

#ifndef MFD_NOEXEC_SEAL  // Linux 6.3
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace flx::shm {

namespace {

/// Far more than any machine has; a limit on file sizes may make it less.
constexpr uint64_t kLongest = uint64_t{1} << 46;

size_t round_up(size_t bytes, size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

/// Memory and swap: what is beyond can never be touched.
uint64_t bytes_of_machine() {
    struct sysinfo info {};
    if (sysinfo(&info) != 0)
        return kLongest;
    return (static_cast<uint64_t>(info.totalram) + info.totalswap) * info.mem_unit;
}

}  // namespace

SharedHeap::SharedHeap() {
    // A child must not give out its parent's memory again. Whoever forks holds the lock, so that it is free in both.
    pthread_atfork([] { of_process().mutex_.lock(); }, [] { of_process().mutex_.unlock(); },
                   [] {
                       of_process().forget_parent();
                       of_process().mutex_.unlock();
                   });
}

SharedHeap &SharedHeap::of_process() {
    // Never destroyed: programs may free what they have when everything else is gone.
    static auto *heap = new SharedHeap;
    return *heap;
}

void SharedHeap::forget_parent() {
    if (address_.fd >= 0)
        close(address_.fd);
    address_ = {};
    why_none_ = {};
    unused_.clear();
    end_ = 0;
    for (auto &[at, piece] : pieces_)
        piece.offset = kNowhere;
    ++version_;
}

Status SharedHeap::open_file() {
    if (address_.fd >= 0 || !why_none_.ok())
        return why_none_;
    const auto refused = [&](const char *what, int fd) {
        why_none_ = fail(Fault::shm_refused, "{} failed: {}", what, std::strerror(errno));
        log().info("memory of flx_malloc is not shared with other ranks: {}", why_none_.sentence());
        if (fd >= 0)
            close(fd);
        return why_none_;
    };
    Address address;
    if (getrandom(address.key.data(), sizeof address.key, 0) != sizeof address.key)
        return refused("getrandom", -1);
    constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int fd = memfd_create("flx", kFlags | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create("flx", kFlags);
    if (fd < 0)
        return refused("memfd_create", -1);
    // A file beyond this limit would cost a signal.
    struct rlimit limit {};
    length_ = getrlimit(RLIMIT_FSIZE, &limit) == 0 ? std::min<uint64_t>(kLongest, limit.rlim_cur) : kLongest;
    length_ = length_ / page_bytes() * page_bytes();
    if (length_ == 0) {
        errno = EFBIG;
        return refused("making a file in memory", fd);
    }
    struct stat made {};
    if (fchmod(fd, 0600) != 0 || ftruncate(fd, static_cast<off_t>(length_)) != 0 ||
        pwrite(fd, address.key.data(), sizeof address.key, 0) != sizeof address.key ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0 || fstat(fd, &made) != 0)
        return refused("making a file in memory", fd);
    address.fd = fd;
    address.device = made.st_dev;
    address.inode = made.st_ino;
    address_ = address;
    end_ = page_bytes();
    return {};
}

Status SharedHeap::address(Address &address) {
    const std::lock_guard guard(mutex_);
    FLX_TRY(open_file());
    address = address_;
    return {};
}

/// First fit, so that the file's used part stays short. kNowhere: no room.
uint64_t SharedHeap::take(size_t bytes, size_t alignment) {
    for (const auto &[offset, length] : unused_) {
        const uint64_t begin = round_up(offset, alignment);
        if (begin + bytes > offset + length)
            continue;
        const uint64_t end = offset + length;
        const uint64_t before = offset;
        unused_.erase(before);
        if (begin > before)
            unused_[before] = begin - before;
        if (begin + bytes < end)
            unused_[begin + bytes] = end - begin - bytes;
        return begin;
    }
    const uint64_t end = end_;
    const uint64_t begin = round_up(end, alignment);
    if (begin > length_ || bytes > length_ - begin)
        return kNowhere;
    if (begin > end)
        unused_[end] = begin - end;
    end_ = begin + bytes;
    return begin;
}

void SharedHeap::give_back(uint64_t offset, size_t bytes) {
    auto next = unused_.lower_bound(offset);
    if (next != unused_.end() && next->first == offset + bytes) {
        bytes += next->second;
        next = unused_.erase(next);
    }
    if (next != unused_.begin() && std::prev(next)->first + std::prev(next)->second == offset)
        std::prev(next)->second += bytes;
    else
        unused_[offset] = bytes;
}

/// Maps a piece, at a multiple of a huge page's size if it is as long as one.
Status SharedHeap::map_piece(size_t bytes, uint64_t offset, void *&memory) const {
    const size_t alignment = bytes >= kHuge ? kHuge : page_bytes();
    const size_t room = bytes + alignment;
    void *reserved = mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED)
        return fail(Fault::no_memory, "no room for {} bytes of memory: {}", bytes, std::strerror(errno));
    const auto begin = reinterpret_cast<uintptr_t>(reserved);
    const uintptr_t at = round_up(begin, alignment);
    const bool in_file = offset != kNowhere;
    void *mapped = mmap(reinterpret_cast<void *>(at), bytes, PROT_READ | PROT_WRITE,
                        MAP_FIXED | (in_file ? MAP_SHARED | MAP_NORESERVE : MAP_PRIVATE | MAP_ANONYMOUS),
                        in_file ? address_.fd : -1, in_file ? static_cast<off_t>(offset) : 0);
    if (mapped == MAP_FAILED) {
        const int code = errno;
        munmap(reserved, room);
        return fail(Fault::no_memory, "no room for {} bytes of memory: {}", bytes, std::strerror(code));
    }
    if (at > begin)
        munmap(reserved, at - begin);
    if (at + bytes < begin + room)
        munmap(reinterpret_cast<void *>(at + bytes), begin + room - at - bytes);
    memory = mapped;
    return {};
}

Status SharedHeap::allocate(size_t bytes, void *&memory) {
    memory = nullptr;
    if (bytes == 0)
        return {};
    if (const uint64_t most = bytes_of_machine(); bytes > most)
        return fail(Fault::no_memory, "{} bytes of memory are asked for; this machine has {}, swap included", bytes,
                    most);
    const std::lock_guard guard(mutex_);
    bytes = round_up(bytes, page_bytes());
    uint64_t offset = kNowhere;
    if (open_file().ok())  // else the log says why not
        offset = take(bytes, bytes >= kHuge ? kHuge : page_bytes());
    if (Status status = map_piece(bytes, offset, memory); !status.ok()) {
        if (offset != kNowhere)
            give_back(offset, bytes);
        return status;
    }
    pieces_[reinterpret_cast<uintptr_t>(memory)] = {bytes, offset};
    ++version_;
    return {};
}

Status SharedHeap::free(void *memory) {
    if (memory == nullptr)
        return {};
    const std::lock_guard guard(mutex_);
    const auto found = pieces_.find(reinterpret_cast<uintptr_t>(memory));
    if (found == pieces_.end()) {
        const auto after = pieces_.upper_bound(reinterpret_cast<uintptr_t>(memory));
        if (after != pieces_.begin())
            if (const auto &[at, piece] = *std::prev(after); reinterpret_cast<uintptr_t>(memory) - at < piece.bytes)
                return fail(Fault::not_allocated,
                            "{} is {} bytes into memory of flx_malloc; its beginning, {}, is to be freed", memory,
                            reinterpret_cast<uintptr_t>(memory) - at, reinterpret_cast<void *>(at));
        return fail(Fault::not_allocated, "{} is not memory of flx_malloc, or was freed before", memory);
    }
    const Piece piece = found->second;
    pieces_.erase(found);
    ++version_;
    ++freed_;
    munmap(memory, piece.bytes);
    if (piece.offset == kNowhere)
        return {};
    if (fallocate(address_.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(piece.offset),
                  static_cast<off_t>(piece.bytes)) != 0)
        log().warn("{} bytes that flx_free gave back stay with this process: {}", piece.bytes, std::strerror(errno));
    give_back(piece.offset, piece.bytes);
    return {};
}

SharedHeap::Place SharedHeap::place_of(const void *memory) {
    const auto guard = lock_counted(mutex_);
    const auto after = pieces_.upper_bound(reinterpret_cast<uintptr_t>(memory));
    const uintptr_t next = after == pieces_.end() ? UINTPTR_MAX : after->first;
    if (after == pieces_.begin())
        return {0, next, kNowhere};
    const auto &[begin, piece] = *std::prev(after);
    if (reinterpret_cast<uintptr_t>(memory) < begin + piece.bytes)
        return {begin, begin + piece.bytes, piece.offset};
    return {begin + piece.bytes, next, kNowhere};
}

size_t KnownPlaces::find(const void *memory, bool &looked_up) {
    SharedHeap &heap = SharedHeap::of_process();
    const uint64_t version = heap.version();
    if (version != version_)
        places_.fill({});
    version_ = version;
    auto *found = std::ranges::find_if(places_, [&](const SharedHeap::Place &place) { return place.has(memory); });
    looked_up = found == places_.end();
    if (looked_up) {
        found = &places_[next_++ % kMost];
        *found = heap.place_of(memory);
    }
    return static_cast<size_t>(found - places_.begin());
}

}  // namespace flx::shm
