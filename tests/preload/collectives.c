/// The same random calls with and without the drop-in library: `collectives SEED CALLS` prints one number per rank for
/// all that it received. Contents are small integers, so that sums are exact in whatever order they are made.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMost = 700, kComms = 6 };

static uint64_t digest = 1469598103934665603ULL;

static void fold(const void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i)
        digest = (digest ^ ((const unsigned char *)data)[i]) * 1099511628211ULL;
}

/// Equal on all ranks.
static uint64_t state;
static int draw(int below) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (int)((state >> 33) % (uint64_t)below);
}

static void check(int code, const char *what) {
    if (code == MPI_SUCCESS)
        return;
    fprintf(stderr, "%s failed: %d\n", what, code);
    MPI_Abort(MPI_COMM_WORLD, 1);
}
#define CHECK(call) check(call, #call)

typedef struct Element {
    MPI_Datatype type;
    size_t bytes;
    int kind;  ///< 0 integer, 1 float, 2 double, 3 bytes
} Element;

static Element reduced[7];
static MPI_Op ops[4];

static void fill(void *data, size_t count, const Element *element, int rank) {
    for (size_t i = 0; i < count; ++i) {
        const int value = (int)((i * 7 + (size_t)rank * 3) % 5) + 1;
        char *at = (char *)data + i * element->bytes;
        if (element->kind == 1)
            *(float *)at = (float)value;
        else if (element->kind == 2)
            *(double *)at = value;
        else
            memset(at, value, element->bytes);
    }
}

/// A communicator made in one of the ways there are; the same way on all ranks of `from`.
static MPI_Comm derive(MPI_Comm from) {
    int rank;
    int size;
    MPI_Comm made = MPI_COMM_NULL;
    CHECK(MPI_Comm_rank(from, &rank));
    CHECK(MPI_Comm_size(from, &size));
    switch (draw(3)) {
        case 0:
            CHECK(MPI_Comm_dup(from, &made));
            break;
        case 1:
            CHECK(MPI_Comm_split(from, rank % 2, -rank, &made));
            break;
        default: {
            MPI_Group all;
            MPI_Group part;
            const int first = 0;
            CHECK(MPI_Comm_group(from, &all));
            if (size > 2)
                CHECK(MPI_Group_excl(all, 1, &first, &part));
            else
                CHECK(MPI_Group_union(all, MPI_GROUP_EMPTY, &part));
            CHECK(MPI_Comm_create(from, part, &made));
            MPI_Group_free(&all);
            MPI_Group_free(&part);
        }
    }
    return made;
}

/// Two of three integers, from the third on: a type with holes whose data do not begin at its address.
static MPI_Datatype holes;

/// `count` pairs with holes, filled; else -1 everywhere.
static void fill_holes(int *data, int count, int value) {
    for (int i = 0; i < 5 * count; ++i)
        data[i] = value < 0 ? -1 : value + i;
}

static int one_call(MPI_Comm comm, char *in, char *out, size_t room) {
    int rank;
    int size;
    CHECK(MPI_Comm_rank(comm, &rank));
    CHECK(MPI_Comm_size(comm, &size));
    const Element *element = &reduced[draw(7)];
    const MPI_Op op = ops[draw(4)];
    const int count = draw(8) == 0 ? 0 : draw(3) == 0 ? draw(kMost) + 1 : draw(20) + 1;
    const int root = draw(size);
    const int in_place = draw(3) == 0;
    const size_t bytes = (size_t)count * element->bytes;
    const int call = draw(17);
    int counts[64];
    int displs[64];
    int counts_in[64];
    int displs_in[64];
    MPI_Datatype types[64];
    memset(out, 0x55, room);
    fill(in, (size_t)count * (size_t)size, element, rank);
    const void *sendbuf = in_place ? MPI_IN_PLACE : in;
    int total = 0;
    for (int peer = 0; peer < size; ++peer) {
        counts[peer] = draw(count + 1);
        displs[peer] = total + (peer % 2);
        total += counts[peer] + 1;
        types[peer] = element->type;
    }
    const size_t all = (size_t)count * (size_t)size * element->bytes;
    switch (call) {
        case 0:
            if (in_place)
                memcpy(out, in, bytes);
            CHECK(MPI_Allreduce(sendbuf, out, count, element->type, op, comm));
            break;
        case 1:
            if (in_place && rank == root)
                memcpy(out, in, bytes);
            CHECK(MPI_Reduce(rank == root ? sendbuf : in, out, count, element->type, op, root, comm));
            if (rank != root)
                memset(out, 0, room);
            break;
        case 2:
            if (in_place)
                memcpy(out, in, all);
            CHECK(MPI_Reduce_scatter_block(sendbuf, out, count, element->type, op, comm));
            memset(out + bytes, 0, room - bytes);  // in place the rest is anybody's
            break;
        case 3:
            if (in_place)
                memcpy(out, in, all);
            CHECK(MPI_Reduce_scatter(sendbuf, out, counts, element->type, op, comm));
            memset(out + (size_t)counts[rank] * element->bytes, 0, room - (size_t)counts[rank] * element->bytes);
            break;
        case 4:
            memcpy(out, in, rank == root ? bytes : 0);
            CHECK(MPI_Bcast(out, count, element->type, root, comm));
            break;
        case 5:  // the root's type has holes, the others' none
            if (rank == root) {
                fill_holes((int *)out, count, 3);
                CHECK(MPI_Bcast(out, count, holes, root, comm));
            } else {
                CHECK(MPI_Bcast(out, 2 * count, MPI_INT, root, comm));
            }
            break;
        case 6:
            memcpy(out + (size_t)rank * bytes, in, in_place ? bytes : 0);
            CHECK(MPI_Allgather(sendbuf, count, element->type, out, count, element->type, comm));
            break;
        case 7:  // received into holes on the even ranks
            fill_holes((int *)in, count, rank);
            if (rank % 2 == 0)
                CHECK(MPI_Allgather(in, 2 * count, MPI_INT, out, count, holes, comm));
            else
                CHECK(MPI_Allgather(in, count, holes, out, 2 * count, MPI_INT, comm));
            break;
        case 8:
            memcpy(out, in, in_place ? all : 0);
            CHECK(MPI_Alltoall(sendbuf, count, element->type, out, count, element->type, comm));
            break;
        case 9:
        case 10: {  // from rank a to rank b: (3a + 5b) modulo count + 1
            int at = 0;
            int at_in = 0;
            for (int peer = 0; peer < size; ++peer) {
                counts_in[peer] = (3 * rank + 5 * peer) % (count + 1);
                counts[peer] = (3 * peer + 5 * rank) % (count + 1);
                displs_in[peer] = at_in;
                displs[peer] = at + 1;
                at_in += counts_in[peer];
                at += counts[peer] + 1;
            }
            if (call == 9) {
                CHECK(MPI_Alltoallv(in, counts_in, displs_in, element->type, out, counts, displs, element->type, comm));
                break;
            }
            for (int peer = 0; peer < size; ++peer) {
                displs[peer] *= (int)element->bytes;
                displs_in[peer] *= (int)element->bytes;
            }
            CHECK(MPI_Alltoallw(in, counts_in, displs_in, types, out, counts, displs, types, comm));
            break;
        }
        case 11:
            memcpy(out + (size_t)displs[rank] * element->bytes, in,
                   in_place ? (size_t)counts[rank] * element->bytes : 0);
            CHECK(MPI_Allgatherv(sendbuf, counts[rank], element->type, out, counts, displs, element->type, comm));
            break;
        case 12:
            memcpy(out + (size_t)root * bytes, in, in_place && rank == root ? bytes : 0);
            CHECK(MPI_Gather(rank == root ? sendbuf : in, count, element->type, out, count, element->type, root, comm));
            break;
        case 13:
            memcpy(out + (size_t)displs[rank] * element->bytes, in,
                   in_place && rank == root ? (size_t)counts[rank] * element->bytes : 0);
            CHECK(MPI_Gatherv(rank == root ? sendbuf : in, counts[rank], element->type, out, counts, displs,
                              element->type, root, comm));
            break;
        case 14:
            CHECK(MPI_Scatter(in, count, element->type, in_place && rank == root ? MPI_IN_PLACE : out, count,
                              element->type, root, comm));
            break;
        case 15:
            total = 0;
            for (int peer = 0; peer < size; ++peer) {
                displs[peer] = total;
                total += counts[peer];
            }
            CHECK(MPI_Scatterv(in, counts, displs, element->type, in_place && rank == root ? MPI_IN_PLACE : out,
                               counts[rank], element->type, root, comm));
            break;
        default:
            if (draw(2) == 0) {
                memcpy(out, in, in_place ? bytes : 0);
                CHECK(MPI_Scan(sendbuf, out, count, element->type, op, comm));
            } else {
                CHECK(MPI_Exscan(in, out, count, element->type, op, comm));
                if (rank == 0)
                    memset(out, 0, room);
            }
            CHECK(MPI_Barrier(comm));
    }
    fold(out, room);
    return call;
}

int main(int argc, char **argv) {
    const int calls = argc > 2 ? atoi(argv[2]) : 300;
    MPI_Init(&argc, &argv);
    int world;
    int ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &world);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    state = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;

    // Not 8-bit integers, whose sums Open MPI 4.1 gets wrong.
    const Element elements[7] = {{MPI_INT, 4, 0},      {MPI_LONG, 8, 0},  {MPI_UNSIGNED_SHORT, 2, 0},
                                 {MPI_UINT32_T, 4, 0}, {MPI_FLOAT, 4, 1}, {MPI_DOUBLE, 8, 2},
                                 {MPI_INT64_T, 8, 0}};
    memcpy(reduced, elements, sizeof elements);
    ops[0] = MPI_SUM;
    ops[1] = MPI_MIN;
    ops[2] = MPI_MAX;
    ops[3] = MPI_SUM;
    MPI_Datatype pair;
    const int lengths[2] = {1, 1};
    const int begins[2] = {1, 3};
    MPI_Type_indexed(2, lengths, begins, MPI_INT, &pair);
    MPI_Type_create_resized(pair, 0, 5 * sizeof(int), &holes);
    MPI_Type_commit(&holes);
    MPI_Type_free(&pair);

    const size_t room = (size_t)(kMost + 80) * 20 * (size_t)ranks;
    char *in = calloc(1, room);
    char *out = malloc(room);
    MPI_Comm comms[kComms] = {MPI_COMM_WORLD};
    int used = 1;
    for (int i = 0; i < calls; ++i) {
        if (draw(10) == 0) {
            if (used == kComms) {
                const int gone = 1 + draw(kComms - 1);
                if (comms[gone] != MPI_COMM_NULL)
                    MPI_Comm_free(&comms[gone]);
                comms[gone] = derive(MPI_COMM_WORLD);
            } else {
                comms[used++] = derive(MPI_COMM_WORLD);
            }
        }
        // Ranks of different communicators must draw alike: each begins from a state of its own and all go on from one.
        MPI_Comm comm = comms[draw(used)];
        const uint64_t before = state;
        if (comm != MPI_COMM_NULL)
            one_call(comm, in, out, room);
        state = before + 1;
        (void)draw(2);
    }
    for (int rank = 0; rank < ranks; ++rank) {
        if (rank == world)
            printf("rank %d received %016llx\n", rank, (unsigned long long)digest);
        fflush(stdout);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Type_free(&holes);
    free(in);
    free(out);
    MPI_Finalize();
    return 0;
}
