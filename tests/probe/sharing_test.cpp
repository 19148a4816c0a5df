#include "probe/sharing.h"

#include <gtest/gtest.h>

#include <vector>

namespace flx::probe {
namespace {

uint32_t found(const std::vector<Rates> &links) {
    return links_that_share(links);
}

TEST(Sharing, RailsOfOneWireAreFound) {
    EXPECT_EQ(found({{0.05, 0.048}, {0.05, 0.024}, {0.05, 0.026}}), 0b110U);
    EXPECT_EQ(found({{0.1, 0.033}, {0.1, 0.035}, {0.1, 0.03}}), 0b111U);
    // A slow and a fast one: what each loses is in proportion.
    EXPECT_EQ(found({{0.1, 0.06}, {0.02, 0.008}, {0.3, 0.29}}), 0b011U);
}

TEST(Sharing, RailsOfTheirOwnAreNot) {
    EXPECT_EQ(found({}), 0U);
    EXPECT_EQ(found({{0.05, 0.048}, {0.1, 0.09}, {0.025, 0.024}}), 0U);
    EXPECT_EQ(found({{0.05, 0.02}, {0.1, 0.09}}), 0U) << "one that was disturbed shares with nobody";
    EXPECT_EQ(found({{0.05, 0}, {0, 0.1}, {0, 0}}), 0U) << "not measured";
    EXPECT_EQ(found({{0.05, 0.005}, {0.05, 0.004}, {0.05, 0.05}}), 0U) << "a peer that had no core";
    EXPECT_EQ(found({{0.044, 0.025}, {0.048, 0.021}, {0.0004, 0.018}}), 0U)
        << "as seen on a machine without free cores";
    EXPECT_EQ(found({{0.1, 0.05}, {0.1, 0.05}, {0.2, 0.1}, {0.2, 0.1}}), 0U) << "two wires, or one; nobody knows";
}

}  // namespace
}  // namespace flx::probe
