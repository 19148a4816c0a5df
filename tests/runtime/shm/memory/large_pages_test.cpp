/// Memory of flx_malloc where the system's pages are of 64 KiB. Here they are not: the system is only heard to say so,
/// and what it would refuse there is looked for.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

#include "runtime/base/pages.h"
#include "runtime/shm/memory/shared_heap.h"

namespace {

constexpr size_t kLargePage = size_t{64} << 10;
bool lies = false;

}  // namespace

// In place of the C library's. Other libraries of the process hear the truth: some change the protection of pages.
extern "C" long sysconf(int name) noexcept {
    if (lies && name == _SC_PAGESIZE)
        return kLargePage;
    using Function = long (*)(int);
    static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "sysconf"));
    return real(name);
}

namespace flx::shm {
namespace {

TEST(LargePages, PiecesBeginAndEndWithAPage) {
    lies = true;
    EXPECT_EQ(page_bytes(), kLargePage) << "asked for once";
    lies = false;
    SharedHeap &heap = SharedHeap::of_process();
    std::vector<void *> pieces;
    for (const size_t bytes : {size_t{1}, size_t{4096}, kLargePage, kLargePage + 1, (size_t{2} << 20) + 1}) {
        void *memory = nullptr;
        const Status status = heap.allocate(bytes, memory);
        ASSERT_TRUE(status.ok()) << status.sentence();
        pieces.push_back(memory);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % kLargePage, 0U) << bytes;
        const SharedHeap::Place place = heap.place_of(memory);
        EXPECT_EQ((place.end - place.begin) % kLargePage, 0U) << bytes;
        EXPECT_NE(place.offset, SharedHeap::kNowhere);
        EXPECT_EQ(place.offset % kLargePage, 0U) << bytes;
        static_cast<char *>(memory)[bytes - 1] = 1;
    }
    for (void *memory : pieces)
        EXPECT_TRUE(heap.free(memory).ok());
}

}  // namespace
}  // namespace flx::shm
