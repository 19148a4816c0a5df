/// Sums one after another while outage_test.sh cuts every rail between the ranks: `outage FILE` goes on until the file
/// is there, prints "begun" after the first one, and "right" if all were.
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

enum { kCount = 1 << 16 };
static int in[kCount];
static int out[kCount];

int main(int argc, char **argv) {
    int rank;
    int ranks;
    int wrong = 0;
    int enough = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int round = 0; !enough; ++round) {
        for (int i = 0; i < kCount; ++i)
            in[i] = rank + i + round;
        MPI_Allreduce(in, out, kCount, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < kCount; ++i)
            wrong += out[i] != ranks * (ranks - 1) / 2 + ranks * (i + round);
        if (rank == 0 && round == 0) {
            printf("begun\n");
            fflush(stdout);
        }
        const int mine = argc < 2 || access(argv[1], F_OK) == 0;
        MPI_Allreduce(&mine, &enough, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    }
    int all = 0;
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf(all == 0 ? "right\n" : "wrong\n");
    MPI_Finalize();
    return all != 0;
}
