#include "apps/flx_schedule/drawing.h"

#include <fmt/format.h>

#include <pugixml.hpp>
#include <sstream>

namespace flx::schedule {

using algorithms::Written;

namespace {

constexpr int kLeft = 70;
constexpr int kTop = 50;
constexpr int kHop = 150;  ///< from one hop to the next
constexpr int kRank = 46;  ///< from one rank to the next
constexpr int kMargin = 20;

/// Follows the reader's choice of light or dark, as the pictures of the documents do.
constexpr const char *kStyle =
    ".page{fill:#ffffff}text{font:13px sans-serif;fill:#1f2328}.small{font-size:11px}"
    ".rank{stroke:#8b949e;stroke-width:1}.hop{stroke:#8b949e;stroke-dasharray:2 4}.message{stroke-width:1.6;fill:none}"
    "@media(prefers-color-scheme:dark){.page{fill:#11151b}text{fill:#e6edf3}}";

pugi::xml_node add(pugi::xml_node parent, const char *name,
                   std::initializer_list<std::pair<const char *, std::string>> attributes) {
    pugi::xml_node node = parent.append_child(name);
    for (const auto &[key, value] : attributes)
        node.append_attribute(key).set_value(value.c_str());
    return node;
}

void write(pugi::xml_node parent, double x, double y, const std::string &words, const char *look) {
    add(parent, "text", {{"x", fmt::format("{:.0f}", x)}, {"y", fmt::format("{:.0f}", y)}, {"class", look}})
        .text()
        .set(words.c_str());
}

/// Hues go round once over all blocks.
std::string colour(uint32_t block, uint32_t blocks) {
    return fmt::format("hsl({},60%,48%)", 360 * block / blocks);
}

}  // namespace

std::string to_svg(const Written &written, const std::vector<Message> &messages) {
    const uint32_t blocks = written.schedules[0].blocks;
    const int columns = std::max(hops(messages), 1);
    const int width = kLeft + columns * kHop + kMargin;
    const int height = kTop + (written.size() - 1) * kRank + 2 * kMargin;
    const std::string title =
        fmt::format("{} of {} ranks: {}", algorithms::name_of(written.collective), written.size(), written.name);
    pugi::xml_document document;
    pugi::xml_node svg = add(document, "svg",
                             {{"xmlns", "http://www.w3.org/2000/svg"},
                              {"viewBox", fmt::format("0 0 {} {}", width, height)},
                              {"width", std::to_string(width)},
                              {"height", std::to_string(height)},
                              {"role", "img"}});
    svg.append_child("title").text().set(title.c_str());
    svg.append_child("desc").text().set("Lines are ranks, arrows are messages from hop to hop, colours are blocks.");
    svg.append_child("style").text().set(kStyle);
    pugi::xml_node marker = add(svg.append_child("defs"), "marker",
                                {{"id", "head"},
                                 {"viewBox", "0 0 8 8"},
                                 {"refX", "7"},
                                 {"refY", "4"},
                                 {"markerWidth", "5"},
                                 {"markerHeight", "5"},
                                 {"orient", "auto"}});
    add(marker, "path", {{"d", "M0 0L8 4L0 8z"}, {"fill", "#57606a"}});
    add(svg, "rect", {{"class", "page"}, {"width", "100%"}, {"height", "100%"}});
    write(svg, kMargin, kMargin, title, "title");
    const auto line_of = [](int rank) { return kTop + rank * kRank; };
    for (int hop = 0; hop < columns; ++hop) {
        const std::string x = std::to_string(kLeft + hop * kHop);
        add(svg, "line",
            {{"class", "hop"},
             {"x1", x},
             {"x2", x},
             {"y1", std::to_string(kTop - 12)},
             {"y2", std::to_string(line_of(written.size() - 1) + 12)}});
        write(svg, kLeft + hop * kHop + 4, kTop - 8, fmt::format("hop {}", hop + 1), "small");
    }
    for (int rank = 0; rank < written.size(); ++rank) {
        const std::string y = std::to_string(line_of(rank));
        add(svg, "line",
            {{"class", "rank"},
             {"x1", std::to_string(kLeft)},
             {"x2", std::to_string(width - kMargin)},
             {"y1", y},
             {"y2", y}});
        write(svg, kMargin - 8, line_of(rank) + 4, fmt::format("rank {}", rank), "small");
    }
    for (const Message &message : messages) {
        // Blocks of one hop go side by side.
        const double from = kLeft + message.hop * kHop + 8 + 50.0 * message.block / blocks;
        pugi::xml_node arrow = add(svg, "line",
                                   {{"class", "message"},
                                    {"x1", fmt::format("{:.1f}", from)},
                                    {"x2", fmt::format("{:.1f}", from + 78)},
                                    {"y1", std::to_string(line_of(message.sender))},
                                    {"y2", std::to_string(line_of(message.receiver))},
                                    {"stroke", colour(message.block, blocks)},
                                    {"marker-end", "url(#head)"}});
        arrow.append_child("title").text().set(fmt::format("block {}, phase {}: rank {} to rank {}", message.block,
                                                           message.phase, message.sender, message.receiver)
                                                   .c_str());
    }
    std::ostringstream text;
    document.save(text, "  ", pugi::format_default | pugi::format_no_declaration);
    return text.str();
}

}  // namespace flx::schedule
