/// \file text.h
/// Numbers of bytes and names as people are told them.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace flx {

/// Exact: `64 KiB`, `1000 B`.
inline std::string size_text(uint64_t bytes) {
    constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB"};
    constexpr uint64_t kStep = 1024;
    size_t unit = 0;
    for (; bytes != 0 && bytes % kStep == 0 && unit + 1 < kUnits.size(); ++unit)
        bytes /= kStep;
    return fmt::format("{} {}", bytes, kUnits[unit]);
}

/// Rounded: `63.9 KiB`, for amounts.
inline std::string short_bytes(uint64_t bytes) {
    constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
    constexpr double kStep = 1024;
    auto value = static_cast<double>(bytes);
    size_t unit = 0;
    for (; value >= kStep && unit + 1 < kUnits.size(); ++unit)
        value /= kStep;
    return fmt::format("{:.{}f} {}", value, unit == 0 ? 0 : 1, kUnits[unit]);
}

/// What the system calls this host.
inline std::string host_name() {
    std::array<char, 256> name{};
    gethostname(name.data(), name.size() - 1);
    return name.data();
}

}  // namespace flx
