/// Where FLX and MPI are compared: what the ranks of a communicator agree on, for `Routes` to decide from.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/front/mpi/communicators.h"
#include "runtime/front/mpi/libraries/flx_library.h"

namespace flx::preload {

static_assert(sizeof(Evidence) == 4 * sizeof(double));

Group *Library::faster_group_of(MPI_Comm comm, CallClass which, Reason &why, Group *&asked) {
    Group *group = find_or_attach(comm, why);
    if (group == nullptr)
        return nullptr;
    why = group->why_not;
    if (group->flx == nullptr && why != Reason::not_yet)
        return nullptr;
    if (group->routes == nullptr) {
        group->routes = std::make_unique<Routes>();
        const std::lock_guard guard(mutex_);
        routed_.insert(group);
    }
    Routes &routes = *group->routes;
    if (routes.is_time_to_ask()) {
        const Seen agreement(comm);
        ask(comm, *group);
    }
    if (routes.is_trial_over(which)) {
        const Seen agreement(comm);
        compare(comm, *group, which);
    }
    asked = group;
    why = group->why_not;
    if (!routes.ready()) {
        if (why == Reason::not_yet)
            why = Reason::unpaid;
        return nullptr;
    }
    if (routes.route(which) == Route::flx)
        return group;
    why = routes.is_trying(which) ? Reason::compared : Reason::slower;
    return nullptr;
}

Group *Library::settled_group_of(MPI_Comm comm, CallClass which, Reason &why) {
    Group *group = find_or_attach(comm, why);
    if (group == nullptr)
        return nullptr;
    why = group->why_not;
    if (group->flx == nullptr)
        return nullptr;
    const Routes &routes = *group->routes;
    if (routes.settled(which) == Route::flx)
        return group;
    why = routes.times(which).known() ? Reason::slower : Reason::unmeasured;
    return nullptr;
}

/// Collective. Makes FLX's communicator if it would have paid by now.
void Library::ask(MPI_Comm comm, Group &group) {
    Routes &routes = *group.routes;
    // Programs make communicators for a few calls. MPI_COMM_WORLD is there once.
    if (!routes.introduced() && comm != MPI_COMM_WORLD) {
        const double mine = routes.waited();
        double least = 0;
        PMPI_Allreduce(&mine, &least, 1, MPI_DOUBLE, MPI_MIN, comm);
        if (least < Routes::kWorthIntroducingS) {
            routes.wait_longer(least, Routes::kWorthIntroducingS);
            return;
        }
    }
    if (!routes.introduced())
        introduce(comm, group);
    // The rank that waited least for others says best what the calls themselves took.
    const std::array<double, 2> mine = {-routes.saving(), price_of(group)};
    std::array<double, 2> greatest{};
    PMPI_Allreduce(mine.data(), greatest.data(), mine.size(), MPI_DOUBLE, MPI_MAX, comm);
    if (-greatest[0] < greatest[1]) {
        routes.wait_longer(-greatest[0], greatest[1]);
        return;
    }
    const bool first = mine[1] == routes.price();
    const int64_t began = now_ns();
    obtain_group(comm, group);
    if (group.flx == nullptr)
        return;
    routes.begin(static_cast<double>(now_ns() - began) * 1e-9);
    const std::lock_guard guard(mutex_);
    if (first && group.rank == 0)
        cache().learn_price(group.shape, routes.took(), time(nullptr));
}

/// Collective. Which hosts the ranks are on, and what the first of them knows of such communicators.
void Library::introduce(MPI_Comm comm, Group &group) {
    std::string name = host_id_;
    if (name.empty()) {
        std::array<char, MPI_MAX_PROCESSOR_NAME> found{};
        int length = 0;
        PMPI_Get_processor_name(found.data(), &length);
        name.assign(found.data(), static_cast<size_t>(length));
    }
    const uint64_t host = std::hash<std::string>{}(name);
    std::vector<uint64_t> hosts(group.size);
    PMPI_Allgather(&host, 1, MPI_UINT64_T, hosts.data(), 1, MPI_UINT64_T, comm);
    std::map<uint64_t, int> ranks;
    for (const uint64_t each : hosts)
        group.shape.most = std::max(group.shape.most, ++ranks[each]);
    group.shape.ranks = group.size;
    group.shape.hosts = static_cast<int>(ranks.size());

    // One host's ranks need some 15 ms each on two cores, and other hosts are probed.
    double price = 0.04 + 0.015 * group.size + (group.shape.hosts > 1 ? 0.2 : 0.0);
    std::array<double, 3> found{};
    Experience experience(CallClass::kCount);
    if (group.rank == 0) {
        const std::lock_guard guard(mutex_);
        if (const TuningCache::Entry *entry = cache().find(group.shape); entry != nullptr) {
            found = {1, entry->price_s, entry->price_s > 0 ? 0 : entry->unpaid_s};
            experience = entry->experience;
        }
    }
    PMPI_Bcast(found.data(), found.size(), MPI_DOUBLE, 0, comm);
    if (found[0] != 0)
        PMPI_Bcast(experience.data(), 2 * static_cast<int>(experience.size()), MPI_DOUBLE, 0, comm);
    if (found[1] > 0)
        price = found[1];
    group.routes->introduce(std::move(experience), price, found[2]);
}

/// Collective. Ends a trial of `which`.
void Library::compare(MPI_Comm comm, Group &group, CallClass which) {
    const int64_t began = now_ns();
    const Evidence mine = group.routes->measured(which);
    struct {
        Evidence mean;
        double took_s = 0;  ///< by rank 0
    } agreed{};
    // MPI does not promise that all ranks of an allreduce get the same bits of a sum, and who is faster must be the
    // same.
    PMPI_Reduce(&mine, &agreed.mean, sizeof mine / sizeof(double), MPI_DOUBLE, MPI_SUM, 0, comm);
    agreed.took_s = group.agreement_s;
    PMPI_Bcast(&agreed, sizeof agreed / sizeof(double), MPI_DOUBLE, 0, comm);
    for (Times *times : {&agreed.mean.by_turns, &agreed.mean.remembered}) {
        times->mpi /= group.size;
        times->flx /= group.size;
    }
    const bool decided = group.routes->settle(which, agreed.mean, agreed.took_s);
    // Whoever comes late is waited for, which is no part of it.
    group.agreement_s = std::min(group.agreement_s, static_cast<double>(now_ns() - began) * 1e-9);
    if (group.rank != 0 || !decided)
        return;
    const std::lock_guard guard(mutex_);
    cache().learn(group.shape, which, group.routes->times(which), time(nullptr));
}

/// `mutex_` is held.
TuningCache &Library::cache() {
    if (cache_ == nullptr) {
        cache_ = std::make_unique<TuningCache>(cache_folder_, machine_and_builds(flx_library_file()) + "; " + knobs_,
                                               time(nullptr));
        cache_->read();
    }
    return *cache_;
}

/// What was compared goes into the statistics, what was not to the next run. `mutex_` is held.
void Library::retire(Group &group) {
    if (group.routes == nullptr)
        return;
    if (group.routes->ready())
        statistics().add(*group.routes);
    else if (group.routes->introduced() && group.why_not == Reason::not_yet && group.routes->unpaid() > 0 &&
             group.rank == 0)
        cache().learn_unpaid(group.shape, group.routes->unpaid());
    routed_.erase(&group);
    group.routes.reset();
}

}  // namespace flx::preload
