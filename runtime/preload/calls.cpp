#include "calls.h"

#include <utility>

namespace flx::preload {

Call::Call(const How &how, Collective collective, MPI_Comm comm, size_t bytes, Reason objection)
    : how_(how), comm_(comm) {
    Library &library = Library::instance();
    Reason why = objection;
    if (why == Reason::none && comm == MPI_COMM_NULL)
        why = Reason::invalid;
    if (!library.chosen(collective))
        why = Reason::not_chosen;
    if (why == Reason::none && how.form != Form::blocking && !library.has_requests())
        why = Reason::no_requests;
    if (why == Reason::none)
        group_ =
            how.form == Form::persistent ? library.group_of_its_own(comm, why) : library.group_of(comm, how.form, why);
    statistics().count(collective, how.form, why, bytes);
    if (group_ == nullptr)
        return;
    if (how.form == Form::blocking && group_->size == library.world_size())
        statistics().count_size(collective, bytes);
    // Before the communicator is occupied, since others may wait for what is under way on it.
    constexpr uint64_t kCallsPerTidying = 1024;
    if (how.form == Form::blocking && ++group_->calls % kCallsPerTidying == 0)
        library.tidy(comm, *group_);
    if (how.form != Form::blocking) {
        operation_ = std::make_unique<Operation>();
        operation_->group = group_;
        operation_->persistent = how.form == Form::persistent;
    }
    occupied_.emplace(*group_);
}

/// A persistent one that was not handed out leaves its communicator to others.
Call::~Call() {
    occupied_.reset();
    if (operation_ != nullptr && operation_->persistent)
        Library::instance().dismiss(group_);
}

size_t *Call::numbers(int lists) {
    group_->numbers.resize(static_cast<size_t>(lists) * group_->size);
    return group_->numbers.data();
}

int Call::hand_out(flx_status_t status) {
    if (status != FLX_SUCCESS)
        return finish(status, *group_, comm_);
    occupied_.reset();
    operation_->staging.keep_types();
    const int code = Requests::instance().hand_out(std::move(operation_), how_.request);
    if (code != MPI_SUCCESS)
        PMPI_Comm_call_errhandler(comm_, code);
    return code;
}

int size_of(MPI_Comm comm) {
    int size = 0;
    int inter = 1;
    if (comm != MPI_COMM_NULL && PMPI_Comm_test_inter(comm, &inter) == MPI_SUCCESS && inter == 0)
        PMPI_Comm_size(comm, &size);
    return size;
}

Reason check_root(int root, MPI_Comm comm) {
    if (comm == MPI_COMM_NULL)
        return Reason::invalid;
    int inter = 0;
    PMPI_Comm_test_inter(comm, &inter);
    if (inter != 0)
        return Reason::intercommunicator;
    return root >= 0 && root < size_of(comm) ? Reason::none : Reason::invalid;
}

}  // namespace flx::preload
