#include "runtime/execute/executor.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/base/counters.h"
#include "runtime/elements/dtype.h"
#include "runtime/elements/reduce.h"

namespace flx {

using algorithms::Buffer;
using algorithms::Layout;
using algorithms::Place;
using algorithms::Schedule;
using algorithms::Step;
using algorithms::StepKind;

namespace {

/// Results of this size and more do not stay in a core's cache: write them past it.
constexpr size_t kStreamBytes = 8U << 20;
/// Less than this is never worth a nap.
constexpr uint64_t kTimedBytes = 256 << 10;
/// Of a block that is cut piece by piece: several chunks for every link that matters.
constexpr uint32_t kPieceCells = 64;
constexpr size_t kPieceBytes = 1U << 20;

template <typename T>
void reserve(std::vector<T> &vector, size_t size) {
    if (vector.capacity() < size) {
        Telemetry::count(telemetry().allocations);
        vector.reserve(std::max(size, 2 * vector.capacity()));
    }
}

template <typename T>
void grow(std::vector<T> &vector, size_t size) {
    reserve(vector, size);
    vector.resize(size);
}

}  // namespace

Executor::Executor(int rank, int size, uint32_t comm, std::vector<Link *> links, Router &router, Inbox &inbox)
    : rank_(rank),
      size_(size),
      comm_(comm),
      links_(std::move(links)),
      router_(router),
      held_(size),
      sides_(size),
      owed_(size),
      lanes_(size * links_.size()),
      sources_(size),
      inbox_(inbox) {
    // As many as links usually let a peer have under way; more is possible, and counted as an allocation.
    constexpr size_t kHeldPerPeer = 64;
    for (std::vector<Held> &list : held_)
        list.reserve(kHeldPerPeer);
    for (size_t link = 0; link < links_.size(); ++link)
        if (links_[link] != nullptr && links_[link]->kind() == LinkKind::shm)
            memory_links_ |= 1U << link;
}

Executor::~Executor() {
    for (const std::vector<Held> &list : held_)
        for (const Held &held : list)
            std::free(held.aside);
}

std::byte *Executor::place(const Place &place, size_t offset) const {
    const Schedule &schedule = plan_->schedule();
    switch (place.buffer) {
        case Buffer::input: {
            auto *base = static_cast<std::byte *>(const_cast<void *>(operation_->in));  // only read from
            return schedule.input == Layout::whole ? base + offset * element_bytes_ : base;
        }
        case Buffer::output: {
            auto *base = static_cast<std::byte *>(operation_->out);
            return schedule.output == Layout::whole ? base + offset * element_bytes_ : base;
        }
        case Buffer::scratch:
            return scratch_ + place.slot * scratch_block_bytes_;
        case Buffer::none:
            break;
    }
    return nullptr;
}

void Executor::begin(const std::vector<Step> &steps, const std::vector<int> &peers) {
    steps_ = &steps;
    peers_ = &peers;
    grow(states_, steps.size());
    cursors_.clear();
    active_.clear();
    open_steps_ = 0;
    open_bytes_ = 0;
    link_mask_ = 0;
    movable_ = false;
    stuck_since_ns_ = 0;
    stuck_ = false;
    phase_ends_.assign(times_phases_ && plan_ != nullptr ? plan_->schedule().phases : 0, 0);
    for (const int peer : peers) {
        link_mask_ |= router_.incoming_links(peer);
        sides_[peer] = {router_.outgoing_links(peer), 0, 0, 0, 0, 0, 0, 0};
        std::fill_n(&lane(peer, 0), links_.size(), Lane{});
    }
}

/// Of a step whose state says what it works on. `vector_bytes`: the size that the partition vector is chosen for.
void Executor::open_step(uint32_t index, size_t cell_bytes, uint64_t *words, size_t vector_bytes) {
    const Step &step = (*steps_)[index];
    State &state = states_[index];
    state.cell_elements = cell_bytes / element_bytes_;
    const auto cells = static_cast<uint32_t>((state.count + state.cell_elements - 1) / state.cell_elements);
    state.cells.reset(words, cells);
    state.first_cursor = static_cast<uint32_t>(cursors_.size());
    state.cursors = 0;
    state.whole = false;
    state.exposed = false;
    if (cells == 0)
        return;
    ++open_steps_;
    open_bytes_ += state.count * element_bytes_;
    if (step.kind == StepKind::recv || step.kind == StepKind::recv_reduce)
        return;
    append_counted(active_, index);
    if (step.kind != StepKind::send)
        return;
    const PartitionVector &vector = router_.vector(step.peer, vector_bytes, step.phase);
    size_t most_exposed = 0;
    for (uint32_t mask = exchange_ != nullptr ? memory_links_ : 0; mask != 0; mask &= mask - 1)
        most_exposed = links_[std::countr_zero(mask)]->max_exposed(step.peer, state.from, state.count);
    state.exposed = most_exposed != 0;
    const auto add = [&](const Slice &slice) {
        Link &link = *links_[slice.link];
        uint32_t chunk_cells = 1;
        if (slice.count > 1) {
            const auto share = static_cast<size_t>(vector.share(slice.link) * cells) * cell_bytes;
            const size_t chunk = state.exposed && link.kind() == LinkKind::shm
                                     ? most_exposed
                                     : std::min(link.good_chunk_to(step.peer, share), link.max_chunk());
            chunk_cells = std::max<uint32_t>(1, static_cast<uint32_t>(chunk / cell_bytes));
        }
        cursors_.push_back({slice.link, slice.offset, slice.offset + slice.count, chunk_cells});
        link_mask_ |= 1U << slice.link;
        const size_t bytes = elements(state, slice.offset, slice.count) * element_bytes_;
        Lane &lane = this->lane(step.peer, slice.link);
        lane.left += bytes;
        if (link.kind() == LinkKind::rail && router_.may_move_cells()) {
            Side &side = sides_[step.peer];
            if ((side.sharing >> slice.link & 1) == 0)
                side.believed += lane.believed = router_.rate(slice.link, step.peer);
            side.sharing |= 1U << slice.link;
            side.bytes += bytes;
            lane.before = link.unacknowledged(step.peer);
        }
    };
    const auto piece_cells = std::max(kPieceCells, static_cast<uint32_t>(kPieceBytes / cell_bytes));
    // Room for a share on every link, so that another vector in a later operation allocates nothing.
    reserve(cursors_, cursors_.size() + (cells / piece_cells + 1) * links_.size());
    if (const int only = vector.only(); only >= 0 && cells < piece_cells + piece_cells / 2) {
        state.whole = true;
        add({only, 0, cells});
    } else {
        // A block is cut piece by piece, so that all links go through it from its beginning to its end: ranks that send
        // on what they receive, by vectors of their own, would else wait for the far ends of long slices.
        std::array<Slice, kMaxLinks> slices{};
        // What a cell is too coarse for, the next blocks make up: shares of few cells would else be off for ever.
        PieceCutter cutter(vector, owed_[step.peer]);
        for (uint32_t first = 0, piece = 0; first < cells; first += piece) {
            piece = cells - first < piece_cells + piece_cells / 2 ? cells - first : piece_cells;
            const int count = cutter.next(first, piece, slices);
            for (int s = 0; s < count; ++s)
                add(slices[s]);
        }
        owed_[step.peer] = cutter.owed();
    }
    state.cursors = static_cast<uint32_t>(cursors_.size()) - state.first_cursor;
    const uint32_t takers = router_.takers(step.peer, vector_bytes);
    sides_[step.peer].sharing |= takers;
    link_mask_ |= takers;
    const uint32_t sharing = sides_[step.peer].sharing;
    movable_ = movable_ || (sharing & (sharing - 1)) != 0;  // two or more
}

Status Executor::prepare(const Operation &operation, const Plan &plan, const Blocks &blocks) {
    operation_ = &operation;
    plan_ = &plan;
    exchange_ = nullptr;
    inbox_.begins(operation.sequence);
    element_bytes_ = size_of(operation.dtype);
    const Schedule &schedule = plan.schedule();
    const size_t longest = blocks.longest(operation.count, schedule.blocks);
    const size_t cell_bytes = std::max(cell_bytes_for(longest * element_bytes_), element_bytes_);
    const size_t cell_elements = cell_bytes / element_bytes_;
    stream_ = operation.count * element_bytes_ >= kStreamBytes;

    scratch_block_bytes_ = (longest * element_bytes_ + 63) / 64 * 64;
    const size_t scratch = schedule.scratch_slots * scratch_block_bytes_;
    scratch_ = scratch_memory_.take(scratch);
    if (scratch_ == nullptr && scratch != 0)
        return fail(Fault::no_memory, "no memory for {} bytes of scratch", scratch);

    begin(schedule.steps, plan.peers());
    for (const int peer : plan.peers())
        inbox_.receives(peer, operation.sequence);
    const size_t steps = schedule.steps.size();
    const size_t words = Cells::words_for(static_cast<uint32_t>((longest + cell_elements - 1) / cell_elements));
    grow(bits_, steps * words);
    for (uint32_t index = 0; index < steps; ++index) {
        const Step &step = schedule.steps[index];
        State &state = states_[index];
        const algorithms::Extent extent = blocks.extent(operation.count, schedule.blocks, step.block);
        state.count = extent.count;
        state.from = place(step.from, extent.offset);
        state.to = place(step.to, extent.offset);
        state.sequence = operation.sequence;
        state.signature = operation.signature;
        open_step(index, cell_bytes, bits_.data() + index * words, longest * element_bytes_);
    }
    in_place_ = overwrites(schedule.steps);
    in_order_ = !schedule.groups.empty();
    noted_ = true;
    return {};
}

/// Whether some step writes what one reads that it waits for only then.
bool Executor::overwrites(const std::vector<Step> &steps) const {
    for (size_t index = 0; index < steps.size(); ++index) {
        for (uint32_t mask = steps[index].in_place_only; mask != 0; mask &= mask - 1) {
            const State &writes = states_[index];
            const State &reads = states_[steps[index].after[std::countr_zero(mask)]];
            const std::less<> before;
            if (before(writes.to, reads.from + reads.count * element_bytes_) &&
                before(reads.from, writes.to + writes.count * element_bytes_))
                return true;
        }
    }
    return false;
}

void Executor::prepare(const Operation &operation, const Exchange &exchange) {
    operation_ = &operation;
    plan_ = nullptr;
    exchange_ = &exchange;
    in_order_ = false;
    scratch_ = scratch_memory_.take(0);
    inbox_.begins(operation.sequence);
    exchange.for_each_awaited([&](int peer, uint64_t number) { inbox_.receives(peer, number); });
    element_bytes_ = 1;
    begin(exchange.steps(), exchange.peers());
    const auto words_of = [](size_t bytes) {
        const size_t cell = cell_bytes_for(bytes);
        return Cells::words_for(static_cast<uint32_t>((bytes + cell - 1) / cell));
    };
    size_t words = 0;
    size_t received = 0;
    for (uint32_t index = 0; index < exchange.steps().size(); ++index) {
        words += words_of(exchange.message(index).bytes);
        received += exchange.message(index).to != nullptr ? exchange.message(index).bytes : 0;
    }
    stream_ = received >= kStreamBytes;
    grow(bits_, words);
    words = 0;
    noted_ = operation.sequence != 0;
    for (uint32_t index = 0; index < exchange.steps().size(); ++index) {
        const Exchange::Message &message = exchange.message(index);
        State &state = states_[index];
        state.count = message.done ? 0 : message.bytes;
        state.from = message.from;
        state.to = message.to;
        state.sequence = message.sequence;
        state.signature = message.signature;
        noted_ = noted_ && (message.sequence == operation.sequence || (*steps_)[index].kind == StepKind::copy);
        open_step(index, cell_bytes_for(message.bytes), bits_.data() + words, message.bytes);
        words += words_of(message.bytes);
    }
}

Status Executor::start(const Operation &operation, const Plan &plan, const Blocks &blocks) {
    FLX_TRY(prepare(operation, plan, blocks));
    return opened();
}

Status Executor::start(const Operation &operation, const Exchange &exchange) {
    prepare(operation, exchange);
    return opened();
}

/// What came before this rank began is used, or not needed any more.
Status Executor::opened() {
    constexpr uint64_t kBriefBytes = 64 << 10;
    all_bytes_ = open_bytes_;
    brief_ = open_bytes_ <= kBriefBytes;
    // Of such operations one of sixteen shows how fast links are: what is kept back or copied does not.
    constexpr uint64_t kShortBytes = 1 << 20;
    constexpr uint64_t kUnseenBytes = 16 << 10;
    short_ = open_bytes_ <= kShortBytes && (open_bytes_ <= kUnseenBytes || ++unseen_ % 16 != 0);
    came_ = 0;
    at_hand_ = true;
    as_planned_ = movable_ && all_brief();
    began_ns_ = open_bytes_ >= kTimedBytes || as_planned_ ? now_ns() : 0;
    inbox_.join(*this);
    inbox_.used();
    note(TraceKind::begins);
    const auto use = [&](const Inbox::Early &early, bool &stays) {
        stays = false;
        if (is_mine(early.arrival.peer, early.arrival.header))
            return take(early.arrival, early.link, early.aside);
        if (inbox_.later(early.arrival.peer, early.arrival.header))
            stays = true;
        else if (inbox_.unasked(early.arrival.peer, early.arrival.header))
            return unasked(early.arrival.peer, early.arrival.header);
        else if (early.aside != nullptr)
            std::free(early.aside);
        else
            links_[early.link]->release(early.arrival);
        return Status();
    };
    return exchange_ != nullptr ? inbox_.sift_all(use) : inbox_.sift(operation_->sequence, use);
}

Status Executor::step(bool &any_moved) {
    bool moved = false;
    if (as_planned_ && now_ns() - began_ns_ > kPlannedNs)
        as_planned_ = false;
    if (movable_ && !as_planned_)
        look_at_paces();
    FLX_TRY(advance(moved));
    if (movable_ && !as_planned_)
        FLX_TRY(move_cells(moved));
    for (; unflushed_ != 0; unflushed_ &= unflushed_ - 1)
        links_[static_cast<size_t>(std::countr_zero(unflushed_))]->flush();
    if (!needs_nothing())
        FLX_TRY(take_arrivals(moved));
    if (held_count_ != 0)
        moved |= retry_held();
    if (!brief_)
        take_completions(moved);
    if (std::exchange(used_, false))
        inbox_.used();
    if (moved)
        stuck_since_ns_ = 0;
    stuck_ = !moved && movable_ && is_stuck();
    any_moved |= moved;
    return {};
}

void Executor::finish() {
    if (held_count_ != 0)
        retry_held();
    if (came_ != 0)
        lively_ = came_;
    note(TraceKind::returns);
    steps_ = nullptr;
    inbox_.leave(*this);
}

bool Executor::takes_long(bool woken) const {
    constexpr double kMostRate = 2;  // bytes/ns
    const double long_ns = woken ? 0.15e6 : 1e6;
    // Ranks of one host copy, or wait for one that does: nothing is under way meanwhile.
    if (open_bytes_ < kTimedBytes || (link_mask_ & ~memory_links_) == 0)
        return false;
    const auto elapsed = static_cast<double>(now_ns() - began_ns_);
    const auto done = static_cast<double>(all_bytes_ - open_bytes_);
    return done<kMostRate * elapsed &&static_cast<double>(open_bytes_) * elapsed> long_ns * done;
}

bool Executor::is_mine(int peer, const ChunkHeader &header) const {
    if (steps_ == nullptr)
        return false;
    return exchange_ != nullptr ? exchange_->receiving_step(peer, header.sequence) != Exchange::kNone
                                : header.sequence == operation_->sequence;
}

uint32_t Executor::receiving_step(int peer, const ChunkHeader &header) const {
    return exchange_ != nullptr ? exchange_->receiving_step(peer, header.sequence)
                                : plan_->receiving_step(peer, header.phase, header.block);
}

uint32_t Executor::sending_step(int peer, const ChunkHeader &header) const {
    if (exchange_ != nullptr)
        return exchange_->sending_step(peer, header.sequence);
    if (header.sequence != operation_->sequence)
        return Plan::kNone;
    return plan_->sending_step(peer, header.phase, header.block);
}

uint32_t Executor::ready(const Step &step, uint32_t first, uint32_t limit) const {
    for (uint32_t d = 0; d < step.dependencies && limit != 0; ++d) {
        const Cells &before = states_[step.after[d]].cells;
        if (step.holds(d, in_place_))
            limit = before.run_done(first, limit);
    }
    return limit;
}

void Executor::mark(uint32_t index, uint32_t first, uint32_t cells) {
    State &state = states_[index];
    state.cells.mark(first, cells);
    used_ = true;
    open_bytes_ -= elements(state, first, cells) * element_bytes_;
    if (!state.cells.complete())
        return;
    --open_steps_;
    if (!phase_ends_.empty()) [[unlikely]]
        phase_ends_[(*steps_)[index].phase] = now_ns();
}

Progress Executor::progress() const {
    Progress progress;
    if (steps_ == nullptr)
        return progress;
    constexpr size_t kMost = UINT16_MAX;
    size_t done = 0;
    size_t all = 0;
    uint8_t first_open = UINT8_MAX;
    for (uint32_t index = 0; index < steps_->size(); ++index) {
        const Cells &cells = states_[index].cells;
        if (cells.size() == 0)
            continue;
        ++all;
        if (cells.complete())
            ++done;
        else
            first_open = std::min(first_open, (*steps_)[index].phase);
    }
    progress.steps = static_cast<uint16_t>(std::min(all, kMost));
    progress.steps_done = static_cast<uint16_t>(std::min(done, kMost));
    progress.phases = plan_ != nullptr ? plan_->schedule().phases : 0;
    progress.phase = first_open == UINT8_MAX ? progress.phases : first_open;
    return progress;
}

void Executor::phases_done(std::vector<PhaseDone> &result) const {
    result.clear();
    int64_t began_ns = 0;
    for (size_t phase = 0; phase < phase_ends_.size(); ++phase) {
        PhaseDone done;
        done.began_ns = began_ns;
        done.ended_ns = began_ns = std::max(began_ns, phase_ends_[phase]);
        done.phase = static_cast<uint8_t>(phase);
        done.phases = static_cast<uint8_t>(phase_ends_.size());
        for (uint32_t index = 0; index < steps_->size(); ++index)
            if (const Step &step = (*steps_)[index]; step.kind == StepKind::send && step.phase == phase)
                done.bytes += states_[index].count * element_bytes_;
        result.push_back(done);
    }
}

size_t Executor::elements(const State &state, uint32_t first, uint32_t cells) const {
    return std::min(size_t{cells} * state.cell_elements, state.count - first * state.cell_elements);
}

void Executor::apply(uint32_t index, uint32_t first, uint32_t cells, const std::byte *data) {
    const Step &step = (*steps_)[index];
    State &state = states_[index];
    const size_t offset = size_t{first} * state.cell_elements * element_bytes_;
    const size_t count = elements(state, first, cells);
    std::byte *to = state.to + offset;
    if (step.kind == StepKind::recv) {
        copy_bytes(to, data, count * element_bytes_, stream_);
    } else {
        const std::byte *from = state.from + offset;
        const std::byte *left = step.received_first ? data : from;
        const std::byte *right = step.received_first ? from : data;
        reduce_pair(operation_->dtype, operation_->op, to, left, right, count);
        if (step.finish && operation_->op == FLX_AVG)
            divide(operation_->dtype, to, count, divisor());
    }
    mark(index, first, cells);
}

/// Uses up as much of an arrival as its step is ready for. True if all of it; then it is released.
bool Executor::consume(Held &held) {
    const Step &step = (*steps_)[held.step];
    const ChunkHeader &header = held.arrival.header;
    const Cells &cells = states_[held.step].cells;
    const size_t cell_bytes = states_[held.step].cell_elements * element_bytes_;
    const uint32_t end = header.first_cell + header.cells;
    for (uint32_t cell = end - held.remaining; cell < end; cell = end - held.remaining) {
        const uint32_t open = cells.run_open(cell, end - cell);
        if (open == 0) {  // a late duplicate of a cell that is done
            note_cells(TraceKind::drops, held, cell, 1);
            --held.remaining;
            continue;
        }
        const uint32_t run = ready(step, cell, open);
        if (run == 0)
            return false;
        apply(held.step, cell, run, held.arrival.data + (cell - header.first_cell) * cell_bytes);
        note_cells(TraceKind::uses, held, cell, run);
        held.remaining -= run;
    }
    give_back(held);
    return true;
}

void Executor::give_back(const Held &held) {
    if (held.aside != nullptr) {
        std::free(held.aside);
        return;
    }
    note(TraceKind::acknowledges, held.link, held.arrival.peer, held.arrival.header);
    links_[held.link]->release(held.arrival);
}

/// Whether nothing has moved for so long that ranks may wait for each other.
bool Executor::is_stuck() {
    constexpr int64_t kPatienceNs = 20'000'000;
    const int64_t now = now_ns();
    if (stuck_since_ns_ == 0)
        stuck_since_ns_ = now;
    if (now - stuck_since_ns_ < kPatienceNs)
        return false;
    stuck_since_ns_ = 0;
    return true;
}

/// Links lose the order of cells when cells move between them. Ranks that fill a receiver's room with different cells
/// of one sum would wait for each other: it then copies what it holds, and so gives the room back. Rare: only where
/// something came from every rank of the sum and yet no cell is complete.
bool Executor::set_aside(bool all) {
    const auto gathers = [&](const Held &held) {
        return (*steps_)[held.step].kind == StepKind::gather_reduce && held.remaining != 0;
    };
    if (!all) {
        if (plan_ == nullptr)
            return false;
        const auto all_came = [&](const std::vector<int32_t> &group) {
            return std::all_of(group.begin(), group.end(), [&](int peer) {
                return peer == rank_ || std::any_of(held_[peer].begin(), held_[peer].end(), gathers);
            });
        };
        // Where a rank makes several sums, one of them may wait for what has no room because of another.
        const std::vector<std::vector<int32_t>> &groups = plan_->schedule().groups;
        const auto sums = std::ranges::count(*steps_, StepKind::gather_reduce, &Step::kind);
        if (sums == 0 || (sums == 1 && !all_came(groups[0])))
            return false;
    }
    bool copied = false;
    for (const int peer : *peers_) {
        for (Held &held : held_[peer]) {
            if (held.aside != nullptr || (!all && !gathers(held)))
                continue;
            Telemetry::count(telemetry().allocations);
            held.aside = static_cast<std::byte *>(std::malloc(held.arrival.header.bytes));
            if (held.aside == nullptr)
                return copied;
            std::memcpy(held.aside, held.arrival.data, held.arrival.header.bytes);
            note(TraceKind::keeps, held.link, held.arrival.peer, held.arrival.header);
            links_[held.link]->release(held.arrival);
            held.arrival.data = held.aside;
            copied = true;
        }
    }
    return copied;
}

bool Executor::awaits(int peer) const {
    if (steps_ == nullptr)
        return false;
    for (uint32_t index = 0; index < steps_->size(); ++index) {
        const Step &step = (*steps_)[index];
        const bool gathers = step.kind == StepKind::gather_reduce;
        if (states_[index].cells.complete() || step.kind == StepKind::send || step.kind == StepKind::copy)
            continue;
        if (gathers || step.peer == peer)
            return true;
    }
    return false;
}

Status Executor::accept(const Arrival &arrival, int link) {
    const ChunkHeader &header = arrival.header;
    if (is_mine(arrival.peer, header))
        return take(arrival, link, nullptr);
    for (Executor *other : inbox_.running())
        if (other->is_mine(arrival.peer, header))
            return other->take(arrival, link, nullptr);
    if (inbox_.later(arrival.peer, header)) {
        inbox_.keep(arrival, link);
    } else if (inbox_.unasked(arrival.peer, header)) {
        return unasked(arrival.peer, header);
    } else {  // it came late and is not needed
        note(TraceKind::acknowledges, link, arrival.peer, header);
        links_[link]->release(arrival);
    }
    return {};
}

Status Executor::take(const Arrival &arrival, int link, std::byte *aside) {
    const ChunkHeader &header = arrival.header;
    const uint32_t index = receiving_step(arrival.peer, header);
    if (exchange_ != nullptr ? header.signature != states_[index].signature : header.signature != operation_->signature)
        return mismatch(arrival.peer, header, index);
    const bool fits = index != Plan::kNone && header.cells != 0 &&
                      uint64_t{header.first_cell} + header.cells <= states_[index].cells.size() &&
                      elements(states_[index], header.first_cell, header.cells) * element_bytes_ == header.bytes;
    if (!fits)
        return fail(Fault::calls_differ,
                    "rank {} sent {} bytes as cells {}+{} of block {}, phase {}, which operation {} does not have",
                    arrival.peer, header.bytes, header.first_cell, header.cells, header.block, header.phase,
                    header.sequence & ~kPairwise);
    note(TraceKind::arrives, link, arrival.peer, header);
    if (arrival.data == nullptr)
        return fetch(arrival, link, index);
    Held held{arrival, link, index, header.cells, aside};
    if ((*steps_)[index].kind != StepKind::gather_reduce && consume(held))
        return {};
    append_counted(held_[arrival.peer], held);
    ++held_count_;
    return {};
}

/// Of a message, which waits for nothing: all of it at once.
Status Executor::fetch(const Arrival &arrival, int link, uint32_t step) {
    const ChunkHeader &header = arrival.header;
    State &state = states_[step];
    const size_t cell_bytes = state.cell_elements * element_bytes_;
    const uint32_t end = header.first_cell + header.cells;
    for (uint32_t cell = header.first_cell; cell < end;) {
        const uint32_t open = state.cells.run_open(cell, end - cell);
        if (open != 0) {
            FLX_TRY(links_[link]->fetch(arrival, (cell - header.first_cell) * cell_bytes, state.to + cell * cell_bytes,
                                        elements(state, cell, open) * element_bytes_));
            mark(step, cell, open);
        }
        cell += std::max(open, 1U);
    }
    note(TraceKind::acknowledges, link, arrival.peer, header);
    links_[link]->release(arrival);
    return {};
}

/// The sender's call is not this rank's.
Status Executor::mismatch(int peer, const ChunkHeader &header, uint32_t step) const {
    if (exchange_ == nullptr)
        return fail(
            Fault::calls_differ,
            "rank {} called another collective, or the same with another count, type, reduction or root, as its "
            "operation {}; all ranks must call alike (FLX_CHECK=1 says what differs)",
            peer, header.sequence);
    const size_t expected = states_[step].count;
    if ((header.sequence & kPairwise) != 0)
        return fail(Fault::bytes_differ,
                    "rank {} sends {} bytes as its message {} to rank {}, which receives {} bytes there; both must "
                    "name the same number of bytes",
                    peer, header.signature, header.sequence & ~kPairwise, rank_, expected);
    if (exchange_->message(step).of_hosts)
        return fail(
            Fault::bytes_differ,
            "in operation {} ranks of the host of rank {} send {} bytes to ranks of the host of rank {}, lengths "
            "of messages included, where {} bytes are received, or called another collective; the counts of "
            "both sides must agree",
            header.sequence, peer, header.signature, rank_, expected);
    return fail(Fault::bytes_differ,
                "rank {} sends {} bytes to rank {} in operation {} where {} bytes are received, or called another "
                "collective; the counts of both sides must agree",
                peer, header.signature, rank_, header.sequence, expected);
}

/// This rank's part of the operation has nothing from `peer`.
Status Executor::unasked(int peer, const ChunkHeader &header) const {
    return fail(
        Fault::bytes_differ,
        "rank {} sends {} bytes or more to rank {} in operation {} where nothing is received, or called another "
        "collective; the counts of both sides must agree",
        peer, header.bytes, rank_, header.sequence);
}

/// A look at a rail is a system call or two, and in a short operation all but one of them find nothing. So rails over
/// which nothing came lately are looked at now and then: often enough for what changed its way.
uint32_t Executor::links_to_poll() {
    constexpr uint32_t kTurnsPerLook = 8;
    const uint32_t lively = (lively_ | came_) & link_mask_;
    if (!brief_ || lively == 0 || ++turns_ % kTurnsPerLook == 0)
        return link_mask_;
    return lively | (link_mask_ & memory_links_);
}

/// A rank that only sends, or has just passed on what it got, has no use for what a look at its links would find. What
/// is still under way after the call the communicator settles, and the guard of the process when no call follows. Who
/// makes only such calls still looks now and then: acknowledgements make room, and a line on which nobody looks is
/// taken for lost.
bool Executor::needs_nothing() {
    constexpr uint32_t kCallsPerLook = 32;  // as acknowledgements come
    constexpr uint64_t kBytesPerLook = 32 << 10;
    if (!brief_ || open_steps_ != 0)
        return false;
    unlooked_bytes_ += all_bytes_;
    if (unlooked_++ % kCallsPerLook != 0 && unlooked_bytes_ < kBytesPerLook)
        return true;
    unlooked_bytes_ = 0;
    return false;
}

/// Calls follow each other so closely at times that what one waits for came with what the last one waited for.
Status Executor::take_arrivals(bool &moved) {
    const bool at_hand = brief_ && at_hand_;
    at_hand_ = false;
    for (uint32_t mask = links_to_poll(); mask != 0; mask &= mask - 1) {
        const int index = std::countr_zero(mask);
        bool came = false;
        if (at_hand)
            FLX_TRY(take_from(index, false, came));
        if (!came) {
            links_[index]->progress();  // what a transport does within itself is no news: arrivals and completions are
            FLX_TRY(take_from(index, true, came));
        }
        at_hand_ |= came;
    }
    moved |= at_hand_;
    return {};
}

/// One chunk of each peer keeps the pipeline's steps interleaved, so that what came in is used while in the cache.
/// `looked`: the link was looked at just now, so one that has nothing may be asked whether it is lost.
Status Executor::take_from(int index, bool looked, bool &came) {
    Link &link = *links_[index];
    for (const int peer : *peers_) {
        if ((router_.incoming_links(peer) >> index & 1) == 0)
            continue;
        Arrival arrival;
        if (link.receive(peer, arrival)) {
            came = true;
            came_ |= 1U << index;
            FLX_TRY(accept(arrival, index));
        } else if (looked && link.kind() != LinkKind::shm) {
            FLX_TRY(link.error(peer));
        }
    }
    return {};
}

bool Executor::retry_held() {
    bool moved = false;
    for (const int peer : *peers_) {
        std::vector<Held> &list = held_[peer];
        size_t kept = 0;
        for (size_t i = 0; i < list.size(); ++i) {
            Held &held = list[i];
            const uint32_t before = held.remaining;
            bool gone = false;
            if ((*steps_)[held.step].kind == StepKind::gather_reduce) {
                // A duplicate keeps cells that its twin was used for: it must not hold the link's room until the end.
                const ChunkHeader &header = held.arrival.header;
                gone = held.remaining == 0 ||
                       states_[held.step].cells.run_done(header.first_cell, header.cells) == header.cells;
                if (gone)
                    give_back(held);
            } else {
                gone = consume(held);
                moved |= held.remaining != before;
            }
            if (gone) {
                --held_count_;
                moved = true;
            } else {
                list[kept++] = held;
            }
        }
        list.resize(kept);
    }
    return moved;
}

void Executor::take_completions(bool &moved) {
    for (uint32_t mask = link_mask_; mask != 0; mask &= mask - 1) {
        Link &link = *links_[std::countr_zero(mask)];
        Completion completion;
        while (link.completed(completion)) {
            moved |= take_completion(completion, std::countr_zero(mask));
            for (Executor *other : inbox_.running())
                moved |= other != this && other->take_completion(completion, std::countr_zero(mask));
        }
    }
}

bool Executor::take_completion(const Completion &completion, int link) {
    const ChunkHeader &header = completion.header;
    const uint32_t step = steps_ == nullptr ? Plan::kNone : sending_step(completion.peer, header);
    if (step == Plan::kNone)
        return false;
    note(TraceKind::acknowledged, link, completion.peer, header);
    mark(step, header.first_cell, header.cells);
    return true;
}

Status Executor::advance(bool &moved) {
    size_t kept = 0;
    for (const int peer : *peers_)
        sides_[peer].engaged = sides_[peer].taken = 0;
    Status status;
    for (const uint32_t index : active_) {
        bool finished = false;
        switch ((*steps_)[index].kind) {
            case StepKind::send: {
                if (status.ok())
                    status = advance_send(index, moved);
                const State &state = states_[index];
                finished = std::all_of(cursors_.begin() + state.first_cursor,
                                       cursors_.begin() + state.first_cursor + state.cursors,
                                       [](const Cursor &cursor) { return cursor.next == cursor.end; });
                break;
            }
            case StepKind::gather_reduce:
                moved |= advance_gather(index);
                finished = states_[index].cells.complete();
                break;
            case StepKind::copy:
                moved |= advance_copy(index);
                finished = states_[index].cells.complete();
                break;
            default:
                break;
        }
        if (!finished)
            active_[kept++] = index;
    }
    active_.resize(kept);
    return status;
}

const Executor::Held *Executor::held_cell(int peer, uint32_t step, uint32_t cell) const {
    for (const Held &held : held_[peer]) {
        const ChunkHeader &header = held.arrival.header;
        if (held.step == step && held.remaining != 0 && cell >= header.first_cell &&
            cell < header.first_cell + header.cells)
            return &held;
    }
    return nullptr;
}

/// Reduces the first run of cells that has come from every member of the group.
bool Executor::advance_gather(uint32_t index) {
    const Schedule &schedule = plan_->schedule();
    const Step &step = schedule.steps[index];
    State &state = states_[index];
    const size_t cell_bytes = state.cell_elements * element_bytes_;
    const std::vector<int32_t> &group = schedule.group_of(step);
    const int first_peer = group[0] != rank_ ? group[0] : group[1];
    for (const Held &candidate : held_[first_peer]) {
        if (candidate.step != index || candidate.remaining == 0)
            continue;
        const ChunkHeader &header = candidate.arrival.header;
        const uint32_t end = header.first_cell + header.cells;
        uint32_t cell = header.first_cell;
        while (cell < end && state.cells.test(cell))
            ++cell;
        if (cell == end)
            continue;
        uint32_t run = ready(step, cell, state.cells.run_open(cell, end - cell));
        const size_t offset = cell * cell_bytes;
        for (size_t member = 0; member < group.size() && run != 0; ++member) {
            const int peer = group[member];
            if (peer == rank_) {
                sources_[member] = state.from + offset;
                continue;
            }
            const Held *held = held_cell(peer, index, cell);
            if (held == nullptr) {
                run = 0;
                break;
            }
            const ChunkHeader &theirs = held->arrival.header;
            run = std::min(run, theirs.first_cell + theirs.cells - cell);
            sources_[member] = held->arrival.data + (cell - theirs.first_cell) * cell_bytes;
        }
        if (run == 0)
            continue;
        // Stores stay in the cache: what was reduced is sent on next.
        reduce_many(operation_->dtype, operation_->op, state.to + offset, sources_.data(),
                    static_cast<int>(group.size()), elements(state, cell, run),
                    step.finish && operation_->op == FLX_AVG ? divisor() : 1, false);
        for (const int peer : group)
            if (peer != rank_ && trace_ != nullptr)
                note_cells(TraceKind::uses, *held_cell(peer, index, cell), cell, run);
        for (const int peer : group)
            if (peer != rank_)
                const_cast<Held *>(held_cell(peer, index, cell))->remaining -= run;
        mark(index, cell, run);
        return true;
    }
    return false;
}

bool Executor::advance_copy(uint32_t index) {
    const Step &step = (*steps_)[index];
    State &state = states_[index];
    bool moved = false;
    for (uint32_t cell = 0; cell < state.cells.size();) {
        const uint32_t open = state.cells.run_open(cell, state.cells.size() - cell);
        if (open == 0) {
            ++cell;
            continue;
        }
        const uint32_t run = ready(step, cell, open);
        if (run == 0)
            break;
        const size_t offset = size_t{cell} * state.cell_elements * element_bytes_;
        if (state.to != state.from)
            copy_own(state.to + offset, state.from + offset, elements(state, cell, run) * element_bytes_);
        mark(index, cell, run);
        cell += run;
        moved = true;
    }
    return moved;
}

void Executor::awaited(std::vector<Awaited> &result) const {
    if (steps_ == nullptr)
        return;
    const auto add = [&](int peer, bool receiving, const State &state) {
        const uint64_t bytes = elements(state, 0, state.cells.size() - state.cells.done()) * element_bytes_;
        for (Awaited &entry : result) {
            if (entry.peer == peer && entry.receiving == receiving) {
                entry.bytes += bytes;
                return;
            }
        }
        result.push_back({peer, receiving, bytes});
    };
    for (uint32_t index = 0; index < steps_->size(); ++index) {
        const State &state = states_[index];
        const Step &step = (*steps_)[index];
        if (state.cells.size() == 0 || state.cells.complete())
            continue;
        if (step.kind == StepKind::gather_reduce) {
            for (const int peer : plan_->schedule().group_of(step))
                if (peer != rank_ && held_[peer].empty())
                    add(peer, true, state);
        } else if (step.kind != StepKind::copy) {
            add(step.peer, step.kind != StepKind::send, state);
        }
    }
}

}  // namespace flx
