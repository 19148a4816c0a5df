#include "runtime/shares/slow_links.h"

#include <gtest/gtest.h>

#include <vector>

namespace flx {
namespace {

/// Three rails, of which the last is suspected.
class SlowLinksTest : public testing::Test {
  protected:
    static constexpr std::array<double, 3> kRates = {0.1, 0.05, 0.025};
    static constexpr int kLast = 2;

    SlowLinksTest() { slow_.suspect(kLast, kRates, 0.14); }

    /// Operations of `ms` each, in which rails carry so many parts of their rates. True: the last one is slow.
    bool see(int operations, double ms, std::array<double, 3> parts) {
        bool told = false;
        for (int i = 0; i < operations; ++i) {
            std::vector<LinkSample> samples;
            for (size_t link = 0; link < kRates.size(); ++link)
                samples.push_back(
                    {static_cast<uint64_t>(kRates[link] * parts[link] * ms * 1e6), static_cast<uint64_t>(ms * 1e6)});
            slow_.observe(samples);
            const auto found = slow_.confirmed();
            told = told || found.has_value();
            if (found) {
                EXPECT_EQ(found->link, kLast);
                EXPECT_NEAR(found->bytes_per_ns, kRates[kLast] * parts[kLast], 1e-6);
                EXPECT_EQ(found->share, 0.14);
            }
        }
        return told;
    }

    SlowLinks slow_;
};

TEST_F(SlowLinksTest, AQuarterIsToldOnceAfterThreeLooks) {
    EXPECT_FALSE(see(5, 100, {1, 1, 0.25}));
    EXPECT_TRUE(see(1, 100, {1, 1, 0.25}));
    EXPECT_FALSE(see(100, 100, {1, 1, 0.25}));
}

TEST_F(SlowLinksTest, BriefOperationsProveNothing) {
    EXPECT_FALSE(see(1000, 12, {1, 1, 0.1}));
    EXPECT_FALSE(slow_.confirmed());
}

TEST_F(SlowLinksTest, ProcessesWithoutACoreMakeAllSlow) {
    EXPECT_FALSE(see(100, 100, {0.3, 0.35, 0.25}));
}

TEST_F(SlowLinksTest, AnOperationInWhichItWasNotSlowEndsIt) {
    EXPECT_FALSE(see(5, 100, {1, 1, 0.25}));
    EXPECT_FALSE(see(1, 100, {1, 1, 0.9}));
    EXPECT_FALSE(see(100, 100, {1, 1, 0.25})) << "nobody suspects it any more";
}

TEST_F(SlowLinksTest, OneThatIsLostIsForgotten) {
    EXPECT_FALSE(see(5, 100, {1, 1, 0.25}));
    slow_.forget(kLast);
    EXPECT_FALSE(see(100, 100, {1, 1, 0.25}));
}

/// Where it is the only one that carried something there is nothing to compare it with.
TEST_F(SlowLinksTest, OneAloneIsNotJudged) {
    EXPECT_FALSE(see(100, 100, {0, 0, 0.25}));
}

TEST_F(SlowLinksTest, WhoIsNotSuspectedIsNotTold) {
    EXPECT_FALSE(see(100, 100, {0.1, 1, 1}));
}

}  // namespace
}  // namespace flx
