/// MPI traffic of the program that is under way while ranks are inside FLX, and the reverse: neither may wait for the
/// other for ever.
#include <array>
#include <vector>

#include "tests/mpi/harness.h"

namespace flx::test {
namespace {

constexpr int kTag = 7;
// Far past Open MPI's eager limits: the data moves only while both sides are inside MPI.
constexpr int kLarge = 4 << 20;

class Pending : public testing::TestWithParam<size_t> {
  protected:
    void SetUp() override {
        if (world_size() < 2)
            GTEST_SKIP() << "skipped: needs two ranks";
        comm_ = Comm::world();
        ASSERT_TRUE(comm_);
        in_.assign(GetParam(), static_cast<float>(world_rank() + 1));
        out_.assign(GetParam(), 0.0F);
        message_.assign(kLarge, world_rank());
        received_.assign(kLarge, -1);
    }

    void allreduce() {
        ASSERT_TRUE(succeeded(flx_allreduce(in_.data(), out_.data(), in_.size(), FLX_F32, FLX_SUM, comm_)));
        const int n = world_size();
        EXPECT_EQ(out_.front(), static_cast<float>(n * (n + 1) / 2));
        EXPECT_EQ(out_.back(), static_cast<float>(n * (n + 1) / 2));
    }

    Comm comm_;
    std::vector<float> in_, out_;
    std::vector<int> message_, received_;
};

/// The receiver is inside MPI until the sender, which is inside FLX, moves the message.
TEST_P(Pending, SendDuringAllreduce) {
    for (int repetition = 0; repetition < 3; ++repetition) {
        if (world_rank() == 0) {
            MPI_Request request = MPI_REQUEST_NULL;
            MPI_Isend(message_.data(), kLarge, MPI_INT, 1, kTag, MPI_COMM_WORLD, &request);
            allreduce();
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            if (world_rank() == 1) {
                MPI_Recv(received_.data(), kLarge, MPI_INT, 0, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                EXPECT_EQ(received_.back(), 0);
            }
            allreduce();
        }
    }
}

/// The same, with the receive posted by the one inside FLX.
TEST_P(Pending, ReceiveDuringAllreduce) {
    for (int repetition = 0; repetition < 3; ++repetition) {
        if (world_rank() == 0) {
            MPI_Request request = MPI_REQUEST_NULL;
            MPI_Irecv(received_.data(), kLarge, MPI_INT, 1, kTag, MPI_COMM_WORLD, &request);
            allreduce();
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            EXPECT_EQ(received_.back(), 1);
        } else {
            if (world_rank() == 1)
                MPI_Send(message_.data(), kLarge, MPI_INT, 0, kTag, MPI_COMM_WORLD);
            allreduce();
        }
    }
}

/// The root may leave a broadcast before the others have all of it. It then sits in MPI until they have come through.
TEST_P(Pending, RootLeavesBroadcastEarly) {
    for (int repetition = 0; repetition < 3; ++repetition) {
        std::vector<float> data(GetParam(), world_rank() == 0 ? 3.0F : 0.0F);
        ASSERT_TRUE(succeeded(flx_bcast(data.data(), data.size(), FLX_F32, 0, comm_)));
        EXPECT_EQ(data.front(), 3.0F);
        EXPECT_EQ(data.back(), 3.0F);
        int token = 1;
        if (world_rank() == 0)
            for (int rank = 1; rank < world_size(); ++rank)
                MPI_Recv(&token, 1, MPI_INT, rank, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(&token, 1, MPI_INT, 0, kTag, MPI_COMM_WORLD);
    }
}

/// Contributors may leave a reduction before the root has everything, and wait for it in MPI.
TEST_P(Pending, ContributorsLeaveReductionEarly) {
    for (int repetition = 0; repetition < 3; ++repetition) {
        ASSERT_TRUE(succeeded(flx_reduce(in_.data(), out_.data(), in_.size(), FLX_F32, FLX_MAX, 0, comm_)));
        EXPECT_TRUE(world_rank() != 0 || out_.back() == static_cast<float>(world_size())) << out_.back();
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

/// A whole ring of messages is under way while all ranks are inside FLX.
TEST_P(Pending, RingOfMessagesAcrossCalls) {
    const int next = (world_rank() + 1) % world_size();
    const int previous = (world_rank() + world_size() - 1) % world_size();
    for (int repetition = 0; repetition < 3; ++repetition) {
        std::array<MPI_Request, 2> requests{};
        MPI_Irecv(received_.data(), kLarge, MPI_INT, previous, kTag, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(message_.data(), kLarge, MPI_INT, next, kTag, MPI_COMM_WORLD, &requests[1]);
        allreduce();
        ASSERT_TRUE(succeeded(flx_barrier(comm_)));
        MPI_Waitall(2, requests.data(), MPI_STATUSES_IGNORE);
        EXPECT_EQ(received_.front(), previous);
        EXPECT_EQ(received_.back(), previous);
    }
}

/// A wildcard receive of the program's does not take a message of FLX's, nor the reverse.
TEST_P(Pending, WildcardReceiveIsTheProgramsOwn) {
    int token = world_rank();
    if (world_rank() == 0) {
        MPI_Request request = MPI_REQUEST_NULL;
        int got = -1;
        MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
        allreduce();
        Comm other = Comm::world();
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        EXPECT_EQ(got, world_size() - 1);
    } else {
        allreduce();
        Comm other = Comm::world();
        if (world_rank() == world_size() - 1)
            MPI_Send(&token, 1, MPI_INT, 0, kTag, MPI_COMM_WORLD);
    }
}

INSTANTIATE_TEST_SUITE_P(Floats, Pending, testing::Values(2, 5000, 1000003));

}  // namespace
}  // namespace flx::test
