/// MPI lets no call that does not block wait for another rank. Here one rank begins an operation and only then sends
/// the others the message that they begin theirs after; and ranks begin operations on two communicators in different
/// orders. On communicators on which nothing was called before, and on those that have had a call that blocks. Run
/// under the drop-in library, checks results and says "right".
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/runtime/front/mpi/persistent.h"

enum { kCollectives = 17, kMostRanks = 16 };

static int rank;
static int ranks;
static int failures;

static void expect(int holds, const char *what, int collective, int in_place) {
    if (holds || ++failures > 10)
        return;
    fprintf(stderr, "rank %d: %s (collective %d, in place %d)\n", rank, what, collective, in_place);
}

/// One operation's own memory. Blocks are one number each; what rank `a` has for rank `b` is 100 a + b.
typedef struct Operation {
    int collective;
    int in_place;
    int in[kMostRanks];
    int out[kMostRanks];
    int counts[kMostRanks];
    int displs[kMostRanks];
    int bytes[kMostRanks];
    MPI_Datatype types[kMostRanks];
    MPI_Request request;
} Operation;

static int number(int from, int to) {
    return 100 * from + to;
}

static void prepare(Operation *operation, int collective, int in_place) {
    operation->collective = collective;
    operation->in_place = in_place;
    for (int i = 0; i < ranks; ++i) {
        operation->in[i] = number(rank, i);
        operation->out[i] = in_place ? operation->in[i] : -1;
        operation->counts[i] = 1;
        operation->displs[i] = i;
        operation->bytes[i] = i * (int)sizeof(int);
        operation->types[i] = MPI_INT;
    }
    const int gathers = collective == 9 || collective == 10;
    if (in_place && gathers)
        operation->out[rank] = number(rank, 0);
    if (in_place && (collective == 14 || collective == 15) && rank == 0)
        operation->out[0] = number(0, 0);
    if (collective == 1)
        operation->out[0] = rank == 0 ? 7 : -1;
}

/// MPI_Ismall(...), or the persistent form.
#define BEGIN(NAME, SMALL, ...)                                                           \
    (persistent ? PERSISTENT(NAME)(__VA_ARGS__, comm, MPI_INFO_NULL, &operation->request) \
                : MPI_I##SMALL(__VA_ARGS__, comm, &operation->request))

static void begin(Operation *operation, MPI_Comm comm, int persistent) {
    int *in = operation->in;
    int *out = operation->out;
    int *counts = operation->counts;
    int *displs = operation->displs;
    const void *from = operation->in_place ? MPI_IN_PLACE : in;
    const void *from_at_root = rank == 0 ? from : in;
    void *to_at_root = operation->in_place && rank == 0 ? MPI_IN_PLACE : out;
    int code = MPI_SUCCESS;
    switch (operation->collective) {
        case 0:
            code = persistent ? PERSISTENT(Barrier)(comm, MPI_INFO_NULL, &operation->request)
                              : MPI_Ibarrier(comm, &operation->request);
            break;
        case 1:
            code = BEGIN(Bcast, bcast, out, 1, MPI_INT, 0);
            break;
        case 2:
            code = BEGIN(Allreduce, allreduce, from, out, ranks, MPI_INT, MPI_SUM);
            break;
        case 3:
            code = BEGIN(Reduce, reduce, from_at_root, out, ranks, MPI_INT, MPI_SUM, 0);
            break;
        case 4:
            code = BEGIN(Reduce_scatter_block, reduce_scatter_block, from, out, 1, MPI_INT, MPI_SUM);
            break;
        case 5:
            code = BEGIN(Reduce_scatter, reduce_scatter, from, out, counts, MPI_INT, MPI_SUM);
            break;
        case 6:
            code = BEGIN(Scan, scan, from, out, ranks, MPI_INT, MPI_SUM);
            break;
        case 7:
            code = BEGIN(Exscan, exscan, from, out, ranks, MPI_INT, MPI_SUM);
            break;
        case 8:
            code = BEGIN(Alltoall, alltoall, from, 1, MPI_INT, out, 1, MPI_INT);
            break;
        case 9:
            code = BEGIN(Allgather, allgather, from, 1, MPI_INT, out, 1, MPI_INT);
            break;
        case 10:
            code = BEGIN(Allgatherv, allgatherv, from, 1, MPI_INT, out, counts, displs, MPI_INT);
            break;
        case 11:
            code = BEGIN(Alltoallv, alltoallv, from, counts, displs, MPI_INT, out, counts, displs, MPI_INT);
            break;
        case 12:
            code = BEGIN(Alltoallw, alltoallw, from, counts, operation->bytes, operation->types, out, counts,
                         operation->bytes, operation->types);
            break;
        case 13:
            code = BEGIN(Scatter, scatter, in, 1, MPI_INT, to_at_root, 1, MPI_INT, 0);
            break;
        case 14:
            code = BEGIN(Gather, gather, from_at_root, 1, MPI_INT, out, 1, MPI_INT, 0);
            break;
        case 15:
            code = BEGIN(Gatherv, gatherv, from_at_root, 1, MPI_INT, out, counts, displs, MPI_INT, 0);
            break;
        default:
            code = BEGIN(Scatterv, scatterv, in, counts, displs, MPI_INT, to_at_root, 1, MPI_INT, 0);
            break;
    }
    expect(code == MPI_SUCCESS, "it is not begun", operation->collective, operation->in_place);
}

/// Of ranks 0 to `last`, what they have for `to`.
static int sum_of(int last, int to) {
    int sum = 0;
    for (int from = 0; from <= last; ++from)
        sum += number(from, to);
    return sum;
}

static void verify(const Operation *operation) {
    const int *out = operation->out;
    int right = 1;
    for (int i = 0; i < ranks; ++i) {
        switch (operation->collective) {
            case 0:
                break;
            case 1:
                right = right && out[0] == 7;
                break;
            case 2:
                right = right && out[i] == sum_of(ranks - 1, i);
                break;
            case 3:
                right = right && (rank != 0 || out[i] == sum_of(ranks - 1, i));
                break;
            case 4:
            case 5:
                right = right && out[0] == sum_of(ranks - 1, rank);
                break;
            case 6:
                right = right && out[i] == sum_of(rank, i);
                break;
            case 7:
                right = right && (rank == 0 || out[i] == sum_of(rank - 1, i));
                break;
            case 8:
            case 11:
            case 12:
                right = right && out[i] == number(i, rank);
                break;
            case 9:
            case 10:
                right = right && out[i] == number(i, 0);
                break;
            case 14:
            case 15:
                right = right && (rank != 0 || out[i] == number(i, 0));
                break;
            default:
                right = right && (operation->in_place && rank == 0 ? 1 : out[0] == number(0, rank));
        }
    }
    expect(right, "the result is wrong", operation->collective, operation->in_place);
}

/// All but `first` wait here for its message, which it sends when it has begun.
static void before(int first) {
    int token = 0;
    if (rank != first)
        MPI_Recv(&token, 1, MPI_INT, first, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void after(int first) {
    const int token = 0;
    for (int other = 0; rank == first && other < ranks; ++other)
        if (other != first)
            MPI_Send(&token, 1, MPI_INT, other, 1, MPI_COMM_WORLD);
}

/// One rank begins, and only then do the others.
static void one_after_the_other(MPI_Comm comm, int collective, int in_place, int first) {
    Operation operation;
    prepare(&operation, collective, in_place);
    before(first);
    begin(&operation, comm, 0);
    after(first);
    MPI_Wait(&operation.request, MPI_STATUS_IGNORE);
    verify(&operation);
}

/// The same of a persistent one, which all make together.
static void start_after_the_other(MPI_Comm comm, int collective, int in_place, int first) {
    Operation operation;
    prepare(&operation, collective, in_place);
    begin(&operation, comm, 1);
    before(first);
    MPI_Start(&operation.request);
    after(first);
    MPI_Wait(&operation.request, MPI_STATUS_IGNORE);
    verify(&operation);
    MPI_Request_free(&operation.request);
}

/// Not in one order: MPI orders the operations of one communicator only.
static void in_different_orders(MPI_Comm one, MPI_Comm other) {
    Operation operations[2];
    MPI_Comm comms[2] = {one, other};
    for (int i = 0; i < 2; ++i) {
        const int which = (i + rank) % 2;
        prepare(&operations[which], 2, which);
        begin(&operations[which], comms[which], 0);
    }
    for (int i = 0; i < 2; ++i) {
        MPI_Wait(&operations[i].request, MPI_STATUS_IGNORE);
        verify(&operations[i]);
    }
}

/// A call that blocks, while one that does not is under way on the same communicator.
static void beside_one_that_blocks(MPI_Comm comm) {
    Operation early;
    Operation late;
    int mine = 1;
    int sum = 0;
    prepare(&early, 2, 0);
    prepare(&late, 8, 0);
    begin(&early, comm, 0);
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm);
    expect(sum == ranks, "a sum beside one that does not block is wrong", 2, 0);
    begin(&late, comm, 0);
    MPI_Wait(&late.request, MPI_STATUS_IGNORE);
    MPI_Wait(&early.request, MPI_STATUS_IGNORE);
    verify(&early);
    verify(&late);
}

static void neighbours(void) {
    MPI_Comm ring;
    MPI_Request request;
    const int periodic = 1;
    int from[2] = {-1, -1};
    MPI_Cart_create(MPI_COMM_WORLD, 1, &ranks, &periodic, 0, &ring);
    before(0);
    MPI_Ineighbor_allgather(&rank, 1, MPI_INT, from, 1, MPI_INT, ring, &request);
    after(0);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    expect(from[0] == (rank + ranks - 1) % ranks && from[1] == (rank + 1) % ranks, "neighbours are wrong", -1, 0);
    MPI_Comm_free(&ring);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    alarm(100);  // what is looked for here is a wait without end
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks < 2 || ranks > kMostRanks) {
        printf("skipped: 2 to %d ranks\n", kMostRanks);
        MPI_Finalize();
        return 77;
    }
    // The first call of all.
    one_after_the_other(MPI_COMM_WORLD, 0, 0, 0);
    for (int collective = 0; collective < kCollectives; ++collective) {
        for (int in_place = 0; in_place < (collective < 2 ? 1 : 2); ++in_place) {
            const int first = (collective + in_place) % ranks;
            MPI_Comm comm;
            MPI_Comm_dup(MPI_COMM_WORLD, &comm);
            one_after_the_other(comm, collective, in_place, first);
            start_after_the_other(comm, collective, in_place, first);
            MPI_Barrier(comm);
            one_after_the_other(comm, collective, in_place, ranks - 1 - first);
            start_after_the_other(comm, collective, in_place, ranks - 1 - first);
            MPI_Comm_free(&comm);
        }
    }
    for (int round = 0; round < 2; ++round) {
        MPI_Comm one;
        MPI_Comm other;
        MPI_Comm_dup(MPI_COMM_WORLD, &one);
        MPI_Comm_dup(MPI_COMM_WORLD, &other);
        if (round == 1) {
            MPI_Barrier(one);
            MPI_Barrier(other);
        }
        in_different_orders(one, other);
        beside_one_that_blocks(other);
        MPI_Comm_free(&one);
        MPI_Comm_free(&other);
    }
    neighbours();
    int all = 0;
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf(all == 0 ? "right\n" : "wrong\n");
    MPI_Finalize();
    return all == 0 ? 0 : 1;
}
