/// \file communicator.h
/// A communicator: ranks, links between them, vectors, plans, and the state of being broken.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "probe/measure.h"
#include "runtime/base/counters.h"
#include "runtime/base/wait.h"
#include "runtime/base/wait_policies.h"
#include "runtime/communicator/late_wait.h"
#include "runtime/communicator/mirror.h"
#include "runtime/cuda/memory/mark.h"
#include "runtime/cuda/near/group.h"
#include "runtime/execute/queue.h"
#include "runtime/kept/kept_links.h"
#include "runtime/link/board.h"
#include "runtime/link/bootstrap.h"
#include "runtime/link/layout.h"
#include "runtime/link/slot.h"
#include "runtime/plan/call_log.h"
#include "runtime/plan/decisions.h"
#include "runtime/plan/operation.h"
#include "runtime/process/movable.h"
#include "runtime/process/process.h"
#include "runtime/process/progress.h"
#include "runtime/shares/routes.h"
#include "runtime/shm/ways/host_ways.h"
#include "runtime/shm/ways/nearby.h"

namespace flx {

class Staged;
struct Introduction;

class Communicator final : public Movable, private Watch {
  public:
    /// When GPUs are opened: with the communicator if all ranks use one by then, by the first call on their memory, or
    /// never. Where ranks differ in the first two, late.
    enum class Gpus : uint8_t { if_in_use, late, never };
    /// Collective over `bootstrap`. `parent`: a communicator of the same ranks whose measurements hold, or null.
    static Status make(std::shared_ptr<Process> process, std::unique_ptr<Bootstrap> bootstrap, Config config,
                       const Communicator *parent, std::unique_ptr<Communicator> &result, Gpus gpus = Gpus::if_in_use);
    ~Communicator() override;

    [[nodiscard]] int rank() const { return layout_.rank; }
    [[nodiscard]] int size() const { return layout_.size; }
    [[nodiscard]] Bootstrap &bootstrap() { return *bootstrap_; }
    [[nodiscard]] const std::shared_ptr<Process> &process() const { return process_; }
    /// The knobs in force, flx_config_t included.
    [[nodiscard]] const Config &config() const { return knobs_.all; }

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
        return entry_.locks ? lock_counted(entry_.mutex) : std::unique_lock<std::recursive_mutex>();
    }
    /// Nothing more comes of what is under way: all ranks hear why.
    void give_up(const Status &why);
    /// The same, as the program wants it.
    Status abort(const std::string &reason);
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
    [[nodiscard]] Waiter waiter() { return Waiter(policies_.ordinary(), *this); }
    void pause(Waiter &waiter);
    Status send(const void *data, size_t bytes, int peer);
    Status receive(void *data, size_t bytes, int peer);
    Status send_receive(const void *out, size_t out_bytes, int dest, void *in, size_t in_bytes, int source);
    /// Between the two, the three above, alltoall and alltoallv only note what they shall do; end_group() does it all
    /// at once.
    Status begin_group();
    Status end_group();
    /// The same for device memory (devices.cpp): returns when it is on `stream`, or, if `blocking`,
    /// when it is done on a stream of its own. `shown`: as cuda::Group::enqueue; only if not blocking.
    Status run_on_device(const Operation &call, CUstream_st *stream, bool blocking,
                         std::span<const cuda::Showing> shown = {});
    /// Who carries a call out, by where its buffers are and what it is. The same on all ranks.
    enum class Place : uint8_t {
        host,
        gpus,
        mail,     ///< GPUs, as messages, where it blocks; else `mirrored`
        mirrored  ///< its buffers are in GPU memory, but GPUs do not have it: by way of host memory
    };
    [[nodiscard]] Place place_of(const Call &call) const;
    /// Of one host: nothing on GPU memory is carried out by GPUs.
    [[nodiscard]] bool too_many_for_gpus() const { return layout_.hosts == 1 && layout_.size > cuda::kMaxRanks; }
    /// The program's own traffic, which FLX lets move while it waits, may call FLX again, and may not wait.
    [[nodiscard]] Status check_outside() const { return entry_.inside ? in_wait() : Status(); }
    /// Of one whose place is `gpus`.
    static Operation on_gpus(const Call &call);
    /// Carries out one whose place is `mirrored`.
    Status run_mirrored(Call call);
    /// For one that does not block: its buffers are in the mirror from then on, which ends before this communicator. If
    /// it is `begun` at once, other ranks wait for this one, which breaks the communicator when it finds no memory.
    Status make_mirror(Call &call, bool begun, std::unique_ptr<Mirror> &mirror);
    Status begin_mirrored(const Call &call, const Mirror &mirror, Pending *&result);
    /// run_on_device(), but returns at once; `end` tells when it is done, which ended_on_device() looks at, and how it
    /// went. Moves what else is under way. Then forget_on_device(), before which GPUs take no other calls that do not
    /// block the program.
    Status begin_on_device(const Operation &call, cuda::Mark &end);
    bool ended_on_device(const cuda::Mark &end, Status &status, bool &moved);
    void forget_on_device() { --devices_.under_way; }
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
    [[nodiscard]] cuda::Group *devices() const { return devices_.group.get(); }
    /// As given to make().
    [[nodiscard]] Gpus opens_gpus() const { return devices_.opens; }
    /// Null where not all ranks share one memory.
    [[nodiscard]] const shm::HostWays *host_ways() const { return on_host_.ways.get(); }
    /// How it would be carried out: as Planner::name.
    [[nodiscard]] const char *way_name(algorithms::Collective collective, size_t bytes, const Needs &needs = {}) const {
        return decisions_.name(collective, bytes, needs);
    }
    /// As Planner::candidates.
    [[nodiscard]] std::vector<Planner::Candidate> candidates(algorithms::Collective collective, size_t bytes) const {
        return decisions_.candidates(collective, bytes);
    }
    /// As Planner::all_candidates.
    [[nodiscard]] std::vector<Planner::Candidate> all_candidates(algorithms::Collective collective,
                                                                 size_t bytes) const {
        return decisions_.all_candidates(collective, bytes);
    }
    /// Lets peers go before the links go. Collective unless the communicator is broken.
    void close();

    /// Success, or FLX_ERR_COMM with the sentence of the error that broke it.
    [[nodiscard]] Status usable() const { return broken_.ok() ? Status() : why_broken(); }
    [[nodiscard]] const LinkSlots &links() const { return links_; }
    [[nodiscard]] const std::vector<Member> &members() const { return layout_.members; }
    /// What sentences call ranks, where the program knows them by other numbers.
    void name_ranks(std::vector<int> names) { layout_.names = std::move(names); }
    /// As cuda::Health::look.
    [[nodiscard]] Status look_at_ranks(int awaited, bool said);
    /// Whether this rank or another has said that the communicator is broken. Any thread.
    [[nodiscard]] bool told_broken(Status &why) const;
    [[nodiscard]] int hosts() const { return layout_.hosts; }
    /// Payload that this rank's operations put on a link, to all peers together.
    [[nodiscard]] LinkCounters counters(int index) const;
    /// Part of `link` in the vector that the last operation used towards its last peer.
    [[nodiscard]] double last_share(int link) const {
        return memory_.showed ? (link == 0 ? 1 : 0) : routes_.last_share(link);
    }
    /// Reports of devices that carry nothing: (name, why).
    [[nodiscard]] const std::vector<std::pair<std::string, std::string>> &left_off() const { return made_.left_off; }
    /// How hosts are asked whether their ranks live where it is not by datagram: a sentence each.
    [[nodiscard]] const std::vector<std::string> &liveness_notes() const { return made_.liveness_notes; }
    [[nodiscard]] int64_t probe_ns() const { return made_.probe_ns; }
    /// Whence what is known of the links is, in words; on rank 0. Empty where they were not measured.
    [[nodiscard]] const std::string &measured() const { return made_.measured; }
    /// What plans reckon with between hosts.
    [[nodiscard]] const algorithms::CostModel &costs() const { return made_.costs; }
    /// Rails whose rates these costs have; 0: none was measured between hosts.
    [[nodiscard]] int measured_rails() const { return made_.measured_rails; }
    /// What was decided from the program's own calls, and why: shares of links, ways through memory.
    [[nodiscard]] std::vector<Decision> explain() const;
    /// Sentences about rails that divide what carries them.
    [[nodiscard]] const std::vector<std::string> &sharing() const { return made_.sharing; }

  private:
    Communicator();

    // Making (wiring*.cpp).
    [[nodiscard]] std::string forced_shares() const;
    Status meet();
    [[nodiscard]] bool crowded() const;
    Status note_members(const std::vector<std::string> &all, const Introduction &mine,
                        std::vector<std::string> &responders);
    Status take_id();
    Status meet_responders(std::vector<std::string> &addresses);
    void settle_liveness();
    Status make_shared_memory(const Communicator *parent);
    struct SegmentPlan;
    void use_segment(const SegmentPlan &plan, size_t cache_share);
    [[nodiscard]] size_t shared_cache() const;
    Status make_rails();
    struct RailMaking;
    Status plan_rails(RailMaking &making);
    Status exchange_rails(RailMaking &making);
    void offer_rails(RailMaking &making) const;
    Status add_rail(const RailMaking &making, const std::string &identity, const std::string &name);
    Status allow_links();
    Status exchange_links();
    void drop_failed_links();
    Status measure(const Communicator *parent);
    bool take_measurements(const Communicator *parent);
    [[nodiscard]] std::string description_of_links() const;
    struct Near;
    [[nodiscard]] std::string description_of_near() const;
    Status recall_near(bool &known);
    void remember_near();
    /// What rank 0's process has found out in another communicator. Collective.
    template <typename Found>
    Status recall(const std::string &key, Found &found, bool &known);
    template <typename Found>
    void remember(const std::string &key, const Found &found);
    Status recall_measurements(KeptLinks &kept, std::vector<LinksMeasured> &all, bool &known);
    Status measure_all(const probe::MeasureOptions &options, std::vector<LinksMeasured> &all);
    Status measure_near(const std::vector<int> &ring, probe::MeasureOptions options,
                        std::span<LinkMeasured, kMaxLinks> best);
    Status measure_far(const std::vector<std::vector<int>> &on_host, const probe::MeasureOptions &options,
                       std::span<LinkMeasured, kMaxLinks> found);
    Status measure_ring(int next, int previous, probe::MeasureOptions options,
                        std::span<LinkMeasured, kMaxLinks> found);
    static LinkMeasured mean_of(const std::vector<LinksMeasured> &all, size_t place);
    static LinkMeasured among(const std::vector<LinksMeasured> &all, size_t place, const LinkMeasured &own);
    void note_measured(const std::vector<LinksMeasured> &all, const std::vector<LinksMeasured> &answers);
    void find_sharing(const std::vector<LinksMeasured> &all);
    [[nodiscard]] algorithms::CostModel costs_of(const std::vector<LinksMeasured> &all) const;
    static double small_ns(const std::vector<LinksMeasured> &all, size_t place);
    [[nodiscard]] std::byte *lendable() const;
    Status make_routes();
    Status connect_rails();
    void leave_idle_rails();
    Status choose_ways(const Communicator *parent);
    Status try_ways(shm::HostWays &ways);
    Status make_planner(const Communicator *parent);

    // GPUs (devices.cpp).
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
    [[nodiscard]] Status can_use_devices() const;
    /// `queued`: on a stream of the program's.
    [[nodiscard]] Status can_run_on_device(std::string_view what, bool queued) const;
    [[nodiscard]] bool writes_output(const Call &call) const;
    [[nodiscard]] Status check_none_under_way(std::string_view what) const;
    Status put_recorded(const Operation &call, CUstream_st *stream, bool blocking,
                        std::span<const cuda::Showing> shown);
    Status put_on_device(const Operation &call, CUstream_st *stream, bool blocking,
                         std::span<const cuda::Showing> shown);
    /// As what it is recorded.
    static record::Carrier carrier_of(bool blocking);
    static CallRecord record_of(const DeviceMail &mail);
    Status begin_mail(const DeviceMail &mail);
    Status end_mail(const DeviceMail &mail);
    Status settle_device(Status status);

    // What is recorded (recording.cpp).
    class Recording;
    class RecordedWait;
    void begin_recording();
    void record_links();
    Status compare_clocks();
    Status pass_barrier();
    void record_wait(int64_t since_ns);
    void end_wait_record();
    void record_phases(const Pending &pending);
    void end_record(Pending &pending);

    // Watch (watch.cpp).
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
    void note_stop(int64_t now, int64_t waited_ns);
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
    [[nodiscard]] Status why_broken() const;
    [[nodiscard]] std::string describe_operation() const;

    // Calls that do not match (matching.cpp).
    void note_call(CallKind what);
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
    [[nodiscard]] std::string what_it_does(int peer) const;
    struct Seen {
        std::array<uint64_t, 4> facts{};
        uint64_t times = 0;    ///< that the peer had said something by then
        int64_t since_ns = 0;  ///< when it was so at first
    };
    static bool seen_again(Seen &before, const Seen &now);

    // Groups and messages (messages.cpp).
    void add_messages(Pending &pending, const Call &call, uint64_t sequence);
    Status carry_messages(Pending &pending, size_t bytes, int peer);
    template <typename Give>
    Status give_messages(size_t bytes, int peer, const Give &give);
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
    [[gnu::cold]] static Status in_wait();
    [[gnu::cold]] static Status in_group(algorithms::Collective collective);
    Status add_to_group(const Call &call);
    Status prelude(const Call &call, CallKind kind, bool &done, const Decided *&decided);
    Status begin(const Call &given, Pending *&result);
    Status run_now(const Call &call, const Decided &decided);
    Status run_compared(const Call &call, bool done);
    Status run_by_table(const Call &call, const Decided &decided, bool &served);
    Status run_in_memory(const Call &call, const Decided &decided, const shm::Review::Look *look, bool &served);
    Status run_by_links(const Call &call, const Decided &decided);
    Status prepare(Pending &pending, const Call &call, const Decided &decided);
    Status drain();
    template <typename Body>
    Status attempt(Body &&body) {
        try {
            return body();
        } catch (const std::exception &error) {  // No memory, say: chunks may be on their way, as with other errors.
            return thrown(error, describe_operation());
        }
    }
    /// A call that ends half-way breaks the communicator: the others go on, and must not wait for this rank.
    template <typename Body>
    Status whole(algorithms::Collective what, Body &&body) {
        try {
            return body();
        } catch (const std::exception &error) {
            return ended_half_way(what, error);
        }
    }
    [[gnu::cold]] Status ended_half_way(algorithms::Collective what, const std::exception &error);
    Status break_off(Status status);

    /// Whether the current operation goes over links, by the executor.
    [[nodiscard]] bool by_links() const { return wait_.way == Way::scheduled || wait_.way == Way::exchanged; }
    Status carry_out(const Call &given, const Decided &decided, const shm::Review::Look *look, bool &served);
    void take_ways(const Operation &operation);
    class OverRails;
    Status run_staged(const Call &call, const Decided &decided);
    Status move_until(const Pending &done, Waiter &waiter);
    Status settle(Waiter &waiter);
    void drop_strays();
    [[nodiscard]] bool settled() const;
    Status settle_probing();
    void leave_shared_memory();
    /// Of this host's ranks, for what no link carries; null: there are none.
    [[nodiscard]] shm::Bells *bells() const {
        return on_host_.nearby != nullptr ? &on_host_.nearby->bells()
               : on_host_.ways != nullptr ? &on_host_.ways->bells()
                                          : nullptr;
    }
    /// Null where this rank shares memory with no other.
    [[nodiscard]] shm::Channel *channel() const { return static_cast<shm::Channel *>(links_[0].link.get()); }
    Status compare_calls(const Operation &operation);

    /// What making a communicator needs for a while, or found and reports tell.
    struct Making {
        std::unique_ptr<Bootstrap> local;       ///< ranks of this host
        std::vector<std::string> device_texts;  ///< by rank, from meeting until rails are planned
        std::vector<int> tried;                 ///< ranks that were asked whether they live: one of each other host
        bool remembers = false;                 ///< rank 0's process has something to recall
        std::vector<std::pair<std::string, std::string>> left_off;
        std::vector<std::string> liveness_notes;
        int64_t probe_ns = 0;
        std::string measured;  ///< whence what is known of the links is; on rank 0
        std::vector<std::string> sharing;
        algorithms::CostModel costs = nominal_costs();
        int measured_rails = 0;   ///< between hosts, of which any rank has a rate
        size_t staged_bytes = 0;  ///< as Agreed has it
    };
    /// All of them, and those that calls look at.
    struct Knobs {
        Config all;
        bool check = false;
        double deadline_s = 0;
        double late_warning_s = 0;
    };
    /// What is recorded of it, and of its calls.
    struct Recorded {
        record::Recorder *recorder = nullptr;
        uint32_t place = record::Recorder::kNowhere;
        uint64_t gpu_calls = 0;   ///< collectives on GPU memory so far
        uint64_t call = 0;        ///< the one that is waited for
        uint64_t waits = 0;       ///< the one of which it is recorded that it waits; 0: none
        int64_t links_ticks = 0;  ///< when the links' counters were recorded last
        int64_t links_gap = 0;    ///< ticks until they are again; some are a nanosecond, some less
    };
    /// The segment that ranks of this host share, and what lies at its beginning.
    struct SharedMemory {
        std::unique_ptr<shm::Segment> segment;
        Promise promised;  ///< of what it may still reserve
        Board *board = nullptr;
        std::byte *ledger = nullptr;    ///< Lending::bytes; null on one host
        RailLoad *loads = nullptr;      ///< by link; null on one host
        RailRecord *records = nullptr;  ///< by host and link; null on one host
        uint64_t shown = 0;             ///< bytes that operations showed there, as if a link had carried them
        uint64_t showings = 0;          ///< how many times they did, as if each were a chunk
        bool showed = false;            ///< so did the last one, as a whole
    };
    /// What ranks of this host do for each other without links.
    struct OnHost {
        std::unique_ptr<shm::HostWays> ways;  ///< where all ranks are on one host, and shm may carry all
        std::unique_ptr<shm::Nearby> nearby;  ///< where some are, and others on other hosts
        std::unique_ptr<Staged> stages;       ///< null before the first operation that goes stage by stage
        std::vector<Pending *> given;         ///< of the current one, what goes over rails

        /// The rank that the current operation waits for; only where it goes without links.
        [[nodiscard]] int waiting_for() const {
            return nearby != nullptr ? nearby->waiting_for() : ways->waiting_for();
        }
    };
    /// The open group of calls.
    struct OpenGroup {
        Pending *messages = nullptr;  ///< what it gathers; null: no group is open
        std::vector<Call> sums;       ///< its reductions
        DeviceMail mail;              ///< its messages between GPUs
    };
    /// Who is in a call, and who else may move what is under way.
    struct Entry {
        bool inside = false;                     ///< a call of this library is at work here
        bool in_thread = false;                  ///< it is not the program that moves what is under way
        uint32_t looks = 0;                      ///< for operations that were not done
        int64_t left_ns = 0;                     ///< when it was last, with something under way
        bool locks = false;                      ///< calls take the mutex
        std::recursive_mutex mutex;              ///< of all calls, where other threads may move what is under way
        std::shared_ptr<ProgressThread> thread;  ///< null: progress is made in calls alone
    };
    struct Devices {
        std::unique_ptr<cuda::Health> health;
        std::unique_ptr<cuda::Group> group;  ///< null until GPUs are in use
        Gpus opens = Gpus::if_in_use;
        LateWait late;  ///< the watcher's
        MirrorMemory mirrors;
        size_t under_way = 0;  ///< that begin_on_device() began
    };
    /// The current wait, and what the last ones saw of peers.
    struct CurrentWait {
        const Operation *operation = nullptr;
        uint64_t call = 0;          ///< that what goes over links must complete first; 0: it waits for several
        Way way = Way::scheduled;   ///< of the current operation
        Part part = Part::all;      ///< likewise
        bool told_blocked = false;  ///< the process says that it is blocked here
        bool woken = false;         ///< what comes from other hosts, which is all that can come, ends a sleep
        bool warned = false;
        bool told = false;   ///< a peer said that the communicator is broken
        bool named = false;  ///< an error says which calls do not match
        int64_t looked_ns = 0;
        int64_t stopped_ns = 0;  ///< of the current wait, in which this process did not run
        uint32_t tests = 0;      ///< in a row that found nothing
        int64_t tests_since_ns = 0;
        std::vector<Awaited> awaited;
        std::vector<Seen> crossed;  ///< by peer: where it was seen to wait for this rank,
        std::vector<Seen> given;    ///< and to have given all that it has; twice, the second for what is received
    };

    std::shared_ptr<Process> process_;
    std::unique_ptr<Bootstrap> bootstrap_;
    Knobs knobs_;
    Layout layout_;
    SharedMemory memory_;
    ucx::Rails *rails_ = nullptr;  ///< the process's; null where this communicator uses none
    LinkSlots links_;
    OnHost on_host_;
    Routes routes_{layout_, links_};
    CallLog calls_;
    Queue queue_{layout_, links_, routes_, calls_};
    Decisions decisions_;
    WaitPolicies policies_;
    Making made_;
    OpenGroup group_;
    Entry entry_;
    Devices devices_;
    CurrentWait wait_;
    Recorded recorded_;
    Status broken_;
};

template <typename Found>
Status Communicator::recall(const std::string &key, Found &found, bool &known) {
    static_assert(std::is_trivially_copyable_v<Found>);
    known = false;
    if (!made_.remembers)
        return {};
    std::vector<std::string> texts;
    FLX_TRY(bootstrap_->allgather_text(layout_.rank == 0 ? process_->recall(key) : std::string(), texts));
    known = texts[0].size() == sizeof found;
    if (known)
        std::memcpy(&found, texts[0].data(), sizeof found);
    return {};
}

template <typename Found>
void Communicator::remember(const std::string &key, const Found &found) {
    process_->remember(key, {reinterpret_cast<const char *>(&found), sizeof found});
}

}  // namespace flx
