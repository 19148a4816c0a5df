#include "runtime/base/log.h"

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

namespace flx {
namespace {

TEST(Log, LevelAndRank) {
    set_log_level("warn");
    name_log(3);
    testing::internal::CaptureStderr();
    log().info("not shown");
    log().warn("rail {} is slow", "eth0");
    set_log_level("debug");
    name_log(12);  // in a part of the world
    log().debug("shown");
    set_log_level("error");
    log().warn("not shown");
    log().error("gone");
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "flx warning rank 3: rail eth0 is slow\nflx debug rank 3: shown\nflx error rank 3: gone\n");
}

TEST(Log, IsNotInTheProgramsRegistry) {
    log().debug("made");
    EXPECT_EQ(spdlog::get("flx"), nullptr);
}

}  // namespace
}  // namespace flx
