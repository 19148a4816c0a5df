#include "calls.h"

namespace flx::preload {

Call::Call(Collective collective, MPI_Comm comm, size_t bytes, Reason objection) : comm_(comm) {
    Library &library = Library::instance();
    Reason why = objection;
    if (why == Reason::none && comm == MPI_COMM_NULL)
        why = Reason::invalid;
    if (!library.chosen(collective))
        why = Reason::not_chosen;
    if (why == Reason::none)
        group_ = library.group_of(comm, why);
    statistics().count(collective, Form::blocking, why, bytes);
    if (group_ == nullptr)
        return;
    lock_ = std::unique_lock(group_->mutex);
    constexpr uint64_t kCallsPerTidying = 1024;
    if (++group_->calls % kCallsPerTidying == 0)
        library.tidy(comm, *group_);
}

size_t *Call::numbers(int lists) {
    group_->numbers.resize(static_cast<size_t>(lists) * group_->size);
    return group_->numbers.data();
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
