/// The public functions between two ranks, and groups.
#include "api.h"

using flx::fail;
using flx::Status;
using namespace flx::api;

namespace {

Status check_message(flx_comm_t comm, const void *buffer, const char *name, size_t count, flx_dtype_t dtype, int peer,
                     const char *role) {
    FLX_TRY(check_comm(comm));
    FLX_TRY(check_dtype(dtype));
    if (peer < 0 || peer >= comm->impl->size())
        return fail(FLX_ERR_ARGUMENT, "{} {} is not a rank of the communicator; 0 to {} are", role, peer,
                    comm->impl->size() - 1);
    FLX_TRY(check_count(count, dtype, 1));
    FLX_TRY(check_on_host(buffer, name));
    return check_buffer(buffer, name, count);
}

}  // namespace

flx_status_t flx_send(const void *sendbuf, size_t count, flx_dtype_t dtype, int dest, flx_comm_t comm) {
    return guarded([&]() -> Status {
        FLX_TRY(check_message(comm, sendbuf, "sendbuf", count, dtype, dest, "dest"));
        return comm->impl->send(sendbuf, count * flx::size_of(dtype), dest);
    });
}

flx_status_t flx_recv(void *recvbuf, size_t count, flx_dtype_t dtype, int source, flx_comm_t comm) {
    return guarded([&]() -> Status {
        FLX_TRY(check_message(comm, recvbuf, "recvbuf", count, dtype, source, "source"));
        return comm->impl->receive(recvbuf, count * flx::size_of(dtype), source);
    });
}

flx_status_t flx_sendrecv(const void *sendbuf, void *recvbuf, size_t sendcount, size_t recvcount, flx_dtype_t dtype,
                          int dest, int source, flx_comm_t comm) {
    return guarded([&]() -> Status {
        FLX_TRY(check_message(comm, sendbuf, "sendbuf", sendcount, dtype, dest, "dest"));
        FLX_TRY(check_message(comm, recvbuf, "recvbuf", recvcount, dtype, source, "source"));
        const size_t element = flx::size_of(dtype);
        FLX_TRY(check_overlap(sendbuf, sendcount * element, recvbuf, recvcount * element));
        return comm->impl->send_receive(sendbuf, sendcount * element, dest, recvbuf, recvcount * element, source);
    });
}

flx_status_t flx_group_begin(flx_comm_t comm) {
    return guarded([&]() -> Status {
        FLX_TRY(check_comm(comm));
        return comm->impl->begin_group();
    });
}

flx_status_t flx_group_end(flx_comm_t comm) {
    return guarded([&]() -> Status {
        FLX_TRY(check_comm(comm));
        return comm->impl->end_group();
    });
}
