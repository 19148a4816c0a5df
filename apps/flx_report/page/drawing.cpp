#include "apps/flx_report/page/drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "apps/flx_report/page/page.h"
#include "apps/flx_report/text.h"

namespace flx::report {
namespace {

constexpr size_t kMostHosts = 12;
constexpr size_t kMostRails = 8;
constexpr double kRow = 26;      ///< of a link
constexpr double kHead = 46;     ///< name and ranks of a host
constexpr double kFoot = 10;     ///< below its last link
constexpr double kBetween = 22;  ///< hosts
constexpr double kTop = 26;      ///< for the names of rails

struct Box {
    std::string host;
    std::vector<int64_t> ranks;
    std::vector<std::pair<std::string, const HostLink *>> links;
    double at = 0;
    [[nodiscard]] double height() const { return kHead + kRow * static_cast<double>(links.size()) + kFoot; }
};

/// What of the machine is drawn.
struct Plan {
    std::vector<Box> boxes;
    std::vector<std::string> rails;  ///< that several hosts have
    double fastest = 0;
    double height = 0;
};

Plan plan_of(const Summary &summary) {
    Plan plan;
    std::map<std::string, size_t> hosts_with;
    for (const auto &[key, link] : summary.links)
        ++hosts_with[key.second];
    for (const auto &[name, count] : hosts_with)
        if (count > 1 && !is_near(name) && plan.rails.size() < kMostRails)
            plan.rails.push_back(name);
    double at = plan.rails.empty() ? 4 : kTop;
    for (const std::string &host : hosts_of(summary)) {
        if (plan.boxes.size() == kMostHosts)
            break;
        Box box;
        box.host = host;
        box.at = at;
        for (const RankSummary &rank : summary.ranks)
            if (rank.host == host)
                box.ranks.push_back(rank.rank);
        for (const auto &[key, link] : summary.links)
            if (key.first == host && box.links.size() < kMostRails + 1) {
                box.links.emplace_back(key.second, &link);
                if (!is_near(key.second))
                    plan.fastest = std::max({plan.fastest, link.rate_MBps, link.highest_MBps});
            }
        at += box.height() + kBetween;
        plan.boxes.push_back(std::move(box));
    }
    plan.height = at - kBetween + 6;
    return plan;
}

/// At most so many characters.
std::string cut(const std::string &text, double width) {
    constexpr double kCharacter = 7.4;
    return html(text, static_cast<size_t>(std::max(4.0, width / kCharacter)));
}

class Drawing {
  public:
    Drawing(const Plan &plan, int width)
        : plan_(plan),
          width_(width),
          between_(width < 500 ? 20 : 46),
          box_width_(plan.rails.empty() ? width - 2.0
                                        : width - 14.0 - between_ * static_cast<double>(plan.rails.size())) {}

    std::string svg(const std::string &name) {
        for (const Box &box : plan_.boxes)
            draw(box);
        return fmt::format(
            "<svg class=\"{}\" role=\"img\" aria-label=\"The machine: its hosts as boxes, and the links between them. "
            "The "
            "table below says the same.\" viewBox=\"0 0 {} {:.0f}\" width=\"{}\" height=\"{:.0f}\">\n{}{}</svg>\n",
            name, width_, plan_.height, width_, plan_.height, rails(), boxes_);
    }

  private:
    [[nodiscard]] double rail_x(size_t rail) const {
        return box_width_ + 1 + between_ * (static_cast<double>(rail) + 1);
    }

    std::string rails() const {
        std::string text;
        for (size_t i = 0; i < plan_.rails.size(); ++i) {
            const double x = rail_x(i);
            text += fmt::format("<path class=\"rail r{}\" d=\"M{:.1f} {:.0f}V{:.0f}\"/>", i % 4, x, kTop - 4,
                                plan_.height - 4);
            // Names would not fit side by side on a phone: there the dots' numbers stand for them.
            text += fmt::format("<text class=\"middle\" x=\"{:.1f}\" y=\"14\">{}</text>\n", x,
                                width_ < 500 ? std::to_string(i + 1) : cut(plan_.rails[i], between_));
        }
        return text;
    }

    void draw(const Box &box) {
        boxes_ += fmt::format("<rect class=\"host\" x=\"1\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"6\"/>",
                              box.at, box_width_, box.height());
        const std::string host = box.host.empty() ? "a host without a name" : box.host;
        boxes_ += fmt::format("<text class=\"strong\" x=\"13\" y=\"{:.1f}\">{}</text>", box.at + 19,
                              cut(host, box_width_ - 20));
        const std::string ranks = box.ranks.empty()       ? "no rank"
                                  : box.ranks.size() == 1 ? fmt::format("rank {}", ranges_text(box.ranks))
                                                          : fmt::format("ranks {}", ranges_text(box.ranks));
        boxes_ += fmt::format("<text class=\"quiet\" x=\"13\" y=\"{:.1f}\">{}</text>\n", box.at + 36,
                              cut(ranks, box_width_ - 20));
        for (size_t i = 0; i < box.links.size(); ++i)
            draw(box.links[i].first, *box.links[i].second, box.at + kHead + kRow * static_cast<double>(i));
    }

    /// `rail0 [=====   ] 980 of 1,230 MB/s`, and a line to the rail.
    void draw(const std::string &name, const HostLink &link, double y) {
        const double middle = y + kRow / 2;
        const auto found = std::find(plan_.rails.begin(), plan_.rails.end(), name);
        const auto rail = static_cast<size_t>(found - plan_.rails.begin());
        const bool is_rail = found != plan_.rails.end();
        const double name_width = width_ < 500 ? 72 : 110;
        const double text_width = width_ < 500 ? 118 : 190;
        const double bar_x = 13 + name_width;
        const double bar_width = std::max(20.0, box_width_ - 13 - name_width - text_width);
        const std::string shown = is_rail && width_ < 500 ? fmt::format("{} {}", rail + 1, name) : name;
        boxes_ += fmt::format("<text x=\"13\" y=\"{:.1f}\">{}</text>", middle + 4, cut(shown, name_width - 4));
        // Beside memory, rails would all be short: what stays within a host has a scale of its own.
        const double all = is_near(name) ? std::max(link.rate_MBps, link.highest_MBps) : plan_.fastest;
        if (all > 0) {
            const double measured = bar_width * link.rate_MBps / all;
            const double delivered = bar_width * link.highest_MBps / all;
            boxes_ += fmt::format(
                "<rect class=\"delivered\" x=\"{0:.1f}\" y=\"{1:.1f}\" width=\"{2:.1f}\" height=\"10\"/>"
                "<rect class=\"measured\" x=\"{0:.1f}\" y=\"{1:.1f}\" width=\"{3:.1f}\" height=\"10\"/>",
                bar_x, middle - 5, delivered, measured);
        }
        const std::string measured = link.rate_MBps > 0 ? rate_text(link.rate_MBps) : "not measured";
        const std::string delivered = link.highest_MBps > 0 ? rate_text(link.highest_MBps) : "0";
        boxes_ += width_ < 500
                      ? fmt::format(
                            "<text class=\"small\" x=\"{0:.1f}\" y=\"{1:.1f}\">{2}</text><text class=\"small quiet\" "
                            "x=\"{0:.1f}\" y=\"{3:.1f}\">of {4}</text>",
                            bar_x + bar_width + 8, middle - 1.5, delivered, middle + 10.5, measured)
                      : fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{} <tspan class=\"quiet\">of {}</tspan></text>",
                                    bar_x + bar_width + 12, middle + 4, delivered, measured);
        if (is_rail)
            boxes_ += fmt::format(
                "<path class=\"rail r{0}\" d=\"M{1:.1f} {2:.1f}H{3:.1f}\"/><circle class=\"dot r{0}\" "
                "cx=\"{3:.1f}\" cy=\"{2:.1f}\" r=\"4\"/>",
                rail % 4, box_width_ + 1, middle, rail_x(rail));
        boxes_ += '\n';
    }

    const Plan &plan_;
    int width_;
    double between_;
    double box_width_;
    std::string boxes_;
};

}  // namespace

std::string ranges_text(const std::vector<int64_t> &numbers) {
    std::string text;
    for (size_t from = 0; from < numbers.size();) {
        size_t to = from;
        while (to + 1 < numbers.size() && numbers[to + 1] == numbers[to] + 1)
            ++to;
        text += fmt::format("{}{}", text.empty() ? "" : ", ", numbers[from]);
        if (to > from)
            text += fmt::format("{}{}", to == from + 1 ? ", " : "–", numbers[to]);
        from = to + 1;
    }
    return text;
}

std::string machine_svg(const Summary &summary, int width, const std::string &name) {
    const Plan plan = plan_of(summary);
    return plan.boxes.empty() ? std::string() : Drawing(plan, width).svg(name);
}

}  // namespace flx::report
