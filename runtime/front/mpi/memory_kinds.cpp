/// Whose memory the data of calls are in: what the ranks of a communicator agree on.
#include <fmt/format.h>

#include <array>
#include <utility>

#include "runtime/front/mpi/communicators.h"
#include "runtime/front/mpi/libraries/flx_library.h"

namespace flx::preload {

Group *Library::made_group(MPI_Comm comm) {
    Reason why = Reason::none;
    Group *group = find_or_attach(comm, why);
    return group != nullptr && group->flx != nullptr ? group : nullptr;
}

bool Library::on_gpus(MPI_Comm comm, Group &group, CallClass which, Form form, Memory memory) {
    if (group.habits == nullptr)
        group.habits = std::make_unique<Habits>();
    Habits &habits = *group.habits;
    if (form == Form::blocking && habits.is_time_to_agree(which)) {
        Habits::Seen seen = habits.seen(which, memory);
        agree_greatest(comm, seen);
        habits.agree(which, seen);
    }
    return habits.on_gpus(which);
}

/// The first of FLX's collectives on GPUs opens them: one that is of no use, so that none of the program's can fail.
/// Its form is the one that takes GPU memory alone.
bool Library::opens_gpus(MPI_Comm comm, Group &group) {
    std::string why;
    void *number = Gpus::instance().allocate(sizeof(int32_t), why);
    std::array<int64_t, 1> failed = {number == nullptr ? 1 : 0};
    agree_greatest(comm, failed);
    if (failed[0] == 0) {
        const Occupied occupied(group);
        if (flx_allreduce_on_stream(FLX_IN_PLACE, number, 1, FLX_INT32, FLX_MAX, group.flx, nullptr) == FLX_SUCCESS) {
            why = Gpus::instance().await_default_stream();
        } else {
            why = flx_last_error();
        }
        failed[0] = why.empty() ? 0 : 1;
    }
    agree_greatest(comm, failed);
    if (number != nullptr)
        Gpus::instance().free(number);
    const std::lock_guard guard(mutex_);
    if (!why.empty() && !std::exchange(warned_of_gpus_, true))
        fmt::print(stderr, "flx_mpi: FLX has no collectives on the GPUs of these {} ranks: {}\n", group.size, why);
    return failed[0] == 0;
}

bool Library::serves_gpus(MPI_Comm comm, Group &group) {
    if (group.collectives_on_gpus == Group::OnGpus::not_tried)
        group.collectives_on_gpus = opens_gpus(comm, group) ? Group::OnGpus::works : Group::OnGpus::fails;
    return group.collectives_on_gpus == Group::OnGpus::works;
}

}  // namespace flx::preload
