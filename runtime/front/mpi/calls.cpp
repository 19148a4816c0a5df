#include "runtime/front/mpi/calls.h"

#include <fmt/format.h>

#include <cctype>
#include <utility>

#include "runtime/base/clock.h"

namespace flx::preload {

Call::Call(const How &how, Collective collective, MPI_Comm comm, size_t bytes, size_t agreed, Objection objection)
    : how_(how), collective_(collective), comm_(comm) {
    Library &library = Library::instance();
    Reason why = objection.why;
    if (why == Reason::none && comm == MPI_COMM_NULL)
        why = Reason::invalid;
    if (!library.chosen(collective))
        why = Reason::not_chosen;
    if (why == Reason::none && how.form != Form::blocking && !library.has_requests())
        why = Reason::no_requests;
    if (why == Reason::none)
        group_ = find_group(agreed, why);
    else if (why == Reason::invalid && objection.error != MPI_SUCCESS && library.serves(comm, how.form))
        error_ = objection.error;
    statistics().count(collective, how.form, why, bytes);
    if (group_ == nullptr) {
        begin_timing();
        return;
    }
    // This comes before the communicator is occupied, since others may wait for what is under way on it. All ranks tidy
    // before the same call: calls that a rank began and then took no part in do not count.
    constexpr uint64_t kCallsPerTidying = 1024;
    if (how.form == Form::blocking && (group_->calls + 1) % kCallsPerTidying == 0 &&
        std::exchange(group_->tidied, group_->calls) != group_->calls)
        library.tidy(comm, *group_);
    begin_timing();
    if (how.form != Form::blocking) {
        operation_ = std::make_unique<Operation>();
        operation_->group = group_;
        operation_->persistent = how.form == Form::persistent;
    }
    occupied_.emplace(*group_);
}

/// Null: MPI gets the call.
Group *Call::find_group(size_t agreed, Reason &why) {
    Library &library = Library::instance();
    if (!library.automatic())
        return how_.form == Form::persistent ? library.group_of_its_own(comm_, why)
                                             : library.group_of(comm_, how_.form, why);
    class_ = CallClass(collective_, agreed);
    switch (how_.form) {
        case Form::blocking:
            return library.faster_group_of(comm_, class_, why, compared_);
        case Form::nonblocking:
            return library.settled_group_of(comm_, class_, why);
        case Form::persistent:
            break;
    }
    // Each would need a communicator of its own, whose price nothing says to be worth paying.
    why = Reason::unmeasured;
    return nullptr;
}

void Call::begin_timing() {
    if (compared_ != nullptr && compared_->routes->wants_time(class_))
        began_ns_ = now_ns();
}

void Call::note(Route route) {
    compared_->routes->carried_out(class_, route,
                                   began_ns_ != 0 ? static_cast<double>(now_ns() - began_ns_) * 1e-9 : 0);
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

int Call::refuse(int error) {
    // The handler's own message would not name the call.
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    if (PMPI_Comm_get_errhandler(comm_, &handler) == MPI_SUCCESS) {
        if (handler == MPI_ERRORS_ARE_FATAL) {
            int rank = 0;
            PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
            std::string name(kCollectives[static_cast<size_t>(collective_)]);
            if (how_.form == Form::nonblocking)
                name.insert(0, 1, 'i');
            name[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(name[0])));
            const char *rest = how_.form == Form::persistent ? "_init" : "";
            fmt::print(stderr, "flx_mpi: rank {} called MPI_{}{} with arguments that MPI does not allow\n", rank, name,
                       how_.large ? "_c" : rest);
        }
        PMPI_Errhandler_free(&handler);
    }
    PMPI_Comm_call_errhandler(comm_, error);
    return error;
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

bool is_about_arguments(int code) {
    int error_class = MPI_ERR_OTHER;
    PMPI_Error_class(code, &error_class);
    switch (error_class) {
        case MPI_ERR_ARG:
        case MPI_ERR_BUFFER:
        case MPI_ERR_COMM:
        case MPI_ERR_COUNT:
        case MPI_ERR_OP:
        case MPI_ERR_ROOT:
        case MPI_ERR_TYPE:
            return true;
        default:
            return false;
    }
}

int size_of(MPI_Comm comm) {
    int size = 0;
    int inter = 1;
    if (comm != MPI_COMM_NULL && PMPI_Comm_test_inter(comm, &inter) == MPI_SUCCESS && inter == 0)
        PMPI_Comm_size(comm, &size);
    return size;
}

Objection check_root(int root, MPI_Comm comm) {
    if (comm == MPI_COMM_NULL)
        return {Reason::invalid};
    int inter = 0;
    PMPI_Comm_test_inter(comm, &inter);
    if (inter != 0)
        return {Reason::intercommunicator};
    return wrong(root >= 0 && root < size_of(comm) ? MPI_SUCCESS : MPI_ERR_ROOT);
}

}  // namespace flx::preload
