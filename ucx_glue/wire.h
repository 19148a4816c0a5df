/// \file wire.h
/// What travels between the rails of two processes, each as one active message. All ranks share one byte order.
#pragma once

#include <cstdint>

#include "runtime/link/link.h"
#include "runtime/link/paths.h"

namespace flx::ucx {

/// Active message ids.
enum MessageId : unsigned {
    kChunkMessage = 0,        ///< ChunkWire, then the payload unless it is in a slot
    kAckMessage = 1,          ///< AckWire, then the numbers
    kRingRequestMessage = 2,  ///< RingRequestWire
    kRingGrantMessage = 3,    ///< RingGrantWire, then the packed remote key
    kEchoMessage = 4,         ///< EchoWire, then so many bytes: a connection on probation
    kUpMessage = 5,           ///< RingRequestWire: it has passed
    kRelayMessage = 6,        ///< RelayWire, then the payload or numbers (relay.h)
    kChunksMessage = 7,       ///< several chunks, each a ChunkWire with its payload; no header
    kMessageIds = 8
};

/// Chunks of one message, and bytes of their payload.
inline constexpr uint32_t kMostTogether = 32;
inline constexpr size_t kTogetherBytes = 64 << 10;
/// A larger chunk goes alone.
inline constexpr size_t kMostKept = 16 << 10;

inline constexpr uint32_t kNoSlot = 0xffffffffu;
/// Acknowledgements that ride on a chunk going the other way.
inline constexpr uint32_t kRidingAcks = 6;
/// Acknowledgements of one message of their own.
inline constexpr uint32_t kAcksPerMessage = 64;

/// Largest payload of an echo.
inline constexpr uint32_t kMostEcho = 64 << 10;

/// Header of a chunk. Only the first `acks` of `riding` are sent.
struct ChunkWire {
    uint64_t uid;     ///< of the sending process
    uint32_t number;  ///< the sender's name for this chunk, unique among those it has unacknowledged on this rail
    uint32_t slot;    ///< of the receiver's landing ring that holds the payload, or kNoSlot
    ChunkHeader header;
    uint16_t prompt;  ///< 1: the sender's user waits for the acknowledgement, so it must not be held back
    uint16_t acks;    ///< how many of `riding`
    uint32_t riding[kRidingAcks];
};
inline constexpr size_t kChunkWireBytes = offsetof(ChunkWire, riding);
static_assert(kChunkWireBytes == 60);

/// Chunks (by the numbers that their sender gave them) that were released. No order is implied.
struct AckWire {
    uint64_t uid;
    uint32_t count;
    uint32_t
        credit;  ///< of Link::tell: links in the lower half, the communicator's id (as far as it fits) in the upper
};

/// "I have something to put: where may I?"
struct RingRequestWire {
    uint64_t uid;
};

/// Goes to the peer, which sends it back as it came but for `back`.
struct EchoWire {
    uint64_t uid;
    uint32_t bytes;
    uint32_t back;  ///< 1: on its way back
};

/// Words of the rails of two processes, which go beside the rails (Paths::tell), followed by `address_bytes` of
/// address. A word may get lost; what matters is repeated.
enum WordKind : uint32_t {
    kLostWord = 1,    ///< "the connection of this epoch is lost"
    kOfferWord = 2,   ///< "let us use a new one: here I am"
    kAcceptWord = 3,  ///< the answer, with an address too
    kAskCountWord = 4,
    kCountWord = 5,  ///< the answer: `value` chunks of yours came on the connection of this epoch
    kByeWord = 6,    ///< "my rails close"
    // Followed by the uid of a process; `from_line`: for this communicator, or 0 (relay.h). `to_line`: when it was
    // asked, by the asker's clock (stamp_of); the answer repeats it.
    kAskReachWord = 7,  ///< "do you reach it?"
    kReachWord = 8,  ///< `epoch` ms ago it answered; `value` 0: no; 1: it answers me; 1 + n: and I carry to it, n bytes
                     ///< at a time
    kRelayedWord = 9  ///< "through me it sends to you"
};
struct Word {
    uint32_t kind;
    uint32_t from_line;  ///< index of the sender's
    uint32_t to_line;    ///< index of the receiver's
    uint32_t epoch;
    uint32_t value;
    uint32_t address_bytes;
};

/// A chunk, or acknowledgements, of a process that has no line to the receiver.
struct RelayWire {
    static constexpr uint32_t kChunk = 0;
    static constexpr uint32_t kAcks = 1;  ///< followed by numbers
    static constexpr uint32_t kAnyLine = 0xffffffffU;
    uint64_t from;
    uint64_t to;
    uint64_t hop;  ///< whose rail sends it
    uint32_t kind;
    uint32_t number;  ///< the origin's name for this chunk, rising
    uint32_t base;    ///< all below this are done at the origin
    uint32_t line;    ///< of the receiver, whose link shall take it; or kAnyLine
    ChunkHeader header;
};

/// Precedes UCX's address of a worker where lines exchange addresses.
struct LineAddress {
    HostAddress host;  ///< of the device
    uint32_t index;    ///< of the line in its process
};

/// The answer. `slots` is 0 where the receiver could not make landing memory.
struct RingGrantWire {
    uint64_t uid;
    uint64_t base;  ///< address in the receiver of slot 0
    uint32_t slots;
    uint32_t slot_bytes;
};

}  // namespace flx::ucx
