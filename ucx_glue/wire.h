/// \file wire.h
/// What travels between the rails of two processes, each as one active message. All ranks share one byte order.
#pragma once

#include <cstdint>

#include "link.h"

namespace flx::ucx {

/// Active message ids.
enum MessageId : unsigned {
    kChunkMessage = 0,        ///< ChunkWire, then the payload unless it is in a slot
    kAckMessage = 1,          ///< AckWire, then the numbers
    kRingRequestMessage = 2,  ///< RingRequestWire
    kRingGrantMessage = 3,    ///< RingGrantWire, then the packed remote key
    kMessageIds = 4
};

inline constexpr uint32_t kNoSlot = 0xffffffffu;
/// Acknowledgements that ride on a chunk going the other way.
inline constexpr uint32_t kRidingAcks = 6;
/// Acknowledgements of one message of their own.
inline constexpr uint32_t kAcksPerMessage = 64;

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
    uint32_t reserved;
};

/// "I have something to put: where may I?"
struct RingRequestWire {
    uint64_t uid;
};

/// The answer. `slots` is 0 where the receiver could not make landing memory.
struct RingGrantWire {
    uint64_t uid;
    uint64_t base;  ///< address in the receiver of slot 0
    uint32_t slots;
    uint32_t slot_bytes;
};

}  // namespace flx::ucx
