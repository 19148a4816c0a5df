/// \file text.h
/// Numbers and foreign texts as the page shows them. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace flx::report {

/// Text that a program or a file brought, for HTML: nothing in it is markup, quotes included. What is no UTF-8, and
/// characters that control (a terminal, or the direction of writing), become U+FFFD. Of more than `most` characters the
/// rest is left out, which `…` says.
[[nodiscard]] std::string html(std::string_view text, size_t most = 200);

/// A JSON string with its quotes, of the same text; no `<`, `>` or `&` stands in it, so that no script ends in it.
[[nodiscard]] std::string json(std::string_view text, size_t most = 200);

// Between a number and its unit the space is one at which no line breaks.

/// `812 ns`, `12.3 µs`, `4.56 ms`, `1.23 s`: three digits, no exponent.
[[nodiscard]] std::string time_text(double us);

/// `0 B`, `512 B`, `1.20 MB`; decimal, as rates are.
[[nodiscard]] std::string bytes_text(double bytes);

/// Of MB in a second: `980 MB/s`, `1.23 GB/s`.
[[nodiscard]] std::string rate_text(double megabytes);

/// `34 %`, `3.4 %`, `0.02 %`, `0 %`.
[[nodiscard]] std::string percent_text(double part);

/// `1,234,567`.
[[nodiscard]] std::string count_text(uint64_t count);

/// `64 KiB`, the edge of a class of sizes; binary, as programs choose sizes.
[[nodiscard]] std::string size_text(uint64_t bytes);

/// `1 call`, `2 calls`; `many` where it is not `one` with an s.
[[nodiscard]] std::string counted(uint64_t count, std::string_view one, std::string_view many = {});

}  // namespace flx::report
