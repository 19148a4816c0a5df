#include "apps/flx_info/errors.h"

#include <algorithm>
#include <cctype>

namespace {

constexpr std::string_view kHeading = "\n### ";
constexpr std::string_view kCode = "FLX-E";

/// The text up to `end`, or all of it.
std::string_view before(std::string_view text, std::string_view end) {
    return text.substr(0, text.find(end));
}

/// `E601`, `e601` and `601` as the page writes them.
std::string whole(std::string_view code) {
    std::string text(code);
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
    if (text.starts_with(kCode))
        return text;
    return std::string(text.starts_with("E") ? "FLX-" : kCode) + text;
}

}  // namespace

std::string section_of(std::string_view page, std::string_view code) {
    const std::string heading = std::string(kHeading) + whole(code) + "\n";
    const size_t begin = page.find(heading);
    if (begin == std::string_view::npos)
        return {};
    const std::string_view rest = page.substr(begin + 1);
    const std::string_view section = before(before(rest, "\n## "), kHeading);
    return std::string(section.substr(0, section.find_last_not_of('\n') + 1)) + "\n";
}

std::string codes_of(std::string_view page) {
    std::string text;
    for (size_t at = page.find(kHeading); at != std::string_view::npos; at = page.find(kHeading, at)) {
        at += kHeading.size();
        const std::string_view code = before(page.substr(at), "\n");
        constexpr std::string_view kBold = "**";
        const std::string_view title = page.substr(page.find(kBold, at) + kBold.size());
        text += std::string(code) + "  " + std::string(before(title, ".**")) + "\n";
    }
    return text;
}
