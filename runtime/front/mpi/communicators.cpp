#include "runtime/front/mpi/communicators.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <random>
#include <utility>

#include "runtime/base/config.h"
#include "runtime/front/mpi/arguments/mirrors.h"
#include "runtime/front/mpi/libraries/flx_library.h"
#include "runtime/front/mpi/requests.h"

namespace flx::preload {
namespace {

/// Freed communicators that are kept for the next with the same members, before the rest is given up.
constexpr size_t kSpares = 16;
/// Seconds that taking over a spare takes, and the part of a first communicator's price that a copy of it has.
constexpr double kSparePriceS = 1e-4;
constexpr double kCopyPrice = 0.4;
/// MPI waits for a rank that a debugger or a scheduler has stopped, however long; where its host is lost, mpirun sees.
constexpr double kPatientDeadlineS = 86400;

[[noreturn]] void give_up(const Status &status) {
    int rank = 0;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    fmt::print(stderr, "flx_mpi: rank {}: {}\n", rank, status.sentence());
    std::fflush(stderr);
    usleep(100000);  // launchers may lose what a rank says right before it ends
    PMPI_Abort(MPI_COMM_WORLD, 1);
    std::abort();
}

/// Ranks of `comm` in MPI_COMM_WORLD; false if one is not there.
bool members_of(MPI_Comm comm, int size, std::vector<int> &members) {
    MPI_Group group = MPI_GROUP_NULL;
    MPI_Group world = MPI_GROUP_NULL;
    std::vector<int> ranks(size);
    for (int rank = 0; rank < size; ++rank)
        ranks[rank] = rank;
    members.assign(size, MPI_UNDEFINED);
    PMPI_Comm_group(comm, &group);
    PMPI_Comm_group(MPI_COMM_WORLD, &world);
    PMPI_Group_translate_ranks(group, size, ranks.data(), world, members.data());
    PMPI_Group_free(&group);
    PMPI_Group_free(&world);
    return std::find(members.begin(), members.end(), MPI_UNDEFINED) == members.end();
}

/// What FLX_MPI_GPU says, or MPI.
bool takes_gpu_memory(const std::string &knob) {
    if (knob != "auto")
        return knob == "on";
    const auto query = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support"));
    return query != nullptr && query() != 0;
}

bool by_id(const Group *a, const Group *b) {
    return a->id < b->id;
}

/// Collective over its members.
void close(Group *group) {
    Requests::instance().finish(group);
    if (group->flx != nullptr)
        flx_comm_free(&group->flx);
}

/// What ranks tell each other as they begin.
using Beginning = std::array<uint32_t, 8>;

/// The bits that any rank has. All ranks leave MPI's own initialisation together, so one that does not come within
/// `patience_s` has no such library in front of MPI, and the program ends.
Beginning said_by_any(const Beginning &mine, double patience_s) {
    Beginning all{};
    MPI_Request request = MPI_REQUEST_NULL;
    PMPI_Iallreduce(mine.data(), all.data(), mine.size(), MPI_UINT32_T, MPI_BOR, MPI_COMM_WORLD, &request);
    const double began = PMPI_Wtime();
    for (int done = 0; PMPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done == 0;) {
        if (PMPI_Wtime() - began > patience_s)
            give_up(fail(
                Fault::peer_late,
                "some ranks of MPI_COMM_WORLD run without FLX, or have not come through MPI_Init within FLX_DEADLINE "
                "({} s) of this one; flx-run must start all of them: mpirun -n N flx-run PROGRAM",
                patience_s));
        if (PMPI_Wtime() - began > 0.001)
            usleep(100);
    }
    return all;
}

}  // namespace

Library &Library::instance() {
    static auto *const library = new Library;  // stays: MPI may be finalized by a destructor
    return *library;
}

void Library::begin() {
    if (begun_)
        return;  // a tool's MPI_Init has called MPI_Init_thread
    Config config;
    if (const Status status = Config::from_environment(config); !status.ok())
        give_up(status);
    if (const Status status = choose_collectives(config.text("FLX_MPI"), choice_); !status.ok())
        give_up(status);
    stats_ = config.integer("FLX_STATS") != 0;
    cache_folder_ = cache_folder(config.text("FLX_CACHE"));
    knobs_ = config.values_of(KnobScope::communicator);
    host_id_ = config.text("FLX_HOST_ID");
    deadline_s_ = config.origin("FLX_DEADLINE") == "default" ? kPatientDeadlineS : config.real("FLX_DEADLINE");
    int level = MPI_THREAD_SINGLE;
    PMPI_Query_thread(&level);
    threads_ = level == MPI_THREAD_MULTIPLE;

    // Which way a call goes must be the same on all ranks.
    const uint32_t lacks_requests = Requests::instance().begin() ? 0 : 1;
    const uint32_t lacks_threads = config.text("FLX_PROGRESS_THREAD") == "on" && !threads_ ? 1 : 0;
    const uint32_t chosen = choice_.mask | (choice_.automatic ? 1U << 31U : 0U);
    const uint32_t has_gpus = Gpus::may_exist() ? 1 : 0;
    const uint32_t keeps_to_hosts = takes_gpu_memory(config.text("FLX_MPI_GPU")) ? 0 : 1;
    const std::string others = config.origin("FLX_MPI") == "default" ? Gpus::library_of_others() : "";
    const uint32_t has_others = others.empty() ? 0 : 1;
    int rank = 0;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const uint32_t job = rank == 0 ? std::random_device()() : 0;
    const Beginning mine = {chosen, ~chosen, lacks_requests, lacks_threads, has_gpus, keeps_to_hosts, has_others, job};
    const Beginning all = said_by_any(mine, config.real("FLX_DEADLINE"));
    has_requests_ = all[2] == 0;
    calls_functions_ = all[3] == 0;
    has_gpus_ = all[4] != 0;
    mpi_takes_gpus_ = all[5] == 0;
    if (has_gpus_)
        Mirrors::begin();
    if (all[0] != mine[0] || all[1] != mine[1])
        give_up(fail(Fault::knobs_differ,
                     "FLX_MPI is \"{}\" here and something else on another rank; it must be the same on all",
                     config.text("FLX_MPI")));
    if (all[6] != 0) {
        choice_ = {};
        if (!others.empty())
            fmt::print(
                stderr,
                "flx_mpi: MPI gets all calls, as the program has loaded {} and FLX cannot tell GPU memory of that "
                "maker from host memory; FLX_MPI=auto serves programs that give MPI host memory alone\n",
                others);
    }

    int keyval = MPI_KEYVAL_INVALID;
    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_finalize, &keyval, this);
    PMPI_Comm_set_attr(MPI_COMM_SELF, keyval, this);
    PMPI_Comm_free_keyval(&keyval);
    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_delete, &keyval, this);
    keyval_ = keyval;
    begun_ = true;
    begin_to_be_seen(config, all[7], threads_ || config.text("FLX_PROGRESS_THREAD") == "on");
    (void)seen(MPI_COMM_WORLD);  // a rank that has called nothing yet is seen as well
}

/// Null: `why` says why.
Group *Library::find_or_attach(MPI_Comm comm, Reason &why) {
    if (!begun_ || over_) {
        why = Reason::over;
        return nullptr;
    }
    void *value = nullptr;
    int found = 0;
    if (PMPI_Comm_get_attr(comm, keyval_, &value, &found) != MPI_SUCCESS) {
        why = Reason::invalid;
        return nullptr;
    }
    return found != 0 ? static_cast<Group *>(value) : attach(comm);
}

/// Programs call on one communicator again and again, and to ask MPI for what belongs to it takes as long as all else.
SeenComm *Library::seen(MPI_Comm comm) {
    struct Last {
        MPI_Comm comm{};
        SeenComm *seen = nullptr;
        uint64_t freed = 0;
    };
    [[gnu::tls_model("initial-exec")]] static constinit thread_local Last last;
    const uint64_t freed = freed_.load(std::memory_order_relaxed);
    if (last.comm == comm && last.freed == freed) [[likely]]
        return last.seen;
    Reason why = Reason::none;
    Group *const group = comm == MPI_COMM_NULL ? nullptr : find_or_attach(comm, why);
    if (group == nullptr)
        return nullptr;
    if (!group->seen.opened)
        open_seen(group->seen, comm, group->rank, group->size,
                  group->why_not == Reason::several_worlds ? std::vector<int>() : group->members);
    last = {comm, &group->seen, freed};
    return last.seen;
}

void Library::note_made(MPI_Comm comm) {
    Reason why = Reason::none;
    if (comm == MPI_COMM_NULL || passed_calls().handover().file == nullptr)
        return;
    try {
        if (Group *const group = find_or_attach(comm, why); group != nullptr && group->why_not == Reason::not_yet)
            preload::note_made(group->seen, group->members);
    } catch (const std::bad_alloc &) {
        return;  // what MPI has made it has made; it is not told apart from others
    }
}

bool Library::serves(MPI_Comm comm, Form form) {
    Reason why = Reason::none;
    if (form != Form::blocking && !has_requests_)
        return false;
    const Group *group = find_or_attach(comm, why);
    return group != nullptr &&
           (group->flx != nullptr || (group->why_not == Reason::not_yet && form != Form::nonblocking));
}

Group *Library::group_of(MPI_Comm comm, Form form, Reason &why) {
    Group *group = find_or_attach(comm, why);
    if (group == nullptr)
        return nullptr;
    if (group->why_not == Reason::not_yet && form != Form::nonblocking) {
        const Seen agreement(comm);
        obtain_group(comm, *group);
    }
    why = group->why_not;
    return group->flx != nullptr ? group : nullptr;
}

void Library::obtain_group(MPI_Comm comm, Group &group) {
    make_group(comm, group);
    const std::lock_guard guard(mutex_);
    if (group.flx != nullptr)
        live_.push_back(&group);
}

/// What one rank alone can say of `comm`.
Group *Library::attach(MPI_Comm comm) {
    auto group = std::make_unique<Group>();
    int inter = 0;
    PMPI_Comm_test_inter(comm, &inter);
    PMPI_Comm_rank(comm, &group->rank);
    PMPI_Comm_size(comm, &group->size);
    if (inter != 0)
        group->why_not = Reason::intercommunicator;
    else if (group->size == 1)
        group->why_not = Reason::alone;
    else if (!members_of(comm, group->size, group->members))
        group->why_not = Reason::several_worlds;
    else
        group->why_not = Reason::not_yet;
    PMPI_Comm_set_attr(comm, keyval_, group.get());
    return group.release();
}

Group *Library::group_of_its_own(MPI_Comm comm, Memory memory, Reason &why) {
    const Group *shared = group_of(comm, Form::persistent, why);
    if (shared == nullptr)
        return nullptr;
    const Seen agreement(comm);
    constexpr int64_t kMost = 64;
    std::array<int64_t, 2> most = {static_cast<int64_t>(Requests::instance().live_persistent()),
                                   memory == Memory::gpu || memory == Memory::both ? 1 : 0};
    agree_greatest(comm, most);
    if (most[0] >= kMost || (most[1] != 0 && mpi_takes_gpus_)) {
        why = most[0] >= kMost ? Reason::many_persistent : Reason::gpu_memory;
        return nullptr;
    }
    auto group = std::make_unique<Group>();
    group->rank = shared->rank;
    group->size = shared->size;
    group->members = shared->members;
    make_group(comm, *group);
    why = group->why_not;
    if (group->flx == nullptr)
        return nullptr;
    const std::lock_guard guard(mutex_);
    live_.push_back(group.get());
    return group.release();
}

/// What this rank could use for a communicator of certain members; it may where all ranks could use the same.
struct Library::Reusable {
    Group *spare = nullptr;  ///< of a communicator that was freed; it is no longer among the spares
    Group *model = nullptr;  ///< of one that is in use: copying its measurements is quicker than measuring
    size_t spares = 0;       ///< how many more there are, whoever their members

    [[nodiscard]] int64_t spare_id() const { return spare != nullptr ? static_cast<int64_t>(spare->id) : 0; }
    [[nodiscard]] int64_t model_id() const { return model != nullptr ? static_cast<int64_t>(model->id) : 0; }
};

Library::Reusable Library::find_reusable(const std::vector<int> &members) {
    Reusable found;
    const std::lock_guard guard(mutex_);
    const auto same = [&](const Group *other) {
        return other->flx != nullptr && !other->broken && other->members == members;
    };
    if (const auto spare = std::find_if(spare_.begin(), spare_.end(), same); spare != spare_.end()) {
        found.spare = *spare;
        spare_.erase(spare);  // another thread must not propose it
    }
    // With several threads it may be in use.
    if (const auto model = std::find_if(live_.begin(), live_.end(), same); model != live_.end() && !threads_)
        found.model = *model;
    found.spares = spare_.size();
    return found;
}

/// What FLX's communicator for `group` will take, as far as this rank knows.
double Library::price_of(const Group &group) {
    const double price = group.routes->price();
    const Reusable found = find_reusable(group.members);
    if (found.spare != nullptr) {
        const std::lock_guard guard(mutex_);
        keep(found.spare);
        return std::min(price, kSparePriceS);
    }
    return found.model != nullptr ? price * kCopyPrice : price;
}

/// Collective. Takes a spare with the same members, if all ranks have one and the same; else makes a communicator.
void Library::make_group(MPI_Comm comm, Group &group) {
    const Reusable mine = find_reusable(group.members);
    const int64_t id = mine.spare_id();
    const int64_t model_id = mine.model_id();
    std::array<int64_t, 5> numbers = {id, -id, model_id, -model_id, static_cast<int64_t>(mine.spares)};
    agree_greatest(comm, numbers);
    if (id != 0 && numbers[0] == id && numbers[1] == -id) {
        group.flx = mine.spare->flx;
        group.id = mine.spare->id;
        group.why_not = Reason::none;
        Requests::instance().move(mine.spare, &group);  // what the program began before it freed its communicator
        delete mine.spare;
        return;
    }
    if (mine.spare != nullptr) {
        const std::lock_guard guard(mutex_);
        keep(mine.spare);
    }
    if (numbers[4] > static_cast<int64_t>(kSpares))
        free_surplus(comm, group);

    flx_config_t config = FLX_CONFIG_INIT;
    config.deadline_s = deadline_s_;
    config.late_gpus = 1;  // most have their data in host memory, and may have done with the GPU before MPI_Finalize
    const bool copy = model_id != 0 && numbers[2] == model_id && numbers[3] == -model_id;
    flx_status_t status = FLX_SUCCESS;
    if (copy) {
        const Occupied occupied(*mine.model);
        status = flx_comm_dup(mine.model->flx, &group.flx);
    } else {
        status = flx_comm_create(comm, &config, &group.flx);
    }
    const std::string sentence = status == FLX_SUCCESS ? "" : flx_last_error();
    const bool all_have = agree_on_id(comm, status == FLX_SUCCESS, group.id);
    group.why_not = all_have ? Reason::none : Reason::no_communicator;
    if (all_have)
        return;
    group.flx = nullptr;  // where it was made it is left: the others could not take part in freeing it
    const std::lock_guard guard(mutex_);
    if (!sentence.empty() && !std::exchange(warned_, true))
        fmt::print(stderr, "flx_mpi: a communicator of {} ranks stays with MPI: {}\n", group.size, sentence);
}

/// Collective. An id that is free on all ranks; two threads may want the same one, and part then. True if all have
/// `made` the communicator that is to get it.
bool Library::agree_on_id(MPI_Comm comm, bool made, uint64_t &id) {
    std::array<int64_t, 2> agreed{};
    do {
        {
            const std::lock_guard guard(mutex_);
            agreed = {static_cast<int64_t>(next_id_), made ? 0 : 1};
        }
        agree_greatest(comm, agreed);
        std::array<int64_t, 1> taken{0};
        {
            const std::lock_guard guard(mutex_);
            if (agreed[0] < static_cast<int64_t>(next_id_))
                taken[0] = 1;
            else
                next_id_ = static_cast<uint64_t>(agreed[0]) + 1;
        }
        agree_greatest(comm, taken);
        id = taken[0] != 0 ? 0 : static_cast<uint64_t>(agreed[0]);
    } while (id == 0);
    return agreed[1] == 0;
}

/// Frees spares whose members all take part in making `group`, and have all freed it.
void Library::free_surplus(MPI_Comm comm, const Group &group) {
    std::vector<Group *> candidates;
    {
        const std::lock_guard guard(mutex_);
        const auto inside = [&](const Group *spare) {
            return std::all_of(spare->members.begin(), spare->members.end(), [&](int member) {
                return std::find(group.members.begin(), group.members.end(), member) != group.members.end();
            });
        };
        const auto rest = std::stable_partition(spare_.begin(), spare_.end(), [&](Group *s) { return !inside(s); });
        candidates.assign(rest, spare_.end());
        spare_.erase(rest, spare_.end());
    }
    std::sort(candidates.begin(), candidates.end(), by_id);
    const int mine = static_cast<int>(candidates.size());
    std::vector<int> counts(group.size);
    PMPI_Allgather(&mine, 1, MPI_INT, counts.data(), 1, MPI_INT, comm);
    std::vector<int> begins(group.size + 1);
    for (int rank = 0; rank < group.size; ++rank)
        begins[rank + 1] = begins[rank] + counts[rank];
    std::vector<uint64_t> ids;
    for (const Group *candidate : candidates)
        ids.push_back(candidate->id);
    std::vector<uint64_t> all(begins.back());
    PMPI_Allgatherv(ids.data(), mine, MPI_UINT64_T, all.data(), counts.data(), begins.data(), MPI_UINT64_T, comm);
    for (Group *candidate : candidates) {
        const bool everywhere = std::all_of(candidate->members.begin(), candidate->members.end(), [&](int member) {
            const auto rank = std::find(group.members.begin(), group.members.end(), member) - group.members.begin();
            return std::binary_search(all.begin() + begins[rank], all.begin() + begins[rank + 1], candidate->id);
        });
        if (everywhere) {
            close(candidate);
            delete candidate;
        } else {
            const std::lock_guard guard(mutex_);
            keep(candidate);
        }
    }
}

void Library::keep(Group *spare) {
    spare_.insert(std::upper_bound(spare_.begin(), spare_.end(), spare, by_id), spare);
}

void Library::tidy(MPI_Comm comm, const Group &group) {
    const Seen agreement(comm);
    std::array<int64_t, 1> spares{};
    {
        const std::lock_guard guard(mutex_);
        spares[0] = static_cast<int64_t>(spare_.size());
    }
    agree_greatest(comm, spares);
    if (spares[0] > static_cast<int64_t>(kSpares))
        free_surplus(comm, group);
}

void Library::dismiss(Group *group) {
    {
        const std::lock_guard guard(mutex_);
        retire(*group);
        live_.erase(std::remove(live_.begin(), live_.end(), group), live_.end());
        if (group->flx != nullptr && !group->broken) {
            keep(group);
            return;
        }
    }
    close(group);
    delete group;
}

int Library::on_delete(MPI_Comm, int, void *value, void *extra) {
    auto *library = static_cast<Library *>(extra);
    library->freed_.fetch_add(1, std::memory_order_relaxed);
    passed_calls().close(std::exchange(static_cast<Group *>(value)->seen, {}).place);
    if (!library->over_)
        library->dismiss(static_cast<Group *>(value));
    else
        delete static_cast<Group *>(value);
    return MPI_SUCCESS;
}

int Library::on_finalize(MPI_Comm, int, void *, void *extra) {
    static_cast<Library *>(extra)->end();
    return MPI_SUCCESS;
}

/// Frees all in the order of their ids, which is one order on all ranks: none waits in a circle.
void Library::end() {
    {
        const std::lock_guard guard(mutex_);
        while (!routed_.empty())
            retire(**routed_.begin());
        int rank = 0;
        PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
        if (rank == 0 && cache_ != nullptr)
            cache_->write();
    }
    if (stats_)
        statistics().print(cache_ != nullptr ? cache_->state() : "");
    over_ = true;
    std::vector<Group *> all = spare_;
    all.insert(all.end(), live_.begin(), live_.end());
    std::sort(all.begin(), all.end(), by_id);
    for (Group *group : all)
        close(group);
    Requests::instance().end();
    Mirrors::end();
    for (Group *group : spare_)
        delete group;
    spare_.clear();
    live_.clear();
}

int code_of(flx_status_t status, Group &group) {
    if (status == FLX_SUCCESS)
        return MPI_SUCCESS;
    group.broken = group.broken || status >= FLX_ERR_MISMATCH;
    static const int code = [] {
        int error_class = MPI_ERR_OTHER;
        int made = MPI_ERR_OTHER;
        PMPI_Add_error_class(&error_class);
        PMPI_Add_error_code(error_class, &made);
        return made;
    }();
    const std::string sentence =
        shortened(fmt::format("{}: {}", flx_strerror(status), flx_last_error()), MPI_MAX_ERROR_STRING - 1);
    PMPI_Add_error_string(code, sentence.c_str());
    int given = code;
    if (status == FLX_ERR_ARGUMENT)
        given = MPI_ERR_ARG;
    else if (status == FLX_ERR_MISMATCH)
        given = MPI_ERR_TRUNCATE;
    if (given != code)
        fmt::print(stderr, "flx_mpi: {}\n", sentence);
    return given;
}

int finish(flx_status_t status, Group &group, MPI_Comm comm) {
    if (status == FLX_SUCCESS)
        return MPI_SUCCESS;
    const int code = code_of(status, group);
    PMPI_Comm_call_errhandler(comm, code);
    return code;
}

}  // namespace flx::preload
