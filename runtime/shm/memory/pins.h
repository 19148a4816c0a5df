/// \file pins.h
/// What of one mapping of a rank's heap (windows.h) a copy engine can reach: ranges of pages that stay where they are.
///
/// Pages that are pinned are those that were there then. What the heap's owner has given back since, and out again, has
/// others, which the engine would not see; so ranks tell each other how many pieces they have given back, and all pins
/// on a heap go when that has changed. Thread-safe, as communicators share them.
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
    /// Nobody holds any of it. Who derives from this calls drop() there.
    virtual ~Pins() = default;

    /// Whether all of it is pinned; asked often enough it will be, but for what somebody else holds meanwhile. `freed`:
    /// the pieces that the heap's owner had given back when the caller learnt of these ranges.
    bool ask(std::span<const Range> ranges, uint32_t freed);
    /// True: the engine reaches all of it until release(). Pins nothing.
    bool hold(std::span<const Range> ranges, uint32_t freed);
    void release();
    /// The owner has given back so many by now: what is pinned goes, unless it is held, or was pinned since.
    void given_back(uint32_t freed);

  protected:
    /// Whole pages, of which none is pinned. False: cannot, nor will it later.
    virtual bool pin(const Range &pages) = 0;
    /// As they were pinned.
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
