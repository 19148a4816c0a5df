/// \file bulk_roles.h
/// What the warps of a block do in a reduction by bulk copies (bulk.h). They have parts of their own, so that none
/// waits for what another one does:
///   - `send` copies tiles of the input to shared memory and from there to the peer's slots;
///   - `take` copies this rank's own tiles, and those that came, to shared memory in pairs;
///   - `add`, of all other warps, adds pairs and writes the results;
///   - `tell` tells the peer how far sending and adding have come, `hear` hears that of the peer.
/// A release waits for all that its thread has under way, hence warps of their own for flags: with the sender telling,
/// 16 blocks reached half of what they do (H200). Only `hear` waits for what is outside of the block, and so for peers
/// that may be gone; the others' waits end with it.
///
/// Copies go from and to multiples of 16 bytes: tiles lie in shared memory and in slots as far behind such a multiple
/// as in the input, and what is left at either end is copied by the lanes of a warp.
///
/// The code is the same for a kernel and for host threads (tests): a `Chip` is a lane, and says how lanes meet, how
/// copies are begun and awaited, and how words and flags are read and written.
#pragma once

#include "runtime/cuda/protocol/bulk.h"

namespace flx::cuda {

inline constexpr uint32_t kBulkSending = 6;  ///< tiles in shared memory that are on their way to the peer
inline constexpr uint32_t kBulkFlying = 3;   ///< of them, those that have left it
inline constexpr uint32_t kBulkTaking = 4;   ///< pairs of tiles that are added
inline constexpr uint32_t kBulkShared = (kBulkSending + 2 * kBulkTaking) * kBulkSlot;
static_assert(kBulkFlying < kBulkSending);

/// What the warps of a block share.
template <class Barrier>
struct BulkBoard {
    Barrier filled[kBulkSending];  ///< a tile has come from the input,
    Barrier paired[kBulkTaking];   ///< two tiles have come that are to be added,
    Barrier added[kBulkTaking];    ///< and were
    uint32_t told[kStages];        ///< by stage, the number to signal to the peer
    uint32_t heard[kStages];       ///< and the number that the peer has signalled
    uint32_t read;                 ///< tiles to send that are out of the input
    uint32_t over;                 ///< not 0: the peer is given up
};

template <class Chip>
class BulkRoles {
  public:
    using Board = BulkBoard<typename Chip::Barrier>;

    FLX_HD BulkRoles(Chip &chip, const Job &job, const BulkTeam &team, Board &board)
        : chip_(chip), job_(job), team_(team), board_(board) {}

    /// Makes the barriers: called by one lane, before all others begin.
    FLX_HD void prepare(uint32_t adders, bool alive) {
        for (auto &barrier : board_.filled)
            chip_.make(barrier, 1);
        for (auto &barrier : board_.paired)
            chip_.make(barrier, 2);
        for (auto &barrier : board_.added)
            chip_.make(barrier, adders);
        for (int stage = 0; stage < kStages; ++stage) {
            board_.told[stage] = team_.number(0) - 1;
            board_.heard[stage] = team_.number(0) - 2;
        }
        if (team_.takes() == 0)
            board_.told[kGathered] = team_.end();
        board_.read = 0;
        board_.over = alive ? 0 : 1;
    }

    FLX_HD void send(char *stages) {
        constexpr uint32_t kAhead = kBulkSending - kBulkFlying;
        const uint32_t sends = team_.sends();
        const char *from = team_.sent();
        for (uint32_t stage = chip_.lane(); stage < kBulkSending; stage += Chip::kLanes)
            *reinterpret_cast<uint32_t *>(stages + stage * kBulkSlot) = offset_of(from);
        chip_.join_shared();
        Ends ends;
        look_at_ends(from, 0, sends, ends);
        const auto fill = [&](uint32_t step) {
            const Piece piece = team_.piece(step);
            fetch(stages + step % kBulkSending * kBulkSlot, from + piece.offset, piece.bytes, ends,
                  board_.filled[step % kBulkSending]);
            look_at_ends(from, step + 1, sends, ends);
        };
        uint32_t filled = sends < kAhead ? sends : kAhead;
        for (uint32_t step = 0; step < filled; ++step)
            fill(step);
        uint32_t step = 0;
        uint32_t taken = team_.number(0) - 2;
        for (; step < sends; ++step) {
            const uint32_t stage = step % kBulkSending;
            await_copies(board_.filled[stage], step / kBulkSending);
            if (chip_.lane() == 0)
                chip_.post(board_.read, step + 1);
            if (!chip_.all(await(board_.heard[kGathered], team_.credit(step), taken)))
                break;
            if (chip_.lane() == 0) {
                chip_.store(job_.windows[team_.peer()] + team_.slot(step), stages + stage * kBulkSlot,
                            slot_bytes(team_.piece(step).bytes));
                chip_.template await_stores<kBulkFlying - 1>();
                if (step + 1 >= kBulkFlying)
                    chip_.post(board_.told[kScattered], team_.number(step + 1 - kBulkFlying));
            }
            chip_.sync_warp();
            if (filled < sends)
                fill(filled++);
        }
        if (chip_.lane() == 0)
            chip_.template await_stores<0>();
        if (step == sends && chip_.lane() == 0)
            chip_.post(board_.told[kScattered], team_.end());
        for (; step < filled; ++step)
            await_copies(board_.filled[step % kBulkSending], step / kBulkSending);
    }

    /// `pairs`: this rank's own tile first.
    FLX_HD void take(char *pairs) {
        const uint32_t takes = team_.takes();
        uint32_t come = team_.number(0) - 2;
        uint32_t step = 0;
        Ends ends;
        look_at_ends(team_.own(), 0, takes, ends);
        for (bool goes_on = true; step < takes && goes_on; ++step) {
            const uint32_t stage = step % kBulkTaking;
            const Piece piece = team_.piece(step);
            char *pair = pairs + 2 * stage * kBulkSlot;
            if (step >= kBulkTaking && !chip_.all(await(board_.added[stage], step / kBulkTaking - 1)))
                break;
            fetch(pair, team_.own() + piece.offset, piece.bytes, ends, board_.paired[stage]);
            look_at_ends(team_.own(), step + 1, takes, ends);
            goes_on = chip_.all(await(board_.heard[kScattered], team_.number(step), come));
            if (chip_.lane() == 0 && goes_on)
                chip_.load(pair + kBulkSlot, job_.windows[job_.rank] + team_.slot(step), slot_bytes(piece.bytes),
                           board_.paired[stage]);
            if (chip_.lane() == 0 && !goes_on)
                chip_.arrive(board_.paired[stage]);
            chip_.sync_warp();
        }
        // Nothing may write to shared memory once the block has ended.
        for (uint32_t back = step < kBulkTaking ? step : kBulkTaking; back > 0; --back)
            await_copies(board_.paired[(step - back) % kBulkTaking], (step - back) / kBulkTaking);
    }

    /// `adder` adds, of two tiles in rank order, what is its lane's part; `first` is of one lane of all adders.
    template <class Adder>
    FLX_HD void add(const Adder &adder, bool first, const char *pairs) {
        const uint32_t takes = team_.takes();
        const uint32_t sends = team_.sends();
        uint32_t read = 0;
        for (uint32_t step = 0; step < takes; ++step) {
            const uint32_t stage = step % kBulkTaking;
            const Piece piece = team_.piece(step);
            const char *own = pairs + 2 * stage * kBulkSlot;
            const char *come = own + kBulkSlot;
            if (!chip_.all(await(board_.paired[stage], step / kBulkTaking)))
                return;
            if (first)
                chip_.post(board_.told[kGathered], team_.done(step));
            // In place, what is written here is still to be sent. The peer takes what it is sent, so its turn comes.
            if (!chip_.all(await(board_.read, step < sends ? step + 1 : sends, read)))
                return;
            own += kBulkHead + offset_of(team_.own());
            come += kBulkHead + *reinterpret_cast<const uint32_t *>(come);
            adder.add(job_.rank == 0 ? own : come, job_.rank == 0 ? come : own, team_.out() + piece.offset,
                      piece.bytes);
            chip_.sync_warp();
            if (chip_.lane() == 0)
                chip_.arrive(board_.added[stage]);
        }
    }

    /// Signals what was sent and taken to the peer; one lane for each stage.
    FLX_HD void tell(uint32_t block) {
        const uint32_t stage = chip_.lane();
        if (stage >= kStages)
            return;
        uint32_t *flag = this->flag(team_.peer(), stage, block, job_.rank);
        for (uint32_t last = team_.number(0) - 1; last != team_.end() && chip_.look(board_.over) == 0;) {
            const uint32_t value = chip_.look(board_.told[stage]);
            if (value != last)
                chip_.tell(flag, value);
            last = value;
        }
    }

    /// Waits for the peer's signals; one lane for each stage. A peer that is ahead has signalled numbers of its next
    /// operation.
    FLX_HD void hear(uint32_t block) {
        const uint32_t stage = chip_.lane();
        if (stage >= kStages)
            return;
        typename Chip::Waiting waiting(job_);
        const uint32_t *flag = this->flag(job_.rank, stage, block, team_.peer());
        uint32_t last = team_.number(0) - 2;
        while (static_cast<int32_t>(last - team_.end()) < 0 && chip_.look(board_.over) == 0) {
            // What the peer has taken is of no more interest when all was sent.
            if (stage == kGathered && chip_.look(board_.told[kScattered]) == team_.end())
                break;
            const uint32_t value = chip_.hear(flag);
            if (value != last) {
                chip_.join_proxies();
                chip_.post(board_.heard[stage], value);
            } else if (!waiting.more(team_.peer())) {
                chip_.post(board_.over, 1);
            }
            last = value;
        }
    }

  private:
    static constexpr uint32_t kScattered = static_cast<uint32_t>(Stage::scattered);
    static constexpr uint32_t kGathered = static_cast<uint32_t>(Stage::gathered);

    FLX_HD static uint32_t offset_of(const char *at) {
        return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(at) % kGrain);
    }
    /// Bytes of a slot, whose data begin anywhere within kGrain.
    FLX_HD static uint32_t slot_bytes(uint64_t bytes) {
        return static_cast<uint32_t>(kBulkHead + (bytes + 2 * kGrain - 2) / kGrain * kGrain);
    }
    static_assert(kBulkHead + kBulkTile + 2 * kGrain <= kBulkSlot);

    FLX_HD uint32_t *flag(int window, uint32_t stage, uint32_t block, int source) const {
        return reinterpret_cast<uint32_t *>(job_.windows[window] +
                                            WindowLayout::flag(static_cast<Stage>(stage), block, source));
    }

    /// What of a tile lies beside multiples of 16 bytes.
    struct Beside {
        FLX_HD Beside(const char *from, uint64_t bytes) {
            const uint64_t offset = offset_of(from);
            head = offset == 0 ? 0 : kGrain - offset < bytes ? kGrain - offset : bytes;
            tail = (bytes - head) % kGrain;
        }
        uint64_t head;
        uint64_t tail;
    };
    /// A lane's bytes of both ends of the tile that is fetched next: they come while the warp waits for something else.
    struct Ends {
        char byte[2 * kGrain / Chip::kLanes];
    };
    static_assert(2 * kGrain % Chip::kLanes == 0);

    /// Calls body(number, at) for each of this lane's bytes at the ends of a tile.
    template <class Body>
    FLX_HD void at_ends(const Beside &beside, uint64_t bytes, const Body &body) const {
        for (uint32_t number = 0; number < 2 * kGrain / Chip::kLanes; ++number) {
            const uint64_t place = chip_.lane() + number * Chip::kLanes;
            if (place < beside.head)
                body(number, place);
            else if (place >= kGrain && place - kGrain < beside.tail)
                body(number, bytes - beside.tail + place - kGrain);
        }
    }
    FLX_HD void look_at_ends(const char *from, uint32_t step, uint32_t steps, Ends &ends) const {
        if (step >= steps)
            return;
        const Piece piece = team_.piece(step);
        from += piece.offset;
        at_ends(Beside(from, piece.bytes), piece.bytes,
                [&](uint32_t number, uint64_t at) { ends.byte[number] = from[at]; });
    }

    /// Input of any alignment to shared memory, by a warp; the barrier gets one arrival. `ends`: this tile's.
    FLX_HD void fetch(char *stage, const char *from, uint64_t bytes, const Ends &ends,
                      typename Chip::Barrier &barrier) {
        char *to = stage + kBulkHead + offset_of(from);
        const Beside beside(from, bytes);
        const uint64_t whole = bytes - beside.head - beside.tail;
        if (beside.head + beside.tail != 0) {
            at_ends(beside, bytes, [&](uint32_t number, uint64_t at) { to[at] = ends.byte[number]; });
            chip_.join_shared();
        }
        chip_.sync_warp();
        if (chip_.lane() != 0)
            return;
        if (whole != 0)
            chip_.load(to + beside.head, from + beside.head, static_cast<uint32_t>(whole), barrier);
        else
            chip_.arrive(barrier);
    }

    /// Waits for what surely comes: copies that are under way.
    FLX_HD void await_copies(typename Chip::Barrier &barrier, uint32_t round) {
        while (!chip_.passed(barrier, round)) {
        }
    }
    /// False: given up.
    FLX_HD bool await(typename Chip::Barrier &barrier, uint32_t round) {
        while (!chip_.passed(barrier, round))
            if (chip_.look(board_.over) != 0)
                return false;
        return true;
    }
    FLX_HD bool await(const uint32_t &word, uint32_t least, uint32_t &seen) {
        while (static_cast<int32_t>(seen - least) < 0) {
            seen = chip_.look(word);
            if (chip_.look(board_.over) != 0)
                return false;
        }
        return true;
    }

    Chip &chip_;
    const Job &job_;
    const BulkTeam &team_;
    Board &board_;
};

}  // namespace flx::cuda
