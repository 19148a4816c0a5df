/// Visits all executions of the programs of programs.h.
///
///     interleave_proof [--full] [FAMILY...]
///
/// FAMILY: words of its name. One line a family; exit status 1 and a trace where an execution is wrong.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tests/proof/interleave/programs.h"

namespace {

using namespace flx::interleave;

}  // namespace

int main(int argc, char **argv) {
    bool full = std::getenv("FLX_TEST_FULL") != nullptr;
    std::vector<std::string_view> wanted;
    for (int i = 1; i < argc; ++i) {
        if (std::string_view(argv[i]) == "--full")
            full = true;
        else
            wanted.emplace_back(argv[i]);
    }
    Limits limits;
    if (const char *runs = std::getenv("FLX_TEST_RUNS"))
        limits.most_runs = std::strtoull(runs, nullptr, 10);
    limits.look_for_repeats = std::getenv("FLX_TEST_REPEATS") != nullptr;
    int bad = 0;
    for (const Family &family : all_families()) {
        bool chosen = wanted.empty();
        for (const std::string_view words : wanted)
            chosen = chosen || family.name.find(words) != std::string::npos;
        if (!chosen || (family.full && !full))
            continue;
        const auto began = std::chrono::steady_clock::now();
        Result sum;
        uint64_t most = 0;
        for (size_t number = 0; number < family.programs && (sum.wrong.empty() || std::getenv("FLX_TEST_EACH"));
             ++number) {
            const Result result = explore(family.program(number), limits);
            if (std::getenv("FLX_TEST_EACH") != nullptr)
                fmt::print("{}: {} executions, {} runs, {} choices{}\n", family.text(number), result.executions,
                           result.runs, result.choices, result.wrong.empty() ? "" : ", wrong");
            std::fflush(stdout);
            sum.executions += result.executions;
            sum.runs += result.runs;
            sum.repeats += result.repeats;
            if (result.executions > most)
                most = result.executions;
            if (result.events > sum.events)
                sum.events = result.events;
            if (!result.wrong.empty()) {
                fmt::print("WRONG: {}: {}: {}: {}", family.name, family.text(number), result.kind, result.wrong);
                sum.wrong = result.wrong;
                ++bad;
            }
        }
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
        fmt::print("{}: {}: {} programs, {} executions ({} at most of one), {} runs, {} events at most, {:.1f} s{}\n",
                   sum.wrong.empty() ? "right" : "WRONG", family.name, family.programs, sum.executions, most, sum.runs,
                   sum.events, seconds.count(),
                   limits.look_for_repeats ? fmt::format(", {} repeats", sum.repeats) : "");
        std::fflush(stdout);
    }
    return bad == 0 ? 0 : 1;
}
