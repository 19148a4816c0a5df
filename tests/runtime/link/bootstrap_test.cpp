#include "runtime/link/bootstrap.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "tests/runtime/link/ranks.h"

namespace flx {
namespace {

std::string text_of(int rank, int round) {
    if ((rank + round) % 3 == 0)
        return {};
    std::string text(static_cast<size_t>(rank * 700 + round), static_cast<char>('a' + rank));
    text += '\0';  // Texts may hold any byte.
    return text + std::to_string(rank);
}

TEST(Bootstrap, GathersTextsOfAnyLength) {
    for (const int size : {1, 2, 5}) {
        testing::run_group(size, [&](Bootstrap &bootstrap) {
            for (int round = 0; round < 4; ++round) {
                std::vector<std::string> all{"left from before"};
                ASSERT_TRUE(bootstrap.allgather_text(text_of(bootstrap.rank(), round), all).ok());
                ASSERT_EQ(all.size(), static_cast<size_t>(size));
                for (int rank = 0; rank < size; ++rank)
                    EXPECT_EQ(all[rank], text_of(rank, round));
            }
            std::vector<std::string> none;
            ASSERT_TRUE(bootstrap.allgather_text("", none).ok());
            EXPECT_EQ(none, std::vector<std::string>(size));
        });
    }
}

TEST(Bootstrap, AgreesOnSuccess) {
    testing::run_group(3, [](Bootstrap &bootstrap) { EXPECT_TRUE(agree(bootstrap, {}).ok()); });
}

/// A thread that cannot be started, or memory that is not there, on one rank must not leave the others waiting.
TEST(Bootstrap, TellsAllRanksOfAnException) {
    testing::run_group(3, [](Bootstrap &bootstrap) {
        const int rank = bootstrap.rank();
        const Status agreed = agree_on(bootstrap, [&]() -> Status {
            if (rank == 1)
                throw std::runtime_error("no more threads");
            return {};
        });
        EXPECT_EQ(agreed.code(), FLX_ERR_SYSTEM);
        EXPECT_EQ(agreed.sentence(), std::string(rank == 1 ? "" : "rank 1: ") +
                                         "making the communicator failed: no more threads [FLX-E819]");
        EXPECT_TRUE(agree_on(bootstrap, [] { return Status(); }).ok());
    });
}

TEST(Bootstrap, TellsAllRanksOfTheFirstFailure) {
    testing::run_group(4, [](Bootstrap &bootstrap) {
        const int rank = bootstrap.rank();
        Status mine;
        if (rank == 1)
            mine = fail(Fault::no_memory, "no room here");
        if (rank == 3)
            mine = fail(Fault::knob_value, "bad knob");
        const Status agreed = agree(bootstrap, mine);
        if (rank == 1) {
            EXPECT_EQ(agreed.code(), FLX_ERR_SYSTEM);
            EXPECT_EQ(agreed.sentence(), "no room here [FLX-E801]");
        } else if (rank == 3) {
            EXPECT_EQ(agreed.code(), FLX_ERR_CONFIG);
            EXPECT_EQ(agreed.sentence(), "bad knob [FLX-E202]");
        } else {
            EXPECT_EQ(agreed.code(), FLX_ERR_SYSTEM);
            EXPECT_EQ(agreed.sentence(), "rank 1: no room here [FLX-E801]");
        }
        EXPECT_TRUE(agree(bootstrap, {}).ok()) << "the next agreement stands for itself";
    });
}

/// A program may not look at the status, and a job has many ranks.
TEST(Bootstrap, WhatIsWrongIsLoggedOnce) {
    const auto logged = [](Fault fault) {
        ::testing::internal::CaptureStderr();
        testing::run_group(4, [&](Bootstrap &bootstrap) {
            const int rank = bootstrap.rank();
            const Status agreed = agree_on(
                bootstrap, [&] { return rank % 2 == 1 ? fail(fault, "knob of rank {} is bad", rank) : Status(); });
            EXPECT_EQ(agreed.code(), status_of(fault));
        });
        return ::testing::internal::GetCapturedStderr();
    };
    EXPECT_EQ(logged(Fault::knob_value), "flx error: knob of rank 1 is bad [FLX-E202]\n");
    EXPECT_EQ(logged(Fault::null_pointer), "") << "which the caller is told";
}

/// A bootstrap that is broken itself.
class Broken final : public Bootstrap {
  public:
    int rank() const override { return 0; }
    int size() const override { return 2; }
    Status allgather(const void *, size_t, void *) override { return fail(Fault::no_memory, "MPI is gone"); }
    Status barrier() override { return {}; }
    void progress() override {}
    Status split(int, int, std::unique_ptr<Bootstrap> &) override { return {}; }
    Status dup(std::unique_ptr<Bootstrap> &) override { return {}; }
};

TEST(Bootstrap, PassesItsOwnErrorsOn) {
    Broken broken;
    std::vector<std::string> all;
    EXPECT_EQ(broken.allgather_text("x", all).sentence(), "MPI is gone [FLX-E801]");
    EXPECT_EQ(agree(broken, {}).sentence(), "MPI is gone [FLX-E801]");
}

}  // namespace
}  // namespace flx
