/// \file mpi_part.h
/// What FLX needs of MPI, as a table that a library of its own has, libflx_with_mpi.so. bootstrap_mpi.cpp loads it when
/// a program first hands FLX an MPI_Comm, so that programs whose ranks meet in a store need no MPI.
#pragma once

#include <mpi.h>

#include <cstdint>

#include "runtime/include/flx.h"

namespace flx {

/// MPI's functions by their PMPI_ names, since a library in front of it (runtime/front/mpi) may lead the others to FLX;
/// and those of its constants that are addresses in some MPI.
struct MpiPart {
    uint64_t version;  ///< kVersion of the FLX that it belongs to; a table of another has other members after it
    uint64_t size;     ///< of the table
    decltype(&PMPI_Initialized) initialized;
    decltype(&PMPI_Finalized) finalized;
    decltype(&PMPI_Query_thread) query_thread;
    decltype(&PMPI_Error_string) error_string;
    decltype(&PMPI_Comm_rank) comm_rank;
    decltype(&PMPI_Comm_size) comm_size;
    decltype(&PMPI_Comm_test_inter) comm_test_inter;
    decltype(&PMPI_Comm_set_errhandler) comm_set_errhandler;
    decltype(&PMPI_Comm_split) comm_split;
    decltype(&PMPI_Comm_dup) comm_dup;
    decltype(&PMPI_Comm_free) comm_free;
    decltype(&PMPI_Allgather) allgather;
    decltype(&PMPI_Barrier) barrier;
    decltype(&PMPI_Ibarrier) ibarrier;
    decltype(&PMPI_Test) test;
    decltype(&PMPI_Iprobe) iprobe;
    MPI_Comm world;
    MPI_Comm no_comm;
    MPI_Request no_request;
    MPI_Datatype byte;
    MPI_Errhandler errors_return;

    static constexpr uint64_t kVersion =
        (uint64_t{FLX_VERSION_MAJOR} * 1000 + FLX_VERSION_MINOR) * 1000 + FLX_VERSION_PATCH;
};

}  // namespace flx

/// The table's name in the library.
extern "C" FLX_API const flx::MpiPart flx_mpi_part;
