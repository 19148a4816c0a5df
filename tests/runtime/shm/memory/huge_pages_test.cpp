/// Memory that peers reach again and again moves to huge pages, with what is in it.
#include "runtime/shm/memory/huge_pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "runtime/shm/memory/segment.h"
#include "runtime/shm/ways/peer_memory.h"
#include "tests/runtime/link/ranks.h"
#include "tests/runtime/shm/ways/shm_calls.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace flx::shm {
namespace {

using testing::kYield;
using testing::run_group;
using testing::TestWatch;

/// Private memory that begins with a huge page.
class Mapping {
  public:
    Mapping(size_t bytes, size_t page) : whole_bytes_(bytes + page) {
        void *whole = mmap(nullptr, whole_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        EXPECT_NE(whole, MAP_FAILED);
        whole_ = static_cast<std::byte *>(whole);
        begin_ = whole_ + (page - reinterpret_cast<uintptr_t>(whole_) % page) % page;
    }
    ~Mapping() { munmap(whole_, whole_bytes_); }
    Mapping(const Mapping &) = delete;
    Mapping &operator=(const Mapping &) = delete;
    [[nodiscard]] std::byte *begin() const { return begin_; }
    template <class T>
    [[nodiscard]] T *as() const {
        return reinterpret_cast<T *>(begin_);
    }
    /// Of the mapping that it is in, which may have become one with others.
    [[nodiscard]] size_t huge_bytes() const {
        std::ifstream file("/proc/self/smaps");
        const auto address = reinterpret_cast<uintptr_t>(begin_);
        bool inside = false;
        for (std::string line; std::getline(file, line);) {
            unsigned long from = 0;
            unsigned long to = 0;
            size_t kib = 0;
            if (std::sscanf(line.c_str(), "%lx-%lx", &from, &to) == 2)
                inside = from <= address && address < to;
            else if (inside && std::sscanf(line.c_str(), "AnonHugePages: %zu kB", &kib) == 1)
                return kib * 1024;
        }
        return 0;
    }

  private:
    size_t whole_bytes_;
    std::byte *whole_ = nullptr;
    std::byte *begin_ = nullptr;
};

class Huge : public ::testing::Test {
  protected:
    void SetUp() override {
        std::string why;
        page_ = HugePages::page_bytes(why);
        if (page_ == 0)
            GTEST_SKIP() << "skipped: " << why;
        if (page_ > size_t{64} << 20)
            GTEST_SKIP() << "skipped: huge pages have " << page_ << " bytes here";
        const Mapping one(page_, page_);
        std::memset(one.begin(), 1, page_);
        if (madvise(one.begin(), page_, MADV_COLLAPSE) != 0)
            GTEST_SKIP() << "skipped: this kernel does not move memory to huge pages: " << std::strerror(errno);
    }
    size_t page_ = 0;
};

TEST_F(Huge, MovesPagesOfMemoryThatIsUsedOften) {
    constexpr int kPages = 2;
    const Mapping memory(kPages * page_ + page_, page_);
    // Neither end is where a huge page ends.
    const size_t bytes = kPages * page_ + page_ / 2;
    auto *words = memory.as<uint32_t>();
    std::iota(words, words + bytes / sizeof *words, 7U);
    HugePages pages(page_);
    for (uint32_t use = 1; use < HugePages::kUsesBefore; ++use)
        pages.used(memory.begin(), bytes);
    EXPECT_EQ(pages.moved(), 0U);
    for (int use = 0; use < 3; ++use)  // in case one was in use
        pages.used(memory.begin(), bytes);
    EXPECT_EQ(pages.moved(), static_cast<uint64_t>(kPages));
    EXPECT_GE(memory.huge_bytes(), kPages * page_);
    for (size_t i = 0; i < bytes / sizeof *words; ++i)
        ASSERT_EQ(words[i], static_cast<uint32_t>(i + 7));
}

TEST_F(Huge, LeavesAloneWhatIsShortRareOrNoMemory) {
    const Mapping memory(2 * page_, page_);
    std::memset(memory.begin(), 1, 2 * page_);
    HugePages pages(page_);
    HugePages off(0);
    for (uint32_t use = 0; use < 3 * HugePages::kUsesBefore; ++use) {
        pages.used(memory.begin(), page_ - 1);
        pages.used(memory.begin() + 1, page_);  // no whole page in it
        off.used(memory.begin(), 2 * page_);
    }
    EXPECT_EQ(pages.moved() + off.moved(), 0U);
    void *nothing = mmap(nullptr, 4 * page_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(nothing, MAP_FAILED);
    munmap(nothing, 4 * page_);
    for (uint32_t use = 0; use < 3 * HugePages::kUsesBefore; ++use)
        pages.used(nothing, 4 * page_);
    EXPECT_EQ(pages.moved(), 0U);
}

/// Buffers of two ranks, which reach each other's.
TEST_F(Huge, CollectivesKeepTheirResults) {
    constexpr int kRanks = 2;
    const size_t count = page_ / sizeof(int32_t);
    std::atomic<int> failed{0};
    run_group(kRanks, [&](Bootstrap &bootstrap) {
        const int rank = bootstrap.rank();
        std::unique_ptr<Segment> segment;
        ASSERT_TRUE(Segment::make(bootstrap, Fused::bytes(kRanks, 64), segment).ok());
        Fused fused(segment->base(), rank, kRanks, 64);
        std::unique_ptr<PeerMemory> peers;
        PeerMemory::Why why;
        ASSERT_TRUE(PeerMemory::make(bootstrap, std::vector<int>(kRanks, getpid()), peers, why).ok());
        ASSERT_NE(peers, nullptr) << why.not_by_kernel;
        peers->use_huge_pages(page_);
        const Mapping in(page_, page_);
        const Mapping out(page_, page_);
        TestWatch watch(failed);
        Waiter waiter(kYield, watch);
        for (uint32_t call = 0; call < HugePages::kUsesBefore + 4; ++call) {
            for (size_t i = 0; i < count; ++i)
                in.as<int32_t>()[i] = static_cast<int32_t>(i * (rank + 1) + call);
            bool served = false;
            const Status status = peers->run(
                testing::call_of(algorithms::Collective::allreduce, in.begin(), out.begin(), count, FLX_INT32, call),
                fused, waiter, served);
            ASSERT_TRUE(status.ok()) << status.sentence();
            ASSERT_TRUE(served);
            for (size_t i = 0; i < count; ++i)
                ASSERT_EQ(out.as<int32_t>()[i], static_cast<int32_t>(3 * i + 2 * call)) << "call " << call;
        }
        EXPECT_GE(in.huge_bytes(), page_);
        EXPECT_GE(out.huge_bytes(), page_);
    });
}

}  // namespace
}  // namespace flx::shm
