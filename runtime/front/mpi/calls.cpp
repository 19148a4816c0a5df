#include "runtime/front/mpi/calls.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cctype>
#include <utility>

#include "runtime/base/clock.h"

namespace flx::preload {

Call::Call(const How &how, Collective collective, MPI_Comm comm, size_t bytes, size_t agreed, Objection objection,
           const Description &describe)
    : how_(how), collective_(collective), comm_(comm), said_{collective, how.form, agreed, objection.root} {
    const Saying saying(said_);
    Library &library = Library::instance();
    Reason why = objection.why;
    if (why == Reason::none && comm == MPI_COMM_NULL)
        why = Reason::invalid;
    if (!library.chosen(collective))
        why = Reason::not_chosen;
    if (why == Reason::none && how.form != Form::blocking && !library.has_requests())
        why = Reason::no_requests;
    if (why == Reason::invalid && objection.error != MPI_SUCCESS && library.serves(comm, how.form))
        error_ = objection.error;
    if (library.has_gpus() && describe && matters_where(why)) [[unlikely]]
        where_ = Whereabouts::of(describe, made_where_);
    if (why == Reason::none)
        group_ = find_group(agreed, why);
    statistics().count(collective, how.form, why, bytes);
    // FLX's communicator was made for this call.
    if (group_ != nullptr && where_ == nullptr && library.has_gpus() && describe) [[unlikely]]
        where_ = Whereabouts::of(describe, made_where_);
    if (group_ == nullptr) {
        begin_timing();
        if (where_ != nullptr && where_->any_on_gpu() && !library.mpi_takes_gpus())
            mirror();
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
    if (where_ != nullptr && where_->any_on_gpu() && !(on_gpus_ && where_->is_plain()))
        mirror();
}

/// Whether it matters where the data are. An MPI that takes GPU memory gets its calls as they are, so not before FLX
/// has a communicator. Between two groups of ranks buffers have other sizes, and FLX serves nothing.
bool Call::matters_where(Reason why) const {
    Library &library = Library::instance();
    int inter = 0;
    if (comm_ == MPI_COMM_NULL || error_ != MPI_SUCCESS || PMPI_Comm_test_inter(comm_, &inter) != MPI_SUCCESS ||
        inter != 0)
        return false;
    if (!library.mpi_takes_gpus())
        return true;
    return why == Reason::none && (!library.automatic() || library.made_group(comm_) != nullptr);
}

/// Finds out whether the call's data are taken to be on GPUs. False: MPI gets it, as FLX lacks it there. `group` is
/// what FLX has for the communicator.
bool Call::stays_off_mpi(Group *&group, Reason &why) {
    Library &library = Library::instance();
    group = library.automatic() ? library.made_group(comm_) : library.group_of(comm_, how_.form, why);
    if (group == nullptr)
        return true;
    const bool gpus = library.on_gpus(comm_, *group, class_, how_.form, memory());
    if (how_.form == Form::blocking) {
        habits_ = group->habits.get();
        habit_ = class_;
    }
    if (!gpus)
        return true;
    class_ = class_.on_gpus();
    on_gpus_ = how_.form == Form::blocking && where_->fits_gpus && library.serves_gpus(comm_, *group);
    if (on_gpus_ || !library.mpi_takes_gpus())
        return true;
    why = Reason::gpu_memory;
    return false;
}

/// Null: MPI gets the call.
Group *Call::find_group(size_t agreed, Reason &why) {
    Library &library = Library::instance();
    class_ = CallClass(collective_, agreed);
    Group *known = nullptr;
    if (where_ != nullptr && how_.form != Form::persistent && !stays_off_mpi(known, why))
        return nullptr;
    if (!library.automatic() && how_.form == Form::persistent)
        return library.group_of_its_own(comm_, memory(), why);
    if (!library.automatic())
        return known != nullptr ? known : library.group_of(comm_, how_.form, why);
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

/// Host memory takes the place of what is on a GPU.
void Call::mirror() {
    if (how_.form != Form::blocking && operation_ == nullptr) {
        if (!Library::instance().has_requests())
            return;  // nothing could bring back what MPI received
        operation_ = std::make_unique<Operation>();
        operation_->persistent = how_.form == Form::persistent;
    }
    std::string why;
    staging().mirrors = std::make_unique<Mirrors>();
    error_ = staging().mirrors->make(*where_, group_ != nullptr, why);
    mirrored_ = error_ == MPI_SUCCESS;
    if (mirrored_)
        return;
    if (!why.empty())
        complain(why);
    occupied_.reset();
    group_ = nullptr;
}

void Call::complain(const std::string &why) {
    fmt::print(stderr, "flx_mpi: {}: {}\n", kCollectives[static_cast<size_t>(collective_)], why);
}

void Call::follow_sent(std::vector<PackedBlocks::Block> &blocks) {
    for (PackedBlocks::Block &block : blocks)
        block.begin = sent(block.begin);
}

void Call::follow_received(std::vector<PackedBlocks::Block> &blocks) {
    for (PackedBlocks::Block &block : blocks)
        block.begin = received(block.begin);
}

int Call::lift(const void *&in, size_t in_bytes, void *&out, size_t out_bytes, bool filled, bool written) {
    if (!on_gpus_)
        return MPI_SUCCESS;
    std::string why = Gpus::instance().await_default_stream();
    if (why.empty() && lifts() && in != FLX_IN_PLACE) {
        staging_.lifted_in = std::make_unique<Lifted>();
        why = staging_.lifted_in->take(const_cast<void *>(in), in_bytes, true, false);
        in = staging_.lifted_in->data();
    }
    if (why.empty() && lifts() && out != nullptr) {
        staging_.lifted_out = std::make_unique<Lifted>();
        why = staging_.lifted_out->take(out, out_bytes, filled, written);
        out = staging_.lifted_out->data();
    }
    if (why.empty())
        return MPI_SUCCESS;
    complain(why);
    return refuse(MPI_ERR_OTHER);
}

void Call::note(Route route) {
    if (habits_ != nullptr)
        habits_->carried_out(habit_, memory());
    if (compared_ == nullptr)
        return;
    compared_->routes->carried_out(class_, route,
                                   began_ns_ != 0 ? static_cast<double>(now_ns() - began_ns_) * 1e-9 : 0);
}

/// A persistent one that was not handed out leaves its communicator to others.
Call::~Call() {
    occupied_.reset();
    if (operation_ != nullptr && operation_->persistent && operation_->group != nullptr)
        Library::instance().dismiss(operation_->group);
}

size_t *Call::numbers(int lists) {
    group_->numbers.resize(static_cast<size_t>(lists) * group_->size);
    return group_->numbers.data();
}

int Call::refuse(int error) {
    // The handler's own message would not name the call.
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    if (PMPI_Comm_get_errhandler(comm_, &handler) == MPI_SUCCESS) {
        if (handler == MPI_ERRORS_ARE_FATAL && error != MPI_ERR_OTHER) {
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
    return hand_out();
}

int Call::hand_out() {
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
    Objection objection = wrong(root >= 0 && root < size_of(comm) ? MPI_SUCCESS : MPI_ERR_ROOT);
    objection.root = root;
    return objection;
}

void *next_of(const char *name) {
    return dlsym(RTLD_NEXT, name);
}

}  // namespace flx::preload
