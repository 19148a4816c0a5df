/// \file process_name.h
/// How a trace names its processes: `rank 0 (n1, pid 4242)`. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace flx::traces {

struct ProcessName {
    std::string host;  ///< empty: the name says none
    int64_t pid = 0;   ///< 0: likewise
};

[[nodiscard]] ProcessName process_name_of(std::string_view name);

}  // namespace flx::traces
