/// The steady state: repeated operations allocate nothing, register nothing and take no lock. FLX's own counters say
/// so, and so does every malloc of the process, counted here.
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <vector>

#include "tests/mpi/reference.h"

namespace {

std::atomic<bool> counting{false};
std::atomic<long> counted{0};

[[maybe_unused]] void count() {
    if (counting.load(std::memory_order_relaxed))
        counted.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

// The program's own definitions come before the C library's, for every library of the process; its allocator is reached
// by its other names. Sanitizers have their own in this place.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__)
#define FLX_TEST_COUNTS_MALLOC 1
extern "C" {
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

__attribute__((visibility("default"))) void *malloc(size_t bytes) {
    count();
    return __libc_malloc(bytes);
}
__attribute__((visibility("default"))) void *calloc(size_t items, size_t bytes) {
    count();
    return __libc_calloc(items, bytes);
}
__attribute__((visibility("default"))) void *realloc(void *memory, size_t bytes) {
    count();
    return __libc_realloc(memory, bytes);
}
__attribute__((visibility("default"))) void *aligned_alloc(size_t alignment, size_t bytes) {
    count();
    return __libc_memalign(alignment, bytes);
}
__attribute__((visibility("default"))) int posix_memalign(void **memory, size_t alignment, size_t bytes) {
    count();
    *memory = __libc_memalign(alignment, bytes);
    return *memory == nullptr ? 12 : 0;
}
}
#else
#define FLX_TEST_COUNTS_MALLOC 0
#endif

namespace flx::test {
namespace {

constexpr std::array<size_t, 5> kCounts = {1, 500, 5000, 60000, 300000};

struct Buffers {
    std::vector<float> in, out;
    void *shared_in = nullptr;  ///< of flx_malloc
    void *shared_out = nullptr;
    bool shared;

    Buffers(int size, bool in_flx_malloc)
        : in(kCounts.back() * size, 1.0F), out(kCounts.back() * size), shared(in_flx_malloc) {
        if (shared) {
            const size_t bytes = in.size() * sizeof(float);
            EXPECT_TRUE(succeeded(flx_malloc(bytes, &shared_in)) && succeeded(flx_malloc(bytes, &shared_out)));
        }
    }
    ~Buffers() { EXPECT_TRUE(succeeded(flx_free(shared_in)) && succeeded(flx_free(shared_out))); }
    Buffers(const Buffers &) = delete;
    Buffers &operator=(const Buffers &) = delete;
};

flx_status_t call(Collective collective, size_t count, Buffers &buffers, flx_comm_t comm) {
    const auto *in = buffers.shared ? static_cast<const float *>(buffers.shared_in) : buffers.in.data();
    auto *out = buffers.shared ? static_cast<float *>(buffers.shared_out) : buffers.out.data();
    switch (collective) {
        case Collective::allreduce:
            return flx_allreduce(in, out, count, FLX_F32, FLX_SUM, comm);
        case Collective::reduce_scatter_block:
            return flx_reduce_scatter_block(in, out, count, FLX_F32, FLX_MAX, comm);
        case Collective::allgather:
            return flx_allgather(in, out, count, FLX_F32, comm);
        case Collective::bcast:
            return flx_bcast(out, count, FLX_F32, 0, comm);
        case Collective::reduce:
            return flx_reduce(in, out, count, FLX_F32, FLX_AVG, 0, comm);
        case Collective::barrier:
            break;
    }
    return flx_barrier(comm);
}

flx_counters_t counters() {
    flx_counters_t counters{};
    counters.struct_size = sizeof counters;
    EXPECT_TRUE(succeeded(flx_counters(&counters)));
    return counters;
}

bool run_all(Buffers &buffers, flx_comm_t comm, int repetitions) {
    for (int repetition = 0; repetition < repetitions; ++repetition)
        for (const size_t count : kCounts)
            for (int collective = 0; collective < kCollectives; ++collective)
                if (call(static_cast<Collective>(collective), count, buffers, comm) != FLX_SUCCESS)
                    return false;
    return true;
}

void expect_steady(const Comm &comm, bool count_malloc, int repetitions, bool shared = false) {
    Buffers buffers(world_size(), shared);
    ASSERT_TRUE(run_all(buffers, comm, 10)) << flx_last_error();
    // Between hosts a network that changes, and the tests' one does beside other programs, may ask for something once:
    // an algorithm that was not used before, room for more chunks that wait. What each repetition asks for shows in
    // every one of these looks. Ranks see different ones, so all take all of them.
    const int looks = world_hosts() == 1 ? 1 : 4;
    flx_counters_t before{};
    flx_counters_t after{};
    bool steady = false;
    for (int look = 0; look < looks; ++look) {
        const flx_counters_t from = counters();
        counted = 0;
        counting = true;
        const bool worked = run_all(buffers, comm, repetitions / looks);
        counting = false;
        ASSERT_TRUE(worked) << flx_last_error();
        const flx_counters_t to = counters();
        EXPECT_EQ(to.operations - from.operations, repetitions / looks * kCounts.size() * kCollectives);
        EXPECT_TRUE(!count_malloc || counted == 0) << counted << " calls of malloc and its like";
        if (steady)
            continue;
        before = from;
        after = to;
        steady = to.allocations == from.allocations && to.registrations == from.registrations && to.locks == from.locks;
    }
    EXPECT_EQ(after.allocations, before.allocations);
    EXPECT_EQ(after.registrations, before.registrations);
    EXPECT_EQ(after.locks, before.locks);
}

TEST(Steady, CountingSeesAllocations) {
    if (!FLX_TEST_COUNTS_MALLOC)
        GTEST_SKIP() << "skipped: a sanitizer has its own malloc";
    counted = 0;
    counting = true;
    void *volatile memory = std::malloc(100);
    std::vector<int> *volatile vector = new std::vector<int>(100);
    counting = false;
    std::free(memory);
    delete vector;
    EXPECT_GE(counted, 3);
}

/// Without this the counts of registrations below would prove nothing.
TEST(Steady, CountingSeesMappings) {
    if (world_size() == 1 || world_hosts() != 1)
        GTEST_SKIP() << "skipped: ranks of one host share memory";
    const uint64_t before = counters().registrations;
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    EXPECT_GT(counters().registrations, before) << "the ranks' segment";
}

/// And those of locks: only where other threads move what is under way do calls take any.
TEST(Steady, CountingSeesLocks) {
    const char *thread = std::getenv("FLX_PROGRESS_THREAD");
    if (thread == nullptr || std::string(thread) != "on")
        GTEST_SKIP() << "skipped: without FLX_PROGRESS_THREAD=on calls take no lock";
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    Buffers buffers(world_size(), false);
    const flx_counters_t before = counters();
    ASSERT_TRUE(run_all(buffers, comm, 1)) << flx_last_error();
    const flx_counters_t after = counters();
    EXPECT_GE(after.locks - before.locks, after.operations - before.operations);
}

TEST(Steady, NothingIsAllocatedOnChosenLinks) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    // Between hosts, UCX may allocate for itself.
    expect_steady(comm, world_hosts() == 1, full() ? 1000 : 200 / world_size());
}

TEST(Steady, NothingIsAllocatedOnMemoryOfFlxMalloc) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    expect_steady(comm, world_hosts() == 1, 20, true);
}

TEST(Steady, NothingIsAllocatedOnEachLinkAlone) {
    if (world_size() == 1)
        GTEST_SKIP() << "skipped: one rank has no links";
    for (const std::string &link : complete_links()) {
        Settings settings;
        settings.links = link;
        const flx_config_t config = settings.config();
        const Comm comm = Comm::world(&config);
        ASSERT_TRUE(comm);
        SCOPED_TRACE(link);
        expect_steady(comm, link == "shm", 20);
    }
}

}  // namespace
}  // namespace flx::test
