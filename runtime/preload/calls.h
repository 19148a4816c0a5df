/// \file calls.h
/// MPI's collectives with FLX in front of them: each takes MPI's arguments, serves the call or passes it to PMPI_, and
/// returns MPI's code. The names that programs call, of C and of Fortran, lead here.
///
/// Which way a call goes depends on what all ranks know alike: reductions name the same type and reduction everywhere;
/// calls that move data are served whatever their types, which may differ between ranks, since the bytes do not.
#pragma once

#include <mpi.h>

#include <exception>
#include <mutex>

#include "communicators.h"

namespace flx::preload {

int allgather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
              MPI_Datatype recvtype, MPI_Comm comm);
int allgatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, const int *recvcounts,
               const int *displs, MPI_Datatype recvtype, MPI_Comm comm);
int allreduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm);
int alltoall(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
             MPI_Datatype recvtype, MPI_Comm comm);
int alltoallv(const void *sendbuf, const int *sendcounts, const int *sdispls, MPI_Datatype sendtype, void *recvbuf,
              const int *recvcounts, const int *rdispls, MPI_Datatype recvtype, MPI_Comm comm);
int alltoallw(const void *sendbuf, const int *sendcounts, const int *sdispls, const MPI_Datatype *sendtypes,
              void *recvbuf, const int *recvcounts, const int *rdispls, const MPI_Datatype *recvtypes, MPI_Comm comm);
int barrier(MPI_Comm comm);
int bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm);
int exscan(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm);
int gather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
           MPI_Datatype recvtype, int root, MPI_Comm comm);
int gatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, const int *recvcounts,
            const int *displs, MPI_Datatype recvtype, int root, MPI_Comm comm);
int reduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm);
int reduce_scatter(const void *sendbuf, void *recvbuf, const int *recvcounts, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm);
int reduce_scatter_block(const void *sendbuf, void *recvbuf, int recvcount, MPI_Datatype type, MPI_Op op,
                         MPI_Comm comm);
int scan(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm);
int scatter(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf, int recvcount,
            MPI_Datatype recvtype, int root, MPI_Comm comm);
int scatterv(const void *sendbuf, const int *sendcounts, const int *displs, MPI_Datatype sendtype, void *recvbuf,
             int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm);

/// One call on its way: finds out whether FLX serves it, counts it, and holds the communicator while it runs.
class Call {
  public:
    /// `objection`: what already speaks against FLX.
    Call(Collective collective, MPI_Comm comm, size_t bytes, Reason objection);
    [[nodiscard]] bool served() const { return group_ != nullptr; }
    [[nodiscard]] flx_comm_t flx() const { return group_->flx; }
    [[nodiscard]] int rank() const { return group_->rank; }
    [[nodiscard]] int size() const { return group_->size; }
    /// Room for counts and displacements; `size` numbers each.
    size_t *numbers(int lists);
    int finish(flx_status_t status) { return preload::finish(status, *group_, comm_); }

  private:
    MPI_Comm comm_;
    Group *group_ = nullptr;
    std::unique_lock<std::mutex> lock_;
};

/// Ranks of `comm`; 0 where it is null or an intercommunicator.
int size_of(MPI_Comm comm);
/// What speaks against a root or a count, as far as that is not MPI's business.
Reason check_root(int root, MPI_Comm comm);

/// Runs a call; no exception (memory, say) leaves the library.
template <typename Body>
int guarded(MPI_Comm comm, Body &&body) {
    try {
        return body();
    } catch (const std::exception &) {
        PMPI_Comm_call_errhandler(comm, MPI_ERR_NO_MEM);
        return MPI_ERR_NO_MEM;
    }
}

}  // namespace flx::preload
