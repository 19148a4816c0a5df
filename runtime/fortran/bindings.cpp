/// What module flx calls.
#include <mpi.h>

#include "arrays.h"

#pragma GCC visibility push(default)
extern "C" {
int flx_fortran_in_place = 0;
}
#pragma GCC visibility pop

using namespace flx::fortran;

#pragma GCC visibility push(default)
extern "C" {

const char *flx_fortran_last_error() {
    return sentence.empty() ? flx_last_error() : sentence.c_str();
}

flx_status_t flx_fortran_comm_create(MPI_Fint mpi_comm, flx_comm_t *comm) {
    return guarded([&] { return flx_comm_create(PMPI_Comm_f2c(mpi_comm), nullptr, comm); });
}

flx_status_t flx_fortran_comm_dup(flx_comm_t comm, flx_comm_t *made) {
    return guarded([&] { return flx_comm_dup(comm, made); });
}

flx_status_t flx_fortran_comm_split(flx_comm_t comm, int color, int key, flx_comm_t *made) {
    return guarded([&] { return flx_comm_split(comm, color, key, made); });
}

flx_status_t flx_fortran_comm_free(flx_comm_t *comm) {
    return guarded([&] {
        groups().set(*comm, false);
        return flx_comm_free(comm);
    });
}

flx_status_t flx_fortran_comm_rank(flx_comm_t comm, int *rank) {
    return guarded([&] { return flx_comm_rank(comm, rank); });
}

flx_status_t flx_fortran_comm_size(flx_comm_t comm, int *size) {
    return guarded([&] { return flx_comm_size(comm, size); });
}

flx_status_t flx_fortran_allreduce(const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, int op, flx_comm_t comm) {
    return guarded([&]() -> flx_status_t {
        Array send;
        Array receive;
        Elements elements;
        const void *data = nullptr;
        TRY(receive.take(recvbuf, "recvbuf", in_place(sendbuf), comm));
        TRY(take_input(sendbuf, receive, comm, send, data));
        if (data != FLX_IN_PLACE)
            TRY(check_size("sendbuf", send.count(), "as many as in recvbuf:", receive.count()));
        TRY(elements_of(receive, op, elements));
        return receive.deliver(flx_allreduce(data, receive.data(), receive.count() * elements.factor, elements.dtype,
                                             static_cast<flx_op_t>(op), comm));
    });
}

flx_status_t flx_fortran_reduce(const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, int op, int root, flx_comm_t comm) {
    return guarded([&]() -> flx_status_t {
        int rank = 0;
        TRY(flx_comm_rank(comm, &rank));
        Array send;
        Array receive;
        Elements elements;
        const void *data = nullptr;
        if (rank != root) {
            TRY(not_in_place(sendbuf, "sendbuf"));
            TRY(send.take(sendbuf, "sendbuf", true, comm));
            TRY(elements_of(send, op, elements));
            return flx_reduce(send.data(), nullptr, send.count() * elements.factor, elements.dtype,
                              static_cast<flx_op_t>(op), root, comm);
        }
        TRY(receive.take(recvbuf, "recvbuf", in_place(sendbuf), comm));
        TRY(take_input(sendbuf, receive, comm, send, data));
        if (data != FLX_IN_PLACE)
            TRY(check_size("sendbuf", send.count(), "as many as in recvbuf:", receive.count()));
        TRY(elements_of(receive, op, elements));
        return receive.deliver(flx_reduce(data, receive.data(), receive.count() * elements.factor, elements.dtype,
                                          static_cast<flx_op_t>(op), root, comm));
    });
}

flx_status_t flx_fortran_reduce_scatter_block(const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, int op,
                                              flx_comm_t comm) {
    return guarded([&]() -> flx_status_t {
        int size = 1;
        TRY(flx_comm_size(comm, &size));
        Array send;
        Array receive;
        Elements elements;
        const void *data = nullptr;
        TRY(receive.take(recvbuf, "recvbuf", in_place(sendbuf), comm));
        TRY(take_input(sendbuf, receive, comm, send, data));
        size_t count = receive.count();
        if (data == FLX_IN_PLACE) {
            TRY(multiple_of("recvbuf", receive.count(), size));
            count /= size;
        } else {
            TRY(check_size("sendbuf", send.count(), "those of recvbuf for each rank:", receive.count() * size));
        }
        TRY(elements_of(receive, op, elements));
        return receive.deliver(flx_reduce_scatter_block(data, receive.data(), count * elements.factor, elements.dtype,
                                                        static_cast<flx_op_t>(op), comm));
    });
}

flx_status_t flx_fortran_allgather(const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, flx_comm_t comm) {
    return guarded([&]() -> flx_status_t {
        int size = 1;
        TRY(flx_comm_size(comm, &size));
        Array send;
        Array receive;
        const void *data = nullptr;
        TRY(receive.take(recvbuf, "recvbuf", in_place(sendbuf), comm));
        TRY(take_input(sendbuf, receive, comm, send, data));
        if (data == FLX_IN_PLACE)
            TRY(multiple_of("recvbuf", receive.count(), size));
        else
            TRY(check_size("recvbuf", receive.count(), "those of sendbuf from each rank:", send.count() * size));
        return receive.deliver(flx_allgather(data, receive.data(), receive.bytes() / size, FLX_UINT8, comm));
    });
}

flx_status_t flx_fortran_bcast(CFI_cdesc_t *buf, int root, flx_comm_t comm) {
    return guarded([&]() -> flx_status_t {
        Array array;
        TRY(array.take(buf, "buf", true, comm));
        return array.deliver(flx_bcast(array.data(), array.bytes(), FLX_UINT8, root, comm));
    });
}

flx_status_t flx_fortran_alltoall(const CFI_cdesc_t *sendbuf, CFI_cdesc_t *recvbuf, flx_comm_t comm) {
    return guarded([&]() -> flx_status_t {
        int size = 1;
        TRY(flx_comm_size(comm, &size));
        Array send;
        Array receive;
        const void *data = nullptr;
        TRY(receive.take(recvbuf, "recvbuf", in_place(sendbuf), comm));
        TRY(take_input(sendbuf, receive, comm, send, data));
        TRY(multiple_of("recvbuf", receive.count(), size));
        if (data != FLX_IN_PLACE)
            TRY(check_size("sendbuf", send.count(), "as many as in recvbuf:", receive.count()));
        return receive.deliver(flx_alltoall(data, receive.data(), receive.bytes() / size, FLX_UINT8, comm));
    });
}

flx_status_t flx_fortran_alltoallv(const CFI_cdesc_t *sendbuf, const CFI_cdesc_t *sendcounts,
                                   const CFI_cdesc_t *sdispls, CFI_cdesc_t *recvbuf, const CFI_cdesc_t *recvcounts,
                                   const CFI_cdesc_t *rdispls, flx_comm_t comm) {
    return guarded([&]() -> flx_status_t {
        int size = 1;
        TRY(flx_comm_size(comm, &size));
        Array send;
        Array receive;
        const void *data = nullptr;
        // What lies between the blocks stays as it is.
        TRY(receive.take(recvbuf, "recvbuf", true, comm));
        TRY(take_input(sendbuf, receive, comm, send, data));
        Blocks out;
        Blocks in;
        if (data != FLX_IN_PLACE)
            TRY(out.take(sendcounts, "sendcounts", sdispls, "sdispls", send, "sendbuf", size));
        TRY(in.take(recvcounts, "recvcounts", rdispls, "rdispls", receive, "recvbuf", size));
        return receive.deliver(flx_alltoallv(data, receive.data(), out.counts.data(), out.displs.data(),
                                             in.counts.data(), in.displs.data(), FLX_UINT8, comm));
    });
}

flx_status_t flx_fortran_barrier(flx_comm_t comm) {
    return guarded([&] { return flx_barrier(comm); });
}

flx_status_t flx_fortran_send(const CFI_cdesc_t *sendbuf, int dest, flx_comm_t comm) {
    return guarded([&]() -> flx_status_t {
        Array send;
        TRY(send.take(sendbuf, "sendbuf", true, comm));
        return flx_send(send.data(), send.bytes(), FLX_UINT8, dest, comm);
    });
}

flx_status_t flx_fortran_recv(CFI_cdesc_t *recvbuf, int source, flx_comm_t comm) {
    return guarded([&]() -> flx_status_t {
        Array receive;
        TRY(receive.take(recvbuf, "recvbuf", false, comm));
        return receive.deliver(flx_recv(receive.data(), receive.bytes(), FLX_UINT8, source, comm));
    });
}

flx_status_t flx_fortran_sendrecv(const CFI_cdesc_t *sendbuf, int dest, CFI_cdesc_t *recvbuf, int source,
                                  flx_comm_t comm) {
    return guarded([&]() -> flx_status_t {
        Array send;
        Array receive;
        TRY(send.take(sendbuf, "sendbuf", true, comm));
        TRY(receive.take(recvbuf, "recvbuf", false, comm));
        return receive.deliver(
            flx_sendrecv(send.data(), receive.data(), send.bytes(), receive.bytes(), FLX_UINT8, dest, source, comm));
    });
}

flx_status_t flx_fortran_group_begin(flx_comm_t comm) {
    return guarded([&] {
        const flx_status_t status = flx_group_begin(comm);
        if (status == FLX_SUCCESS)
            groups().set(comm, true);
        return status;
    });
}

flx_status_t flx_fortran_group_end(flx_comm_t comm) {
    return guarded([&] {
        groups().set(comm, false);
        return flx_group_end(comm);
    });
}

}  // extern "C"
#pragma GCC visibility pop
