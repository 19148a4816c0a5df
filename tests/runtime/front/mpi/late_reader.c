/// A reader that is late for a broadcast whose root goes on to an allgatherv in which it shows less than others do:
/// what was broadcast must stay until it is read. Says "right". `late_reader ROUNDS`.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kFirst = 1024, kLongest = 8192, kOthers = 3, kRanks = 16 };

int main(int argc, char **argv) {
    static unsigned char first[kFirst];
    static unsigned char own[kLongest];
    static unsigned char all[kRanks * kLongest];
    const int rounds = argc > 1 ? atoi(argv[1]) : 1000;
    int rank = 0;
    int ranks = 1;
    int wrong = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks > kRanks)
        MPI_Abort(MPI_COMM_WORLD, 2);
    int counts[kRanks];
    int places[kRanks];
    for (int i = 0; i < ranks; ++i) {
        counts[i] = i == 0 ? kFirst : kLongest;
        places[i] = i == 0 ? 0 : places[i - 1] + counts[i - 1];
    }
    for (int round = 0; round < rounds; ++round) {
        const unsigned char value = (unsigned char)(1 + round % 100);
        MPI_Barrier(MPI_COMM_WORLD);
        memset(first, rank == 0 ? value : 0, sizeof first);
        memset(own, 128 + rank, sizeof own);
        if (rank != 0)
            usleep(3000);
        MPI_Bcast(first, kFirst, MPI_BYTE, 0, MPI_COMM_WORLD);
        for (int i = 0; i < kFirst; ++i) {
            if (first[i] == value)
                continue;
            ++wrong;
            break;
        }
        for (int i = 0; i < kOthers; ++i) {
            long other = rank;
            MPI_Bcast(&other, 1, MPI_LONG, 0, MPI_COMM_WORLD);
            wrong += other != 0;
        }
        MPI_Allgatherv(own, counts[rank], MPI_BYTE, all, counts, places, MPI_BYTE, MPI_COMM_WORLD);
    }
    int sum = 0;
    MPI_Reduce(&wrong, &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0 && sum != 0)
        fprintf(stderr, "%d of %d broadcasts wrong\n", sum, rounds);
    if (rank == 0)
        puts(sum == 0 ? "right" : "wrong");
    MPI_Finalize();
    return 0;
}
