#include "apps/flx_report/page/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "apps/flx_report/page/table.h"
#include "apps/flx_report/text.h"

namespace flx::report {
namespace {

constexpr double kHeight = 100;

/// The next larger one of 1, 1.5, 2, 3, 4, 5, 6, 8, times a power of ten.
double rounded_up(double value) {
    if (!(value > 0))
        return 1;
    const double power = std::pow(10, std::floor(std::log10(value)));
    for (const double step : {1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0})
        if (value <= step * power * 1.0001)
            return step * power;
    return 10 * power;
}

double highest_of(const Chart &chart) {
    double highest = chart.level.value_or(0);
    for (const ChartLine &line : chart.lines)
        for (const double value : line.values)
            highest = std::max(highest, value);
    return highest;
}

/// The line over the steps, whose middles are what x counts.
std::string polyline(const ChartLine &line, size_t index, double top) {
    std::string points;
    for (size_t i = 0; i < line.values.size(); ++i)
        points += fmt::format("{}{:.1f},{:.1f}", i == 0 ? "" : " ", static_cast<double>(i) + 0.5,
                              kHeight * (1 - std::clamp(line.values[i] / top, 0.0, 1.0)));
    return fmt::format("<polyline class=\"l{}\" points=\"{}\"/>", index, points);
}

std::string area_of(const ChartLine &line, double top) {
    std::string points = fmt::format("0.5,{}", kHeight);
    for (size_t i = 0; i < line.values.size(); ++i)
        points += fmt::format(" {:.1f},{:.1f}", static_cast<double>(i) + 0.5,
                              kHeight * (1 - std::clamp(line.values[i] / top, 0.0, 1.0)));
    points += fmt::format(" {:.1f},{}", static_cast<double>(line.values.size()) - 0.5, kHeight);
    return fmt::format("<polygon class=\"a0\" points=\"{}\"/>", points);
}

/// A line as a sentence.
std::string words_of(const Chart &chart, const ChartLine &line) {
    if (line.values.empty())
        return {};
    const auto [low, high] = std::minmax_element(line.values.begin(), line.values.end());
    const double mean =
        std::accumulate(line.values.begin(), line.values.end(), 0.0) / static_cast<double>(line.values.size());
    return fmt::format("{}: lowest {}, mean {}, highest {} at {}. ", line.name, text_of(chart.unit, *low),
                       text_of(chart.unit, mean), text_of(chart.unit, *high),
                       chart.at(static_cast<size_t>(high - line.values.begin())));
}

std::string table_of(const Chart &chart, size_t steps) {
    std::vector<Column> columns = {{chart.step_title}};
    for (const ChartLine &line : chart.lines)
        columns.push_back({html(line.name), true});
    Table table(html(chart.title), columns);
    table.hide_caption();
    const size_t rows = std::min(steps, chart.most_rows);
    for (size_t row = 0; row < rows; ++row) {
        const size_t from = row * steps / rows;
        const size_t to = std::max(from + 1, (row + 1) * steps / rows);
        table.cell(html(chart.at(from)));
        for (const ChartLine &line : chart.lines) {
            const double sum = std::accumulate(line.values.begin() + static_cast<std::ptrdiff_t>(from),
                                               line.values.begin() + static_cast<std::ptrdiff_t>(to), 0.0);
            table.cell(text_of(chart.unit, sum / static_cast<double>(to - from)));
        }
    }
    return fmt::format("<details><summary>as a table</summary>\n{}</details>\n", table.html());
}

std::string legend_of(const Chart &chart) {
    if (chart.lines.size() < 2 && !chart.level && chart.marks.empty())
        return {};
    const auto key = [](const std::string &which, const std::string &name) {
        return fmt::format(
            "<li><svg class=\"key\" aria-hidden=\"true\" viewBox=\"0 0 24 8\"><path class=\"{}\" d=\"M0 "
            "4H24\"/></svg>{}"
            "</li>",
            which, html(name));
    };
    std::string items;
    for (size_t i = 0; i < chart.lines.size(); ++i)
        items += key(fmt::format("l{}", i), chart.lines[i].name);
    if (chart.level)
        items += key("level", fmt::format("{} ({})", chart.level_name, text_of(chart.unit, *chart.level)));
    return fmt::format("<ul class=\"legend\">{}</ul>\n", items);
}

std::string points_of(const Chart &chart, double top, size_t steps) {
    std::string result;
    for (size_t l = 0; chart.are_points && l < chart.lines.size(); ++l)
        for (size_t i = 0; i < chart.lines[l].values.size(); ++i)
            result += fmt::format("<span class=\"point p{}\" style=\"left:{:.2f}%;bottom:{:.1f}%\"></span>", l,
                                  100 * (static_cast<double>(i) + 0.5) / static_cast<double>(steps),
                                  100 * std::clamp(chart.lines[l].values[i] / top, 0.0, 1.0));
    return result;
}

std::string marks_of(const Chart &chart, size_t steps) {
    std::string result;
    for (const ChartMark &mark : chart.marks)
        result +=
            fmt::format("<span class=\"mark\" style=\"left:{:.2f}%\" title=\"{}\">{}</span>",
                        std::clamp(100 * mark.at / static_cast<double>(steps), 0.0, 100.0), html(mark.text), mark.sign);
    return result.empty() ? result : fmt::format("<div class=\"marks\" aria-hidden=\"true\">{}</div>", result);
}

/// What page.js reads a step's values from, as words: it need not know units.
std::string data_of(const Chart &chart, size_t steps) {
    std::string names;
    for (const ChartLine &line : chart.lines)
        names += fmt::format("{}{}", names.empty() ? "" : ",", json(line.name));
    std::string rows;
    for (size_t i = 0; i < steps; ++i) {
        rows += fmt::format("{}[{}", i == 0 ? "" : ",", json(chart.at(i)));
        for (const ChartLine &line : chart.lines)
            rows += fmt::format(",{}", json(text_of(chart.unit, line.values[i])));
        rows += "]";
    }
    return fmt::format("<script type=\"application/json\">{{\"names\":[{}],\"rows\":[{}]}}</script>\n", names, rows);
}

}  // namespace

std::string text_of(Unit unit, double value) {
    switch (unit) {
        case Unit::rate:
            return rate_text(value);
        case Unit::gigabytes:
            return rate_text(value * 1e3);
        case Unit::part:
            break;
    }
    return percent_text(value);
}

std::string html_of(const Chart &chart) {
    size_t steps = 0;
    for (const ChartLine &line : chart.lines)
        steps = std::max(steps, line.values.size());
    if (steps == 0)
        return {};
    const double top = chart.top > 0 ? chart.top : rounded_up(highest_of(chart));
    std::string shapes = fmt::format("<path class=\"grid\" d=\"M0 {0}H{1}M0 0H{1}M0 100H{1}\"/>", kHeight / 2, steps);
    std::string words;
    if (!chart.are_points)
        shapes += area_of(chart.lines.front(), top);
    if (chart.level)
        shapes += fmt::format("<path class=\"level\" d=\"M0 {0:.1f}H{1}\"/>",
                              kHeight * (1 - std::clamp(*chart.level / top, 0.0, 1.0)), steps);
    for (size_t i = chart.lines.size(); i-- > 0;)
        shapes += polyline(chart.lines[i], i, top);
    for (const ChartMark &mark : chart.marks)
        shapes += fmt::format("<path class=\"event\" d=\"M{0:.1f} 0V100\"/>", mark.at);
    for (const ChartLine &line : chart.lines)
        words += words_of(chart, line);
    if (chart.level)
        words += fmt::format("{}: {}. ", chart.level_name, text_of(chart.unit, *chart.level));
    for (const ChartMark &mark : chart.marks)
        words += mark.text + ". ";
    std::string labels;
    for (const std::string &label : chart.labels)
        labels += fmt::format("<span>{}</span>", html(label));
    return fmt::format(
        "<figure class=\"chart\"><figcaption>{}{}</figcaption>\n"
        "<div class=\"plot\"><div class=\"y\" aria-hidden=\"true\"><span>{}</span><span>{}</span><span>0</span></div>"
        "<div class=\"area\">{}<svg role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {} 100\" preserveAspectRatio=\"none\">"
        "{}</svg>{}</div><div class=\"x{}\" aria-hidden=\"true\">{}</div></div>\n{}{}{}</figure>\n",
        html(chart.title), chart.detail.empty() ? "" : fmt::format(" <small>{}</small>", html(chart.detail)),
        text_of(chart.unit, top), text_of(chart.unit, top / 2), marks_of(chart, steps), html(words, 2000), steps,
        shapes, points_of(chart, top, steps), chart.are_points && chart.labels.size() == steps ? " even" : "", labels,
        legend_of(chart), table_of(chart, steps), data_of(chart, steps));
}

}  // namespace flx::report
