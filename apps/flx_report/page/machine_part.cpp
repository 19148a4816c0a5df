#include <fmt/format.h>

#include "apps/flx_report/page/drawing.h"
#include "apps/flx_report/page/page.h"
#include "apps/flx_report/page/table.h"
#include "apps/flx_report/text.h"

namespace flx::report {
namespace {

constexpr int kNarrow = 356;  ///< of a phone of 390 pixels, without margins
constexpr int kWide = 860;
constexpr size_t kMostHostRows = 256;

std::string hosts_table(const Summary &summary, const std::vector<std::string> &hosts) {
    Table table("Hosts, their ranks and their links",
                {{"host"}, {"ranks"}, {"links: at most delivered, of what was measured", false, true}, {"clock"}});
    for (size_t i = 0; i < std::min(hosts.size(), kMostHostRows); ++i) {
        const std::string &host = hosts[i];
        std::vector<int64_t> ranks;
        for (const RankSummary &rank : summary.ranks)
            if (rank.host == host)
                ranks.push_back(rank.rank);
        std::string links;
        for (const auto &[key, link] : summary.links)
            if (key.first == host)
                links += fmt::format("{}{} {} of {}", links.empty() ? "" : "; ", html(key.second, 40),
                                     link.highest_MBps > 0 ? rate_text(link.highest_MBps) : "0",
                                     link.rate_MBps > 0 ? rate_text(link.rate_MBps) : "what was not measured");
        std::string clock;
        for (const traces::TraceClock &each : summary.header.clocks)
            if (each.host == host)
                clock = each.error_us < 0 ? "not known" : fmt::format("± {}", time_text(each.error_us));
        table.cell(host.empty() ? "(no name)" : html(host, 60))
            .cell(html(ranges_text(ranks), 200))
            .cell(links.empty() ? "–" : links)
            .cell(clock.empty() ? "–" : clock);
    }
    return table.html();
}

}  // namespace

std::string machine_part(const Summary &summary) {
    std::string text =
        "<section id=\"machine\" aria-labelledby=\"machine-title\"><h2 id=\"machine-title\">Machine</h2>\n";
    const std::vector<std::string> hosts = hosts_of(summary);
    if (hosts.empty())
        return text + "<p>The trace names no host.</p>\n</section>\n";
    text +=
        "<figure class=\"machine\">\n" + machine_svg(summary, kNarrow, "narrow") + machine_svg(summary, kWide, "wide");
    text +=
        "<figcaption>A box is a host. Of each link the outline is what was measured, the filled part what it delivered "
        "at most in this run; rails have one scale, and what stays within a host its own. Rails that several hosts "
        "have are "
        "lines between them.</figcaption></figure>\n";
    return text + hosts_table(summary, hosts) + "</section>\n";
}

}  // namespace flx::report
