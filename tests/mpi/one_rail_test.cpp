/// Hosts of several ranks with one rail between them, as most clusters have it: what the ranks of a host have under way
/// on it is limited in all, and no rank may wait for ever for what that keeps back. The rail is named by FLX_RAILS.
#include <flx.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>
#include <thread>
#include <vector>

#include "tests/mpi/harness.h"

namespace {

using flx::test::Comm;
using flx::test::everywhere;
using flx::test::succeeded;
using namespace std::chrono_literals;

constexpr size_t kLarge = 16 << 20;

/// The last rank's message comes second at its sender, and the one before it takes its own only after that.
TEST(OneRail, APeerThatTakesNothingKeepsNothingBackFromAnother) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    const int rank = comm.rank(), last = comm.size() - 1;
    const int waits = last - 1;
    std::vector<uint8_t> data(kLarge, rank == 0 ? 7 : 0);
    const uint8_t word = 0;
    if (rank == 0) {
        EXPECT_TRUE(succeeded(flx_group_begin(comm)));
        EXPECT_TRUE(succeeded(flx_send(data.data(), kLarge, FLX_UINT8, waits, comm)));
        EXPECT_TRUE(succeeded(flx_send(data.data(), kLarge, FLX_UINT8, last, comm)));
        EXPECT_TRUE(succeeded(flx_group_end(comm)));
    } else if (rank == last) {
        EXPECT_TRUE(succeeded(flx_recv(data.data(), kLarge, FLX_UINT8, 0, comm)));
        MPI_Send(&word, 1, MPI_UINT8_T, waits, 0, MPI_COMM_WORLD);
    } else if (rank == waits) {
        uint8_t got = 0;
        MPI_Recv(&got, 1, MPI_UINT8_T, last, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        EXPECT_TRUE(succeeded(flx_recv(data.data(), kLarge, FLX_UINT8, 0, comm)));
    }
    const std::vector<uint8_t> expected(kLarge, rank == 0 || rank == waits || rank == last ? 7 : 0);
    EXPECT_EQ(data, expected);
}

void add(const void *in, void *inout, size_t count, flx_dtype_t /*dtype*/, void * /*argument*/) {
    for (size_t i = 0; i < count; ++i)
        static_cast<float *>(inout)[i] += static_cast<const float *>(in)[i];
}

/// Each rank needs what all others have for it, in rank order, so it keeps what comes early.
TEST(OneRail, SumsInRankOrderEnd) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    const int size = comm.size();
    const size_t count = kLarge / sizeof(float) / static_cast<size_t>(size);
    flx_op_t op = FLX_SUM;
    ASSERT_TRUE(succeeded(flx_op_create(add, nullptr, 0, &op)));
    const std::vector<float> in(count * static_cast<size_t>(size), static_cast<float>(comm.rank() + 1));
    std::vector<float> out(count);
    EXPECT_TRUE(succeeded(flx_reduce_scatter_block(in.data(), out.data(), count, FLX_F32, op, comm)));
    EXPECT_EQ(out, std::vector<float>(count, static_cast<float>(size * (size + 1)) / 2));
    EXPECT_TRUE(succeeded(flx_op_free(&op)));
}

/// Short operations go stage by stage: what a rank has sent waits unread while its receiver waits within its host. The
/// test fails for what the log says, too: that a rail was lost.
TEST(OneRail, ALateNeighbourLosesNoRail) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    const int rounds = 3;
    for (int round = 0; round <= rounds; ++round) {
        if (round == rounds) {
            std::this_thread::sleep_for(600ms);  // all is acknowledged by then
            if (comm.rank() == 1)
                std::this_thread::sleep_for(4500ms);
        }
        auto value = static_cast<float>(comm.rank() + 1);
        EXPECT_TRUE(succeeded(flx_allreduce(FLX_IN_PLACE, &value, 1, FLX_F32, FLX_SUM, comm)));
        EXPECT_EQ(value, static_cast<float>(comm.size() * (comm.size() + 1)) / 2);
    }
    EXPECT_TRUE(everywhere(true));
}

/// A rank that has everything and is late is waited for; so is it when one chunk more is sent to it.
TEST(OneRail, AChunkMoreForALateRankLosesNoRail) {
    const Comm comm = Comm::world();
    ASSERT_TRUE(comm);
    float first = 1, second = 1;
    EXPECT_TRUE(succeeded(flx_allreduce(FLX_IN_PLACE, &first, 1, FLX_F32, FLX_SUM, comm)));
    first = 1;
    flx_request_t requests[2] = {FLX_REQUEST_NULL, FLX_REQUEST_NULL};
    if (comm.rank() == comm.size() - 1)
        std::this_thread::sleep_for(5s);
    EXPECT_TRUE(succeeded(flx_iallreduce(FLX_IN_PLACE, &first, 1, FLX_F32, FLX_SUM, comm, &requests[0])));
    const auto began = std::chrono::steady_clock::now();
    for (int done = 0; comm.rank() != comm.size() - 1 && std::chrono::steady_clock::now() - began < 2500ms;) {
        EXPECT_TRUE(succeeded(flx_test(&requests[0], &done)));
        std::this_thread::sleep_for(1ms);
    }
    EXPECT_TRUE(succeeded(flx_iallreduce(FLX_IN_PLACE, &second, 1, FLX_F32, FLX_SUM, comm, &requests[1])));
    for (flx_request_t &request : requests)
        EXPECT_TRUE(succeeded(flx_wait(&request)));
    EXPECT_EQ(first, static_cast<float>(comm.size()));
    EXPECT_EQ(second, static_cast<float>(comm.size()));
}

}  // namespace
