/* A rank that is started by itself, without MPI: `store_ranks [--hosts=0,0,1,1] [die|twice|moves|forks]`, with
 * MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE in the environment. It is not even linked with MPI, and shows that none
 * was loaded. Exit codes: 0, 1 for a wrong result, 3 where no communicator was made (the sentence is printed). */
#include <flx.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kCount = 100000 };

static int rank;
static int size;

#define DIE(...)                            \
    do {                                    \
        fprintf(stderr, "rank %d: ", rank); \
        fprintf(stderr, __VA_ARGS__);       \
        fputc('\n', stderr);                \
        exit(1);                            \
    } while (0)
#define CHECK(call)                                        \
    do {                                                   \
        if ((call) != FLX_SUCCESS)                         \
            DIE("%s failed: %s", #call, flx_last_error()); \
    } while (0)

static void check_sum(flx_comm_t comm, const int *members, int count) {
    static long long in[kCount];
    static long long out[kCount];
    long long ranks = 0;
    for (int i = 0; i < count; ++i)
        ranks += members[i];
    for (int i = 0; i < kCount; ++i)
        in[i] = 3LL * i + rank;
    for (size_t length = 1; length <= kCount; length *= 10) {
        memset(out, 0, sizeof out);
        CHECK(flx_allreduce(in, out, length, FLX_INT64, FLX_SUM, comm));
        for (size_t i = 0; i < length; ++i)
            if (out[i] != 3LL * (long long)i * count + ranks)
                DIE("element %zu of %zu of a sum of %d ranks is %lld", i, length, count, out[i]);
    }
    flx_request_t request;
    CHECK(flx_iallreduce(in, out, 1000, FLX_INT64, FLX_MAX, comm, &request));
    CHECK(flx_wait(&request));
    if (out[7] != 21 + members[count - 1])
        DIE("element 7 of a maximum is %lld", out[7]);
}

static void check_no_mpi(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096];
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL)
        if (strstr(line, "/libmpi") != NULL)
            DIE("MPI was loaded: %s", line);
    if (maps == NULL)
        DIE("there are no maps to look at");
    fclose(maps);
}

/* Each rank's child is a rank, too, of a communicator of children. One is late for longer than FLX_DEADLINE. */
static void check_children(const int *members) {
    const pid_t child = fork();
    if (child == 0) {
        flx_comm_t children;
        setenv("MASTER_PORT", getenv("CHILDREN_PORT"), 1);
        CHECK(flx_comm_create_from_store(NULL, 0, -1, 0, NULL, &children));
        if (rank == 1)
            sleep(4);
        check_sum(children, members, size);
        CHECK(flx_comm_free(&children));
        _exit(0);
    }
    int status = -1;
    if (waitpid(child, &status, 0) != child || status != 0)
        DIE("its child ended with %d", status);
}

/* A comma apart: which host each rank is on. */
static void take_host(const char *hosts, int of) {
    for (int i = 0; i < of && hosts != NULL; ++i) {
        hosts = strchr(hosts, ',');
        hosts = hosts == NULL ? NULL : hosts + 1;
    }
    char name[32];
    snprintf(name, sizeof name, "host%d", hosts == NULL ? 0 : atoi(hosts));
    setenv("FLX_HOST_ID", name, 1);
}

int main(int argc, char **argv) {
    const char *mode = "";
    for (int i = 1; i < argc; ++i)
        if (strncmp(argv[i], "--hosts=", 8) == 0)
            take_host(argv[i] + 8, getenv("RANK") == NULL ? 0 : atoi(getenv("RANK")));
        else
            mode = argv[i];
    flx_comm_t world;
    const flx_status_t made = flx_comm_create_from_store(NULL, 0, -1, 0, NULL, &world);
    if (made != FLX_SUCCESS) {
        printf("%d %s\n", made, flx_last_error());
        return 3;
    }
    CHECK(flx_comm_rank(world, &rank));
    CHECK(flx_comm_size(world, &size));
    if (strcmp(mode, "die") == 0) {
        if (rank == 1)
            kill(getpid(), SIGKILL);
        long long in = 1;
        long long out = 0;
        const flx_status_t status = flx_allreduce(&in, &out, 1, FLX_INT64, FLX_SUM, world);
        printf("%d %s\n", status, flx_last_error());
        return status == FLX_ERR_PEER ? 0 : 1;
    }
    if (strcmp(mode, "moves") == 0) {
        /* One rank makes a communicator while others still wait for what it has begun. */
        static long long in[20 * kCount];
        static long long out[20 * kCount];
        flx_request_t request;
        flx_comm_t second;
        CHECK(flx_iallreduce(in, out, 20L * kCount, FLX_INT64, FLX_SUM, world, &request));
        if (rank != 0)
            CHECK(flx_wait(&request));
        CHECK(flx_comm_create_from_store(NULL, 0, -1, 0, NULL, &second));
        if (rank == 0)
            CHECK(flx_wait(&request));
        CHECK(flx_comm_free(&second));
    }
    int members[256];
    for (int i = 0; i < size; ++i)
        members[i] = i;
    if (strcmp(mode, "forks") == 0)
        check_children(members);
    check_sum(world, members, size);

    /* Groups without rank 0 as well. */
    flx_comm_t half;
    CHECK(flx_comm_split(world, rank % 2, rank, &half));
    int of_half = 0;
    for (int i = rank % 2; i < size; i += 2)
        members[of_half++] = i;
    check_sum(half, members, of_half);
    flx_comm_t again;
    CHECK(flx_comm_dup(half, &again));
    CHECK(flx_comm_free(&half));
    check_sum(again, members, of_half);
    CHECK(flx_comm_free(&again));
    CHECK(flx_barrier(world));
    CHECK(flx_comm_free(&world));

    if (strcmp(mode, "twice") == 0) {
        for (int i = 0; i < size; ++i)
            members[i] = i;
        for (int round = 0; round < 3; ++round) {
            CHECK(flx_comm_create_from_store(NULL, 0, -1, 0, NULL, &world));
            check_sum(world, members, size);
            CHECK(flx_comm_free(&world));
        }
    }
    check_no_mpi();
    return 0;
}
