/// \file huge_pages.h
/// Moves memory that peers reach through the kernel again and again to huge pages. Before it copies, the kernel looks
/// up and pins every page, which for pages of 4 KiB takes it almost as long as the copy.
///
/// The program sees nothing of it but time: addresses and contents stay. What cannot be moved, as memory that a device
/// has pinned, is left alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace flx::shm {

class HugePages {
  public:
    /// Moving a page takes as long as it saves in about so many calls.
    static constexpr uint32_t kUsesBefore = 16;

    /// Bytes of a huge page, or 0 where there are none for this process, and `why`.
    static size_t page_bytes(std::string &why);

    /// `page_bytes`: of a huge page; 0: nothing is ever moved.
    explicit HugePages(size_t page_bytes = 0) : page_bytes_(page_bytes) {}

    /// A call is about to let peers reach that memory; nobody does so now. The range's kUsesBefore-th use moves it, at
    /// about half a millisecond a page.
    void used(const void *memory, size_t bytes);

    /// Pages of ranges that were moved, or were huge before.
    [[nodiscard]] uint64_t moved() const { return moved_; }

  private:
    /// Whole huge pages within what a call was given.
    struct Range {
        uintptr_t begin = 0, end = 0;
        uint32_t uses = 0;
    };

    size_t page_bytes_;
    std::array<Range, 32> ranges_{};
    size_t oldest_ = 0;
    uint64_t moved_ = 0;
};

}  // namespace flx::shm
