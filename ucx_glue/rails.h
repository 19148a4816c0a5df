/// \file rails.h
/// Network rails over UCX: one context, worker and set of endpoints per rail, shared by all communicators of a process.
/// No UCX type is visible here.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/link/link.h"
#include "runtime/link/paths.h"

namespace flx::ucx {

/// What to open one rail on.
struct RailSpec {
    std::string name;    ///< as users see it: the device's name, e.g. `eth0`, or `ucx-shm`
    std::string device;  ///< UCX's name of the one device that the context sees: `eth0`, `mlx5_0:1`, `memory`
    std::string tls;     ///< UCX transports: `tcp`; `rc,ud`; `posix,cma`
    bool rma = false;    ///< payload by put into FLX's own registered landing memory; otherwise eager active messages
};

struct RailOptions {
    size_t window_bytes = 2u << 20;   ///< payload that may be unacknowledged per communicator, peer and rail
    size_t chunk_bytes = 128u << 10;  ///< largest payload of one chunk
    size_t copy_bytes = 4096;  ///< chunks up to this are copied at send (SendResult::copied), with a bounded pool
    /// Chunks up to this are copied as well if a block begins with them and nothing else is under way: they are all of
    /// a short message, whose end should not have to wait for an acknowledgement.
    size_t copy_whole_bytes = 16384;
    bool threads = false;            ///< calls may come from several threads: guard workers by a lock
    double timeout_s = 0.3;          ///< silence of a rail, while its peer answers elsewhere, after which it is lost
    size_t relay_bytes = 16u << 20;  ///< kept at most of what others send through this process; less than a chunk: none
    Paths *paths = nullptr;          ///< null: losses are what UCX says, and final. Must outlive the rails
};

/// What losses have cost. Monotonic.
struct FailoverCounters {
    uint64_t losses = 0;  ///< of a rail to a process
    uint64_t resent = 0;  ///< chunks
    uint64_t returns = 0;
    uint64_t relayed = 0;             ///< messages that others sent through this process
    uint64_t relayed_most_bytes = 0;  ///< that it kept of them at a time
};

/// All rails of this process.
///
/// Memory: a rail costs about 1 MiB when it is open. Chunks that were received and not released lie in FLX's buffers
/// (up to `window_bytes` per communicator and sending peer, grown as needed and kept), with RMA in landing memory of
/// that size; copies of small chunks take up to 1 MiB a rail.
class Rails {
  public:
    /// Opens a context and worker for each spec. A rail that cannot be opened is left out and its reason kept.
    /// `uid` names this process among all that it may be connected to; chunks carry it.
    static std::unique_ptr<Rails> open(std::span<const RailSpec> specs, uint64_t uid, const RailOptions &options);
    virtual ~Rails() = default;

    /// Opens those of `specs` that no rail was opened or left out for before. Existing rails keep their index and may
    /// be in use by other threads meanwhile; calls of add() themselves one at a time.
    virtual void add(std::span<const RailSpec> specs) = 0;

    [[nodiscard]] virtual int count() const = 0;
    [[nodiscard]] virtual const RailSpec &spec(int rail) const = 0;
    /// Why a spec was left out or a rail is unusable: (name, sentence).
    [[nodiscard]] virtual std::vector<std::pair<std::string, std::string>> problems() const = 0;

    /// The worker address of `rail` (and, with RMA, what a peer needs to write into this process's landing memory), to
    /// be carried to peers by the bootstrap.
    [[nodiscard]] virtual std::string address(int rail) const = 0;
    /// Makes the process with `peer_uid` reachable on `rail` through its `address`, under the index `process` (chosen
    /// by the caller, ≥ 0, the same on all rails). Endpoints are made at first use. A second call for the same pair
    /// does nothing.
    virtual Status connect(int rail, int process, uint64_t peer_uid, const std::string &address) = 0;
    /// Sets the name that users know `process` by, e.g. `h3`.
    virtual void name(int process, const std::string &text) = 0;

    /// A communicator's view of `rail`. `processes[r]` is rank r's process index, or -1 where the rail does not reach
    /// it. With every rail to a process lost for `deadline_s` seconds, the link reports an error. Chunks are routed by
    /// ChunkHeader::comm == `comm_id`; those that come before the link was made are kept. The link must be destroyed
    /// before the Rails. Ids are not used again: what still comes for a link that was destroyed is dropped.
    virtual std::unique_ptr<Link> link(int rail, uint32_t comm_id, std::vector<int> processes, double deadline_s) = 0;

    /// Moves all rails that have something outstanding, and sends what it owes the peers where nothing moved. True if
    /// something moved.
    virtual bool progress() = 0;
    /// Sleeps until something comes or can be sent on a rail, at most so long; then all rails were moved once. False at
    /// once where arrivals on one of them cannot wake.
    virtual bool doze(int64_t most_ns) = 0;
    /// Whether everything that this process owes its peers (acknowledgements, answers, chunks that were copied) has
    /// left.
    [[nodiscard]] virtual bool flushed() const = 0;
    /// Whether all that a peer may wait for inside FLX has left: everything but acknowledgements of chunks that were
    /// copied. A call should not return to the program before, since nobody would move it until the next call. What
    /// remains rides on the next chunks, or is sent by whoever calls guard().
    [[nodiscard]] virtual bool settled() const = 0;

    /// With one thread, the calling thread has the rails to itself between enter() and leave(): around an operation.
    /// Other calls are guarded one by one. Nests.
    virtual void enter() = 0;
    virtual void leave() = 0;
    /// Whether the rails must be moved although the program is elsewhere: something is unacknowledged, or mended.
    [[nodiscard]] virtual bool restless() = 0;
    /// Called by a thread that does so: moves everything once unless the program is inside. Returns in how many
    /// milliseconds to call it again; 0: not before it is asked to.
    virtual int guard() = 0;
    [[nodiscard]] virtual FailoverCounters failover_counters() = 0;
    /// Test hook: what arrives on `rail` is dropped from now on, as by a network that swallows it.
    virtual void drop_arrivals(int rail, bool drop) = 0;
};

/// UCX's version, and whether it was built with CUDA memory support: for reports.
std::string version();

}  // namespace flx::ucx
