/// What module flx calls.
#include <mpi.h>

#include "runtime/front/fortran/arrays.h"

#pragma GCC visibility push(default)
extern "C" {
int flx_fortran_in_place = 0;
}
#pragma GCC visibility pop

namespace flx::fortran {
namespace {

/// Reductions that give every rank as many elements as it has.
template <typename Forms>
flx_status_t reduce_by(Forms forms, const Call &call, const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, int op,
                       bool kept) {
    Buffers buffers;
    Elements elements;
    TRY(buffers.take(call, sendbuf, recvbuf, kept));
    TRY(buffers.check_equal());
    TRY(elements_of(buffers.receive, op, elements));
    return buffers.receive.deliver(forms(call, buffers.in, buffers.out, buffers.receive.count() * elements.factor,
                                         elements.dtype, static_cast<flx_op_t>(op)));
}

flx_status_t allreduce(const Call &call, const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, int op) {
    return reduce_by(FORMS(allreduce), call, sendbuf, recvbuf, op, false);
}

flx_status_t scan(const Call &call, const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, int op) {
    return reduce_by(FORMS(scan), call, sendbuf, recvbuf, op, false);
}

/// The first rank's recvbuf is not written.
flx_status_t exscan(const Call &call, const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, int op) {
    return reduce_by(FORMS(exscan), call, sendbuf, recvbuf, op, true);
}

flx_status_t reduce_scatter_block(const Call &call, const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, int op) {
    int size = 1;
    TRY(flx_comm_size(call.comm, &size));
    Buffers buffers;
    Elements elements;
    TRY(buffers.take(call, sendbuf, recvbuf));
    size_t count = buffers.receive.count();
    if (buffers.stay()) {
        TRY(multiple_of("recvbuf", count, size));
        count /= size;
    } else {
        TRY(check_size("sendbuf", buffers.send.count(), "those of recvbuf for each rank:", count * size));
    }
    TRY(elements_of(buffers.receive, op, elements));
    return buffers.receive.deliver(FORMS(reduce_scatter_block)(call, buffers.in, buffers.out, count * elements.factor,
                                                               elements.dtype, static_cast<flx_op_t>(op)));
}

flx_status_t allgather(const Call &call, const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf) {
    int size = 1;
    TRY(flx_comm_size(call.comm, &size));
    Buffers buffers;
    TRY(buffers.take(call, sendbuf, recvbuf));
    TRY(buffers.check_gathered(size));
    return buffers.receive.deliver(
        FORMS(allgather)(call, buffers.in, buffers.out, buffers.receive.bytes() / size, FLX_UINT8));
}

flx_status_t bcast(const Call &call, CFI_cdesc_t *buf, int root) {
    Array array;
    TRY(array.take(call, buf, "buf", true));
    return array.deliver(FORMS(bcast)(call, array.data(), array.bytes(), FLX_UINT8, root));
}

flx_status_t alltoall(const Call &call, const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf) {
    int size = 1;
    TRY(flx_comm_size(call.comm, &size));
    Buffers buffers;
    TRY(buffers.take(call, sendbuf, recvbuf));
    TRY(multiple_of("recvbuf", buffers.receive.count(), size));
    TRY(buffers.check_equal());
    return buffers.receive.deliver(
        FORMS(alltoall)(call, buffers.in, buffers.out, buffers.receive.bytes() / size, FLX_UINT8));
}

flx_status_t barrier(const Call &call) {
    return FORMS(barrier)(call);
}

}  // namespace
}  // namespace flx::fortran

using namespace flx::fortran;

#pragma GCC visibility push(default)
extern "C" {

const char *flx_fortran_last_error() {
    return last_error();
}

void flx_fortran_comm_create(const MPI_Fint *mpi_comm, flx_comm_t *comm, int *ierror) {
    *comm = nullptr;
    finish(ierror, [&] { return flx_comm_create(PMPI_Comm_f2c(*mpi_comm), nullptr, comm); });
}

void flx_fortran_comm_dup(const flx_comm_t *comm, flx_comm_t *made, int *ierror) {
    finish(ierror, [&] { return flx_comm_dup(*comm, made); });
}

void flx_fortran_comm_split(const flx_comm_t *comm, const int *color, const int *key, flx_comm_t *made, int *ierror) {
    finish(ierror, [&] { return flx_comm_split(*comm, *color, *key, made); });
}

void flx_fortran_comm_free(flx_comm_t *comm, int *ierror) {
    finish(ierror, [&] {
        groups().set(*comm, false);
        return flx_comm_free(comm);
    });
}

void flx_fortran_comm_abort(const flx_comm_t *comm, const char *reason, int *ierror) {
    finish(ierror, [&] { return flx_comm_abort(*comm, reason); });
}

void flx_fortran_comm_rank(const flx_comm_t *comm, int *rank, int *ierror) {
    finish(ierror, [&] { return flx_comm_rank(*comm, rank); });
}

void flx_fortran_comm_size(const flx_comm_t *comm, int *size, int *ierror) {
    finish(ierror, [&] { return flx_comm_size(*comm, size); });
}

EXPORT_COLLECTIVE(allreduce, (const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, const int *op, const flx_comm_t *comm),
                  sendbuf, recvbuf, *op)
EXPORT_COLLECTIVE(scan, (const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, const int *op, const flx_comm_t *comm),
                  sendbuf, recvbuf, *op)
EXPORT_COLLECTIVE(exscan, (const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, const int *op, const flx_comm_t *comm),
                  sendbuf, recvbuf, *op)
EXPORT_COLLECTIVE(reduce_scatter_block,
                  (const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, const int *op, const flx_comm_t *comm), sendbuf,
                  recvbuf, *op)
EXPORT_COLLECTIVE(allgather, (const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, const flx_comm_t *comm), sendbuf,
                  recvbuf)
EXPORT_COLLECTIVE(bcast, (CFI_cdesc_t * buf, const int *root, const flx_comm_t *comm), buf, *root)
EXPORT_COLLECTIVE(alltoall, (const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, const flx_comm_t *comm), sendbuf,
                  recvbuf)
EXPORT_COLLECTIVE(barrier, (const flx_comm_t *comm))

void flx_fortran_send(const CFI_cdesc_t *sendbuf, const int *dest, const flx_comm_t *comm, int *ierror) {
    finish(ierror, [&]() -> flx_status_t {
        Array send;
        TRY(send.take({*comm}, sendbuf, "sendbuf", true));
        return flx_send(send.data(), send.bytes(), FLX_UINT8, *dest, *comm);
    });
}

void flx_fortran_recv(CFI_cdesc_t *recvbuf, const int *source, const flx_comm_t *comm, int *ierror) {
    finish(ierror, [&]() -> flx_status_t {
        Array receive;
        TRY(receive.take({*comm}, recvbuf, "recvbuf", false));
        return receive.deliver(flx_recv(receive.data(), receive.bytes(), FLX_UINT8, *source, *comm));
    });
}

void flx_fortran_sendrecv(const CFI_cdesc_t *sendbuf, const int *dest, CFI_cdesc_t *recvbuf, const int *source,
                          const flx_comm_t *comm, int *ierror) {
    finish(ierror, [&]() -> flx_status_t {
        Array send;
        Array receive;
        TRY(send.take({*comm}, sendbuf, "sendbuf", true));
        TRY(receive.take({*comm}, recvbuf, "recvbuf", false));
        return receive.deliver(
            flx_sendrecv(send.data(), receive.data(), send.bytes(), receive.bytes(), FLX_UINT8, *dest, *source, *comm));
    });
}

void flx_fortran_group_begin(const flx_comm_t *comm, int *ierror) {
    finish(ierror, [&] {
        const flx_status_t status = flx_group_begin(*comm);
        if (status == FLX_SUCCESS)
            groups().set(*comm, true);
        return status;
    });
}

void flx_fortran_group_end(const flx_comm_t *comm, int *ierror) {
    finish(ierror, [&] {
        groups().set(*comm, false);
        return flx_group_end(*comm);
    });
}

void flx_fortran_test(flx_request_t *request, int *done, int *ierror) {
    finish(ierror, [&] { return flx_test(request, done); });
}

void flx_fortran_wait(flx_request_t *request, int *ierror) {
    finish(ierror, [&] { return flx_wait(request); });
}

// Fortran counts from 1.
void flx_fortran_test_any(size_t count, flx_request_t *requests, int *index, int *done, int *ierror) {
    ptrdiff_t at = -1;
    finish(ierror, [&] {
        const flx_status_t status = flx_test_any(count, requests, &at, done);
        *index = static_cast<int>(at) + 1;
        return status;
    });
}

void flx_fortran_wait_any(size_t count, flx_request_t *requests, int *index, int *ierror) {
    ptrdiff_t at = -1;
    finish(ierror, [&] {
        const flx_status_t status = flx_wait_any(count, requests, &at);
        *index = static_cast<int>(at) + 1;
        return status;
    });
}

void flx_fortran_test_all(size_t count, flx_request_t *requests, int *done, int *ierror) {
    finish(ierror, [&] { return flx_test_all(count, requests, done); });
}

void flx_fortran_wait_all(size_t count, flx_request_t *requests, int *ierror) {
    finish(ierror, [&] { return flx_wait_all(count, requests); });
}

void flx_fortran_start(flx_request_t *request, int *ierror) {
    finish(ierror, [&] { return flx_start(request); });
}

void flx_fortran_start_all(size_t count, flx_request_t *requests, int *ierror) {
    finish(ierror, [&] { return flx_start_all(count, requests); });
}

void flx_fortran_malloc(const size_t *bytes, void **memory, int *ierror) {
    finish(ierror, [&] { return flx_malloc(*bytes, memory); });
}

void flx_fortran_free(void **memory, int *ierror) {
    finish(ierror, [&] { return flx_free(*memory); });
}

void flx_fortran_request_free(flx_request_t *request, int *ierror) {
    finish(ierror, [&] { return flx_request_free(request); });
}

}  // extern "C"
#pragma GCC visibility pop
