/// MPI 4's functions with MPI_Count: says "right" if each gives what the function without gives, where that can be
/// called, and if counts and displacements past 2^31 are what they say. `large_counts wrong` ends with an error.
#define _GNU_SOURCE
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { kRanks = 8, kMost = 7, kExtent = 4, kRoom = kRanks * kMost * kExtent };

static int rank;
static int failures;

static void expect(int holds, const char *what) {
    if (holds || ++failures > 10)
        return;
    fprintf(stderr, "rank %d: %s\n", rank, what);
}

static int in[kRoom];
static int expected[kRoom];
static int got[kRoom];
static int draws = 1;

static void begin(void) {
    for (int i = 0; i < kRoom; ++i)
        in[i] = expected[i] = got[i] = ++draws * 31 + rank * 1009;
}

/// Calls PMPI_NAME and MPI_NAME_c with the same arguments, among which `out`, `counts`, `places` and `offsets` are each
/// one's own.
#define BOTH(NAME, ...)                                                          \
    do {                                                                         \
        begin();                                                                 \
        {                                                                        \
            int *out = expected;                                                 \
            const int *counts = int_counts, *places = int_places;                \
            const int *offsets = int_offsets;                                    \
            (void)counts, (void)places, (void)offsets;                           \
            expect(PMPI_##NAME(__VA_ARGS__) == MPI_SUCCESS, "PMPI_" #NAME);      \
        }                                                                        \
        {                                                                        \
            int *out = got;                                                      \
            const MPI_Count *counts = large_counts;                              \
            const MPI_Aint *places = large_places, *offsets = large_offsets;     \
            (void)counts, (void)places, (void)offsets;                           \
            expect(MPI_##NAME##_c(__VA_ARGS__) == MPI_SUCCESS, "MPI_" #NAME);    \
        }                                                                        \
        expect(memcmp(expected, got, sizeof got) == 0, #NAME "_c is different"); \
    } while (0)

static void call_all(MPI_Comm comm, MPI_Datatype type) {
    int size = 0;
    int me = 0;
    int int_counts[kRanks], int_places[kRanks], int_offsets[kRanks];
    MPI_Count large_counts[kRanks];
    MPI_Aint large_places[kRanks], large_offsets[kRanks];
    MPI_Datatype types[kRanks];
    MPI_Aint lower = 0, extent = 0;
    MPI_Comm_size(comm, &size);
    MPI_Comm_rank(comm, &me);
    MPI_Type_get_extent(type, &lower, &extent);
    for (int r = 0; r < size; ++r) {
        large_counts[r] = int_counts[r] = 1 + r % (kMost - 1);
        large_places[r] = int_places[r] = (size - 1 - r) * kMost;
        large_offsets[r] = int_offsets[r] = int_places[r] * (int)extent;
        types[r] = type;
    }
    const int mine = int_counts[me];
    const int root = size - 1;
    BOTH(Bcast, out, kMost, type, root, comm);
    BOTH(Allgather, in, kMost, type, out, kMost, type, comm);
    BOTH(Allgatherv, in, mine, type, out, counts, places, type, comm);
    BOTH(Gather, in, kMost, type, out, kMost, type, root, comm);
    BOTH(Gatherv, in, mine, type, out, counts, places, type, root, comm);
    BOTH(Scatter, in, kMost, type, out, kMost, type, root, comm);
    BOTH(Scatterv, in, counts, places, type, out, mine, type, root, comm);
    BOTH(Alltoall, in, kMost, type, out, kMost, type, comm);
    for (int r = 0; r < size; ++r)  // as many as the other one gives
        large_counts[r] = int_counts[r] = 1 + (r + me) % (kMost - 1);
    BOTH(Alltoallv, in, counts, places, type, out, counts, places, type, comm);
    BOTH(Alltoallw, in, counts, offsets, types, out, counts, offsets, types, comm);
    for (int r = 0; r < size; ++r)
        large_counts[r] = int_counts[r] = 1 + r % (kMost - 1);
    BOTH(Allreduce, in, out, kMost, MPI_INT, MPI_SUM, comm);
    BOTH(Exscan, in, out, kMost, MPI_INT, MPI_MAX, comm);
    BOTH(Reduce, in, out, kMost, MPI_INT, MPI_BXOR, root, comm);
    BOTH(Reduce_scatter, in, out, counts, MPI_INT, MPI_SUM, comm);
    BOTH(Reduce_scatter_block, in, out, kMost, MPI_INT, MPI_SUM, comm);
    BOTH(Scan, in, out, kMost, MPI_INT, MPI_MIN, comm);
}

/// Blocks further from each other than an int says, in memory that is there only where it is used.
static void call_far(void) {
    enum { kBlock = 5000 };
    const MPI_Aint far = (MPI_Aint)3 << 30;
    const MPI_Count counts[2] = {kBlock, kBlock};
    const MPI_Aint places[2] = {far, 0};
    const size_t bytes = (size_t)far + kBlock;
    const MPI_Datatype types[2] = {MPI_BYTE, MPI_BYTE};
    char *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *other = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char block[kBlock];
    if (data == MAP_FAILED || other == MAP_FAILED) {
        expect(0, "no room for far blocks");
        return;
    }
    for (int call = 0; call < 5; ++call) {
        int code = MPI_SUCCESS;
        for (int r = 0; r < 2; ++r) {
            memset(data + places[r], 7, kBlock);
            memset(other + places[r], 10 * call + 2 * rank + r, kBlock);
        }
        memset(block, 10 * call + rank, kBlock);
        switch (call) {
            case 0:
                code = MPI_Allgatherv_c(block, kBlock, MPI_BYTE, data, counts, places, MPI_BYTE, MPI_COMM_WORLD);
                break;
            case 1:
                code = MPI_Gatherv_c(block, kBlock, MPI_BYTE, data, counts, places, MPI_BYTE, 1, MPI_COMM_WORLD);
                break;
            case 2:
                code = MPI_Scatterv_c(other, counts, places, MPI_BYTE, block, kBlock, MPI_BYTE, 1, MPI_COMM_WORLD);
                break;
            case 3:
                code = MPI_Alltoallv_c(other, counts, places, MPI_BYTE, data, counts, places, MPI_BYTE, MPI_COMM_WORLD);
                break;
            default:
                code = MPI_Alltoallw_c(other, counts, places, types, data, counts, places, types, MPI_COMM_WORLD);
        }
        expect(code == MPI_SUCCESS, "far blocks: an error");
        for (int r = 0; r < 2; ++r) {
            const int value = call < 2 ? 10 * call + r : 10 * call + 2 * r + rank;
            if (call != 2 && (call != 1 || rank == 1))
                expect(data[places[r]] == value && memcmp(data + places[r], data + places[r] + 1, kBlock - 1) == 0,
                       "far blocks: not what the other one gave");
        }
        if (call == 2)
            expect(block[0] == 10 * call + 2 + rank && memcmp(block, block + 1, kBlock - 1) == 0,
                   "far blocks: not what the root gave");
    }
    munmap(data, bytes);
    munmap(other, bytes);
}

enum { kWindow = 16 << 20, kTail = 12345 };
static const MPI_Count kMany = ((MPI_Count)1 << 31) + kTail;

/// kMany bytes of `value`, and one more. Between the first kWindow and the last kTail + 1 they are the same few in
/// memory, again and again.
static char *many(int value) {
    const size_t body = (size_t)(kMany - kTail);
    char *data = mmap(NULL, body + kWindow, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const int file = memfd_create("many", 0);
    if (data == MAP_FAILED || file < 0 || ftruncate(file, kWindow) != 0)
        return NULL;
    for (size_t at = kWindow; at < body; at += kWindow)
        if (mmap(data + at, kWindow, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED)
            return NULL;
    close(file);
    memset(data, value, 2 * (size_t)kWindow);
    memset(data + body, value, kTail + 1);
    return data;
}

static int begins_and_ends(const char *data, int value) {
    return data[0] == value && memcmp(data, data + 1, kWindow - 1) == 0 && data[kMany - kTail] == value &&
           memcmp(data + kMany - kTail, data + kMany - kTail + 1, kTail - 1) == 0;
}

/// More elements than an int counts.
static void call_many(void) {
    char *give = many(1 + rank);
    char *take = many(9);
    if (give == NULL || take == NULL) {
        expect(0, "no room for many elements");
        return;
    }
    expect(MPI_Bcast_c(rank == 1 ? give : take, kMany, MPI_BYTE, 1, MPI_COMM_WORLD) == MPI_SUCCESS,
           "many elements: an error of MPI_Bcast_c");
    expect(begins_and_ends(rank == 1 ? give : take, 2), "many elements: not what the root gave");
    expect(take[kMany] == 9, "many elements: too many of a bcast");
    const char *full = getenv("FLX_TEST_FULL");
    if (full == NULL || strcmp(full, "1") != 0)
        return;
    expect(MPI_Allreduce_c(give, take, kMany, MPI_SIGNED_CHAR, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS,
           "many elements: an error of MPI_Allreduce_c");
    expect(begins_and_ends(take, 3), "many elements: not the sum");
    expect(take[kMany] == 9, "many elements: too many of a sum");
}

/// The class of an error, and that nothing is served by half.
static void call_wrong(void) {
    int error_class = MPI_SUCCESS;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    const int code = MPI_Bcast_c(in, -((MPI_Count)1 << 32), MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Error_class(code, &error_class);
    expect(error_class == MPI_ERR_COUNT, "a negative count is another error");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    alarm(200);  // a call that waits for ever ends the program
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int ranks = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks > kRanks)
        MPI_Abort(MPI_COMM_WORLD, 2);
    if (argc > 1 && strcmp(argv[1], "wrong") == 0)
        MPI_Bcast_c(in, -1, MPI_INT, 0, MPI_COMM_WORLD);
    // Types that functions with MPI_Count made, which those without say nothing of: dense, and with a hole.
    MPI_Datatype types[3] = {MPI_INT};
    MPI_Type_contiguous_c(3, MPI_INT, &types[1]);
    MPI_Type_vector_c(2, 1, 2, MPI_INT, &types[2]);
    for (int i = 0; i < 3; ++i) {
        if (i != 0)
            MPI_Type_commit(&types[i]);
        call_all(MPI_COMM_WORLD, types[i]);
        call_all(MPI_COMM_SELF, types[i]);  // which is MPI's
    }
    // The functions of old take them, too.
    begin();
    MPI_Bcast(got, 3, types[1], 0, MPI_COMM_WORLD);
    PMPI_Bcast(expected, 3, types[1], 0, MPI_COMM_WORLD);
    expect(memcmp(expected, got, sizeof got) == 0, "MPI_Bcast of a type with MPI_Count is different");
    MPI_Type_free(&types[1]);
    MPI_Type_free(&types[2]);
    call_wrong();
    if (ranks == 2) {
        call_far();
        call_many();
    }
    int all = 0;
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        puts(all == 0 ? "right" : "wrong");
    MPI_Finalize();
    return 0;
}
