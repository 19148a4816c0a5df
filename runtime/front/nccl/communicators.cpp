#include "runtime/front/nccl/communicators.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <shared_mutex>
#include <unordered_map>

#include "runtime/base/log.h"
#include "runtime/base/own_thread.h"
#include "runtime/front/nccl/measure.h"
#include "runtime/front/nccl/statistics.h"
#include "runtime/process/later.h"

namespace flx::nccl {
namespace {

// Never destroyed: the program's threads may outlive static objects.
struct Registry {
    std::shared_mutex mutex;
    std::unordered_map<ncclComm_t, std::shared_ptr<Communicator>> by_handle;
    std::mutex retired_mutex;
    std::unordered_map<std::string, std::vector<std::shared_ptr<Communicator>>> retired;  ///< by key
};
Registry &registry() {
    static auto *const all = new Registry;
    return *all;
}

/// Runs all bodies at once and waits for them; one in this thread.
void together(const std::vector<std::function<void()>> &bodies) {
    std::vector<std::thread> threads;
    for (size_t i = 1; i < bodies.size(); ++i)
        threads.emplace_back(bodies[i]);
    if (!bodies.empty())
        bodies[0]();
    for (std::thread &thread : threads)
        thread.join();
}

bool switched_off() {
    const char *wanted = std::getenv("FLX_NCCL");
    return wanted != nullptr && std::string_view(wanted) == "off";
}

/// What the ranks must have alike, for a sentence where they do not.
std::string agreed_knobs(const Config &config) {
    return fmt::format("FLX_NCCL={}", config.text("FLX_NCCL"));
}

/// What such a program calls past FLX would not know what FLX carries out, and the other way round. A configuration
/// that was never initialised is NCCL's to refuse.
bool of_newer_program(const ncclConfig_t *config) {
    const unsigned built = config != nullptr && config->magic == kNcclMagic ? config->version : 0;
    const bool newer = is_newer(built, real().version);
    static std::atomic<bool> said{false};
    if (newer && !said.exchange(true))
        log().warn("NCCL carries out all calls of a communicator: {} is version {}, and FLX knows nccl.h up to {}",
                   built != 0 ? "what the program was built against" : "the NCCL behind FLX",
                   built != 0 ? static_cast<int>(built) : real().version, static_cast<int>(kNcclNewest));
    return newer;
}

/// FLX's knobs, and what GPUs of one host need of them: no network, nothing measured on host memory. And no more of a
/// GPU than leaves room for what NCCL's programs compute meanwhile: with all its multiprocessors a call is faster, and
/// training by DistributedDataParallel was 3 % slower (H200).
Status knobs(Config &config) {
    FLX_TRY(Config::from_environment(config));
    for (const auto &[name, value] : {std::pair{"FLX_RAILS", "none"},
                                      {"FLX_PROBE_MS", "0"},
                                      {"FLX_SHM_BYTES", "256K"},
                                      {"FLX_CUDA_BLOCKS", "32"},
                                      {"FLX_CUDA_LEAST", "4M"}})
        if (config.origin(name) == "default")
            FLX_TRY(config.set(name, value, "libflx_nccl"));
    return {};
}

/// Collective between the ranks of the communicator, each in a thread of its own.
Status open(Communicator &comm) {
    Config config;
    Status status = knobs(config);
    const std::shared_ptr<Rendezvous> place = comm.place();
    comm.bootstrap = place->bootstrap();
    if (status.ok())
        status = engine().make_event(comm.device, comm.last);
    if (status.ok())
        status = engine().make_event(comm.device, comm.captured);
    if (status.ok())
        status = engine().make_event(comm.device, comm.fork);
    for (cudaStream_t &stream : comm.asides)
        if (status.ok())
            status = engine().make_stream(comm.device, stream);
    FLX_TRY(agree(*comm.bootstrap, std::move(status)));
    std::vector<std::string> all;
    const std::string mine = agreed_knobs(config);
    FLX_TRY(comm.bootstrap->allgather_text(mine, all));
    for (const std::string &other : all)
        if (other != mine)
            return fail(Fault::knobs_differ, "this rank has {}, another {}; it must be equal on all ranks", mine,
                        other);
    std::unique_ptr<Bootstrap> own;
    FLX_TRY(comm.bootstrap->dup(own));
    std::unique_ptr<Lane> lane;
    FLX_TRY(engine().make(std::move(own), config, comm.device, lane));
    comm.use(std::move(lane));
    FLX_TRY(comm.lane->expect_shown());
    if (config.text("FLX_NCCL") == "on")
        comm.tables = {Table::all(), Table::all(), false};
    else
        FLX_TRY(measure(
            engine(), *comm.bootstrap, *comm.lane, comm.handle, comm.device,
            [&](cudaStream_t stream, const std::function<Status()> &call) -> Status {
                if (comm.over())  // NCCL's handle may be gone
                    return fail(Fault::comm_ended, "the communicator was aborted while it was made");
                FLX_TRY(comm.before(stream));
                FLX_TRY(call());
                return comm.after(stream);
            },
            [&] { return comm.over(); }, comm.tables));
    comm.order = {};
    comm.agreement = std::make_unique<Agreement>(place->board(), comm.rank, comm.ranks);
    comm.outputs = std::make_unique<Outputs>(place->outputs_board(), comm.rank, comm.ranks);
    return {};
}

/// After the rendezvous with its peers; then the communicator is active on all of them, or passive on all.
void prepare(const std::shared_ptr<Communicator> &comm) {
    const Inside inside;
    Status status;
    engine().on_device(comm->device, [&] {
        try {
            status = open(*comm);
        } catch (const std::exception &error) {
            status = thrown(error, "making the communicator");
        }
    });
    // All or none: a rank that could not tells the others, wherever they are.
    const bool all = comm->place()->decide(status.ok());
    if (status.ok() && !all)
        status = fail(Fault::comm_given_up,
                      "another rank could not make its part of FLX's communicator, and its own output says why");
    if (!all) {
        comm->abandon(Reason::failed);
        free_later(comm);
        log().warn("NCCL carries out all calls of a communicator of {} ranks: {}", comm->ranks, status.sentence());
    }
    statistics().count_communicator(comm->rank, comm->why, status.sentence());
    if (all && comm->rank == 0)
        statistics().keep(comm->ranks, comm->tables.explain());
    if (all)
        (void)comm->activate();
}

}  // namespace

ncclResult_t code_of(const Status &status) {
    switch (status.code()) {
        case FLX_SUCCESS:
            return ncclSuccess;
        case FLX_ERR_ARGUMENT:
            return ncclInvalidArgument;
        case FLX_ERR_CONFIG:
        case FLX_ERR_UNSUPPORTED:
        case FLX_ERR_MISMATCH:
            return ncclInvalidUsage;
        case FLX_ERR_LINK:
        case FLX_ERR_PEER:
        case FLX_ERR_COMM:
            return ncclRemoteError;
        default:
            return ncclUnhandledCudaError;
    }
}

Status Communicator::usable() const {
    return last != nullptr
               ? Status()
               : fail(Fault::comm_ended, "the communicator was aborted or revoked; another one must be made");
}

Status Communicator::before(cudaStream_t stream) {
    FLX_TRY(usable());
    Engine::Stream found;
    FLX_TRY(engine().look_at(stream, found));
    steps_ = order.next(found.name, found.capture);
    if (steps_.external)
        FLX_TRY(engine().note_capture(graphs, stream));
    if (steps_.wait_captured)
        FLX_TRY(engine().wait(captured, stream, false));
    if (steps_.wait_last)
        FLX_TRY(engine().wait(last, stream, steps_.external));
    return {};
}

Status Communicator::before_also(cudaStream_t stream) {
    FLX_TRY(usable());
    const bool within = steps_.external && !steps_.wait_last;
    return engine().wait(within ? captured : last, stream, steps_.external && !within);
}

Status Communicator::note_capture(cudaStream_t stream) {
    return steps_.external ? lane->note_capture(stream) : Status();
}

Status Communicator::after(cudaStream_t stream) {
    FLX_TRY(usable());
    FLX_TRY(engine().record(last, stream, steps_.external));
    if (steps_.external)
        FLX_TRY(engine().record(captured, stream, false));
    return {};
}

bool Communicator::in_window(const Request &request) const {
    const auto inside = [&](const void *buffer) {
        const auto *at = static_cast<const char *>(buffer);
        return std::any_of(windows.begin(), windows.end(), [&](const auto &window) {
            return at >= window.second.first && at < window.second.first + window.second.second;
        });
    };
    return !windows.empty() && (inside(request.in) || inside(request.out));
}

bool Communicator::slows(const Request &request, bool met) const {
    if (lane == nullptr || !tables.of_full)
        return false;
    return is_message(request.kind) ? lane->slows_message(bytes_of(request, ranks))
                                    : lane->slows(operation_of(request, ranks), met);
}

ncclResult_t Communicator::fail_with(Status status) {
    if (failure.ok())
        failure = std::move(status);
    last_words() = fmt::format("FLX, rank {} of {}: {}", rank, ranks, failure.sentence());
    return code_of(failure);
}

ncclResult_t Communicator::serve(const Request &request, cudaStream_t stream, bool met) {
    if (!failure.ok())
        return fail_with({});
    if (!serves())
        return fail_with(fail(Fault::comm_ended, "the communicator was aborted or revoked; another one must be made"));
    if (met)
        statistics().count_met();
    const auto put = [&]() -> Status {
        FLX_TRY(before(stream));
        FLX_TRY(note_capture(stream));
        FLX_TRY(lane->enqueue(operation_of(request, ranks), stream,
                              met ? outputs->shown() : std::span<const cuda::Showing>()));
        return after(stream);
    };
    Status status = put();
    return status.ok() ? ncclSuccess : fail_with(std::move(status));
}

void Communicator::use(std::unique_ptr<Lane> made) {
    lane = std::move(made);
    const std::lock_guard guard(ends.mutex);
    ends.lane = lane;
    if (ends.over)
        ends.lane->abort();
}

void Communicator::withhold() {
    const std::lock_guard guard(ends.mutex);
    ends.lane.reset();
}

void Communicator::meet_at(std::shared_ptr<Rendezvous> place) {
    const std::lock_guard guard(ends.mutex);
    ends.rendezvous = std::move(place);
    if (ends.over)
        ends.rendezvous->leave();
}

std::shared_ptr<Rendezvous> Communicator::place() {
    const std::lock_guard guard(ends.mutex);
    return ends.rendezvous;
}

bool Communicator::activate() {
    const std::lock_guard guard(ends.mutex);
    if (ends.over)
        return false;
    state.store(State::active, std::memory_order_release);
    return true;
}

bool Communicator::over() {
    const std::lock_guard guard(ends.mutex);
    return ends.over;
}

void Communicator::abandon(Reason reason) {
    const std::lock_guard guard(ends.mutex);
    why = reason;
    state.store(State::passive, std::memory_order_release);
    ends.over = true;
    if (ends.lane)
        ends.lane->abort();
    if (ends.rendezvous)
        ends.rendezvous->leave();
}

bool Communicator::begin_closing() {
    const std::lock_guard guard(mutex);
    if (lane == nullptr || bootstrap == nullptr)
        return false;
    prepares = true;
    return true;
}

bool Communicator::try_free() {
    // A call that another thread is in ends once the stream has room for it.
    const std::unique_lock guard(mutex, std::try_to_lock);
    if (!guard.owns_lock() || prepares.load(std::memory_order_acquire) || !engine().ended(last))
        return false;
    if (preparation.joinable())
        preparation.join();
    withhold();  // the rendezvous stays: calls of other threads may still look at its boards
    lane.reset();
    bootstrap.reset();
    if (graphs.lasts() && !closed)  // which may be replayed, and have these events
        return false;
    for (Event *event : {&last, &captured, &fork})
        engine().free_event(std::exchange(*event, nullptr));
    for (cudaStream_t &stream : asides)
        engine().free_stream(device, std::exchange(stream, nullptr));
    return true;
}

void free_later(const std::shared_ptr<Communicator> &comm) {
    do_later([comm] {
        if (comm->device >= 0)
            engine().stay_on(comm->device);
        return comm->try_free();
    });
}

Creation::Creation(ncclComm_t *handle, std::string key, const ncclConfig_t *config)
    : handle_(handle), key_(std::move(key)), newer_(of_newer_program(config)) {
    if (key_.empty() || !engine().why_none().empty() || switched_off() || newer_)
        return;
    failure_ = Rendezvous::attend(key_, rendezvous_);
    if (!failure_.ok())
        log().warn("{}", failure_.sentence());
}

std::shared_ptr<Communicator> Creation::begin() {
    if (handle_ == nullptr || *handle_ == nullptr) {
        if (rendezvous_)
            (void)rendezvous_->complete(0);
        rendezvous_.reset();
        return nullptr;
    }
    auto comm = std::make_shared<Communicator>();
    comm->handle = *handle_;
    comm->key = key_;
    comm->state = Communicator::State::preparing;
    Registry &all = registry();
    const std::unique_lock guard(all.mutex);
    all.by_handle[comm->handle] = comm;
    return comm;
}

bool Creation::admit(Communicator &comm, ncclResult_t result) {
    const bool known = result == ncclSuccess && FLX_REAL(ncclCommUserRank, comm.handle, &comm.rank) == ncclSuccess &&
                       FLX_REAL(ncclCommCount, comm.handle, &comm.ranks) == ncclSuccess &&
                       FLX_REAL(ncclCommCuDevice, comm.handle, &comm.device) == ncclSuccess;
    Reason why = Reason::none;
    std::string sentence = failure_.sentence();
    if (switched_off()) {
        why = Reason::off;
    } else if (!engine().why_none().empty()) {
        why = Reason::no_gpu;
        sentence = engine().why_none();
    } else if (newer_) {
        why = Reason::newer;
    } else if (!known || key_.empty() || !failure_.ok()) {
        why = Reason::failed;
    } else if (comm.ranks < 2) {
        why = Reason::alone;
    } else if (comm.ranks > kMaxRanks) {
        why = Reason::many;
    }
    if (rendezvous_ && !rendezvous_->complete(known ? comm.ranks : 0) && why == Reason::none)
        why = Reason::hosts;
    if (why == Reason::none) {
        if (const Status bound = rendezvous_->bind(comm.rank, comm.ranks); !bound.ok()) {
            (void)rendezvous_->decide(false);
            why = Reason::failed;
            sentence = bound.sentence();
        }
    }
    statistics().print_at_exit();
    if (why == Reason::none) {
        comm.meet_at(std::move(rendezvous_));
        return true;
    }
    comm.why = why;
    rendezvous_.reset();
    statistics().count_communicator(comm.rank, why, sentence);
    comm.state.store(Communicator::State::passive, std::memory_order_release);
    return false;
}

void finish_all(std::vector<Creation> creations, ncclResult_t result) {
    std::vector<std::function<void()>> bodies;
    for (Creation &creation : creations) {
        // NCCL may put a handle there also when it fails.
        if (result != ncclSuccess && result != ncclInProgress) {
            continue;
        }
        std::shared_ptr<Communicator> comm = creation.begin();
        if (comm == nullptr)
            continue;
        comm->prepares = true;
        if (result == ncclSuccess) {
            if (creation.admit(*comm, result))
                bodies.emplace_back([comm] {
                    prepare(comm);
                    comm->prepares.store(false, std::memory_order_release);
                });
            else
                comm->prepares = false;
            continue;
        }
        // NCCL goes on by itself; so does this, and the communicator's state says so until it is over.
        const std::lock_guard guard(comm->mutex);
        comm->preparation = own_thread([comm, creation]() mutable {
            ncclResult_t state = ncclInProgress;
            while (state == ncclInProgress && !comm->stop.load(std::memory_order_acquire)) {
                if (FLX_REAL(ncclCommGetAsyncError, comm->handle, &state) != ncclSuccess)
                    state = ncclInternalError;
                std::this_thread::sleep_for(std::chrono::microseconds(200));
            }
            if (creation.admit(*comm, comm->stop.load(std::memory_order_acquire) ? ncclInternalError : state)) {
                engine().stay_on(comm->device);
                prepare(comm);
            }
            comm->prepares.store(false, std::memory_order_release);
        });
    }
    together(bodies);
}

std::shared_ptr<Communicator> find(ncclComm_t handle) {
    Registry &all = registry();
    const std::shared_lock guard(all.mutex);
    const auto found = all.by_handle.find(handle);
    return found == all.by_handle.end() ? nullptr : found->second;
}

namespace {

std::shared_ptr<Communicator> take(ncclComm_t handle) {
    Registry &all = registry();
    const std::unique_lock guard(all.mutex);
    const auto found = all.by_handle.find(handle);
    if (found == all.by_handle.end())
        return nullptr;
    std::shared_ptr<Communicator> comm = found->second;
    all.by_handle.erase(found);
    return comm;
}

/// Collective, each rank in a thread of its own.
void close(Communicator &comm) {
    // NCCL asks all ranks of a host to destroy a communicator; one that does not must not hold up the others.
    constexpr double kPatienceS = 5;
    comm.place()->set_patience(kPatienceS);
    if (comm.failure.ok() && comm.bootstrap->barrier().ok()) {
        // What all ranks have on streams ends first, if it can.
        constexpr std::chrono::microseconds kNap(50);
        while (!engine().ended(comm.last) && comm.lane->failure().ok())
            std::this_thread::sleep_for(kNap);
        comm.withhold();  // closing takes away what an abort would reach for
        comm.lane->close();
        comm.closed = true;
    }
    comm.abandon(Reason::revoked);
}

}  // namespace

void retire(ncclComm_t handle) {
    const std::shared_ptr<Communicator> comm = take(handle);
    if (comm == nullptr)
        return;
    constexpr std::chrono::microseconds kNap(500);
    while (comm->prepares.load(std::memory_order_acquire))
        std::this_thread::sleep_for(kNap);
    if (!comm->active())
        free_later(comm);
    std::vector<std::shared_ptr<Communicator>> ready;
    {
        Registry &all = registry();
        const std::lock_guard guard(all.retired_mutex);
        std::vector<std::shared_ptr<Communicator>> &given_up = all.retired[comm->key];
        if (comm->active())
            given_up.push_back(comm);
        // The last rank of this process closes all: one thread may destroy them one after the other.
        const std::shared_lock shared(all.mutex);
        const bool last = std::none_of(all.by_handle.begin(), all.by_handle.end(),
                                       [&](const auto &entry) { return entry.second->key == comm->key; });
        if (last) {
            ready = std::move(given_up);
            all.retired.erase(comm->key);
        }
    }
    std::vector<std::function<void()>> bodies;
    for (const std::shared_ptr<Communicator> &each : ready)
        bodies.emplace_back([each] {
            if (each->begin_closing()) {
                close(*each);
                each->prepares.store(false, std::memory_order_release);
            }
            if (!each->try_free())
                free_later(each);
        });
    together(bodies);
}

void abort(ncclComm_t handle) {
    const std::shared_ptr<Communicator> comm = take(handle);
    if (comm == nullptr)
        return;
    comm->stop.store(true, std::memory_order_release);
    comm->abandon(Reason::revoked);
    // A thread that still prepares it may be about to call NCCL, whose abort then follows. But it may also be in a call
    // that only NCCL's abort ends. Before each further one it asks whether it is over.
    constexpr int kTurns = 100;
    constexpr std::chrono::microseconds kNap(500);
    for (int turn = 0; turn < kTurns && comm->prepares.load(std::memory_order_acquire); ++turn)
        std::this_thread::sleep_for(kNap);
    free_later(comm);
}

}  // namespace flx::nccl
