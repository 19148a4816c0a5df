/// \file api.h
/// Private to the public functions: what a handle holds, how errors leave the library, and the checks that turn
/// arguments into a call. A check's first argument that is wrong gives FLX_ERR_ARGUMENT and a sentence that says what
/// is allowed.
#pragma once

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "runtime/api/request.h"
#include "runtime/communicator/communicator.h"
#include "runtime/elements/dtype.h"
#include "runtime/include/flx.h"

struct flx_comm {
    std::unique_ptr<flx::Communicator> impl;
    std::vector<flx_request *> requests;  ///< that exist
    std::vector<std::unique_ptr<flx_request>> idle_requests;
    size_t detached = 0;  ///< requests that the program freed while they were active
};

namespace flx::api {

/// Keeps the sentence of an error for flx_last_error.
[[gnu::cold]] flx_status_t failed(const Status &status);
inline flx_status_t finish(const Status &status) {
    return status.ok() ? FLX_SUCCESS : failed(status);
}

const char *last_sentence();

/// Runs `body`; no exception (memory, say) leaves the library.
template <typename Body>
flx_status_t guarded(Body &&body) {
    try {
        return finish(body());
    } catch (const std::exception &error) {
        return finish(thrown(error, "this call"));
    }
}

// What those of the checks say that every call makes. The checks themselves are short, and inline.
namespace wrong {

[[gnu::cold]] Status null(const char *name);
[[gnu::cold]] Status comm();
[[gnu::cold]] Status dtype(flx_dtype_t dtype);
[[gnu::cold]] Status op(flx_op_t op);
[[gnu::cold]] Status root(int root, int size);
[[gnu::cold]] Status count(size_t count, int blocks);
[[gnu::cold]] Status part(size_t value, const char *what, int rank);
[[gnu::cold]] Status buffer(const void *buffer, const char *name, size_t count);
[[gnu::cold]] Status overlap(size_t bytes);

}  // namespace wrong

inline Status need(const void *pointer, const char *name) {
    return pointer != nullptr ? Status() : wrong::null(name);
}

inline Status check_comm(flx_comm_t comm) {
    return comm != nullptr ? Status() : wrong::comm();
}

inline Status check_dtype(flx_dtype_t dtype) {
    return valid(dtype) ? Status() : wrong::dtype(dtype);
}

inline Status check_op(flx_op_t op) {
    return valid(op) ? Status() : wrong::op(op);
}

inline Status check_root(int root, const Communicator &comm) {
    return root >= 0 && root < comm.size() ? Status() : wrong::root(root, comm.size());
}

/// The whole vector must have an address range.
inline Status check_count(size_t count, flx_dtype_t dtype, int blocks) {
    size_t bytes = 0;  // divisions would take longer than a small call's other checks together
    if (__builtin_mul_overflow(count, size_of(dtype), &bytes) ||
        __builtin_mul_overflow(bytes, static_cast<size_t>(blocks), &bytes) || bytes > SIZE_MAX / 2) [[unlikely]]
        return wrong::count(count, blocks);
    return {};
}

/// The same of the `what` of one rank (its count, or where its block begins), two of which can be added then.
inline Status check_part(size_t value, flx_dtype_t dtype, const char *what, int rank) {
    size_t bytes = 0;
    if (__builtin_mul_overflow(value, size_of(dtype), &bytes) || bytes > SIZE_MAX / 4) [[unlikely]]
        return wrong::part(value, what, rank);
    return {};
}

inline Status check_buffer(const void *buffer, const char *name, size_t count) {
    const bool given = buffer != nullptr && buffer != FLX_IN_PLACE;
    return given || count == 0 ? Status() : wrong::buffer(buffer, name, count);
}

inline Status check_overlap(const void *in, size_t in_bytes, const void *out, size_t out_bytes) {
    const auto *a = static_cast<const std::byte *>(in);
    const auto *b = static_cast<const std::byte *>(out);
    if (in_bytes == 0 || out_bytes == 0 || a + in_bytes <= b || b + out_bytes <= a)
        return {};
    return wrong::overlap(static_cast<size_t>(std::min(a + in_bytes, b + out_bytes) - std::max(a, b)));
}

/// One end of a message, but for where its memory is. `name`: of the buffer; `role`: of the peer.
Status check_message(flx_comm_t comm, const void *buffer, const char *name, size_t count, flx_dtype_t dtype, int peer,
                     const char *role);
cuda::Message message_to(int peer, const void *buffer, size_t bytes);
cuda::Message message_from(int peer, void *buffer, size_t bytes);
/// The messages of an alltoallv that is not in place.
std::vector<cuda::Message> messages_of(const Call &call, int size);

/// For calls that GPUs take only while no non-blocking collective on them is under way: waits for those that the
/// program has freed, which it cannot wait for.
Communicator &settled(flx_comm_t comm);

/// FLX_ERR_UNSUPPORTED unless GPUs have the reduction and type of the call (runtime/elements/dtype.h: has_kernel).
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
