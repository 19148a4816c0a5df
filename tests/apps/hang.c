/// A program that makes calls and then does not go on, in one way or another:
///   hang HOW [RANK [CALLS]]    after CALLS calls (100) rank RANK (1) computes, sleeps, stops or waits in MPI
///                              (compute, sleep, stop, early), calls another collective or another size (mismatch,
///                              size), or uses two communicators in another order (crossed); loop: all make calls
///                              until the program is ended; large: calls of 4 MiB; sleep-all: as sleep, and the others
///                              wait for two non-blocking calls by flx_wait_all
/// Its ranks are ended by SIGTERM.
#include <flx.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/// Signals that have handlers change nothing.
static void rest(void) {
    for (;;)
        pause();
}

static void require(flx_status_t status) {
    if (status == FLX_SUCCESS)
        return;
    fprintf(stderr, "%s\n", flx_last_error());
    rest();  // whoever looks finds the process
}

static float value[1 << 20];

static void sum(size_t count, flx_comm_t comm) {
    require(flx_allreduce(FLX_IN_PLACE, value, count, FLX_F32, FLX_SUM, comm));
}

static void both(flx_comm_t comm) {
    flx_request_t requests[2];
    for (int i = 0; i < 2; ++i)
        require(flx_iallreduce(FLX_IN_PLACE, value + i, 1, FLX_F32, FLX_SUM, comm, &requests[i]));
    require(flx_wait_all(2, requests));
}

static void compute(void) {
    for (volatile long turns = 0;; ++turns) {
    }
}

static void deviate(const char *how, flx_comm_t comm, flx_comm_t other) {
    if (strcmp(how, "compute") == 0)
        compute();
    if (strcmp(how, "sleep") == 0 || strcmp(how, "sleep-all") == 0)
        rest();
    if (strcmp(how, "stop") == 0)
        raise(SIGSTOP);
    if (strcmp(how, "early") == 0)
        MPI_Barrier(MPI_COMM_WORLD);
    if (strcmp(how, "mismatch") == 0)
        require(flx_bcast(value, 1024, FLX_F32, 0, comm));
    if (strcmp(how, "size") == 0)
        sum(1000, comm);
    if (strcmp(how, "crossed") == 0)
        sum(2, other);
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "loop";
    const int odd = argc > 2 ? atoi(argv[2]) : 1;
    const int calls = argc > 3 ? atoi(argv[3]) : 100;
    int rank = 0;
    flx_comm_t comm = NULL;
    flx_comm_t other = NULL;
    flx_config_t config = FLX_CONFIG_INIT;
    config.deadline_s = 600;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    require(flx_comm_create(MPI_COMM_WORLD, &config, &comm));
    require(flx_comm_dup(comm, &other));
    for (int call = 0; call < calls; ++call)
        sum(2, comm);
    if (rank == odd)
        deviate(how, comm, other);
    if (strcmp(how, "sleep-all") == 0)
        both(comm);
    do
        sum(strcmp(how, "large") == 0 ? sizeof value / sizeof value[0] : 2, comm);
    while (strcmp(how, "loop") == 0 || strcmp(how, "large") == 0);
    if (strcmp(how, "crossed") == 0)
        sum(2, other);
    rest();
}
