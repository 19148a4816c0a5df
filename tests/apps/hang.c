/// A program that makes calls and then does not go on, in one way or another:
///   hang HOW    rank 1 computes, sleeps or stops (compute, sleep, stop), or calls something else than the others
///               (mismatch); loop: all make calls until the program is ended
/// Its ranks are ended by SIGTERM.
#include <flx.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void require(flx_status_t status) {
    if (status == FLX_SUCCESS)
        return;
    fprintf(stderr, "%s\n", flx_last_error());
    pause();  // whoever looks finds the process
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "loop";
    int rank = 0;
    float value[1024] = {0};
    flx_comm_t comm = NULL;
    flx_config_t config = FLX_CONFIG_INIT;
    config.deadline_s = 600;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    require(flx_comm_create(MPI_COMM_WORLD, &config, &comm));
    for (int call = 0; call < 100; ++call)
        require(flx_allreduce(FLX_IN_PLACE, value, 2, FLX_F32, FLX_SUM, comm));
    if (rank == 1 && strcmp(how, "compute") == 0)
        for (volatile long turns = 0;; ++turns) {
        }
    if (rank == 1 && strcmp(how, "sleep") == 0)
        pause();
    if (rank == 1 && strcmp(how, "stop") == 0)
        raise(SIGSTOP);
    if (rank == 1 && strcmp(how, "mismatch") == 0)
        require(flx_bcast(value, 1024, FLX_F32, 0, comm));
    do
        require(flx_allreduce(FLX_IN_PLACE, value, 2, FLX_F32, FLX_SUM, comm));
    while (strcmp(how, "loop") == 0);
    pause();
    return 0;
}
