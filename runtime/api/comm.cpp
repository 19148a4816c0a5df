/// The public functions that make and free communicators.
#include <cstddef>
#include <functional>
#include <memory>

#include "runtime/api/api.h"
#include "runtime/base/log.h"
#include "runtime/base/sized.h"
#include "runtime/plan/rules.h"
#include "runtime/process/bootstrap_mpi.h"
#include "runtime/store/bootstrap_store.h"

using flx::fail;
using flx::Fault;
using flx::Status;
using namespace flx::api;

namespace {

/// Knobs of the environment, overridden by what the caller set.
Status override_knobs(const flx_config_t *given, flx::Config &config, flx::Communicator::Gpus &gpus) {
    if (given == nullptr)
        return {};
    if (!flx::is_size_of<flx_config_t>(given->struct_size, offsetof(flx_config_t, partition)))
        return fail(Fault::struct_size, "config->struct_size is {}; FLX_CONFIG_INIT sets it to {}", given->struct_size,
                    sizeof(flx_config_t));
    flx_config_t overrides{};
    if (!flx::read_sized(given, given->struct_size, overrides))
        return fail(Fault::struct_size,
                    "config->struct_size is {}; FLX_CONFIG_INIT sets it to {} in version {}.{}.{}, which is loaded and "
                    "does not know what is set beyond",
                    given->struct_size, sizeof(flx_config_t), FLX_VERSION_MAJOR, FLX_VERSION_MINOR, FLX_VERSION_PATCH);
    const auto set = [&](const char *knob, const std::string &value) {
        return config.set(knob, value, flx::kOwnConfig);
    };
    if (overrides.partition != nullptr)
        FLX_TRY(set("FLX_PARTITION", overrides.partition));
    if (overrides.links != nullptr)
        FLX_TRY(set("FLX_LINKS", overrides.links));
    if (overrides.algorithm != nullptr)
        FLX_TRY(set("FLX_ALGORITHM", overrides.algorithm));
    if (overrides.deadline_s != 0)
        FLX_TRY(set("FLX_DEADLINE", fmt::format("{}", overrides.deadline_s)));
    if (overrides.check != 0)
        FLX_TRY(set("FLX_CHECK", fmt::format("{}", overrides.check)));
    if (overrides.strict != 0)
        FLX_TRY(set("FLX_STRICT", fmt::format("{}", overrides.strict)));
    if (overrides.late_gpus != 0 && overrides.late_gpus != 1)
        return fail(Fault::knob_value, "config->late_gpus is {}; 0 and 1 are allowed", overrides.late_gpus);
    if (overrides.late_gpus == 1)
        gpus = flx::Communicator::Gpus::late;
    return {};
}

/// Ranks compare and keep the rules themselves, wherever each of them read them. Schedules are compared, too, so what
/// one rank proves of them holds for all.
Status read_rules(flx::Config &config, int rank) {
    const std::string text = config.text("FLX_ALGORITHM");
    std::string rules;
    FLX_TRY(flx::read_rule_files(text, rules, rank == 0));
    return rules == text ? Status() : config.set("FLX_ALGORITHM", rules, config.origin("FLX_ALGORITHM"));
}

/// What to do until all ranks make the communicator: one may wait first for what is under way on another.
std::function<Status()> moving(flx::Process *process) {
    return [process] {
        if (process != nullptr)
            process->move_others(nullptr);
        return Status();
    };
}

Status make_comm(std::shared_ptr<flx::Process> process, std::unique_ptr<flx::Bootstrap> bootstrap, flx::Config config,
                 const flx::Communicator *parent, flx::Communicator::Gpus gpus, flx_comm_t *comm) {
    auto made = std::make_unique<flx_comm>();
    FLX_TRY(
        flx::Communicator::make(std::move(process), std::move(bootstrap), std::move(config), parent, made->impl, gpus));
    *comm = made.release();
    return {};
}

/// A communicator that comes from no other, of ranks that have met. `read`: whether the knobs could be read;
/// `threads`: the program may call from several at once.
Status make_first(std::unique_ptr<flx::Bootstrap> bootstrap, flx::Config knobs, Status read, const flx_config_t *config,
                  bool threads, flx_comm_t *comm) {
    flx::name_log(bootstrap->rank());  // before anything can go wrong
    // A rank whose knobs are wrong must not leave the others waiting for it.
    std::shared_ptr<flx::Process> process;
    auto gpus = flx::Communicator::Gpus::if_in_use;
    FLX_TRY(flx::agree_on(*bootstrap, [&]() -> Status {
        FLX_TRY(std::move(read));
        FLX_TRY(override_knobs(config, knobs, gpus));
        FLX_TRY(read_rules(knobs, bootstrap->rank()));
        const bool own_thread = knobs.text("FLX_PROGRESS_THREAD") == "on";
        FLX_TRY(flx::Process::shared(threads || own_thread, !threads, process));
        if (own_thread && !process->threads())
            return fail(Fault::progress_thread_late,
                        "FLX_PROGRESS_THREAD is on, but was not when the process made its first communicator; it "
                        "must be set before that, or after all communicators were freed");
        if (threads && !process->threads())
            return fail(Fault::threads_late,
                        "the process made a communicator of MPI first, which runs with less than MPI_THREAD_MULTIPLE, "
                        "so calls take no locks; with a store any number of threads may call, so its communicator "
                        "must be the first, or MPI be initialized with MPI_THREAD_MULTIPLE");
        return {};
    }));
    return make_comm(std::move(process), std::move(bootstrap), std::move(knobs), nullptr, gpus, comm);
}

}  // namespace

flx_status_t flx_comm_create(MPI_Comm mpi_comm, const flx_config_t *config, flx_comm_t *comm) {
    return guarded([&]() -> Status {
        FLX_TRY(need(comm, "comm"));
        *comm = nullptr;
        std::unique_ptr<flx::Bootstrap> bootstrap;
        const std::shared_ptr<flx::Process> existing = flx::Process::existing();
        FLX_TRY(flx::make_mpi_bootstrap(mpi_comm, moving(existing.get()), bootstrap));
        // Its own threads may call MPI only at that level.
        const bool threads = flx::mpi_allows_threads();
        flx::Config knobs;
        Status read = flx::Config::from_environment(knobs);
        return make_first(std::move(bootstrap), std::move(knobs), std::move(read), config, threads, comm);
    });
}

flx_status_t flx_comm_create_from_store(const char *address, int port, int rank, int size, const flx_config_t *config,
                                        flx_comm_t *comm) {
    return guarded([&]() -> Status {
        FLX_TRY(need(comm, "comm"));
        *comm = nullptr;
        flx::store::Place place;
        FLX_TRY(flx::store::find_place(address, port, rank, size, place));
        flx::name_log(place.rank);
        // A rank whose knobs are wrong meets the others all the same, and tells them.
        flx::Config knobs;
        Status read = flx::Config::from_environment(knobs);
        if (read.ok()) {
            flx::Config own = knobs;
            auto gpus = flx::Communicator::Gpus::if_in_use;
            const bool right = override_knobs(config, own, gpus).ok();
            place.deadline_s = (right ? own : knobs).real("FLX_DEADLINE");
        }
        std::unique_ptr<flx::Bootstrap> bootstrap;
        const std::shared_ptr<flx::Process> existing = flx::Process::existing();
        FLX_TRY(flx::store::make_store_bootstrap(place, bootstrap, existing ? moving(existing.get()) : nullptr));
        return make_first(std::move(bootstrap), std::move(knobs), std::move(read), config, true, comm);
    });
}

flx_status_t flx_comm_dup(flx_comm_t comm, flx_comm_t *dup) {
    return guarded([&]() -> Status {
        FLX_TRY(check_comm(comm));
        FLX_TRY(need(dup, "dup"));
        *dup = nullptr;
        std::unique_ptr<flx::Bootstrap> bootstrap;
        FLX_TRY(comm->impl->meet_again(flx::CallKind::duplicated));
        FLX_TRY(comm->impl->bootstrap().dup(bootstrap));
        return make_comm(comm->impl->process(), std::move(bootstrap), comm->impl->config(), comm->impl.get(),
                         comm->impl->opens_gpus(), dup);
    });
}

flx_status_t flx_comm_split(flx_comm_t comm, int color, int key, flx_comm_t *split) {
    return guarded([&]() -> Status {
        FLX_TRY(check_comm(comm));
        FLX_TRY(need(split, "split"));
        *split = nullptr;
        std::unique_ptr<flx::Bootstrap> bootstrap;
        FLX_TRY(comm->impl->meet_again(flx::CallKind::split));
        FLX_TRY(comm->impl->bootstrap().split(color, key, bootstrap));
        if (!bootstrap)
            return {};
        flx::Config config = comm->impl->config();
        // Rules that were written for all of its ranks.
        if (config.origin("FLX_ALGORITHM") == flx::kOwnConfig)
            FLX_TRY(config.set("FLX_ALGORITHM", config.text("FLX_ALGORITHM"), "flx_comm_split"));
        return make_comm(comm->impl->process(), std::move(bootstrap), std::move(config), nullptr,
                         comm->impl->opens_gpus(), split);
    });
}

flx_status_t flx_comm_free(flx_comm_t *comm) {
    return guarded([&]() -> Status {
        if (comm == nullptr || *comm == nullptr)
            return check_comm(nullptr);
        release_requests(**comm);
        (*comm)->impl->close();
        delete *comm;
        *comm = nullptr;
        return {};
    });
}

flx_status_t flx_comm_abort(flx_comm_t comm, const char *reason) {
    return guarded([&]() -> Status {
        FLX_TRY(check_comm(comm));
        return comm->impl->abort(reason != nullptr ? reason : "");
    });
}

flx_status_t flx_comm_rank(flx_comm_t comm, int *rank) {
    return guarded([&]() -> Status {
        FLX_TRY(check_comm(comm));
        FLX_TRY(need(rank, "rank"));
        *rank = comm->impl->rank();
        return {};
    });
}

flx_status_t flx_comm_size(flx_comm_t comm, int *size) {
    return guarded([&]() -> Status {
        FLX_TRY(check_comm(comm));
        FLX_TRY(need(size, "size"));
        *size = comm->impl->size();
        return {};
    });
}
