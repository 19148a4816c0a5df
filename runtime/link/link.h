/// \file link.h
/// The abstract link: one way to move bytes between this rank and its peers, as the executor sees it.
///
/// A link belongs to one communicator of one rank and is used by one thread at a time; what is behind it (segments,
/// workers, endpoints) may be shared by the process. No function blocks, and none calls back into the executor.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/base/status.h"
#include "runtime/link/load.h"

namespace flx {

/// Sequence numbers of messages between two ranks have this bit and are counted by each ordered pair; those of the
/// communicator's operations do not.
inline constexpr uint64_t kPairwise = uint64_t{1} << 63;

/// What a chunk is, independent of the link that carries it: a run of cells of a block, in a phase of an operation.
/// Receivers place data by this alone. Travels as it is (all ranks share one byte order).
struct ChunkHeader {
    uint64_t sequence;    ///< of the operation within the communicator, or of the message (kPairwise)
    uint32_t comm;        ///< communicator's id
    uint32_t signature;   ///< hash of the arguments that must be equal on all ranks
    uint32_t phase;       ///< of the schedule
    uint32_t block;       ///< of the schedule
    uint32_t first_cell;  ///< within the block
    uint32_t cells;       ///< ≥ 1
    uint32_t bytes;       ///< payload
    uint32_t reserved;    ///< 0
};
static_assert(sizeof(ChunkHeader) == 40);

/// A chunk that came in. `data` stays valid and unchanged until `Link::release`; null: Link::fetch gets it.
struct Arrival {
    ChunkHeader header{};
    int peer = -1;
    const std::byte *data = nullptr;
    uint64_t token = 0;    ///< the link's own
    uint64_t address = 0;  ///< of a chunk to fetch: the link's own
};

/// A chunk sent in flight (SendResult::in_flight) that the receiver's FLX has acknowledged.
struct Completion {
    ChunkHeader header{};
    int peer = -1;
};

enum class SendResult {
    copied,     ///< taken, and the source may be reused at once
    in_flight,  ///< taken; the source must stay unmodified until the chunk's Completion
    busy,       ///< not taken: no room now, try again later
    failed      ///< not taken: the link to this peer does not work (see Link::state and Link::error)
};

/// What a link has carried to one peer. Monotonic, until the link is lost: what goes over others instead is theirs.
struct LinkCounters {
    uint64_t bytes = 0;          ///< payload sent (rails: acknowledged, but for small chunks)
    uint64_t chunks = 0;         ///< likewise
    uint64_t busy_ns = 0;        ///< time during which something was outstanding (shm: spent copying or found no room)
    uint64_t untimed_bytes = 0;  ///< of `bytes`: in small chunks, which are acknowledged when it suits and not timed
};

enum class LinkKind : uint8_t { shm, rail };

/// The state of a link towards one peer.
enum class LinkState : uint8_t {
    up,
    lost  ///< takes nothing now: what it had taken goes to the peer by other links, and it may come back
};

/// How a link towards one peer does now, by what was acknowledged lately.
struct Pace {
    double bytes_per_ns = 0;   ///< delivered while it had enough to do; falls while nothing comes; 0: not known
    double round_trip_ns = 0;  ///< least time from a send to its acknowledgement that was seen; 0: not known
    bool late = false;         ///< what is under way has not come for long
};

/// \see file comment. Peers are ranks of the communicator.
class Link {
  public:
    Link() = default;
    Link(const Link &) = delete;
    Link &operator=(const Link &) = delete;
    virtual ~Link() = default;

    /// The link's name in FLX_PARTITION and reports: `shm`, or the network device's. Unique within a communicator.
    [[nodiscard]] virtual const std::string &name() const = 0;
    [[nodiscard]] virtual LinkKind kind() const = 0;
    /// Whether it connects to `peer`. Constant after construction.
    [[nodiscard]] virtual bool reaches(int peer) const = 0;
    /// Largest payload of one chunk, in bytes; at least kMaxCellBytes.
    [[nodiscard]] virtual size_t max_chunk() const = 0;
    /// A good payload size for one chunk of a slice of `bytes`: large enough to be efficient, small enough to pipeline.
    [[nodiscard]] virtual size_t good_chunk(size_t bytes) const = 0;
    /// The same towards `peer`, by what the link delivers to it now: a slow link's chunks are shorter.
    [[nodiscard]] virtual size_t good_chunk_to(int /*peer*/, size_t bytes) const { return good_chunk(bytes); }

    /// Sends `header.bytes` from `data`.
    virtual SendResult send(int peer, const ChunkHeader &header, const void *data) = 0;
    /// The same for a chunk of a short operation, where further ones may follow at once: those of one peer may go
    /// together as one message, at the latest with flush(), progress() or a send() to that peer.
    virtual SendResult send_soon(int peer, const ChunkHeader &header, const void *data) {
        return send(peer, header, data);
    }
    /// Sends what send_soon() has kept back.
    virtual void flush() {}
    /// Takes the oldest chunk from `peer` that was not handed over yet. Several may be held at a time; room for further
    /// ones is limited by those held.
    virtual bool receive(int peer, Arrival &arrival) = 0;
    /// Gives the memory of an arrival back, in any order, and acknowledges it to the sender.
    virtual void release(const Arrival &arrival) = 0;

    // The receiver can fetch a message itself where it reaches the sender's memory, and then the message is exposed: it
    // is copied once, to where it belongs. Only for messages that are received as they are, not added to something.

    /// Largest chunk of a message of `bytes` at `data` that `peer` had better fetch; 0: it is better sent.
    [[nodiscard]] virtual size_t max_exposed(int /*peer*/, const void * /*data*/, size_t /*bytes*/) { return 0; }
    /// Exposes a chunk; results are those of send(), but never `copied`. Only where max_exposed() allows it.
    virtual SendResult expose(int peer, const ChunkHeader &header, const void *data) {
        return send(peer, header, data);
    }
    /// Copies `bytes` from `offset` of an arrival without data. FLX_ERR_LINK: it is not there any more.
    virtual Status fetch(const Arrival & /*arrival*/, size_t /*offset*/, void * /*to*/, size_t /*bytes*/) { return {}; }

    /// Takes one completed in-flight chunk.
    virtual bool completed(Completion &completion) = 0;

    /// The operation `sequence`, and all before it, ended on this rank: what still comes of them is a duplicate of a
    /// chunk that was used, and is acknowledged as it comes. Those with kPairwise count for each `peer`, the others
    /// for all (`peer` -1).
    virtual void ended(int /*peer*/, uint64_t /*sequence*/) {}

    /// tell() sets what goes to `peer` with acknowledgements from now on, told() is what came with the peer's last
    /// ones: links, as a mask (lending.h). Links that do not carry it lose nothing that must arrive.
    virtual void tell(int /*peer*/, uint16_t /*links*/) {}
    [[nodiscard]] virtual uint16_t told(int /*peer*/) const { return 0; }

    /// From now on what is under way here counts as this host's, and heeds what others of it have under way. Before
    /// anything was sent. `load` outlives the link.
    virtual void share(const SharedLoad & /*load*/) {}

    /// Moves what is under way. Called often; returns at once where nothing is outstanding. True if something moved.
    virtual bool progress() = 0;
    /// Chunks sent and not completed, to all peers.
    [[nodiscard]] virtual size_t outstanding() const = 0;
    /// Bytes sent to `peer` and not acknowledged, but for small chunks that are acknowledged when it suits.
    [[nodiscard]] virtual size_t unacknowledged(int peer) const = 0;
    /// What is known of its speed. Links of unknown pace neither give nor take unsent cells while they work.
    [[nodiscard]] virtual Pace pace(int /*peer*/) const { return {}; }
    [[nodiscard]] virtual LinkCounters counters(int peer) const = 0;
    /// Takes the peers whose timed bytes or busy time have grown since this was called last, each once, in place of
    /// what was in `peers`. False: the link does not note them, and counters() of all are to be read.
    virtual bool take_counted(std::vector<int> & /*peers*/) { return false; }
    /// What was sent to all peers together, as far as it is timed.
    [[nodiscard]] virtual LinkCounters timed() const { return {}; }
    /// Whether it carries to `peer` now. May change in progress().
    [[nodiscard]] virtual LinkState state(int /*peer*/) const { return LinkState::up; }
    /// Success while the link to `peer` works, or while what it has lost can still reach the peer in another way.
    [[nodiscard]] virtual Status error(int peer) const = 0;
};

/// Cells are the unit in which blocks are cut: never larger than this, so that every link carries at least one.
inline constexpr size_t kMaxCellBytes = 32 * 1024;
/// Cells of a block: agreed, since it depends on agreed arguments only. A power of two, so that cells keep the
/// alignment of the buffer.
inline size_t cell_bytes_for(size_t block_bytes) {
    constexpr size_t kLeastCellBytes = 256;
    constexpr size_t kCellsPerBlock = 256;
    return std::clamp(std::bit_ceil(block_bytes / kCellsPerBlock + 1), kLeastCellBytes, kMaxCellBytes);
}
/// Links of one communicator: shared memory and rails. Masks of links have 16 bits on the wire.
inline constexpr int kMaxLinks = 16;

}  // namespace flx
