/// The names that C programs call. They take the place of MPI's, which stay reachable as PMPI_.
#include "runtime/front/mpi/arguments/user_reductions.h"
#include "runtime/front/mpi/calls.h"
#include "runtime/front/mpi/libraries/other_mpi.h"

namespace {

using flx::preload::Form;
using flx::preload::guarded;
using flx::preload::How;
using flx::preload::Library;
using flx::preload::Requests;
using flx::preload::UserReductions;

int begun(int code) {
    if (code == MPI_SUCCESS)
        Library::instance().begin();
    return code;
}

}  // namespace

// Not every mpi.h says that its functions are seen outside a library.
#pragma GCC visibility push(default)

extern "C" {

int MPI_Init(int *argc, char ***argv) {
    flx::preload::refuse_other_mpi();
    return begun(FLX_NEXT(Init)(argc, argv));
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
    flx::preload::refuse_other_mpi();
    return begun(FLX_NEXT(Init_thread)(argc, argv, required, provided));
}

int MPI_Start(MPI_Request *request) {
    int code = MPI_SUCCESS;
    if (request == nullptr || Requests::instance().live_persistent() == 0 || !Requests::instance().start(request, code))
        return FLX_NEXT(Start)(request);
    if (code != MPI_SUCCESS)
        PMPI_Comm_call_errhandler(MPI_COMM_WORLD, code);
    return code;
}

int MPI_Startall(int count, MPI_Request requests[]) {
    if (requests == nullptr || Requests::instance().live_persistent() == 0)
        return FLX_NEXT(Startall)(count, requests);
    for (int i = 0; i < count; ++i)
        if (const int code = MPI_Start(&requests[i]); code != MPI_SUCCESS)
            return code;
    return MPI_SUCCESS;
}

int MPI_Request_free(MPI_Request *request) {
    int code = MPI_SUCCESS;
    if (request == nullptr || Requests::instance().live_persistent() == 0 || !Requests::instance().free(request, code))
        return FLX_NEXT(Request_free)(request);
    if (code != MPI_SUCCESS)
        PMPI_Comm_call_errhandler(MPI_COMM_WORLD, code);
    return code;
}

int MPI_Op_free(MPI_Op *op) {
    if (op == nullptr || *op == MPI_OP_NULL || !UserReductions::instance().give_up_op(*op))
        return FLX_NEXT(Op_free)(op);
    *op = MPI_OP_NULL;
    return MPI_SUCCESS;
}

int MPI_Type_free(MPI_Datatype *type) {
    if (type == nullptr || *type == MPI_DATATYPE_NULL || !UserReductions::instance().give_up_type(*type))
        return FLX_NEXT(Type_free)(type);
    *type = MPI_DATATYPE_NULL;
    return MPI_SUCCESS;
}

}  // extern "C"

#define LIST(...) __VA_ARGS__

#ifdef FLX_MPI_PERSISTENT
#define PERSISTENT(NAME, SMALL, PARAMETERS, ARGUMENTS)                                                        \
    extern "C" int FLX_MPI_PERSISTENT(NAME)(PARAMETERS MPI_Comm comm, MPI_Info info, MPI_Request * request) { \
        return guarded(comm, [&] {                                                                            \
            return flx::preload::SMALL(How{Form::persistent, request, info}, ARGUMENTS comm);                 \
        });                                                                                                   \
    }
#else
#define PERSISTENT(NAME, SMALL, PARAMETERS, ARGUMENTS)
#endif

/// Types of counts and displacements: in most functions, and in those that end in _c. C's functions may be declared in
/// namespaces.
namespace by_int {
using Count = int;
using Displacement = int;
}  // namespace by_int
namespace by_count {
using Count = MPI_Count;
using Displacement = MPI_Aint;
}  // namespace by_count

/// Defines MPI_NAME, MPI_Ismall and the persistent form.
#define INT_FORMS(NAME, SMALL, PARAMETERS, ARGUMENTS)                                                               \
    namespace by_int {                                                                                              \
    extern "C" int MPI_##NAME(PARAMETERS MPI_Comm comm) {                                                           \
        return guarded(comm, [&] { return flx::preload::SMALL(How{}, ARGUMENTS comm); });                           \
    }                                                                                                               \
    extern "C" int MPI_I##SMALL(PARAMETERS MPI_Comm comm, MPI_Request *request) {                                   \
        return guarded(comm, [&] { return flx::preload::SMALL(How{Form::nonblocking, request}, ARGUMENTS comm); }); \
    }                                                                                                               \
    PERSISTENT(NAME, SMALL, LIST(PARAMETERS), LIST(ARGUMENTS))                                                      \
    }

#ifdef FLX_MPI_LARGE
#define LARGE(NAME, SMALL, PARAMETERS, ARGUMENTS)                                                      \
    namespace by_count {                                                                               \
    extern "C" int FLX_MPI_LARGE(NAME)(PARAMETERS MPI_Comm comm) {                                     \
        return guarded(comm, [&] { return flx::preload::SMALL(How{.large = true}, ARGUMENTS comm); }); \
    }                                                                                                  \
    }
#else
#define LARGE(NAME, SMALL, PARAMETERS, ARGUMENTS)
#endif

/// These, and MPI_NAME_c.
#define FORMS(NAME, SMALL, PARAMETERS, ARGUMENTS)             \
    INT_FORMS(NAME, SMALL, LIST(PARAMETERS), LIST(ARGUMENTS)) \
    LARGE(NAME, SMALL, LIST(PARAMETERS), LIST(ARGUMENTS))

FORMS(Allgather, allgather,
      LIST(const void *sendbuf, Count sendcount, MPI_Datatype sendtype, void *recvbuf, Count recvcount,
           MPI_Datatype recvtype, ),
      LIST(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, ))
FORMS(Allgatherv, allgatherv,
      LIST(const void *sendbuf, Count sendcount, MPI_Datatype sendtype, void *recvbuf, const Count recvcounts[],
           const Displacement displs[], MPI_Datatype recvtype, ),
      LIST(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, ))
FORMS(Allreduce, allreduce, LIST(const void *sendbuf, void *recvbuf, Count count, MPI_Datatype type, MPI_Op op, ),
      LIST(sendbuf, recvbuf, count, type, op, ))
FORMS(Alltoall, alltoall,
      LIST(const void *sendbuf, Count sendcount, MPI_Datatype sendtype, void *recvbuf, Count recvcount,
           MPI_Datatype recvtype, ),
      LIST(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, ))
FORMS(Alltoallv, alltoallv,
      LIST(const void *sendbuf, const Count sendcounts[], const Displacement sdispls[], MPI_Datatype sendtype,
           void *recvbuf, const Count recvcounts[], const Displacement rdispls[], MPI_Datatype recvtype, ),
      LIST(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, ))
FORMS(Alltoallw, alltoallw,
      LIST(const void *sendbuf, const Count sendcounts[], const Displacement sdispls[], const MPI_Datatype sendtypes[],
           void *recvbuf, const Count recvcounts[], const Displacement rdispls[], const MPI_Datatype recvtypes[], ),
      LIST(sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes, ))
INT_FORMS(Barrier, barrier, LIST(), LIST())
FORMS(Bcast, bcast, LIST(void *buffer, Count count, MPI_Datatype type, int root, ), LIST(buffer, count, type, root, ))
FORMS(Exscan, exscan, LIST(const void *sendbuf, void *recvbuf, Count count, MPI_Datatype type, MPI_Op op, ),
      LIST(sendbuf, recvbuf, count, type, op, ))
FORMS(Gather, gather,
      LIST(const void *sendbuf, Count sendcount, MPI_Datatype sendtype, void *recvbuf, Count recvcount,
           MPI_Datatype recvtype, int root, ),
      LIST(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, ))
FORMS(Gatherv, gatherv,
      LIST(const void *sendbuf, Count sendcount, MPI_Datatype sendtype, void *recvbuf, const Count recvcounts[],
           const Displacement displs[], MPI_Datatype recvtype, int root, ),
      LIST(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root, ))
FORMS(Reduce, reduce, LIST(const void *sendbuf, void *recvbuf, Count count, MPI_Datatype type, MPI_Op op, int root, ),
      LIST(sendbuf, recvbuf, count, type, op, root, ))
FORMS(Reduce_scatter, reduce_scatter,
      LIST(const void *sendbuf, void *recvbuf, const Count recvcounts[], MPI_Datatype type, MPI_Op op, ),
      LIST(sendbuf, recvbuf, recvcounts, type, op, ))
FORMS(Reduce_scatter_block, reduce_scatter_block,
      LIST(const void *sendbuf, void *recvbuf, Count recvcount, MPI_Datatype type, MPI_Op op, ),
      LIST(sendbuf, recvbuf, recvcount, type, op, ))
FORMS(Scan, scan, LIST(const void *sendbuf, void *recvbuf, Count count, MPI_Datatype type, MPI_Op op, ),
      LIST(sendbuf, recvbuf, count, type, op, ))
FORMS(Scatter, scatter,
      LIST(const void *sendbuf, Count sendcount, MPI_Datatype sendtype, void *recvbuf, Count recvcount,
           MPI_Datatype recvtype, int root, ),
      LIST(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, ))
FORMS(Scatterv, scatterv,
      LIST(const void *sendbuf, const Count sendcounts[], const Displacement displs[], MPI_Datatype sendtype,
           void *recvbuf, Count recvcount, MPI_Datatype recvtype, int root, ),
      LIST(sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root, ))

#pragma GCC visibility pop
