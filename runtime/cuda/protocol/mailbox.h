/// \file mailbox.h
/// Messages from one GPU to another: sends, receives, and what is made of them. Only the two ends of a message need to
/// know of it. The code is the same for the blocks of a kernel and for host threads (tests): a `Machine` says how to
/// copy, set flags and wait.
///
/// Every rank's *mailbox* has a row of lanes for each source, which that source writes into. A lane is a ring of slots.
/// A message is cut into pieces; piece i of each goes through lane i mod lanes. The flag `filled` signals a piece to
/// the receiver, `drained` signals to the sender that its slot is free. Both count the pieces of a lane since the
/// mailbox was made, so that messages of eager calls and of graphs follow each other as they are carried out.
///
/// A message that fits into free slots is sent whether its receiver has come or not. What is left of a long one when
/// its receiver has come goes straight into the receiver's memory, where that is open to the sender: the receiver
/// *offers* it for each lane when it begins, and the sender looks for an offer before each piece. An offer says for
/// which message it is by the lane's count before, so one that came too late is never taken for a later message, unless
/// 2^32 pieces come between.
///
/// All messages of one call are under way at once: for each peer, those to it and those from it have blocks of their
/// own. No more than run at once on the GPU, or blocks that run would wait for some that cannot.
#pragma once

#include "runtime/cuda/protocol/exchange.h"

namespace flx::cuda {

/// One end of a message.
struct Message {
    char *memory = nullptr;
    uint64_t bytes = 0;
    int peer = 0;
    bool sends = false;
};

/// A receiver's memory, as the sender sees it, for a message of as many bytes.
struct MemoryForMessage {
    char *memory = nullptr;
    uint64_t bytes = 0;
};

/// Where things lie in a mailbox. Plain data; equal on all ranks.
struct MailboxLayout {
    enum class Flag : uint8_t {
        filled,    ///< set by the source
        drained,   ///< set by the destination, in the source's mailbox
        sent,      ///< the owner's own count of what it sent
        received,  ///< and received
        offered    ///< set by the destination, in the source's mailbox: 1 + the pieces before the message it is for
    };
    static constexpr int kFlags = 5;
    static constexpr uint32_t kMostLanes = 64;
    static constexpr uint32_t kSlots = 4;
    static constexpr uint64_t kLabel = 128;  ///< before the bytes of a slot: those of the whole message
    static constexpr uint64_t kStraight = uint64_t{1} << 63;  ///< in a label: the rest has gone straight
    static constexpr uint64_t kLeastStraight = 1 << 20;       ///< least message that may
    static constexpr uint64_t kLeastPiece = 8192;
    static constexpr uint64_t kFlagBytes = uint64_t{kFlags} * kMaxRanks * kMostLanes * sizeof(uint32_t);
    static constexpr uint64_t kHead = kFlagBytes + uint64_t{kMaxRanks} * kMostLanes * sizeof(MemoryForMessage);

    uint32_t ranks = 0;
    uint32_t lanes = 0;
    uint64_t slot_bytes = 0;

    FLX_HD static constexpr uint64_t flag(Flag which, int peer, uint32_t lane) {
        return ((static_cast<uint64_t>(which) * kMaxRanks + peer) * kMostLanes + lane) * sizeof(uint32_t);
    }
    /// What `peer` offers.
    FLX_HD static constexpr uint64_t offer(int peer, uint32_t lane) {
        return kFlagBytes + (static_cast<uint64_t>(peer) * kMostLanes + lane) * sizeof(MemoryForMessage);
    }
    /// Its label; the bytes come kLabel later. `count`: pieces of that lane before.
    FLX_HD uint64_t slot(int source, uint32_t lane, uint32_t count) const {
        return kHead + ((uint64_t(source) * lanes + lane) * kSlots + count % kSlots) * (kLabel + slot_bytes);
    }
    FLX_HD uint64_t bytes() const { return slot(static_cast<int>(ranks), 0, 0); }
    /// Small enough for all lanes to have some of it.
    FLX_HD uint64_t piece_bytes(uint64_t message) const {
        const uint64_t each = (message + lanes - 1) / lanes;
        const uint64_t piece = each < kLeastPiece ? kLeastPiece : (each + kGrain - 1) / kGrain * kGrain;
        return piece < slot_bytes ? piece : slot_bytes;
    }
    FLX_HD uint32_t lanes_for(uint64_t message) const {
        const uint64_t pieces = (message + piece_bytes(message) - 1) / piece_bytes(message);
        return pieces < lanes ? static_cast<uint32_t>(pieces) : lanes;
    }
};

/// The largest that fits into an eighth of `budget` bytes, but at least a small one. `blocks`: multiprocessors that a
/// kernel may take.
inline MailboxLayout mailbox_for(uint64_t budget, uint32_t blocks, int ranks) {
    constexpr uint64_t kMost = 128 << 10;
    constexpr uint64_t kLeast = 1 << 10;
    constexpr uint64_t kPart = 8;
    MailboxLayout layout{static_cast<uint32_t>(ranks), 1};
    // Two blocks share a multiprocessor: one that sends to a peer, and one that receives.
    while (2 * layout.lanes <= MailboxLayout::kMostLanes && 2 * layout.lanes * (layout.ranks - 1) <= blocks)
        layout.lanes *= 2;
    const uint64_t room = budget / kPart / (uint64_t{layout.ranks} * layout.lanes * MailboxLayout::kSlots);
    const uint64_t bytes = room > MailboxLayout::kLabel ? (room - MailboxLayout::kLabel) / kGrain * kGrain : 0;
    layout.slot_bytes = bytes < kLeast ? kLeast : bytes < kMost ? bytes : kMost;
    return layout;
}

/// One with fewer lanes, of which each has room for the least pieces: messages that those can carry at once take as
/// long as in a larger one.
inline MailboxLayout small_mailbox(uint64_t budget, uint32_t blocks, int ranks) {
    MailboxLayout layout = mailbox_for(0, blocks, ranks);
    layout.slot_bytes = MailboxLayout::kLeastPiece;
    while (layout.lanes > 1 && layout.bytes() > budget)
        layout.lanes /= 2;
    return layout;
}
/// Whether a message takes as long in the one as in the other.
inline bool alike(const MailboxLayout &full, const MailboxLayout &small, uint64_t message) {
    return full.piece_bytes(message) == small.piece_bytes(message) &&
           full.lanes_for(message) == small.lanes_for(message);
}

/// Messages to one peer, or from it.
struct MailWay {
    uint8_t peer = 0;
    bool sends = false;
};

/// The messages of one call as one rank's kernel gets them. Few take less time to launch; the most that there can be
/// are what a kernel's parameters have room for.
template <uint32_t kRoom>
struct MailOf {
    static constexpr uint32_t kMost = kRoom;
    static constexpr uint32_t kWays = 2 * (kMaxRanks - 1);
    /// Of the most that there can be, parameters have no room for where peers see their memory.
    static constexpr bool kOpen = kRoom < 1024;
    Job job;  ///< rank, ranks, words; `windows` are the mailboxes
    MailboxLayout layout;
    uint32_t lanes = 0;  ///< that have any of it
    uint32_t ways = 0;
    uint32_t count = 0;
    MailWay way[kWays];
    Message messages[kMost];              ///< none is empty, or to this rank itself
    char *there[kOpen ? kMost : 1] = {};  ///< of what is received: where the peer sees it; null: it does not
    uint64_t *refused = nullptr;  ///< gets 1 + the peer, bytes that it sends, bytes that were to come (host memory)

    /// `seen`: where the peer sees what is received, or null. False: no room.
    bool add(const Message &message, char *seen = nullptr) {
        if (count == kMost)
            return false;
        if constexpr (kOpen)
            there[count] = seen;
        messages[count++] = message;
        uint32_t at = 0;
        while (at < ways && (way[at].peer != message.peer || way[at].sends != message.sends))
            ++at;
        if (at == ways)
            way[ways++] = {static_cast<uint8_t>(message.peer), message.sends};
        const uint32_t needed = layout.lanes_for(message.bytes);
        lanes = lanes < needed ? needed : lanes;
        return true;
    }
    [[nodiscard]] FLX_HD char *seen_by_peer(uint32_t message) const {
        if constexpr (kOpen)
            return there[message];
        return nullptr;
    }
};
using FewMail = MailOf<4>;
using Mail = MailOf<96>;
using ManyMail = MailOf<1024>;
static_assert(sizeof(ManyMail) < 32000);

/// How wide accesses to an address may be.
FLX_HD inline uint64_t width_at(const char *address) {
    const uint64_t bits = reinterpret_cast<uint64_t>(address) | kGrain;
    return bits & (~bits + 1);
}

/// What a lane has of a message. `count`: pieces of the lane before; those of the message are added. `there`: where the
/// peer sees what it is received into, or null. False: gave up.
template <class Machine, class AnyMail>
FLX_HD bool send_pieces(Machine &machine, const AnyMail &mail, const Message &message, uint32_t lane, uint32_t &count) {
    using Flag = MailboxLayout::Flag;
    const uint64_t piece = mail.layout.piece_bytes(message.bytes);
    const uint32_t first = count + 1;
    constexpr uint32_t kPiecesBetweenLooks = 16;
    uint32_t gone = 0;
    bool straight = false;
    for (uint64_t at = lane * piece; at < message.bytes && !straight;) {
        if (!machine.wait(Flag::drained, message.peer, lane, count + 1 - MailboxLayout::kSlots))
            return false;
        MemoryForMessage theirs;
        if (message.bytes >= MailboxLayout::kLeastStraight)
            theirs = machine.offered(message.peer, lane, first);
        // Slots lie on lines: where the memory does not, as many narrower stores would take longer.
        straight = theirs.memory != nullptr && theirs.bytes == message.bytes &&
                   width_at(theirs.memory) >= width_at(message.memory);
        const uint64_t slot = mail.layout.slot(mail.job.rank, lane, count);
        machine.label(message.peer, slot, straight ? message.bytes | MailboxLayout::kStraight : message.bytes);
        do {
            const uint64_t bytes = message.bytes - at < piece ? message.bytes - at : piece;
            const Targets to =
                straight ? Targets{theirs.memory + at, nullptr, 0, 0}
                         : Targets{nullptr, mail.job.windows, slot + MailboxLayout::kLabel, 1U << message.peer};
            machine.copy(message.memory + at, to, bytes);
            at += mail.layout.lanes * piece;
            // Whoever gave up may use its memory for something else soon. A look keeps pieces from overlapping.
            if (straight && ++gone % kPiecesBetweenLooks == 0 && !machine.alive())
                return false;
        } while (straight && at < message.bytes);
        machine.tell(Flag::filled, message.peer, lane, ++count);
    }
    return true;
}

template <class Machine, class AnyMail>
FLX_HD bool receive_pieces(Machine &machine, const AnyMail &mail, const Message &message, char *there, uint32_t lane,
                           uint32_t &count) {
    using Flag = MailboxLayout::Flag;
    const uint64_t piece = mail.layout.piece_bytes(message.bytes);
    const bool has_any = lane * piece < message.bytes;
    if (has_any && there != nullptr && message.bytes >= MailboxLayout::kLeastStraight)
        machine.offer(message.peer, lane, MemoryForMessage{there, message.bytes}, count + 1);
    bool straight = false;
    for (uint64_t at = lane * piece; at < message.bytes && !straight; at += mail.layout.lanes * piece) {
        if (!machine.wait(Flag::filled, message.peer, lane, count + 1))
            return false;
        const uint64_t slot = mail.layout.slot(message.peer, lane, count);
        const uint64_t label = machine.label_of(slot);
        straight = (label & MailboxLayout::kStraight) != 0;
        if ((label & ~MailboxLayout::kStraight) != message.bytes) {
            machine.refuse(message, label & ~MailboxLayout::kStraight);
            return false;
        }
        if (!straight)
            machine.copy(mail.job.windows[mail.job.rank] + slot + MailboxLayout::kLabel,
                         Targets{message.memory + at, nullptr, 0, 0},
                         message.bytes - at < piece ? message.bytes - at : piece);
        machine.tell(Flag::drained, message.peer, lane, ++count);
    }
    return true;
}

/// A lane of one way, in the order of the messages. Ends early where a wait says so: the mailbox is then of no more
/// use.
template <class Machine, class AnyMail>
FLX_HD void run_mail(Machine &machine, const AnyMail &mail, uint32_t block) {
    if (!machine.alive())
        return;
    const MailWay way = mail.way[block / mail.lanes];
    const uint32_t lane = block % mail.lanes;
    const auto counted = way.sends ? MailboxLayout::Flag::sent : MailboxLayout::Flag::received;
    uint32_t count = machine.count(counted, way.peer, lane);
    for (uint32_t i = 0; i < mail.count; ++i) {
        const Message &message = mail.messages[i];
        if (message.peer != way.peer || message.sends != way.sends)
            continue;
        if (!(way.sends ? send_pieces(machine, mail, message, lane, count)
                        : receive_pieces(machine, mail, message, mail.seen_by_peer(i), lane, count)))
            return;
    }
    machine.set_count(counted, way.peer, lane, count);
}

/// Take one of those; `ways` times `lanes` blocks. The one for few is faster, with a block to a multiprocessor.
const void *few_mail_kernel();
const void *mail_kernel();
const void *many_mail_kernel();

}  // namespace flx::cuda
