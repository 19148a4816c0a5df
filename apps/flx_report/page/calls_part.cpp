#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "apps/flx_report/page/charts.h"
#include "apps/flx_report/page/page.h"
#include "apps/flx_report/page/table.h"
#include "apps/flx_report/text.h"

namespace flx::report {
namespace {

constexpr size_t kMostClassRows = 40;

std::string way_text(const std::string &way) {
    return way.empty() ? "–" : html(way, 40);
}

/// Which call of which communicator, as the trace names those of MPI's.
std::string number_text(const Summary &summary, const NotedCall &call) {
    const auto named = summary.communicator_names.find(call.communicator);
    return fmt::format(
        " <small>{} of {}</small>", count_text(call.number),
        named != summary.communicator_names.end() ? html(named->second) : fmt::format("comm. {}", call.communicator));
}

std::vector<const CallClass *> by_time(const Summary &summary) {
    std::vector<const CallClass *> classes;
    for (const CallClass &of : summary.classes)
        classes.push_back(&of);
    std::stable_sort(classes.begin(), classes.end(),
                     [](const CallClass *a, const CallClass *b) { return a->took.sum() > b->took.sum(); });
    return classes;
}

std::string classes_table(const Summary &summary) {
    Table table("What was called, by collective, size and way. A call of each rank counts; the size is a rank's.",
                {{"collective"},
                 {"size", true},
                 {"way"},
                 {"calls", true},
                 {"data", true},
                 {"median", true},
                 {"p99", true},
                 {"total", true},
                 {"of the run", true}});
    const std::vector<const CallClass *> classes = by_time(summary);
    const size_t shown = std::min(classes.size(), kMostClassRows);
    for (size_t i = 0; i < shown; ++i) {
        const CallClass &of = *classes[i];
        const double share = summary.share_of_run(of.took.sum());
        table.cell(class_name(of))
            .cell(size_class_text(of.size), of.size)
            .cell(way_text(of.way))
            .cell(count_text(of.calls), static_cast<double>(of.calls))
            .cell(bytes_text(of.bytes), of.bytes)
            .cell(time_text(of.took.median()), of.took.median())
            .cell(time_text(of.took.quantile(0.99)), of.took.quantile(0.99))
            .cell(time_text(of.took.sum()), of.took.sum())
            .cell(barred(share), share);
    }
    std::string more;
    if (shown < classes.size()) {
        double rest = 0;
        for (size_t i = shown; i < classes.size(); ++i)
            rest += classes[i]->took.sum();
        more = fmt::format("<p>{} of less time are not shown; together they took {}.</p>\n",
                           counted(classes.size() - shown, "more row"), time_text(rest));
    }
    const bool has_others =
        std::any_of(classes.begin(), classes.end(), [](const auto *of) { return of->non_blocking; });
    if (has_others)
        more +=
            "<p class=\"note\">A non-blocking call takes from its issue to its completion, while the program goes on: "
            "it "
            "is not time in FLX.</p>\n";
    return table.html() + more;
}

std::string ways_table(const Summary &summary) {
    struct Sum {
        uint64_t calls = 0;
        double bytes = 0;
        double us = 0;
    };
    std::map<std::string, Sum> ways;
    double all = 0;
    for (const CallClass &of : summary.classes) {
        Sum &sum = ways[of.way];
        sum.calls += of.calls;
        sum.bytes += of.bytes;
        sum.us += of.took.sum();
        all += of.took.sum();
    }
    Table table("Which ways FLX took, over all calls",
                {{"way"}, {"calls", true}, {"data", true}, {"total", true}, {"of all calls' time", true}});
    std::vector<std::pair<std::string, Sum>> sorted(ways.begin(), ways.end());
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto &a, const auto &b) { return a.second.us > b.second.us; });
    for (const auto &[way, sum] : sorted) {
        const double share = all > 0 ? sum.us / all : 0;
        table.cell(way_text(way))
            .cell(count_text(sum.calls), static_cast<double>(sum.calls))
            .cell(bytes_text(sum.bytes), sum.bytes)
            .cell(time_text(sum.us), sum.us)
            .cell(barred(share), share);
    }
    return table.html();
}

std::string slowest_table(const Summary &summary) {
    Table table(
        "The calls that took longest. A call of all ranks is one row, with the time of the rank that was in it for "
        "longest. <em>Spread</em>: from the first rank's entry to the last one's. <em>After</em>: from there to the "
        "last return.",
        {{"call"},
         {"size", true},
         {"way"},
         {"at", true},
         {"took", true},
         {"last came"},
         {"spread", true},
         {"after", true}});
    constexpr size_t kMost = 12;
    for (size_t i = 0; i < std::min(summary.slowest.size(), kMost); ++i) {
        const NotedCall &call = summary.slowest[i];
        const CallClass &of = summary.classes[call.call_class];
        const std::string name = class_name(of) + (call.number == 0 ? std::string() : number_text(summary, call));
        table.cell(name)
            .cell(of.size < 0 ? "–" : bytes_text(call.bytes), call.bytes)
            .cell(way_text(of.way))
            .cell(when_text(summary, call.at_us), call.at_us)
            .cell(time_text(call.took_us), call.took_us);
        if (call.matched)
            table.cell(fmt::format("rank {}", rank_text(summary, call.last_rank)))
                .cell(time_text(call.spread_us), call.spread_us)
                .cell(time_text(call.after_us), call.after_us);
        else
            table.cell(fmt::format("<small>of rank {} alone</small>", rank_text(summary, call.rank)))
                .cell("–", 0)
                .cell("–", 0);
    }
    return table.html();
}

std::string noted_table(const Summary &summary, const std::vector<NotedCall> &calls, uint64_t count, bool has_errors) {
    std::vector<Column> columns = {{"call"}, {"rank"}, {"size", true}, {"at", true}, {"for", true}};
    if (has_errors)
        columns.push_back({"error", false, true});
    Table table(
        fmt::format("{}{}", has_errors ? "Calls that ended with an error" : "Calls that the trace has no end of",
                    count > calls.size() ? fmt::format(": the first {} of {}", calls.size(), count_text(count)) : ""),
        columns);
    for (const NotedCall &call : calls) {
        const CallClass &of = summary.classes[call.call_class];
        table.cell(class_name(of) + (call.number == 0 ? std::string() : number_text(summary, call)))
            .cell(rank_text(summary, call.rank))
            .cell(of.size < 0 ? "–" : bytes_text(call.bytes), call.bytes)
            .cell(when_text(summary, call.at_us), call.at_us)
            .cell(time_text(call.took_us), call.took_us);
        if (has_errors)
            table.cell(html(call.error, 300));
    }
    return table.html();
}

/// Which part of the ranks was in FLX, over the run.
std::string over_time(const Summary &summary) {
    if (summary.in_calls.empty() || !(summary.run_us() > 0))
        return {};
    constexpr size_t kSteps = 200;
    const double step_us = summary.run_us() / static_cast<double>(kSteps);
    const auto part_of = [&](const Series &series) {
        std::vector<double> values = series.resampled(summary.from_us, summary.to_us, kSteps);
        for (double &value : values)
            value = std::min(1.0, value / step_us / static_cast<double>(summary.ranks.size()));
        return values;
    };
    Chart chart;
    chart.title = "Part of the ranks that are in FLX, over the run";
    chart.unit = Unit::part;
    chart.top = 1;
    chart.lines.push_back({"in FLX", part_of(summary.in_calls)});
    if (!summary.early.empty())
        chart.lines.push_back({"of them before the last rank came", part_of(summary.early)});
    chart.labels = {"0", time_text(summary.run_us() / 2), time_text(summary.run_us())};
    chart.at = [=](size_t step) { return time_text(static_cast<double>(step) * step_us); };
    return html_of(chart);
}

}  // namespace

std::string calls_part(const Summary &summary) {
    std::string text = "<section id=\"calls\" aria-labelledby=\"calls-title\"><h2 id=\"calls-title\">Calls</h2>\n";
    if (summary.classes.empty())
        return text + "<p>There are none.</p>\n</section>\n";
    text += classes_table(summary) + over_time(summary);
    text += "<h3>Ways</h3>\n" + ways_table(summary);
    text += "<h3>The longest ones</h3>\n" + slowest_table(summary);
    if (!summary.failed.empty())
        text += "<h3 id=\"failed\">Errors</h3>\n" + noted_table(summary, summary.failed, summary.failed_count, true);
    if (!summary.unfinished.empty())
        text += "<h3 id=\"unfinished\">Without an end</h3>\n" +
                noted_table(summary, summary.unfinished, summary.unfinished_count, false);
    return text + "</section>\n";
}

}  // namespace flx::report
