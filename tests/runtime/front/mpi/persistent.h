/* The name of a persistent collective: Open MPI 4.1 has them as an extension, under names of its own. */
#pragma once

#include <mpi.h>

#if MPI_VERSION >= 4 || (defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION >= 5)
#define PERSISTENT(NAME) MPI_##NAME##_init
#else
#include <mpi-ext.h>
#define PERSISTENT(NAME) MPIX_##NAME##_init
#endif
