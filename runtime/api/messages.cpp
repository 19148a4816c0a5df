/// The public functions between two ranks, and groups.
#include "runtime/api/api.h"

namespace flx::api {

Status check_message(flx_comm_t comm, const void *buffer, const char *name, size_t count, flx_dtype_t dtype, int peer,
                     const char *role) {
    FLX_TRY(check_comm(comm));
    FLX_TRY(check_dtype(dtype));
    if (peer < 0 || peer >= comm->impl->size())
        return fail(Fault::no_such_rank, "{} {} is not a rank of the communicator; 0 to {} are", role, peer,
                    comm->impl->size() - 1);
    FLX_TRY(check_count(count, dtype, 1));
    return check_buffer(buffer, name, count);
}

cuda::Message message_to(int peer, const void *buffer, size_t bytes) {
    return {static_cast<char *>(const_cast<void *>(buffer)), bytes, peer, true};
}

cuda::Message message_from(int peer, void *buffer, size_t bytes) {
    return {static_cast<char *>(buffer), bytes, peer, false};
}

std::vector<cuda::Message> messages_of(const Call &call, int size) {
    const size_t element = size_of(call.operation.dtype);
    std::vector<cuda::Message> messages;
    for (int peer = 0; peer < size; ++peer) {
        const auto *from = static_cast<const char *>(call.operation.in) + call.sends.displacements[peer] * element;
        auto *to = static_cast<char *>(call.operation.out) + call.blocks.displacements[peer] * element;
        messages.push_back(message_to(peer, from, call.sends.counts[peer] * element));
        messages.push_back(message_from(peer, to, call.blocks.counts[peer] * element));
    }
    return messages;
}

}  // namespace flx::api

using flx::fail;
using flx::Fault;
using flx::Status;
using namespace flx::api;

flx_status_t flx_send(const void *sendbuf, size_t count, flx_dtype_t dtype, int dest, flx_comm_t comm) {
    return guarded([&]() -> Status {
        FLX_TRY(check_message(comm, sendbuf, "sendbuf", count, dtype, dest, "dest"));
        const size_t bytes = count * flx::size_of(dtype);
        if (flx::cuda::on_device(sendbuf))
            return settled(comm).post_on_device({{message_to(dest, sendbuf, bytes)}}, nullptr, true);
        return comm->impl->send(sendbuf, bytes, dest);
    });
}

flx_status_t flx_recv(void *recvbuf, size_t count, flx_dtype_t dtype, int source, flx_comm_t comm) {
    return guarded([&]() -> Status {
        FLX_TRY(check_message(comm, recvbuf, "recvbuf", count, dtype, source, "source"));
        const size_t bytes = count * flx::size_of(dtype);
        if (flx::cuda::on_device(recvbuf))
            return settled(comm).post_on_device({{message_from(source, recvbuf, bytes)}}, nullptr, true);
        return comm->impl->receive(recvbuf, bytes, source);
    });
}

flx_status_t flx_sendrecv(const void *sendbuf, void *recvbuf, size_t sendcount, size_t recvcount, flx_dtype_t dtype,
                          int dest, int source, flx_comm_t comm) {
    return guarded([&]() -> Status {
        FLX_TRY(check_message(comm, sendbuf, "sendbuf", sendcount, dtype, dest, "dest"));
        FLX_TRY(check_message(comm, recvbuf, "recvbuf", recvcount, dtype, source, "source"));
        const size_t element = flx::size_of(dtype);
        FLX_TRY(check_overlap(sendbuf, sendcount * element, recvbuf, recvcount * element));
        const bool on_device = flx::cuda::on_device(recvbuf);
        if (sendcount != 0 && recvcount != 0 && flx::cuda::on_device(sendbuf) != on_device)
            return fail(Fault::call_not_on_gpu,
                        "{} is GPU memory and the other buffer is not; a group of flx_send and flx_recv takes both",
                        on_device ? "recvbuf" : "sendbuf");
        if (on_device || flx::cuda::on_device(sendbuf))
            return settled(comm).post_on_device(
                {{message_to(dest, sendbuf, sendcount * element), message_from(source, recvbuf, recvcount * element)}},
                nullptr, true);
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
