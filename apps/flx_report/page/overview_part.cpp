#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "apps/flx_report/page/page.h"
#include "apps/flx_report/text.h"

namespace flx::report {
namespace {

std::string figure(const std::string &name, const std::string &value, const std::string &more) {
    return fmt::format("<div><dt>{}</dt><dd>{}{}</dd></div>\n", name, value,
                       more.empty() ? "" : fmt::format("<small>{}</small>", more));
}

double sum_of(const std::vector<RankSummary> &ranks, double RankSummary::*member) {
    double sum = 0;
    for (const RankSummary &rank : ranks)
        sum += rank.*member;
    return sum;
}

/// What a reader must know before all numbers.
std::string warnings(const Summary &summary) {
    std::string items;
    if (summary.truncated)
        items += "<li>The trace has no end: what wrote it was ended. All whole lines were read.</li>\n";
    for (const std::string &note : summary.header.notes)
        items += fmt::format("<li>Of the trace: {}.</li>\n", html(note, 300));
    if (summary.header.lost_calls > 0 && summary.header.notes.empty())
        items += fmt::format(
            "<li>{} missing in the trace, for which there was no room. Counts and times are too low.</li>\n",
            counted(summary.header.lost_calls, "call is", "calls are"));
    if (summary.failed_count > 0)
        items += fmt::format("<li>{} with an error (<a href=\"#failed\">which</a>).</li>\n",
                             counted(summary.failed_count, "call ended", "calls ended"));
    if (summary.unfinished_count > 0)
        items += fmt::format("<li>{} (<a href=\"#unfinished\">which</a>).</li>\n",
                             counted(summary.unfinished_count, "call did not end", "calls did not end"));
    if (summary.stride > 1)
        items += fmt::format("<li>Of calls that all ranks make, each {}th was looked at for who came when.</li>\n",
                             summary.stride);
    return items.empty() ? items : fmt::format("<ul class=\"warnings\">\n{}</ul>\n", items);
}

std::string findings(const Summary &summary) {
    constexpr double kWorthWhile = 0.01;
    std::string items;
    const double in_calls = sum_of(summary.ranks, &RankSummary::in_calls_us);
    const double early = sum_of(summary.ranks, &RankSummary::early_us);
    if (in_calls > 0)
        items += fmt::format(
            "<li>Ranks were in FLX for {} of the run.{}</li>\n", percent_text(summary.share_of_run(in_calls)),
            summary.matched == 0 ? ""
                                 : fmt::format(" {} of that passed before the last rank of a call had come.",
                                               percent_text(early / in_calls)));
    const auto late = std::max_element(summary.ranks.begin(), summary.ranks.end(), [](const auto &a, const auto &b) {
        return a.kept_waiting_us < b.kept_waiting_us;
    });
    if (late != summary.ranks.end() && summary.share_of_run(late->kept_waiting_us) >= kWorthWhile)
        items += fmt::format("<li>Rank {} was the last in {} of {}, and kept others for {}, added up.</li>\n",
                             rank_text(summary, late->rank), count_text(late->last), counted(late->matched, "call"),
                             time_text(late->kept_waiting_us));
    const auto longest =
        std::max_element(summary.classes.begin(), summary.classes.end(), [](const auto &a, const auto &b) {
            return (a.non_blocking ? 0 : a.took.sum()) < (b.non_blocking ? 0 : b.took.sum());
        });
    if (longest != summary.classes.end() && !longest->non_blocking && in_calls > 0)
        items += fmt::format("<li>{} of the time in FLX was {}{}.</li>\n", percent_text(longest->took.sum() / in_calls),
                             class_name(*longest),
                             longest->size < 0 ? "" : fmt::format(", {}", size_class_text(longest->size)));
    std::set<std::string> lost;
    for (const LinkEvent &event : summary.link_events)
        if (event.kind == LinkEvent::Kind::lost)
            lost.insert(event.link);
    if (lost.size() == 1)
        items += fmt::format("<li>{} carried nothing for a while (<a href=\"#events\">when</a>).</li>\n",
                             html(*lost.begin(), 40));
    else if (!lost.empty())
        items += fmt::format("<li>{} links carried nothing for a while (<a href=\"#events\">which</a>).</li>\n",
                             count_text(lost.size()));
    return items.empty() ? items : fmt::format("<ul class=\"findings\">\n{}</ul>\n", items);
}

}  // namespace

std::string overview_part(const Summary &summary) {
    uint64_t calls = 0;
    double bytes = 0;
    double carried = 0;
    for (const CallClass &of : summary.classes) {
        calls += of.calls;
        bytes += of.bytes;
    }
    for (const auto &[key, link] : summary.links)
        carried += link.bytes;
    const size_t hosts =
        std::max<size_t>(hosts_of(summary).size(), static_cast<size_t>(std::max<int64_t>(0, summary.header.hosts)));
    std::string figures;
    figures += figure("run", time_text(summary.run_us()), html(summary.header.began, 40));
    figures += figure("ranks", count_text(summary.ranks.size()),
                      summary.ranks.empty() ? "" : fmt::format("on {}", counted(hosts, "host")));
    figures += figure("calls", count_text(calls), "of all ranks");
    figures += figure("data of the calls", bytes_text(bytes), carried > 0 ? bytes_text(carried) + " over links" : "");
    figures += figure("in FLX", percent_text(summary.share_of_run(sum_of(summary.ranks, &RankSummary::in_calls_us))),
                      "of all ranks' time");
    std::string about;
    if (!summary.header.job.empty())
        about += fmt::format("Job {}. ", html(summary.header.job, 80));
    if (!summary.header.flx.empty())
        about += fmt::format("FLX {}. ", html(summary.header.flx, 40));
    if (summary.header.ranks > static_cast<int64_t>(summary.ranks.size()))
        about += fmt::format("The program had {}, and the trace is of {} of them. ",
                             counted(static_cast<uint64_t>(summary.header.ranks), "rank"), summary.ranks.size());
    return fmt::format(
        "<section id=\"overview\" aria-labelledby=\"overview-title\"><h2 id=\"overview-title\">In short</h2>\n{}"
        "<dl class=\"figures\">\n{}</dl>\n{}{}</section>\n",
        warnings(summary), figures, calls == 0 ? "<p>The trace has no calls.</p>\n" : findings(summary),
        about.empty() ? "" : fmt::format("<p class=\"about\">{}</p>\n", about));
}

}  // namespace flx::report
