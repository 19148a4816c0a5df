#include "apps/flx_report/page/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "apps/flx_report/page/style.h"
#include "apps/flx_report/text.h"

namespace flx::report {

std::string class_name(const CallClass &of) {
    const std::string name = of.name.empty() ? "(no name)" : html(of.name, 60);
    return of.non_blocking ? name + " <small>non-blocking</small>" : name;
}

std::string when_text(const Summary &summary, double at_us) {
    return time_text(at_us - summary.from_us);
}

std::vector<std::string> hosts_of(const Summary &summary) {
    std::set<std::string> hosts;
    for (const RankSummary &rank : summary.ranks)
        hosts.insert(rank.host);
    for (const auto &[key, link] : summary.links)
        if (!key.first.empty())
            hosts.insert(key.first);
    return {hosts.begin(), hosts.end()};
}

std::string rank_text(const Summary &summary, int64_t rank) {
    if (rank < 0)
        return "others";
    const auto found = std::lower_bound(summary.ranks.begin(), summary.ranks.end(), rank,
                                        [](const RankSummary &each, int64_t wanted) { return each.rank < wanted; });
    const bool is_known = found != summary.ranks.end() && found->rank == rank && !found->host.empty();
    const bool is_alone =
        summary.ranks.empty() || std::all_of(summary.ranks.begin(), summary.ranks.end(),
                                             [&](const auto &each) { return each.host == summary.ranks.front().host; });
    return is_known && !is_alone ? fmt::format("{} <small>{}</small>", rank, html(found->host, 40))
                                 : std::to_string(rank);
}

namespace {

/// What differs between pages, as HTML.
struct Frame {
    std::string title;
    std::string origin;
    std::string nav;
    std::string parts;
    std::string clocks;  ///< what is said of times
    std::string words;
};

std::string framed(const Frame &frame) {
    // What the page may do is said in the page: nothing is fetched, whatever stands in the trace.
    return fmt::format(
        R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline';
 script-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>FLX: {0}</title>
<link rel="icon" href="data:,">
<style>
{1}</style>
</head>
<body>
<a class="skip" href="#main">to what was found</a>
<header>
<p class="kind">FLX report</p>
<h1>{0}</h1>
<p class="origin">{2}</p>
{3}</header>
<main id="main">
{4}</main>
<footer><p>{6}Sizes are binary (1 KiB = 1,024 B), amounts and rates
decimal (1 MB = 10<sup>6</sup> B). {7}</p></footer>
<script>
{5}</script>
</body>
</html>
)",
        frame.title, kStyle, frame.origin, frame.nav, frame.parts, kScript, frame.clocks, frame.words);
}

std::string origin_of(const std::string &file) {
    return fmt::format("made of <span class=\"file\">{}</span>", html(file, 300));
}

}  // namespace

std::string page_of(const Summary &summary, const std::vector<Bench> &benches, const std::string &trace) {
    const std::string command = summary.header.command.empty() ? "a program" : html(summary.header.command, 160);
    std::string parts = overview_part(summary) + calls_part(summary) + ranks_part(summary) + links_part(summary) +
                        machine_part(summary);
    std::string more;
    if (!benches.empty()) {
        parts += bench_part(&summary, benches);
        more = fmt::format("<li><a href=\"#bench\">{}</a></li>", bench_title(benches));
    }
    const std::string nav = fmt::format(
        R"(<nav aria-label="parts of the page"><ul><li><a href="#overview">In short</a></li><li><a href="#calls">Calls</a></li>
<li><a href="#ranks">Ranks</a></li><li><a href="#links">Links</a></li>
<li><a href="#machine">Machine</a></li>{}</ul></nav>
)",
        more);
    return framed({command, origin_of(trace), nav, parts, "Times are of the ranks' clocks, set beside each other. ",
                   "<em>p99</em>: 99 of 100 took no longer."});
}

std::string page_of_results(const std::vector<Bench> &benches, const std::string &origin) {
    std::vector<std::string> names;
    for (const Bench &bench : benches)
        for (const BenchRow &row : bench.rows)
            if (std::find(names.begin(), names.end(), row.collective) == names.end())
                names.push_back(row.collective);
    std::string title;
    for (const std::string &name : names)
        title += fmt::format("{}{}", title.empty() ? "" : ", ", html(name, 40));
    return framed(
        {title, html(origin, 300), "", bench_part(nullptr, benches), "", "Bus bandwidth is what nccl-tests call so."});
}

}  // namespace flx::report
