/// The names that Fortran programs call: those of mpif.h and `use mpi` in every mangling, and Open MPI's ompi_*_f,
/// which its module mpi_f08 calls. Open MPI's own go straight to PMPI_, so C's names do not catch them.
#include <vector>

#include "calls.h"

static_assert(sizeof(MPI_Fint) == sizeof(int), "arrays of counts are passed on as they are");

// Addresses that stand for MPI_IN_PLACE and MPI_BOTTOM in Fortran; of libmpi.
extern "C" {
extern char mpi_fortran_in_place_;
extern char mpi_fortran_bottom_;
}

namespace {

using flx::preload::guarded;
using flx::preload::Library;

MPI_Comm comm_of(const MPI_Fint *comm) {
    return PMPI_Comm_f2c(*comm);
}

MPI_Datatype type_of(const MPI_Fint *type) {
    return PMPI_Type_f2c(*type);
}

MPI_Op op_of(const MPI_Fint *op) {
    return PMPI_Op_f2c(*op);
}

void *buffer_of(void *buffer) {
    if (buffer == &mpi_fortran_in_place_)
        return MPI_IN_PLACE;
    return buffer == &mpi_fortran_bottom_ ? MPI_BOTTOM : buffer;
}

/// Of alltoallw. In place there need not be any.
std::vector<MPI_Datatype> types_of(const MPI_Fint *types, MPI_Comm comm, const void *buffer) {
    std::vector<MPI_Datatype> all;
    if (buffer == MPI_IN_PLACE || comm == MPI_COMM_NULL)
        return all;
    int inter = 0;
    int size = 0;
    PMPI_Comm_test_inter(comm, &inter);
    if (inter != 0)
        PMPI_Comm_remote_size(comm, &size);
    else
        PMPI_Comm_size(comm, &size);
    for (int rank = 0; rank < size; ++rank)
        all.push_back(PMPI_Type_f2c(types[rank]));
    return all;
}

void answer(MPI_Fint *ierror, int code) {
    if (ierror != nullptr)
        *ierror = code;
}

}  // namespace

#pragma GCC visibility push(default)

/// Defines ompi_LOWER_f, and the manglings of mpi_LOWER as other names of it.
#define FORTRAN(LOWER, UPPER, PARAMETERS)                                                   \
    extern "C" void ompi_##LOWER##_f PARAMETERS;                                            \
    extern "C" void mpi_##LOWER PARAMETERS __attribute__((alias("ompi_" #LOWER "_f")));     \
    extern "C" void mpi_##LOWER##_ PARAMETERS __attribute__((alias("ompi_" #LOWER "_f")));  \
    extern "C" void mpi_##LOWER##__ PARAMETERS __attribute__((alias("ompi_" #LOWER "_f"))); \
    extern "C" void MPI_##UPPER PARAMETERS __attribute__((alias("ompi_" #LOWER "_f")));     \
    void ompi_##LOWER##_f PARAMETERS

FORTRAN(init, INIT, (MPI_Fint * ierror)) {
    int argc = 0;
    char **argv = nullptr;
    const int code = PMPI_Init(&argc, &argv);
    if (code == MPI_SUCCESS)
        Library::instance().begin();
    answer(ierror, code);
}

FORTRAN(init_thread, INIT_THREAD, (const MPI_Fint *required, MPI_Fint *provided, MPI_Fint *ierror)) {
    int argc = 0;
    char **argv = nullptr;
    int given = 0;
    const int code = PMPI_Init_thread(&argc, &argv, *required, &given);
    if (code == MPI_SUCCESS) {
        *provided = given;
        Library::instance().begin();
    }
    answer(ierror, code);
}

FORTRAN(allgather, ALLGATHER,
        (void *sendbuf, const MPI_Fint *sendcount, const MPI_Fint *sendtype, void *recvbuf, const MPI_Fint *recvcount,
         const MPI_Fint *recvtype, const MPI_Fint *comm, MPI_Fint *ierror)) {
    MPI_Comm c_comm = comm_of(comm);
    answer(ierror, guarded(c_comm, [&] {
               return flx::preload::allgather(buffer_of(sendbuf), *sendcount, type_of(sendtype), buffer_of(recvbuf),
                                              *recvcount, type_of(recvtype), c_comm);
           }));
}

FORTRAN(allgatherv, ALLGATHERV,
        (void *sendbuf, const MPI_Fint *sendcount, const MPI_Fint *sendtype, void *recvbuf, const MPI_Fint *recvcounts,
         const MPI_Fint *displs, const MPI_Fint *recvtype, const MPI_Fint *comm, MPI_Fint *ierror)) {
    MPI_Comm c_comm = comm_of(comm);
    answer(ierror, guarded(c_comm, [&] {
               return flx::preload::allgatherv(buffer_of(sendbuf), *sendcount, type_of(sendtype), buffer_of(recvbuf),
                                               recvcounts, displs, type_of(recvtype), c_comm);
           }));
}

FORTRAN(allreduce, ALLREDUCE,
        (void *sendbuf, void *recvbuf, const MPI_Fint *count, const MPI_Fint *type, const MPI_Fint *op,
         const MPI_Fint *comm, MPI_Fint *ierror)) {
    MPI_Comm c_comm = comm_of(comm);
    answer(ierror, guarded(c_comm, [&] {
               return flx::preload::allreduce(buffer_of(sendbuf), buffer_of(recvbuf), *count, type_of(type), op_of(op),
                                              c_comm);
           }));
}

FORTRAN(alltoall, ALLTOALL,
        (void *sendbuf, const MPI_Fint *sendcount, const MPI_Fint *sendtype, void *recvbuf, const MPI_Fint *recvcount,
         const MPI_Fint *recvtype, const MPI_Fint *comm, MPI_Fint *ierror)) {
    MPI_Comm c_comm = comm_of(comm);
    answer(ierror, guarded(c_comm, [&] {
               return flx::preload::alltoall(buffer_of(sendbuf), *sendcount, type_of(sendtype), buffer_of(recvbuf),
                                             *recvcount, type_of(recvtype), c_comm);
           }));
}

FORTRAN(alltoallv, ALLTOALLV,
        (void *sendbuf, const MPI_Fint *sendcounts, const MPI_Fint *sdispls, const MPI_Fint *sendtype, void *recvbuf,
         const MPI_Fint *recvcounts, const MPI_Fint *rdispls, const MPI_Fint *recvtype, const MPI_Fint *comm,
         MPI_Fint *ierror)) {
    MPI_Comm c_comm = comm_of(comm);
    answer(ierror, guarded(c_comm, [&] {
               return flx::preload::alltoallv(buffer_of(sendbuf), sendcounts, sdispls, type_of(sendtype),
                                              buffer_of(recvbuf), recvcounts, rdispls, type_of(recvtype), c_comm);
           }));
}

FORTRAN(alltoallw, ALLTOALLW,
        (void *sendbuf, const MPI_Fint *sendcounts, const MPI_Fint *sdispls, const MPI_Fint *sendtypes, void *recvbuf,
         const MPI_Fint *recvcounts, const MPI_Fint *rdispls, const MPI_Fint *recvtypes, const MPI_Fint *comm,
         MPI_Fint *ierror)) {
    MPI_Comm c_comm = comm_of(comm);
    answer(ierror, guarded(c_comm, [&] {
               const std::vector<MPI_Datatype> c_sendtypes = types_of(sendtypes, c_comm, buffer_of(sendbuf));
               const std::vector<MPI_Datatype> c_recvtypes = types_of(recvtypes, c_comm, recvbuf);
               return flx::preload::alltoallw(buffer_of(sendbuf), sendcounts, sdispls, c_sendtypes.data(),
                                              buffer_of(recvbuf), recvcounts, rdispls, c_recvtypes.data(), c_comm);
           }));
}

FORTRAN(barrier, BARRIER, (const MPI_Fint *comm, MPI_Fint *ierror)) {
    MPI_Comm c_comm = comm_of(comm);
    answer(ierror, guarded(c_comm, [&] { return flx::preload::barrier(c_comm); }));
}

FORTRAN(bcast, BCAST,
        (void *buffer, const MPI_Fint *count, const MPI_Fint *type, const MPI_Fint *root, const MPI_Fint *comm,
         MPI_Fint *ierror)) {
    MPI_Comm c_comm = comm_of(comm);
    answer(ierror, guarded(c_comm, [&] {
               return flx::preload::bcast(buffer_of(buffer), *count, type_of(type), *root, c_comm);
           }));
}

FORTRAN(exscan, EXSCAN,
        (void *sendbuf, void *recvbuf, const MPI_Fint *count, const MPI_Fint *type, const MPI_Fint *op,
         const MPI_Fint *comm, MPI_Fint *ierror)) {
    MPI_Comm c_comm = comm_of(comm);
    answer(ierror, guarded(c_comm, [&] {
               return flx::preload::exscan(buffer_of(sendbuf), buffer_of(recvbuf), *count, type_of(type), op_of(op),
                                           c_comm);
           }));
}

FORTRAN(gather, GATHER,
        (void *sendbuf, const MPI_Fint *sendcount, const MPI_Fint *sendtype, void *recvbuf, const MPI_Fint *recvcount,
         const MPI_Fint *recvtype, const MPI_Fint *root, const MPI_Fint *comm, MPI_Fint *ierror)) {
    MPI_Comm c_comm = comm_of(comm);
    answer(ierror, guarded(c_comm, [&] {
               return flx::preload::gather(buffer_of(sendbuf), *sendcount, type_of(sendtype), buffer_of(recvbuf),
                                           *recvcount, type_of(recvtype), *root, c_comm);
           }));
}

FORTRAN(gatherv, GATHERV,
        (void *sendbuf, const MPI_Fint *sendcount, const MPI_Fint *sendtype, void *recvbuf, const MPI_Fint *recvcounts,
         const MPI_Fint *displs, const MPI_Fint *recvtype, const MPI_Fint *root, const MPI_Fint *comm,
         MPI_Fint *ierror)) {
    MPI_Comm c_comm = comm_of(comm);
    answer(ierror, guarded(c_comm, [&] {
               return flx::preload::gatherv(buffer_of(sendbuf), *sendcount, type_of(sendtype), buffer_of(recvbuf),
                                            recvcounts, displs, type_of(recvtype), *root, c_comm);
           }));
}

FORTRAN(reduce, REDUCE,
        (void *sendbuf, void *recvbuf, const MPI_Fint *count, const MPI_Fint *type, const MPI_Fint *op,
         const MPI_Fint *root, const MPI_Fint *comm, MPI_Fint *ierror)) {
    MPI_Comm c_comm = comm_of(comm);
    answer(ierror, guarded(c_comm, [&] {
               return flx::preload::reduce(buffer_of(sendbuf), buffer_of(recvbuf), *count, type_of(type), op_of(op),
                                           *root, c_comm);
           }));
}

FORTRAN(reduce_scatter, REDUCE_SCATTER,
        (void *sendbuf, void *recvbuf, const MPI_Fint *recvcounts, const MPI_Fint *type, const MPI_Fint *op,
         const MPI_Fint *comm, MPI_Fint *ierror)) {
    MPI_Comm c_comm = comm_of(comm);
    answer(ierror, guarded(c_comm, [&] {
               return flx::preload::reduce_scatter(buffer_of(sendbuf), buffer_of(recvbuf), recvcounts, type_of(type),
                                                   op_of(op), c_comm);
           }));
}

FORTRAN(reduce_scatter_block, REDUCE_SCATTER_BLOCK,
        (void *sendbuf, void *recvbuf, const MPI_Fint *recvcount, const MPI_Fint *type, const MPI_Fint *op,
         const MPI_Fint *comm, MPI_Fint *ierror)) {
    MPI_Comm c_comm = comm_of(comm);
    answer(ierror, guarded(c_comm, [&] {
               return flx::preload::reduce_scatter_block(buffer_of(sendbuf), buffer_of(recvbuf), *recvcount,
                                                         type_of(type), op_of(op), c_comm);
           }));
}

FORTRAN(scan, SCAN,
        (void *sendbuf, void *recvbuf, const MPI_Fint *count, const MPI_Fint *type, const MPI_Fint *op,
         const MPI_Fint *comm, MPI_Fint *ierror)) {
    MPI_Comm c_comm = comm_of(comm);
    answer(ierror, guarded(c_comm, [&] {
               return flx::preload::scan(buffer_of(sendbuf), buffer_of(recvbuf), *count, type_of(type), op_of(op),
                                         c_comm);
           }));
}

FORTRAN(scatter, SCATTER,
        (void *sendbuf, const MPI_Fint *sendcount, const MPI_Fint *sendtype, void *recvbuf, const MPI_Fint *recvcount,
         const MPI_Fint *recvtype, const MPI_Fint *root, const MPI_Fint *comm, MPI_Fint *ierror)) {
    MPI_Comm c_comm = comm_of(comm);
    answer(ierror, guarded(c_comm, [&] {
               return flx::preload::scatter(buffer_of(sendbuf), *sendcount, type_of(sendtype), buffer_of(recvbuf),
                                            *recvcount, type_of(recvtype), *root, c_comm);
           }));
}

FORTRAN(scatterv, SCATTERV,
        (void *sendbuf, const MPI_Fint *sendcounts, const MPI_Fint *displs, const MPI_Fint *sendtype, void *recvbuf,
         const MPI_Fint *recvcount, const MPI_Fint *recvtype, const MPI_Fint *root, const MPI_Fint *comm,
         MPI_Fint *ierror)) {
    MPI_Comm c_comm = comm_of(comm);
    answer(ierror, guarded(c_comm, [&] {
               return flx::preload::scatterv(buffer_of(sendbuf), sendcounts, displs, type_of(sendtype),
                                             buffer_of(recvbuf), *recvcount, type_of(recvtype), *root, c_comm);
           }));
}

#pragma GCC visibility pop
