#include "algorithms/written.h"

#include <algorithm>
#include <array>

#include "algorithms/verifier.h"

namespace flx::algorithms {
namespace {

/// What must hold: with as many elements as blocks and with some more, so that blocks differ in length.
std::string execute_all(const Written &written) {
    const size_t blocks = written.schedules[0].blocks;
    const bool single =
        output_layout(written.collective) == Layout::single || input_layout(written.collective) == Layout::single;
    const auto tried = [&](const Trial &trial) {
        return verify(written.schedules, written.collective, written.bits, written.root, trial);
    };
    // Interleavings are taken at random, and a few more cost little where there are few steps.
    constexpr size_t kManySteps = 4096;
    const uint64_t seeds = steps_of(written) > kManySteps ? 1 : 8;
    for (const bool in_place : {false, true}) {
        for (uint64_t seed = 1; seed <= seeds; ++seed) {
            Trial trial;
            trial.count = single ? 3 : blocks + blocks / 2 + 1;
            trial.cell = 1;
            trial.window = 1 + seed % 2;
            trial.in_place = in_place;
            trial.seed = seed;
            if (std::string error = tried(trial); !error.empty())
                return error;
        }
        // What gather and scatter have for it are messages (runtime/execute/exchange.h).
        const bool any_lengths =
            written.collective == Collective::allgather || written.collective == Collective::reduce_scatter_block;
        if (!any_lengths || (in_place && output_layout(written.collective) == Layout::single))
            continue;
        Trial uneven;
        uneven.in_place = in_place;
        for (size_t block = 0; block < blocks; ++block)
            uneven.lengths.push_back((block * 5 + 1) % 4);
        if (std::string error = tried(uneven); !error.empty())
            return "with blocks that differ in length: " + error;
    }
    return {};
}

}  // namespace

Schedule schedule_of(const Written &written, int rank, int root) {
    const int size = written.size();
    const int by = rooted(written.collective) ? root - written.root : 0;
    if (by == 0)
        return written.schedules[static_cast<size_t>(rank)];
    const auto moved = [&](int32_t from) { return from < 0 ? from : (from + by + size) % size; };
    Schedule schedule = written.schedules[static_cast<size_t>((rank - by + size) % size)];
    const bool of_ranks = schedule.input == Layout::single || schedule.output == Layout::single;
    for (Step &step : schedule.steps) {
        step.peer = moved(step.peer);
        if (of_ranks)
            step.block = static_cast<uint32_t>(moved(static_cast<int32_t>(step.block)));
    }
    for (std::vector<int32_t> &group : schedule.groups)
        std::ranges::transform(group, group.begin(), moved);
    return schedule;
}

std::string prove(const Written &written) {
    if (written.schedules.empty())
        return "there are no schedules";
    if (std::string error = execute_all(written); !error.empty())
        return error;
    for (const bool in_place : {false, true}) {
        ResendReasons reasons;
        if (std::string error =
                verify_resend(written.schedules, written.collective, written.root, in_place, reasons, false);
            !error.empty())
            return error;
    }
    return {};
}

Written written_of(const Algorithm &algorithm, Collective collective, int size, int root, const Placement *placement) {
    Written written;
    for (const char c : algorithm.name)
        if (c != ')')
            written.name += c == '(' || c == ',' ? '-' : c;
    written.description = algorithm.description;
    written.source = algorithm.source;
    written.collective = collective;
    written.bits = algorithm.bits(collective);
    written.root = root;
    if (placement != nullptr && algorithm.family != Family::flat)
        written.host_of = placement->host;
    for (int rank = 0; rank < size; ++rank)
        written.schedules.push_back(algorithm.build({collective, rank, size, root, placement}));
    return written;
}

Algorithm algorithm_of(const Written &written) {
    return {.name = written.name,
            .description = written.description,
            .source = written.source,
            .bits_of = nullptr,
            .serves_size = nullptr,
            .build_for = nullptr,
            .written = &written};
}

bool can_be_proved(BitClass bits) {
    constexpr std::array kProved = {BitClass::none, BitClass::rank_order, BitClass::ring, BitClass::doubling,
                                    BitClass::chain};
    return std::ranges::find(kProved, bits) != kProved.end();
}

size_t steps_of(const Written &written) {
    size_t steps = 0;
    for (const Schedule &schedule : written.schedules)
        steps += schedule.steps.size();
    return steps;
}

}  // namespace flx::algorithms
