/* What a program pays for being started by flx-run before it communicates much. Rank 0 prints, in milliseconds,
   MPI_Init to MPI_Finalize with one barrier between, the first allreduce on a duplicate, 200 communicators of random
   groups that are made, used for a barrier and freed, and in bytes what 40 duplicates with a barrier each take of
   /dev/shm. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <time.h>

enum { kGroups = 200, kDuplicates = 40 };

static double now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return 1e3 * (double)time.tv_sec + 1e-6 * (double)time.tv_nsec;
}

static double shared_bytes(void) {
    struct statvfs space;
    if (statvfs("/dev/shm", &space) != 0)
        return 0;
    return (double)(space.f_blocks - space.f_bfree) * (double)space.f_frsize;
}

/* The same on all ranks. */
static uint32_t next(uint32_t *state) {
    *state = *state * 1664525U + 1013904223U;
    return *state >> 16U;
}

static double random_groups(int size) {
    MPI_Group world = MPI_GROUP_NULL;
    int *members = malloc((size_t)size * sizeof *members);
    uint32_t state = 1;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Barrier(MPI_COMM_WORLD);
    const double began = now_ms();
    for (int i = 0; i < kGroups; ++i) {
        int count = 0;
        for (int rank = 0; rank < size; ++rank)
            if (next(&state) % 2 == 0)
                members[count++] = rank;
        MPI_Group group = MPI_GROUP_NULL;
        MPI_Comm comm = MPI_COMM_NULL;
        MPI_Group_incl(world, count, members, &group);
        MPI_Comm_create(MPI_COMM_WORLD, group, &comm);
        if (comm != MPI_COMM_NULL) {
            MPI_Barrier(comm);
            MPI_Comm_free(&comm);
        }
        MPI_Group_free(&group);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const double took = now_ms() - began;
    MPI_Group_free(&world);
    free(members);
    return took;
}

int main(int argc, char **argv) {
    const double started = now_ms();
    MPI_Init(&argc, &argv);
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Barrier(MPI_COMM_WORLD);
    double duplicate = 0;
    double groups = 0;
    double bytes = 0;
    if (argc > 1) { /* else: the start alone */
        MPI_Comm comms[kDuplicates];
        double mine = rank;
        double sum = 0;
        const double before = shared_bytes();
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[0]);
        const double began = now_ms();
        MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, comms[0]);
        duplicate = now_ms() - began;
        if (sum != size * (size - 1) / 2.0)
            MPI_Abort(MPI_COMM_WORLD, 1);
        for (int i = 1; i < kDuplicates; ++i) {
            MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
            MPI_Barrier(comms[i]);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        bytes = shared_bytes() - before;
        for (int i = 0; i < kDuplicates; ++i)
            MPI_Comm_free(&comms[i]);
        groups = random_groups(size);
    }
    MPI_Finalize();
    if (rank == 0)
        printf("start to end %.1f ms, first on a duplicate %.3f ms, groups %.1f ms, duplicates %.0f bytes\n",
               now_ms() - started, duplicate, groups, bytes);
    return 0;
}
