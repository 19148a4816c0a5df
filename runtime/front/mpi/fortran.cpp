/// The names that Fortran programs call where MPI is Open MPI: those of mpif.h and `use mpi` in every mangling, and
/// Open MPI's ompi_*_f, which its module mpi_f08 calls. Open MPI's own go straight to PMPI_, so C's names do not catch
/// them.
#include <algorithm>
#include <vector>

#include "runtime/front/mpi/calls.h"
#include "runtime/front/mpi/libraries/other_mpi.h"

static_assert(sizeof(MPI_Fint) == sizeof(int), "arrays of counts are passed on as they are");

// Addresses that stand for MPI_IN_PLACE and MPI_BOTTOM in Fortran; of libmpi, unless it was built without Fortran.
extern "C" {
// NOLINTBEGIN(readability-identifier-naming): MPI names them
[[gnu::weak]] extern char mpi_fortran_in_place_;
[[gnu::weak]] extern char mpi_fortran_bottom_;
// NOLINTEND(readability-identifier-naming)
}

namespace {

using flx::preload::Form;
using flx::preload::guarded;
using flx::preload::How;
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
    if (buffer == nullptr)
        return buffer;
    if (buffer == &mpi_fortran_in_place_)
        return MPI_IN_PLACE;
    return buffer == &mpi_fortran_bottom_ ? MPI_BOTTOM : buffer;
}

/// The datatypes of an alltoallw. In place there need not be any.
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

/// Defines ompi_LOWER_f (or ompix_), and the manglings of mpi_LOWER as other names of it.
#define NAMES(PREFIX, BIG, LOWER, UPPER, PARAMETERS)                                                     \
    extern "C" void o##PREFIX##_##LOWER##_f PARAMETERS;                                                  \
    extern "C" void PREFIX##_##LOWER PARAMETERS __attribute__((alias("o" #PREFIX "_" #LOWER "_f")));     \
    extern "C" void PREFIX##_##LOWER##_ PARAMETERS __attribute__((alias("o" #PREFIX "_" #LOWER "_f")));  \
    extern "C" void PREFIX##_##LOWER##__ PARAMETERS __attribute__((alias("o" #PREFIX "_" #LOWER "_f"))); \
    extern "C" void BIG##_##UPPER PARAMETERS __attribute__((alias("o" #PREFIX "_" #LOWER "_f")));        \
    void o##PREFIX##_##LOWER##_f PARAMETERS

#define LIST(...) __VA_ARGS__

NAMES(mpi, MPI, init, INIT, (MPI_Fint * ierror)) {
    flx::preload::refuse_other_mpi();
    int argc = 0;
    char **argv = nullptr;
    const int code = FLX_NEXT(Init)(&argc, &argv);
    if (code == MPI_SUCCESS)
        Library::instance().begin();
    answer(ierror, code);
}

NAMES(mpi, MPI, init_thread, INIT_THREAD, (const MPI_Fint *required, MPI_Fint *provided, MPI_Fint *ierror)) {
    flx::preload::refuse_other_mpi();
    int argc = 0;
    char **argv = nullptr;
    int given = 0;
    const int code = FLX_NEXT(Init_thread)(&argc, &argv, *required, &given);
    if (code == MPI_SUCCESS) {
        *provided = given;
        Library::instance().begin();
    }
    answer(ierror, code);
}

NAMES(mpi, MPI, start, START, (MPI_Fint * request, MPI_Fint *ierror)) {
    MPI_Request c_request = PMPI_Request_f2c(*request);
    const int code = MPI_Start(&c_request);
    if (code == MPI_SUCCESS)
        *request = PMPI_Request_c2f(c_request);
    answer(ierror, code);
}

NAMES(mpi, MPI, startall, STARTALL, (const MPI_Fint *count, MPI_Fint *requests, MPI_Fint *ierror)) {
    const int all = std::max(*count, 0);
    // Also where there are none MPI wants an array.
    std::vector<MPI_Request> c_requests(std::max(all, 1), MPI_REQUEST_NULL);
    for (int i = 0; i < all; ++i)
        c_requests[i] = PMPI_Request_f2c(requests[i]);
    const int code = MPI_Startall(*count, c_requests.data());
    for (int i = 0; i < all; ++i)
        requests[i] = PMPI_Request_c2f(c_requests[i]);
    answer(ierror, code);
}

NAMES(mpi, MPI, request_free, REQUEST_FREE, (MPI_Fint * request, MPI_Fint *ierror)) {
    MPI_Request c_request = PMPI_Request_f2c(*request);
    const int code = MPI_Request_free(&c_request);
    if (code == MPI_SUCCESS)
        *request = PMPI_Request_c2f(c_request);
    answer(ierror, code);
}

/// Those that make communicators. Topologies have arrays and constants of Fortran's, so MPI keeps those.
#define MAKES(LOWER, UPPER, PARAMETERS, CALL)                                             \
    NAMES(mpi, MPI, LOWER, UPPER, (PARAMETERS, MPI_Fint * new_comm, MPI_Fint * ierror)) { \
        MPI_Comm made = MPI_COMM_NULL;                                                    \
        const int code = CALL;                                                            \
        if (code == MPI_SUCCESS)                                                          \
            *new_comm = PMPI_Comm_c2f(made);                                              \
        answer(ierror, code);                                                             \
    }

MAKES(comm_dup, COMM_DUP, LIST(MPI_Fint *comm), MPI_Comm_dup(comm_of(comm), &made))
MAKES(comm_dup_with_info, COMM_DUP_WITH_INFO, LIST(MPI_Fint *comm, MPI_Fint *info),
      MPI_Comm_dup_with_info(comm_of(comm), PMPI_Info_f2c(*info), &made))
MAKES(comm_split, COMM_SPLIT, LIST(MPI_Fint *comm, MPI_Fint *color, MPI_Fint *key),
      MPI_Comm_split(comm_of(comm), *color, *key, &made))
MAKES(comm_split_type, COMM_SPLIT_TYPE, LIST(MPI_Fint *comm, MPI_Fint *type, MPI_Fint *key, MPI_Fint *info),
      MPI_Comm_split_type(comm_of(comm), *type, *key, PMPI_Info_f2c(*info), &made))
MAKES(comm_create, COMM_CREATE, LIST(MPI_Fint *comm, MPI_Fint *group),
      MPI_Comm_create(comm_of(comm), PMPI_Group_f2c(*group), &made))
MAKES(comm_create_group, COMM_CREATE_GROUP, LIST(MPI_Fint *comm, MPI_Fint *group, MPI_Fint *tag),
      MPI_Comm_create_group(comm_of(comm), PMPI_Group_f2c(*group), *tag, &made))
MAKES(intercomm_merge, INTERCOMM_MERGE, LIST(MPI_Fint *comm, MPI_Fint *high),
      MPI_Intercomm_merge(comm_of(comm), *high != 0 ? 1 : 0, &made))

NAMES(mpi, MPI, op_free, OP_FREE, (MPI_Fint * op, MPI_Fint *ierror)) {
    MPI_Op c_op = op_of(op);
    const int code = MPI_Op_free(&c_op);
    if (code == MPI_SUCCESS)
        *op = PMPI_Op_c2f(c_op);
    answer(ierror, code);
}

NAMES(mpi, MPI, type_free, TYPE_FREE, (MPI_Fint * type, MPI_Fint *ierror)) {
    MPI_Datatype c_type = type_of(type);
    const int code = MPI_Type_free(&c_type);
    if (code == MPI_SUCCESS)
        *type = PMPI_Type_c2f(c_type);
    answer(ierror, code);
}

namespace {

/// Runs one call; `call` takes How and C's communicator.
template <typename Body>
void serve(Form form, const MPI_Fint *comm, const MPI_Fint *info, MPI_Fint *request, MPI_Fint *ierror, Body &&call) {
    MPI_Comm c_comm = comm_of(comm);
    MPI_Request c_request = MPI_REQUEST_NULL;
    const How how{form, &c_request, info != nullptr ? PMPI_Info_f2c(*info) : MPI_INFO_NULL};
    const int code = guarded(c_comm, [&] { return call(how, c_comm); });
    if (request != nullptr && code == MPI_SUCCESS)
        *request = PMPI_Request_c2f(c_request);
    answer(ierror, code);
}

}  // namespace

#define SERVE(LOWER, FORM, INFO, REQUEST, ARGUMENTS) \
    serve(Form::FORM, comm, INFO, REQUEST, ierror,   \
          [&](const How &how, MPI_Comm c_comm) { return flx::preload::LOWER(how, ARGUMENTS c_comm); })

#define PERSISTENT_NAMES(PREFIX, BIG, LOWER, UPPER, PARAMETERS, ARGUMENTS)                                \
    NAMES(PREFIX, BIG, LOWER##_init, UPPER##_INIT,                                                        \
          (PARAMETERS const MPI_Fint *comm, const MPI_Fint *info, MPI_Fint *request, MPI_Fint *ierror)) { \
        SERVE(LOWER, persistent, info, request, LIST(ARGUMENTS));                                         \
    }
#ifdef OMPI_HAVE_MPI_EXT_PCOLLREQ
#define PERSISTENT(LOWER, UPPER, PARAMETERS, ARGUMENTS) \
    PERSISTENT_NAMES(mpix, MPIX, LOWER, UPPER, LIST(PARAMETERS), LIST(ARGUMENTS))
#elif defined FLX_MPI_PERSISTENT
#define PERSISTENT(LOWER, UPPER, PARAMETERS, ARGUMENTS) \
    PERSISTENT_NAMES(mpi, MPI, LOWER, UPPER, LIST(PARAMETERS), LIST(ARGUMENTS))
#else
#define PERSISTENT(LOWER, UPPER, PARAMETERS, ARGUMENTS)
#endif

/// Defines a collective in all forms.
#define FORMS(LOWER, UPPER, PARAMETERS, ARGUMENTS)                                                                \
    NAMES(mpi, MPI, LOWER, UPPER, (PARAMETERS const MPI_Fint *comm, MPI_Fint *ierror)) {                          \
        SERVE(LOWER, blocking, nullptr, nullptr, LIST(ARGUMENTS));                                                \
    }                                                                                                             \
    NAMES(mpi, MPI, i##LOWER, I##UPPER, (PARAMETERS const MPI_Fint *comm, MPI_Fint *request, MPI_Fint *ierror)) { \
        SERVE(LOWER, nonblocking, nullptr, request, LIST(ARGUMENTS));                                             \
    }                                                                                                             \
    PERSISTENT(LOWER, UPPER, LIST(PARAMETERS), LIST(ARGUMENTS))

FORMS(allgather, ALLGATHER,
      LIST(void *sendbuf, const MPI_Fint *sendcount, const MPI_Fint *sendtype, void *recvbuf, const MPI_Fint *recvcount,
           const MPI_Fint *recvtype, ),
      LIST(buffer_of(sendbuf), *sendcount, type_of(sendtype), buffer_of(recvbuf), *recvcount, type_of(recvtype), ))
FORMS(allgatherv, ALLGATHERV,
      LIST(void *sendbuf, const MPI_Fint *sendcount, const MPI_Fint *sendtype, void *recvbuf,
           const MPI_Fint *recvcounts, const MPI_Fint *displs, const MPI_Fint *recvtype, ),
      LIST(buffer_of(sendbuf), *sendcount, type_of(sendtype), buffer_of(recvbuf), recvcounts, displs,
           type_of(recvtype), ))
FORMS(allreduce, ALLREDUCE,
      LIST(void *sendbuf, void *recvbuf, const MPI_Fint *count, const MPI_Fint *type, const MPI_Fint *op, ),
      LIST(buffer_of(sendbuf), buffer_of(recvbuf), *count, type_of(type), op_of(op), ))
FORMS(alltoall, ALLTOALL,
      LIST(void *sendbuf, const MPI_Fint *sendcount, const MPI_Fint *sendtype, void *recvbuf, const MPI_Fint *recvcount,
           const MPI_Fint *recvtype, ),
      LIST(buffer_of(sendbuf), *sendcount, type_of(sendtype), buffer_of(recvbuf), *recvcount, type_of(recvtype), ))
FORMS(alltoallv, ALLTOALLV,
      LIST(void *sendbuf, const MPI_Fint *sendcounts, const MPI_Fint *sdispls, const MPI_Fint *sendtype, void *recvbuf,
           const MPI_Fint *recvcounts, const MPI_Fint *rdispls, const MPI_Fint *recvtype, ),
      LIST(buffer_of(sendbuf), sendcounts, sdispls, type_of(sendtype), buffer_of(recvbuf), recvcounts, rdispls,
           type_of(recvtype), ))
FORMS(alltoallw, ALLTOALLW,
      LIST(void *sendbuf, const MPI_Fint *sendcounts, const MPI_Fint *sdispls, const MPI_Fint *sendtypes, void *recvbuf,
           const MPI_Fint *recvcounts, const MPI_Fint *rdispls, const MPI_Fint *recvtypes, ),
      LIST(buffer_of(sendbuf), sendcounts, sdispls, types_of(sendtypes, c_comm, buffer_of(sendbuf)).data(),
           buffer_of(recvbuf), recvcounts, rdispls, types_of(recvtypes, c_comm, buffer_of(recvbuf)).data(), ))
FORMS(barrier, BARRIER, LIST(), LIST())
FORMS(bcast, BCAST, LIST(void *buffer, const MPI_Fint *count, const MPI_Fint *type, const MPI_Fint *root, ),
      LIST(buffer_of(buffer), *count, type_of(type), *root, ))
FORMS(exscan, EXSCAN,
      LIST(void *sendbuf, void *recvbuf, const MPI_Fint *count, const MPI_Fint *type, const MPI_Fint *op, ),
      LIST(buffer_of(sendbuf), buffer_of(recvbuf), *count, type_of(type), op_of(op), ))
FORMS(gather, GATHER,
      LIST(void *sendbuf, const MPI_Fint *sendcount, const MPI_Fint *sendtype, void *recvbuf, const MPI_Fint *recvcount,
           const MPI_Fint *recvtype, const MPI_Fint *root, ),
      LIST(buffer_of(sendbuf), *sendcount, type_of(sendtype), buffer_of(recvbuf), *recvcount, type_of(recvtype),
           *root, ))
FORMS(gatherv, GATHERV,
      LIST(void *sendbuf, const MPI_Fint *sendcount, const MPI_Fint *sendtype, void *recvbuf,
           const MPI_Fint *recvcounts, const MPI_Fint *displs, const MPI_Fint *recvtype, const MPI_Fint *root, ),
      LIST(buffer_of(sendbuf), *sendcount, type_of(sendtype), buffer_of(recvbuf), recvcounts, displs, type_of(recvtype),
           *root, ))
FORMS(reduce, REDUCE,
      LIST(void *sendbuf, void *recvbuf, const MPI_Fint *count, const MPI_Fint *type, const MPI_Fint *op,
           const MPI_Fint *root, ),
      LIST(buffer_of(sendbuf), buffer_of(recvbuf), *count, type_of(type), op_of(op), *root, ))
FORMS(reduce_scatter, REDUCE_SCATTER,
      LIST(void *sendbuf, void *recvbuf, const MPI_Fint *recvcounts, const MPI_Fint *type, const MPI_Fint *op, ),
      LIST(buffer_of(sendbuf), buffer_of(recvbuf), recvcounts, type_of(type), op_of(op), ))
FORMS(reduce_scatter_block, REDUCE_SCATTER_BLOCK,
      LIST(void *sendbuf, void *recvbuf, const MPI_Fint *recvcount, const MPI_Fint *type, const MPI_Fint *op, ),
      LIST(buffer_of(sendbuf), buffer_of(recvbuf), *recvcount, type_of(type), op_of(op), ))
FORMS(scan, SCAN, LIST(void *sendbuf, void *recvbuf, const MPI_Fint *count, const MPI_Fint *type, const MPI_Fint *op, ),
      LIST(buffer_of(sendbuf), buffer_of(recvbuf), *count, type_of(type), op_of(op), ))
FORMS(scatter, SCATTER,
      LIST(void *sendbuf, const MPI_Fint *sendcount, const MPI_Fint *sendtype, void *recvbuf, const MPI_Fint *recvcount,
           const MPI_Fint *recvtype, const MPI_Fint *root, ),
      LIST(buffer_of(sendbuf), *sendcount, type_of(sendtype), buffer_of(recvbuf), *recvcount, type_of(recvtype),
           *root, ))
FORMS(scatterv, SCATTERV,
      LIST(void *sendbuf, const MPI_Fint *sendcounts, const MPI_Fint *displs, const MPI_Fint *sendtype, void *recvbuf,
           const MPI_Fint *recvcount, const MPI_Fint *recvtype, const MPI_Fint *root, ),
      LIST(buffer_of(sendbuf), sendcounts, displs, type_of(sendtype), buffer_of(recvbuf), *recvcount, type_of(recvtype),
           *root, ))

#pragma GCC visibility pop
