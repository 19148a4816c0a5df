#include "runtime/front/mpi/requests.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "runtime/base/open_pal.h"
#include "runtime/front/mpi/libraries/flx_library.h"

namespace flx::preload {
namespace {

using Callback = int (*)();
using Register = int (*)(Callback);

/// Set while this thread is in the function that MPI's progress loop calls, which may come there again.
thread_local bool inside = false;

class Within {
  public:
    Within() { inside = true; }
    ~Within() { inside = false; }
    Within(const Within &) = delete;
    Within &operator=(const Within &) = delete;
};

int query(void *state, MPI_Status *status) {
    const auto *operation = static_cast<Operation *>(state);
    PMPI_Status_set_elements(status, MPI_BYTE, 0);
    PMPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = MPI_UNDEFINED;
    status->MPI_TAG = MPI_UNDEFINED;
    status->MPI_ERROR = operation->code;
    return operation->code;
}

/// MPI keeps it until the program has given up the request and the operation has ended.
int forget(void *state) {
    delete static_cast<Operation *>(state);
    return MPI_SUCCESS;
}

/// MPI has no cancelling of collectives: it goes on.
int cancel(void *, int) {
    return MPI_SUCCESS;
}

}  // namespace

Requests &Requests::instance() {
    static auto *const requests = new Requests;  // stays: MPI may be finalized by a destructor
    return *requests;
}

bool Requests::begin() {
    // Generalized requests that complete in the progress loop were tried with these.
    constexpr std::array<std::string_view, 2> kTried = {"Open MPI v4.1", "Open MPI v5.0"};
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> version{};
    int length = 0;
    if (PMPI_Get_library_version(version.data(), &length) != MPI_SUCCESS ||
        std::ranges::none_of(kTried, [&](auto tried) { return std::string_view(version.data()).starts_with(tried); }))
        return false;
    register_ = open_pal("opal_progress_register");
    unregister_ = open_pal("opal_progress_unregister");
    if (register_ == nullptr || unregister_ == nullptr || PMPI_Comm_dup(MPI_COMM_SELF, &self_) != MPI_SUCCESS)
        return false;
    PMPI_Comm_set_errhandler(self_, MPI_ERRORS_RETURN);
    return true;
}

void Requests::end() {
    if (self_ == MPI_COMM_NULL)
        return;
    if (in_loop_)
        reinterpret_cast<Register>(unregister_)(progress);
    PMPI_Comm_free(&self_);
}

/// MPI's messages are slower by what its loop calls, so not before there is something to do. `mutex_` is held.
int Requests::join_loop() {
    if (!in_loop_ && reinterpret_cast<Register>(register_)(progress) != 0)
        return MPI_ERR_INTERN;
    in_loop_ = true;
    return MPI_SUCCESS;
}

int Requests::hand_out(std::unique_ptr<Operation> operation, MPI_Request *handle) {
    int code = MPI_SUCCESS;
    {
        const std::lock_guard guard(mutex_);
        code = join_loop();
    }
    if (code == MPI_SUCCESS && operation->persistent) {
        const std::lock_guard guard(mutex_);
        // A tag of its own, of those that every MPI has: what ends one operation must not end another.
        constexpr int kTags = 32767;
        const auto has_it = [this](const auto &other) { return other.second->tag == next_tag_; };
        do
            next_tag_ = next_tag_ % kTags + 1;
        while (std::any_of(persistent_.begin(), persistent_.end(), has_it));
        operation->tag = next_tag_;
        code = PMPI_Recv_init(nullptr, 0, MPI_BYTE, 0, operation->tag, self_, &operation->handle);
        if (code == MPI_SUCCESS) {
            *handle = operation->handle;
            persistent_.emplace(operation->handle, std::move(operation));
            live_persistent_.fetch_add(1, std::memory_order_relaxed);
            return MPI_SUCCESS;
        }
    } else if (code == MPI_SUCCESS) {
        code = PMPI_Grequest_start(query, forget, cancel, operation.get(), &operation->handle);
        if (code == MPI_SUCCESS) {
            *handle = operation->handle;
            const std::lock_guard guard(mutex_);
            active_.push_back(operation.release());  // forget() deletes it
            live_active_.store(active_.size(), std::memory_order_relaxed);
            return MPI_SUCCESS;
        }
    }
    give_up(*operation);
    return code;
}

/// Of one that the program gets no request for, but what was begun must end.
void Requests::give_up(Operation &operation) {
    if (operation.group != nullptr) {
        if (!operation.persistent)
            flx_wait(&operation.request);
        flx_request_free(&operation.request);
    } else if (operation.persistent) {
        PMPI_Request_free(&operation.mpi);
    } else {
        PMPI_Wait(&operation.mpi, MPI_STATUS_IGNORE);
    }
}

/// Of a persistent one. MPI's code.
int Requests::begin_again(Operation &operation) {
    if (operation.group == nullptr) {
        const int code = operation.staging.read(MPI_COMM_WORLD);
        return code == MPI_SUCCESS ? PMPI_Start(&operation.mpi) : code;
    }
    const Occupied occupied(*operation.group);
    if (const int code = operation.staging.read(MPI_COMM_WORLD); code != MPI_SUCCESS)
        return code;
    return code_of(flx_start(&operation.request), *operation.group);
}

bool Requests::start(MPI_Request *handle, int &code) {
    Operation *operation = nullptr;
    {
        const std::lock_guard guard(mutex_);
        const auto found = persistent_.find(*handle);
        if (found == persistent_.end())
            return false;
        operation = found->second.get();
        if (operation->active) {
            code = MPI_ERR_REQUEST;
            return true;
        }
        operation->active = true;
    }
    code = PMPI_Start(handle);
    if (code != MPI_SUCCESS) {
        operation->active = false;
        return true;
    }
    code = begin_again(*operation);
    const std::lock_guard guard(mutex_);
    if (*handle != operation->handle) {
        auto node = persistent_.extract(operation->handle);
        node.key() = operation->handle = *handle;
        persistent_.insert(std::move(node));
    }
    if (code != MPI_SUCCESS) {
        complete(operation, code);
        return true;
    }
    active_.push_back(operation);
    live_active_.store(active_.size(), std::memory_order_relaxed);
    return true;
}

bool Requests::free(MPI_Request *handle, int &code) {
    std::unique_ptr<Operation> operation;
    {
        const std::lock_guard guard(mutex_);
        const auto found = persistent_.find(*handle);
        if (found == persistent_.end())
            return false;
        if (found->second->active) {
            code = MPI_ERR_REQUEST;  // as with MPI's own
            return true;
        }
        operation = std::move(found->second);
        persistent_.erase(found);
        live_persistent_.fetch_sub(1, std::memory_order_relaxed);
    }
    code = PMPI_Request_free(handle);
    if (operation->group == nullptr) {
        PMPI_Request_free(&operation->mpi);
        return true;
    }
    {
        const Occupied occupied(*operation->group);
        flx_request_free(&operation->request);
    }
    Library::instance().dismiss(operation->group);
    return true;
}

/// Whether it has ended. `looked`: that cost a turn of its communicator.
bool Requests::is_done(Operation &operation, int &code, bool &looked) {
    if (operation.group == nullptr) {
        int done = 0;
        looked = true;
        code = PMPI_Test(&operation.mpi, &done, MPI_STATUS_IGNORE);
        return done != 0 || code != MPI_SUCCESS;
    }
    // Another thread that is in there moves it, and comes here from its wait: what has ended must not wait for that
    // thread's own call, which may need what the program does after this one.
    const bool inside_of_it = operation.group->holder.load(std::memory_order_relaxed) == Occupied::this_thread();
    const Attempt attempt(*operation.group);
    if (!attempt.succeeded() && !inside_of_it)
        return false;
    looked = true;
    int done = 0;
    const flx_status_t status = flx_test(&operation.request, &done);
    code = status == FLX_SUCCESS ? MPI_SUCCESS : code_of(status, *operation.group);
    return done != 0;
}

void Requests::complete(Operation *operation, int code) {
    if (code == MPI_SUCCESS)
        code = operation->staging.write(MPI_COMM_WORLD);
    if (code == MPI_SUCCESS)
        code = operation->staging.late_error;
    operation->code = code;
    if (!operation->persistent) {
        PMPI_Grequest_complete(operation->handle);  // and it may be gone
        return;
    }
    operation->active = false;
    // A byte too many makes MPI report an error.
    static const char byte = 0;
    MPI_Request sent = MPI_REQUEST_NULL;
    PMPI_Isend(&byte, code == MPI_SUCCESS ? 0 : 1, MPI_BYTE, 0, operation->tag, self_, &sent);
    PMPI_Request_free(&sent);
}

int Requests::progress() {
    Requests &requests = instance();
    return requests.live_active_.load(std::memory_order_relaxed) == 0 || inside ? 0 : requests.turn();
}

/// Looks at some of those under way, others the next time: each look moves all of its communicator.
int Requests::turn() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock())
        return 0;
    const Within within;
    constexpr int kLooks = 4;
    int looks = 0;
    int completed = 0;
    for (size_t seen = 0, all = active_.size(); seen < all && looks < kLooks; ++seen) {
        if (next_ >= active_.size())
            next_ = 0;
        Operation *operation = active_[next_];
        int code = MPI_SUCCESS;
        bool looked = false;
        if (!is_done(*operation, code, looked)) {
            looks += looked ? 1 : 0;
            ++next_;
            continue;
        }
        active_.erase(active_.begin() + static_cast<ptrdiff_t>(next_));
        live_active_.store(active_.size(), std::memory_order_relaxed);
        complete(operation, code);
        ++completed;
    }
    return completed;
}

void Requests::finish(Group *group) {
    const std::lock_guard guard(mutex_);
    const Within within;
    for (size_t i = 0; i < active_.size();) {
        Operation *operation = active_[i];
        if (operation->group != group) {
            ++i;
            continue;
        }
        const flx_status_t status = flx_wait(&operation->request);
        active_.erase(active_.begin() + static_cast<ptrdiff_t>(i));
        complete(operation, status == FLX_SUCCESS ? MPI_SUCCESS : code_of(status, *group));
    }
    live_active_.store(active_.size(), std::memory_order_relaxed);
    // Persistent ones that the program has not freed: MPI ends.
    for (auto &[handle, operation] : persistent_)
        if (operation->group == group)
            flx_request_free(&operation->request);
}

void Requests::move(Group *from, Group *to) {
    const std::lock_guard guard(mutex_);
    for (Operation *operation : active_)
        if (operation->group == from)
            operation->group = to;
}

}  // namespace flx::preload
