/// \file load.h
/// What the ranks of a host tell each other of its rails, in memory that those of a communicator share. A rail belongs
/// to the host. Where each rank filled it as if it were alone, switches and shapers would drop what exceeds their
/// buffers, and a transport's timeouts are a hundred times longer than a message. Where each learned by itself how fast
/// it is, each would see what the others leave, and they would run after each other from rail to rail.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace flx {

/// Of one rail. Any rank of the host adds what it sends and takes away what was acknowledged. Zeroed memory is a valid
/// one.
struct alignas(64) RailLoad {
    std::atomic<uint64_t> bytes{0};
    std::atomic<int64_t> rested_ns{0};  ///< when, by the host's clock, its whole burst may pass again (bursts.h)
};

/// A link's part in it; without a `load`, none.
struct SharedLoad {
    RailLoad *load = nullptr;
    uint64_t most = 0;  ///< bytes that all together may have under way
    uint64_t own = 0;   ///< bytes that a rank may always have, if not for one peer alone

    /// Whether `more` for a peer is too much for a rank that has `to_peer` under way to it, and `to_all` to all. One
    /// chunk may always be on its way to each: a peer keeps what it cannot use before it has something else, and what
    /// another one lacks must not wait for that.
    [[nodiscard]] bool full(uint64_t to_peer, uint64_t to_all, uint64_t more) const {
        return load != nullptr && to_peer != 0 && to_all + more > own &&
               load->bytes.load(std::memory_order_relaxed) + more > most;
    }
    void add(uint64_t bytes) const {
        if (load != nullptr)
            load->bytes.fetch_add(bytes, std::memory_order_relaxed);
    }
    void remove(uint64_t bytes) const {
        if (load != nullptr)
            load->bytes.fetch_sub(bytes, std::memory_order_relaxed);
    }
};

/// What a host's ranks carried to one host over one link: sums over ranks and operations. Any rank adds. Zeroed memory
/// is a valid one.
struct alignas(64) RailRecord {
    std::atomic<uint64_t> bytes{0};
    std::atomic<uint64_t> busy_ns{0};
    std::atomic<uint64_t> samples{0};
    std::atomic<int64_t> rested_ns{0};  ///< as RailLoad's, of this host's part of what that host receives at once
};

}  // namespace flx
