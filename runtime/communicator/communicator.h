/// \file communicator.h
/// A communicator: ranks, links between them, vectors, plans, and the state of being broken.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "probe/cpus.h"
#include "runtime/base/counters.h"
#include "runtime/base/wait.h"
#include "runtime/cuda/near/group.h"
#include "runtime/execute/eager.h"
#include "runtime/execute/executor.h"
#include "runtime/execute/inbox.h"
#include "runtime/execute/pending.h"
#include "runtime/link/board.h"
#include "runtime/link/bootstrap.h"
#include "runtime/link/lending.h"
#include "runtime/plan/call_log.h"
#include "runtime/plan/operation.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/ways.h"
#include "runtime/process/movable.h"
#include "runtime/process/process.h"
#include "runtime/process/progress.h"
#include "runtime/shares/controller.h"
#include "runtime/shm/memory/bells.h"
#include "runtime/shm/memory/segment.h"
#include "runtime/shm/ways/channel.h"
#include "runtime/shm/ways/fused.h"
#include "runtime/shm/ways/peer_memory.h"
#include "runtime/shm/ways/review.h"
#include "runtime/shm/ways/stream.h"

namespace flx {

struct Introduction;

/// What is known of one rank of a communicator.
struct Member {
    uint64_t uid = 0;
    int pid = 0;
    int host = 0;     ///< index of the memory host, in order of its lowest rank
    int local = 0;    ///< index among the ranks of that host
    int process = 0;  ///< index for rails
    std::string hostname;
    probe::CpuMask cpus;  ///< its affinity
};

/// What probing found of a link.
struct LinkMeasured {
    bool done = false;
    double latency_ns = 0;             ///< one way
    double bytes_per_ns = 0;           ///< alone
    double together_bytes_per_ns = 0;  ///< while all links were loaded
    double small_ns = 0;               ///< a small chunk's time, equal on all ranks; 0: not measured
};

/// One link of a communicator. The index is the same on all ranks; a rank that does not have the link has a null one.
struct LinkSlot {
    std::string name;            ///< as this rank's host calls it
    std::string identity;        ///< equal on all ranks
    std::unique_ptr<Link> link;  ///< null: not on this rank
    std::string why_off;         ///< not empty: no share for it, and why
    bool is_tcp = false;         ///< within a host it goes through the host's memory, by the kernel
    LinkMeasured near;           ///< towards ranks of the same host
    LinkMeasured far;            ///< towards ranks of other hosts
    uint64_t bytes_before = 0;   ///< that probing put on it
    uint64_t chunks_before = 0;
};

class Communicator final : public Movable, private Router, private Watch {
  public:
    /// Collective over `bootstrap`. `parent`: a communicator of the same ranks whose measurements hold, or null.
    /// `devices`: GPUs that are in use are opened.
    static Status make(std::shared_ptr<Process> process, std::unique_ptr<Bootstrap> bootstrap, Config config,
                       const Communicator *parent, std::unique_ptr<Communicator> &result, bool devices = true);
    ~Communicator() override;

    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int size() const { return size_; }
    [[nodiscard]] Bootstrap &bootstrap() { return *bootstrap_; }
    [[nodiscard]] const std::shared_ptr<Process> &process() const { return process_; }
    /// The knobs in force, flx_config_t included.
    [[nodiscard]] const Config &config() const { return config_; }

    /// Carries out a collective whose arguments were checked (issue.cpp).
    Status run(const Call &call);
    /// Begins one. Null in `result`: it is done already; else it stays, and `given`'s arrays must stay, until
    /// recycle().
    Status issue(const Call &given, Pending *&result);
    /// Moves what is under way, once; for a call that waits for `waited` if that is not null. On errors all that was
    /// under way is done, with that status.
    Status poke(const Pending *waited, bool &moved);
    /// The same for a message to or from `peer`, which is another rank.
    Status issue_message(bool sends, void *memory, size_t bytes, int peer, Pending *&result);
    /// Collective, before a communicator is made of this one: returns when all ranks are there, or with the reason if
    /// the communicator breaks first.
    Status meet_again(CallKind what);
    /// Calls against other threads that move what is under way: the progress thread, or one that waits elsewhere. A
    /// program of one thread has neither. For those who look at counters, shares and ways, too.
    [[nodiscard]] std::unique_lock<std::recursive_mutex> guard() {
        return locks_ ? lock_counted(mutex_) : std::unique_lock<std::recursive_mutex>();
    }
    /// Nothing more comes of what is under way: all ranks hear why.
    void give_up(const Status &why);
    /// Returns when it is done, with its status.
    Status wait(Pending &waited);
    /// Whether it is done, after moving what can be moved.
    bool completed(Pending &pending, bool &moved);
    /// For the progress thread, or a wait elsewhere.
    bool move_in_thread() override;
    /// What issue() gave, after it was done.
    void recycle(Pending &pending);
    /// For a wait on several communicators: when none of them has completed anything. An error breaks off what is under
    /// way here.
    [[nodiscard]] Waiter waiter() { return Waiter(wait_policy(), *this); }
    void pause(Waiter &waiter);
    Status send(const void *data, size_t bytes, int peer);
    Status receive(void *data, size_t bytes, int peer);
    Status send_receive(const void *out, size_t out_bytes, int dest, void *in, size_t in_bytes, int source);
    /// Between the two, the three above, alltoall and alltoallv only note what they shall do; end_group() does it all
    /// at once.
    Status begin_group();
    Status end_group();
    /// The same for device memory (cuda/communicator_hooks.cpp): returns when it is on `stream`, or, if `blocking`,
    /// when it is done on a stream of its own. `shown`: as cuda::Group::enqueue; only if not blocking.
    Status run_on_device(const cuda::Call &call, CUstream_st *stream, bool blocking,
                         std::span<const cuda::Showing> shown = {});
    /// Messages between GPUs, likewise; in a group they are noted until its end. `all_call`: every rank does, so GPUs
    /// may be opened.
    Status post_on_device(std::span<const cuda::Message> messages, CUstream_st *stream, bool blocking,
                          bool all_call = false);
    /// Collective. See flx_register, flx_deregister.
    Status register_memory(void *memory, size_t bytes);
    Status deregister_memory(void *memory);
    /// As flx_comm_device_algorithm.
    Status device_way(const std::string &collective, size_t bytes, const void *recvbuf, const char *&name) const;
    /// Null until GPUs are in use.
    [[nodiscard]] cuda::Group *devices() const { return devices_.get(); }
    /// How it would be carried out.
    /// Null where ways stay as they were chosen.
    [[nodiscard]] const shm::Review *review() const { return review_.get(); }
    [[nodiscard]] Choice choose(algorithms::Collective collective, size_t bytes, const Needs &needs = {}) const;
    /// Lets peers go before the links go. Collective unless the communicator is broken.
    void close();

    /// Success, or FLX_ERR_COMM with the sentence of the error that broke it.
    [[nodiscard]] Status usable() const { return broken_.ok() ? Status() : why_broken(); }
    [[nodiscard]] const std::vector<LinkSlot> &links() const { return links_; }
    [[nodiscard]] const std::vector<Member> &members() const { return members_; }
    /// What sentences call ranks, where the program knows them by other numbers.
    void name_ranks(std::vector<int> names) { names_ = std::move(names); }
    /// As cuda::Health::look.
    [[nodiscard]] Status look_at_ranks(int awaited);
    /// Whether this rank or another has said that the communicator is broken. Any thread.
    [[nodiscard]] bool told_broken(Status &why) const;
    [[nodiscard]] int hosts() const { return hosts_; }
    /// Payload that this rank's operations put on a link, to all peers together.
    [[nodiscard]] LinkCounters counters(int index) const;
    /// Part of `link` in the vector that the last operation used towards its last peer.
    [[nodiscard]] double last_share(int link) const;
    /// Reports of devices that carry nothing: (name, why).
    [[nodiscard]] const std::vector<std::pair<std::string, std::string>> &left_off() const { return left_off_; }
    /// How hosts are asked whether their ranks live where it is not by datagram: a sentence each.
    [[nodiscard]] const std::vector<std::string> &liveness_notes() const { return liveness_notes_; }
    /// Whether all ranks share one memory.
    [[nodiscard]] bool shares_memory() const { return fused_ != nullptr; }
    /// Why ranks do not reach each other's buffers by the kernel, and do not map those of flx_malloc; empty if they do.
    [[nodiscard]] const std::string &why_not_by_kernel() const { return why_no_peer_memory_.not_by_kernel; }
    [[nodiscard]] const std::string &why_not_mapped() const {
        return peer_memory_ != nullptr ? peer_memory_->why_not_mapped() : why_no_peer_memory_.not_mapped;
    }
    /// Null where nothing is mapped, or nobody but the cores may copy it.
    [[nodiscard]] const shm::PeerMemory *copies_by_engine() const {
        return peer_memory_ != nullptr && peer_memory_->engine_reach() != nullptr ? peer_memory_.get() : nullptr;
    }
    [[nodiscard]] int64_t probe_ns() const { return probe_ns_; }
    /// Sentences about rails that divide what carries them.
    [[nodiscard]] const std::vector<std::string> &sharing() const { return sharing_; }

  private:
    Communicator() = default;

    struct Route;

    // Making (wiring.cpp).
    [[nodiscard]] std::string agreed_knobs() const;
    [[nodiscard]] std::string forced_shares() const;
    Status meet();
    [[nodiscard]] bool crowded() const;
    Status note_members(const std::vector<std::string> &all, const Introduction &mine,
                        std::vector<std::string> &responders);
    Status take_id();
    Status meet_responders(std::vector<std::string> &addresses);
    void settle_liveness();
    Status make_shared_memory();
    [[nodiscard]] size_t shared_cache() const;
    Status make_rails();
    Status allow_links();
    Status exchange_links();
    void drop_failed_links();
    [[nodiscard]] bool reaches(size_t link, int peer) const;
    Status measure(const Communicator *parent);
    Status measure_ring(int next, int previous, double budget_ms, std::span<LinkMeasured, kMaxLinks> found);
    static LinkMeasured mean_of(const std::vector<std::array<LinkMeasured, 2 * kMaxLinks>> &all, size_t place);
    static LinkMeasured among(const std::vector<std::array<LinkMeasured, 2 * kMaxLinks>> &all, size_t place,
                              const LinkMeasured &own);
    void find_sharing(const std::vector<std::array<LinkMeasured, 2 * kMaxLinks>> &all);
    static double small_ns(const std::vector<std::array<LinkMeasured, 2 * kMaxLinks>> &all, size_t place);
    Status own_rail();
    Status exchange_owners();
    Status make_routes();
    void lend_rails();
    Status exchange_routes();
    Status connect_rails();
    void leave_idle_rails();
    Status choose_ways(const Communicator *parent);
    [[nodiscard]] bool fetches() const { return peer_memory_ != nullptr && peer_memory_->by_kernel(); }
    Status find_tree();
    void use_huge_pages();
    void use_copy_engine();
    Status make_planner(const Communicator *parent);

    // GPUs (cuda/communicator_hooks.cpp).
    class DeviceHealth;
    Status open_devices();
    std::string why_no_tiers(cuda::Tiers &tiers) const;
    Status open_devices_in_use();
    void close_devices();
    struct DeviceMail {
        std::vector<cuda::Message> messages;
        CUstream_st *stream = nullptr;
        bool blocking = false;
    };
    Status begin_mail(const DeviceMail &mail);
    Status end_mail(const DeviceMail &mail);
    Status settle_device(Status status);

    // Router.
    const PartitionVector &vector(int peer, size_t bytes, int phase) override;
    [[nodiscard]] uint32_t incoming_links(int peer) const override { return incoming_[peer]; }
    [[nodiscard]] uint32_t outgoing_links(int peer) const override { return routes_[members_[peer].host].links; }
    [[nodiscard]] uint32_t takers(int peer, size_t bytes) const override;
    [[nodiscard]] double rate(int link, int peer) const override;
    [[nodiscard]] bool may_move_cells() const override { return !forced_; }
    void lost(int link, int peer) override;

    // Watch (watch.cpp).
    [[nodiscard]] const WaitPolicy &wait_policy() const;
    [[nodiscard]] const WaitPolicy &brief_wait_policy() const { return *brief_policy_; }
    void make_brief_policies();
    void outlasted() override;
    void progress() override;
    void progress_outside() override;
    bool awaited_outside(int64_t now) override;
    Status check(int64_t waited_ns) override;
    bool arm() override;
    void disarm() override;
    void sleep(int64_t ns) override;
    bool doze() override;
    Status check_peer(const Awaited &awaited, int64_t waited_ns, bool &answering);
    /// `what`: during which; empty: the operation that is under way.
    Status check_host(const std::string &what = {});
    void list_awaited();
    void look_while_testing(bool moved);
    [[nodiscard]] int64_t ask_after_ns() const;
    Status hear();
    PeerReport ask(int rank);
    /// Whether a rank of this host has closed the communicator: it owes nothing, and may be gone.
    [[nodiscard]] bool has_left(int rank) const;
    Status died(int rank, const std::string &what);
    [[nodiscard]] Status silent(int rank, const PeerReport &report, const std::string &what) const;
    Status investigate(Status status);
    Status declare_broken(Status status);
    [[nodiscard]] std::string describe(int rank) const;
    [[nodiscard]] Status why_broken() const;
    [[nodiscard]] std::string describe_operation() const;

    // Calls that do not match (matching.cpp).
    void note_call(CallKind what);
    void note_done(const Pending &pending);
    [[nodiscard]] uint64_t asked_call() const;
    [[nodiscard]] uint64_t blocked_call() const;
    void tell_blocked();
    void leave_blocked();
    Status check_calls(int peer);
    Status check_given(const Awaited &awaited);
    Status check_meeting(int peer, const CallAnswer &theirs, uint64_t times);
    Status check_crossed(int peer, const CallAnswer &theirs, uint64_t times);
    [[nodiscard]] Status mismatch(int peer, const Contradiction &found);
    [[nodiscard]] Status name_mismatch(Status status);
    [[nodiscard]] int name(int rank) const { return names_.empty() ? rank : names_[static_cast<size_t>(rank)]; }
    [[nodiscard]] std::string what_it_does(int peer) const;
    struct Seen {
        std::array<uint64_t, 4> facts{};
        uint64_t times = 0;  ///< that the peer had said something by then
    };
    static bool seen_again(Seen &before, const Seen &now);

    // Lending (communicator.cpp).
    [[nodiscard]] bool begins_on_own_rail(int peer, size_t bytes) const;
    [[nodiscard]] uint64_t bytes_for_other_hosts(const Exchange &exchange) const;

    // Groups and messages (group.cpp).
    void add_messages(Pending &pending, const Call &call, uint64_t sequence);
    Status carry_messages(Pending &pending);
    Status begin_messages(Pending &pending, bool waits, bool &done);
    [[nodiscard]] int turns_at_once() const;
    void pause_at_once() const;
    bool carry_rooted(const Call &call, uint32_t &steps);
    bool carry_at_once(Pending &pending, bool waits);
    Status begin_sums(std::vector<Pending *> &begun);
    void put_back_sums(const std::vector<Pending *> &begun);

    // What is under way (issue.cpp).
    class Inside;
    struct WakeThread;
    [[nodiscard]] Call scaled(const Call &call, Pending &memory);
    [[nodiscard]] Status check_outside() const;
    Status add_to_group(const Call &call);
    [[nodiscard]] Choice choose(const Call &call, bool steps) const;
    /// All that follows from what a call's peers know as well.
    struct Decided {
        size_t count = SIZE_MAX;  ///< of the call; no call's where it is not kept
        flx_dtype_t dtype = FLX_INT8;
        flx_op_t op = FLX_SUM;
        int root = 0;
        uint32_t signature = 0;
        Choice choice;
        uint64_t shown = 0;  ///< bytes that this rank shows others in shared memory
        CallRecord record;
    };
    Status prelude(const Call &call, CallKind kind, bool &done, const Decided *&decided);
    Status run_now(const Call &call, const Decided &decided);
    [[nodiscard]] Decided decide(const Call &call, const Choice &choice, CallKind kind = CallKind::blocking) const;
    const Decided &decide(const Call &call);
    void forget_decided() { decided_.fill({}); }
    [[nodiscard]] uint32_t signature_of(const Call &call, const Choice &choice, CallKind kind) const;
    Pending &acquire();
    Status prepare(Pending &pending, const Call &call, const Decided &decided);
    void submit(Pending &pending);
    Executor &idle_executor();
    [[nodiscard]] bool may_begin(const Pending &pending) const;
    Status begin_ready(bool &moved);
    Status begin_exchange(Pending &pending);
    void end_lending();
    Status turn(bool &moved);
    void complete(size_t index);
    Status drain();
    template <typename Body>
    Status attempt(Body &&body) {
        try {
            return body();
        } catch (const std::exception &error) {  // No memory, say: chunks may be on their way, as with other errors.
            return fail(FLX_ERR_SYSTEM, "{} failed: {}", describe_operation(), error.what());
        }
    }
    Status break_off(Status status);
    void say_ended(const Pending &pending);
    [[nodiscard]] uint64_t ended_messages(int peer) const;

    /// Whether the current operation goes over links, by the executor.
    [[nodiscard]] bool by_links() const { return way_ == Way::scheduled || way_ == Way::exchanged; }
    Status carry_out(Call &call, const Decided &decided, const shm::Review::Look *look);
    [[nodiscard]] bool may_be_mapped(const Operation &operation);
    Status carry_out_by(const Call &call);
    Status carry_timed(const Call &call, const shm::Review::Look &look);
    Status settle(Waiter &waiter);
    void drop_strays();
    [[nodiscard]] bool settled() const;
    Status settle_probing();
    Status run_fused(const Call &call, Waiter &waiter);
    [[nodiscard]] uint64_t shown_bytes(const Call &call, Way way) const;
    void leave_shared_memory();
    /// Null where this rank shares memory with no other.
    [[nodiscard]] shm::Channel *channel() const { return static_cast<shm::Channel *>(links_[0].link.get()); }
    Status compare_calls(const Operation &operation);
    void learn(const Pending &pending, int64_t elapsed_ns);
    void look_at_links(const std::vector<int> &peers);
    void set_lost(int link, int peer, bool lost);
    void report_change(Route &route, size_t bytes);
    void forget_probing();
    [[nodiscard]] LinkCounters carried(const Route &route, int index) const;
    void take_samples();
    [[nodiscard]] double latency_seen(const Route &route, int index) const;

    std::shared_ptr<Process> process_;
    std::unique_ptr<Bootstrap> bootstrap_;
    std::unique_ptr<Bootstrap> local_;  ///< ranks of this host
    Config config_;
    // Of the knobs, what calls look at.
    bool check_ = false;
    double deadline_s_ = 0;
    double late_warning_s_ = 0;
    int rank_ = 0;
    int size_ = 1;
    int hosts_ = 1;
    int host_ = 0;
    int ranks_here_ = 1;
    int most_per_host_ = 1;
    ucx::Rails *rails_ = nullptr;  ///< the process's; null where this communicator uses none
    std::vector<Member> members_;
    std::vector<int> names_;                 ///< empty: ranks are called by their numbers
    std::vector<std::string> device_texts_;  ///< by rank, from meeting until rails are planned

    std::unique_ptr<shm::Segment> segment_;
    Board *board_ = nullptr;             ///< in the segment
    std::unique_ptr<shm::Bells> bells_;  ///< with fused_
    std::unique_ptr<shm::Fused> fused_;  ///< with stream_, where all ranks are on one host and shm may carry all
    std::unique_ptr<shm::Stream> stream_;
    std::unique_ptr<shm::PeerMemory> peer_memory_;  ///< with fused_, where it works
    shm::PeerMemory::Why why_no_peer_memory_;
    size_t cache_share_ = 0;  ///< shm/cache_share.h
    shm::Ways ways_;
    std::unique_ptr<shm::Review> review_;
    std::vector<LinkSlot> links_;
    std::byte *ledger_ = nullptr;       ///< in the segment, Lending::bytes
    int own_rail_ = -1;                 ///< the link that is this rank's own; -1 where rails are not owned
    std::vector<uint32_t> owned_;       ///< by rank: links that it owns, as a mask
    std::unique_ptr<Lending> lending_;  ///< null where rails are not lent
    std::vector<LentLink *> lent_;
    PartitionVector own_vector_;   ///< all on the own rail
    bool opens_exchange_ = false;  ///< an exchange is being started
    std::vector<std::pair<std::string, std::string>> left_off_;
    std::vector<int> tried_;  ///< ranks that were asked whether they live: one of each other host
    std::vector<std::string> liveness_notes_;
    int64_t probe_ns_ = 0;
    std::vector<std::string> sharing_;

    struct Told {
        PartitionVector vector;
        std::array<double, kMaxLinks> rate{};  ///< bytes/ns
    };
    // By host, as this rank sees it.
    struct Route {
        std::unique_ptr<Controller> controller;
        std::vector<int> peers;
        uint32_t links = 0;                           ///< mask of those that may carry something
        std::vector<LinkCounters> seen;               ///< totals that were learned from
        std::array<LinkSample, kMaxLinks> samples{};  ///< of what came since, by link
        std::vector<Told> told;                       ///< by size class: what a user was last told
    };
    std::vector<Route> routes_;
    std::array<LinkCounters, kMaxLinks> timed_{};  ///< totals to all routes that were learned from
    std::vector<uint32_t> have_;                   ///< by rank: links that it has, as a mask
    std::vector<uint32_t> outgoing_;  ///< by host: links that this rank may send over, also when others are lost
    std::vector<uint32_t> incoming_;  ///< by peer: links that it may send over, as a mask
    std::vector<uint32_t> lost_;      ///< by peer: links that do not carry to it now, as a mask
    PartitionVector last_vector_;
    bool learns_ = false;
    bool forced_ = false;  ///< FLX_PARTITION

    std::unique_ptr<Planner> planner_;
    /// By collective, the last call's: programs call the same again and again.
    std::array<Decided, static_cast<size_t>(algorithms::Collective::reduce_scatter) + 1> decided_;
    Decided decided_once_;  ///< of the last call that is not kept there
    WaitPolicy wait_policy_;
    WaitPolicy shared_policy_;     ///< the same where others want this thread's core
    WaitPolicy contested_policy_;  ///< for what is brief, where they keep it for long
    const WaitPolicy *brief_policy_ = &wait_policy_;
    bool woken_ = false;  ///< what comes from other hosts, which is all that can come, ends a sleep
    uint64_t sequence_ = 0;
    MessageCounts message_counts_{0};
    std::vector<Link *> executor_links_;
    std::unique_ptr<Inbox> inbox_;
    std::unique_ptr<Eager> eager_;  ///< null where more than shared memory may carry messages
    std::vector<std::unique_ptr<Executor>> executors_;
    std::vector<Executor *> idle_executors_;
    std::vector<std::unique_ptr<Pending>> pendings_;
    std::vector<Pending *> idle_pendings_;
    std::vector<Pending *> queue_;            ///< issued and not begun, in order
    std::vector<Pending *> running_;          ///< by executors, in the order in which they began
    Pending *group_ = nullptr;                ///< the messages that the open group gathers,
    std::vector<Call> grouped_;               ///< and its reductions
    DeviceMail grouped_mail_;                 ///< and its messages between GPUs
    bool inside_ = false;                     ///< a call of this library is at work here
    bool in_thread_ = false;                  ///< it is not the program that moves what is under way
    bool left_to_steps_ = false;              ///< carry_out() did nothing: a rank's buffer cannot be reached by others
    uint32_t looks_ = 0;                      ///< for operations that were not done
    int64_t left_ns_ = 0;                     ///< when it was last, with something under way
    bool locks_ = false;                      ///< calls take mutex_
    std::recursive_mutex mutex_;              ///< of all calls, where other threads may move what is under way
    std::shared_ptr<ProgressThread> thread_;  ///< null: progress is made in calls alone
    Status broken_;

    std::unique_ptr<cuda::Health> device_health_;
    std::unique_ptr<cuda::Group> devices_;

    uint64_t shared_sent_ = 0;  ///< bytes that fused and streamed operations showed

    CallLog calls_;

    // Of the current wait.
    const Operation *current_ = nullptr;
    uint64_t waits_for_ = 0;     ///< the call that what goes over links must complete first; 0: it waits for several
    bool told_blocked_ = false;  ///< the process says that it is blocked here
    std::vector<Seen> crossed_;  ///< by peer: where it was seen to wait for this rank,
    std::vector<Seen> given_;    ///< and to have given all that it has; twice, the second for what is received
    bool named_ = false;         ///< an error says which calls do not match
    uint32_t tests_ = 0;         ///< in a row that found nothing
    int64_t tests_since_ns_ = 0;
    Way way_ = Way::scheduled;
    bool warned_ = false;
    bool told_ = false;  ///< a peer said that the communicator is broken
    int64_t looked_ns_ = 0;
    std::vector<Awaited> awaited_;
};

}  // namespace flx
