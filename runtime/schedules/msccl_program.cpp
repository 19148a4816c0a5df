#include "runtime/schedules/msccl_program.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "runtime/schedules/schedule_file.h"

namespace flx::schedules {

using algorithms::Buffer;
using algorithms::Collective;
using algorithms::Layout;
using algorithms::Place;
using algorithms::Schedule;
using algorithms::Step;
using algorithms::StepKind;

namespace {

/// Whose contributions a chunk has, by rank.
using Ranks = std::vector<bool>;

bool all_of(const Ranks &ranks) {
    return std::ranges::find(ranks, false) == ranks.end();
}

/// Sums of lower ranks go first, so that two that add what each other has make the same sum.
std::ptrdiff_t first_of(const Ranks &ranks) {
    return std::ranges::find(ranks, true) - ranks.begin();
}

/// A chunk on its way: what is in it, and the phase in which it travels.
struct Message {
    int sender = 0;
    uint8_t phase = 0;
    uint32_t block = 0;
    Ranks ranks;
    int count = 1;  ///< of the step that sent it
};

/// What a chunk's memory holds.
struct Held {
    uint32_t block = 0;
    Ranks ranks;
    Place place;
    /// Received into scratch and not looked at yet: a reduction takes it as it comes, as FLX adds what it receives.
    std::optional<Message> coming;
};

/// Steps of one rank that touched a block of memory.
struct Touched {
    std::optional<uint32_t> writer;
    std::vector<uint32_t> readers;
};

using Memory = std::tuple<Buffer, uint32_t>;  ///< index: of the block, of the slot, or 0 where there is one block

/// One GPU as its steps are run.
class Gpu {
  public:
    Gpu(const MscclProgram &program, int rank) : program_(program), rank_(rank) {
        schedule_.blocks = static_cast<uint32_t>(program.chunks);
        schedule_.input = algorithms::input_layout(program.collective);
        schedule_.output = algorithms::output_layout(program.collective);
        const int inputs = schedule_.input == Layout::single ? 1 : program.chunks;
        for (int index = 0; index < inputs; ++index) {
            const MscclChunk chunk = canonical({'i', index});
            Ranks own(static_cast<size_t>(program.size()));
            own[static_cast<size_t>(rank)] = true;
            held_[chunk] = {block_of(chunk), std::move(own), {Buffer::input, 0}, {}};
        }
    }

    /// What it has there, brought to where a step can read it.
    Status read(const MscclStep &step, const MscclChunk &where, Held *&result) {
        FLX_TRY(look(step, where, result));
        return result->coming ? fetch(step, *result) : Status();
    }
    Status send(const MscclStep &step, const Held &held, int peer, uint8_t phase) {
        return emit(step,
                    {.kind = StepKind::send, .phase = phase, .peer = peer, .block = held.block, .from = held.place});
    }
    Status receive(const MscclStep &step, const MscclChunk &where, Message message) {
        const MscclChunk chunk = canonical(where);
        FLX_TRY(check_target(step, chunk, message.block));
        FLX_TRY(let_go(step, chunk));
        Held held{message.block, message.ranks, {}, {}};
        if (chunk.buffer == 's') {
            held.place = slot_of(chunk);
            held.coming = std::move(message);
        } else {
            held.place = target(chunk, held.ranks);
            FLX_TRY(take(step, message, held.place));
        }
        held_[chunk] = std::move(held);
        return {};
    }
    Status copy(const MscclStep &step, const MscclChunk &from, const MscclChunk &to) {
        const MscclChunk chunk = canonical(to);
        if (canonical(from) == chunk)
            return {};
        Held *source = nullptr;
        FLX_TRY(read(step, from, source));
        FLX_TRY(check_target(step, chunk, source->block));
        FLX_TRY(let_go(step, chunk));
        Held held{source->block, source->ranks, target(chunk, source->ranks), {}};
        FLX_TRY(emit(step, {.kind = StepKind::copy, .block = held.block, .from = source->place, .to = held.place}));
        held_[chunk] = std::move(held);
        return {};
    }
    /// `to` += `from`, one of which came and was not looked at.
    Status reduce(const MscclStep &step, const MscclChunk &from, const MscclChunk &to) {
        Held *source = nullptr;
        Held *sum = nullptr;
        FLX_TRY(look(step, from, source));
        FLX_TRY(look(step, to, sum));
        if (!source->coming && !sum->coming)
            return fail(Fault::schedule_file,
                        "{}: it adds two chunks of this GPU's memory, of which none has just been received; FLX adds "
                        "what it receives",
                        step.where);
        if (source->coming && sum->coming)
            FLX_TRY(fetch(step, *sum));
        const bool source_comes = source->coming.has_value();
        Held &coming = source_comes ? *source : *sum;
        const Held &kept = source_comes ? *sum : *source;
        const Message message = std::move(*coming.coming);
        coming.coming.reset();
        const Held other = kept;
        if (source_comes)
            held_.erase(canonical(from));  // it goes into the sum and is nowhere else
        return add(step, message, other, canonical(to));
    }
    /// `to` = what came + `from`.
    Status receive_reduce(const MscclStep &step, const Message &message, const MscclChunk &from, const MscclChunk &to) {
        Held *held = nullptr;
        FLX_TRY(read(step, from, held));
        if (canonical(from) != canonical(to))
            FLX_TRY(let_go(step, canonical(to)));
        return add(step, message, *held, canonical(to));
    }
    /// The same into memory that nothing else uses: the chunk there.
    Status receive_reduce_aside(const MscclStep &step, const Message &message, const MscclChunk &from,
                                MscclChunk &aside) {
        aside = {'t', asides_++};
        return receive_reduce(step, message, from, aside);
    }

    /// What still comes is received, and what is the result already, but not where it belongs, copied.
    Status end(const MscclStep &last, Schedule &result) {
        for (auto &[chunk, held] : held_)
            if (held.coming)
                FLX_TRY(fetch(last, held));
        if (program_.collective == Collective::allgather && program_.in_place) {
            Held &own = held_[{'d', rank_}];
            if (own.place.buffer == Buffer::input)
                FLX_TRY(emit(
                    last, {.kind = StepKind::copy, .block = own.block, .from = own.place, .to = {Buffer::output, 0}}));
        }
        schedule_.scratch_slots = static_cast<uint16_t>(slots_.size());
        result = std::move(schedule_);
        return {};
    }

  private:
    /// In place, input and output are the same chunks, which are called `d` here.
    [[nodiscard]] MscclChunk canonical(const MscclChunk &chunk) const {
        if (!program_.in_place || chunk.buffer == 's' || chunk.buffer == 'd' || chunk.buffer == 't')
            return chunk;
        const bool one = (chunk.buffer == 'i' && schedule_.input == Layout::single) ||
                         (chunk.buffer == 'o' && schedule_.output == Layout::single);
        return {'d', one ? rank_ : chunk.index};
    }
    /// Of the whole vector, for what lies in the input or output.
    [[nodiscard]] uint32_t block_of(const MscclChunk &chunk) const {
        const bool one = (chunk.buffer == 'i' && schedule_.input == Layout::single) ||
                         (chunk.buffer == 'o' && schedule_.output == Layout::single);
        return static_cast<uint32_t>(one ? rank_ : chunk.index);
    }
    Place slot_of(const MscclChunk &chunk) {
        const auto [slot, added] = slots_.try_emplace(chunk, static_cast<uint16_t>(slots_.size()));
        return {Buffer::scratch, slot->second};
    }
    /// Where a chunk is written. An output of one block has room for what is complete alone.
    Place target(const MscclChunk &chunk, const Ranks &ranks) {
        const bool own = chunk.buffer == 'o' || (chunk.buffer == 'd' && chunk.index == rank_);
        if (chunk.buffer == 's' || chunk.buffer == 't' ||
            (schedule_.output == Layout::single && !(own && all_of(ranks))))
            return slot_of(chunk);
        return {Buffer::output, 0};
    }
    Status check_target(const MscclStep &step, const MscclChunk &chunk, uint32_t block) const {
        if (chunk.buffer == 'i')
            return fail(Fault::schedule_file, "{}: it writes the input, which FLX leaves as it is", step.where);
        const bool outside = (chunk.buffer == 'd' && chunk.index >= program_.chunks) ||
                             (chunk.buffer == 'o' && block_of(chunk) >= schedule_.blocks);
        if (outside)
            return fail(Fault::schedule_file, "{}: it writes chunk {} of {}", step.where, chunk.index, program_.chunks);
        if (chunk.buffer != 's' && chunk.buffer != 't' && block_of(chunk) != block)
            return fail(Fault::schedule_file, "{}: it writes chunk {} where chunk {} belongs", step.where, block,
                        block_of(chunk));
        if (slots_.size() >= kMostSlots)
            return fail(Fault::schedule_file, "{}: a GPU has {} chunks of scratch at most", step.where, kMostSlots);
        return {};
    }
    Status look(const MscclStep &step, const MscclChunk &where, Held *&result) {
        const auto found = held_.find(canonical(where));
        if (found == held_.end())
            return fail(Fault::schedule_file, "{}: it reads chunk {} of {}, which holds nothing, or went into a sum",
                        step.where, where.index, where.buffer);
        result = &found->second;
        return {};
    }
    /// What came into scratch and was not looked at is received there.
    Status fetch(const MscclStep &step, Held &held) {
        const Message message = std::move(*held.coming);
        held.coming.reset();
        return take(step, message, held.place);
    }
    Status take(const MscclStep &step, const Message &message, const Place &to) {
        return emit(
            step,
            {.kind = StepKind::recv, .phase = message.phase, .peer = message.sender, .block = message.block, .to = to});
    }
    /// What is about to be overwritten and came, but was not looked at, has to be received all the same.
    Status let_go(const MscclStep &step, const MscclChunk &chunk) {
        const auto found = held_.find(chunk);
        return found != held_.end() && found->second.coming ? fetch(step, found->second) : Status();
    }
    Status add(const MscclStep &step, const Message &message, const Held &kept, const MscclChunk &to) {
        if (kept.block != message.block)
            return fail(Fault::schedule_file, "{}: it adds chunk {}, which came from GPU {}, to chunk {}", step.where,
                        message.block, message.sender, kept.block);
        FLX_TRY(check_target(step, to, message.block));
        Ranks ranks = message.ranks;
        for (size_t rank = 0; rank < ranks.size(); ++rank)
            ranks[rank] = ranks[rank] || kept.ranks[rank];
        const Place place = target(to, ranks);
        FLX_TRY(emit(step, {.kind = StepKind::recv_reduce,
                            .phase = message.phase,
                            .received_first = first_of(message.ranks) < first_of(kept.ranks),
                            .finish = all_of(ranks),
                            .peer = message.sender,
                            .block = message.block,
                            .from = kept.place,
                            .to = place}));
        held_[to] = {message.block, std::move(ranks), place, {}};
        return {};
    }

    [[nodiscard]] Memory memory_of(const Place &place, uint32_t block) const {
        if (place.buffer == Buffer::scratch)
            return {place.buffer, place.slot};
        const Layout layout = place.buffer == Buffer::input ? schedule_.input : schedule_.output;
        return {place.buffer, layout == Layout::whole ? block : 0};
    }
    /// The part of the input that is the same memory as a part of the output, where the call is in place.
    [[nodiscard]] Memory in_place_of(const Memory &output) const {
        const auto [buffer, index] = output;
        if (schedule_.input == Layout::single)
            return {index == static_cast<uint32_t>(rank_) ? Buffer::input : Buffer::none, 0};
        return {Buffer::input, index};
    }

    /// Appends a step that waits for what wrote what it reads, and for all that used what it writes.
    Status emit(const MscclStep &from, Step step) {
        const auto index = static_cast<uint32_t>(schedule_.steps.size());
        std::vector<uint32_t> after;
        std::vector<uint32_t> in_place;
        const auto add = [](std::vector<uint32_t> &list, uint32_t one) {
            if (std::ranges::find(list, one) == list.end())
                list.push_back(one);
        };
        if (step.from.buffer != Buffer::none)
            if (const Touched &read = touched_[memory_of(step.from, step.block)]; read.writer)
                add(after, *read.writer);
        if (step.to.buffer != Buffer::none) {
            const Memory memory = memory_of(step.to, step.block);
            if (touched_[memory].writer)
                add(after, *touched_[memory].writer);
            for (const uint32_t reader : touched_[memory].readers)
                add(after, reader);
            if (step.to.buffer == Buffer::output)
                for (const uint32_t reader : touched_[in_place_of(memory)].readers)
                    if (std::ranges::find(after, reader) == after.end())
                        add(in_place, reader);
        }
        drop_implied(after, after, step.block);
        drop_implied(in_place, after, step.block);
        drop_implied(in_place, in_place, step.block);
        if (after.size() + in_place.size() > algorithms::kMaxDependencies)
            return fail(Fault::schedule_file,
                        "{}: in FLX it would have to wait for {} steps that use the same memory, more than {}",
                        from.where, after.size() + in_place.size(), algorithms::kMaxDependencies);
        for (const uint32_t one : after)
            step.depends(one);
        for (const uint32_t one : in_place)
            step.depends_in_place(one);
        schedule_.steps.push_back(step);
        if (step.from.buffer != Buffer::none)
            touched_[memory_of(step.from, step.block)].readers.push_back(index);
        if (step.to.buffer != Buffer::none) {
            Touched &written = touched_[memory_of(step.to, step.block)];
            written.writer = index;
            written.readers.clear();
        }
        return {};
    }
    /// Takes out of `list` what another step of `others` waits for anyway, directly or not, in the same block.
    void drop_implied(std::vector<uint32_t> &list, const std::vector<uint32_t> &others, uint32_t block) const {
        const std::vector<uint32_t> all = others;
        std::erase_if(list, [&](uint32_t one) {
            return std::ranges::any_of(all, [&](uint32_t other) { return other > one && waits(other, one, block); });
        });
    }
    [[nodiscard]] bool waits(uint32_t step, uint32_t before, uint32_t block) const {
        const Step &at = schedule_.steps[step];
        for (uint8_t d = 0; d < at.dependencies && at.block == block; ++d) {
            const uint32_t next = at.after[d];
            if (at.holds(d, false) && schedule_.steps[next].block == block &&
                (next == before || (next > before && waits(next, before, block))))
                return true;
        }
        return false;
    }

    const MscclProgram &program_;
    int rank_;
    Schedule schedule_;
    std::map<MscclChunk, Held> held_;
    std::map<MscclChunk, uint16_t> slots_;
    std::map<Memory, Touched> touched_;
    int asides_ = 0;
};

/// All GPUs, step by step.
class Machine {
  public:
    explicit Machine(const MscclProgram &program) : program_(program) {
        for (int rank = 0; rank < program.size(); ++rank) {
            gpus_.emplace_back(program, rank);
            next_.emplace_back(program.gpus[static_cast<size_t>(rank)].size());
        }
    }

    Status run(std::vector<Schedule> &result) {
        for (bool moved = true; moved;) {
            moved = false;
            for (size_t rank = 0; rank < gpus_.size(); ++rank) {
                for (size_t block = 0; block < next_[rank].size(); ++block) {
                    bool ran = false;
                    FLX_TRY(try_step(rank, block, ran));
                    moved = moved || ran;
                }
            }
        }
        uint8_t phases = 1;
        for (const auto &[key, used] : phases_)
            phases = std::max(phases, used);
        result.resize(gpus_.size());
        for (size_t rank = 0; rank < gpus_.size(); ++rank) {
            for (size_t block = 0; block < next_[rank].size(); ++block) {
                const std::vector<MscclStep> &steps = program_.gpus[rank][block].steps;
                if (next_[rank][block] < steps.size())
                    return fail(Fault::schedule_file,
                                "{}: it never runs, as what it waits for, or is to receive, never comes",
                                steps[next_[rank][block]].where);
            }
            const MscclStep last{.where = fmt::format("gpu {}, at its end", rank)};
            FLX_TRY(gpus_[rank].end(last, result[rank]));
            result[rank].phases = phases;
        }
        return check_queues();
    }

  private:
    using Connection = std::tuple<int, int, int>;  // sender, receiver, channel

    Status check_queues() const {
        for (const auto &[connection, queue] : queues_)
            if (!queue.empty())
                return fail(Fault::schedule_file, "gpu {}: nothing receives chunk {}, which it sends to GPU {}",
                            std::get<0>(connection), queue.front().block, std::get<1>(connection));
        return {};
    }

    Status try_step(size_t rank, size_t block_number, bool &ran) {
        const MscclBlock &block = program_.gpus[rank][block_number];
        size_t &next = next_[rank][block_number];
        if (next == block.steps.size())
            return {};
        const MscclStep &step = block.steps[next];
        if (step.wait_block >= 0 &&
            next_[rank][static_cast<size_t>(step.wait_block)] <= static_cast<size_t>(std::max(step.wait_step, 0)))
            return {};
        const bool receives = step.kind == MscclKind::recv || step.kind >= MscclKind::recv_reduce_copy;
        std::deque<Message> *queue = nullptr;
        if (receives) {
            queue = &queues_[{block.recv, static_cast<int>(rank), block.channel}];
            if (queue->size() < static_cast<size_t>(step.count))
                return {};
        }
        for (int at = 0; at < step.count && step.kind != MscclKind::nop; ++at) {
            Message message;
            if (receives) {
                message = std::move(queue->front());
                queue->pop_front();
                if (message.count != step.count)
                    return fail(Fault::schedule_file, "{}: it receives {} chunks at once, and GPU {} sends {}",
                                step.where, step.count, message.sender, message.count);
            }
            FLX_TRY(run_step(rank, block, step, at, message));
        }
        ++next;
        ran = true;
        return {};
    }

    Status run_step(size_t rank, const MscclBlock &block, const MscclStep &step, int at, const Message &message) {
        Gpu &gpu = gpus_[rank];
        const MscclChunk from{step.from.buffer, step.from.index + at};
        const MscclChunk to{step.to.buffer, step.to.index + at};
        MscclChunk aside;
        switch (step.kind) {
            case MscclKind::nop:
                return {};
            case MscclKind::send:
                return send(rank, block, step, from);
            case MscclKind::recv:
                return gpu.receive(step, to, message);
            case MscclKind::copy:
                return gpu.copy(step, from, to);
            case MscclKind::reduce:
                return gpu.reduce(step, from, to);
            case MscclKind::recv_reduce_copy:
                return gpu.receive_reduce(step, message, from, to);
            case MscclKind::recv_copy_send:
                FLX_TRY(gpu.receive(step, to, message));
                return send(rank, block, step, to);
            case MscclKind::recv_reduce_send:
                FLX_TRY(gpu.receive_reduce_aside(step, message, from, aside));
                return send(rank, block, step, aside);
            case MscclKind::recv_reduce_copy_send:
                FLX_TRY(gpu.receive_reduce(step, message, from, to));
                return send(rank, block, step, to);
        }
        return {};
    }

    Status send(size_t rank, const MscclBlock &block, const MscclStep &step, const MscclChunk &from) {
        Held *held = nullptr;
        FLX_TRY(gpus_[rank].read(step, from, held));
        const auto sender = static_cast<int>(rank);
        uint8_t &phases = phases_[{sender, block.send, static_cast<int>(held->block)}];
        if (phases == kMostPhases)
            return fail(Fault::schedule_file, "{}: it sends chunk {} to GPU {} for more than the {}th time", step.where,
                        held->block, block.send, kMostPhases);
        FLX_TRY(gpus_[rank].send(step, *held, block.send, phases));
        queues_[{sender, block.send, block.channel}].push_back({sender, phases, held->block, held->ranks, step.count});
        ++phases;
        return {};
    }

    const MscclProgram &program_;
    std::deque<Gpu> gpus_;
    std::vector<std::vector<size_t>> next_;  ///< step, by GPU and thread block
    std::map<Connection, std::deque<Message>> queues_;
    std::map<std::tuple<int, int, int>, uint8_t> phases_;  ///< messages so far, by sender, receiver and block
};

}  // namespace

Status schedules_of(const MscclProgram &program, std::vector<Schedule> &result) {
    const bool of_ranks = algorithms::input_layout(program.collective) == Layout::single ||
                          algorithms::output_layout(program.collective) == Layout::single;
    if (of_ranks && program.chunks != program.size())
        return fail(Fault::schedule_file,
                    "the algorithm: it cuts {} into {} chunks for {} GPUs; FLX takes those with one for each",
                    algorithms::name_of(program.collective), program.chunks, program.size());
    for (size_t rank = 0; rank < program.gpus.size(); ++rank) {
        std::map<std::pair<int, int>, size_t> senders;
        std::map<std::pair<int, int>, size_t> receivers;
        for (size_t block = 0; block < program.gpus[rank].size(); ++block) {
            const MscclBlock &one = program.gpus[rank][block];
            if ((one.send >= 0 && !senders.try_emplace({one.send, one.channel}, block).second) ||
                (one.recv >= 0 && !receivers.try_emplace({one.recv, one.channel}, block).second))
                return fail(Fault::schedule_file, "gpu {}, tb {}: another thread block has the same peer and channel",
                            rank, block);
        }
    }
    return Machine(program).run(result);
}

}  // namespace flx::schedules
