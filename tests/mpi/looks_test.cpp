/// Ways through shared memory that are looked at again while a program runs: what comes out is right in each, whoever
/// is late, and sometimes they are.
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>

#include "tests/mpi/harness.h"
#include "tests/mpi/job.h"

namespace flx::test {
namespace {

constexpr std::array kKindsLookedAt = {Kind::allreduce, Kind::reduce_scatter_block, Kind::allgather, Kind::alltoall,
                                       Kind::bcast};

/// What the report says of them; -1 where it says nothing.
long looks(flx_comm_t comm) {
    std::string text;
    const auto add = [](const char *line, void *to) { static_cast<std::string *>(to)->append(line).append("\n"); };
    EXPECT_TRUE(succeeded(flx_report(comm, add, &text)));
    const size_t at = text.find("looked at again ");
    return at == std::string::npos ? -1 : std::stol(text.substr(at + std::string("looked at again ").size()));
}

TEST(Looks, AreRightInEachWay) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    EXPECT_EQ(looks(comm), 0);
    Random random(seed());
    // Ranks that take turns on a core are slow.
    const bool few = world_size() == 2;
    const int calls = few ? 2500 : 900;
    for (int call = 0; call < calls; ++call) {
        JobCase c;
        c.kind = kKindsLookedAt[random.below(kKindsLookedAt.size())];
        c.count = 3000 + 20'000 * random.below(few ? 2 : 1);
        c.in_place = random.below(4) == 0;
        c.seed = random.next() >> 8;
        const auto late = static_cast<int>(random.below(200));
        if (late == comm.rank())
            usleep(300);
        Job job(c, comm.rank(), comm.size());
        ASSERT_TRUE(succeeded(job.call(Manner::blocking, comm, nullptr))) << to_string(c) << ", call " << call;
        ASSERT_EQ(job.verdict(), "") << to_string(c) << ", call " << call;
    }
    if (comm.rank() == 0)
        std::printf("%ld looks\n", looks(comm));
    EXPECT_GT(looks(comm), 3);
}

}  // namespace
}  // namespace flx::test
