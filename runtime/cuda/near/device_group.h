/// \file device_group.h
/// Group on CUDA.
#pragma once

#include <atomic>
#include <list>
#include <optional>

#include "runtime/cuda/memory/driver.h"
#include "runtime/cuda/memory/farewell.h"
#include "runtime/cuda/memory/graph_use.h"
#include "runtime/cuda/memory/kept_memory.h"
#include "runtime/cuda/memory/shared_memory.h"
#include "runtime/cuda/memory/shown_memory.h"
#include "runtime/cuda/memory/stream_flags.h"
#include "runtime/cuda/memory/watcher.h"
#include "runtime/cuda/near/group.h"
#include "runtime/cuda/near/share_control.h"
#include "runtime/cuda/near/staged_link.h"
#include "runtime/cuda/protocol/kernels.h"
#include "runtime/cuda/protocol/mailbox.h"
#include "runtime/cuda/protocol/plan.h"

namespace flx::cuda {

/// All ranks but the own, a bit each.
inline uint32_t peers_of(const Job &job) {
    return ((1U << job.ranks) - 1) & ~(1U << job.rank);
}

class DeviceGroup final : public Group {
  public:
    DeviceGroup(Bootstrap &bootstrap, uint64_t process, Health &health)
        : bootstrap_(bootstrap), health_(health), process_(process), watcher_(health, flags_), host_(flags_) {}
    ~DeviceGroup() override;

    /// Collective.
    Status make(const Config &config);

    Status enqueue(const Operation &call, CUstream_st *stream, std::span<const Showing> shown) override;
    Status run(const Operation &call) override;
    Status post(std::span<const Message> messages, CUstream_st *stream) override;
    [[nodiscard]] CUstream_st *stream() const override { return stream_; }
    [[nodiscard]] int device() const override { return device_; }
    Status finish() override;
    [[nodiscard]] bool failed() const override { return !watcher_.failure().ok(); }
    [[nodiscard]] bool is_small() const override { return small_; }
    [[nodiscard]] bool slows(algorithms::Collective collective, uint64_t bytes, bool shown) const override;
    [[nodiscard]] bool writes_outputs(algorithms::Collective collective, uint64_t bytes) const override {
        return cuda::writes_outputs(collective, bytes, ranks_, room_.window, limits_);
    }
    [[nodiscard]] bool slows_message(uint64_t bytes) const override {
        return small_ && !alike(full_.mailbox, room_.mailbox, bytes);
    }
    [[nodiscard]] const char *way(const Operation &call) const override;
    Status add_memory(void *memory, size_t bytes) override;
    Status remove_memory(void *memory) override;
    Status expect_shown() override;
    void show(const Operation &call, bool frozen, Showing &mine) override;
    Status open_shown(std::span<const Showing> all) override;
    void settle_shown(std::span<const Showing> all, bool opened) override;
    void close_shown() override;
    void close() override;
    void abandon() override { watcher_.abort(); }
    void caller_sees_ends() override { notes_ends_ = false; }
    Status note_capture(CUstream_st *stream) override { return graphs_.begin(stream); }
    void retire() override;
    bool may_go(bool later) override;
    /// Returns when nothing of this rank's is under way any more, on whatever stream; or when kernels gave up.
    Status settle();
    [[nodiscard]] std::vector<GpuLink> links() const override;
    [[nodiscard]] std::vector<Decision> explain() const override {
        return control_ ? control_->explain() : std::vector<Decision>();
    }
    [[nodiscard]] std::vector<std::string> report() const override;

  private:
    /// Events that measure how long an operation takes.
    struct Clock {
        CUevent_st *began = nullptr;
        CUevent_st *copied = nullptr;   ///< NVLink's part is done
        CUevent_st *drained = nullptr;  ///< and that of PCIe
        struct Timed {
            uint64_t message = 0;
            uint64_t staged = 0;
            ShareControl::Turn turn;
        } call;
    };
    /// What of each part goes through host memory.
    struct Cut {
        uint64_t from = 0;
        uint64_t bytes = 0;
        uint64_t message = 0;  ///< bytes that either link could take
        ShareControl::Turn turn;
        Clock *clock = nullptr;  ///< not null: it is timed here
    };
    Status choose_room(const Config &config);
    Status allocate(const Config &config);
    bool idle();
    Status note_end(CUstream_st *stream, bool in_graph, bool counted);
    /// Graphs that were captured may be replayed, and what they use must be there.
    [[nodiscard]] bool stays_for_graphs() const { return graphs_.lasts() && !closed_; }
    bool counted_have_ended();
    [[nodiscard]] Status await_replays() const;
    Status launch_counted(const void *kernel, const Plan &plan, const Job &job, CUstream_st *stream);
    Status put_and_note(const Operation &call, const Plan &plan, CUstream_st *stream,
                        const std::optional<PeerOutputs> &outputs);
    Status put(const Operation &call, const Plan &plan, CUstream_st *stream, const std::optional<PeerOutputs> &outputs,
               bool counted);
    /// Whole pages: copy engines are a quarter slower in other allocations.
    static uint64_t allocation_of_room(const Room &room) { return (room.bytes() + kPage - 1) / kPage * kPage; }
    /// The word that Job::dead points to.
    [[nodiscard]] uint32_t *dead_word() const {
        return reinterpret_cast<uint32_t *>(windows_.of(rank_) + WindowLayout::kDead);
    }
    /// Whether it goes to another rank.
    [[nodiscard]] bool travels(const Message &message) const { return message.peer != rank_ && message.bytes != 0; }
    /// Where the peer sees what is received; null: it does not.
    [[nodiscard]] char *seen_by_peer(const Message &message) const;
    template <class AnyMail>
    Status post_as(const void *kernel, std::span<const Message> messages, CUstream_st *stream);
    Status agree_on(const Config &config);
    Status agree_on_links();
    Status load_kernels();
    [[nodiscard]] const SharedMemory *region_of(const Operation &call) const;
    Status outputs_of(const Operation &call, std::span<const Showing> shown, std::optional<PeerOutputs> &outputs) const;
    [[nodiscard]] Plan plan(const Operation &call, const std::optional<PeerOutputs> &outputs) const;
    [[nodiscard]] Job job_for(const Operation &call, const Plan &plan, const std::optional<PeerOutputs> &outputs) const;
    Status launch(const void *kernel, uint32_t blocks, uint32_t threads, const void *argument, CUstream_st *stream,
                  uint32_t shared_bytes = 0) const;
    Status carry_out(const Operation &call, const Plan &plan, const Job &job, const Cut &cut, CUstream_st *stream);
    void count(const Operation &call, const Plan &plan, const Cut &cut);

    // Copy engines (engines.cpp).
    Status run_engines(const Operation &call, const Plan &plan, const Job &job, const Cut &cut, CUstream_st *stream);
    Status copy_steps(const Job &job, const Cut &cut, CUstream_st *stream);
    Status reduce_steps(const Operation &call, const Plan &plan, const Job &job, const Cut &cut, CUstream_st *stream);
    Status send_results(const Job &job, const Cut &cut, uint64_t late, CUevent_st *early, CUstream_st *stream);
    Status step_flags(const Job &job, uint32_t channel, uint32_t tell, uint32_t hear, CUstream_st *stream);
    Status fork(CUstream_st *from, CUstream_st *to);

    // Carries it out without kernels (engines_alone.cpp).
    Status run_alone(const Operation &call, const Plan &plan, const Job &job, const Cut &cut, CUstream_st *stream);
    Status copy_through_windows(const Job &job, CUstream_st *stream);
    Status pass_on(const Job &job, CUstream_st *stream);
    Status copy(char *to, const char *from, uint64_t bytes, CUstream_st *stream) const;

    // The staged share (staged_share.cpp).
    Status open_staged(const Config &config);
    Status settle_staged(uint64_t bytes, bool paged);
    Status measure_staged();
    [[nodiscard]] Job job_between_windows(Collective collective, uint64_t room);
    Status measure_collective(Collective collective, uint64_t room, std::array<LinkEstimate, kGpuLinks> &links);
    Status time_once(const Job &job, uint64_t staged_bytes, ShareBoard::Times &times);
    Status cut_for(const Job &job, const Plan &plan, CUstream_st *stream, Cut &cut);
    Status begin_staged(const Job &job, const Cut &cut, CUstream_st *stream);
    Status end_staged(const Cut &cut, CUstream_st *stream);
    Status poll_times();
    [[nodiscard]] std::vector<std::string> staged_report() const;

    Bootstrap &bootstrap_;
    Health &health_;
    uint64_t process_;
    int rank_ = 0;
    int ranks_ = 0;
    int device_ = -1;
    Room room_;
    Room full_;  ///< what that would be where others had left it
    bool small_ = false;
    Limits limits_;
    char *window_ = nullptr;
    SharedMemory windows_;  ///< and mailboxes
    uint32_t multiprocessors_ = 0;
    std::list<SharedMemory> regions_;
    std::unique_ptr<MemoryAccess> access_;
    std::optional<ShownMemory> shown_;
    StreamFlags flags_;  ///< open: multiprocessors are spared
    Watcher watcher_;
    CUstream_st *stream_ = nullptr;  ///< of blocking calls
    CUstream_st *side_ = nullptr;    ///< of what runs beside the caller's stream
    CUevent_st *event_ = nullptr;
    std::vector<CUevent_st *> reduced_;  ///< by chunk, in turn
    /// After the last operation on a stream of the program's but for those that count themselves, whose calls are the
    /// shortest: to record it takes longer than half of what else they do.
    CUevent_st *ended_ = nullptr;
    uint32_t counted_blocks_ = 0;  ///< of kernels that count them when they have ended (WindowLayout::kEnded)
    uint32_t counted_seen_ = 0;    ///< of those, as they said last
    bool counted_asked_ = false;   ///< the count is on its way into the watcher's spare word
    bool notes_ends_ = true;
    GraphUse graphs_;         ///< nothing else notes the end of what is replayed
    bool closed_ = false;     ///< by all ranks: graphs are replayed no more
    bool alone_ = false;      ///< closed, as the last group of all its ranks' processes
    bool by_thread_ = false;  ///< of FLX's own, it is freed
    Farewell farewell_;
    GroupCount count_;
    std::string why_no_lines_;
    std::atomic<uint64_t> sent_{0};    ///< over NVLink
    std::atomic<uint64_t> staged_{0};  ///< over PCIe

    StagedLink host_;
    std::optional<ShareControl> control_;
    uint64_t pinned_wanted_ = 0;
    bool host_tried_ = false;
    std::optional<double> forced_;  ///< share of PCIe in FLX_PARTITION
    bool frozen_ = false;
    std::string why_not_staged_;
    double last_share_ = 0;
    double nvlink_rate_ = 0;
    double staged_rate_ = 0;
    /// A ring; those from clocks_done_ to clocks_begun_ are under way.
    std::array<Clock, 16> clocks_;
    uint64_t clocks_begun_ = 0;
    uint64_t clocks_done_ = 0;
};

}  // namespace flx::cuda
