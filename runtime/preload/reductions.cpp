/// Collectives that compute.
#include <algorithm>

#include "calls.h"
#include "optional.h"
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

/// What FLX gets for MPI's `sendbuf`: one that overlaps `out` without being it is copied.
class Input {
  public:
    Input(const void *sendbuf, size_t in_bytes, const void *out, size_t out_bytes) : data_(sendbuf) {
        if (sendbuf == MPI_IN_PLACE || sendbuf == out) {
            data_ = FLX_IN_PLACE;
            return;
        }
        Layout bytes;
        bytes.size = 1;
        bytes.extent = 1;
        bytes.dense = true;
        packed_.take(sendbuf, in_bytes, bytes, true, MPI_COMM_SELF);
        code_ = packed_.keep_apart(out, out_bytes);
        data_ = packed_.data();
    }
    [[nodiscard]] const void *data() const { return data_; }
    [[nodiscard]] int code() const { return code_; }

  private:
    Packed packed_;
    const void *data_;
    int code_ = MPI_SUCCESS;
};

}  // namespace

int allreduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    const auto [reduction, bytes, objection] = judge(recvbuf, count, type, op);
    Call call(Collective::allreduce, comm, bytes, objection);
    if (!call.served())
        return PMPI_Allreduce(sendbuf, recvbuf, count, type, op, comm);
    const Input input(sendbuf, bytes, recvbuf, bytes);
    if (input.code() != MPI_SUCCESS)
        return input.code();
    return call.finish(flx_allreduce(input.data(), recvbuf, count, reduction.dtype, reduction.op, call.flx()));
}

int reduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {
    // Elsewhere than at the root `recvbuf` means nothing.
    const auto [reduction, bytes, objection] = judge(nullptr, count, type, op);
    const Reason wrong_root = check_root(root, comm);
    Call call(Collective::reduce, comm, bytes, wrong_root != Reason::none ? wrong_root : objection);
    if (!call.served())
        return PMPI_Reduce(sendbuf, recvbuf, count, type, op, root, comm);
    if (call.rank() != root)
        return call.finish(flx_reduce(sendbuf, nullptr, count, reduction.dtype, reduction.op, root, call.flx()));
    const Input input(sendbuf, bytes, recvbuf, bytes);
    if (input.code() != MPI_SUCCESS)
        return input.code();
    return call.finish(flx_reduce(input.data(), recvbuf, count, reduction.dtype, reduction.op, root, call.flx()));
}

int reduce_scatter_block(const void *sendbuf, void *recvbuf, int recvcount, MPI_Datatype type, MPI_Op op,
                         MPI_Comm comm) {
    const auto [reduction, block, objection] = judge(recvbuf, recvcount, type, op);
    const size_t bytes = block * size_of(comm);
    Call call(Collective::reduce_scatter_block, comm, bytes, objection);
    if (!call.served())
        return PMPI_Reduce_scatter_block(sendbuf, recvbuf, recvcount, type, op, comm);
    const Input input(sendbuf, bytes, recvbuf, block);
    if (input.code() != MPI_SUCCESS)
        return input.code();
    return call.finish(
        flx_reduce_scatter_block(input.data(), recvbuf, recvcount, reduction.dtype, reduction.op, call.flx()));
}

int reduce_scatter(const void *sendbuf, void *recvbuf, const int *recvcounts, MPI_Datatype type, MPI_Op op,
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
    const Reduction &reduction = arguments.reduction;
    const size_t bytes = static_cast<size_t>(total) * reduction.size;
    if (!valid)
        arguments.objection = Reason::invalid;
    else if (arguments.objection == Reason::none && !equal && flx_reduce_scatter == nullptr)
        arguments.objection = Reason::not_yet;
    Call call(Collective::reduce_scatter, comm, bytes, arguments.objection);
    if (!call.served())
        return PMPI_Reduce_scatter(sendbuf, recvbuf, recvcounts, type, op, comm);
    const Input input(sendbuf, bytes, recvbuf, recvcounts[call.rank()] * reduction.size);
    if (input.code() != MPI_SUCCESS)
        return input.code();
    if (equal)
        return call.finish(
            flx_reduce_scatter_block(input.data(), recvbuf, recvcounts[0], reduction.dtype, reduction.op, call.flx()));
    size_t *counts = call.numbers(1);
    std::copy_n(recvcounts, size, counts);
    // A rank that gets nothing may have named no memory, which FLX would need in place.
    return call.finish(flx_reduce_scatter(input.data(), recvbuf, counts, reduction.dtype, reduction.op, call.flx()));
}

namespace {

using Prefix = flx_status_t (*)(const void *, void *, size_t, flx_dtype_t, flx_op_t, flx_comm_t);
using MpiPrefix = int (*)(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm);

int prefix(Collective collective, Prefix function, MpiPrefix otherwise, const void *sendbuf, void *recvbuf, int count,
           MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    auto [reduction, bytes, objection] = judge(recvbuf, count, type, op);
    if (function == nullptr)
        objection = Reason::not_yet;
    Call call(collective, comm, bytes, objection);
    if (!call.served())
        return otherwise(sendbuf, recvbuf, count, type, op, comm);
    const Input input(sendbuf, bytes, recvbuf, bytes);
    if (input.code() != MPI_SUCCESS)
        return input.code();
    return call.finish(function(input.data(), recvbuf, count, reduction.dtype, reduction.op, call.flx()));
}

}  // namespace

int scan(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    return prefix(Collective::scan, flx_scan, PMPI_Scan, sendbuf, recvbuf, count, type, op, comm);
}

int exscan(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    return prefix(Collective::exscan, flx_exscan, PMPI_Exscan, sendbuf, recvbuf, count, type, op, comm);
}

int barrier(MPI_Comm comm) {
    Call call(Collective::barrier, comm, 0, Reason::none);
    if (!call.served())
        return PMPI_Barrier(comm);
    return call.finish(flx_barrier(call.flx()));
}

}  // namespace flx::preload
