// Run under ci/rails mpirun: sums 1 MiB over all ranks and checks it. Rank 0 prints the number of different hosts, by
// boot id, that the ranks saw.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kCount = 1 << 18, kId = 40 };

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int *data = malloc(kCount * sizeof *data);
    char mine[kId] = "";
    char *all = malloc((size_t)size * kId);
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (data == NULL || all == NULL || file == NULL || fgets(mine, kId, file) == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 1);
        return 1;
    }
    fclose(file);
    for (int i = 0; i < kCount; i++) {
        data[i] = i + rank;
    }
    MPI_Allreduce(MPI_IN_PLACE, data, kCount, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    int wrong = 0;
    for (int i = 0; i < kCount; i++) {
        wrong += data[i] != i * size + size * (size - 1) / 2;
    }
    MPI_Gather(mine, kId, MPI_CHAR, all, kId, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        int hosts = 0;
        for (int r = 0; r < size; r++) {
            int seen = 0;
            for (int q = 0; q < r; q++) {
                seen |= memcmp(all + (size_t)q * kId, all + (size_t)r * kId, kId) == 0;
            }
            hosts += !seen;
        }
        printf("ranks=%d hosts=%d wrong=%d\n", size, hosts, wrong);
    }
    free(data);
    free(all);
    MPI_Finalize();
    return wrong != 0;
}
