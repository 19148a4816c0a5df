#include "algorithms/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace flx::algorithms {

namespace {
constexpr std::string_view kKinds[] = {"send", "recv", "recv_reduce", "gather_reduce", "copy"};
constexpr uint32_t kLongestRun = 6;
}  // namespace

std::string describe(int rank, uint32_t index, const Step &step) {
    std::string text = fmt::format("rank {}, step {} ({}, phase {}, block {}", rank, index,
                                   kKinds[static_cast<size_t>(step.kind)], step.phase, step.block);
    if (step.peer >= 0)
        text += fmt::format(", peer {}", step.peer);
    return text + ")";
}

Simulation::Simulation(const std::vector<Schedule> &schedules, const std::vector<std::vector<Match>> &matches,
                       Collective collective, int root, const Trial &trial, Expressions &expressions)
    : schedules_(schedules),
      matches_(matches),
      collective_(collective),
      root_(root),
      trial_(trial),
      expressions_(expressions),
      size_(static_cast<int>(schedules.size())),
      count_(trial.count),
      state_(trial.seed) {
    const Schedule &first = schedules[0];
    if (first.input == Layout::single || first.output == Layout::single)
        count_ *= first.blocks;
    if (!trial.lengths.empty())
        count_ = std::accumulate(trial.lengths.begin(), trial.lengths.end(), size_t{0});
    if (collective == Collective::barrier) {
        count_ = 1;
        trial_.in_place = false;
    }

    lanes_ = 1 + random(3);
    copied_of_four_ = std::min(4u, 2 * random(4));
    const bool gathers = std::any_of(schedules.begin(), schedules.end(), [](const Schedule &s) {
        return std::any_of(s.steps.begin(), s.steps.end(),
                           [](const Step &step) { return step.kind == StepKind::gather_reduce; });
    });
    any_order_ = random(2) == 0 && !gathers;
    if (random(2) == 0)
        late_ = static_cast<int>(random(static_cast<uint32_t>(size_)));
    for (uint32_t block = 0; block < first.blocks; ++block)
        longest_ = std::max(longest_, extent(block).count);
    outstanding_.resize(static_cast<size_t>(size_) * static_cast<size_t>(size_) * lanes_);
    ranks_.resize(schedules.size());
    for (int rank = 0; rank < size_; ++rank)
        lay_out(rank);
}

Extent Simulation::extent(uint32_t block) const {
    const std::vector<size_t> &lengths = trial_.lengths;
    if (lengths.empty())
        return block_extent(count_, schedules_[0].blocks, block);
    return {std::accumulate(lengths.begin(), lengths.begin() + block, size_t{0}), lengths[block]};
}

uint32_t Simulation::random(uint32_t below) {
    // SplitMix64 (Steele, Lea, Flood 2014).
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    mixed ^= mixed >> 31;
    return static_cast<uint32_t>(((mixed >> 32) * below) >> 32);
}

void Simulation::lay_out(int index) {
    const Schedule &schedule = schedules_[static_cast<size_t>(index)];
    Rank &rank = ranks_[static_cast<size_t>(index)];
    const bool one_block = schedule.input == Layout::single || schedule.output == Layout::single;
    const Extent own = one_block ? extent(static_cast<uint32_t>(index)) : Extent{0, count_};
    const size_t in = schedule.input == Layout::single ? own.count : count_;
    const size_t out = schedule.output == Layout::single ? own.count : count_;
    const bool has_output = (collective_ != Collective::reduce && collective_ != Collective::gather) || index == root_;
    const bool has_input = (collective_ != Collective::bcast && collective_ != Collective::scatter) || index == root_;

    // One memory: output, then the input unless they share theirs, then scratch.
    size_t scratch = 0;
    rank.output_count = has_output ? out : 0;
    if (trial_.in_place && has_output) {
        rank.input = schedule.input == Layout::single ? own.offset : 0;
        rank.output = collective_ == Collective::scatter ? own.offset : 0;
        scratch = std::max(in, out);
    } else {
        rank.input = has_output ? out : 0;
        scratch = rank.input + in;
    }
    rank.memory.resize(scratch + schedule.scratch_slots * longest_);
    if (has_input) {
        const size_t offset = schedule.input == Layout::single ? own.offset : 0;
        for (size_t i = 0; i < in; ++i)
            rank.memory[rank.input + i].symbol = {expressions_.contribution(index), static_cast<uint32_t>(offset + i)};
    }

    rank.steps.resize(schedule.steps.size());
    size_t flags = 0;
    size_t arrivals = 0;
    for (uint32_t i = 0; i < schedule.steps.size(); ++i) {
        const Step &step = schedule.steps[i];
        StepState &state = rank.steps[i];
        state.length = extent(step.block).count;
        state.cells = static_cast<uint32_t>((state.length + trial_.cell - 1) / trial_.cell);
        state.left = state.cells;
        state.from = address(rank, schedule, step.from, step.block, scratch);
        state.to = address(rank, schedule, step.to, step.block, scratch);
        state.flags = flags;
        state.arrivals = arrivals;
        flags += state.cells;
        if (step.kind == StepKind::gather_reduce)
            arrivals += state.cells * schedule.group_of(step).size();
        else if (step.kind == StepKind::recv || step.kind == StepKind::recv_reduce)
            arrivals += state.cells;
        for (uint32_t lane = 0; lane + 1 < lanes_; ++lane)
            state.cut[lane + 1] = random(state.cells + 1);
        std::sort(state.cut + 1, state.cut + lanes_);
        state.cut[lanes_] = state.cells;
        if (state.left > 0)
            rank.active.push_back(i);
    }
    rank.done.resize(flags);
    rank.sent.resize(flags);
    rank.arrived.resize(arrivals, -1);
}

size_t Simulation::address(const Rank &rank, const Schedule &schedule, const Place &place, uint32_t block,
                           size_t scratch) const {
    const size_t offset = extent(block).offset;
    switch (place.buffer) {
        case Buffer::none:
            break;
        case Buffer::input:
            return rank.input + (schedule.input == Layout::whole ? offset : 0);
        case Buffer::output:
            return rank.output + (schedule.output == Layout::whole ? offset : 0);
        case Buffer::scratch:
            return scratch + place.slot * longest_;
    }
    return 0;
}

std::string Simulation::run() {
    for (;;) {
        bool left = false;
        bool moved = false;
        for (int i = 0; i < size_ && error_.empty(); ++i) {
            const int rank = static_cast<int>(random(static_cast<uint32_t>(size_)));
            if (rank != late_ || random(16) == 0)
                moved |= visit(rank, false);
        }
        // A round that moved nothing by chance is followed by one that tries everything.
        for (int rank = 0; rank < size_ && error_.empty(); ++rank) {
            if (!moved && visit(rank, true))
                moved = true;
            left |= !ranks_[static_cast<size_t>(rank)].active.empty();
        }
        if (!error_.empty() || !left)
            return error_;
        if (!moved && !set_aside())
            return stuck();
    }
}

/// Tries a rank's steps: all, or some of them forwards or backwards.
bool Simulation::visit(int index, bool thorough) {
    Rank &rank = ranks_[static_cast<size_t>(index)];
    bool moved = false;
    const size_t steps = rank.active.size();
    const bool backwards = random(2) == 0;
    const uint32_t luck = 1 + random(4);
    for (size_t i = 0; i < steps && error_.empty(); ++i) {
        if (thorough || random(4) < luck)
            moved |= advance(index, rank.active[backwards ? steps - 1 - i : i]);
    }
    std::erase_if(rank.active, [&](uint32_t step) { return rank.steps[step].left == 0; });
    return moved;
}

/// Whether dependencies and, for receives, the data are there.
bool Simulation::ready(const Rank &rank, const Step &step, const StepState &state, uint32_t cell) const {
    for (uint8_t i = 0; i < step.dependencies; ++i) {
        if (!step.holds(i, trial_.in_place))
            continue;
        const StepState &before = rank.steps[step.after[i]];
        if (cell < before.cells && rank.done[before.flags + cell] == 0)
            return false;
    }
    if (step.kind == StepKind::recv || step.kind == StepKind::recv_reduce)
        return rank.arrived[state.arrivals + cell] >= 0;
    if (step.kind == StepKind::gather_reduce) {
        const auto self = static_cast<int>(&rank - ranks_.data());
        const std::vector<int32_t> &group = schedules_[static_cast<size_t>(self)].group_of(step);
        for (size_t source = 0; source < group.size(); ++source) {
            if (group[source] != self && rank.arrived[state.arrivals + source * state.cells + cell] < 0)
                return false;
        }
    }
    return true;
}

bool Simulation::advance(int index, uint32_t number) {
    const Step &step = schedules_[static_cast<size_t>(index)].steps[number];
    if (step.kind == StepKind::send)
        return advance_send(index, number);
    Rank &rank = ranks_[static_cast<size_t>(index)];
    StepState &state = rank.steps[number];
    if (state.left == 0)
        return false;
    const uint32_t start = random(state.cells);
    uint32_t run = 0;
    const uint32_t longest = 1 + random(kLongestRun);
    for (uint32_t i = 0; i < state.cells && error_.empty(); ++i) {
        const uint32_t cell = (start + i) % state.cells;
        const bool can = rank.done[state.flags + cell] == 0 && ready(rank, step, state, cell);
        if (can)
            process(index, number, cell);
        if (run > 0 && (!can || run == longest))
            break;
        run += can ? 1 : 0;
    }
    return run > 0;
}

bool Simulation::advance_send(int index, uint32_t number) {
    const Step &step = schedules_[static_cast<size_t>(index)].steps[number];
    Rank &rank = ranks_[static_cast<size_t>(index)];
    const StepState &state = rank.steps[number];
    const size_t pair = static_cast<size_t>(index) * static_cast<size_t>(size_) + static_cast<size_t>(step.peer);
    const uint32_t first_lane = random(lanes_);
    for (uint32_t i = 0; i < lanes_; ++i) {
        const uint32_t lane = (first_lane + i) % lanes_;
        if (outstanding_[pair * lanes_ + lane] >= trial_.window)
            continue;
        const uint32_t begin = state.cut[lane];
        const uint32_t end = state.cut[lane + 1];
        if (begin == end)
            continue;
        const auto can = [&](uint32_t cell) {
            return rank.sent[state.flags + cell] == 0 && ready(rank, step, state, cell);
        };
        uint32_t cell = begin;
        if (any_order_) {
            const uint32_t start = random(end - begin);
            uint32_t tried = 0;
            for (cell = begin + start; tried < end - begin && !can(cell); ++tried)
                cell = cell + 1 == end ? begin : cell + 1;
        } else {
            while (cell < end && rank.sent[state.flags + cell] != 0)
                ++cell;
        }
        if (cell == end || !can(cell))
            continue;
        uint32_t cells = 1;
        const uint32_t longest = 1 + random(kLongestRun);
        while (cells < longest && cell + cells < end && can(cell + cells))
            ++cells;
        post(index, number, lane, cell, cells);
        return true;
    }
    return false;
}

void Simulation::post(int sender, uint32_t number, uint32_t lane, uint32_t first, uint32_t cells) {
    const Step &step = schedules_[static_cast<size_t>(sender)].steps[number];
    Rank &rank = ranks_[static_cast<size_t>(sender)];
    const StepState &state = rank.steps[number];
    int32_t id = static_cast<int32_t>(chunks_.size());
    if (free_chunks_.empty()) {
        chunks_.emplace_back();
    } else {
        id = free_chunks_.back();
        free_chunks_.pop_back();
    }
    Chunk &chunk = chunks_[static_cast<size_t>(id)];
    chunk.step = number;
    chunk.sender = sender;
    chunk.receiver = step.peer;
    chunk.lane = lane;
    chunk.first = first;
    chunk.cells = cells;
    chunk.unconsumed = cells;
    chunk.in_flight = random(4) >= copied_of_four_;
    chunk.aside = false;
    chunk.data.clear();
    const size_t begin = first * trial_.cell;
    const size_t end = std::min(state.length, (first + cells) * trial_.cell);
    for (size_t i = begin; i < end; ++i) {
        Element &element = rank.memory[state.from + i];
        if (element.symbol.expression == kNothing)
            return fail(sender, number, "reads memory that was never written");
        chunk.data.push_back(element.symbol);
        element.pins += chunk.in_flight ? 1 : 0;
    }
    const size_t pair = static_cast<size_t>(sender) * static_cast<size_t>(size_) + static_cast<size_t>(step.peer);
    ++outstanding_[pair * lanes_ + lane];
    for (uint32_t cell = first; cell < first + cells; ++cell) {
        rank.sent[state.flags + cell] = 1;
        if (!chunk.in_flight)
            finish_cell(rank, number, cell);
    }
    const Match &match = matches_[static_cast<size_t>(sender)][number];
    Rank &receiver = ranks_[static_cast<size_t>(step.peer)];
    const StepState &target = receiver.steps[match.step];
    const size_t arrivals = target.arrivals + match.source * static_cast<size_t>(target.cells);
    for (uint32_t cell = first; cell < first + cells; ++cell)
        receiver.arrived[arrivals + cell] = id;
}

void Simulation::consume(int32_t id, uint32_t cell) {
    Chunk &chunk = chunks_[static_cast<size_t>(id)];
    Rank &sender = ranks_[static_cast<size_t>(chunk.sender)];
    const StepState &state = sender.steps[chunk.step];
    if (chunk.in_flight && !chunk.aside) {
        const size_t end = std::min(state.length, (cell + 1) * trial_.cell);
        for (size_t i = cell * trial_.cell; i < end; ++i)
            --sender.memory[state.from + i].pins;
    }
    if (--chunk.unconsumed > 0)
        return;
    if (!chunk.aside)
        release(chunk);
    free_chunks_.push_back(id);
}

/// Gives its room at the receiver back, which its sender hears.
void Simulation::release(Chunk &chunk) {
    const size_t pair =
        static_cast<size_t>(chunk.sender) * static_cast<size_t>(size_) + static_cast<size_t>(chunk.receiver);
    --outstanding_[pair * lanes_ + chunk.lane];
    Rank &sender = ranks_[static_cast<size_t>(chunk.sender)];
    for (uint32_t i = chunk.first; chunk.in_flight && i < chunk.first + chunk.cells; ++i)
        finish_cell(sender, chunk.step, i);
}

/// Where nothing moves: a rank whose only sum holds something from every rank of its group, or any of whose several
/// sums hold anything, copies that and gives the room back. Whether any did.
bool Simulation::set_aside() {
    bool any = false;
    for (int index = 0; index < size_; ++index) {
        const Schedule &schedule = schedules_[static_cast<size_t>(index)];
        Rank &rank = ranks_[static_cast<size_t>(index)];
        const auto sums = std::ranges::count(schedule.steps, StepKind::gather_reduce, &Step::kind);
        for (size_t group = 0; group < schedule.groups.size(); ++group) {
            const std::vector<int32_t> &members = schedule.groups[group];
            std::vector<std::vector<int32_t>> held(members.size());
            for (const uint32_t number : rank.active) {
                const Step &step = schedule.steps[number];
                const StepState &state = rank.steps[number];
                for (size_t source = 0;
                     step.kind == StepKind::gather_reduce && step.group == group && source < members.size(); ++source)
                    for (uint32_t cell = 0; cell < state.cells; ++cell)
                        if (const int32_t id = rank.arrived[state.arrivals + source * state.cells + cell];
                            id >= 0 && rank.done[state.flags + cell] == 0)
                            held[source].push_back(id);
            }
            bool all = true;
            for (size_t source = 0; sums == 1 && source < members.size(); ++source)
                all = all && (members[source] == index || !held[source].empty());
            for (size_t source = 0; all && source < members.size(); ++source)
                for (const int32_t id : held[source]) {
                    Chunk &chunk = chunks_[static_cast<size_t>(id)];
                    if (chunk.aside)
                        continue;
                    const StepState &sent = ranks_[static_cast<size_t>(chunk.sender)].steps[chunk.step];
                    for (uint32_t cell = chunk.first; chunk.in_flight && cell < chunk.first + chunk.cells; ++cell) {
                        if (rank.done[rank.steps[matches_[static_cast<size_t>(chunk.sender)][chunk.step].step].flags +
                                      cell] != 0)
                            continue;
                        const size_t end = std::min(sent.length, (cell + 1) * trial_.cell);
                        for (size_t i = cell * trial_.cell; i < end; ++i)
                            --ranks_[static_cast<size_t>(chunk.sender)].memory[sent.from + i].pins;
                    }
                    release(chunk);
                    chunk.aside = true;
                    any = true;
                }
        }
    }
    return any;
}

void Simulation::process(int index, uint32_t number, uint32_t cell) {
    const Schedule &schedule = schedules_[static_cast<size_t>(index)];
    const Step &step = schedule.steps[number];
    Rank &rank = ranks_[static_cast<size_t>(index)];
    const StepState &state = rank.steps[number];
    const size_t begin = cell * trial_.cell;
    const size_t end = std::min(state.length, begin + trial_.cell);
    const auto received = [&](size_t source, size_t element) {
        const Chunk &chunk = chunks_[static_cast<size_t>(rank.arrived[state.arrivals + source * state.cells + cell])];
        return chunk.data[element - chunk.first * trial_.cell];
    };
    const auto own = [&](size_t element) {
        const Symbol symbol = rank.memory[state.from + element].symbol;
        if (symbol.expression == kNothing)
            fail(index, number, "reads memory that was never written");
        return symbol;
    };

    for (size_t i = begin; i < end && error_.empty(); ++i) {
        Symbol result;
        switch (step.kind) {
            case StepKind::send:
                break;
            case StepKind::copy:
                result = own(i);
                break;
            case StepKind::recv:
                result = received(0, i);
                break;
            case StepKind::recv_reduce:
                result = step.received_first ? reduced(index, number, received(0, i), own(i))
                                             : reduced(index, number, own(i), received(0, i));
                break;
            case StepKind::gather_reduce:
                for (size_t source = 0; source < schedule.group_of(step).size(); ++source) {
                    const Symbol operand = schedule.group_of(step)[source] == index ? own(i) : received(source, i);
                    result = source == 0 ? operand : reduced(index, number, result, operand);
                }
                break;
        }
        if (step.finish)
            result.expression = expressions_.divide(result.expression);
        const bool nothing_to_do = step.kind == StepKind::copy && state.from == state.to;
        if (!nothing_to_do && error_.empty())
            write(index, number, state.to + i, result);
    }
    if (!error_.empty())
        return;

    const size_t sources = step.kind == StepKind::gather_reduce ? schedule.group_of(step).size() : 1;
    for (size_t source = 0; source < sources && step.kind != StepKind::copy; ++source) {
        const int32_t chunk = rank.arrived[state.arrivals + source * state.cells + cell];
        if (step.kind != StepKind::gather_reduce || schedule.group_of(step)[source] != index)
            consume(chunk, cell);
    }
    finish_cell(rank, number, cell);
}

Symbol Simulation::reduced(int rank, uint32_t step, Symbol left, Symbol right) {
    if (left.element != right.element)
        fail(rank, step, fmt::format("combines element {} with element {}", left.element, right.element));
    return {expressions_.combine(left.expression, right.expression), left.element};
}

void Simulation::write(int rank, uint32_t step, size_t address, Symbol symbol) {
    Element &element = ranks_[static_cast<size_t>(rank)].memory[address];
    if (element.pins > 0) {
        fail(rank, step,
             fmt::format("overwrites {} of element {}, which was sent from there and not consumed yet",
                         expressions_.text(element.symbol.expression), element.symbol.element));
    }
    element.symbol = symbol;
}

void Simulation::finish_cell(Rank &rank, uint32_t step, uint32_t cell) {
    rank.done[rank.steps[step].flags + cell] = 1;
    --rank.steps[step].left;
}

void Simulation::fail(int rank, uint32_t step, const std::string &what) {
    if (error_.empty())
        error_ = describe(rank, step, schedules_[static_cast<size_t>(rank)].steps[step]) + ": " + what;
}

std::string Simulation::stuck() const {
    for (int rank = 0; rank < size_; ++rank) {
        const Rank &state = ranks_[static_cast<size_t>(rank)];
        if (!state.active.empty()) {
            const uint32_t step = state.active.front();
            return fmt::format("deadlock: {} has {} of {} cells left and nothing can move",
                               describe(rank, step, schedules_[static_cast<size_t>(rank)].steps[step]),
                               state.steps[step].left, state.steps[step].cells);
        }
    }
    return "deadlock";
}

std::vector<Symbol> Simulation::output(int rank) const {
    const Rank &state = ranks_[static_cast<size_t>(rank)];
    std::vector<Symbol> symbols(state.output_count);
    for (size_t i = 0; i < symbols.size(); ++i)
        symbols[i] = state.memory[state.output + i].symbol;
    return symbols;
}

}  // namespace flx::algorithms
