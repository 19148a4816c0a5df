#include "apps/flx_simulate/rules.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "apps/flx_simulate/report.h"
#include "runtime/base/config.h"
#include "runtime/plan/rules.h"

namespace flx::simulate {

namespace {

/// Halfway between two sizes, as a factor: the power of two that is not above, if it is above the lesser one.
size_t between(size_t less, size_t more) {
    const double mean = std::sqrt(static_cast<double>(less) * static_cast<double>(more));
    const size_t half = std::bit_floor(static_cast<size_t>(mean));
    return half > less ? half : more;
}

/// `end`: the first size beyond.
struct Range {
    size_t from;
    size_t end;
};

/// The sizes for which a cell stands: where nothing was asked for beside it, those up to the next powers of two.
Range range_of(const std::vector<Cell> &cells, size_t at) {
    const auto alike = [&](size_t other) { return cells[other].collective == cells[at].collective; };
    const size_t bytes = cells[at].bytes;
    Range range{std::bit_floor(bytes), 2 * std::bit_floor(bytes)};
    if (at > 0 && alike(at - 1))
        range.from = between(cells[at - 1].bytes, bytes);
    if (at + 1 < cells.size() && alike(at + 1))
        range.end = between(bytes, cells[at + 1].bytes);
    return range;
}

std::string rule_text(const Cell &cell, const Range &range) {
    std::string sizes;
    if (cell.collective != algorithms::Collective::barrier)
        sizes = fmt::format("@{}-{}", size_text(range.from), size_text(range.end));
    return fmt::format("{}:{}{}", algorithms::name_of(cell.collective), cell.best().name, sizes);
}

}  // namespace

std::string take_rules(Machine &machine) {
    Config config;
    Status status = Config::from_environment(config);
    if (status.ok())
        status = read_rule_files(config.text("FLX_ALGORITHM"), machine.rules);
    return status.ok() ? check_rules(machine) : status.sentence();
}

std::string rules_text(const Machine &machine, const std::vector<Cell> &cells, double most_worse) {
    std::string text = fmt::format(
        "# Rules for FLX_ALGORITHM on {} hosts of {} ranks, where what FLX chooses takes more "
        "than {:g} times as long\n",
        machine.hosts, machine.ranks, most_worse);
    for (size_t at = 0; at < cells.size(); ++at) {
        const Cell &first = cells[at];
        if (first.worse() <= most_worse)
            continue;
        Range range = range_of(cells, at);
        std::string gains;
        const auto tell = [&](const Cell &cell) {
            gains += fmt::format("{}{}: {:.2f} times as long by {}", gains.empty() ? "" : "; ", size_text(cell.bytes),
                                 cell.worse(), cell.choice().name);
        };
        tell(first);
        // Neighbours for which the same is best share a rule.
        while (at + 1 < cells.size() && cells[at + 1].collective == first.collective &&
               cells[at + 1].worse() > most_worse && cells[at + 1].best().name == first.best().name) {
            range.end = range_of(cells, ++at).end;
            tell(cells[at]);
        }
        text += fmt::format("{}  # {}\n", rule_text(first, range), gains);
    }
    return text;
}

}  // namespace flx::simulate
