#include "apps/flx_info/machine.h"

#include <algorithm>
#include <nlohmann/json.hpp>

using nlohmann::ordered_json;

std::string machine_of(const std::vector<std::string> &lines, std::string &text) {
    const auto head = std::ranges::find(lines, "[costs]");
    if (head == lines.end())
        return "all ranks are on one host, and a machine has two or more: start it like the program, on its hosts";
    ordered_json machine;
    for (auto line = head + 1; line != lines.end() && line->starts_with("  "); ++line) {
        constexpr std::string_view kIs = " = ";
        const size_t is = line->find(kIs);
        if (line->starts_with("  #") || is == std::string::npos)
            continue;
        // `far.rails = 2`
        std::string path = line->substr(1, is - 1);
        std::ranges::replace(path, '.', '/');
        path.front() = '/';
        try {
            machine[ordered_json::json_pointer(path)] = ordered_json::parse(line->substr(is + kIs.size()));
        } catch (const ordered_json::exception &) {
            return "the report's line \"" + line->substr(2) + "\" has no value of JSON, such as 1.5 or \"a name\"";
        }
    }
    if (!machine.contains("ranks"))
        return "hosts have different numbers of ranks, and a machine has as many on each";
    if (!machine.contains("far"))
        return "no rail between the hosts was measured, so what they deliver is not known; --links says why";
    text = machine.dump(1) + "\n";
    return {};
}
