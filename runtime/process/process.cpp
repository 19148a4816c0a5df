#include "runtime/process/process.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "runtime/base/boot_id.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"
#include "runtime/link/of_this_process.h"
#include "runtime/shm/memory/segment.h"

namespace flx {
namespace {

Status random_number(uint64_t &number) {
    if (getrandom(&number, sizeof number, 0) != sizeof number)
        return fail(Fault::no_secret, "the system gave no random numbers: getrandom: {}", std::strerror(errno));
    return {};
}

std::string network_identity() {
    struct stat space {};
    stat("/proc/self/ns/net", &space);
    return fmt::format("{}:{}", boot_id(), space.st_ino);
}

/// A child that is forked begins without: its parent's has threads and sockets that it lacks, and a key that is not its
/// own.
struct Only {
    static Only &object() { return of_this_process<Only>(); }
    std::mutex mutex;
    std::weak_ptr<Process> process;
};

}  // namespace

Status Process::make(bool threads, std::shared_ptr<Process> &result) {
    auto process = std::shared_ptr<Process>(new Process);
    process->threads_ = threads;
    process->alone_ = !threads;
    FLX_TRY(Config::from_environment(process->config_));
    FLX_TRY(random_number(process->uid_));
    process->hostname_ = host_name();
    process->network_host_ = network_identity();
    FLX_TRY(shm::host_identity(process->memory_host_));
    if (const std::string &forced = process->config_.text("FLX_HOST_ID"); !forced.empty()) {
        process->memory_host_ = forced;
        process->hostname_ = forced;
    }
    process->recorder_ = &record::Recorder::of_process(
        {process->config_.text("FLX_RECORD") == "on", process->config_.text("FLX_TRACE"), process->hostname_, threads});
    FLX_TRY(Liveness::start(process->uid_, process->liveness_));
    process->reporter_ = std::make_unique<Reporter>(*process->liveness_, *process->recorder_);
    result = std::move(process);
    return {};
}

Status Process::shared(bool threads, bool alone, std::shared_ptr<Process> &result) {
    Only &only = Only::object();
    const std::lock_guard guard(only.mutex);
    result = only.process.lock();
    if (result) {
        if (!alone)
            result->alone_.store(false, std::memory_order_relaxed);
        return {};
    }
    FLX_TRY(make(threads, result));
    result->alone_ = alone;
    only.process = result;
    return {};
}

std::shared_ptr<Process> Process::existing() {
    Only &only = Only::object();
    const std::lock_guard guard(only.mutex);
    return only.process.lock();
}

Status Process::beside(std::shared_ptr<Process> &result) {
    const std::lock_guard guard(mutex_);
    result = beside_.lock();
    if (result)
        return {};
    FLX_TRY(make(true, result));
    result->ranks_here_ = ranks_here_;
    beside_ = result;
    return {};
}

Process::~Process() {
    if (liveness_)
        liveness_->on_word({});
}

uint32_t Process::free_comm_id() const {
    const std::lock_guard guard(mutex_);
    return free_comm_id_;
}

bool Process::claim_comm_id(uint32_t id) {
    const std::lock_guard guard(mutex_);
    if (id < free_comm_id_)
        return false;
    free_comm_id_ = id + 1;
    return true;
}

int Process::index_of(uint64_t uid) {
    const std::lock_guard guard(mutex_);
    return peers_.try_emplace(uid, static_cast<int>(peers_.size())).first->second;
}

/// Whoever has the list of communicators. In the hands of one that moves them it may take as long as an error is
/// investigated.
class Process::List {
  public:
    explicit List(Process &process) : process_(process), mine_(!process.listed_.exchange(true, kOrder)) {}
    ~List() {
        if (mine_)
            process_.listed_.store(false, std::memory_order_release);
    }
    List(const List &) = delete;
    List &operator=(const List &) = delete;

    /// False: another thread has it, or a call of this one.
    [[nodiscard]] bool mine() const { return mine_; }
    void wait() {
        constexpr std::chrono::microseconds kNap{20};
        while (!mine_) {
            std::this_thread::sleep_for(kNap);
            mine_ = !process_.listed_.exchange(true, kOrder);
        }
    }

  private:
    static constexpr std::memory_order kOrder = std::memory_order_acquire;
    Process &process_;
    bool mine_;
};

void Process::add(Movable &comm) {
    List list(*this);
    list.wait();
    communicators_.push_back(&comm);
}

void Process::remove(Movable &comm) {
    List list(*this);
    list.wait();
    std::erase(communicators_, &comm);
}

void Process::remember(const std::string &key, std::string found) {
    const std::lock_guard guard(mutex_);
    remembered_[key] = std::move(found);
}

bool Process::remembers() const {
    const std::lock_guard guard(mutex_);
    return !remembered_.empty();
}

std::string Process::recall(const std::string &key) const {
    const std::lock_guard guard(mutex_);
    const auto found = remembered_.find(key);
    return found != remembered_.end() ? found->second : std::string();
}

bool Process::has_communicators() {
    List list(*this);
    list.wait();
    return !communicators_.empty();
}

void Process::move_others(const Movable *comm) {
    const List list(*this);
    if (!list.mine())  // then another wait moves them
        return;
    for (Movable *other : communicators_)
        if (other != comm && other->busy())
            other->move_in_thread();
}

Movable *Process::find(uint32_t comm) {
    const List list(*this);
    const auto found = std::ranges::find_if(communicators_, [&](const Movable *one) { return one->id() == comm; });
    return !list.mine() || found == communicators_.end() ? nullptr : *found;
}

int Process::ranks_here(int ranks) {
    const std::lock_guard guard(mutex_);
    return ranks_here_ = std::max(ranks_here_, ranks);
}

ucx::Rails *Process::open_rails(const probe::RailPlan &plan) {
    std::vector<ucx::RailSpec> specs;
    for (const probe::RailCandidate &rail : plan.rails)
        specs.push_back({rail.name, rail.device, rail.tls, rail.rma});
    const std::lock_guard guard(mutex_);
    if (rails_) {
        rails_->add(specs);
        return rails_.get();
    }
    ucx::RailOptions options;
    options.window_bytes = config_.size("FLX_RAIL_WINDOW");
    options.chunk_bytes = config_.size("FLX_RAIL_CHUNK");
    options.threads = threads_;
    options.timeout_s = config_.real("FLX_RAIL_TIMEOUT");
    options.relay_bytes = config_.size("FLX_RELAY_BYTES");
    options.paths = liveness_.get();
    rails_ = ucx::Rails::open(specs, uid_, options);
    if (const Status status = Guard::start(*rails_, guard_); status.ok())
        liveness_->on_word([guard = guard_.get()] { guard->hurry(); });
    else
        log().warn("peers wait for this process while it computes: {}", status.sentence());
    return rails_.get();
}

ucx::FailoverCounters Process::failover_counters() {
    const std::lock_guard guard(mutex_);
    return rails_ ? rails_->failover_counters() : ucx::FailoverCounters();
}

}  // namespace flx
