#include "apps/traces/process_name.h"

namespace flx::traces {

ProcessName process_name_of(std::string_view name) {
    constexpr std::string_view kPid = ", pid ";
    constexpr int64_t kMost = 1'000'000'000;
    const size_t open = name.find('(');
    const size_t pid = name.rfind(kPid);
    ProcessName process;
    if (open == std::string_view::npos || pid == std::string_view::npos || pid < open)
        return process;
    process.host = name.substr(open + 1, pid - open - 1);
    for (const char c : name.substr(pid + kPid.size())) {
        if (c < '0' || c > '9' || process.pid > kMost)
            break;
        process.pid = process.pid * 10 + (c - '0');
    }
    return process;
}

}  // namespace flx::traces
