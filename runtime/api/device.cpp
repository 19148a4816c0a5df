/// The public functions on streams of GPUs.
#include "runtime/api/api.h"

using flx::Call;
using flx::Communicator;
using flx::fail;
using flx::Fault;
using flx::Status;
using namespace flx::api;

namespace {

template <typename Make>
flx_status_t enqueue(Make &&make, flx_comm_t comm, CUstream_st *stream) {
    return guarded([&]() -> Status {
        Call call;
        FLX_TRY(make(call));
        if (reduces(call.operation.collective))
            FLX_TRY(check_for_device(call.operation));
        return settled(comm).run_on_device(Communicator::on_gpus(call), stream, false);
    });
}

}  // namespace

flx_status_t flx_allreduce_on_stream(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op,
                                     flx_comm_t comm, CUstream_st *stream) {
    return enqueue([&](Call &call) { return make_allreduce(sendbuf, recvbuf, count, dtype, op, comm, call); }, comm,
                   stream);
}

flx_status_t flx_reduce_scatter_block_on_stream(const void *sendbuf, void *recvbuf, size_t recvcount, flx_dtype_t dtype,
                                                flx_op_t op, flx_comm_t comm, CUstream_st *stream) {
    return enqueue(
        [&](Call &call) { return make_reduce_scatter_block(sendbuf, recvbuf, recvcount, dtype, op, comm, call); }, comm,
        stream);
}

flx_status_t flx_allgather_on_stream(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype,
                                     flx_comm_t comm, CUstream_st *stream) {
    return enqueue([&](Call &call) { return make_allgather(sendbuf, recvbuf, count, dtype, comm, call); }, comm,
                   stream);
}

flx_status_t flx_bcast_on_stream(void *buf, size_t count, flx_dtype_t dtype, int root, flx_comm_t comm,
                                 CUstream_st *stream) {
    return enqueue([&](Call &call) { return make_bcast(buf, count, dtype, root, comm, call); }, comm, stream);
}

flx_status_t flx_reduce_on_stream(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op,
                                  int root, flx_comm_t comm, CUstream_st *stream) {
    return enqueue([&](Call &call) { return make_reduce(sendbuf, recvbuf, count, dtype, op, root, comm, call); }, comm,
                   stream);
}

flx_status_t flx_alltoall_on_stream(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype,
                                    flx_comm_t comm, CUstream_st *stream) {
    return enqueue([&](Call &call) { return make_alltoall(sendbuf, recvbuf, count, dtype, comm, call); }, comm, stream);
}

flx_status_t flx_alltoallv_on_stream(const void *sendbuf, void *recvbuf, const size_t *sendcounts,
                                     const size_t *sdispls, const size_t *recvcounts, const size_t *rdispls,
                                     flx_dtype_t dtype, flx_comm_t comm, CUstream_st *stream) {
    return guarded([&]() -> Status {
        Call call;
        FLX_TRY(make_alltoallv(sendbuf, recvbuf, sendcounts, sdispls, recvcounts, rdispls, dtype, comm, call));
        if (call.in_place)
            return fail(Fault::call_not_on_gpu,
                        "an alltoallv on GPUs was called in place; with a buffer to send from it is served");
        return settled(comm).post_on_device(messages_of(call, comm->impl->size()), stream, false, true);
    });
}

flx_status_t flx_send_on_stream(const void *sendbuf, size_t count, flx_dtype_t dtype, int dest, flx_comm_t comm,
                                CUstream_st *stream) {
    return guarded([&]() -> Status {
        FLX_TRY(check_message(comm, sendbuf, "sendbuf", count, dtype, dest, "dest"));
        return settled(comm).post_on_device({{message_to(dest, sendbuf, count * flx::size_of(dtype))}}, stream, false);
    });
}

flx_status_t flx_recv_on_stream(void *recvbuf, size_t count, flx_dtype_t dtype, int source, flx_comm_t comm,
                                CUstream_st *stream) {
    return guarded([&]() -> Status {
        FLX_TRY(check_message(comm, recvbuf, "recvbuf", count, dtype, source, "source"));
        return settled(comm).post_on_device({{message_from(source, recvbuf, count * flx::size_of(dtype))}}, stream,
                                            false);
    });
}

flx_status_t flx_sendrecv_on_stream(const void *sendbuf, void *recvbuf, size_t sendcount, size_t recvcount,
                                    flx_dtype_t dtype, int dest, int source, flx_comm_t comm, CUstream_st *stream) {
    return guarded([&]() -> Status {
        FLX_TRY(check_message(comm, sendbuf, "sendbuf", sendcount, dtype, dest, "dest"));
        FLX_TRY(check_message(comm, recvbuf, "recvbuf", recvcount, dtype, source, "source"));
        const size_t element = flx::size_of(dtype);
        FLX_TRY(check_overlap(sendbuf, sendcount * element, recvbuf, recvcount * element));
        return settled(comm).post_on_device(
            {{message_to(dest, sendbuf, sendcount * element), message_from(source, recvbuf, recvcount * element)}},
            stream, false);
    });
}

flx_status_t flx_register(flx_comm_t comm, void *memory, size_t bytes) {
    return guarded([&]() -> Status {
        FLX_TRY(check_comm(comm));
        return comm->impl->register_memory(memory, bytes);
    });
}

flx_status_t flx_deregister(flx_comm_t comm, void *memory) {
    return guarded([&]() -> Status {
        FLX_TRY(check_comm(comm));
        return comm->impl->deregister_memory(memory);
    });
}
