/// Further communicators: they take little memory until something large moves, measure nothing that an earlier one of
/// this host did, and carry everything all the same.
#include <fcntl.h>
#include <mpi.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <optional>

#include "tests/mpi/harness.h"

namespace flx::test {
namespace {

namespace fs = std::filesystem;

/// Bytes in memory of the segments that this process has open.
size_t reserved() {
    size_t bytes = 0;
    for (const auto &entry : fs::directory_iterator("/proc/self/fd")) {
        std::error_code gone;
        struct stat found {};
        if (fs::read_symlink(entry, gone).string().rfind("/dev/shm/flx-", 0) == 0 &&
            stat(entry.path().c_str(), &found) == 0)
            bytes += static_cast<size_t>(found.st_blocks) * 512;
    }
    return bytes;
}

/// Whether /dev/shm has room for `bytes` sixteen times: else further communicators reserve all that they may need.
bool plenty(size_t bytes) {
    std::error_code failed;
    const fs::space_info space = fs::space("/dev/shm", failed);
    return !failed && space.available / 16 > bytes;
}

/// Ranks of the host with the most.
int ranks_here() {
    return (world_size() + world_hosts() - 1) / world_hosts();
}

void add_up(flx_comm_t comm, int size, size_t count) {
    std::vector<int64_t> in(count), out(count);
    std::iota(in.begin(), in.end(), world_rank());
    ASSERT_TRUE(succeeded(flx_allreduce(in.data(), out.data(), count, FLX_INT64, FLX_SUM, comm)));
    const int64_t ranks = int64_t{size} * (size - 1) / 2;
    for (size_t i = 0; i < count; ++i)
        ASSERT_EQ(out[i], ranks + static_cast<int64_t>(i) * size) << "element " << i << " of " << count;
}

/// Each rank to the one `step` further on.
void pass_on(flx_comm_t comm, int size, size_t count, int step = 1) {
    std::vector<int> out(count, world_rank()), in(count, -1);
    const int next = (world_rank() + step) % size;
    const int previous = (world_rank() + size - step) % size;
    ASSERT_TRUE(succeeded(flx_group_begin(comm)));
    ASSERT_TRUE(succeeded(flx_send(out.data(), count, FLX_INT32, next, comm)));
    ASSERT_TRUE(succeeded(flx_recv(in.data(), count, FLX_INT32, previous, comm)));
    ASSERT_TRUE(succeeded(flx_group_end(comm)));
    EXPECT_EQ(std::ranges::count(in, previous), static_cast<ptrdiff_t>(count));
}

TEST(Further, TakeLittleUntilTheyMoveSomethingLarge) {
    constexpr int kDups = 10;
    // Boards of 8 KiB a rank, and what is there once.
    const size_t most = static_cast<size_t>(ranks_here()) * 10'000 + 40'000;
    const Comm world = Comm::world();
    ASSERT_TRUE(world);
    if (!everywhere(plenty(size_t{64} << 20)))
        GTEST_SKIP() << "skipped: /dev/shm is smaller than 1 GiB, where further communicators reserve all at once";
    const size_t before = reserved();
    std::vector<Comm> dups(kDups);
    for (Comm &dup : dups) {
        flx_comm_t made = nullptr;
        ASSERT_TRUE(succeeded(flx_comm_dup(world, &made)));
        dup = Comm(made);
        ASSERT_TRUE(succeeded(flx_barrier(dup)));
        add_up(dup, world.size(), 1);
    }
    EXPECT_TRUE(everywhere(true));  // all have come so far
    const size_t little = reserved();
    EXPECT_LE(little - before, kDups * most);
    for (const size_t count : {20, 300, 4000, 100'000}) {
        add_up(dups[0], world.size(), count);
        pass_on(dups[1], world.size(), count);
    }
    EXPECT_TRUE(everywhere(true));
    if (ranks_here() > 1 && world.size() > 1) {
        EXPECT_GT(reserved(), little + 20'000) << "what moves has room now";
        EXPECT_LE(reserved() - before, kDups * most + (size_t{64} << 20)) << "and no other";
    }
    for (int turn = 0; turn < 3; ++turn)
        for (Comm &dup : dups) {
            add_up(dup, world.size(), 1 + 7000 * static_cast<size_t>(turn));
            pass_on(dup, world.size(), 10 + 7000 * static_cast<size_t>(turn));
        }
}

/// Takes what is free in /dev/shm, but for `rest` bytes; gone with this.
class Filler {
  public:
    explicit Filler(size_t rest) {
        fd_ = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        const size_t free = fs::space("/dev/shm").available;
        EXPECT_TRUE(fd_ >= 0 && free > rest && posix_fallocate(fd_, 0, static_cast<off_t>(free - rest)) == 0);
    }
    ~Filler() { close(fd_); }
    Filler(const Filler &) = delete;
    Filler &operator=(const Filler &) = delete;

  private:
    int fd_;
};

/// Others took it since the communicators were made. With a /dev/shm of its own (containers_test.py).
TEST(Further, WhereRoomRunsOutCallsGoOtherWaysOrAreRefused) {
    if (std::getenv("FLX_TEST_OWN_SHM") == nullptr)
        GTEST_SKIP() << "skipped: this fills /dev/shm, which is not this program's own";
    const Comm world = Comm::world();
    ASSERT_TRUE(world);
    ASSERT_TRUE(everywhere(plenty(size_t{20} << 20))) << "else they do not begin with little";
    std::vector<Comm> dups(6);
    for (Comm &dup : dups) {
        flx_comm_t made = nullptr;
        ASSERT_TRUE(succeeded(flx_comm_dup(world, &made)));
        dup = Comm(made);
        ASSERT_TRUE(succeeded(flx_barrier(dup)));
    }
    std::optional<Filler> filler;
    const auto leave = [&](size_t rest) {
        if (world.rank() == 0) {
            filler.reset();
            filler.emplace(rest);
        }
        ASSERT_TRUE(everywhere(true));
    };
    for (int step = 1; step < world.size(); ++step)  // links have room, and carry what else has none
        for (const size_t count : {1, 4000})
            pass_on(dups[2], world.size(), count, step);
    leave(size_t{4} << 20);  // for shorter rings
    for (const size_t count : {300, 4000, 100'000}) {
        add_up(dups[0], world.size(), count);
        add_up(dups[1], world.size(), count);
    }
    leave(64 << 10);  // for none
    const auto refused = [&](Comm &dup, size_t count) {
        std::vector<int64_t> in(count, 1), out(count, -1);
        const flx_status_t status = flx_allreduce(in.data(), out.data(), count, FLX_INT64, FLX_SUM, dup);
        return everywhere(status == FLX_ERR_SYSTEM);
    };
    EXPECT_TRUE(refused(dups[3], 300)) << flx_last_error();
    for (const size_t count : {300, 4000, 100'000, 300})
        add_up(dups[2], world.size(), count);
    add_up(dups[0], world.size(), 100'000);  // what has room goes on
    add_up(dups[4], world.size(), 1);
    add_up(dups[4], world.size(), 10);
    leave(size_t{64} << 20);
    add_up(dups[4], world.size(), 100'000);
    pass_on(dups[5], world.size(), 100'000);
}

/// What the first two halves measured of their host is known to the next. On one host, with two ranks each.
TEST(Further, PartsOfEqualSizeMeasureOnce) {
    setenv("FLX_PROBE_MS", "1000", 1);
    const Comm world = Comm::world();
    ASSERT_TRUE(world);
    std::vector<double> seconds;
    for (int turn = 0; turn < 3; ++turn) {
        const auto began = std::chrono::steady_clock::now();
        flx_comm_t made = nullptr;
        ASSERT_TRUE(succeeded(flx_comm_split(world, world.rank() * 2 / world.size(), 0, &made)));
        const Comm half(made);
        seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
        std::vector<int64_t> in(50'000, half.rank()), out(in.size());
        ASSERT_TRUE(succeeded(flx_allreduce(in.data(), out.data(), in.size(), FLX_INT64, FLX_SUM, half)));
        const int64_t sum = int64_t{half.size()} * (half.size() - 1) / 2;
        EXPECT_EQ(std::ranges::count(out, sum), static_cast<ptrdiff_t>(out.size()));
    }
    EXPECT_GT(seconds[0], 0.2) << "a part of a second is for measuring";
    EXPECT_LT(std::min(seconds[1], seconds[2]), seconds[0] / 3);
}

}  // namespace
}  // namespace flx::test
