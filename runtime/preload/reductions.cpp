/// Collectives that compute.
#include <algorithm>

#include "calls.h"
#include "staging.h"
#include "types.h"

namespace flx::preload {
namespace {

/// The arguments of a reduction, as far as they decide where it goes.
struct Arguments {
    Reduction reduction;
    size_t bytes = 0;  ///< of `count` elements
    Reason objection = Reason::none;
};

Arguments judge(const void *recvbuf, int count, MPI_Datatype type, MPI_Op op) {
    Arguments arguments;
    arguments.reduction = reduction_of(type, op);
    if (count < 0 || type == MPI_DATATYPE_NULL || op == MPI_OP_NULL || recvbuf == MPI_IN_PLACE)
        arguments.objection = Reason::invalid;
    else if (count == 0)
        arguments.objection = Reason::empty;
    else if (!arguments.reduction.known)
        arguments.objection = Reason::reduction;
    else
        arguments.bytes = static_cast<size_t>(count) * arguments.reduction.size;
    return arguments;
}

/// What FLX gets for MPI's `sendbuf`: one that overlaps `out` without being it is copied. MPI_SUCCESS or an error.
int take_input(Call &call, const void *sendbuf, size_t in_bytes, const void *out, size_t out_bytes,
               const void *&input) {
    input = FLX_IN_PLACE;
    if (sendbuf == MPI_IN_PLACE || sendbuf == out)
        return MPI_SUCCESS;
    Layout bytes;
    bytes.size = 1;
    bytes.extent = 1;
    bytes.dense = true;
    Packed &packed = call.staging().in;
    packed.take(sendbuf, in_bytes, bytes, true, MPI_COMM_SELF);
    const int code = packed.keep_apart(out, out_bytes);
    input = packed.data();
    return code;
}

#define TAKE_INPUT(INPUT, ...)                                                                           \
    const void *INPUT = nullptr;                                                                         \
    if (const int take_code_ = take_input(call, sendbuf, __VA_ARGS__, INPUT); take_code_ != MPI_SUCCESS) \
    return take_code_

}  // namespace

int allreduce(const How &how, const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op,
              MPI_Comm comm) {
    const auto [reduction, bytes, objection] = judge(recvbuf, count, type, op);
    Call call(how, Collective::allreduce, comm, bytes, objection);
    if (!call.served())
        return pass_on(how, FLX_MPI_FORMS(Allreduce, allreduce), sendbuf, recvbuf, count, type, op, comm);
    TAKE_INPUT(input, bytes, recvbuf, bytes);
    return call.carry_out(FLX_FORMS(allreduce), input, recvbuf, count, reduction.dtype, reduction.op, call.flx());
}

int reduce(const How &how, const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op, int root,
           MPI_Comm comm) {
    // Elsewhere than at the root `recvbuf` means nothing.
    const auto [reduction, bytes, objection] = judge(nullptr, count, type, op);
    const Reason wrong_root = check_root(root, comm);
    Call call(how, Collective::reduce, comm, bytes, wrong_root != Reason::none ? wrong_root : objection);
    if (!call.served())
        return pass_on(how, FLX_MPI_FORMS(Reduce, reduce), sendbuf, recvbuf, count, type, op, root, comm);
    if (call.rank() != root)
        return call.carry_out(FLX_FORMS(reduce), sendbuf, nullptr, count, reduction.dtype, reduction.op, root,
                              call.flx());
    TAKE_INPUT(input, bytes, recvbuf, bytes);
    return call.carry_out(FLX_FORMS(reduce), input, recvbuf, count, reduction.dtype, reduction.op, root, call.flx());
}

int reduce_scatter_block(const How &how, const void *sendbuf, void *recvbuf, int recvcount, MPI_Datatype type,
                         MPI_Op op, MPI_Comm comm) {
    const auto [reduction, block, objection] = judge(recvbuf, recvcount, type, op);
    const size_t bytes = block * size_of(comm);
    Call call(how, Collective::reduce_scatter_block, comm, bytes, objection);
    if (!call.served())
        return pass_on(how, FLX_MPI_FORMS(Reduce_scatter_block, reduce_scatter_block), sendbuf, recvbuf, recvcount,
                       type, op, comm);
    TAKE_INPUT(input, bytes, recvbuf, block);
    return call.carry_out(FLX_FORMS(reduce_scatter_block), input, recvbuf, recvcount, reduction.dtype, reduction.op,
                          call.flx());
}

int reduce_scatter(const How &how, const void *sendbuf, void *recvbuf, const int *recvcounts, MPI_Datatype type,
                   MPI_Op op, MPI_Comm comm) {
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
    const Reduction &reduction = arguments.reduction;
    const size_t bytes = static_cast<size_t>(total) * reduction.size;
    if (!valid)
        arguments.objection = Reason::invalid;
    Call call(how, Collective::reduce_scatter, comm, bytes, arguments.objection);
    if (!call.served())
        return pass_on(how, FLX_MPI_FORMS(Reduce_scatter, reduce_scatter), sendbuf, recvbuf, recvcounts, type, op,
                       comm);
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): without counts it is not served
    TAKE_INPUT(input, bytes, recvbuf, recvcounts[call.rank()] * reduction.size);
    if (equal)
        return call.carry_out(FLX_FORMS(reduce_scatter_block), input, recvbuf, recvcounts[0], reduction.dtype,
                              reduction.op, call.flx());
    size_t *counts = call.numbers(1);
    std::copy_n(recvcounts, size, counts);
    return call.carry_out(FLX_FORMS(reduce_scatter), input, recvbuf, counts, reduction.dtype, reduction.op, call.flx());
}

int scan(const How &how, const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    const auto [reduction, bytes, objection] = judge(recvbuf, count, type, op);
    Call call(how, Collective::scan, comm, bytes, objection);
    if (!call.served())
        return pass_on(how, FLX_MPI_FORMS(Scan, scan), sendbuf, recvbuf, count, type, op, comm);
    TAKE_INPUT(input, bytes, recvbuf, bytes);
    return call.carry_out(FLX_FORMS(scan), input, recvbuf, count, reduction.dtype, reduction.op, call.flx());
}

int exscan(const How &how, const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    const auto [reduction, bytes, objection] = judge(recvbuf, count, type, op);
    Call call(how, Collective::exscan, comm, bytes, objection);
    if (!call.served())
        return pass_on(how, FLX_MPI_FORMS(Exscan, exscan), sendbuf, recvbuf, count, type, op, comm);
    TAKE_INPUT(input, bytes, recvbuf, bytes);
    return call.carry_out(FLX_FORMS(exscan), input, recvbuf, count, reduction.dtype, reduction.op, call.flx());
}

int barrier(const How &how, MPI_Comm comm) {
    Call call(how, Collective::barrier, comm, 0, Reason::none);
    if (!call.served())
        return pass_on(how, FLX_MPI_FORMS(Barrier, barrier), comm);
    return call.carry_out(FLX_FORMS(barrier), call.flx());
}

}  // namespace flx::preload
