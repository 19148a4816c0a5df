/// The table of libflx_with_mpi.so, the one place that is linked with MPI.
#include "runtime/process/mpi_part.h"

extern "C" FLX_API const flx::MpiPart flx_mpi_part = {
    flx::MpiPart::kVersion,
    sizeof(flx::MpiPart),
    PMPI_Initialized,
    PMPI_Finalized,
    PMPI_Query_thread,
    PMPI_Error_string,
    PMPI_Comm_rank,
    PMPI_Comm_size,
    PMPI_Comm_test_inter,
    PMPI_Comm_set_errhandler,
    PMPI_Comm_split,
    PMPI_Comm_dup,
    PMPI_Comm_free,
    PMPI_Allgather,
    PMPI_Barrier,
    PMPI_Ibarrier,
    PMPI_Test,
    PMPI_Iprobe,
    MPI_COMM_WORLD,
    MPI_COMM_NULL,
    MPI_REQUEST_NULL,
    MPI_BYTE,
    MPI_ERRORS_RETURN,
};
