/// \file api.h
/// Private to the public functions: what a handle holds, how errors leave the library, and the checks that turn
/// arguments into a call. A check's first argument that is wrong gives FLX_ERR_ARGUMENT and a sentence that says what
/// is allowed.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "communicator.h"
#include "dtype.h"
#include "flx.h"
#include "request.h"

struct flx_comm {
    std::unique_ptr<flx::Communicator> impl;
    std::vector<flx_request *> requests;  ///< that exist
    std::vector<std::unique_ptr<flx_request>> idle_requests;
    size_t detached = 0;  ///< requests that the program freed while they were active
};

namespace flx::api {

/// Keeps the sentence for flx_last_error.
flx_status_t finish(const Status &status);

const char *last_sentence();

/// Runs `body`; no exception (memory, say) leaves the library.
template <typename Body>
flx_status_t guarded(Body &&body) {
    try {
        return finish(body());
    } catch (const std::exception &error) {
        return finish(fail(FLX_ERR_SYSTEM, "{}", error.what()));
    }
}

Status need(const void *pointer, const char *name);
Status check_comm(flx_comm_t comm);
Status check_dtype(flx_dtype_t dtype);
Status check_op(flx_op_t op);
Status check_root(int root, const Communicator &comm);
/// The whole vector must have an address range.
Status check_count(size_t count, flx_dtype_t dtype, int blocks);
Status check_buffer(const void *buffer, const char *name, size_t count);
Status check_overlap(const void *in, size_t in_bytes, const void *out, size_t out_bytes);
/// Where a call does not serve GPU memory.
Status check_on_host(const void *buffer, const char *name);

/// One end of a message, but for where its memory is. `name`: of the buffer; `role`: of the peer.
Status check_message(flx_comm_t comm, const void *buffer, const char *name, size_t count, flx_dtype_t dtype, int peer,
                     const char *role);
cuda::Message message_to(int peer, const void *buffer, size_t bytes);
cuda::Message message_from(int peer, void *buffer, size_t bytes);
/// Of an alltoallv that is not in place.
std::vector<cuda::Message> messages_of(const Call &call, int size);

/// Of GPU memory, which knows numbers and their reductions alone.
Status check_for_device(const Operation &operation);

/// The arguments of each collective, checked. Arrays are not copied.
Status make_barrier(flx_comm_t comm, Call &call);
Status make_allreduce(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op, flx_comm_t comm,
                      Call &call);
Status make_reduce(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op, int root,
                   flx_comm_t comm, Call &call);
Status make_reduce_scatter_block(const void *sendbuf, void *recvbuf, size_t recvcount, flx_dtype_t dtype, flx_op_t op,
                                 flx_comm_t comm, Call &call);
Status make_reduce_scatter(const void *sendbuf, void *recvbuf, const size_t *recvcounts, flx_dtype_t dtype, flx_op_t op,
                           flx_comm_t comm, Call &call);
Status make_bcast(void *buf, size_t count, flx_dtype_t dtype, int root, flx_comm_t comm, Call &call);
Status make_allgather(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_comm_t comm, Call &call);
Status make_allgatherv(const void *sendbuf, size_t sendcount, void *recvbuf, const size_t *recvcounts,
                       const size_t *displs, flx_dtype_t dtype, flx_comm_t comm, Call &call);
Status make_gather(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, int root, flx_comm_t comm,
                   Call &call);
Status make_gatherv(const void *sendbuf, size_t sendcount, void *recvbuf, const size_t *recvcounts,
                    const size_t *displs, flx_dtype_t dtype, int root, flx_comm_t comm, Call &call);
Status make_scatter(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, int root, flx_comm_t comm,
                    Call &call);
Status make_scatterv(const void *sendbuf, const size_t *sendcounts, const size_t *displs, void *recvbuf,
                     size_t recvcount, flx_dtype_t dtype, int root, flx_comm_t comm, Call &call);
Status make_alltoall(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_comm_t comm, Call &call);
Status make_alltoallv(const void *sendbuf, void *recvbuf, const size_t *sendcounts, const size_t *sdispls,
                      const size_t *recvcounts, const size_t *rdispls, flx_dtype_t dtype, flx_comm_t comm, Call &call);
/// flx_scan, or flx_exscan if `exclusive`.
Status make_scan(bool exclusive, const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype, flx_op_t op,
                 flx_comm_t comm, Call &call);

}  // namespace flx::api
