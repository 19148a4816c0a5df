/// \file sizes.h
/// Sizes as people write and read them. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace flx::bench {

/// A list `8,1K,64M` or ranges `8:64M` (times 2) and `8:64M:4` (times 4); K, M, G are powers of 1024, and a following
/// `B` or `iB` is allowed. On an error it returns a sentence in `problem`, and an empty list.
[[nodiscard]] std::vector<uint64_t> parse_sizes(std::string_view text, std::string &problem);

/// `8 B`, `1 KiB`, `64 MiB`; numbers that are not whole units stay in bytes.
[[nodiscard]] std::string size_text(uint64_t bytes);

}  // namespace flx::bench
