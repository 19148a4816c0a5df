#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "apps/flx_report/page/charts.h"
#include "apps/flx_report/page/drawing.h"
#include "apps/flx_report/page/page.h"
#include "apps/flx_report/page/table.h"
#include "apps/flx_report/text.h"

namespace flx::report {
namespace {

constexpr size_t kSteps = 160;
constexpr size_t kMostCharts = 8;
constexpr size_t kMostLinkRows = 64;

std::string rate_or_dash(double megabytes) {
    return megabytes > 0 ? rate_text(megabytes) : "–";
}

std::string links_table(const Summary &summary) {
    using Entry = std::pair<const std::pair<std::string, std::string> *, const HostLink *>;
    std::vector<Entry> links;
    double all = 0;
    for (const auto &[key, link] : summary.links) {
        links.emplace_back(&key, &link);
        all += link.bytes;
    }
    const size_t count = links.size();
    if (count > kMostLinkRows) {
        std::stable_sort(links.begin(), links.end(),
                         [](const Entry &a, const Entry &b) { return a.second->bytes > b.second->bytes; });
        links.resize(kMostLinkRows);
    }
    Table table(
        fmt::format("What each link was measured to deliver, and what it carried, of all ranks of a host together{}. "
                    "<em>At most</em>: in the best stretch of the run.",
                    count > kMostLinkRows ? fmt::format("; {} of {}", kMostLinkRows, count_text(count)) : ""),
        {{"link"},
         {"host"},
         {"measured", true},
         {"at most", true},
         {"of measured", true},
         {"latency", true},
         {"carried", true},
         {"of all links", true}});
    for (const auto &[key, link] : links) {
        const double part = link->rate_MBps > 0 ? link->highest_MBps / link->rate_MBps : 0;
        const double share = all > 0 ? link->bytes / all : 0;
        table.cell(html(key->second, 40))
            .cell(html(key->first, 40))
            .cell(rate_or_dash(link->rate_MBps), link->rate_MBps)
            .cell(rate_or_dash(link->highest_MBps), link->highest_MBps)
            .cell(part > 0 ? barred(part) : "–", part)
            .cell(link->latency_us > 0 ? time_text(link->latency_us) : "–", link->latency_us)
            .cell(bytes_text(link->bytes), link->bytes)
            .cell(barred(share), share);
    }
    return table.html();
}

/// All hosts' links of one name.
struct Named {
    std::string name;
    std::vector<const HostLink *> links;
    double bytes = 0;
    double rate_MBps = 0;  ///< the fastest host's
};

std::vector<Named> by_name(const Summary &summary) {
    std::map<std::string, Named> names;
    for (const auto &[key, link] : summary.links) {
        Named &named = names[key.second];
        named.name = key.second;
        named.links.push_back(&link);
        named.bytes += link.bytes;
        named.rate_MBps = std::max(named.rate_MBps, link.rate_MBps);
    }
    for (const auto &[name, shares] : summary.shares)
        names[name].name = name;
    std::vector<Named> sorted;
    for (auto &[name, named] : names)
        sorted.push_back(std::move(named));
    std::stable_sort(sorted.begin(), sorted.end(), [](const Named &a, const Named &b) { return a.bytes > b.bytes; });
    return sorted;
}

/// What several ranks said of one thing, at about one time.
struct Said {
    const LinkEvent *first = nullptr;
    std::vector<int64_t> ranks;
};

std::vector<Said> said_together(const std::vector<LinkEvent> &events) {
    constexpr double kTogether = 100e3;  // microseconds
    std::vector<Said> all;
    for (const LinkEvent &event : events) {
        const auto same = std::find_if(all.rbegin(), all.rend(), [&](const Said &said) {
            return said.first->text == event.text && event.at_us - said.first->at_us <= kTogether &&
                   std::find(said.ranks.begin(), said.ranks.end(), event.rank) == said.ranks.end();
        });
        if (same == all.rend())
            all.push_back({&event, {event.rank}});
        else
            same->ranks.push_back(event.rank);
    }
    for (Said &said : all)
        std::sort(said.ranks.begin(), said.ranks.end());
    return all;
}

std::vector<ChartMark> marks_of(const Summary &summary, const std::string &link, double step_us) {
    std::vector<ChartMark> marks;
    constexpr size_t kMostMarks = 24;
    for (const Said &said : said_together(summary.link_events))
        if (said.first->link == link && marks.size() < kMostMarks)
            marks.push_back({(said.first->at_us - summary.from_us) / step_us,
                             said.first->kind == LinkEvent::Kind::lost ? "▼" : "▲",
                             fmt::format("{}: {}", when_text(summary, said.first->at_us), said.first->text)});
    return marks;
}

std::string charts_of(const Summary &summary, const Named &named) {
    const double step_us = summary.run_us() / static_cast<double>(kSteps);
    if (!(step_us > 0))
        return {};
    const auto at = [=](size_t step) { return time_text(static_cast<double>(step) * step_us); };
    const std::vector<std::string> labels = {"0", time_text(summary.run_us())};
    std::string text;
    if (named.bytes > 0) {
        Chart chart;
        chart.title = named.name;
        chart.detail = named.links.size() > 1 ? "throughput of a host" : "throughput";
        chart.unit = Unit::rate;
        std::vector<double> busiest(kSteps, 0);
        std::vector<double> mean(kSteps, 0);
        for (const HostLink *link : named.links) {
            const std::vector<double> amounts = link->carried.resampled(summary.from_us, summary.to_us, kSteps);
            for (size_t i = 0; i < kSteps; ++i) {
                const double rate = amounts[i] / step_us;  // bytes in a microsecond are MB in a second
                busiest[i] = std::max(busiest[i], rate);
                mean[i] += rate / static_cast<double>(named.links.size());
            }
        }
        chart.lines.push_back({named.links.size() > 1 ? "busiest host" : "carried", std::move(busiest)});
        if (named.links.size() > 1)
            chart.lines.push_back({"mean of hosts", std::move(mean)});
        if (named.rate_MBps > 0) {
            chart.level = named.rate_MBps;
            chart.level_name = "measured";
        }
        chart.marks = marks_of(summary, named.name, step_us);
        chart.labels = labels;
        chart.at = at;
        text += html_of(chart);
    }
    const auto shares = summary.shares.find(named.name);
    if (shares != summary.shares.end()) {
        Chart chart;
        chart.title = named.name;
        chart.detail = "share of the data that FLX meant for it, mean of ranks";
        chart.unit = Unit::part;
        chart.top = 1;
        chart.lines.push_back({"share", shares->second.resampled(summary.from_us, summary.to_us, kSteps)});
        chart.marks = marks_of(summary, named.name, step_us);
        chart.labels = labels;
        chart.at = at;
        text += html_of(chart);
    }
    return text;
}

std::string events_table(const Summary &summary) {
    if (summary.link_events.empty())
        return "<p>No link was lost.</p>\n";
    constexpr size_t kMost = 40;
    const std::vector<Said> all = said_together(summary.link_events);
    const size_t shown = std::min(all.size(), kMost);
    const bool are_all = shown == all.size() && summary.link_events.size() == summary.link_event_count;
    Table table(are_all ? "Links that were lost, or came back"
                        : fmt::format("Links that were lost, or came back: the first of {} that ranks noted",
                                      counted(summary.link_event_count, "change")),
                {{"at", true}, {"what", false, true}, {"noted by ranks"}});
    for (size_t i = 0; i < shown; ++i) {
        const LinkEvent &event = *all[i].first;
        const char *sign = event.kind == LinkEvent::Kind::lost       ? "<span aria-hidden=\"true\">▼ </span>"
                           : event.kind == LinkEvent::Kind::returned ? "<span aria-hidden=\"true\">▲ </span>"
                                                                     : "";
        table.cell(when_text(summary, event.at_us), event.at_us)
            .cell(sign + html(event.text, 160))
            .cell(html(ranges_text(all[i].ranks)));
    }
    return table.html();
}

}  // namespace

std::string links_part(const Summary &summary) {
    std::string text = "<section id=\"links\" aria-labelledby=\"links-title\"><h2 id=\"links-title\">Links</h2>\n";
    if (summary.links.empty() && summary.shares.empty() && summary.link_events.empty())
        return text +
               "<p>The trace is of none: all data went another way, such as shared memory that needs no "
               "link.</p>\n</section>\n";
    if (!summary.links.empty())
        text += links_table(summary);
    const std::vector<Named> names = by_name(summary);
    std::string charts;
    for (size_t i = 0; i < std::min(names.size(), kMostCharts); ++i)
        charts += charts_of(summary, names[i]);
    if (!charts.empty())
        text += "<h3>Over the run</h3>\n<div class=\"charts\">\n" + charts + "</div>\n";
    if (names.size() > kMostCharts && !charts.empty())
        text += fmt::format("<p>{} that carried less have no chart.</p>\n",
                            counted(names.size() - kMostCharts, "more link", "more links"));
    text += "<h3 id=\"events\">Lost and found again</h3>\n" + events_table(summary);
    return text + "</section>\n";
}

}  // namespace flx::report
