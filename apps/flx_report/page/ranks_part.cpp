#include <fmt/format.h>

#include <algorithm>

#include "apps/flx_report/page/page.h"
#include "apps/flx_report/page/table.h"
#include "apps/flx_report/text.h"

namespace flx::report {
namespace {

constexpr size_t kMostRankRows = 32;
constexpr size_t kMostPairsShown = 16;
constexpr size_t kWidestMatrix = 12;

std::string ranks_table(const Summary &summary) {
    std::vector<const RankSummary *> ranks;
    for (const RankSummary &rank : summary.ranks)
        ranks.push_back(&rank);
    if (ranks.size() > kMostRankRows) {
        // Those that say most: who keeps others, and who is kept.
        std::stable_sort(ranks.begin(), ranks.end(), [](const auto *a, const auto *b) {
            return a->kept_waiting_us + a->early_us > b->kept_waiting_us + b->early_us;
        });
        ranks.resize(kMostRankRows);
        std::stable_sort(ranks.begin(), ranks.end(), [](const auto *a, const auto *b) { return a->rank < b->rank; });
    }
    Table table(
        "Time of each rank. The bar is the run: full where the rank was in FLX and all ranks of the call had come, "
        "hatched while the last one had not come yet, empty where the rank was outside.",
        {{"rank", true},
         {"host"},
         {"run"},
         {"in FLX", true},
         {"last not there", true},
         {"waits noted", true},
         {"came last", true},
         {"kept others", true},
         {"calls", true},
         {"data", true}});
    const double run = summary.run_us();
    for (const RankSummary *rank : ranks) {
        const double in_flx = run > 0 ? rank->in_calls_us / run : 0;
        const double early = run > 0 ? rank->early_us / run : 0;
        const double last =
            rank->matched > 0 ? static_cast<double>(rank->last) / static_cast<double>(rank->matched) : 0;
        table.cell(std::to_string(rank->rank), static_cast<double>(rank->rank))
            .cell(html(rank->host, 40) + (rank->pid > 0 ? fmt::format(" <small>pid {}</small>", rank->pid) : ""))
            .cell(run_bar(in_flx - early, early), in_flx)
            .cell(percent_text(in_flx), in_flx)
            .cell(percent_text(early), early)
            .cell(time_text(rank->waited_us), rank->waited_us)
            .cell(rank->matched == 0 ? "–" : percent_text(last), last)
            .cell(time_text(rank->kept_waiting_us), rank->kept_waiting_us)
            .cell(count_text(rank->calls), static_cast<double>(rank->calls))
            .cell(bytes_text(rank->bytes), rank->bytes);
    }
    std::string more;
    if (ranks.size() < summary.ranks.size())
        more = fmt::format("<p>{} of {} ranks are shown: those that kept others for longest, or were kept.</p>\n",
                           ranks.size(), count_text(summary.ranks.size()));
    return table.html() + more;
}

/// Spreads of each class of calls that were found on all ranks.
std::string spread_table(const Summary &summary) {
    std::vector<const CallClass *> classes;
    for (const CallClass &of : summary.classes)
        if (of.spread.count() > 0)
            classes.push_back(&of);
    if (classes.empty())
        return "<p>No call was found on all ranks of its communicator, so it cannot be said who came when.</p>\n";
    std::stable_sort(classes.begin(), classes.end(),
                     [](const CallClass *a, const CallClass *b) { return a->spread.sum() > b->spread.sum(); });
    constexpr size_t kMost = 20;
    if (classes.size() > kMost)
        classes.resize(kMost);
    Table table(
        "When ranks come to a call, and what it takes from then on. <em>Spread</em>: from the first rank's entry to "
        "the last one's. <em>After</em>: from there until all have returned, which is the call's own work.",
        {{"collective"},
         {"size", true},
         {"way"},
         {"calls", true},
         {"spread, median", true},
         {"p99", true},
         {"after, median", true},
         {"p99", true},
         {"spread beside after", true}});
    for (const CallClass *of : classes) {
        const double all = of->spread.sum() + of->after.sum();
        const double part = all > 0 ? of->spread.sum() / all : 0;
        table.cell(class_name(*of))
            .cell(size_class_text(of->size), of->size)
            .cell(of->way.empty() ? "–" : html(of->way, 40))
            .cell(count_text(of->spread.count()), static_cast<double>(of->spread.count()))
            .cell(time_text(of->spread.median()), of->spread.median())
            .cell(time_text(of->spread.quantile(0.99)), of->spread.quantile(0.99))
            .cell(time_text(of->after.median()), of->after.median())
            .cell(time_text(of->after.quantile(0.99)), of->after.quantile(0.99))
            .cell(barred(part), part);
    }
    return table.html();
}

std::string pairs_table(const Summary &summary) {
    using Pair = std::pair<std::pair<int64_t, int64_t>, WaitPair>;
    std::vector<Pair> pairs(summary.pairs.begin(), summary.pairs.end());
    std::stable_sort(pairs.begin(), pairs.end(), [](const Pair &a, const Pair &b) {
        return a.second.early_us + a.second.waited_us > b.second.early_us + b.second.waited_us;
    });
    const size_t count = pairs.size();
    if (pairs.size() > kMostPairsShown)
        pairs.resize(kMostPairsShown);
    Table table(
        fmt::format(
            "Who waits for whom{}. <em>Before it came</em>: the rank was in calls that the other one entered "
            "last. <em>Noted</em>: FLX waited for the other one, in long waits, whatever it did.",
            count > pairs.size() ? fmt::format(", the longest {} of {} pairs", pairs.size(), count_text(count)) : ""),
        {{"rank"}, {"waits for"}, {"before it came", true}, {"calls", true}, {"of the run", true}, {"noted", true}});
    for (const auto &[key, pair] : pairs) {
        const double part = summary.run_us() > 0 ? pair.early_us / summary.run_us() : 0;
        table.cell(rank_text(summary, key.first), static_cast<double>(key.first))
            .cell(rank_text(summary, key.second), static_cast<double>(key.second))
            .cell(time_text(pair.early_us), pair.early_us)
            .cell(count_text(pair.calls), static_cast<double>(pair.calls))
            .cell(barred(part), part)
            .cell(time_text(pair.waited_us), pair.waited_us);
    }
    return table.empty() ? "<p>Nobody was seen to wait for another rank.</p>\n" : table.html();
}

/// All pairs of few ranks at a glance.
std::string matrix(const Summary &summary) {
    if (summary.ranks.size() < 3 || summary.ranks.size() > kWidestMatrix || summary.pairs.empty())
        return {};
    double most = 0;
    for (const auto &[key, pair] : summary.pairs)
        most = std::max(most, pair.early_us);
    if (!(most > 0))
        return {};
    std::vector<Column> columns = {{"rank"}};
    for (const RankSummary &rank : summary.ranks)
        columns.push_back({fmt::format("for {}", rank.rank), true});
    Table table("The same as a matrix: how long the rank of the row was in calls before the one of the column came.",
                columns);
    for (const RankSummary &row : summary.ranks) {
        table.cell(fmt::format("{} waits", row.rank), static_cast<double>(row.rank));
        for (const RankSummary &column : summary.ranks) {
            const auto found = summary.pairs.find({row.rank, column.rank});
            const double us = found == summary.pairs.end() ? 0 : found->second.early_us;
            table.cell(row.rank == column.rank ? "·"
                                               : fmt::format("<span class=\"heat\" style=\"--p:{:.0f}%\">{}</span>",
                                                             60 * us / most, time_text(us)),
                       us);
        }
    }
    return fmt::format("<details><summary>all pairs</summary>\n{}</details>\n", table.html());
}

std::string clocks_note(const Summary &summary) {
    if (hosts_of(summary).size() < 2)
        return {};
    double error = 0;
    bool is_known = !summary.header.clocks.empty();
    for (const traces::TraceClock &clock : summary.header.clocks) {
        error = std::max(error, clock.error_us);
        is_known = is_known && clock.error_us >= 0;
    }
    if (!is_known)
        return "<p class=\"note\">It is not known how well the hosts' clocks agree, so between hosts it cannot be said "
               "who came last.</p>\n";
    return fmt::format(
        "<p class=\"note\">The hosts' clocks agree within {}: between hosts, shorter spreads say nothing.</p>\n",
        time_text(error));
}

}  // namespace

std::string ranks_part(const Summary &summary) {
    std::string text = "<section id=\"ranks\" aria-labelledby=\"ranks-title\"><h2 id=\"ranks-title\">Ranks</h2>\n";
    if (summary.ranks.empty())
        return text + "<p>There are none.</p>\n</section>\n";
    text += ranks_table(summary);
    if (summary.ranks.size() > 1) {
        text += "<h3>Who waits for whom</h3>\n" + pairs_table(summary) + matrix(summary);
        text += "<h3>When they come</h3>\n" + spread_table(summary) + clocks_note(summary);
        if (summary.unmatched > 0)
            text += fmt::format("<p class=\"note\">{} found on some ranks of the communicator only.</p>\n",
                                counted(summary.unmatched, "call was", "calls were"));
    }
    return text + "</section>\n";
}

}  // namespace flx::report
