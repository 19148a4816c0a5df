/// Calls whose buffers are out of reach, as GPU memory is: pages that nobody may touch but the copies to and from them.
/// All bytes there must end as the same call leaves them in host memory.
#include "runtime/communicator/mirror.h"

#include <sys/mman.h>

#include <cstring>
#include <functional>
#include <vector>

#include "runtime/api/api.h"
#include "tests/mpi/harness.h"

namespace flx::test {
namespace {

constexpr size_t kArena = size_t{1} << 22;

/// Memory that stands for a GPU's.
class Arena {
  public:
    Arena()
        : begin_(static_cast<std::byte *>(
              mmap(nullptr, kArena, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
        EXPECT_NE(begin_, MAP_FAILED);
        the_arena = this;
    }
    ~Arena() { munmap(begin_, kArena); }
    Arena(const Arena &) = delete;
    Arena &operator=(const Arena &) = delete;

    [[nodiscard]] std::byte *begin() const { return begin_; }
    void open(bool opened) const { mprotect(begin_, kArena, opened ? PROT_READ | PROT_WRITE : PROT_NONE); }

    static const Mirror::Gpu &gpu() {
        static constexpr Mirror::Gpu kGpu{owns, copy<true>, copy<false>};
        return kGpu;
    }

  private:
    static bool owns(const void *memory) {
        const auto *at = static_cast<const std::byte *>(memory);
        return at >= the_arena->begin_ && at < the_arena->begin_ + kArena;
    }
    template <bool down>
    static Status copy(std::span<const cuda::Transfer> transfers) {
        the_arena->open(true);
        for (const cuda::Transfer &each : transfers)
            std::memcpy(down ? each.host : each.device, down ? each.device : each.host, each.bytes);
        the_arena->open(false);
        return {};
    }

    static inline const Arena *the_arena = nullptr;
    std::byte *const begin_;
};

/// Where a call's buffers lie: two, of which one may be passed as both.
struct Buffers {
    int32_t *in;
    int32_t *out;
};
using Make = std::function<Status(const Buffers &buffers, flx_comm_t comm, Call &call)>;

struct Case {
    const char *name;
    Make make;
};

constexpr size_t kWords = 4096;  // of each buffer
constexpr size_t kCount = 37;

struct Arrays {
    explicit Arrays(const Comm &comm) : size(static_cast<size_t>(comm.size())), own(static_cast<size_t>(comm.rank())) {
        for (size_t rank = 0; rank < size; ++rank) {
            counts.push_back(5 + 3 * rank);
            displacements.push_back(rank * 40 + 7);  // with gaps, which stay as they are
            sends.push_back(5 + 3 * own);            // as the others' counts say of this rank
            receives.push_back(5 + 3 * rank);
        }
        for (size_t rank = 0; rank < size; ++rank)
            equal.push_back(11);
    }
    size_t size, own;
    std::vector<size_t> counts, displacements, sends, receives, equal;
};

std::vector<Case> cases(const Arrays &arrays, int root) {
    using namespace api;
    const auto *counts = arrays.counts.data();
    const auto *places = arrays.displacements.data();
    const auto *equal = arrays.equal.data();
    const size_t own = arrays.counts[arrays.own];
    const bool at_root = arrays.own == static_cast<size_t>(root);
    const void *const in_place = FLX_IN_PLACE;
    std::vector<Case> all;
    const auto add = [&](const char *name, Make make) { all.push_back({name, std::move(make)}); };
    add("allreduce", [=](auto &b, auto comm, Call &call) {
        return make_allreduce(b.in, b.out, kCount, FLX_INT32, FLX_SUM, comm, call);
    });
    add("allreduce in place", [=](auto &b, auto comm, Call &call) {
        return make_allreduce(in_place, b.out, kCount, FLX_INT32, FLX_MAX, comm, call);
    });
    add("reduce", [=](auto &b, auto comm, Call &call) {
        return make_reduce(b.in, b.out, kCount, FLX_INT32, FLX_SUM, root, comm, call);
    });
    add("reduce in place", [=](auto &b, auto comm, Call &call) {
        return make_reduce(at_root ? in_place : b.in, b.out, kCount, FLX_INT32, FLX_SUM, root, comm, call);
    });
    add("reduce_scatter_block", [=](auto &b, auto comm, Call &call) {
        return make_reduce_scatter_block(b.in, b.out, kCount, FLX_INT32, FLX_SUM, comm, call);
    });
    add("reduce_scatter", [=](auto &b, auto comm, Call &call) {
        return make_reduce_scatter(b.in, b.out, counts, FLX_INT32, FLX_SUM, comm, call);
    });
    add("reduce_scatter in place", [=](auto &b, auto comm, Call &call) {
        return make_reduce_scatter(in_place, b.out, counts, FLX_INT32, FLX_SUM, comm, call);
    });
    add("bcast",
        [=](auto &b, auto comm, Call &call) { return make_bcast(b.out, kCount, FLX_INT32, root, comm, call); });
    add("allgather",
        [=](auto &b, auto comm, Call &call) { return make_allgather(b.in, b.out, kCount, FLX_INT32, comm, call); });
    add("allgather in place",
        [=](auto &b, auto comm, Call &call) { return make_allgather(in_place, b.out, kCount, FLX_INT32, comm, call); });
    add("allgatherv", [=](auto &b, auto comm, Call &call) {
        return make_allgatherv(b.in, own, b.out, counts, places, FLX_INT32, comm, call);
    });
    add("allgatherv in place", [=](auto &b, auto comm, Call &call) {
        return make_allgatherv(in_place, own, b.out, counts, places, FLX_INT32, comm, call);
    });
    add("gather",
        [=](auto &b, auto comm, Call &call) { return make_gather(b.in, b.out, kCount, FLX_INT32, root, comm, call); });
    add("gather in place", [=](auto &b, auto comm, Call &call) {
        return make_gather(at_root ? in_place : b.in, b.out, kCount, FLX_INT32, root, comm, call);
    });
    add("gatherv", [=](auto &b, auto comm, Call &call) {
        return make_gatherv(b.in, own, b.out, counts, places, FLX_INT32, root, comm, call);
    });
    add("gatherv in place", [=](auto &b, auto comm, Call &call) {
        return make_gatherv(at_root ? in_place : b.in, own, b.out, counts, places, FLX_INT32, root, comm, call);
    });
    add("scatter",
        [=](auto &b, auto comm, Call &call) { return make_scatter(b.in, b.out, kCount, FLX_INT32, root, comm, call); });
    add("scatter in place", [=](auto &b, auto comm, Call &call) {
        return make_scatter(b.in, at_root ? FLX_IN_PLACE : b.out, kCount, FLX_INT32, root, comm, call);
    });
    add("scatterv", [=](auto &b, auto comm, Call &call) {
        return make_scatterv(b.in, counts, places, b.out, own, FLX_INT32, root, comm, call);
    });
    add("scatterv in place", [=](auto &b, auto comm, Call &call) {
        return make_scatterv(b.in, counts, places, at_root ? FLX_IN_PLACE : b.out, own, FLX_INT32, root, comm, call);
    });
    add("alltoall",
        [=](auto &b, auto comm, Call &call) { return make_alltoall(b.in, b.out, kCount, FLX_INT32, comm, call); });
    add("alltoall in place",
        [=](auto &b, auto comm, Call &call) { return make_alltoall(in_place, b.out, kCount, FLX_INT32, comm, call); });
    add("alltoallv", [=, &arrays](auto &b, auto comm, Call &call) {
        return make_alltoallv(b.in, b.out, arrays.sends.data(), places, arrays.receives.data(), places, FLX_INT32, comm,
                              call);
    });
    add("alltoallv in place", [=](auto &b, auto comm, Call &call) {
        return make_alltoallv(in_place, b.out, nullptr, nullptr, equal, places, FLX_INT32, comm, call);
    });
    for (const bool exclusive : {false, true}) {
        add(exclusive ? "exscan" : "scan", [=](auto &b, auto comm, Call &call) {
            return make_scan(exclusive, b.in, b.out, kCount, FLX_INT32, FLX_SUM, comm, call);
        });
        add(exclusive ? "exscan in place" : "scan in place", [=](auto &b, auto comm, Call &call) {
            return make_scan(exclusive, in_place, b.out, kCount, FLX_INT32, FLX_SUM, comm, call);
        });
    }
    return all;
}

enum class Where { both, input, output };

void expect_as_in_host_memory(const Case &c, const Comm &comm, const Arena &arena, Where where) {
    std::vector<int32_t> in(kWords);
    std::vector<int32_t> out(kWords);
    Random random(seed() + static_cast<uint64_t>(comm.rank()));
    for (std::vector<int32_t> *side : {&in, &out})
        for (int32_t &word : *side)
            word = static_cast<int32_t>(random.below(100'000));
    std::vector<int32_t> other_in = in;
    std::vector<int32_t> other_out = out;
    auto *words = reinterpret_cast<int32_t *>(arena.begin());
    arena.open(true);
    std::memcpy(words, in.data(), kWords * sizeof(int32_t));
    std::memcpy(words + kWords, out.data(), kWords * sizeof(int32_t));
    arena.open(false);

    Call plain;
    ASSERT_TRUE(c.make({in.data(), out.data()}, comm, plain).ok());
    flx_comm_t handle = comm;
    ASSERT_TRUE(handle->impl->run(plain).ok());

    Call call;
    const Buffers away{where == Where::output ? other_in.data() : words,
                       where == Where::input ? other_out.data() : words + kWords};
    ASSERT_TRUE(c.make(away, comm, call).ok());
    static MirrorMemory memory;  // used again, so what was there before must not be seen
    const Mirror mirror(call, comm.size(), comm.rank(), memory, Arena::gpu());
    for (int round = 0; round < 2; ++round) {  // as a persistent one does; of the same input
        if (round != 0) {
            arena.open(true);
            std::memcpy(words + kWords, other_out.data(), kWords * sizeof(int32_t));
            arena.open(false);
            if (where == Where::input)
                break;
        }
        ASSERT_TRUE(mirror.load().ok());
        const Status status = handle->impl->run(call);
        ASSERT_TRUE(status.ok()) << status.sentence();
        ASSERT_TRUE(mirror.store().ok());
    }
    arena.open(true);
    const int32_t *got_in = where == Where::output ? other_in.data() : words;
    const int32_t *got_out = where == Where::input ? other_out.data() : words + kWords;
    EXPECT_EQ(std::memcmp(got_in, in.data(), kWords * sizeof(int32_t)), 0) << c.name;
    EXPECT_EQ(std::memcmp(got_out, out.data(), kWords * sizeof(int32_t)), 0) << c.name;
}

TEST(Mirror, LeavesAllMemoryAsTheCallDoesInHostMemory) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    const Arrays arrays(comm);
    const Arena arena;
    for (int root = 0; root < comm.size(); ++root) {
        for (const Case &c : cases(arrays, root)) {
            for (const Where where : {Where::both, Where::input, Where::output})
                expect_as_in_host_memory(c, comm, arena, where);
            if (!everywhere(!testing::Test::HasFailure()))
                return;
        }
    }
}

}  // namespace
}  // namespace flx::test
