#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apps/flx_report/page/charts.h"
#include "apps/flx_report/page/page.h"
#include "apps/flx_report/page/table.h"
#include "apps/flx_report/text.h"

namespace flx::report {
namespace {

std::string peer_name(const std::string &peer) {
    return peer == "mpi" ? "MPI" : peer == "nccl" ? "NCCL" : peer == "none" || peer.empty() ? "none" : peer;
}

std::string range(double us, double low, double high) {
    if (!(us > 0))
        return "–";
    return time_text(us) +
           (low > 0 && high > 0 ? fmt::format(" <small>{} – {}</small>", time_text(low), time_text(high)) : "");
}

std::string who_is_faster(const BenchRow &row, const std::string &peer) {
    constexpr double kAlike = 0.02;
    if (std::abs(row.ratio() - 1) < kAlike)
        return "alike";
    return row.ratio() > 1 ? "FLX is faster" : fmt::format("{} is faster", peer);
}

/// What is to be compared is a collective over its sizes.
std::vector<std::vector<BenchRow>> by_collective(const Bench &bench) {
    std::vector<std::vector<BenchRow>> groups;
    for (const BenchRow &row : bench.rows) {
        const auto found = std::find_if(groups.begin(), groups.end(), [&](const auto &group) {
            return group.front().collective == row.collective && group.front().memory == row.memory;
        });
        if (found == groups.end())
            groups.push_back({row});
        else
            found->push_back(row);
    }
    for (auto &group : groups)
        std::stable_sort(group.begin(), group.end(), [](const auto &a, const auto &b) { return a.bytes < b.bytes; });
    return groups;
}

std::string size_of(const BenchRow &row) {
    return size_text(static_cast<uint64_t>(std::min(row.bytes, 1e18)));
}

std::string chart_of(const std::vector<BenchRow> &rows, const std::string &peer, double ceiling) {
    if (rows.size() < 2 || rows.size() > kMostSteps)
        return {};
    Chart chart;
    chart.title = rows.front().collective;
    chart.detail = "bus bandwidth by size";
    chart.unit = Unit::gigabytes;
    chart.are_points = true;
    ChartLine flx{"FLX", {}};
    ChartLine other{peer, {}};
    for (const BenchRow &row : rows) {
        flx.values.push_back(row.busbw_GBps);
        other.values.push_back(row.peer_busbw());
    }
    chart.lines.push_back(std::move(flx));
    if (std::any_of(other.values.begin(), other.values.end(), [](double value) { return value > 0; }))
        chart.lines.push_back(std::move(other));
    if (ceiling > 0) {
        chart.level = ceiling;
        chart.level_name = "the links' ceiling";
    }
    constexpr size_t kMostLabels = 4;
    if (rows.size() <= kMostLabels) {
        for (const BenchRow &row : rows)
            chart.labels.push_back(size_of(row));
    } else {
        chart.labels = {size_of(rows.front()), size_of(rows.back())};
        if (rows.size() % 2 == 1)
            chart.labels.insert(chart.labels.begin() + 1, size_of(rows[rows.size() / 2]));
    }
    chart.step_title = "size";
    chart.most_rows = kMostSteps;
    chart.at = [rows](size_t step) { return size_of(rows[step]); };
    return html_of(chart);
}

std::string shares_of(const BenchRow &row) {
    std::string text;
    for (const auto &[link, share] : row.shares)
        text += fmt::format("{}{} {}", text.empty() ? "" : ", ", html(link, 40), percent_text(share));
    return text.empty() ? "–" : text;
}

std::string table_of(const std::vector<BenchRow> &rows, const std::string &peer, double ceiling) {
    std::vector<Column> columns = {{"size", true}, {"FLX", true}};
    if (peer != "none") {
        columns.push_back({peer, true});
        columns.push_back({peer + " ÷ FLX", true});
    }
    columns.push_back({"bus bandwidth", true});
    if (ceiling > 0)
        columns.push_back({"of the ceiling", true});
    columns.push_back({"algorithm"});
    const bool has_shares =
        std::any_of(rows.begin(), rows.end(), [](const BenchRow &row) { return !row.shares.empty(); });
    if (has_shares)
        columns.push_back({"links"});
    Table table(fmt::format("{}: median time of a call on the slowest rank, with the span of 80 of 100 blocks",
                            html(rows.front().collective, 40)),
                columns);
    for (const BenchRow &row : rows) {
        table.cell(size_of(row), row.bytes).cell(range(row.flx_us, row.flx_low_us, row.flx_high_us), row.flx_us);
        if (peer != "none")
            table.cell(range(row.peer_us, row.peer_low_us, row.peer_high_us), row.peer_us)
                .cell(row.peer_us > 0 ? fmt::format("<strong>{:.2f}</strong> <small>{}</small>", row.ratio(),
                                                    who_is_faster(row, peer))
                                      : "–",
                      row.ratio());
        table.cell(rate_text(row.busbw_GBps * 1e3), row.busbw_GBps);
        if (ceiling > 0)
            table.cell(barred(row.busbw_GBps / ceiling), row.busbw_GBps / ceiling);
        table.cell(html(row.algorithm, 40));
        if (has_shares)
            table.cell(shares_of(row));
    }
    return table.html();
}

std::string text_of_bench(const Summary *summary, const Bench &bench) {
    std::string text = fmt::format(
        "<h3>{}</h3>\n<p class=\"about\">{}{}{}. {}</p>\n", html(bench.name, 200), html(bench.machine, 200),
        bench.mpi.empty() ? "" : fmt::format("; {}", html(bench.mpi, 120)),
        bench.mode.empty() ? "" : fmt::format("; measured {}", html(bench.mode, 40)),
        summary == nullptr || summary->ranks.empty() || static_cast<int64_t>(summary->ranks.size()) == bench.ranks
            ? ""
            : fmt::format("The trace is of {}, these results of {}.", counted(summary->ranks.size(), "rank"),
                          count_text(static_cast<uint64_t>(bench.ranks))));
    double wrong = 0;
    for (const BenchRow &row : bench.rows)
        wrong += row.wrong;
    if (wrong > 0)
        text += fmt::format("<ul class=\"warnings\">\n<li>{} of results were wrong.</li>\n</ul>\n",
                            counted(static_cast<uint64_t>(std::min(wrong, 1e18)), "element"));
    bool has_ceiling = false;
    std::string charts;
    std::string tables;
    for (const std::vector<BenchRow> &rows : by_collective(bench)) {
        std::string peer = "none";
        for (const BenchRow &row : rows)
            if (row.peer_us > 0)
                peer = html(peer_name(row.peer), 20);
        const double ceiling = summary == nullptr ? 0 : ceiling_busbw(*summary, bench, rows.front().collective);
        has_ceiling = has_ceiling || ceiling > 0;
        charts += chart_of(rows, peer, ceiling);
        tables += table_of(rows, peer, ceiling);
    }
    text += charts.empty() ? tables : fmt::format("<div class=\"charts\">\n{}</div>\n{}", charts, tables);
    if (summary == nullptr)
        return text;
    text += has_ceiling
                ? "<p class=\"note\">The ceiling is the bus bandwidth if all rails of a host delivered what was "
                  "measured, all of the time, and data crossed between hosts as seldom as it can.</p>\n"
                : "<p class=\"note\">There is no ceiling of links here: the ranks share a host, or the trace is of "
                  "another number of hosts, or of no measured rails.</p>\n";
    return text;
}

}  // namespace

std::string bench_title(const std::vector<Bench> &benches) {
    for (const Bench &bench : benches)
        for (const BenchRow &row : bench.rows)
            if (row.peer_us > 0)
                return "Beside its peer";
    return "Results";
}

std::string bench_part(const Summary *summary, const std::vector<Bench> &benches) {
    std::string text = fmt::format(
        "<section id=\"bench\" aria-labelledby=\"bench-title\"><h2 id=\"bench-title\">{}</h2>\n", bench_title(benches));
    for (const Bench &bench : benches)
        text += text_of_bench(summary, bench);
    return text + "</section>\n";
}

}  // namespace flx::report
