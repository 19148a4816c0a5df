/// The sending side of the executor: what each link sends of its own slices, and how cells that were not sent move to
/// other links.
///
/// A vector that was right for the last operations is not quite right for this one, and a rail may slow down at any
/// time. So a link that has room, and nothing of its own that is ready, takes cells from the link that would end last,
/// if they would arrive sooner that way: greedy list scheduling (Graham 1969), which ends within one chunk's time of
/// the best. It takes them from the far end of the slice that the other is at, so that what is left stays one range and
/// what is needed first stays on its way. Receivers place cells by identity and do not notice.
#include <algorithm>
#include <bit>
#include <limits>

#include "runtime/execute/executor.h"

namespace flx {

using algorithms::Step;
using algorithms::StepKind;

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kEnough = 1 + 1.0 / 16;  // of the time until the end
/// Pieces smaller than this cost more than an even end is worth.
constexpr size_t kLeastMove = 8 * 1024;
/// A chunk of a short operation that goes over one rail: what a message costs is most of what it takes.
constexpr size_t kMostCopied = 64 * 1024;

}  // namespace

/// Whether links that deliver as they did before need less than kBriefNs. Not where some only take what others leave.
bool Executor::all_brief() const {
    return std::ranges::all_of(*peers_, [this](int peer) {
        const Side &side = sides_[peer];
        for (uint32_t mask = side.sharing; mask != 0; mask &= mask - 1)
            if (lane(peer, std::countr_zero(mask)).believed <= 0)
                return false;
        return static_cast<double>(side.bytes) <= side.believed * static_cast<double>(kBriefNs);
    });
}

/// How the links towards each peer do now.
void Executor::look_at_paces() {
    for (const int peer : *peers_) {
        Side &side = sides_[peer];
        side.end_ns = 0;
        if (std::popcount(side.sharing) < 2)
            continue;
        const bool brief = static_cast<double>(side.bytes) < side.believed * static_cast<double>(kBriefNs);
        double rates = 0;
        double bytes = 0;
        bool known = true;
        for (uint32_t mask = side.sharing; mask != 0; mask &= mask - 1) {
            const int link = std::countr_zero(mask);
            Lane &lane = this->lane(peer, link);
            const Pace pace = links_[link]->pace(peer);
            lane.rate = brief && lane.believed > 0 && !pace.late ? lane.believed : pace.bytes_per_ns;
            lane.latency_ns = pace.round_trip_ns / 2;
            // A message that the peer has not asked for yet says nothing about how fast the link empties.
            const uint64_t under = links_[link]->unacknowledged(peer);
            lane.before = std::min(lane.before, under);
            lane.under = under - lane.before;
            bytes += static_cast<double>(lane.left);
            if ((side.lost >> link & 1) != 0)
                continue;
            bytes += static_cast<double>(lane.under);
            rates += lane.rate;
            known = known && lane.rate > 0;
        }
        if (known && rates > 0)
            side.end_ns = bytes / rates;
    }
}

/// When the link would have delivered what is under way, its own slices, and `more` bytes.
double Executor::end_ns(const Lane &lane, size_t more) {
    return lane.rate > 0 ? static_cast<double>(lane.under + lane.left + more) / lane.rate + lane.latency_ns : kNever;
}

/// Whether a link has enough under way to be busy until all others are done, `more` bytes included.
bool Executor::busy_until_end(const Side &side, const Lane &lane, size_t more) {
    return side.end_ns > 0 && lane.under != 0 &&
           static_cast<double>(lane.under + more) > side.end_ns * kEnough * lane.rate;
}

/// Sends cells first … first + cells - 1, one end of what `cursor` has left, over `link`.
Status Executor::send_run(uint32_t index, Cursor &cursor, int link, uint32_t first, uint32_t cells, bool &moved) {
    const Step &step = (*steps_)[index];
    State &state = states_[index];
    Side &side = sides_[step.peer];
    const size_t bytes = elements(state, first, cells) * element_bytes_;
    const ChunkHeader header{
        state.sequence, comm_, state.signature, step.phase, step.block, first, cells, static_cast<uint32_t>(bytes), 0};
    side.engaged |= 1U << link;
    const std::byte *from = state.from + first * state.cell_elements * element_bytes_;
    const bool exposed = state.exposed && links_[link]->kind() == LinkKind::shm;
    const auto send = [&] {
        if (exposed)
            return links_[link]->expose(step.peer, header, from);
        if (!short_)
            return links_[link]->send(step.peer, header, from);
        unflushed_ |= 1U << link;
        return links_[link]->send_soon(step.peer, header, from);
    };
    switch (send()) {
        case SendResult::busy:
            // A link that is lost may say that it has no room rather than that it failed.
            return links_[link]->state(step.peer) == LinkState::lost ? link_failed(link, step.peer) : Status();
        case SendResult::failed:
            return link_failed(link, step.peer);
        case SendResult::copied:
            note(TraceKind::copies, link, step.peer, header);
            mark(index, first, cells);
            break;
        case SendResult::in_flight:
            note(TraceKind::sends, link, step.peer, header);
            used_ = true;
            brief_ = false;
            break;
    }
    side.lost &= ~(1U << link);
    lane(step.peer, cursor.link).left -= bytes;
    lane(step.peer, link).under += bytes;
    if (first == cursor.next)
        cursor.next += cells;
    else
        cursor.end -= cells;
    moved = true;
    return {};
}

/// The link takes nothing. An error where nothing else reaches the peer; else its cells go to other links.
Status Executor::link_failed(int link, int peer) {
    Side &side = sides_[peer];
    FLX_TRY(links_[link]->error(peer));
    if ((side.lost >> link & 1) != 0)
        return {};
    side.lost |= 1U << link;
    movable_ = true;
    as_planned_ = false;
    for (uint32_t mask = side.may; mask != 0; mask &= mask - 1)
        link_mask_ |= mask & -mask;
    router_.lost(link, peer);
    return {};
}

/// What the links have left of their own slices: one chunk each. A link that has enough under way to be busy until all
/// others are done takes no more: what it leaves can go another way. Not for long, since what is under way may be held
/// by a peer that waits for others.
///
/// Where a peer makes several sums, the room for what comes there must not be filled with cells of one by one rank and
/// of another by the next: each would wait for the other's. So the steps before go first.
Status Executor::advance_send(uint32_t index, bool &moved) {
    const Step &step = (*steps_)[index];
    State &state = states_[index];
    Side &side = sides_[step.peer];
    while (state.cursors != 0 && cursors_[state.first_cursor].next == cursors_[state.first_cursor].end) {
        ++state.first_cursor;
        --state.cursors;
    }
    uint32_t served = 0;  // links that had something
    for (uint32_t c = state.first_cursor; c < state.first_cursor + state.cursors; ++c) {
        Cursor &cursor = cursors_[c];
        if (cursor.next == cursor.end || ((served | side.taken) >> cursor.link & 1) != 0)
            continue;
        uint32_t most = cursor.chunk_cells;
        if (short_ && state.whole && (memory_links_ >> cursor.link & 1) == 0) {
            const size_t chunk = std::min(kMostCopied, links_[cursor.link]->max_chunk());
            most = std::max(most, static_cast<uint32_t>(chunk / (state.cell_elements * element_bytes_)));
        }
        const uint32_t run = ready(step, cursor.next, std::min(most, cursor.end - cursor.next));
        if (run == 0)
            continue;
        served |= 1U << cursor.link;
        if (!stuck_ && side.end_ns > 0 && (side.sharing >> cursor.link & 1) != 0) {
            if (busy_until_end(side, lane(step.peer, cursor.link),
                               elements(state, cursor.next, run) * element_bytes_)) {
                side.engaged |= 1U << cursor.link;
                continue;
            }
        }
        FLX_TRY(send_run(index, cursor, cursor.link, cursor.next, run, moved));
    }
    for (uint32_t c = state.first_cursor; in_order_ && c < state.first_cursor + state.cursors; ++c)
        if (cursors_[c].next != cursors_[c].end && (served >> cursors_[c].link & 1) != 0)
            side.taken |= 1U << cursors_[c].link;
    return {};
}

Status Executor::move_cells(bool &moved) {
    for (const uint32_t index : active_)
        if ((*steps_)[index].kind == StepKind::send)
            FLX_TRY(move_cells_of(index, moved));
    return {};
}

/// Of a send step, the first cursor of the link that would end last, not being `taker`, among those that cannot send
/// what is ready now.
Executor::Cursor *Executor::slowest_cursor(uint32_t index, int taker, double &end) {
    const State &state = states_[index];
    const Step &step = (*steps_)[index];
    const int peer = step.peer;
    const Side &side = sides_[peer];
    Cursor *slowest = nullptr;
    end = 0;
    for (uint32_t c = state.first_cursor; c < state.first_cursor + state.cursors; ++c) {
        Cursor &cursor = cursors_[c];
        const uint32_t bit = 1U << cursor.link;
        if (cursor.next == cursor.end || cursor.link == taker || (side.engaged & bit) == 0)
            continue;
        if (ready(step, cursor.next, 1) == 0)
            continue;
        const bool lost = (side.lost & bit) != 0;
        if (!lost && (side.sharing & bit) == 0)
            continue;
        const double ends = lost ? kNever : end_ns(lane(peer, cursor.link), 0);
        if (!lost && ends == kNever)  // nobody knows
            continue;
        if (ends > end) {
            end = ends;
            slowest = &cursor;
        }
    }
    return slowest;
}

/// One chunk for each link that has nothing else to do now.
Status Executor::move_cells_of(uint32_t index, bool &moved) {
    const Step &step = (*steps_)[index];
    const Side &side = sides_[step.peer];
    const uint32_t takers = (side.lost != 0 ? side.may | side.sharing : side.sharing) & ~side.engaged & ~side.lost;
    for (uint32_t mask = takers; mask != 0; mask &= mask - 1) {
        const int taker = std::countr_zero(mask);
        double end = 0;
        Cursor *cursor = slowest_cursor(index, taker, end);
        if (cursor == nullptr)
            return {};
        const bool lost = end == kNever;
        if (!lost && (side.sharing >> taker & 1) == 0)
            continue;
        const size_t cell_bytes = states_[index].cell_elements * element_bytes_;
        const uint32_t left = cursor->end - cursor->next;
        const Link &link = *links_[taker];
        // Pieces become shorter towards the end, so that neither of the two ends much later than the other.
        const size_t chunk = std::min(link.good_chunk_to(step.peer, size_t{left} * cell_bytes), link.max_chunk());
        const auto least = static_cast<uint32_t>((kLeastMove + cell_bytes - 1) / cell_bytes);
        uint32_t cells = std::max<uint32_t>(1, static_cast<uint32_t>(chunk / cell_bytes));
        cells = std::min({cells, left, std::max(least, (left + 1) / 2)});
        const Lane &own = lane(step.peer, taker);
        if (!lost && (end_ns(own, cells * cell_bytes) >= end || busy_until_end(side, own, cells * cell_bytes)))
            continue;
        // What comes last may not be ready yet where it must be received first.
        uint32_t first = cursor->end - cells;
        if (ready(step, first, cells) != cells) {
            first = cursor->next;
            cells = ready(step, first, cells);
        }
        if (cells != 0)
            FLX_TRY(send_run(index, *cursor, taker, first, cells, moved));
    }
    return {};
}

}  // namespace flx
