/// The public functions that do not block: requests, their completion, and persistent ones.
#include <algorithm>
#include <deque>
#include <utility>

#include "runtime/api/api.h"
#include "runtime/api/request.h"
#include "runtime/base/counters.h"

using flx::Call;
using flx::Communicator;
using flx::fail;
using flx::Fault;
using flx::Pending;
using flx::Status;
using flx::Waiter;
using namespace flx::api;

void flx_request::keep_arrays(int size) {
    const size_t n = static_cast<size_t>(size);
    const size_t *const given[] = {call.blocks.counts, call.blocks.displacements, call.sends.counts,
                                   call.sends.displacements};
    numbers.clear();
    numbers.reserve(4 * n);
    const size_t *kept[4] = {};
    for (int i = 0; i < 4; ++i) {
        if (given[i] == nullptr)
            continue;
        kept[i] = numbers.data() + numbers.size();
        numbers.insert(numbers.end(), given[i], given[i] + n);
    }
    call.blocks = {kept[0], kept[1]};
    call.sends = {kept[2], kept[3]};
}

namespace {

void release(flx_request *request) {
    if (request->comm == nullptr) {
        delete request;
        return;
    }
    flx_comm &comm = *request->comm;
    std::erase(comm.requests, request);
    comm.detached -= request->detached ? 1 : 0;
    request->pending = nullptr;
    request->mirror = nullptr;
    request->end = nullptr;
    request->persistent = request->active = request->detached = false;
    request->call = Call();
    comm.idle_requests.emplace_back(request);
}

/// Whether an active request is done; of what GPUs do not carry out nothing is moved.
bool is_done(flx_request &request, bool &moved) {
    if (request.end != nullptr)
        return request.comm->impl->ended_on_device(*request.end, request.status, moved);
    return request.pending == nullptr || request.pending->done;
}

/// The status of one that is done, and no longer active then; what it wrote is where it belongs. Of one that was not
/// active nothing is.
Status settle(flx_request &request) {
    Status status = std::exchange(request.status, Status());
    const bool was_active = std::exchange(request.active, false);
    if (was_active && request.end != nullptr)
        request.comm->impl->forget_on_device();
    if (request.pending != nullptr) {
        status = request.pending->status;
        request.comm->impl->recycle(*request.pending);
        request.pending = nullptr;
    }
    return status.ok() && was_active && request.mirror != nullptr ? request.mirror->store() : status;
}

/// Requests that were freed and have ended since.
void reap(flx_comm &comm) {
    bool moved = false;
    for (size_t i = 0; i < comm.requests.size();) {
        flx_request *request = comm.requests[i];
        if (!request->detached || !is_done(*request, moved)) {
            ++i;
            continue;
        }
        (void)settle(*request);
        release(request);
    }
}

/// A request of `comm`, used again if there is one.
flx_request *acquire(flx_comm &comm) {
    if (comm.detached != 0)
        reap(comm);
    if (comm.idle_requests.empty()) {
        flx::Telemetry::count(flx::telemetry().allocations);
        comm.idle_requests.reserve(comm.requests.size() + 1);  // for all that exist: release() needs no memory
        comm.idle_requests.push_back(std::make_unique<flx_request>());
        comm.requests.reserve(comm.requests.capacity() + 1);
    }
    std::unique_ptr<flx_request> request = std::move(comm.idle_requests.back());
    comm.idle_requests.pop_back();
    comm.requests.push_back(request.get());
    request->comm = &comm;
    return request.release();
}

Status start(flx_request &request) {
    Communicator &comm = *request.comm->impl;
    Status status = request.end != nullptr ? comm.begin_on_device(Communicator::on_gpus(request.call), *request.end)
                    : request.mirror != nullptr ? comm.begin_mirrored(request.call, *request.mirror, request.pending)
                                                : comm.issue(request.call, request.pending);
    request.active = status.ok();
    return status;
}

/// Arguments that were checked become a request, unless `then` fails with it, which begins the operation if it is
/// `begun`.
template <typename Make, typename Then>
Status make_request(flx_comm_t comm, flx_request_t *request, bool begun, Make &&make, Then &&then) {
    FLX_TRY(need(request, "request"));
    *request = FLX_REQUEST_NULL;
    Call call;
    FLX_TRY(make(call));
    std::unique_ptr<flx_request, void (*)(flx_request *)> made(acquire(*comm), release);
    made->call = call;
    made->keep_arrays(comm->impl->size());
    if (call.operation.collective == flx::algorithms::Collective::barrier)
        made->call.operation.out = &made->unread;
    switch (comm->impl->place_of(call)) {
        case Communicator::Place::host:
            break;
        case Communicator::Place::gpus:
            made->end = std::make_unique<flx::cuda::Mark>();
            break;
        case Communicator::Place::mail:
        case Communicator::Place::mirrored:
            FLX_TRY(comm->impl->make_mirror(made->call, begun, made->mirror));
            break;
    }
    FLX_TRY(then(*made));
    *request = made.release();
    return {};
}

template <typename Make>
flx_status_t issue(flx_comm_t comm, flx_request_t *request, Make &&make) {
    return guarded([&]() -> Status {
        return make_request(comm, request, true, make, [](flx_request &made) { return start(made); });
    });
}

template <typename Make>
flx_status_t initialise(flx_comm_t comm, flx_request_t *request, Make &&make) {
    return guarded([&]() -> Status {
        return make_request(comm, request, false, make, [](flx_request &made) {
            made.persistent = true;
            return made.comm->impl->usable();
        });
    });
}

bool is_active(flx_request_t request) {
    return request != FLX_REQUEST_NULL && request->active;
}

/// Whether an active request is done, after moving what can be moved.
bool looks_done(flx_request &request, bool &moved) {
    return request.pending != nullptr ? request.comm->impl->completed(*request.pending, moved)
                                      : is_done(request, moved);
}
bool looks_done(flx_request &request) {
    bool moved = false;
    return looks_done(request, moved);
}

/// Takes the status of a request that is done. The handle becomes null, or inactive if it is persistent.
Status take(flx_request_t &request) {
    Status status = settle(*request);
    if (!request->persistent) {
        release(request);
        request = FLX_REQUEST_NULL;
    }
    return status;
}

/// Waits on behalf of several communicators: none may be forgotten, neither its traffic nor its dead.
class Waiters {
  public:
    void pause_for(flx_comm *comm) {
        for (const Entry &entry : entries_)
            if (entry.comm == comm)
                return;
        entries_.emplace_back(comm);
    }
    /// Passes time after a turn in which the awaited request did not complete. An error breaks off what its
    /// communicator has under way.
    void pause(bool moved) {
        for (Entry &entry : entries_)
            if (moved)
                entry.waiter.moved();
        if (moved || entries_.empty())
            return;
        Entry &entry = entries_[turn_++ % entries_.size()];
        entry.comm->impl->pause(entry.waiter);
    }

  private:
    struct Entry {
        explicit Entry(flx_comm *its_comm) : comm(its_comm), waiter(its_comm->impl->waiter()) {}
        flx_comm *comm;
        Waiter waiter;
    };
    std::deque<Entry> entries_;  // which stay where they are
    size_t turn_ = 0;
};

/// Waits until one of the requests is done. Returns its index, or -1 where none is active.
ptrdiff_t wait_for_one(size_t count, flx_request_t *requests) {
    Waiters waiters;
    for (;;) {
        bool active = false;
        bool moved = false;
        for (size_t i = 0; i < count; ++i) {
            if (!is_active(requests[i]))
                continue;
            active = true;
            if (looks_done(*requests[i], moved))
                return static_cast<ptrdiff_t>(i);
            waiters.pause_for(requests[i]->comm);
        }
        if (!active)
            return -1;
        waiters.pause(moved);
    }
}

Status check_list(size_t count, const flx_request_t *requests) {
    return count == 0 ? Status() : need(requests, "requests");
}

}  // namespace

flx::Communicator &flx::api::settled(flx_comm_t comm) {
    bool moved = false;
    for (size_t i = 0; comm->detached != 0 && i < comm->requests.size(); ++i) {
        flx_request &request = *comm->requests[i];
        while (request.detached && request.end != nullptr && !is_done(request, moved)) {
        }
    }
    if (comm->detached != 0)
        reap(*comm);
    return *comm->impl;
}

void flx::api::release_requests(flx_comm &comm) {
    for (size_t i = 0; i < comm.requests.size();) {
        flx_request &request = *comm.requests[i];
        if (request.active) {
            Status waited = request.pending != nullptr ? comm.impl->wait(*request.pending) : Status();
            for (bool moved = false; request.end != nullptr && !is_done(request, moved);) {
            }
            if (!waited.ok())
                request.mirror = nullptr;  // there may be no result
            Status settled = settle(request);
            request.status = waited.ok() ? std::move(settled) : std::move(waited);
            request.active = true;  // until the program asks for its status
        }
        request.mirror = nullptr;
        request.end = nullptr;
        request.comm = nullptr;
        if (request.detached)
            delete &request;
        ++i;
    }
    comm.requests.clear();
}

flx_status_t flx_test(flx_request_t *request, int *done) {
    return guarded([&]() -> Status {
        FLX_TRY(need(request, "request"));
        FLX_TRY(need(done, "done"));
        *done = 1;
        if (!is_active(*request))
            return {};
        if (!looks_done(**request)) {
            *done = 0;
            return {};
        }
        return take(*request);
    });
}

flx_status_t flx_wait(flx_request_t *request) {
    return guarded([&]() -> Status {
        FLX_TRY(need(request, "request"));
        if (!is_active(*request))
            return {};
        flx_request &waited = **request;
        if (waited.pending != nullptr) {
            // An error that ended it is its status; another one is the call's.
            if (Status status = waited.comm->impl->wait(*waited.pending); !status.ok() && !waited.pending->done)
                return status;
        } else if (waited.end != nullptr) {
            FLX_TRY(waited.comm->impl->check_outside());
            (void)wait_for_one(1, request);
        }
        return take(*request);
    });
}

flx_status_t flx_test_any(size_t count, flx_request_t *requests, ptrdiff_t *index, int *done) {
    return guarded([&]() -> Status {
        FLX_TRY(check_list(count, requests));
        FLX_TRY(need(index, "index"));
        FLX_TRY(need(done, "done"));
        *index = -1;
        *done = 1;
        for (size_t i = 0; i < count; ++i) {
            if (!is_active(requests[i]))
                continue;
            *done = 0;
            if (!looks_done(*requests[i]))
                continue;
            *done = 1;
            *index = static_cast<ptrdiff_t>(i);
            return take(requests[i]);
        }
        return {};
    });
}

flx_status_t flx_wait_any(size_t count, flx_request_t *requests, ptrdiff_t *index) {
    return guarded([&]() -> Status {
        FLX_TRY(check_list(count, requests));
        FLX_TRY(need(index, "index"));
        *index = wait_for_one(count, requests);
        return *index < 0 ? Status() : take(requests[*index]);
    });
}

flx_status_t flx_test_all(size_t count, flx_request_t *requests, int *done) {
    return guarded([&]() -> Status {
        FLX_TRY(check_list(count, requests));
        FLX_TRY(need(done, "done"));
        bool all = true;
        for (size_t i = 0; i < count; ++i)
            all = (!is_active(requests[i]) || looks_done(*requests[i])) && all;
        *done = all ? 1 : 0;
        Status first;
        for (size_t i = 0; all && i < count; ++i) {
            if (!is_active(requests[i]))
                continue;
            if (Status status = take(requests[i]); first.ok())
                first = std::move(status);
        }
        return first;
    });
}

flx_status_t flx_wait_all(size_t count, flx_request_t *requests) {
    return guarded([&]() -> Status {
        FLX_TRY(check_list(count, requests));
        // The requests may belong to several communicators, and none of them may wait behind another: all are moved
        // until each request has completed.
        Waiters waiters;
        bool moved = false;
        const auto left = [&] {
            bool active = false;
            moved = false;
            for (size_t i = 0; i < count; ++i) {
                if (!is_active(requests[i]) || looks_done(*requests[i], moved))
                    continue;
                active = true;
                waiters.pause_for(requests[i]->comm);
            }
            return active;
        };
        while (left())
            waiters.pause(moved);
        Status first;
        for (size_t i = 0; i < count; ++i) {
            if (!is_active(requests[i]))
                continue;
            if (Status status = take(requests[i]); first.ok())
                first = std::move(status);
        }
        return first;
    });
}

flx_status_t flx_start(flx_request_t *request) {
    return guarded([&]() -> Status {
        FLX_TRY(need(request, "request"));
        if (*request == FLX_REQUEST_NULL)
            return wrong::null("the request");
        flx_request &started = **request;
        if (!started.persistent)
            return fail(Fault::request_not_ready, "the request is not persistent; the _init functions make such");
        if (started.active)
            return fail(Fault::request_not_ready, "the request is active: it must complete before it is started again");
        if (started.comm == nullptr)
            return fail(Fault::request_not_ready, "the request's communicator was freed");
        return start(started);
    });
}

flx_status_t flx_start_all(size_t count, flx_request_t *requests) {
    for (size_t i = 0; i < count; ++i)
        if (const flx_status_t status = flx_start(&requests[i]); status != FLX_SUCCESS)
            return status;
    return FLX_SUCCESS;
}

flx_status_t flx_request_free(flx_request_t *request) {
    return guarded([&]() -> Status {
        FLX_TRY(need(request, "request"));
        if (*request == FLX_REQUEST_NULL)
            return {};
        flx_request *freed = *request;
        *request = FLX_REQUEST_NULL;
        freed->persistent = false;
        if (freed->active && !looks_done(*freed)) {
            freed->detached = true;  // it ends with later calls
            ++freed->comm->detached;
            return {};
        }
        return take(freed);
    });
}

flx_status_t flx_ibarrier(flx_comm_t comm, flx_request_t *request) {
    return issue(comm, request, [&](Call &call) { return make_barrier(comm, call); });
}

flx_status_t flx_iallreduce(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op,
                            flx_comm_t comm, flx_request_t *request) {
    return issue(comm, request,
                 [&](Call &call) { return make_allreduce(sendbuf, recvbuf, count, dtype, op, comm, call); });
}

flx_status_t flx_ireduce(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op, int root,
                         flx_comm_t comm, flx_request_t *request) {
    return issue(comm, request,
                 [&](Call &call) { return make_reduce(sendbuf, recvbuf, count, dtype, op, root, comm, call); });
}

flx_status_t flx_ireduce_scatter_block(const void *sendbuf, void *recvbuf, size_t recvcount, flx_dtype_t dtype,
                                       flx_op_t op, flx_comm_t comm, flx_request_t *request) {
    return issue(comm, request, [&](Call &call) {
        return make_reduce_scatter_block(sendbuf, recvbuf, recvcount, dtype, op, comm, call);
    });
}

flx_status_t flx_ireduce_scatter(const void *sendbuf, void *recvbuf, const size_t *recvcounts, flx_dtype_t dtype,
                                 flx_op_t op, flx_comm_t comm, flx_request_t *request) {
    return issue(comm, request,
                 [&](Call &call) { return make_reduce_scatter(sendbuf, recvbuf, recvcounts, dtype, op, comm, call); });
}

flx_status_t flx_ibcast(void *buf, size_t count, flx_dtype_t dtype, int root, flx_comm_t comm, flx_request_t *request) {
    return issue(comm, request, [&](Call &call) { return make_bcast(buf, count, dtype, root, comm, call); });
}

flx_status_t flx_iallgather(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_comm_t comm,
                            flx_request_t *request) {
    return issue(comm, request, [&](Call &call) { return make_allgather(sendbuf, recvbuf, count, dtype, comm, call); });
}

flx_status_t flx_iallgatherv(const void *sendbuf, size_t sendcount, void *recvbuf, const size_t *recvcounts,
                             const size_t *displs, flx_dtype_t dtype, flx_comm_t comm, flx_request_t *request) {
    return issue(comm, request, [&](Call &call) {
        return make_allgatherv(sendbuf, sendcount, recvbuf, recvcounts, displs, dtype, comm, call);
    });
}

flx_status_t flx_igather(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, int root, flx_comm_t comm,
                         flx_request_t *request) {
    return issue(comm, request,
                 [&](Call &call) { return make_gather(sendbuf, recvbuf, count, dtype, root, comm, call); });
}

flx_status_t flx_igatherv(const void *sendbuf, size_t sendcount, void *recvbuf, const size_t *recvcounts,
                          const size_t *displs, flx_dtype_t dtype, int root, flx_comm_t comm, flx_request_t *request) {
    return issue(comm, request, [&](Call &call) {
        return make_gatherv(sendbuf, sendcount, recvbuf, recvcounts, displs, dtype, root, comm, call);
    });
}

flx_status_t flx_iscatter(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, int root,
                          flx_comm_t comm, flx_request_t *request) {
    return issue(comm, request,
                 [&](Call &call) { return make_scatter(sendbuf, recvbuf, count, dtype, root, comm, call); });
}

flx_status_t flx_iscatterv(const void *sendbuf, const size_t *sendcounts, const size_t *displs, void *recvbuf,
                           size_t recvcount, flx_dtype_t dtype, int root, flx_comm_t comm, flx_request_t *request) {
    return issue(comm, request, [&](Call &call) {
        return make_scatterv(sendbuf, sendcounts, displs, recvbuf, recvcount, dtype, root, comm, call);
    });
}

flx_status_t flx_ialltoall(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_comm_t comm,
                           flx_request_t *request) {
    return issue(comm, request, [&](Call &call) { return make_alltoall(sendbuf, recvbuf, count, dtype, comm, call); });
}

flx_status_t flx_ialltoallv(const void *sendbuf, void *recvbuf, const size_t *sendcounts, const size_t *sdispls,
                            const size_t *recvcounts, const size_t *rdispls, flx_dtype_t dtype, flx_comm_t comm,
                            flx_request_t *request) {
    return issue(comm, request, [&](Call &call) {
        return make_alltoallv(sendbuf, recvbuf, sendcounts, sdispls, recvcounts, rdispls, dtype, comm, call);
    });
}

flx_status_t flx_iscan(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op,
                       flx_comm_t comm, flx_request_t *request) {
    return issue(comm, request,
                 [&](Call &call) { return make_scan(false, sendbuf, recvbuf, count, dtype, op, comm, call); });
}

flx_status_t flx_iexscan(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op,
                         flx_comm_t comm, flx_request_t *request) {
    return issue(comm, request,
                 [&](Call &call) { return make_scan(true, sendbuf, recvbuf, count, dtype, op, comm, call); });
}

flx_status_t flx_barrier_init(flx_comm_t comm, flx_request_t *request) {
    return initialise(comm, request, [&](Call &call) { return make_barrier(comm, call); });
}

flx_status_t flx_allreduce_init(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op,
                                flx_comm_t comm, flx_request_t *request) {
    return initialise(comm, request,
                      [&](Call &call) { return make_allreduce(sendbuf, recvbuf, count, dtype, op, comm, call); });
}

flx_status_t flx_reduce_init(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op, int root,
                             flx_comm_t comm, flx_request_t *request) {
    return initialise(comm, request,
                      [&](Call &call) { return make_reduce(sendbuf, recvbuf, count, dtype, op, root, comm, call); });
}

flx_status_t flx_reduce_scatter_block_init(const void *sendbuf, void *recvbuf, size_t recvcount, flx_dtype_t dtype,
                                           flx_op_t op, flx_comm_t comm, flx_request_t *request) {
    return initialise(comm, request, [&](Call &call) {
        return make_reduce_scatter_block(sendbuf, recvbuf, recvcount, dtype, op, comm, call);
    });
}

flx_status_t flx_reduce_scatter_init(const void *sendbuf, void *recvbuf, const size_t *recvcounts, flx_dtype_t dtype,
                                     flx_op_t op, flx_comm_t comm, flx_request_t *request) {
    return initialise(comm, request, [&](Call &call) {
        return make_reduce_scatter(sendbuf, recvbuf, recvcounts, dtype, op, comm, call);
    });
}

flx_status_t flx_bcast_init(void *buf, size_t count, flx_dtype_t dtype, int root, flx_comm_t comm,
                            flx_request_t *request) {
    return initialise(comm, request, [&](Call &call) { return make_bcast(buf, count, dtype, root, comm, call); });
}

flx_status_t flx_allgather_init(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_comm_t comm,
                                flx_request_t *request) {
    return initialise(comm, request,
                      [&](Call &call) { return make_allgather(sendbuf, recvbuf, count, dtype, comm, call); });
}

flx_status_t flx_allgatherv_init(const void *sendbuf, size_t sendcount, void *recvbuf, const size_t *recvcounts,
                                 const size_t *displs, flx_dtype_t dtype, flx_comm_t comm, flx_request_t *request) {
    return initialise(comm, request, [&](Call &call) {
        return make_allgatherv(sendbuf, sendcount, recvbuf, recvcounts, displs, dtype, comm, call);
    });
}

flx_status_t flx_gather_init(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, int root,
                             flx_comm_t comm, flx_request_t *request) {
    return initialise(comm, request,
                      [&](Call &call) { return make_gather(sendbuf, recvbuf, count, dtype, root, comm, call); });
}

flx_status_t flx_gatherv_init(const void *sendbuf, size_t sendcount, void *recvbuf, const size_t *recvcounts,
                              const size_t *displs, flx_dtype_t dtype, int root, flx_comm_t comm,
                              flx_request_t *request) {
    return initialise(comm, request, [&](Call &call) {
        return make_gatherv(sendbuf, sendcount, recvbuf, recvcounts, displs, dtype, root, comm, call);
    });
}

flx_status_t flx_scatter_init(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, int root,
                              flx_comm_t comm, flx_request_t *request) {
    return initialise(comm, request,
                      [&](Call &call) { return make_scatter(sendbuf, recvbuf, count, dtype, root, comm, call); });
}

flx_status_t flx_scatterv_init(const void *sendbuf, const size_t *sendcounts, const size_t *displs, void *recvbuf,
                               size_t recvcount, flx_dtype_t dtype, int root, flx_comm_t comm, flx_request_t *request) {
    return initialise(comm, request, [&](Call &call) {
        return make_scatterv(sendbuf, sendcounts, displs, recvbuf, recvcount, dtype, root, comm, call);
    });
}

flx_status_t flx_alltoall_init(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_comm_t comm,
                               flx_request_t *request) {
    return initialise(comm, request,
                      [&](Call &call) { return make_alltoall(sendbuf, recvbuf, count, dtype, comm, call); });
}

flx_status_t flx_alltoallv_init(const void *sendbuf, void *recvbuf, const size_t *sendcounts, const size_t *sdispls,
                                const size_t *recvcounts, const size_t *rdispls, flx_dtype_t dtype, flx_comm_t comm,
                                flx_request_t *request) {
    return initialise(comm, request, [&](Call &call) {
        return make_alltoallv(sendbuf, recvbuf, sendcounts, sdispls, recvcounts, rdispls, dtype, comm, call);
    });
}

flx_status_t flx_scan_init(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op,
                           flx_comm_t comm, flx_request_t *request) {
    return initialise(comm, request,
                      [&](Call &call) { return make_scan(false, sendbuf, recvbuf, count, dtype, op, comm, call); });
}

flx_status_t flx_exscan_init(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op,
                             flx_comm_t comm, flx_request_t *request) {
    return initialise(comm, request,
                      [&](Call &call) { return make_scan(true, sendbuf, recvbuf, count, dtype, op, comm, call); });
}
