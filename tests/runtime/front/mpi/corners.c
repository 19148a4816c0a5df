/// What the drop-in library leaves to MPI beside what it serves, in random order, with ranks that come late: says
/// "right".
///   corners between ROUNDS   intercommunicators, of MPI_Intercomm_create, beside the program's other communicators
///   corners windows ROUNDS   what a rank completed in a window before a barrier is seen after it
///   corners spawn ROUNDS     ranks that MPI_Comm_spawn starts, which may not have the library
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kMost = 6000, kRanks = 16, kSkipped = 77 };

static int rank;
static int ranks;
static int failures;
static uint64_t common_state;
static uint64_t own_state;

static int draw_from(uint64_t *state, int below) {
    *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (int)((*state >> 33) % (uint64_t)below);
}
static int draw(int below) {
    return draw_from(&common_state, below);
}

static void come_late(void) {
    if (draw_from(&own_state, 4) == 0)
        usleep((useconds_t)draw_from(&own_state, 1500));
}

static void expect(int holds, const char *what) {
    if (holds || ++failures > 10)
        return;
    fprintf(stderr, "rank %d: %s\n", rank, what);
}

/// Element i of what `who` gives in call `call`.
static int value(int call, int who, int i) {
    return call * 7919 + who * 104729 + i * 31;
}

static int in[kMost * kRanks];
static int out[kMost * kRanks];

static void give(int call, int who, int count) {
    for (int i = 0; i < count; ++i)
        in[i] = value(call, who, i);
    memset(out, 0xa5, sizeof(int) * (size_t)count * kRanks);
}

static int is_from(const int *data, int call, int who, int count) {
    for (int i = 0; i < count; ++i)
        if (data[i] != value(call, who, i))
            return 0;
    return 1;
}

static int draw_count(void) {
    static const int counts[] = {1, 2, 28, 29, 64, 65, 256, 1024, 1025, 3000, 6000};
    return counts[draw(sizeof counts / sizeof counts[0])];
}

/// Calls of one intracommunicator whose root goes on.
static void run_within(MPI_Comm comm, int *call) {
    int me = 0;
    int size = 0;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &size);
    come_late();
    const int many = 1 + draw(8);
    for (int i = 0; i < many; ++i, ++*call) {
        const int count = draw_count();
        give(*call, me, count);
        MPI_Bcast(me == 0 ? in : out, count, MPI_INT, 0, comm);
        expect(is_from(me == 0 ? in : out, *call, 0, count), "a broadcast within is wrong");
    }
    const int count = draw_count() / 6 + 1;
    give(*call, me, count);
    MPI_Allgather(in, count, MPI_INT, out, count, MPI_INT, comm);
    for (int i = 0; i < size; ++i)
        expect(is_from(out + i * count, *call, i, count), "an allgather within is wrong");
    ++*call;
}

/// One call between two groups; `first`: this rank is in the one whose rank 0 may be root.
static void call_between(MPI_Comm between, int first, int call) {
    int me = 0;
    int there = 0;
    MPI_Comm_rank(between, &me);
    MPI_Comm_remote_size(between, &there);
    const int kind = draw(5);
    const int count = kind == 4 ? 1 : draw_count();
    // Ranks of the second group have numbers from 100 on.
    const int mine = first ? me : 100 + me;
    const int theirs = first ? 100 : 0;
    give(call, mine, count);
    come_late();
    switch (kind) {
        case 0:
        case 1: {
            MPI_Request request = MPI_REQUEST_NULL;
            void *data = first ? in : out;
            const int root = first ? (me == 0 ? MPI_ROOT : MPI_PROC_NULL) : 0;
            if (kind == 0)
                MPI_Bcast(data, count, MPI_INT, root, between);
            else
                MPI_Ibcast(data, count, MPI_INT, root, between, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            expect(first || is_from(out, call, 0, count), "a broadcast to the other group is wrong");
            break;
        }
        case 2:
            MPI_Allgather(in, count, MPI_INT, out, count, MPI_INT, between);
            for (int i = 0; i < there; ++i)
                expect(is_from(out + i * count, call, theirs + i, count), "an allgather of the other group is wrong");
            break;
        case 3: {
            MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, between);
            for (int i = 0; i < count; ++i) {
                int sum = 0;
                for (int who = 0; who < there; ++who)
                    sum += value(call, theirs + who, i);
                if (out[i] == sum)
                    continue;
                expect(0, "a sum over the other group is wrong");
                break;
            }
            break;
        }
        default:
            MPI_Barrier(between);
    }
}

static void between_groups(int rounds) {
    MPI_Comm half;
    MPI_Comm between;
    MPI_Comm merged;
    const int first = rank % 2 == 0;
    int call = 1;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, first ? 1 : 0, 3, &between);
    MPI_Intercomm_merge(between, !first, &merged);
    for (int round = 0; round < rounds; ++round) {
        switch (draw(4)) {
            case 0:
                run_within(MPI_COMM_WORLD, &call);
                break;
            case 1:
                run_within(merged, &call);
                break;
            default:
                call_between(between, first, call++);
        }
    }
    MPI_Comm_free(&merged);
    MPI_Comm_free(&between);
    MPI_Comm_free(&half);
}

/// What parents and children do alike; `first`: the parents.
static void with_spawned(MPI_Comm between, int first, int rounds) {
    MPI_Comm merged;
    int call = 1;
    MPI_Intercomm_merge(between, !first, &merged);
    for (int round = 0; round < rounds; ++round) {
        if (draw(2) == 0)
            run_within(merged, &call);
        else
            call_between(between, first, call++);
    }
    MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, merged);
    MPI_Comm_free(&merged);
    MPI_Comm_disconnect(&between);
}

/// 0, or the code of a test that cannot run.
static int spawn(char *program, int rounds) {
    char number[20];
    snprintf(number, sizeof number, "%d", rounds);
    char mode[] = "spawn";
    char *arguments[] = {mode, number, NULL};
    MPI_Comm children = MPI_COMM_NULL;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "map_by", "core:OVERSUBSCRIBE");
    const int code = MPI_Comm_spawn(program, arguments, 2, info, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
    MPI_Info_free(&info);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    if (code != MPI_SUCCESS || children == MPI_COMM_NULL) {
        if (rank == 0)
            puts("skipped: this MPI cannot start further ranks here");
        return kSkipped;
    }
    int call = 1000000;
    run_within(MPI_COMM_WORLD, &call);
    common_state = 5;  // as the children's
    with_spawned(children, 1, rounds);
    run_within(MPI_COMM_WORLD, &call);
    return 0;
}

/// The other ranks give rank 0 access to their memory, and ask once whether it is done with that.
static void windows(int rounds) {
    int memory = 0;
    for (int round = 0; round < rounds; ++round) {
        MPI_Win window;
        MPI_Group all;
        MPI_Group some;
        const int zero = 0;
        MPI_Win_create(&memory, sizeof memory, sizeof memory, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
        MPI_Win_get_group(window, &all);
        come_late();
        if (rank == 0) {
            MPI_Group_excl(all, 1, &zero, &some);
            MPI_Win_start(some, 0, window);
            for (int peer = 1; peer < ranks; ++peer)  // a message that waits meanwhile
                MPI_Send(&round, 1, MPI_INT, peer, 5, MPI_COMM_WORLD);
            for (int put = 0; put < round % 8; ++put)
                for (int peer = 1; peer < ranks; ++peer)
                    MPI_Put(&round, 1, MPI_INT, peer, 0, 1, MPI_INT, window);
            MPI_Win_complete(window);
            MPI_Barrier(MPI_COMM_WORLD);
        } else {
            int done = 0;
            MPI_Group_incl(all, 1, &zero, &some);
            MPI_Win_post(some, 0, window);
            MPI_Barrier(MPI_COMM_WORLD);
            MPI_Win_test(window, &done);
            expect(done, "what was completed before the barrier is not seen after it");
            if (!done)
                MPI_Win_wait(window);
            MPI_Recv(&done, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            expect(done == round, "a message is not what was sent");
        }
        MPI_Group_free(&some);
        MPI_Group_free(&all);
        MPI_Win_free(&window);
    }
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    const int number = argc > 2 ? atoi(argv[2]) : 0;
    int skipped = 0;
    MPI_Comm parents = MPI_COMM_NULL;
    MPI_Init(&argc, &argv);
    alarm(200);  // a call that waits for ever ends the program
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_get_parent(&parents);
    common_state = 5;
    own_state = (uint64_t)rank + 77 + (parents != MPI_COMM_NULL);
    if (ranks > kRanks)
        MPI_Abort(MPI_COMM_WORLD, 2);
    if (parents != MPI_COMM_NULL) {
        with_spawned(parents, 0, number);
        MPI_Finalize();
        return 0;
    }
    if (strcmp(mode, "between") == 0)
        between_groups(number);
    else if (strcmp(mode, "windows") == 0)
        windows(number);
    else if (strcmp(mode, "spawn") == 0)
        skipped = spawn(argv[0], number);
    else
        MPI_Abort(MPI_COMM_WORLD, 2);
    int all = 0;
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && skipped == 0)
        puts(all == 0 ? "right" : "wrong");
    MPI_Finalize();
    return skipped;
}
