/// The names that Fortran programs call where MPI is MPICH. Those of mpif.h and `use mpi`, and what has a buffer in
/// `use mpi_f08`, call C's names, which this library has. The rest of `use mpi_f08` goes straight to PMPI_: here is
/// what the library must see of it. Handles of mpi_f08 are structs of one integer, and `ierror` may be left out.
#include "runtime/front/mpi/calls.h"

namespace {

void answer(MPI_Fint *ierror, int code) {
    if (ierror != nullptr)
        *ierror = code;
}

}  // namespace

#pragma GCC visibility push(default)

extern "C" {

// NOLINTBEGIN(readability-identifier-naming): MPICH names them
void mpi_init_f08_(MPI_Fint *ierror) {
    answer(ierror, MPI_Init(nullptr, nullptr));
}

void mpi_init_thread_f08_(const MPI_Fint *required, MPI_Fint *provided, MPI_Fint *ierror) {
    answer(ierror, MPI_Init_thread(nullptr, nullptr, *required, provided));
}

void mpi_barrier_f08_(const MPI_Fint *comm, MPI_Fint *ierror) {
    answer(ierror, MPI_Barrier(PMPI_Comm_f2c(*comm)));
}

void mpi_ibarrier_f08_(const MPI_Fint *comm, MPI_Fint *request, MPI_Fint *ierror) {
    MPI_Request c_request = MPI_REQUEST_NULL;
    const int code = MPI_Ibarrier(PMPI_Comm_f2c(*comm), &c_request);
    if (code == MPI_SUCCESS)
        *request = PMPI_Request_c2f(c_request);
    answer(ierror, code);
}

void mpi_op_free_f08_(MPI_Fint *op, MPI_Fint *ierror) {
    MPI_Op c_op = PMPI_Op_f2c(*op);
    const int code = MPI_Op_free(&c_op);
    *op = PMPI_Op_c2f(c_op);
    answer(ierror, code);
}

void mpi_type_free_f08_(MPI_Fint *type, MPI_Fint *ierror) {
    MPI_Datatype c_type = PMPI_Type_f2c(*type);
    const int code = MPI_Type_free(&c_type);
    *type = PMPI_Type_c2f(c_type);
    answer(ierror, code);
}
// NOLINTEND(readability-identifier-naming)
}  // extern "C"

#pragma GCC visibility pop
