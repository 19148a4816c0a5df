/// The same random calls with and without the drop-in library: `collectives SEED CALLS` prints one number per rank for
/// all that it received. Contents are small integers, so that sums are exact in whatever order they are made.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/runtime/front/mpi/persistent.h"

enum { kMost = 700, kComms = 6 };

/// An address at which nothing is: for buffers that mean nothing.
static void *const kNowhere = (void *)64;

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

/// How the next call is made; the same on all ranks.
static enum { blocking, nonblocking, persistent } form;

/// Waits in one of the ways there are, which may be each rank's own, together with a message to itself.
static void complete(MPI_Request *request, int way) {
    static int message[2];
    MPI_Request requests[3] = {MPI_REQUEST_NULL, *request, MPI_REQUEST_NULL};
    int index;
    int indices[3];
    int done = 0;
    int left = 3;
    if (way < 2) {
        if (way == 0)
            CHECK(MPI_Wait(request, MPI_STATUS_IGNORE));
        while (way == 1 && !done)
            CHECK(MPI_Test(request, &done, MPI_STATUS_IGNORE));
        return;
    }
    CHECK(MPI_Irecv(&message[1], 1, MPI_INT, 0, 5, MPI_COMM_SELF, &requests[0]));
    CHECK(MPI_Isend(&message[0], 1, MPI_INT, 0, 5, MPI_COMM_SELF, &requests[2]));
    if (way == 2)
        CHECK(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
    for (; way == 3 && left != 0; --left)
        CHECK(MPI_Waitany(3, requests, &index, MPI_STATUS_IGNORE));
    while (way == 4 && !done)
        CHECK(MPI_Testall(3, requests, &done, MPI_STATUSES_IGNORE));
    while (way == 5 && left != 0) {
        int count;
        CHECK(MPI_Waitsome(3, requests, &count, indices, MPI_STATUSES_IGNORE));
        left -= count;
    }
    *request = requests[1];
}

static int way_to_wait;

/// Makes MPI_NAME(...), MPI_Ismall(...) or the persistent form, the last of which is started twice.
#define CALL(NAME, SMALL, ...)                                              \
    do {                                                                    \
        MPI_Request request_;                                               \
        if (form == blocking) {                                             \
            CHECK(MPI_##NAME(__VA_ARGS__));                                 \
        } else if (form == nonblocking) {                                   \
            CHECK(MPI_I##SMALL(__VA_ARGS__, &request_));                    \
            complete(&request_, way_to_wait);                               \
        } else {                                                            \
            CHECK(PERSISTENT(NAME)(__VA_ARGS__, MPI_INFO_NULL, &request_)); \
            CHECK(MPI_Start(&request_));                                    \
            complete(&request_, way_to_wait);                               \
            CHECK(MPI_Startall(1, &request_));                              \
            complete(&request_, 5 - way_to_wait);                           \
            CHECK(MPI_Request_free(&request_));                             \
        }                                                                   \
    } while (0)

typedef struct Element {
    MPI_Datatype type;
    size_t bytes;
    int kind;  ///< 0 integer, 1 float, 2 double, 3 a float and an int
    const MPI_Op *ops;
} Element;

enum { kElements = 12, kOps = 8 };
static Element reduced[kElements];
static MPI_Op of_integers[kOps];
static MPI_Op of_reals[kOps];
static MPI_Op of_complex[kOps];
static MPI_Op of_pairs[kOps];
static MPI_Op of_truths[kOps];

static void fill(void *data, size_t count, const Element *element, int rank) {
    for (size_t i = 0; i < count; ++i) {
        const int value = (int)((i * 7 + (size_t)rank * 3) % 5) + 1;
        char *at = (char *)data + i * element->bytes;
        for (size_t part = 0; part < element->bytes && element->kind == 1; part += sizeof(float))
            *(float *)(at + part) = (float)value;
        for (size_t part = 0; part < element->bytes && element->kind == 2; part += sizeof(double))
            *(double *)(at + part) = value;
        if (element->kind == 0)
            memset(at, element->ops == of_truths ? value % 2 : value, element->bytes);
        if (element->kind == 3) {
            *(float *)at = (float)value;
            *(int *)(at + sizeof(float)) = rank;
        }
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
    const Element *element = &reduced[draw(kElements)];
    const MPI_Op op = element->ops[draw(kOps)];
    form = draw(4) == 0 ? persistent : draw(2) == 0 ? nonblocking : blocking;
#ifdef MPICH_VERSION  // which, 4.0.2 by itself, takes those that have ended for errors, and frees their types too often
    if (form == persistent)
        form = nonblocking;
#endif
    way_to_wait = (draw(6) + rank) % 6;
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
            CALL(Allreduce, allreduce, sendbuf, out, count, element->type, op, comm);
            break;
        case 1:
            if (in_place && rank == root)
                memcpy(out, in, bytes);
            CALL(Reduce, reduce, rank == root ? sendbuf : in, out, count, element->type, op, root, comm);
            if (rank != root)
                memset(out, 0, room);
            break;
        case 2:
            if (in_place)
                memcpy(out, in, all);
            CALL(Reduce_scatter_block, reduce_scatter_block, sendbuf, out, count, element->type, op, comm);
            memset(out + bytes, 0, room - bytes);  // in place the rest is anybody's
            break;
        case 3:
            if (in_place)
                memcpy(out, in, all);
            CALL(Reduce_scatter, reduce_scatter, sendbuf, out, counts, element->type, op, comm);
            memset(out + (size_t)counts[rank] * element->bytes, 0, room - (size_t)counts[rank] * element->bytes);
            break;
        case 4:
            memcpy(out, in, rank == root ? bytes : 0);
            CALL(Bcast, bcast, out, count, element->type, root, comm);
            break;
        case 5:  // the root's type has holes, the others' none
            if (rank == root) {
                fill_holes((int *)out, count, 3);
                CALL(Bcast, bcast, out, count, holes, root, comm);
            } else {
                CALL(Bcast, bcast, out, 2 * count, MPI_INT, root, comm);
            }
            break;
        case 6:
            memcpy(out + (size_t)rank * bytes, in, in_place ? bytes : 0);
            CALL(Allgather, allgather, sendbuf, count, element->type, out, count, element->type, comm);
            break;
        case 7:  // received into holes on the even ranks
            fill_holes((int *)in, count, rank);
            if (rank % 2 == 0)
                CALL(Allgather, allgather, in, 2 * count, MPI_INT, out, count, holes, comm);
            else
                CALL(Allgather, allgather, in, count, holes, out, 2 * count, MPI_INT, comm);
            break;
        case 8:
            memcpy(out, in, in_place ? all : 0);
            CALL(Alltoall, alltoall, sendbuf, count, element->type, out, count, element->type, comm);
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
                CALL(Alltoallv, alltoallv, in, counts_in, displs_in, element->type, out, counts, displs, element->type,
                     comm);
                break;
            }
            for (int peer = 0; peer < size; ++peer) {
                displs[peer] *= (int)element->bytes;
                displs_in[peer] *= (int)element->bytes;
            }
            CALL(Alltoallw, alltoallw, in, counts_in, displs_in, types, out, counts, displs, types, comm);
            break;
        }
        case 11:
            memcpy(out + (size_t)displs[rank] * element->bytes, in,
                   in_place ? (size_t)counts[rank] * element->bytes : 0);
            CALL(Allgatherv, allgatherv, sendbuf, counts[rank], element->type, out, counts, displs, element->type,
                 comm);
            break;
        case 12:
            memcpy(out + (size_t)root * bytes, in, in_place && rank == root ? bytes : 0);
            CALL(Gather, gather, rank == root ? sendbuf : in, count, element->type, out, count, element->type, root,
                 comm);
            break;
        case 13:
            memcpy(out + (size_t)displs[rank] * element->bytes, in,
                   in_place && rank == root ? (size_t)counts[rank] * element->bytes : 0);
            CALL(Gatherv, gatherv, rank == root ? sendbuf : in, counts[rank], element->type, out, counts, displs,
                 element->type, root, comm);
            break;
        case 14:
            CALL(Scatter, scatter, in, count, element->type, in_place && rank == root ? MPI_IN_PLACE : out, count,
                 element->type, root, comm);
            break;
        case 15:
            total = 0;
            for (int peer = 0; peer < size; ++peer) {
                displs[peer] = total;
                total += counts[peer];
            }
            CALL(Scatterv, scatterv, in, counts, displs, element->type, in_place && rank == root ? MPI_IN_PLACE : out,
                 counts[rank], element->type, root, comm);
            break;
        default:
            if (draw(2) == 0) {
                memcpy(out, in, in_place ? bytes : 0);
                CALL(Scan, scan, sendbuf, out, count, element->type, op, comm);
            } else {
                CALL(Exscan, exscan, in, rank == 0 ? kNowhere : out, count, element->type, op, comm);
                if (rank == 0)
                    memset(out, 0, room);
            }
            CALL(Barrier, barrier, comm);
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
    const Element elements[kElements] = {{MPI_INT, 4, 0, of_integers},
                                         {MPI_LONG, 8, 0, of_integers},
                                         {MPI_UNSIGNED_SHORT, 2, 0, of_integers},
                                         {MPI_UINT32_T, 4, 0, of_integers},
                                         {MPI_FLOAT, 4, 1, of_reals},
                                         {MPI_DOUBLE, 8, 2, of_reals},
                                         {MPI_INT64_T, 8, 0, of_integers},
                                         {MPI_C_FLOAT_COMPLEX, 8, 1, of_complex},
                                         {MPI_C_DOUBLE_COMPLEX, 16, 2, of_complex},
                                         {MPI_2INT, 8, 0, of_pairs},
                                         {MPI_FLOAT_INT, 8, 3, of_pairs},
                                         {MPI_C_BOOL, 1, 0, of_truths}};
    const MPI_Op integers[kOps] = {MPI_SUM, MPI_MIN, MPI_MAX, MPI_LAND, MPI_LXOR, MPI_BAND, MPI_BOR, MPI_BXOR};
    const MPI_Op truths[3] = {MPI_LAND, MPI_LOR, MPI_LXOR};
    memcpy(reduced, elements, sizeof elements);
    for (int i = 0; i < kOps; ++i) {
        of_integers[i] = integers[i];
        of_reals[i] = integers[i % 3];
        of_complex[i] = MPI_SUM;
        of_pairs[i] = i % 2 == 0 ? MPI_MINLOC : MPI_MAXLOC;
        of_truths[i] = truths[i % 3];
    }
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
