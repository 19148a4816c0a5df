#include "runtime/process/introduction.h"

#include <gtest/gtest.h>

#include "runtime/base/packed.h"

namespace flx {
namespace {

Introduction someone() {
    return {77, 4711, "boot-1", "h1", std::string("\0\xff bytes", 8), "127.0.0.1:9", {3, 1}, "FLX_STRICT=0", true};
}

TEST(Introduction, IsReadAsItWasSaid) {
    const Introduction said = someone();
    Introduction heard;
    ASSERT_TRUE(read_introduction(to_text(said), 1, someone(), 0, heard).ok());
    EXPECT_EQ(heard.uid, said.uid);
    EXPECT_EQ(heard.pid, said.pid);
    EXPECT_EQ(heard.memory_host, said.memory_host);
    EXPECT_EQ(heard.hostname, said.hostname);
    EXPECT_EQ(heard.devices, said.devices);
    EXPECT_EQ(heard.liveness, said.liveness);
    EXPECT_EQ(heard.cpus, said.cpus);
    EXPECT_EQ(heard.knobs, said.knobs);
    EXPECT_EQ(heard.remembers, said.remembers);
}

TEST(Introduction, OtherKnobsAreRefused) {
    Introduction other = someone();
    other.knobs = "FLX_STRICT=1";
    Introduction heard;
    const Status status = read_introduction(to_text(other), 3, someone(), 2, heard);
    EXPECT_EQ(status.code(), FLX_ERR_CONFIG);
    EXPECT_EQ(status.fault(), Fault::knobs_differ);
    for (const char *word : {"rank 2 has FLX_STRICT=0", "rank 3 has FLX_STRICT=1", "equal on all ranks"})
        EXPECT_NE(status.sentence().find(word), std::string::npos) << status.sentence();
}

/// The same fields, and one that never said a version.
TEST(Introduction, AnotherVersionIsRefused) {
    nlohmann::json object;
    ASSERT_TRUE(unpack(to_text(someone()), 1, object).ok());
    Introduction heard;
    object["version"] = "0.3.1";
    Status status = read_introduction(pack(object), 1, someone(), 0, heard);
    EXPECT_EQ(status.code(), FLX_ERR_CONFIG);
    EXPECT_EQ(status.fault(), Fault::versions_differ);
    EXPECT_NE(status.sentence().find("rank 1 runs 0.3.1"), std::string::npos) << status.sentence();
    object.erase("version");
    status = read_introduction(pack(object), 1, someone(), 0, heard);
    EXPECT_EQ(status.code(), FLX_ERR_CONFIG);
    EXPECT_NE(status.sentence().find("another version"), std::string::npos) << status.sentence();
}

TEST(Introduction, WhatCannotBeReadIsAnError) {
    Introduction heard;
    EXPECT_EQ(read_introduction("not CBOR", 1, someone(), 0, heard).fault(), Fault::not_readable);
    nlohmann::json object;
    ASSERT_TRUE(unpack(to_text(someone()), 1, object).ok());
    object["pid"] = "many";
    EXPECT_EQ(read_introduction(pack(object), 1, someone(), 0, heard).fault(), Fault::not_readable);
    object.erase("pid");
    EXPECT_EQ(read_introduction(pack(object), 1, someone(), 0, heard).fault(), Fault::not_readable);
    EXPECT_EQ(read_introduction(pack(nlohmann::json::array()), 1, someone(), 0, heard).fault(), Fault::not_readable);
}

}  // namespace
}  // namespace flx
