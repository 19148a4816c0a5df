/// \file shared_heap.h
/// Memory of flx_malloc: pieces of one file of this process, without a name, that other processes can map as a whole
/// (windows.h).
///
/// There is one file for all, so that peers know a piece by its offset alone: what was freed and given out again is the
/// same place of the same mapping, and no peer has to be notified. The memory of a freed piece goes back to the system
/// at once, whoever has it mapped; what a copy engine has pinned (pins.h), with the next call on mapped memory. The
/// file is as long as it can ever be from the beginning and sealed against shrinking: whatever its owner does, or dies
/// of, a peer that looks at it finds memory, if only zeros.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "runtime/base/status.h"

namespace flx::shm {

class SharedHeap {
  public:
    static constexpr uint64_t kNowhere = UINT64_MAX;

    /// Where other processes find the file, and how they know that it is the one.
    struct Address {
        int fd = -1;
        uint64_t device = 0;
        uint64_t inode = 0;
        std::array<uint64_t, 2> key{};  ///< random; the file begins with it
    };

    /// The process's. A child of fork() starts with an empty one; what it inherited stays shared with its parent.
    static SharedHeap &of_process();

    /// Allocates whole pages; from 2 MiB on aligned to that. Where there can be no file, other processes cannot map the
    /// memory. Zero bytes: null. Thread-safe, like all of these.
    Status allocate(size_t bytes, void *&memory);
    /// Null is allowed.
    Status free(void *memory);

    /// A piece, or what lies between two.
    struct Place {
        uintptr_t begin = 0, end = 0;
        uint64_t offset = kNowhere;  ///< of its beginning in the file; kNowhere: not there

        [[nodiscard]] bool has(const void *memory) const {
            return begin <= reinterpret_cast<uintptr_t>(memory) && reinterpret_cast<uintptr_t>(memory) < end;
        }
        /// The file offset of a range that begins here: kNowhere unless the range ends here, too.
        [[nodiscard]] uint64_t offset_of(const void *memory, size_t bytes) const {
            const auto at = reinterpret_cast<uintptr_t>(memory);
            return offset == kNowhere || bytes > end - at ? kNowhere : offset + (at - begin);
        }
    };
    /// The piece, or the gap, in which that address is.
    [[nodiscard]] Place place_of(const void *memory);
    /// Where in the file the range lies; kNowhere unless it is in one piece of this heap.
    [[nodiscard]] uint64_t offset_of(const void *memory, size_t bytes) {
        return place_of(memory).offset_of(memory, bytes);
    }
    /// Changes with every piece that comes or goes: as long as it does not, place_of answers the same. 0: no piece yet.
    [[nodiscard]] uint64_t version() const { return version_.load(std::memory_order_acquire); }
    /// How many pieces were given back; wraps around.
    [[nodiscard]] uint32_t freed() const { return freed_.load(std::memory_order_acquire); }
    /// Beyond all pieces that there ever were.
    [[nodiscard]] uint64_t end() const { return end_.load(std::memory_order_acquire); }

    /// Makes the file, if there is none yet.
    Status address(Address &address);

  private:
    struct Piece {
        size_t bytes = 0;
        uint64_t offset = kNowhere;  ///< kNowhere: not in the file, or in that of a process which this one came from
    };

    SharedHeap();
    Status open_file();
    Status map_piece(size_t bytes, uint64_t offset, void *&memory) const;
    [[nodiscard]] uint64_t take(size_t bytes, size_t alignment);
    void give_back(uint64_t offset, size_t bytes);
    void forget_parent();

    std::mutex mutex_;
    Address address_;
    Status why_none_;  ///< of the file, once it was tried
    uint64_t length_ = 0;
    std::map<uintptr_t, Piece> pieces_;    ///< by address
    std::map<uint64_t, uint64_t> unused_;  ///< offsets below end_, with lengths; neighbours are joined
    std::atomic<uint64_t> end_{0};
    std::atomic<uint64_t> version_{0};
    std::atomic<uint32_t> freed_{0};
};

/// Places in the process's heap that were looked up before: they hold until pieces of it come or go. Takes no lock for
/// what it knows. Not thread-safe.
class KnownPlaces {
  public:
    static constexpr size_t kMost = 16;

    /// The index of the place that has `memory`. `looked_up`: it was looked up just now, and has replaced another one.
    size_t find(const void *memory, bool &looked_up);
    [[nodiscard]] const SharedHeap::Place &operator[](size_t index) const { return places_[index]; }

  private:
    std::array<SharedHeap::Place, kMost> places_{};
    uint64_t version_ = 0;  ///< of the heap then
    size_t next_ = 0;
};

}  // namespace flx::shm
