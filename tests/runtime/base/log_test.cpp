#include "runtime/base/log.h"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

namespace flx {
namespace {

TEST(Log, LevelAndRank) {
    configure_log("warn", 3);
    testing::internal::CaptureStderr();
    log().info("not shown");
    log().warn("rail {} is slow", "eth0");
    configure_log("debug", 12);
    log().debug("shown");
    configure_log("error", 12);
    log().warn("not shown");
    log().error("gone");
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "flx warning rank 3: rail eth0 is slow\nflx debug rank 12: shown\nflx error rank 12: gone\n");
}

TEST(Log, IsNotInTheProgramsRegistry) {
    log().debug("made");
    EXPECT_EQ(spdlog::get("flx"), nullptr);
}

}  // namespace
}  // namespace flx
