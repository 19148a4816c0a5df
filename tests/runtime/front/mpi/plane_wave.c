/* Communicates as a plane-wave code does: recorded calls, without the physics. Each step transforms a few bands there
   and back. A transform is computing, an alltoall that turns columns into planes, computing, and every other transform
   ends with a sum over the grid, as energies do. Steps end with barriers.
     plane_wave [STEPS [BYTES [MICROSECONDS [time]]]]   bytes that a rank sends in an alltoall; computing before each
   The defaults are the recorded run: 18,000 alltoalls of 150,000 bytes and 4,000 barriers. Rank 0 prints what the ranks
   got, as a sum over all, and with `time` how long it took: `seconds: 3.141`. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { kBands = 9, kBarriers = 2, kRecordedSteps = 2000 };

static void compute(double microseconds) {
    const double end = MPI_Wtime() + microseconds * 1e-6;
    while (MPI_Wtime() < end) {
    }
}

/* Element `i` of what `from` has for `to` in call `call`. */
static uint32_t value(int from, int to, long call, int i) {
    return (uint32_t)from * 2654435761u + (uint32_t)to * 40503u + (uint32_t)call * 97u + (uint32_t)i;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    const int steps = argc > 1 ? atoi(argv[1]) : kRecordedSteps;
    const int bytes = argc > 2 ? atoi(argv[2]) : 150000;
    const double microseconds = argc > 3 ? atof(argv[3]) : 20;
    int rank = 0;
    int ranks = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int each = bytes / (int)sizeof(uint32_t) / ranks;
    uint32_t *columns = malloc((size_t)each * (size_t)ranks * sizeof *columns);
    uint32_t *planes = malloc((size_t)each * (size_t)ranks * sizeof *planes);
    if (steps < 1 || each < 1 || columns == NULL || planes == NULL) {
        fprintf(stderr, "plane_wave: needs a step, an element for each rank, and memory\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    uint64_t got = 0;
    uint64_t wrong = 0;
    long call = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int step = 0; step < steps; ++step) {
        for (int band = 0; band < kBands; ++band, ++call) {
            compute(microseconds);
            /* A few elements of each block say which call it is; all are looked at now and then. */
            const int whole = call % 64 == 0;
            const int stride = whole ? 1 : each > 7 ? each / 7 : 1;
            for (int to = 0; to < ranks; ++to)
                for (int i = 0; i < each; i += stride)
                    columns[to * each + i] = value(rank, to, call, i);
            MPI_Alltoall(columns, each, MPI_UINT32_T, planes, each, MPI_UINT32_T, MPI_COMM_WORLD);
            for (int from = 0; from < ranks; ++from)
                for (int i = 0; i < each; i += stride) {
                    wrong += planes[from * each + i] != value(from, rank, call, i);
                    got += planes[from * each + i];
                }
        }
        double energy[2] = {(double)step, 1};
        MPI_Allreduce(MPI_IN_PLACE, energy, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        wrong += energy[0] != (double)step * ranks || energy[1] != ranks;
        for (int barrier = 0; barrier < kBarriers; ++barrier)
            MPI_Barrier(MPI_COMM_WORLD);
    }
    const double seconds = MPI_Wtime() - begin;
    uint64_t all[2] = {got, wrong};
    MPI_Allreduce(MPI_IN_PLACE, all, 2, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%ld alltoalls of %d bytes: %llu, %llu wrong\n", call, each * ranks * (int)sizeof(uint32_t),
               (unsigned long long)all[0], (unsigned long long)all[1]);
        if (argc > 4)
            printf("seconds: %.3f\n", seconds);
    }
    free(columns);
    free(planes);
    MPI_Finalize();
    return all[1] == 0 ? 0 : 1;
}
