/* A program of MPI's that may not go on: seen HOW RANK CALLS. After CALLS barriers all are in a broadcast of 64 bytes
   from RANK, which sleeps (sleep), calls an allreduce (mismatch), or has done so on a copy of the communicator, on
   which the others have made a call before (copy), or on one of two copies, to whose first calls it came in another
   order (order). end: all of them end; sums: sums come before, as many. Its ranks are ended by SIGTERM. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "end";
    const int odd = argc > 2 ? atoi(argv[2]) : 1;
    const int calls = argc > 3 ? atoi(argv[3]) : 100;
    char text[64] = "";
    int rank = 0;
    MPI_Comm comm = MPI_COMM_WORLD;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int call = 0; call < calls; ++call) {
        int sum = 1;
        if (strcmp(how, "sums") == 0)
            MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, comm);
        else
            MPI_Barrier(comm);
    }
    if (strcmp(how, "copy") == 0)
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    if (strcmp(how, "order") == 0) {
        MPI_Comm copies[2];
        MPI_Request requests[2];
        MPI_Comm_dup(MPI_COMM_WORLD, &copies[0]);
        MPI_Comm_dup(MPI_COMM_WORLD, &copies[1]);
        for (int i = 0; i < 2; ++i)
            MPI_Ibarrier(copies[rank == odd ? 1 - i : i], &requests[i]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        MPI_Barrier(copies[1]);
        comm = copies[0];
    }
    if (rank == odd && strcmp(how, "mismatch") == 0) {
        int sum = 1;
        MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, comm);
    } else if (rank == odd && strcmp(how, "end") != 0) {
        for (;;)
            pause();
    }
    MPI_Bcast(text, sizeof text, MPI_CHAR, odd, comm);
    if (strcmp(how, "end") != 0)
        for (;;)
            pause();
    MPI_Finalize();
    return 0;
}
