/// \file pins.h
/// What of one mapping of a rank's heap (windows.h) a copy engine can reach: ranges of pages that stay where they are.
///
/// Pinned pages are those that were there at the time. Memory that the heap's owner has given back and handed out again
/// since then has other pages, which the engine would not see. So ranks let each other know how many pieces they have
/// given back, and all pins on a heap go when that number has changed. Thread-safe, as communicators share them.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

namespace flx::shm {

class Pins {
  public:
    struct Range {
        uint64_t begin = 0, end = 0;  ///< bytes from the mapping's beginning on
        bool operator==(const Range &) const = default;
    };
    /// Pinning takes as long as copying does: what is copied once is not pinned. The ask that pins says no, too, as
    /// what it took is not what copying takes.
    static constexpr int kAsksBefore = 3;

    Pins() = default;
    Pins(const Pins &) = delete;
    Pins &operator=(const Pins &) = delete;
    /// No range is held any more. Derived classes call drop() in their destructor.
    virtual ~Pins() = default;

    /// Whether all of it is pinned. If it is asked for often enough, it will be, unless it is held at that moment.
    /// `freed`: the pieces that the heap's owner had given back when the caller learnt of these ranges.
    bool ask(std::span<const Range> ranges, uint32_t freed);
    /// True: the engine reaches all of it until release(). Pins nothing.
    bool hold(std::span<const Range> ranges, uint32_t freed);
    void release();
    /// The owner has given back so many by now: what is pinned goes, unless it is held, or was pinned since.
    void given_back(uint32_t freed);

  protected:
    /// Pins whole pages, of which none is pinned. False: it cannot, and will not later.
    virtual bool pin(const Range &pages) = 0;
    /// Unpins pages, as they were pinned.
    virtual void unpin(const Range &pages) = 0;
    void drop();

  private:
    void cover(const Range &range);
    [[nodiscard]] bool covers(std::span<const Range> ranges) const;
    bool renew(uint32_t freed);

    std::mutex mutex_;
    std::vector<Range> pinned_;
    uint32_t freed_ = 0;  ///< when the first of these was pinned
    int users_ = 0;
    int asked_ = 0;
    bool refused_ = false;
};

}  // namespace flx::shm
