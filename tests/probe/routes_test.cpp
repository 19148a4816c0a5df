#include "probe/routes.h"

#include <gtest/gtest.h>

#include <chrono>

namespace flx::probe {
namespace {

TEST(Routes, TheKernelKnowsFromWhereItSends) {
    EXPECT_TRUE(is_route("127.0.0.1", "127.0.0.1"));
    EXPECT_FALSE(is_route("10.255.255.1", "127.0.0.1")) << "not this device's address";
    EXPECT_FALSE(is_route("127.0.0.1", "no address"));
}

TEST(Routes, AnswersOfAllKindsEndATry) {
    Doors doors;
    uint16_t port = 0;
    ASSERT_TRUE(doors.open("127.0.0.1", port).ok());
    uint16_t closed = 0;
    {
        Doors others;
        ASSERT_TRUE(others.open("127.0.0.1", closed).ok());
    }
    std::vector<Attempt> attempts{{"127.0.0.1", "127.0.0.1", port, false, {}},
                                  {"127.0.0.1", "127.0.0.1", closed, false, {}},
                                  {"10.255.255.1", "127.0.0.1", port, false, {}},
                                  {"127.0.0.1", "no address", port, false, {}}};
    const auto began = std::chrono::steady_clock::now();
    try_connections(attempts, 30000);
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20)) << "it waited for nothing";
    EXPECT_TRUE(attempts[0].reached);
    EXPECT_EQ(attempts[1].why, "Connection refused");
    EXPECT_EQ(attempts[2].why, "another device leads there");
    EXPECT_EQ(attempts[3].why, "no address");
    for (size_t i = 1; i < attempts.size(); ++i)
        EXPECT_FALSE(attempts[i].reached);
}

TEST(Routes, MoreThanFitAtOnceAreTriedInTurn) {
    Doors doors;
    uint16_t port = 0;
    ASSERT_TRUE(doors.open("127.0.0.1", port).ok());
    std::vector<Attempt> attempts(300, Attempt{"127.0.0.1", "127.0.0.1", port, false, {}});
    try_connections(attempts, 30000);
    for (const Attempt &attempt : attempts)
        EXPECT_TRUE(attempt.reached) << attempt.why;
}

}  // namespace
}  // namespace flx::probe
