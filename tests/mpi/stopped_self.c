// A rank that was stopped and goes on has waited for long by the clock, which is nobody's fault: it must not warn.
#include <flx.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    setenv("FLX_LATE_WARNING", "3", 1);
    MPI_Init(&argc, &argv);
    int rank = 0;
    int pid = getpid();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Bcast(&pid, 1, MPI_INT, 0, MPI_COMM_WORLD);  // rank 0's
    flx_comm_t comm;
    if (flx_comm_create(MPI_COMM_WORLD, NULL, &comm) != FLX_SUCCESS)
        return 1;
    float number = 1;
    if (rank == 1) {
        usleep(500000);
        kill(pid, SIGSTOP);
        sleep(4);
        kill(pid, SIGCONT);
        usleep(800000);
    }
    if (flx_allreduce(FLX_IN_PLACE, &number, 1, FLX_F32, FLX_SUM, comm) != FLX_SUCCESS || number != 2)
        return 1;
    flx_comm_free(&comm);
    MPI_Finalize();
    if (rank == 0)
        puts("right");
    return 0;
}
