/// \file group.h
/// The GPUs of a communicator whose ranks share a host: windows that peers write into (CUDA IPC; peer access where
/// ranks are threads), kernels and copies on streams, memory that was registered, and a watcher that ends what a dead
/// peer would leave spinning. No CUDA types: also where FLX was built without CUDA, which then has no group to make.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/config.h"
#include "runtime/base/log.h"
#include "runtime/base/status.h"
#include "runtime/cuda/memory/gpu.h"
#include "runtime/cuda/memory/health.h"
#include "runtime/cuda/memory/shown_memory.h"
#include "runtime/cuda/protocol/own_messages.h"
#include "runtime/link/bootstrap.h"
#include "runtime/plan/operation.h"

struct CUstream_st;

namespace flx::cuda {

/// A link between GPUs, as this rank sees it.
struct GpuLink {
    std::string name;         ///< as in FLX_PARTITION
    std::string why_off;      ///< empty: it carries
    uint64_t bytes_sent = 0;  ///< payload for peers (graph replays are not seen)
    double share = 0;         ///< of the last operation that could take several links
    double bytes_per_ns = 0;  ///< measured, from this rank to all peers; 0: not measured
};
inline constexpr const char *kNvlink = "nvlink";
inline constexpr const char *kPcie = "pcie";

/// A communicator of one rank: a copy on the stream. Waits for it if `blocking`.
Status copy_alone(const Operation &call, CUstream_st *stream, bool blocking);
/// Messages of a rank to itself.
Status copy_own(std::span<const OwnMessage> messages, CUstream_st *stream);
/// Returns when all that is on it is done.
Status await(CUstream_st *stream);
/// Whether what is put on it becomes part of a graph, or may not be put there because another stream's does.
bool captures(CUstream_st *stream);

class FarHost;
struct Tiers;

class Group {
  public:
    /// Collective over `bootstrap`: 2 to 8 ranks of one host. Takes the calling thread's current device; allocates,
    /// so not while its stream is captured. `process`: equal for ranks that are threads of one process.
    static Status make(Bootstrap &bootstrap, const Config &config, uint64_t process, Health &health,
                       std::unique_ptr<Group> &result);
    /// The same for ranks of several hosts, of any number; `host` carries out what its GPUs copy to host memory. What
    /// the others say of peers' memory and links does not hold for it (runtime/cuda/far/far_group.h). `why_flat`: why
    /// tiers are not used (runtime/cuda/far/tiered_group.h); empty: they are, where they can be made.
    static Status make_far(Bootstrap &bootstrap, const Config &config, uint64_t process, const Tiers &tiers,
                           const std::string &why_flat, std::unique_ptr<FarHost> host, Health &health,
                           std::unique_ptr<Group> &result);
    Group() = default;
    Group(const Group &) = delete;
    Group &operator=(const Group &) = delete;
    /// Gives up what still runs, waits for it, then frees everything.
    virtual ~Group() = default;
    /// Destroys it, after a question to the communicator that its watcher is at. Waits for nothing that runs, but for
    /// what CUDA waits for where the last group of all its ranks' processes was closed in good order and the program's
    /// memory is open; else a thread frees later what cannot be freed now.
    static void end(std::unique_ptr<Group> group);

    /// Makes all that is under way or queued on this rank's GPU give up. Any thread, also while another one is in a
    /// call; takes no lock that one holds while it puts work on a stream, and waits for nothing.
    virtual void abandon() = 0;
    /// Whoever calls this lets the group end only when all that was put on streams is done, so that nothing has to be
    /// noted for it in every call.
    virtual void caller_sees_ends() {}
    /// And tells before an operation that becomes part of the graph that `stream` captures.
    virtual Status note_capture(CUstream_st * /*stream*/) { return {}; }

    /// Returns when the operation, one that serves() is true for, is on the stream. Of a bcast, `in` is what its root
    /// sends: `out`, or what comes into it there too. Among ranks of one host an average divides by them, whatever
    /// `divisor` says. `shown`: where all ranks' outputs are, open everywhere; may be empty.
    virtual Status enqueue(const Operation &call, CUstream_st *stream, std::span<const Showing> shown) = 0;
    /// Carries it out on a stream of the group's own; returns when it is done.
    virtual Status run(const Operation &call) = 0;
    /// Messages to and from any ranks, all under way at once; those of a pair meet in the order of the calls, each
    /// with one of as many bytes. Their memory is this rank's GPU's. Returns when they are on the stream.
    virtual Status post(std::span<const Message> messages, CUstream_st *stream) = 0;
    /// A stream of the group's own, on which blocking calls run.
    [[nodiscard]] virtual CUstream_st *stream() const = 0;
    /// CUDA's number of this rank's GPU.
    [[nodiscard]] virtual int device() const = 0;
    /// Returns when all that is on it is done.
    virtual Status finish() = 0;
    /// Whether kernels gave up: the group is then of no more use.
    [[nodiscard]] virtual bool failed() const = 0;
    /// Whether it has little memory, because others of its process have most of it; then, whether that makes a call
    /// slower than it would be elsewhere, and a message. The same on all ranks. `shown`: outputs are.
    [[nodiscard]] virtual bool is_small() const { return false; }
    [[nodiscard]] virtual bool slows(algorithms::Collective /*collective*/, uint64_t /*bytes*/, bool /*shown*/) const {
        return false;
    }
    [[nodiscard]] virtual bool slows_message(uint64_t /*bytes*/) const { return false; }
    /// Whether it takes outputs that were shown to write into them. The same on all ranks.
    [[nodiscard]] virtual bool writes_outputs(algorithms::Collective /*collective*/, uint64_t /*bytes*/) const {
        return true;
    }
    /// How `call` would be carried out; static storage.
    [[nodiscard]] virtual const char *way(const Operation &call) const = 0;

    /// Collective. See flx.h.
    virtual Status add_memory(void *memory, size_t bytes) = 0;
    virtual Status remove_memory(void *memory) = 0;

    /// Outputs that nobody registered, as in ShownMemory. The caller exchanges the ranks' showings, and settles with
    /// the same answer on all. expect_shown() is collective and comes before the first; it prepares what large outputs
    /// need.
    virtual Status expect_shown() = 0;
    virtual void show(const Operation &call, bool frozen, Showing &mine) = 0;
    virtual Status open_shown(std::span<const Showing> all) = 0;
    virtual void settle_shown(std::span<const Showing> all, bool opened) = 0;
    /// Closes the memory of all peers. When all ranks have done so, the program may free what it has shown.
    virtual void close_shown() = 0;

    /// Collective: no rank frees what a peer still has open.
    virtual void close() = 0;

    // For end().
    /// abandon(); then it asks the communicator nothing any more.
    virtual void retire() { abandon(); }
    /// Whether it can be destroyed without waiting for anything that runs. `later`: called by a thread of FLX's own,
    /// where functions may be called that wait for the GPU as CUDA likes.
    virtual bool may_go(bool /*later*/) { return true; }
    [[nodiscard]] virtual std::vector<GpuLink> links() const = 0;
    /// What it has learnt.
    [[nodiscard]] virtual std::vector<Decision> explain() const { return {}; }
    /// Lines for flx_info.
    [[nodiscard]] virtual std::vector<std::string> report() const = 0;
};

}  // namespace flx::cuda
