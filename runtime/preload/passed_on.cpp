/// Non-blocking and persistent collectives, which FLX does not serve: they are counted, for FLX_STATS, and go to MPI.
#include "passed_on.h"

#include "calls.h"

#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

namespace flx::preload {

size_t bytes_of(int64_t count, MPI_Datatype type) {
    int size = 0;
    if (count <= 0 || type == MPI_DATATYPE_NULL || PMPI_Type_size(type, &size) != MPI_SUCCESS || size < 0)
        return 0;
    return static_cast<size_t>(count) * static_cast<size_t>(size);
}

int64_t total_of(const int *counts, MPI_Comm comm) {
    int64_t total = 0;
    const int size = counts != nullptr ? size_of(comm) : 0;
    for (int rank = 0; rank < size; ++rank)
        total += counts[rank];
    return total;
}

Reason reason_to_pass(Collective collective, MPI_Comm comm) {
    if (!Library::instance().chosen(collective))
        return Reason::not_chosen;
    if (comm == MPI_COMM_NULL)
        return Reason::invalid;
    return size_of(comm) == 0 ? Reason::intercommunicator : Reason::not_blocking;
}

}  // namespace flx::preload

namespace {

using flx::preload::bytes_of;
using flx::preload::Collective;
using flx::preload::Form;
using flx::preload::pass_on;
using flx::preload::size_of;
using flx::preload::total_of;

/// Of alltoallw: a type for each rank.
size_t bytes_of(const int *counts, const MPI_Datatype *types, MPI_Comm comm) {
    size_t bytes = 0;
    const int size = counts != nullptr && types != nullptr ? size_of(comm) : 0;
    for (int rank = 0; rank < size; ++rank)
        bytes += bytes_of(counts[rank], types[rank]);
    return bytes;
}

}  // namespace

#define LIST(...) __VA_ARGS__

#ifdef OMPI_HAVE_MPI_EXT_PCOLLREQ
#define PERSISTENT(COLLECTIVE, NAME, BYTES, PARAMETERS, ARGUMENTS)                                  \
    extern "C" int PMPIX_##NAME##_init(PARAMETERS, MPI_Info info, MPI_Request *request);            \
    extern "C" int MPIX_##NAME##_init(PARAMETERS, MPI_Info info, MPI_Request *request) {            \
        pass_on(Collective::COLLECTIVE, Form::persistent, comm, [&]() -> size_t { return BYTES; }); \
        return PMPIX_##NAME##_init(ARGUMENTS, info, request);                                       \
    }
#else
#define PERSISTENT(COLLECTIVE, NAME, BYTES, PARAMETERS, ARGUMENTS)
#endif

/// Defines MPI_Icollective and MPIX_Collective_init. Bytes are a rank's own, where only the root knows the others'.
#define PASSED_ON(COLLECTIVE, NAME, BYTES, PARAMETERS, ARGUMENTS)                                    \
    extern "C" int MPI_I##COLLECTIVE(PARAMETERS, MPI_Request *request) {                             \
        pass_on(Collective::COLLECTIVE, Form::nonblocking, comm, [&]() -> size_t { return BYTES; }); \
        return PMPI_I##COLLECTIVE(ARGUMENTS, request);                                               \
    }                                                                                                \
    PERSISTENT(COLLECTIVE, NAME, BYTES, LIST(PARAMETERS), LIST(ARGUMENTS))

PASSED_ON(allgather, Allgather, bytes_of(static_cast<int64_t>(recvcount) * size_of(comm), recvtype),
          LIST(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
               MPI_Datatype recvtype, MPI_Comm comm),
          LIST(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm))
PASSED_ON(allgatherv, Allgatherv, bytes_of(total_of(recvcounts, comm), recvtype),
          LIST(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, const int recvcounts[],
               const int displs[], MPI_Datatype recvtype, MPI_Comm comm),
          LIST(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm))
PASSED_ON(allreduce, Allreduce, bytes_of(count, type),
          LIST(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
          LIST(sendbuf, recvbuf, count, type, op, comm))
PASSED_ON(alltoall, Alltoall, bytes_of(static_cast<int64_t>(recvcount) * size_of(comm), recvtype),
          LIST(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
               MPI_Datatype recvtype, MPI_Comm comm),
          LIST(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm))
PASSED_ON(alltoallv, Alltoallv, bytes_of(total_of(recvcounts, comm), recvtype),
          LIST(const void *sendbuf, const int sendcounts[], const int sdispls[], MPI_Datatype sendtype, void *recvbuf,
               const int recvcounts[], const int rdispls[], MPI_Datatype recvtype, MPI_Comm comm),
          LIST(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm))
PASSED_ON(alltoallw, Alltoallw, bytes_of(recvcounts, recvtypes, comm),
          LIST(const void *sendbuf, const int sendcounts[], const int sdispls[], const MPI_Datatype sendtypes[],
               void *recvbuf, const int recvcounts[], const int rdispls[], const MPI_Datatype recvtypes[],
               MPI_Comm comm),
          LIST(sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes, comm))
PASSED_ON(barrier, Barrier, 0, LIST(MPI_Comm comm), LIST(comm))
PASSED_ON(bcast, Bcast, bytes_of(count, type),
          LIST(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm),
          LIST(buffer, count, type, root, comm))
PASSED_ON(exscan, Exscan, bytes_of(count, type),
          LIST(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
          LIST(sendbuf, recvbuf, count, type, op, comm))
PASSED_ON(gather, Gather, sendbuf == MPI_IN_PLACE ? 0 : bytes_of(sendcount, sendtype),
          LIST(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
               MPI_Datatype recvtype, int root, MPI_Comm comm),
          LIST(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm))
PASSED_ON(gatherv, Gatherv, sendbuf == MPI_IN_PLACE ? 0 : bytes_of(sendcount, sendtype),
          LIST(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, const int recvcounts[],
               const int displs[], MPI_Datatype recvtype, int root, MPI_Comm comm),
          LIST(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root, comm))
PASSED_ON(reduce, Reduce, bytes_of(count, type),
          LIST(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm),
          LIST(sendbuf, recvbuf, count, type, op, root, comm))
PASSED_ON(reduce_scatter, Reduce_scatter, bytes_of(total_of(recvcounts, comm), type),
          LIST(const void *sendbuf, void *recvbuf, const int recvcounts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm),
          LIST(sendbuf, recvbuf, recvcounts, type, op, comm))
PASSED_ON(reduce_scatter_block, Reduce_scatter_block, bytes_of(static_cast<int64_t>(recvcount) * size_of(comm), type),
          LIST(const void *sendbuf, void *recvbuf, int recvcount, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
          LIST(sendbuf, recvbuf, recvcount, type, op, comm))
PASSED_ON(scan, Scan, bytes_of(count, type),
          LIST(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
          LIST(sendbuf, recvbuf, count, type, op, comm))
PASSED_ON(scatter, Scatter, recvbuf == MPI_IN_PLACE ? 0 : bytes_of(recvcount, recvtype),
          LIST(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
               MPI_Datatype recvtype, int root, MPI_Comm comm),
          LIST(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm))
PASSED_ON(scatterv, Scatterv, recvbuf == MPI_IN_PLACE ? 0 : bytes_of(recvcount, recvtype),
          LIST(const void *sendbuf, const int sendcounts[], const int displs[], MPI_Datatype sendtype, void *recvbuf,
               int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm),
          LIST(sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root, comm))
