/// Many requests under way, of collectives that FLX serves and of messages that it does not: `requests ROUNDS
/// [threads]` waits for them in an order of each rank's own, checks what they brought and says "right".
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/runtime/front/mpi/persistent.h"

enum { kMost = 48, kCount = 24, kPersistent = 5 };

static int rank;
static int ranks;
static int failures;

static void expect(int holds, const char *what) {
    if (holds)
        return;
    fprintf(stderr, "rank %d: %s\n", rank, what);
    ++failures;
}

typedef struct Random {
    unsigned long long state;
} Random;
static int draw(Random *random, int below) {
    random->state = random->state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (int)((random->state >> 33) % (unsigned)below);
}

/// One operation: what it is, what it reads and what it must write.
typedef struct Slot {
    int kind;
    int root;
    int in[8 * kCount];
    int out[8 * kCount];
} Slot;

static int sum_of_ranks(void) {
    return ranks * (ranks - 1) / 2;
}

static void begin(Slot *slot, int salt, MPI_Comm comm, MPI_Request *request) {
    const int next = (rank + 1) % ranks;
    const int before = (rank + ranks - 1) % ranks;
    for (int i = 0; i < ranks * kCount; ++i) {
        slot->in[i] = rank + salt + i;
        slot->out[i] = -1;
    }
    switch (slot->kind) {
        case 0:
            MPI_Iallreduce(slot->in, slot->out, kCount, MPI_INT, MPI_SUM, comm, request);
            break;
        case 1:
            MPI_Ibcast(rank == slot->root ? slot->in : slot->out, kCount, MPI_INT, slot->root, comm, request);
            break;
        case 2:
            MPI_Ialltoall(slot->in, kCount, MPI_INT, slot->out, kCount, MPI_INT, comm, request);
            break;
        case 3:
            MPI_Igather(slot->in, kCount, MPI_INT, slot->out, kCount, MPI_INT, slot->root, comm, request);
            break;
        case 4:
            MPI_Ibarrier(comm, request);
            break;
        case 5: {  // every second number; the type goes before the operation ends
            MPI_Datatype holes;
            MPI_Type_vector(kCount / 2, 1, 2, MPI_INT, &holes);
            MPI_Type_commit(&holes);
            MPI_Iscan(slot->in, slot->out, kCount, MPI_INT, MPI_MAX, comm, request);
            MPI_Wait(request, MPI_STATUS_IGNORE);
            expect(slot->out[3] == rank + salt + 3, "a prefix is wrong");
            memset(slot->out, 0xff, sizeof slot->out);
            if (rank == slot->root)
                MPI_Ibcast(slot->in, kCount / 2, MPI_INT, slot->root, comm, request);
            else
                MPI_Ibcast(slot->out, 1, holes, slot->root, comm, request);
            MPI_Type_free(&holes);
            break;
        }
        case 6:
            MPI_Irecv(slot->out, kCount, MPI_INT, before, salt, comm, request);
            break;
        default:
            MPI_Isend(slot->in, kCount, MPI_INT, next, salt, comm, request);
    }
}

static void check(const Slot *slot, int salt) {
    const int before = (rank + ranks - 1) % ranks;
    for (int i = 0; i < kCount; ++i) {
        switch (slot->kind) {
            case 0:
                expect(slot->out[i] == sum_of_ranks() + ranks * (salt + i), "a sum is wrong");
                break;
            case 1:
                expect(rank == slot->root || slot->out[i] == slot->root + salt + i, "a broadcast is wrong");
                break;
            case 2:
                for (int peer = 0; peer < ranks; ++peer)
                    expect(slot->out[peer * kCount + i] == peer + salt + rank * kCount + i, "an exchange is wrong");
                break;
            case 3:
                for (int peer = 0; peer < ranks && rank == slot->root; ++peer)
                    expect(slot->out[peer * kCount + i] == peer + salt + i, "what was gathered is wrong");
                break;
            case 5:
                if (rank != slot->root)
                    expect(slot->out[i] == (i % 2 == 0 ? slot->root + salt + i / 2 : -1),
                           "a broadcast into holes is wrong");
                break;
            case 6:
                expect(slot->out[i] == before + salt + i, "a message is wrong");
                break;
            default:
                break;
        }
    }
}

/// Until all are null, in whatever way and order `own` says, which is this rank's.
static void wait_for(MPI_Request *requests, int count, Random *own) {
    int indices[kMost];
    for (;;) {
        int left = 0;
        int done = 0;
        int index = 0;
        for (int i = 0; i < count; ++i)
            left += requests[i] != MPI_REQUEST_NULL;
        if (left == 0)
            return;
        switch (draw(own, 6)) {
            case 0:
                MPI_Waitsome(count, requests, &done, indices, MPI_STATUSES_IGNORE);
                expect(done > 0, "MPI_Waitsome brought nothing");
                break;
            case 1:
                MPI_Waitany(count, requests, &index, MPI_STATUS_IGNORE);
                break;
            case 2:
                MPI_Testany(count, requests, &index, &done, MPI_STATUS_IGNORE);
                break;
            case 3:
                MPI_Testsome(count, requests, &done, indices, MPI_STATUSES_IGNORE);
                break;
            case 4:
                MPI_Wait(&requests[draw(own, count)], MPI_STATUS_IGNORE);
                break;
            default:
                if (draw(own, 4) == 0)
                    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
                else
                    MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE);
        }
    }
}

static Slot slots[2][kMost];

static void in_flight(int lane, MPI_Comm comm, int rounds) {
    Random common = {17 + lane};
    Random own = {rank + 100ULL * lane};
    MPI_Request requests[kMost];
    for (int round = 0; round < rounds; ++round) {
        const int half = 1 + draw(&common, kMost / 2 - 1);
        // Every message is received, and sent, by all.
        for (int i = 0; i < 2 * half; ++i) {
            Slot *slot = &slots[lane][i];
            slot->kind = i % 2 == 1 && slots[lane][i - 1].kind == 6 ? 7 : draw(&common, i % 2 == 0 ? 7 : 6);
            slot->root = draw(&common, ranks);
        }
        for (int i = 0; i < 2 * half; ++i)
            begin(&slots[lane][i], 10 * round + (slots[lane][i].kind == 7 ? i - 1 : i), comm, &requests[i]);
        if (round % 3 == 1) {
            int sum = 0;
            MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
            expect(sum == sum_of_ranks(), "a sum beside others is wrong");
        }
        MPI_Comm early = MPI_COMM_NULL;
        MPI_Request last = MPI_REQUEST_NULL;
        int most = -1;
        if (lane == 0 && round % 5 == 2) {  // whose communicator is freed before it ends
            MPI_Comm_dup(comm, &early);
            MPI_Barrier(early);
            MPI_Iallreduce(&rank, &most, 1, MPI_INT, MPI_MAX, early, &last);
            MPI_Comm_free(&early);
        }
        wait_for(requests, 2 * half, &own);
        MPI_Wait(&last, MPI_STATUS_IGNORE);
        expect(most == (lane == 0 && round % 5 == 2 ? ranks - 1 : -1), "a maximum of a freed communicator is wrong");
        for (int i = 0; i < 2 * half; ++i)
            check(&slots[lane][i], 10 * round + (slots[lane][i].kind == 7 ? i - 1 : i));
    }
}

/// Started in an order of each rank's own, beside messages that are persistent, too.
static void persistent(int rounds) {
    const int next = (rank + 1) % ranks;
    const int before = (rank + ranks - 1) % ranks;
    Random own = {rank + 5ULL};
    int in[kPersistent];
    int out[kPersistent];
    MPI_Request requests[kPersistent];
    PERSISTENT(Allreduce)(&in[0], &out[0], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
    PERSISTENT(Bcast)(rank == 1 ? &in[1] : &out[1], 1, MPI_INT, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
    MPI_Send_init(&in[2], 1, MPI_INT, next, 9, MPI_COMM_WORLD, &requests[2]);
    MPI_Recv_init(&out[3], 1, MPI_INT, before, 9, MPI_COMM_WORLD, &requests[3]);
    PERSISTENT(Scan)(&in[4], &out[4], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[4]);
    for (int round = 0; round < rounds; ++round) {
        for (int i = 0; i < kPersistent; ++i) {
            in[i] = rank + round;
            out[i] = -1;
        }
        const int first = draw(&own, kPersistent);
        if (draw(&own, 3) == 0)
            MPI_Startall(kPersistent, requests);
        else
            for (int i = 0; i < kPersistent; ++i)
                MPI_Start(&requests[(first + i) % kPersistent]);
        int sum = 0;
        if (round % 2 == 0)
            MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        if (draw(&own, 2) == 0)
            MPI_Waitall(kPersistent, requests, MPI_STATUSES_IGNORE);
        else
            for (int i = kPersistent - 1; i >= 0; --i)
                MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
        expect(out[0] == sum_of_ranks() + ranks * round, "a persistent sum is wrong");
        expect(rank == 1 || out[1] == 1 + round, "a persistent broadcast is wrong");
        expect(out[3] == before + round, "a persistent message is wrong");
        expect(out[4] == rank * (rank + 1) / 2 + (rank + 1) * round, "a persistent prefix is wrong");
    }
    int done = 0;
    MPI_Test(&requests[0], &done, MPI_STATUS_IGNORE);
    expect(done && requests[0] != MPI_REQUEST_NULL, "an inactive request is not done, or gone");
    for (int i = 0; i < kPersistent; ++i) {
        MPI_Request_free(&requests[i]);
        expect(requests[i] == MPI_REQUEST_NULL, "a request that was freed is not null");
    }
}

/// What has ended ends nothing else: rank 0 waits for a broadcast that its root begins late, and has begun others that
/// end before.
static void persistent_in_another_order(void) {
    enum { kOthers = 3 };
    int late = -1;
    int others[kOthers] = {0};
    MPI_Request requests[1 + kOthers];
    PERSISTENT(Bcast)(&late, 1, MPI_INT, ranks - 1, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
    for (int i = 0; i < kOthers; ++i)
        PERSISTENT(Bcast)(&others[i], 1, MPI_INT, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1 + i]);
    for (int round = 0; round < 5; ++round) {
        late = rank == ranks - 1 ? 100 + round : -1;
        for (int i = 0; i < kOthers; ++i)
            others[i] = rank == 0 ? 10 * round + i : -1;
        if (rank == ranks - 1)
            usleep(20000);
        MPI_Startall(1 + kOthers, requests);
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        expect(late == 100 + round, "a persistent broadcast is done before its root began it");
        MPI_Waitall(kOthers, &requests[1], MPI_STATUSES_IGNORE);
        for (int i = 0; i < kOthers; ++i)
            expect(others[i] == 10 * round + i, "a persistent broadcast beside a late one is wrong");
    }
    for (int i = 0; i <= kOthers; ++i)
        MPI_Request_free(&requests[i]);
}

/// Calls on a duplicate and on what it was made from are in order each by itself only: the first call on a duplicate,
/// for which the library makes more than it shows, may come before a call on the other one here, and after it there.
static void duplicates_crosswise(void) {
    enum { kRounds = 4 };
    MPI_Comm copies[kRounds];
    for (int round = 0; round < kRounds; ++round) {
        MPI_Request request;
        int sum = 0;
        MPI_Comm_dup(MPI_COMM_WORLD, &copies[round]);
        if ((rank + round) % 2 == 0)
            MPI_Barrier(copies[round]);
        MPI_Iallreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        if ((rank + round) % 2 != 0)
            MPI_Barrier(copies[round]);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        expect(sum == sum_of_ranks(), "a sum beside the first call on a duplicate is wrong");
    }
    for (int round = 0; round < kRounds; ++round)
        MPI_Comm_free(&copies[round]);
}

/// What a request that is not persistent says of itself, and one that is given up before its operation ends.
static void odds(void) {
    MPI_Request request;
    MPI_Status status;
    int sum[2] = {0, 0};
    int flag = 0;
    MPI_Iallreduce(&rank, &sum[0], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    while (!flag)
        MPI_Request_get_status(request, &flag, &status);
    expect(request != MPI_REQUEST_NULL && sum[0] == sum_of_ranks(), "a request that was looked at is gone");
    MPI_Request other = MPI_Request_f2c(MPI_Request_c2f(request));
    expect(other == request, "a request is another one after it was Fortran's");
    MPI_Wait(&request, &status);
    expect(request == MPI_REQUEST_NULL, "a request that has ended is not null");
    struct {
        double value;
        int at;
    } mine = {-rank, rank}, least;
    MPI_Iallreduce(&mine, &least, 1, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    expect(least.value == -(ranks - 1) && least.at == ranks - 1, "the least value is elsewhere");
}

static void *run_barrier(void *comm) {
    MPI_Barrier(*(MPI_Comm *)comm);
    return NULL;
}

/// What has ended is waited for while another thread is in a call on the same communicator, which ends only when the
/// program goes on after that wait.
static void wait_beside_a_call(MPI_Comm comm) {
    MPI_Request request;
    int sum = 0;
    int word = 0;
    MPI_Iallreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm, &request);
    pthread_t thread;
    if (rank == 0) {
        pthread_create(&thread, NULL, run_barrier, &comm);
        usleep(100000);  // it is in the barrier by then
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    expect(sum == sum_of_ranks(), "a sum beside another thread's barrier is wrong");
    if (rank == 0) {
        MPI_Send(&word, 1, MPI_INT, 1, 7, comm);
        pthread_join(thread, NULL);
    } else {
        if (rank == 1)
            MPI_Recv(&word, 1, MPI_INT, 0, 7, comm, MPI_STATUS_IGNORE);
        MPI_Barrier(comm);
    }
}

static void *run_lane(void *arguments) {
    const int *values = arguments;
    MPI_Comm comm = MPI_Comm_f2c(values[1]);
    in_flight(values[0], comm, values[2]);
    return NULL;
}

int main(int argc, char **argv) {
    const int rounds = argc > 1 ? atoi(argv[1]) : 40;
    const int threads = argc > 2 && strcmp(argv[2], "threads") == 0;
    int provided = MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks > 8 || (threads && provided != MPI_THREAD_MULTIPLE)) {
        printf("skipped: 8 ranks at most, and MPI_THREAD_MULTIPLE\n");
        MPI_Finalize();
        return 77;
    }
    // FLX serves what does not block only after one that does: without it Open MPI 4.1 gets the operations, and crashes
    // where their types and communicators are freed before they end.
    MPI_Barrier(MPI_COMM_WORLD);
    odds();
    if (threads) {
        MPI_Comm comms[2];
        int arguments[2][3];
        pthread_t thread[2];
        for (int i = 0; i < 2; ++i) {
            MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
            MPI_Barrier(comms[i]);
            arguments[i][0] = i;
            arguments[i][1] = MPI_Comm_c2f(comms[i]);
            arguments[i][2] = rounds;
        }
        for (int i = 0; i < 2; ++i)
            pthread_create(&thread[i], NULL, run_lane, arguments[i]);
        for (int i = 0; i < 2; ++i)
            pthread_join(thread[i], NULL);
        if (ranks > 1)
            wait_beside_a_call(comms[0]);
        for (int i = 0; i < 2; ++i)
            MPI_Comm_free(&comms[i]);
    } else {
        in_flight(0, MPI_COMM_WORLD, rounds);
        persistent(rounds);
        persistent_in_another_order();
        duplicates_crosswise();
    }
    int all = 0;
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf(all == 0 ? "right\n" : "wrong\n");
    MPI_Finalize();
    return all == 0 ? 0 : 1;
}
