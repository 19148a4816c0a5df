/// Collectives that compute.
#include <algorithm>

#include "runtime/front/mpi/arguments/staging.h"
#include "runtime/front/mpi/arguments/types.h"
#include "runtime/front/mpi/calls.h"

namespace flx::preload {
namespace {

/// The arguments of a reduction, as far as they decide where it goes.
struct Arguments {
    Reduction reduction;
    size_t bytes = 0;  ///< of `count` elements
    Objection objection;
};

/// `in_place_error`: MPI's class where `recvbuf` is MPI_IN_PLACE.
Arguments judge(const void *recvbuf, MPI_Count count, MPI_Datatype type, MPI_Op op,
                int in_place_error = kInPlaceError) {
    Arguments arguments;
    arguments.reduction = reduction_of(type, op);
    if (op == MPI_OP_NULL)
        arguments.objection = wrong(MPI_ERR_OP);
    else if (type == MPI_DATATYPE_NULL)
        arguments.objection = wrong(MPI_ERR_TYPE);
    else if (recvbuf == MPI_IN_PLACE)
        arguments.objection = wrong(in_place_error);
    else if (count < 0)
        arguments.objection = wrong(MPI_ERR_COUNT);
    else if (count == 0)
        arguments.objection.why = Reason::empty;
    else if (!arguments.reduction.known)
        arguments.objection.why = Reason::reduction;
    else if (arguments.reduction.user != nullptr && !Library::instance().calls_functions())
        arguments.objection.why = Reason::foreign_thread;
    else
        arguments.bytes = static_cast<size_t>(count) * arguments.reduction.size;
    return arguments;
}

/// Whether FLX has the reduction on GPUs (flx.h).
bool is_on_gpus(const Reduction &reduction) {
    return reduction.known && reduction.user == nullptr && reduction.dtype <= FLX_F64 && reduction.op <= FLX_AVG;
}

struct Buffers {
    const void *in = FLX_IN_PLACE;
    void *out = nullptr;
    int code = MPI_SUCCESS;  ///< or an error
};

/// What FLX gets for MPI's buffers, of `in_count` and `out_count` elements: data with holes are packed, input that
/// overlaps output without being it is copied. `partly`: not all of the output need be written.
Buffers take(Call &call, Reduction &reduction, const void *sendbuf, size_t in_count, void *recvbuf, size_t out_count,
             bool partly = false) {
    Buffers buffers;
    Staging &staging = call.staging();
    staging.reduction = reduction.user;
    if (!reduction.make_known()) {
        buffers.code = call.refuse(MPI_ERR_NO_MEM);
        return buffers;
    }
    // Without output `recvbuf` means nothing, and MPI_BOTTOM is null too.
    const bool in_place = sendbuf == MPI_IN_PLACE || (sendbuf == recvbuf && out_count != 0);
    buffers.code = staging.out.take(recvbuf, in_place ? std::max(in_count, out_count) : out_count, reduction.layout,
                                    in_place || partly, MPI_COMM_SELF);
    buffers.out = staging.out.data();
    if (in_place || buffers.code != MPI_SUCCESS)
        return buffers;
    buffers.code = staging.in.take(sendbuf, in_count, reduction.layout, true, MPI_COMM_SELF);
    if (buffers.code == MPI_SUCCESS)
        buffers.code =
            staging.in.keep_apart({static_cast<std::byte *>(buffers.out), out_count * reduction.layout.size});
    buffers.in = staging.in.data();
    return buffers;
}

/// take(), and to a GPU where FLX's collective is there.
Buffers take_and_lift(Call &call, Reduction &reduction, const void *sendbuf, size_t in_count, void *recvbuf,
                      size_t out_count) {
    Buffers buffers = take(call, reduction, sendbuf, in_count, recvbuf, out_count);
    const size_t element = reduction.size;
    const bool in_place = buffers.in == FLX_IN_PLACE;
    if (buffers.code == MPI_SUCCESS)
        buffers.code = call.lift(buffers.in, in_count * element, buffers.out,
                                 (in_place ? std::max(in_count, out_count) : out_count) * element, in_place);
    return buffers;
}

/// The same into `BUFFERS`; an error ends the call.
#define TAKE(BUFFERS, HOW, ...)                                         \
    const Buffers BUFFERS = HOW(call, reduction, sendbuf, __VA_ARGS__); \
    if (BUFFERS.code != MPI_SUCCESS)                                    \
    return BUFFERS.code

}  // namespace

int allreduce(const How &how, const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype type, MPI_Op op,
              MPI_Comm comm) {
    auto [reduction, bytes, objection] = judge(recvbuf, count, type, op, MPI_ERR_BUFFER);
    // One element Open MPI takes from where it goes, and so do programs.
    if (objection.why == Reason::none && sendbuf == recvbuf && sendbuf != MPI_BOTTOM && count > 1)
        objection = wrong(MPI_ERR_BUFFER);
    const auto describe = [&, &reduction = reduction](Whereabouts &where) {
        where.fits_gpus = is_on_gpus(reduction);
        where.may_be_one = true;
        where.sends(sendbuf, count, type);
        where.receives(recvbuf, count, type, 1, sendbuf != MPI_IN_PLACE && sendbuf != recvbuf);
    };
    Call call(how, Collective::allreduce, comm, bytes, objection, describe);
    sendbuf = call.sent(sendbuf);
    recvbuf = call.received(recvbuf);
    if (!call.served())
        return call.pass_on(FLX_MPI_FORMS(Allreduce, allreduce), sendbuf, recvbuf, count, type, op, comm);
    TAKE(buffers, take_and_lift, count, recvbuf, count);
    return call.carry_out(FLX_FORMS(allreduce), buffers.in, buffers.out, count, reduction.dtype, reduction.op,
                          call.flx());
}

int reduce(const How &how, const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype type, MPI_Op op, int root,
           MPI_Comm comm) {
    const Objection wrong_root = check_root(root, comm);
    int rank = -1;
    if (wrong_root.why == Reason::none)
        PMPI_Comm_rank(comm, &rank);
    // Elsewhere than at the root `recvbuf` means nothing, and `sendbuf` is a buffer.
    auto [reduction, bytes, objection] = judge(rank == root ? recvbuf : sendbuf, count, type, op);
    if (wrong_root.why != Reason::none)
        objection = wrong_root;
    else if (objection.why == Reason::none && rank == root && sendbuf == recvbuf)
        objection = wrong(kInPlaceError);
    objection.root = root;
    const bool at_root = rank == root;
    const auto describe = [&, &reduction = reduction](Whereabouts &where) {
        where.fits_gpus = is_on_gpus(reduction);
        where.may_be_one = true;
        where.sends(sendbuf, count, type);
        if (at_root)
            where.receives(recvbuf, count, type, 1, sendbuf != MPI_IN_PLACE);
    };
    Call call(how, Collective::reduce, comm, bytes, objection, describe);
    sendbuf = call.sent(sendbuf);
    recvbuf = at_root ? call.received(recvbuf) : recvbuf;
    if (!call.served())
        return call.pass_on(FLX_MPI_FORMS(Reduce, reduce), sendbuf, recvbuf, count, type, op, root, comm);
    TAKE(buffers, take_and_lift, count, at_root ? recvbuf : nullptr, at_root ? count : 0);
    return call.carry_out(FLX_FORMS(reduce), buffers.in, buffers.out, count, reduction.dtype, reduction.op, root,
                          call.flx());
}

int reduce_scatter_block(const How &how, const void *sendbuf, void *recvbuf, MPI_Count recvcount, MPI_Datatype type,
                         MPI_Op op, MPI_Comm comm) {
    auto [reduction, block, objection] = judge(recvbuf, recvcount, type, op);
    const int ranks = size_of(comm);
    const size_t bytes = block * static_cast<size_t>(ranks);
    const auto describe = [&, &reduction = reduction](Whereabouts &where) {
        const bool in_place = sendbuf == MPI_IN_PLACE;
        where.fits_gpus = is_on_gpus(reduction);
        where.may_be_one = true;
        where.sends(sendbuf, recvcount, type, ranks);
        where.receives(recvbuf, recvcount, type, in_place ? ranks : 1, !in_place && sendbuf != recvbuf);
    };
    Call call(how, Collective::reduce_scatter_block, comm, bytes, objection, describe);
    sendbuf = call.sent(sendbuf);
    recvbuf = call.received(recvbuf);
    if (!call.served())
        return call.pass_on(FLX_MPI_FORMS(Reduce_scatter_block, reduce_scatter_block), sendbuf, recvbuf, recvcount,
                            type, op, comm);
    TAKE(buffers, take_and_lift, static_cast<size_t>(recvcount) * static_cast<size_t>(ranks), recvbuf, recvcount);
    return call.carry_out(FLX_FORMS(reduce_scatter_block), buffers.in, buffers.out, recvcount, reduction.dtype,
                          reduction.op, call.flx());
}

int reduce_scatter(const How &how, const void *sendbuf, void *recvbuf, Numbers recvcounts, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm) {
    const int size = size_of(comm);
    int64_t total = 0;
    bool valid = recvcounts != nullptr;
    bool equal = true;
    for (int rank = 0; valid && rank < size; ++rank) {
        valid = recvcounts[rank] >= 0;
        equal = equal && recvcounts[rank] == recvcounts[0];
        total += recvcounts[rank];
    }
    Arguments arguments = judge(recvbuf, total == 0 ? 0 : 1, type, op);
    Reduction &reduction = arguments.reduction;
    const size_t bytes = static_cast<size_t>(total) * reduction.size;
    if (!valid && arguments.objection.why != Reason::invalid)
        arguments.objection = wrong(MPI_ERR_COUNT);
    const auto describe = [&](Whereabouts &where) {
        int rank = 0;
        PMPI_Comm_rank(comm, &rank);
        const bool in_place = sendbuf == MPI_IN_PLACE;
        where.fits_gpus = equal && is_on_gpus(reduction);
        where.may_be_one = true;
        where.sends(sendbuf, total, type);
        if (valid)
            where.receives(recvbuf, in_place ? total : recvcounts[rank], type, 1, !in_place && sendbuf != recvbuf);
    };
    Call call(how, Collective::reduce_scatter, comm, bytes, arguments.objection, describe);
    sendbuf = call.sent(sendbuf);
    recvbuf = call.received(recvbuf);
    if (!call.served())
        return call.pass_on(FLX_MPI_FORMS(Reduce_scatter, reduce_scatter), sendbuf, recvbuf, recvcounts, type, op,
                            comm);
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): without counts it is not served
    TAKE(buffers, take_and_lift, static_cast<size_t>(total), recvbuf, recvcounts[call.rank()]);
    if (equal)
        return call.carry_out(FLX_FORMS(reduce_scatter_block), buffers.in, buffers.out, recvcounts[0], reduction.dtype,
                              reduction.op, call.flx());
    size_t *counts = call.numbers(1);
    for (int rank = 0; rank < size; ++rank)
        counts[rank] = recvcounts[rank];
    return call.carry_out(FLX_FORMS(reduce_scatter), buffers.in, buffers.out, counts, reduction.dtype, reduction.op,
                          call.flx());
}

int scan(const How &how, const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype type, MPI_Op op,
         MPI_Comm comm) {
    auto [reduction, bytes, objection] = judge(recvbuf, count, type, op);
    const auto describe = [&](Whereabouts &where) {
        where.sends(sendbuf, count, type);
        where.receives(recvbuf, count, type, 1, sendbuf != MPI_IN_PLACE && sendbuf != recvbuf);
    };
    Call call(how, Collective::scan, comm, bytes, objection, describe);
    sendbuf = call.sent(sendbuf);
    recvbuf = call.received(recvbuf);
    if (!call.served())
        return call.pass_on(FLX_MPI_FORMS(Scan, scan), sendbuf, recvbuf, count, type, op, comm);
    TAKE(buffers, take, count, recvbuf, count);
    return call.carry_out(FLX_FORMS(scan), buffers.in, buffers.out, count, reduction.dtype, reduction.op, call.flx());
}

/// On the first rank `recvbuf` means nothing, and need be no address, unless its input lies there.
int exscan(const How &how, const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype type, MPI_Op op,
           MPI_Comm comm) {
    int rank = 0;
    if (comm != MPI_COMM_NULL && sendbuf != MPI_IN_PLACE && PMPI_Comm_rank(comm, &rank) != MPI_SUCCESS)
        return MPI_ERR_COMM;  // the error handler knows
    const bool writes = sendbuf == MPI_IN_PLACE || rank != 0;
    auto [reduction, bytes, objection] = judge(recvbuf, count, type, op);
    const auto describe = [&](Whereabouts &where) {
        where.sends(sendbuf, count, type);
        if (writes)
            where.receives(recvbuf, count, type);
    };
    Call call(how, Collective::exscan, comm, bytes, objection, describe);
    sendbuf = call.sent(sendbuf);
    if (writes)
        recvbuf = call.received(recvbuf);
    if (!call.served())
        return call.pass_on(FLX_MPI_FORMS(Exscan, exscan), sendbuf, recvbuf, count, type, op, comm);
    TAKE(buffers, take, count, writes ? recvbuf : nullptr, writes ? count : 0, true);
    return call.carry_out(FLX_FORMS(exscan), buffers.in, buffers.out, count, reduction.dtype, reduction.op, call.flx());
}

namespace {

/// Whoever has passed a barrier may look once for what others of its host did in windows before it. MPICH sees that in
/// calls of its own alone, and FLX's wait has made none where all had come. It looks where it finds no message, so this
/// asks for one that hardly any program sends.
void let_mpi_look([[maybe_unused]] MPI_Comm comm) {
#ifndef OPEN_MPI
    constexpr int kLooks = 4;
    constexpr int kTag = 32767;  // the greatest that every MPI allows
    for (int look = 0; look < kLooks; ++look) {
        int flag = 0;
        PMPI_Iprobe(MPI_ANY_SOURCE, kTag, comm, &flag, MPI_STATUS_IGNORE);
    }
#endif
}

}  // namespace

int barrier(const How &how, MPI_Comm comm) {
    Call call(how, Collective::barrier, comm, 0, {});
    if (!call.served())
        return call.pass_on(PMPI_Barrier, PMPI_Ibarrier, FLX_PMPI_PERSISTENT(Barrier), PMPI_Barrier, comm);
    const int code = call.carry_out(FLX_FORMS(barrier), call.flx());
    if (code == MPI_SUCCESS)
        let_mpi_look(comm);
    return code;
}

}  // namespace flx::preload
