#include "algorithms/verifier.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "algorithms/expression.h"
#include "algorithms/resend.h"
#include "algorithms/simulation.h"

namespace flx::algorithms {
namespace {

using Matches = std::vector<std::vector<Match>>;

bool adds(Collective collective) {
    return reduces(collective) || collective == Collective::barrier;
}

bool scans(Collective collective) {
    return collective == Collective::scan || collective == Collective::exscan;
}

bool receives(StepKind kind) {
    return kind == StepKind::recv || kind == StepKind::recv_reduce;
}
bool combines(StepKind kind) {
    return kind == StepKind::recv_reduce || kind == StepKind::gather_reduce;
}

/// What can be said of one schedule without running it.
std::string check_shape(const Schedule &schedule, const Schedule &first, Collective collective, int rank, int size) {
    const Layout input = input_layout(collective);
    const Layout output = output_layout(collective);
    if (schedule.input != input || schedule.output != output)
        return fmt::format("rank {}: the layout does not fit {}", rank, name_of(collective));
    if (schedule.blocks == 0 || schedule.blocks != first.blocks || schedule.phases != first.phases)
        return fmt::format("rank {}: {} blocks and {} phases, but rank 0 has {} and {}", rank, schedule.blocks,
                           schedule.phases, first.blocks, first.phases);
    if ((input == Layout::single || output == Layout::single) && schedule.blocks != static_cast<uint32_t>(size))
        return fmt::format("rank {}: {} blocks for {} ranks", rank, schedule.blocks, size);

    for (const std::vector<int32_t> &group : schedule.groups) {
        std::vector<int32_t> sorted = group;
        std::sort(sorted.begin(), sorted.end());
        if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end() || sorted.empty() || sorted.front() < 0 ||
            sorted.back() >= size || !std::binary_search(sorted.begin(), sorted.end(), rank))
            return fmt::format("rank {}: the group is not a set of ranks with this one in it", rank);
    }
    for (uint32_t i = 0; i < schedule.steps.size(); ++i) {
        const Step &step = schedule.steps[i];
        const auto wrong = [&](std::string_view what) { return fmt::format("{}: {}", describe(rank, i, step), what); };
        const bool has_peer = step.kind == StepKind::send || receives(step.kind);
        if (has_peer ? step.peer < 0 || step.peer >= size || step.peer == rank : step.peer != -1)
            return wrong("the peer is not another rank");
        if (step.block >= schedule.blocks || step.phase >= schedule.phases)
            return wrong("block or phase does not exist");
        if (step.kind == StepKind::gather_reduce && step.group >= schedule.groups.size())
            return wrong("the group does not exist");
        if ((step.from.buffer == Buffer::none) != (step.kind == StepKind::recv) ||
            (step.to.buffer == Buffer::none) != (step.kind == StepKind::send))
            return wrong("source or target is missing, or one too many");
        for (const Place &place : {step.from, step.to}) {
            if (place.buffer == Buffer::scratch && place.slot >= schedule.scratch_slots)
                return wrong("the scratch slot does not exist");
            if (place.buffer != Buffer::scratch && place.slot != 0)
                return wrong("only scratch has slots");
        }
        if (step.to.buffer == Buffer::input)
            return wrong("writes the input");
        if (step.finish && !combines(step.kind))
            return wrong("only reductions finish");
        for (uint8_t j = 0; j < step.dependencies; ++j) {
            if (step.after[j] >= i)
                return wrong("depends on a step that does not come before");
        }
    }
    return {};
}

/// Uniqueness of (peer, phase, block), and the receive of every send.
std::string match(const std::vector<Schedule> &schedules, Matches &matches) {
    using Key = std::tuple<int, int, uint8_t, uint32_t>;  // sender, receiver, phase, block
    struct Receive {
        Match match;
        bool used = false;
    };
    std::map<Key, Receive> expected;
    const auto expect = [&](int sender, int rank, uint32_t index, uint32_t source) {
        const Step &step = schedules[static_cast<size_t>(rank)].steps[index];
        return expected.try_emplace({sender, rank, step.phase, step.block}, Receive{{index, source}, false}).second;
    };
    for (int rank = 0; rank < static_cast<int>(schedules.size()); ++rank) {
        const Schedule &schedule = schedules[static_cast<size_t>(rank)];
        for (uint32_t i = 0; i < schedule.steps.size(); ++i) {
            const Step &step = schedule.steps[i];
            bool unique = !receives(step.kind) || expect(step.peer, rank, i, 0);
            const size_t sources = step.kind == StepKind::gather_reduce ? schedule.group_of(step).size() : 0;
            for (uint32_t source = 0; source < sources; ++source) {
                const int sender = schedule.group_of(step)[source];
                unique = unique && (sender == rank || expect(sender, rank, i, source));
            }
            if (!unique)
                return describe(rank, i, step) + ": another step receives the same phase and block from this peer";
        }
    }
    matches.resize(schedules.size());
    for (int rank = 0; rank < static_cast<int>(schedules.size()); ++rank) {
        const std::vector<Step> &steps = schedules[static_cast<size_t>(rank)].steps;
        matches[static_cast<size_t>(rank)].resize(steps.size());
        for (uint32_t i = 0; i < steps.size(); ++i) {
            if (steps[i].kind != StepKind::send)
                continue;
            const auto entry = expected.find({rank, steps[i].peer, steps[i].phase, steps[i].block});
            if (entry == expected.end())
                return describe(rank, i, steps[i]) + ": the peer does not receive this";
            if (entry->second.used)
                return describe(rank, i, steps[i]) + ": another step sends the same phase and block to this peer";
            entry->second.used = true;
            matches[static_cast<size_t>(rank)][i] = entry->second.match;
        }
    }
    for (const auto &[key, receive] : expected) {
        const int rank = std::get<1>(key);
        if (!receive.used)
            return fmt::format(
                "{}: rank {} does not send this",
                describe(rank, receive.match.step, schedules[static_cast<size_t>(rank)].steps[receive.match.step]),
                std::get<0>(key));
    }
    return {};
}

/// Whether a reduction's value is what it should be; else why not.
std::string judge(const Expressions &expressions, ExpressionId value, BitClass bits, int owner, int size) {
    if (size == 1)
        return value == expressions.contribution(0) ? "" : "is not the only rank's contribution";
    const ExpressionId sum = expressions.undivided(value);
    if (sum == kNothing)
        return "is not finished last";
    if (!expressions.is_complete(sum))
        return "does not contain each contribution once";
    std::vector<int> order(static_cast<size_t>(size));
    if (bits == BitClass::rank_order)
        std::iota(order.begin(), order.end(), 0);
    for (int i = 0; bits == BitClass::ring && i < size; ++i)
        order[static_cast<size_t>(i)] = (owner + 1 + i) % size;
    if ((bits == BitClass::rank_order || bits == BitClass::ring) && !expressions.is_left_fold(sum, order))
        return "is not added in the declared order";
    return {};
}

/// The same for a scan's value on one rank: the contributions of the ranks before it, in their order.
std::string judge_scan(const Expressions &expressions, ExpressionId value, BitClass bits, int last) {
    std::vector<int> order(static_cast<size_t>(last) + 1);
    std::iota(order.begin(), order.end(), 0);
    if (expressions.order(value) != order)
        return fmt::format("does not contain the contributions of ranks 0 to {} in this order", last);
    if (bits == BitClass::chain && !expressions.is_left_fold(value, order))
        return "is not added in the declared order";
    return {};
}

/// Executes once and checks all outputs. `values`: the expression of each block (kNothing where it has no elements).
std::string execute(const std::vector<Schedule> &schedules, const Matches &matches, Collective collective,
                    BitClass bits, int root, const Trial &trial, Expressions &expressions,
                    std::vector<ExpressionId> &values) {
    Simulation simulation(schedules, matches, collective, root, trial, expressions);
    if (std::string error = simulation.run(); !error.empty())
        return error;
    const int size = static_cast<int>(schedules.size());
    const uint32_t blocks = schedules[0].blocks;
    values.assign(scans(collective) ? static_cast<uint32_t>(size) : blocks, kNothing);
    for (int rank = collective == Collective::exscan ? 1 : 0; rank < size; ++rank) {
        const std::vector<Symbol> output = simulation.output(rank);
        const bool single = schedules[0].output == Layout::single;
        size_t at = 0;
        for (uint32_t block = single ? static_cast<uint32_t>(rank) : 0; block < blocks && at < output.size(); ++block) {
            const Extent extent = simulation.extent(block);
            for (size_t i = 0; i < extent.count; ++i, ++at) {
                const Symbol symbol = output[at];
                const auto wrong = [&](std::string_view what) {
                    return fmt::format("rank {}: output element {} holds {} of element {}, which {}", rank, at,
                                       expressions.text(symbol.expression), symbol.element, what);
                };
                if (symbol.expression == kNothing)
                    return fmt::format("rank {}: output element {} was never written", rank, at);
                if (symbol.element != extent.offset + i)
                    return wrong("is another element");
                if (!adds(collective)) {
                    const bool from_root = collective == Collective::bcast || collective == Collective::scatter;
                    const int source = from_root ? root : static_cast<int>(block);
                    if (symbol.expression != expressions.contribution(source))
                        return wrong(fmt::format("is not rank {}'s", source));
                    continue;
                }
                if (scans(collective)) {
                    const int last = collective == Collective::scan ? rank : rank - 1;
                    if (std::string why = judge_scan(expressions, symbol.expression, bits, last); !why.empty())
                        return wrong(why);
                    values[static_cast<size_t>(rank)] = symbol.expression;
                    continue;
                }
                if (symbol.expression == values[block])
                    continue;
                const int owner = collective == Collective::reduce ? root : static_cast<int>(block);
                if (std::string why = judge(expressions, symbol.expression, bits, owner, size); !why.empty())
                    return wrong(why);
                if (values[block] != kNothing)
                    return wrong(fmt::format("is {} elsewhere in its block", expressions.text(values[block])));
                if (bits == BitClass::doubling && !std::ranges::is_sorted(expressions.order(symbol.expression)))
                    return wrong("is not added in the order of ranks");
                values[block] = symbol.expression;
            }
        }
    }
    return {};
}

/// Shapes and matches: what must hold before schedules can be run.
std::string check(const std::vector<Schedule> &schedules, Collective collective, int root, Matches &matches) {
    const int size = static_cast<int>(schedules.size());
    if (size == 0 || root < 0 || root >= size)
        return "there must be ranks, and a root among them";
    for (int rank = 0; rank < size; ++rank) {
        const Schedule &schedule = schedules[static_cast<size_t>(rank)];
        if (std::string error = check_shape(schedule, schedules[0], collective, rank, size); !error.empty())
            return error;
        const bool no_output = rank != root && (collective == Collective::reduce || collective == Collective::gather);
        const bool no_input = rank != root && collective == Collective::scatter;
        for (uint32_t i = 0; i < schedule.steps.size(); ++i) {
            const Step &step = schedule.steps[i];
            if (no_output && (step.to.buffer == Buffer::output || step.from.buffer == Buffer::output))
                return describe(rank, i, step) + ": only the root has an output";
            if (no_input && step.from.buffer == Buffer::input)
                return describe(rank, i, step) + ": only the root has an input";
        }
    }
    return match(schedules, matches);
}

/// By number of blocks that have a cell: whether that leaves a dependency out, of a step that has the cell on one that
/// has not. Messages keep their block. So where there is none, what is known of the steps that have it is what is known
/// where all have, and holds alike.
std::vector<bool> parted_dependencies(const std::vector<Schedule> &schedules) {
    std::vector<bool> parted(schedules[0].blocks + 1);
    for (const Schedule &schedule : schedules) {
        for (const Step &step : schedule.steps) {
            for (uint8_t d = 0; d < step.dependencies; ++d) {
                const auto [low, high] = std::minmax(step.block, schedule.steps[step.after[d]].block);
                std::fill(parted.begin() + low + 1, parted.begin() + high + 1, true);
            }
        }
    }
    return parted;
}

std::vector<Schedule> build_all(const Algorithm &algorithm, Collective collective, int size, int root,
                                const Placement *placement) {
    std::vector<Schedule> schedules;
    for (int rank = 0; rank < size; ++rank)
        schedules.push_back(algorithm.build({collective, rank, size, root, placement}));
    return schedules;
}

std::string not_served(const Algorithm &algorithm, Collective collective, int size) {
    return fmt::format("{} does not serve {} of {} ranks", algorithm.name, name_of(collective), size);
}

}  // namespace

std::string verify(const std::vector<Schedule> &schedules, Collective collective, BitClass bits, int root,
                   const Trial &trial) {
    if (trial.cell == 0 || trial.window == 0)
        return "the trial needs cells and windows that are not empty";
    if (!trial.lengths.empty() &&
        (trial.lengths.size() != schedules.size() || (trial.in_place && output_layout(collective) == Layout::single)))
        return "the trial's lengths are those of each rank's block, and not in place where the output is one block";
    Matches matches;
    if (std::string error = check(schedules, collective, root, matches); !error.empty())
        return error;
    const int size = static_cast<int>(schedules.size());

    Expressions expressions(size);
    std::vector<ExpressionId> values;
    if (std::string error = execute(schedules, matches, collective, bits, root, trial, expressions, values);
        !error.empty() || !adds(collective))
        return error;

    // The same expressions must come out of another run with one element in each block.
    Trial other;
    const bool single = schedules[0].output == Layout::single;
    other.count = single ? 1 : schedules[0].blocks;
    other.cell = 1;
    other.window = 2;
    other.seed = trial.seed + 1;
    std::vector<ExpressionId> other_values;
    if (std::string error = execute(schedules, matches, collective, bits, root, other, expressions, other_values);
        !error.empty())
        return fmt::format("with {} elements: {}", other.count, error);
    for (size_t block = 0; block < values.size(); ++block) {
        if (values[block] != kNothing && values[block] != other_values[block])
            return fmt::format("block {} is {} in one run and {} in another", block, expressions.text(values[block]),
                               expressions.text(other_values[block]));
    }
    return {};
}

std::string verify(const Algorithm &algorithm, Collective collective, int size, int root, const Trial &trial,
                   const Placement *placement) {
    if (!algorithm.serves(collective, size))
        return not_served(algorithm, collective, size);
    return verify(build_all(algorithm, collective, size, root, placement), collective, algorithm.bits(collective), root,
                  trial);
}

std::string verify_resend(const std::vector<Schedule> &schedules, Collective collective, int root, bool in_place,
                          ResendReasons &reasons, bool all_lengths) {
    Matches matches;
    if (std::string error = check(schedules, collective, root, matches); !error.empty())
        return error;
    if (collective == Collective::barrier)
        in_place = false;
    const uint32_t blocks = schedules[0].blocks;
    if (std::string error = check_resend(schedules, matches, collective, in_place, blocks, reasons); !error.empty())
        return error;
    // The cells that only the first blocks have, where the count is not divisible: their steps depend on fewer others.
    if (schedules[0].input == Layout::single || schedules[0].output == Layout::single)
        return {};
    const std::vector<bool> parted = parted_dependencies(schedules);
    for (uint32_t longer = 1; longer < blocks; ++longer) {
        if (!all_lengths && !parted[longer])
            continue;
        if (std::string error = check_resend(schedules, matches, collective, in_place, longer, reasons); !error.empty())
            return fmt::format("in a cell that only the first {} blocks have: {}", longer, error);
    }
    return {};
}

std::string verify_resend(const Algorithm &algorithm, Collective collective, int size, int root, bool in_place,
                          ResendReasons &reasons, const Placement *placement) {
    if (!algorithm.serves(collective, size))
        return not_served(algorithm, collective, size);
    return verify_resend(build_all(algorithm, collective, size, root, placement), collective, root, in_place, reasons);
}

}  // namespace flx::algorithms
