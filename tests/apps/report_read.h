/// \file report_read.h
/// A trace that a test wrote, as flx_report reads it.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <sstream>
#include <string>

#include "apps/flx_report/data/collector.h"

namespace flx::report {

inline Summary read(const std::string &text) {
    std::istringstream stream(text);
    std::string problem;
    std::optional<Summary> summary = summarise(stream, "t.json", problem);
    EXPECT_EQ(problem, "");
    return summary.value_or(Summary{});
}

}  // namespace flx::report
