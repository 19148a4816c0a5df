/// \file charts.h
/// Lines over equal steps, as SVG that stretches with the page while its words, which are HTML, do not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace flx::report {

/// A chart has no more steps than this.
constexpr size_t kMostSteps = 500;

enum class Unit : uint8_t { rate, part, gigabytes };

/// A value in its unit: `980 MB/s`, `34 %`, `1.2 GB/s`.
[[nodiscard]] std::string text_of(Unit unit, double value);

struct ChartLine {
    std::string name;
    std::vector<double> values;
};

/// A point of the x axis that has something to say.
struct ChartMark {
    double at = 0;  ///< in steps
    std::string sign;
    std::string text;
};

/// All texts may be foreign ones: they are escaped where the chart is written.
struct Chart {
    std::string title;
    std::string detail;  ///< behind the title; may be empty
    Unit unit = Unit::rate;
    std::vector<ChartLine> lines;  ///< at most three, of equal length
    std::optional<double> level;   ///< a line across, such as what was measured
    std::string level_name;
    std::vector<ChartMark> marks;
    double top = 0;                         ///< of the y axis; 0: the highest value
    std::vector<std::string> labels;        ///< of the x axis: the first, the last, and those between, evenly
    std::function<std::string(size_t)> at;  ///< what step i is called, for tables and readers
    std::string step_title = "time";        ///< of the column of these names
    size_t most_rows = 25;                  ///< of the table that says the same
    bool are_points = false;                ///< each step is one measurement: its place is marked
};

/// A figure: caption, lines, legend, what they say in words, and a table that can be opened.
[[nodiscard]] std::string html_of(const Chart &chart);

}  // namespace flx::report
