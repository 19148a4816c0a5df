// Stands before libflx (LD_PRELOAD): flips one bit of each allreduce's result on one rank, so that a test can see that
// programs notice.

#include <dlfcn.h>
#include <flx.h>

extern "C" FLX_API flx_status_t flx_allreduce(const void *sendbuf, void *recvbuf, size_t count, flx_dtype_t dtype,
                                              flx_op_t op, flx_comm_t comm) {
    using Allreduce = decltype(&flx_allreduce);
    static const auto real = reinterpret_cast<Allreduce>(dlsym(RTLD_NEXT, "flx_allreduce"));
    const flx_status_t status = real(sendbuf, recvbuf, count, dtype, op, comm);
    int rank = 0;
    flx_comm_rank(comm, &rank);
    if (status == FLX_SUCCESS && rank == 0 && count > 0) {
        *static_cast<unsigned char *>(recvbuf) ^= 1;
    }
    return status;
}
