#include "apps/bench/calls.h"

#include <algorithm>
#include <climits>
#include <type_traits>

namespace flx::bench {
namespace {

MPI_Datatype mpi_type(flx_dtype_t dtype) {
    switch (dtype) {
        case FLX_INT8:
            return MPI_INT8_T;
        case FLX_UINT8:
        case FLX_F8E4M3:  // only moved, never reduced
        case FLX_F8E5M2:
            return MPI_UINT8_T;
        case FLX_INT16:
            return MPI_INT16_T;
        case FLX_UINT16:
        case FLX_F16:  // likewise
        case FLX_BF16:
            return MPI_UINT16_T;
        case FLX_INT32:
            return MPI_INT32_T;
        case FLX_UINT32:
            return MPI_UINT32_T;
        case FLX_INT64:
            return MPI_INT64_T;
        case FLX_UINT64:
            return MPI_UINT64_T;
        case FLX_F32:
            return MPI_FLOAT;
        case FLX_F64:
            return MPI_DOUBLE;
        default:  // not measured
            break;
    }
    return MPI_DATATYPE_NULL;
}

MPI_Op mpi_op(flx_op_t op) {
    switch (op) {
        case FLX_SUM:
            return MPI_SUM;
        case FLX_PROD:
            return MPI_PROD;
        case FLX_MIN:
            return MPI_MIN;
        case FLX_MAX:
            return MPI_MAX;
        default:  // FLX_AVG, which MPI has not, or not measured
            break;
    }
    return MPI_OP_NULL;
}

/// Where a scatter's part goes.
void *root_in_place(const Job &job) {
    return job.in_place && job.rank == job.root ? const_cast<void *>(FLX_IN_PLACE) : job.recv;
}

/// Calls the blocking function, or, where there is a request, the other.
template <typename... P>
flx_status_t call_one(flx_request_t *request, flx_status_t (*blocking)(P...),
                      std::type_identity_t<flx_status_t (*)(P..., flx_request_t *)> starting,
                      std::type_identity_t<P>... arguments) {
    return request == nullptr ? blocking(arguments...) : starting(arguments..., request);
}

#define FLX_FORMS(NAME) request, flx_##NAME, flx_i##NAME

flx_status_t call_form(const Job &job, flx_comm_t comm, flx_request_t *request) {
    const void *send = job.in_place ? FLX_IN_PLACE : job.send;
    const size_t count = job.shape.count;
    switch (job.kind) {
        case Collective::kAllreduce:
            return call_one(FLX_FORMS(allreduce), send, job.recv, count, job.dtype, job.op, comm);
        case Collective::kReduceScatterBlock:
            return call_one(FLX_FORMS(reduce_scatter_block), send, job.recv, count, job.dtype, job.op, comm);
        case Collective::kAllgather:
            return call_one(FLX_FORMS(allgather), send, job.recv, count, job.dtype, comm);
        case Collective::kBcast:
            return call_one(FLX_FORMS(bcast), job.recv, count, job.dtype, job.root, comm);
        case Collective::kReduce:
            return call_one(FLX_FORMS(reduce), job.rank == job.root ? send : job.send, job.recv, count, job.dtype,
                            job.op, job.root, comm);
        case Collective::kBarrier:
            return call_one(FLX_FORMS(barrier), comm);
        case Collective::kAlltoall:
            return call_one(FLX_FORMS(alltoall), send, job.recv, count, job.dtype, comm);
        case Collective::kAlltoallv:
            return call_one(FLX_FORMS(alltoallv), send, job.recv, job.counts.send.data(), job.counts.send_at.data(),
                            job.counts.receive.data(), job.counts.receive_at.data(), job.dtype, comm);
        case Collective::kSendrecv:
            if (request != nullptr) {
                return FLX_ERR_ARGUMENT;
            }
            return flx_sendrecv(send, job.recv, count, count, job.dtype, (job.rank + 1) % job.ranks,
                                (job.rank + job.ranks - 1) % job.ranks, comm);
        case Collective::kGather:
            return call_one(FLX_FORMS(gather), job.rank == job.root ? send : job.send, job.recv, count, job.dtype,
                            job.root, comm);
        case Collective::kScatter:
            return call_one(FLX_FORMS(scatter), job.send, root_in_place(job), count, job.dtype, job.root, comm);
        case Collective::kScan:
            return call_one(FLX_FORMS(scan), send, job.recv, count, job.dtype, job.op, comm);
        case Collective::kExscan:
            return call_one(FLX_FORMS(exscan), send, job.recv, count, job.dtype, job.op, comm);
        case Collective::kReduceScatter:
            return call_one(FLX_FORMS(reduce_scatter), send, job.recv, job.shape.blocks.data(), job.dtype, job.op,
                            comm);
        case Collective::kAllgatherv:
            return call_one(FLX_FORMS(allgatherv), send, job.own_block(), job.recv, job.shape.blocks.data(),
                            job.shape.begins.data(), job.dtype, comm);
        case Collective::kGatherv:
            return call_one(FLX_FORMS(gatherv), job.rank == job.root ? send : job.send, job.own_block(), job.recv,
                            job.shape.blocks.data(), job.shape.begins.data(), job.dtype, job.root, comm);
        case Collective::kScatterv:
            return call_one(FLX_FORMS(scatterv), job.send, job.shape.blocks.data(), job.shape.begins.data(),
                            root_in_place(job), job.own_block(), job.dtype, job.root, comm);
    }
    return FLX_ERR_ARGUMENT;
}

}  // namespace

flx_status_t call_flx(const Job &job, flx_comm_t comm) {
    return call_form(job, comm, nullptr);
}

flx_status_t start_flx(const Job &job, flx_comm_t comm, flx_request_t *request) {
    return call_form(job, comm, request);
}

const char *why_mpi_cannot(const Job &job) {
    if (has_reduction(job.kind) && (job.dtype == FLX_F16 || job.dtype == FLX_BF16)) {
        return "MPI has no 16-bit floating-point type";
    }
    if (has_reduction(job.kind) && is_float8(job.dtype)) {
        return "MPI has no 8-bit floating-point type";
    }
    if (has_reduction(job.kind) && job.op == FLX_AVG) {
        return "MPI has no average";
    }
    if (std::max({job.shape.count, job.shape.send_elements, job.shape.recv_elements}) > INT_MAX) {
        return "MPI counts with int";
    }
    return nullptr;
}

int call_mpi(const Job &job, MPI_Comm comm) {
    const void *send = job.in_place ? MPI_IN_PLACE : job.send;
    const auto count = static_cast<int>(job.shape.count);
    const auto own = static_cast<int>(job.own_block());
    const MPI_Datatype type = mpi_type(job.dtype);
    switch (job.kind) {
        case Collective::kAllreduce:
            return MPI_Allreduce(send, job.recv, count, type, mpi_op(job.op), comm);
        case Collective::kReduceScatterBlock:
            return MPI_Reduce_scatter_block(send, job.recv, count, type, mpi_op(job.op), comm);
        case Collective::kAllgather:
            return MPI_Allgather(send, count, type, job.recv, count, type, comm);
        case Collective::kBcast:
            return MPI_Bcast(job.recv, count, type, job.root, comm);
        case Collective::kReduce:
            return MPI_Reduce(job.rank == job.root ? send : job.send, job.recv, count, type, mpi_op(job.op), job.root,
                              comm);
        case Collective::kBarrier:
            return MPI_Barrier(comm);
        case Collective::kAlltoall:
            return MPI_Alltoall(send, count, type, job.recv, count, type, comm);
        case Collective::kAlltoallv:
            return MPI_Alltoallv(send, job.counts.int_send.data(), job.counts.int_send_at.data(), type, job.recv,
                                 job.counts.int_receive.data(), job.counts.int_receive_at.data(), type, comm);
        case Collective::kSendrecv:
            return MPI_Sendrecv(send, count, type, (job.rank + 1) % job.ranks, 0, job.recv, count, type,
                                (job.rank + job.ranks - 1) % job.ranks, 0, comm, MPI_STATUS_IGNORE);
        case Collective::kGather:
            return MPI_Gather(job.rank == job.root ? send : job.send, count, type, job.recv, count, type, job.root,
                              comm);
        case Collective::kScatter:
            return MPI_Scatter(job.send, count, type, job.in_place && job.rank == job.root ? MPI_IN_PLACE : job.recv,
                               count, type, job.root, comm);
        case Collective::kScan:
            return MPI_Scan(send, job.recv, count, type, mpi_op(job.op), comm);
        case Collective::kExscan:
            return MPI_Exscan(send, job.recv, count, type, mpi_op(job.op), comm);
        case Collective::kReduceScatter:
            return MPI_Reduce_scatter(send, job.recv, job.shape.int_blocks.data(), type, mpi_op(job.op), comm);
        case Collective::kAllgatherv:
            return MPI_Allgatherv(send, own, type, job.recv, job.shape.int_blocks.data(), job.shape.int_begins.data(),
                                  type, comm);
        case Collective::kGatherv:
            return MPI_Gatherv(job.rank == job.root ? send : job.send, own, type, job.recv, job.shape.int_blocks.data(),
                               job.shape.int_begins.data(), type, job.root, comm);
        case Collective::kScatterv:
            return MPI_Scatterv(job.send, job.shape.int_blocks.data(), job.shape.int_begins.data(), type,
                                job.in_place && job.rank == job.root ? MPI_IN_PLACE : job.recv, own, type, job.root,
                                comm);
    }
    return MPI_ERR_ARG;
}

}  // namespace flx::bench
