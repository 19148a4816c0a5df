/* Knows nothing of FLX. The last rank forks a child and is killed; the child lives on. How long the others take to
 * notice, in a call that they wait in: `noticed after 0.31 s: …`. While the child passed for its parent they would
 * wait, for a day. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(int argc, char **argv) {
    int rank, size, sum = 0, one = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == size - 1) {
        if (fork() == 0) {
            close(0);
            close(1);
            close(2);
            alarm(5);
            for (;;)
                pause();
        }
        usleep(200000);
        kill(getpid(), SIGKILL);
    }
    const double begin = now();
    const int status = MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    char text[MPI_MAX_ERROR_STRING + 1] = "no error";
    int length = 0;
    if (status != MPI_SUCCESS)
        MPI_Error_string(status, text, &length);
    printf("%s after %.2f s: %s\n", status != MPI_SUCCESS ? "noticed" : "passed", now() - begin, text);
    fflush(stdout);
    _exit(0);
}
