#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/flx_info/machine.h"

namespace {

std::vector<std::string> report_of(const std::string &name) {
    return {"[links]",       "  as rank 0",      "[costs]",
            "  # a comment", "  name = " + name, "  hosts = 2",
            "  ranks = 3",   "  far.rails = 2",  "  far.latency_ns = 1500.5",
            "[knobs]",       "  hosts = 7"};
}

TEST(InfoMachine, HasWhatTheCostsSay) {
    std::string text;
    ASSERT_EQ(machine_of(report_of(R"("a\"b\\c = d")"), text), "");
    const auto machine = nlohmann::json::parse(text);
    EXPECT_EQ(machine["name"], "a\"b\\c = d");
    EXPECT_EQ(machine["hosts"], 2);
    EXPECT_EQ(machine["ranks"], 3);
    EXPECT_EQ(machine["far"]["rails"], 2);
    EXPECT_EQ(machine["far"]["latency_ns"], 1500.5);
}

TEST(InfoMachine, NamesALineThatHasNoValue) {
    for (const std::string name : {R"("a"b")", R"("a\")", "a", "\"\xff\""}) {
        std::string text;
        EXPECT_EQ(machine_of(report_of(name), text).find("the report's line \"name = " + name + "\" has no value of"),
                  0)
            << name;
        EXPECT_EQ(text, "");
    }
}

}  // namespace
