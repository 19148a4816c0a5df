#include "apps/flx_report/text.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace flx::report {
namespace {

constexpr uint32_t kReplacement = 0xFFFD;

/// The character that begins at `at`, which moves behind it. What is no UTF-8 (RFC 3629) is one replacement a byte.
uint32_t next_character(std::string_view text, size_t &at) {
    const auto first = static_cast<unsigned char>(text[at]);
    const size_t length = first < 0x80   ? 1
                          : first < 0xC2 ? 0
                          : first < 0xE0 ? 2
                          : first < 0xF0 ? 3
                          : first < 0xF5 ? 4
                                         : 0;
    if (length == 0 || at + length > text.size()) {
        ++at;
        return kReplacement;
    }
    uint32_t character = length == 1 ? first : first & (0x7FU >> length);
    for (size_t i = 1; i < length; ++i) {
        const auto byte = static_cast<unsigned char>(text[at + i]);
        if ((byte & 0xC0U) != 0x80) {
            ++at;
            return kReplacement;
        }
        character = character << 6 | (byte & 0x3FU);
    }
    const bool too_long = (length == 3 && character < 0x800) || (length == 4 && character < 0x10000);
    if (too_long || character > 0x10FFFF || (character >= 0xD800 && character < 0xE000)) {
        ++at;
        return kReplacement;
    }
    at += length;
    return character;
}

/// Whether it acts instead of being seen: controls, and what turns the direction of the text around it.
bool controls(uint32_t character) {
    return character < 0x20 || (character >= 0x7F && character < 0xA0) || character == 0x200E || character == 0x200F ||
           (character >= 0x2028 && character <= 0x202E) || (character >= 0x2066 && character <= 0x2069) ||
           character == 0xFEFF;
}

void append_utf8(std::string &text, uint32_t character) {
    const auto put = [&](uint32_t byte) { text += static_cast<char>(byte); };
    if (character < 0x80) {
        put(character);
    } else if (character < 0x800) {
        put(0xC0U | character >> 6);
        put(0x80U | (character & 0x3FU));
    } else if (character < 0x10000) {
        put(0xE0U | character >> 12);
        put(0x80U | (character >> 6 & 0x3FU));
        put(0x80U | (character & 0x3FU));
    } else {
        put(0xF0U | character >> 18);
        put(0x80U | (character >> 12 & 0x3FU));
        put(0x80U | (character >> 6 & 0x3FU));
        put(0x80U | (character & 0x3FU));
    }
}

template <typename Write>
void each_character(std::string_view text, size_t most, const Write &write) {
    size_t count = 0;
    for (size_t at = 0; at < text.size(); ++count) {
        if (count == most) {
            write(0x2026);
            return;
        }
        const uint32_t character = next_character(text, at);
        const bool blank = character == '\n' || character == '\t' || character == '\r';
        write(blank ? ' ' : controls(character) ? kReplacement : character);
    }
}

/// Three digits: `1.23`, `12.3`, `123`.
std::string three_digits(double value) {
    return fmt::format("{:.{}f}", value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0);
}

}  // namespace

std::string html(std::string_view text, size_t most) {
    std::string result;
    each_character(text, most, [&](uint32_t character) {
        switch (character) {
            case '&':
                result += "&amp;";
                break;
            case '<':
                result += "&lt;";
                break;
            case '>':
                result += "&gt;";
                break;
            case '"':
                result += "&quot;";
                break;
            case '\'':
                result += "&#39;";
                break;
            default:
                append_utf8(result, character);
        }
    });
    return result;
}

std::string json(std::string_view text, size_t most) {
    std::string result(1, '"');
    each_character(text, most, [&](uint32_t character) {
        if (character == '"' || character == '\\' || character == '<' || character == '>' || character == '&')
            result += fmt::format("\\u{:04x}", character);
        else
            append_utf8(result, character);
    });
    result += '"';
    return result;
}

std::string time_text(double us) {
    if (us <= 0)
        return "0";
    if (us < 0.9995)
        return fmt::format("{:.0f}\u00a0ns", us * 1e3);
    if (us < 999.5)
        return three_digits(us) + "\u00a0µs";
    if (us < 999.5e3)
        return three_digits(us / 1e3) + "\u00a0ms";
    return us < 9999.5e6 ? three_digits(us / 1e6) + "\u00a0s" : count_text(static_cast<uint64_t>(us / 1e6)) + "\u00a0s";
}

std::string bytes_text(double bytes) {
    constexpr std::array<const char *, 6> kUnits = {"B", "kB", "MB", "GB", "TB", "PB"};
    if (bytes < 999.5)
        return fmt::format("{:.0f}\u00a0B", bytes);
    size_t unit = 0;
    while (bytes >= 999.5 && unit + 1 < kUnits.size()) {
        bytes /= 1000;
        ++unit;
    }
    return fmt::format("{}\u00a0{}", three_digits(bytes), kUnits[unit]);
}

std::string rate_text(double megabytes) {
    return bytes_text(megabytes * 1e6) + "/s";
}

std::string percent_text(double part) {
    const double value = 100 * part;
    if (value <= 0)
        return "0\u00a0%";
    if (value < 0.01)
        return "<\u00a00.01\u00a0%";
    return fmt::format("{:.{}f}\u00a0%", value, value < 0.995 ? 2 : value < 9.95 ? 1 : 0);
}

std::string count_text(uint64_t count) {
    std::string digits = std::to_string(count);
    for (size_t at = digits.size(); at > 3; at -= 3)
        digits.insert(at - 3, 1, ',');
    return digits;
}

std::string size_text(uint64_t bytes) {
    constexpr std::array<const char *, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    while (bytes >= 1024 && bytes % 1024 == 0 && unit + 1 < kUnits.size()) {
        bytes /= 1024;
        ++unit;
    }
    return fmt::format("{}\u00a0{}", bytes, kUnits[unit]);
}

std::string counted(uint64_t count, std::string_view one, std::string_view many) {
    const std::string several = many.empty() ? fmt::format("{}s", one) : std::string(many);
    return fmt::format("{} {}", count_text(count), count == 1 ? one : several);
}

}  // namespace flx::report
