/// A tool between a program and MPI, as profilers are: what it has in front of MPI's other functions needs what its
/// MPI_Init and MPI_Init_thread have made.
#include <mpi.h>
#include <stdio.h>

static int begun;

int MPI_Init(int *argc, char ***argv) {
    begun = 1;
    return PMPI_Init(argc, argv);
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
    begun = 1;
    return PMPI_Init_thread(argc, argv, required, provided);
}

int MPI_Finalize(void) {
    printf("profiler: %s\n", begun ? "begun with the program" : "not begun");
    return PMPI_Finalize();
}
