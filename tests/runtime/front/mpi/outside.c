/// The program's own traffic to a rank that waits in a collective: synchronous sends, and locks of a window. Run under
/// the drop-in library: once the others wait in its barrier, once in MPI's own, by turns, and it says "right" if the
/// former takes no more than a few times as long.
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

enum { kOperations = 1000, kTurns = 5, kLong = 2048, kWhats = 3 };
static const char *const whats[kWhats] = {"synchronous send of 4 B", "synchronous send of 8 KiB",
                                          "lock, fetch_and_op, unlock"};
static const double most = 6;
static int rank;
static int data[kLong];

/// Microseconds each, on rank 0.
static double operate(int what, int (*barrier)(MPI_Comm), MPI_Win window) {
    static MPI_Request requests[kOperations];
    static int numbers[kOperations][kLong];
    const int count = what == 1 ? kLong : 1;
    const int one = 1;
    int before = 0;
    double took = 0;
    if (rank == 1 && what < 2)
        for (int i = 0; i < kOperations; ++i)
            MPI_Irecv(numbers[i], count, MPI_INT, 0, i, MPI_COMM_WORLD, requests + i);
    PMPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        usleep(10000);  // they have waited for a while
        took = MPI_Wtime();
        for (int i = 0; i < kOperations; ++i) {
            if (what < 2) {
                MPI_Ssend(data, count, MPI_INT, 1, i, MPI_COMM_WORLD);
                continue;
            }
            MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, window);
            MPI_Fetch_and_op(&one, &before, MPI_INT, 1, 0, MPI_SUM, window);
            MPI_Win_unlock(1, window);
        }
        took = 1e6 * (MPI_Wtime() - took) / kOperations;
    }
    barrier(MPI_COMM_WORLD);
    if (rank == 1 && what < 2)
        MPI_Waitall(kOperations, requests, MPI_STATUSES_IGNORE);
    return took;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Win window;
    MPI_Win_create(data, sizeof data, sizeof data[0], MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    for (int i = 0; i < 20; ++i)
        MPI_Barrier(MPI_COMM_WORLD);
    int right = 1;
    for (int what = 0; what < kWhats; ++what) {
        double with = 0;
        double without = 0;
        for (int turn = 0; turn < kTurns; ++turn) {  // the least of each: others may want the cores, too
            const double mine = operate(what, MPI_Barrier, window);
            const double theirs = operate(what, PMPI_Barrier, window);
            with = turn == 0 || mine < with ? mine : with;
            without = turn == 0 || theirs < without ? theirs : without;
        }
        if (rank == 0)
            fprintf(stderr, "%s: %.1f us while the others wait in FLX, %.1f in MPI\n", whats[what], with, without);
        right = right && with <= most * without;
    }
    if (rank == 0)
        puts(right ? "right" : "slow");
    MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}
