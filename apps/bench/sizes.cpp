#include "apps/bench/sizes.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <limits>
#include <optional>

namespace flx::bench {
namespace {

/// One size; nothing if the text is not one.
std::optional<uint64_t> parse_size(std::string_view text) {
    uint64_t number = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc()) {
        return std::nullopt;
    }
    std::string_view unit = text.substr(static_cast<size_t>(rest - text.data()));
    int shift = 0;
    if (!unit.empty()) {
        const size_t power = std::string_view("KMGT").find(static_cast<char>(std::toupper(unit[0])));
        if (power != std::string_view::npos) {
            shift = 10 * (static_cast<int>(power) + 1);
            unit.remove_prefix(1);
        }
    }
    const bool known_unit = unit.empty() || unit == "B" || unit == "b" || (shift > 0 && unit == "iB");
    if (!known_unit || number > std::numeric_limits<uint64_t>::max() >> shift) {
        return std::nullopt;
    }
    return number << shift;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    while (true) {
        const size_t end = text.find(separator);
        parts.push_back(text.substr(0, end));
        if (end == std::string_view::npos) {
            return parts;
        }
        text.remove_prefix(end + 1);
    }
}

std::string add_range(std::string_view item, std::vector<uint64_t> &sizes) {
    const std::vector<std::string_view> parts = split(item, ':');
    if (parts.size() > 3) {
        return fmt::format("size range '{}' is not FROM:TO or FROM:TO:FACTOR", item);
    }
    const auto from = parse_size(parts[0]);
    const auto to = parse_size(parts[1]);
    const auto factor = parts.size() == 3 ? parse_size(parts[2]) : std::optional<uint64_t>(2);
    if (!from || !to || !factor) {
        return fmt::format("size range '{}' is not FROM:TO or FROM:TO:FACTOR", item);
    }
    if (*from == 0 || *from > *to || *factor < 2) {
        return fmt::format("size range '{}' needs 0 < FROM <= TO and a FACTOR of at least 2", item);
    }
    for (uint64_t size = *from;; size *= *factor) {
        sizes.push_back(size);
        if (size > *to / *factor) {
            return {};
        }
    }
}

}  // namespace

std::vector<uint64_t> parse_sizes(std::string_view text, std::string &problem) {
    std::vector<uint64_t> sizes;
    problem.clear();
    for (const std::string_view item : split(text, ',')) {
        if (item.find(':') != std::string_view::npos) {
            problem = add_range(item, sizes);
        } else if (const auto size = parse_size(item)) {
            sizes.push_back(*size);
        } else {
            problem = fmt::format("size '{}' is not a number of bytes such as 8, 1K or 64M", item);
        }
        if (!problem.empty()) {
            return {};
        }
    }
    return sizes;
}

std::string size_text(uint64_t bytes) {
    constexpr const char *kUnits[] = {"B", "KiB", "MiB", "GiB"};
    int unit = 0;
    while (unit < 3 && bytes >= 1024 && bytes % 1024 == 0) {
        bytes /= 1024;
        ++unit;
    }
    return fmt::format("{} {}", bytes, kUnits[unit]);
}

}  // namespace flx::bench
