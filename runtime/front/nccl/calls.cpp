/// Collectives, sends and receives, and groups of them. What concerns communicators that FLX does not serve goes to
/// NCCL at once; the rest of a group waits for its end, when it is known what it amounts to.
#include "runtime/front/nccl/calls.h"

#include <sched.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/front/nccl/exports.h"
#include "runtime/front/nccl/posting.h"
#include "runtime/front/nccl/statistics.h"

namespace flx::nccl {
namespace {

struct Group {
    int depth = 0;
    std::vector<Deferred> calls;
    std::vector<std::shared_ptr<Communicator>> comms;  ///< of those calls, each once
    std::vector<Creation> creations;
    ncclResult_t result = ncclSuccess;  ///< the first error of a call
};
Group &group() {
    static thread_local Group mine;
    return mine;
}

void count(const Communicator &comm, const Request &request, Reason why) {
    statistics().count(request.kind, why, bytes_of(request, comm.ranks));
}

/// How many messages each pair has exchanged, for agreements (agreement.h).
void note_message(Communicator &comm, const Request &request) {
    if (request.root < 0 || request.root >= comm.ranks)
        return;
    if (request.kind == Kind::send)
        ++comm.messages.sent[request.root];
    else if (request.kind == Kind::recv)
        ++comm.messages.received[request.root];
}

Reason route_on(const Communicator &comm, const Request &request, const Table &table) {
    const Reason why = route(request, comm.ranks, table);
    if (why == Reason::none && !known_to(real().version, request.type))
        return Reason::invalid;
    if (why == Reason::none && comm.slows(request, &table == &comm.tables.met))
        return Reason::room;
    // Of a message's buffers each end knows only its own.
    return why == Reason::none && !is_message(request.kind) && comm.in_window(request) ? Reason::registered : why;
}

/// Whether ranks meet for it, so that their outputs can be written (outputs.h).
bool may_be_met(const Communicator &comm, const Request &request) {
    return comm.serves() && Outputs::may_be_met(request.kind, bytes_of(request, comm.ranks)) &&
           route_on(comm, request, comm.tables.met) == Reason::none &&
           comm.lane->writes_outputs(operation_of(request, comm.ranks));
}

/// A meeting of ranks, of which each step is made with the mutex (outputs.h).
struct Meeting {
    bool begun = false;
    bool frozen = false;  ///< the stream is being captured

    /// If the ranks meet for that.
    void begin(Communicator &comm, const Request &request, cudaStream_t stream) {
        begun = may_be_met(comm, request);
        if (!begun)
            return;
        Engine::Stream state;
        frozen = !engine().look_at(stream, state).ok() || state.capture != 0;
        comm.outputs->begin(*comm.lane, operation_of(request, comm.ranks), bytes_of(request, comm.ranks), frozen);
    }
    void compare(const Communicator &comm, cudaStream_t stream) const {
        if (!begun || !comm.serves())
            return;
        comm.outputs->compare(*comm.lane, engine().patience_ns());
        if (!frozen && engine().has_work(stream))
            comm.outputs->lost_nothing();
    }
    /// Whether outputs may be written.
    [[nodiscard]] bool end(const Communicator &comm) const {
        return begun && comm.serves() && comm.outputs->end(*comm.lane);
    }
};

/// Calls of one communicator in the group that ends.
struct Part {
    std::shared_ptr<Communicator> comm;
    std::vector<const Deferred *> calls;
    Gathered what;
    Divided divided;  ///< unless FLX carries out the whole
    std::optional<Posting> posting;
    bool offered = false;
    Meeting meeting;  ///< of ranks that may show each other their outputs
    bool met = false;
};

/// What FLX puts on a stream next must come after what NCCL was given, also where NCCL puts it there later.
ncclResult_t settle(const Communicator &comm, ncclResult_t result) {
    while (result == ncclInProgress && !comm.stop.load(std::memory_order_acquire)) {
        sched_yield();
        if (const ncclResult_t asked = FLX_REAL(ncclCommGetAsyncError, comm.handle, &result); asked != ncclSuccess)
            return asked;
    }
    return result;
}

ncclResult_t post_alone(Communicator &comm, const Request &request, cudaStream_t stream) {
    if (!comm.failure.ok())
        return comm.fail_with({});
    const auto put = [&]() -> Status {
        const Deferred call{request, comm.handle, stream};
        FLX_TRY(comm.before(stream));
        FLX_TRY(Posting(comm, {&call}, stream, false).end());
        return comm.after(stream);
    };
    Status status = put();
    return status.ok() ? ncclSuccess : comm.fail_with(std::move(status));
}

/// After before(): NCCL's part, which others of the communicator come after. NCCL is called without the mutex: it may
/// wait for a peer that died, until another thread aborts.
template <typename Pass>
ncclResult_t pass_between(Communicator &comm, cudaStream_t stream, Pass &&pass) {
    const ncclResult_t result = settle(comm, pass());
    const std::lock_guard guard(comm.mutex);
    if (!is_error(result))
        if (Status status = comm.after(stream); !status.ok())
            return comm.fail_with(std::move(status));
    return result;
}

/// Outside groups.
ncclResult_t carry_out(Communicator &comm, const Request &request, cudaStream_t stream) {
    bool nothing = false;
    {
        const std::lock_guard guard(comm.mutex);
        Meeting meeting;
        meeting.begin(comm, request, stream);
        meeting.compare(comm, stream);
        const bool met = meeting.end(comm);
        const Reason why = met ? Reason::none : route_on(comm, request, comm.tables.slots);
        const bool own = is_message(request.kind) && request.root == comm.rank;
        count(comm, request, why == Reason::none && own ? Reason::own : why);
        note_message(comm, request);
        if (why == Reason::none && is_message(request.kind) && !own)
            return post_alone(comm, request, stream);
        if (why == Reason::none && !own)
            return comm.serve(request, stream, met);
        if (why != Reason::empty)
            if (Status status = comm.before(stream); !status.ok())
                return comm.fail_with(std::move(status));
        nothing = why == Reason::empty;
    }
    const auto pass = [&] { return pass_on(request, comm.handle, stream); };
    return nothing ? pass() : pass_between(comm, stream, pass);
}

/// Decides what becomes of each part; all offers are made before any of them is waited for, since one thread may have
/// several ranks.
void decide(std::vector<Part> &parts) {
    for (Part &part : parts) {
        Communicator &comm = *part.comm;
        const std::lock_guard guard(comm.mutex);
        part.what = gather(part.calls, comm.ranks);
        if (part.what.form == Gathered::Form::several)
            continue;
        part.what.why = route_on(comm, part.what.whole, comm.tables.slots);
        const bool served = part.what.why == Reason::none || may_be_met(comm, part.what.whole);
        if (part.what.form == Gathered::Form::single || !served)
            continue;
        Offer offer = comm.messages;
        offer.bytes = part.what.whole.count;
        part.offered = comm.agreement->offer(offer);
        if (!part.offered)
            part.what.why = Reason::apart;
    }
    for (Part &part : parts) {
        Communicator &comm = *part.comm;
        const std::lock_guard guard(comm.mutex);
        const bool agreed = !part.offered || comm.agreement->decide(engine().patience_ns());
        if (!agreed)
            part.what.why = Reason::apart;
        else if (part.offered || part.what.form == Gathered::Form::single)
            part.meeting.begin(comm, part.what.whole, part.calls.front()->stream);
    }
    for (Part &part : parts) {
        const std::lock_guard guard(part.comm->mutex);
        part.meeting.compare(*part.comm, part.calls.front()->stream);
    }
    for (Part &part : parts) {
        const std::lock_guard guard(part.comm->mutex);
        part.met = part.meeting.end(*part.comm);
        if (part.met)
            part.what.why = Reason::none;
    }
}

Status wait_before(Part &part) {
    FLX_TRY(part.comm->before(part.calls.front()->stream));
    std::vector<cudaStream_t> known{part.calls.front()->stream};
    for (const Deferred *call : part.calls) {
        if (std::find(known.begin(), known.end(), call->stream) != known.end())
            continue;
        FLX_TRY(part.comm->before_also(call->stream));
        known.push_back(call->stream);
    }
    return {};
}

/// What of it NCCL carries out and what FLX does, where that is not the whole.
void divide_up(Part &part) {
    Communicator &comm = *part.comm;
    for (const Deferred *call : part.calls)
        note_message(comm, call->request);
    if (part.what.why == Reason::none) {
        for (const Deferred *call : part.calls)
            count(comm, call->request, Reason::none);
        return;
    }
    part.divided = divide(part.calls, comm.rank, part.what.why, [&](const Request &request) {
        const Reason why = route_on(comm, request, comm.tables.slots);
        return why == Reason::slower && part.offered ? Reason::apart : why;
    });
    for (const Deferred *call : part.divided.posted)
        count(comm, call->request, Reason::none);
    for (const auto &[call, why] : part.divided.passed)
        count(comm, call->request, why);
}

/// Before NCCL's part is put on streams.
Status begin(Part &part) {
    FLX_TRY(wait_before(part));
    if (part.divided.posted.empty())
        return {};
    FLX_TRY(part.comm->failure);
    part.posting.emplace(*part.comm, part.divided.posted, part.calls.front()->stream, !part.divided.passed.empty());
    return part.posting->begin();
}

/// After it has been.
Status end(Part &part) {
    if (part.posting)
        FLX_TRY(part.posting->end());
    return part.comm->after(part.calls.front()->stream);
}

std::vector<Part> parts_of(const Group &ending) {
    std::vector<Part> parts;
    for (const std::shared_ptr<Communicator> &comm : ending.comms) {
        Part part;
        part.comm = comm;
        for (const Deferred &call : ending.calls)
            if (call.comm == comm->handle)
                part.calls.push_back(&call);
        parts.push_back(std::move(part));
    }
    return parts;
}

/// The group's end: NCCL's part first, then FLX's, the same way on all ranks.
ncclResult_t end_group() {
    Group ending = std::exchange(group(), {});
    ncclResult_t result = ending.result;
    const auto keep = [&](ncclResult_t other) {
        if (is_error(other) && !is_error(result))
            result = other;
    };
    std::vector<Part> parts = parts_of(ending);
    decide(parts);
    for (Part &part : parts) {
        std::unique_lock guard(part.comm->mutex);
        divide_up(part);
        if (part.what.why == Reason::none)
            continue;
        if (Status status = begin(part); !status.ok())
            keep(part.comm->fail_with(std::move(status)));
        guard.unlock();
        for (const auto &[call, why] : part.divided.passed)
            keep(pass_on(call->request, call->comm, call->stream));
    }
    const ncclResult_t ended = FLX_REAL(ncclGroupEnd);
    keep(ended);
    for (Part &part : parts) {
        if (is_error(result))
            break;
        if (!part.divided.passed.empty())
            keep(settle(*part.comm, ended));
        const std::lock_guard guard(part.comm->mutex);
        if (part.what.why == Reason::none)
            keep(part.comm->serve(part.what.whole, part.calls.front()->stream, part.met));
        else if (Status status = end(part); !status.ok())
            keep(part.comm->fail_with(std::move(status)));
    }
    if (!is_error(result))
        result = ended;
    finish_all(std::move(ending.creations), result);
    return result;
}

/// What only NCCL does, on a stream, in its place among the communicator's operations.
template <typename Pass>
ncclResult_t pass_in_order(ncclComm_t handle, cudaStream_t stream, Pass &&pass) {
    const std::shared_ptr<Communicator> comm = Inside::now() || in_group() ? nullptr : find(handle);
    if (comm == nullptr || !comm->active())
        return pass();
    last_words().clear();
    {
        const std::lock_guard guard(comm->mutex);
        if (Status status = comm->before(stream); !status.ok())
            return comm->fail_with(std::move(status));
    }
    return pass_between(*comm, stream, pass);
}

}  // namespace

/// In the form that takes a configuration, where the program has one.
#define FLX_PASS(NAME, ...)                                          \
    (r.config == nullptr ? FLX_REAL(NAME, __VA_ARGS__, comm, stream) \
                         : FLX_REAL(NAME##Config, __VA_ARGS__, comm, stream, r.config))

ncclResult_t pass_on(const Request &request, ncclComm_t comm, cudaStream_t stream) {
    const Request &r = request;
    switch (r.kind) {
        case Kind::allreduce:
            return FLX_PASS(ncclAllReduce, r.in, r.out, r.count, r.type, r.op);
        case Kind::allgather:
            return FLX_PASS(ncclAllGather, r.in, r.out, r.count, r.type);
        case Kind::reduce_scatter:
            return FLX_PASS(ncclReduceScatter, r.in, r.out, r.count, r.type, r.op);
        case Kind::broadcast:
            return FLX_PASS(ncclBroadcast, r.in, r.out, r.count, r.type, r.root);
        case Kind::reduce:
            return FLX_PASS(ncclReduce, r.in, r.out, r.count, r.type, r.op, r.root);
        case Kind::alltoall:
            return FLX_PASS(ncclAlltoAll, r.in, r.out, r.count, r.type);
        case Kind::gather:
            return FLX_PASS(ncclGather, r.in, r.out, r.count, r.type, r.root);
        case Kind::scatter:
            return FLX_PASS(ncclScatter, r.in, r.out, r.count, r.type, r.root);
        case Kind::send:
            return FLX_REAL(ncclSend, r.in, r.count, r.type, r.root, comm, stream);
        case Kind::recv:
            return FLX_REAL(ncclRecv, r.out, r.count, r.type, r.root, comm, stream);
    }
    return ncclInvalidArgument;
}
#undef FLX_PASS

bool in_group() {
    return group().depth > 0;
}

void add_to_group(Creation creation) {
    group().creations.push_back(std::move(creation));
}

ncclResult_t submit(const Request &request, ncclComm_t handle, cudaStream_t stream) {
    if (Inside::now())
        return pass_on(request, handle, stream);
    last_words().clear();
    const std::shared_ptr<Communicator> comm = find(handle);
    if (comm == nullptr)
        return pass_on(request, handle, stream);
    switch (comm->state.load(std::memory_order_acquire)) {
        case Communicator::State::passive:
            count(*comm, request, comm->why.load(std::memory_order_relaxed));
            return pass_on(request, handle, stream);
        case Communicator::State::preparing:
            last_words() = "FLX: the communicator is not ready yet; ncclCommGetAsyncError tells when it is";
            return ncclInvalidArgument;
        case Communicator::State::active:
            break;
    }
    if (comm->suspended.load(std::memory_order_acquire)) {
        count(*comm, request, Reason::suspended);
        return pass_on(request, handle, stream);
    }
    if (!in_group())
        return carry_out(*comm, request, stream);
    Group &mine = group();
    mine.calls.push_back({request, handle, stream});
    if (request.config != nullptr) {
        Deferred &call = mine.calls.back();
        call.config = std::make_shared<KeptConfig>(request.config);
        call.request.config = call.config->get();
    }
    if (std::find(mine.comms.begin(), mine.comms.end(), comm) == mine.comms.end())
        mine.comms.push_back(comm);
    return ncclSuccess;
}

namespace {

ncclResult_t start_group() {
    const ncclResult_t result = FLX_REAL(ncclGroupStart);
    if (!Inside::now() && result == ncclSuccess)
        ++group().depth;
    return result;
}

ncclResult_t end_or_leave_group() {
    if (Inside::now() || group().depth == 0)
        return FLX_REAL(ncclGroupEnd);
    last_words().clear();
    if (group().depth == 1)
        return end_group();
    --group().depth;
    return FLX_REAL(ncclGroupEnd);
}

/// NCCL says how long it would take for all of it; nothing is carried out.
ncclResult_t simulate_group(ncclSimInfo_t *info) {
    Group ending = std::exchange(group(), {});
    for (const Deferred &call : ending.calls)
        (void)pass_on(call.request, call.comm, call.stream);
    return FLX_REAL(ncclGroupSimulateEnd, info);
}

}  // namespace
}  // namespace flx::nccl

using flx::nccl::Kind;
using flx::nccl::submit;

FLX_EXPORT ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                      ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return submit({Kind::allreduce, sendbuff, recvbuff, count, datatype, op, 0}, comm, stream);
}

FLX_EXPORT ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                   ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
    return submit({Kind::reduce, sendbuff, recvbuff, count, datatype, op, root}, comm, stream);
}

FLX_EXPORT ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                                          ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                          cudaStream_t stream) {
    return submit({Kind::reduce_scatter, sendbuff, recvbuff, recvcount, datatype, op, 0}, comm, stream);
}

FLX_EXPORT ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                      int root, ncclComm_t comm, cudaStream_t stream) {
    return submit({Kind::broadcast, sendbuff, recvbuff, count, datatype, ncclSum, root}, comm, stream);
}

FLX_EXPORT ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                                  cudaStream_t stream) {
    return submit({Kind::broadcast, buff, buff, count, datatype, ncclSum, root}, comm, stream);
}

FLX_EXPORT ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,
                                      ncclComm_t comm, cudaStream_t stream) {
    return submit({Kind::allgather, sendbuff, recvbuff, sendcount, datatype, ncclSum, 0}, comm, stream);
}

FLX_EXPORT ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                     ncclComm_t comm, cudaStream_t stream) {
    return submit({Kind::alltoall, sendbuff, recvbuff, count, datatype, ncclSum, 0}, comm, stream);
}

FLX_EXPORT ncclResult_t ncclGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                   int root, ncclComm_t comm, cudaStream_t stream) {
    return submit({Kind::gather, sendbuff, recvbuff, count, datatype, ncclSum, root}, comm, stream);
}

FLX_EXPORT ncclResult_t ncclScatter(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                    int root, ncclComm_t comm, cudaStream_t stream) {
    return submit({Kind::scatter, sendbuff, recvbuff, count, datatype, ncclSum, root}, comm, stream);
}

FLX_EXPORT ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                                 cudaStream_t stream) {
    return submit({Kind::send, sendbuff, nullptr, count, datatype, ncclSum, peer}, comm, stream);
}

FLX_EXPORT ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                                 cudaStream_t stream) {
    return submit({Kind::recv, nullptr, recvbuff, count, datatype, ncclSum, peer}, comm, stream);
}

FLX_EXPORT ncclResult_t ncclAllReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                            ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                                            const ncclCollConfig_t *config) {
    return submit({Kind::allreduce, sendbuff, recvbuff, count, datatype, op, 0, config}, comm, stream);
}

FLX_EXPORT ncclResult_t ncclReduceConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                         ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
                                         const ncclCollConfig_t *config) {
    return submit({Kind::reduce, sendbuff, recvbuff, count, datatype, op, root, config}, comm, stream);
}

FLX_EXPORT ncclResult_t ncclReduceScatterConfig(const void *sendbuff, void *recvbuff, size_t recvcount,
                                                ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                                cudaStream_t stream, const ncclCollConfig_t *config) {
    return submit({Kind::reduce_scatter, sendbuff, recvbuff, recvcount, datatype, op, 0, config}, comm, stream);
}

FLX_EXPORT ncclResult_t ncclBroadcastConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                            int root, ncclComm_t comm, cudaStream_t stream,
                                            const ncclCollConfig_t *config) {
    return submit({Kind::broadcast, sendbuff, recvbuff, count, datatype, ncclSum, root, config}, comm, stream);
}

FLX_EXPORT ncclResult_t ncclAllGatherConfig(const void *sendbuff, void *recvbuff, size_t sendcount,
                                            ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream,
                                            const ncclCollConfig_t *config) {
    return submit({Kind::allgather, sendbuff, recvbuff, sendcount, datatype, ncclSum, 0, config}, comm, stream);
}

FLX_EXPORT ncclResult_t ncclAlltoAllConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                           ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t *config) {
    return submit({Kind::alltoall, sendbuff, recvbuff, count, datatype, ncclSum, 0, config}, comm, stream);
}

FLX_EXPORT ncclResult_t ncclGatherConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                         int root, ncclComm_t comm, cudaStream_t stream,
                                         const ncclCollConfig_t *config) {
    return submit({Kind::gather, sendbuff, recvbuff, count, datatype, ncclSum, root, config}, comm, stream);
}

FLX_EXPORT ncclResult_t ncclScatterConfig(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,
                                          int root, ncclComm_t comm, cudaStream_t stream,
                                          const ncclCollConfig_t *config) {
    return submit({Kind::scatter, sendbuff, recvbuff, count, datatype, ncclSum, root, config}, comm, stream);
}

FLX_EXPORT ncclResult_t ncclPutSignal(const void *localbuff, size_t count, ncclDataType_t datatype, int peer,
                                      ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx,
                                      unsigned int flags, ncclComm_t comm, cudaStream_t stream) {
    return flx::nccl::pass_in_order(comm, stream, [&] {
        return FLX_REAL(ncclPutSignal, localbuff, count, datatype, peer, peerWin, peerWinOffset, sigIdx, ctx, flags,
                        comm, stream);
    });
}

FLX_EXPORT ncclResult_t ncclSignal(int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
                                   cudaStream_t stream) {
    return flx::nccl::pass_in_order(comm, stream,
                                    [&] { return FLX_REAL(ncclSignal, peer, sigIdx, ctx, flags, comm, stream); });
}

FLX_EXPORT ncclResult_t ncclWaitSignal(int nDesc, ncclWaitSignalDesc_t *signalDescs, ncclComm_t comm,
                                       cudaStream_t stream) {
    return flx::nccl::pass_in_order(comm, stream,
                                    [&] { return FLX_REAL(ncclWaitSignal, nDesc, signalDescs, comm, stream); });
}

FLX_EXPORT ncclResult_t ncclGroupStart() {
    return flx::nccl::start_group();
}

FLX_EXPORT ncclResult_t ncclGroupEnd() {
    return flx::nccl::end_or_leave_group();
}

FLX_EXPORT ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *simInfo) {
    if (flx::nccl::Inside::now() || flx::nccl::group().depth == 0)
        return FLX_REAL(ncclGroupSimulateEnd, simInfo);
    return flx::nccl::simulate_group(simInfo);
}
