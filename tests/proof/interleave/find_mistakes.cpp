/// Whether the proof finds each of the mistakes of mistakes.py.
///
///     interleave_mistakes [NUMBER [trace]]
///
/// One line a mistake: what showed it, and after how many executions.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tests/proof/interleave/mistake.h"
#include "tests/proof/interleave/programs.h"

namespace {

using namespace flx::interleave;

struct Mistake {
    std::string_view what;
    std::string_view families;
};
#include "mistakes_table.h"

bool find(int number, const std::vector<Family> &families, bool trace) {
    const Mistake &mistake = kMistakes[number - 1];
    uint64_t executions = 0;
    uint64_t programs = 0;
    the_mistake = number;
    for (const Family &family : families) {
        if (family.name.find(mistake.families) == std::string::npos)
            continue;
        for (size_t at = 0; at < family.programs; ++at) {
            const Result result = explore(family.program(at));
            executions += result.executions;
            ++programs;
            if (result.wrong.empty())
                continue;
            const bool found = result.kind != "checker";
            fmt::print("{}: {}. {}: {} after {} programs, {} executions, in {} ({})\n", found ? "found" : "NOT FOUND",
                       number, mistake.what, result.kind, programs, executions, family.text(at), family.name);
            if (trace || !found)
                fmt::print("{}\n", result.wrong);
            return found;
        }
    }
    fmt::print("NOT FOUND: {}. {}: {} programs, {} executions\n", number, mistake.what, programs, executions);
    return false;
}

}  // namespace

int main(int argc, char **argv) {
    const std::vector<Family> families = all_families();
    const int only = argc > 1 ? std::atoi(argv[1]) : 0;
    int missed = 0;
    for (int number = 1; number <= static_cast<int>(std::size(kMistakes)); ++number) {
        if (only != 0 && number != only)
            continue;
        missed += find(number, families, argc > 2) ? 0 : 1;
        std::fflush(stdout);
    }
    return missed == 0 ? 0 : 1;
}
