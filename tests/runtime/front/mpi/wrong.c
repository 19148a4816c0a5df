/* Calls whose arguments are wrong on one rank only, and calls that look wrong and are not. What each rank gets is
 * printed, and must be the same with the library and without. After each, all ranks must be in step: what they call
 * next is paired as MPI pairs it, whether this is on a communicator that they have used before or on a new one.
 *   wrong          all of that, with MPI_ERRORS_RETURN; with the library also data that Open MPI 4.1 gets wrong, and
 *                  arguments that it does not look at
 *   wrong checked  what of that plain MPICH finds, too: elsewhere it takes part, reads from where nothing is, or hangs
 *   wrong fatal    rank 1 calls MPI_Gather with a negative count, with MPI's own error handler */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kMost = 64, kBlock = 12 };
static int rank, size, bad, cases, strict, checked;
static MPI_Comm comm;
static int in[kMost * kBlock], out[kMost * kBlock], counts[kMost], displs[kMost];

static void say(const char *name, int code) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    int class = MPI_SUCCESS;
    MPI_Error_class(code, &class);
    MPI_Error_string(class, text, &length);
    text[strcspn(text, ":")] = '\0';
    printf("%s: rank %d: %s\n", name, rank, text);
    fflush(stdout); /* one line, one write: launchers mix them otherwise */
}

static void expect(int holds, const char *what) {
    if (holds || !strict)
        return;
    ++bad;
    printf("rank %d: %s\n", rank, what);
    fflush(stdout);
}

/* Every other case has a communicator that nothing was called on before. */
static void begin(void) {
    if (++cases % 2 == 0)
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int i = 0; i < kMost * kBlock; ++i) {
        in[i] = rank * 1000 + i;
        out[i] = -1;
    }
    for (int i = 0; i < size; ++i) {
        counts[i] = 2;
        displs[i] = 2 * i;
    }
}

/* Whether MPICH 4.0 does not look at it before it takes part. */
static int unchecked(const char *name) {
    static const char *const names[] = {"bcast, in place",
                                        "gather, in place",
                                        "gatherv, displs",
                                        "gatherv, recvcounts",
                                        "gatherv, in place",
                                        "scatter, in place",
                                        "scatterv, displs",
                                        "scatterv, sendcounts",
                                        "allgatherv, displs",
                                        "alltoall, lengths",
                                        "alltoallv, no counts",
                                        "alltoallv, no displs",
                                        "alltoallv, its own block",
                                        "allreduce, count",
                                        "reduce, in place",
                                        "reduce, count",
                                        "reduce_scatter, no counts",
                                        "reduce_scatter_block, count",
                                        "scan, count"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i)
        if (strncmp(name, names[i], strlen(names[i])) == 0)
            return 1;
    return 0;
}

static void in_step(const char *name) {
    int mine = rank + 1;
    int sum = 0;
    int word = rank == 0 ? cases : 0;
    expect(MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS && sum == size * (size + 1) / 2, name);
    expect(MPI_Bcast(&word, 1, MPI_INT, 0, comm) == MPI_SUCCESS && word == cases, name);
    expect(MPI_Barrier(comm) == MPI_SUCCESS, name);
    if (cases % 2 == 0)
        MPI_Comm_free(&comm);
    comm = MPI_COMM_WORLD;
}

/* One rank makes a call that must be refused, and is not part of it: the others call nothing. */
#define ALONE(NAME, ROOT, CALL)          \
    do {                                 \
        if (checked && unchecked(NAME))  \
            break;                       \
        begin();                         \
        const int caller = cases % size; \
        const int root = ROOT;           \
        (void)root;                      \
        if (rank == caller)              \
            say(NAME, CALL);             \
        in_step(NAME);                   \
    } while (0)
/* As the root, and as another. */
#define AT_ROOT(NAME, CALL) ALONE(NAME " at the root", caller, CALL)
#define ELSEWHERE(NAME, CALL) ALONE(NAME " elsewhere", (caller + 1) % size, CALL)
#define ROOTED(NAME, CALL)     \
    do {                       \
        AT_ROOT(NAME, CALL);   \
        ELSEWHERE(NAME, CALL); \
    } while (0)
#define UNROOTED(NAME, CALL) ALONE(NAME, 0, CALL)

static void refused(void) {
    MPI_Request request = MPI_REQUEST_NULL;
    const MPI_Datatype none = MPI_DATATYPE_NULL;
    counts[0] = 0;
    ROOTED("bcast, count", MPI_Bcast(in, -1, MPI_INT, root, comm));
    ROOTED("bcast, type", MPI_Bcast(in, 2, none, root, comm));
    ROOTED("bcast, in place", MPI_Bcast(MPI_IN_PLACE, 2, MPI_INT, root, comm));
    UNROOTED("bcast, root", MPI_Bcast(in, 2, MPI_INT, size, comm));
    UNROOTED("bcast, negative root", MPI_Bcast(in, 2, MPI_INT, -7, comm));
    ROOTED("ibcast, count", MPI_Ibcast(in, -1, MPI_INT, root, comm, &request));
    ROOTED("gather, sendcount", MPI_Gather(in, -1, MPI_INT, out, 2, MPI_INT, root, comm));
    ROOTED("gather, sendtype", MPI_Gather(in, 2, none, out, 2, MPI_INT, root, comm));
    AT_ROOT("gather, recvcount", MPI_Gather(in, 2, MPI_INT, out, -2, MPI_INT, root, comm));
    AT_ROOT("gather, recvtype", MPI_Gather(in, 2, MPI_INT, out, 2, none, root, comm));
    AT_ROOT("gather, recvbuf in place", MPI_Gather(in, 2, MPI_INT, MPI_IN_PLACE, 2, MPI_INT, root, comm));
    ELSEWHERE("gather, in place", MPI_Gather(MPI_IN_PLACE, 2, MPI_INT, out, 2, MPI_INT, root, comm));
    UNROOTED("gather, root", MPI_Gather(in, 2, MPI_INT, out, 2, MPI_INT, size, comm));
    AT_ROOT("igather, recvcount", MPI_Igather(in, 2, MPI_INT, out, -2, MPI_INT, root, comm, &request));
    AT_ROOT("gatherv, displs", MPI_Gatherv(in, 2, MPI_INT, out, counts, NULL, MPI_INT, root, comm));
    AT_ROOT("gatherv, recvcounts", MPI_Gatherv(in, 2, MPI_INT, out, NULL, displs, MPI_INT, root, comm));
    AT_ROOT("gatherv, a count",
            (counts[size - 1] = -1, MPI_Gatherv(in, 2, MPI_INT, out, counts, displs, MPI_INT, root, comm)));
    AT_ROOT("gatherv, recvtype", MPI_Gatherv(in, 2, MPI_INT, out, counts, displs, none, root, comm));
    ELSEWHERE("gatherv, in place", MPI_Gatherv(MPI_IN_PLACE, 2, MPI_INT, out, counts, displs, MPI_INT, root, comm));
    ROOTED("gatherv, sendcount", MPI_Gatherv(in, -2, MPI_INT, out, counts, displs, MPI_INT, root, comm));
    ROOTED("scatter, recvcount", MPI_Scatter(in, 2, MPI_INT, out, -2, MPI_INT, root, comm));
    ROOTED("scatter, recvtype", MPI_Scatter(in, 2, MPI_INT, out, 2, none, root, comm));
    AT_ROOT("scatter, sendbuf in place", MPI_Scatter(MPI_IN_PLACE, 2, MPI_INT, out, 2, MPI_INT, root, comm));
    ELSEWHERE("scatter, in place", MPI_Scatter(in, 2, MPI_INT, MPI_IN_PLACE, 2, MPI_INT, root, comm));
    AT_ROOT("scatterv, displs", MPI_Scatterv(in, counts, NULL, MPI_INT, out, 2, MPI_INT, root, comm));
    AT_ROOT("scatterv, sendcounts", MPI_Scatterv(in, NULL, displs, MPI_INT, out, 2, MPI_INT, root, comm));
    AT_ROOT("scatterv, a count",
            (counts[0] = -1, MPI_Scatterv(in, counts, displs, MPI_INT, out, 2, MPI_INT, root, comm)));
    ROOTED("scatterv, recvcount", MPI_Scatterv(in, counts, displs, MPI_INT, out, -1, MPI_INT, root, comm));
    UNROOTED("allgather, sendcount", MPI_Allgather(in, -2, MPI_INT, out, 2, MPI_INT, comm));
    UNROOTED("allgather, recvcount", MPI_Allgather(in, 2, MPI_INT, out, -2, MPI_INT, comm));
    UNROOTED("allgather, sendtype", MPI_Allgather(in, 2, none, out, 2, MPI_INT, comm));
    UNROOTED("allgather, recvtype", MPI_Allgather(in, 2, MPI_INT, out, 2, none, comm));
    UNROOTED("allgather, recvbuf in place", MPI_Allgather(in, 2, MPI_INT, MPI_IN_PLACE, 2, MPI_INT, comm));
    UNROOTED("allgatherv, displs", MPI_Allgatherv(in, 2, MPI_INT, out, counts, NULL, MPI_INT, comm));
    UNROOTED("allgatherv, recvtype", MPI_Allgatherv(in, 2, MPI_INT, out, counts, displs, none, comm));
    UNROOTED("alltoall, sendcount", MPI_Alltoall(in, -2, MPI_INT, out, 2, MPI_INT, comm));
    UNROOTED("alltoall, recvtype", MPI_Alltoall(in, 2, MPI_INT, out, 2, none, comm));
    UNROOTED("alltoall, lengths", MPI_Alltoall(in, 2, MPI_INT, out, 3, MPI_INT, comm));
    UNROOTED("ialltoall, lengths", MPI_Ialltoall(in, 2, MPI_INT, out, 3, MPI_INT, comm, &request));
    UNROOTED("alltoallv, no counts", MPI_Alltoallv(in, NULL, displs, MPI_INT, out, counts, displs, MPI_INT, comm));
    UNROOTED("alltoallv, no displs", MPI_Alltoallv(in, counts, displs, MPI_INT, out, counts, NULL, MPI_INT, comm));
    UNROOTED("alltoallv, recvbuf in place",
             MPI_Alltoallv(in, counts, displs, MPI_INT, MPI_IN_PLACE, counts, displs, MPI_INT, comm));
    UNROOTED("alltoallv, a count",
             (counts[0] = -1, MPI_Alltoallv(in, counts, displs, MPI_INT, out, counts, displs, MPI_INT, comm)));
    UNROOTED("alltoallv, its own block",
             MPI_Alltoallv(in, counts, displs, MPI_INT, out, counts, displs, MPI_SHORT, comm));
    UNROOTED("allreduce, count", MPI_Allreduce(in, out, -1, MPI_INT, MPI_SUM, comm));
    UNROOTED("allreduce, op", MPI_Allreduce(in, out, 2, MPI_INT, MPI_OP_NULL, comm));
    UNROOTED("allreduce, op and type", MPI_Allreduce(in, out, 2, MPI_2INT, MPI_SUM, comm));
    UNROOTED("allreduce, one buffer", MPI_Allreduce(in, in, 2, MPI_INT, MPI_SUM, comm));
    UNROOTED("allreduce, recvbuf in place", MPI_Allreduce(in, MPI_IN_PLACE, 2, MPI_INT, MPI_SUM, comm));
    UNROOTED("iallreduce, one buffer", MPI_Iallreduce(in, in, 2, MPI_INT, MPI_SUM, comm, &request));
    AT_ROOT("reduce, one buffer", MPI_Reduce(in, in, 2, MPI_INT, MPI_SUM, root, comm));
    AT_ROOT("reduce, recvbuf in place", MPI_Reduce(in, MPI_IN_PLACE, 2, MPI_INT, MPI_SUM, root, comm));
    ELSEWHERE("reduce, in place", MPI_Reduce(MPI_IN_PLACE, out, 2, MPI_INT, MPI_SUM, root, comm));
    ROOTED("reduce, count", MPI_Reduce(in, out, -2, MPI_INT, MPI_SUM, root, comm));
    UNROOTED("reduce, root", MPI_Reduce(in, out, 2, MPI_INT, MPI_SUM, -1, comm));
    UNROOTED("reduce_scatter, no counts", MPI_Reduce_scatter(in, out, NULL, MPI_INT, MPI_SUM, comm));
    UNROOTED("reduce_scatter, a count", (counts[0] = -1, MPI_Reduce_scatter(in, out, counts, MPI_INT, MPI_SUM, comm)));
    UNROOTED("reduce_scatter_block, count", MPI_Reduce_scatter_block(in, out, -2, MPI_INT, MPI_SUM, comm));
    UNROOTED("scan, count", MPI_Scan(in, out, -1, MPI_INT, MPI_SUM, comm));
    UNROOTED("scan, recvbuf in place", MPI_Scan(in, MPI_IN_PLACE, 2, MPI_INT, MPI_SUM, comm));
    UNROOTED("exscan, op", MPI_Exscan(in, out, 2, MPI_INT, MPI_OP_NULL, comm));
}

/* A call that one rank makes wrongly, and then rightly: what the others have called meanwhile waits for that. */
static void once_more(void) {
    begin();
    if (rank == 1)
        say("bcast, then rightly", MPI_Bcast(in, -1, MPI_INT, 0, comm));
    expect(MPI_Bcast(in, 2, MPI_INT, 0, comm) == MPI_SUCCESS && in[0] == 0 && in[1] == 1, "bcast, then rightly");
    in_step("bcast, then rightly");
    begin();
    if (rank == size - 1)
        say("allreduce, then rightly", MPI_Allreduce(in, in, 3, MPI_INT, MPI_SUM, comm));
    expect(MPI_Allreduce(in, out, 3, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS &&
               out[2] == 2 * size + 1000 * (size * (size - 1) / 2),
           "allreduce, then rightly");
    in_step("allreduce, then rightly");
}

/* One rank's type has holes and is not committed, which is found late: it must not be out of step a thousand calls on.
 */
static void long_after(void) {
    begin();
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_Type_vector(2, 1, 2, MPI_INT, &type);
    MPI_Barrier(comm);
    if (rank == 0)
        say("bcast, a type that is not committed", MPI_Bcast(in, 1, type, 0, comm));
    for (int i = 0; i < 2200; ++i)
        expect(MPI_Barrier(comm) == MPI_SUCCESS, "a barrier, long after");
    MPI_Type_free(&type);
    in_step("long after");
}

/* Lengths at the root that differ from what each rank gives or takes. */
static void lengths(void) {
    begin();
    int code = MPI_Gather(in, 2, MPI_INT, out, rank == 0 ? 1 : 2, MPI_INT, 0, comm);
    say("gather, too little room at the root", code);
    in_step("gather, too little room at the root");
    begin();
    code = MPI_Gather(in, 2, MPI_INT, out, rank == 0 ? 3 : 2, MPI_INT, 0, comm);
    say("gather, more room at the root", code);
    if (rank == 0)
        for (int r = 0; r < size; ++r)
            expect(out[3 * r] == 1000 * r && out[3 * r + 1] == 1000 * r + 1 && out[3 * r + 2] == -1, "its data");
    in_step("gather, more room at the root");
    begin();
    counts[0] = rank == 0 ? 3 : 2;
    for (int r = 1; r < size; ++r)
        displs[r] = 2 * r + 1;
    code = MPI_Gatherv(in, 2, MPI_INT, out, counts, displs, MPI_INT, 0, comm);
    say("gatherv, more room for the root's own", code);
    if (rank == 0)
        expect(out[0] == 0 && out[1] == 1 && out[2] == -1 && out[3] == 1000 && out[4] == 1001, "its data");
    in_step("gatherv, more room for the root's own");
    begin();
    counts[size - 1] = 1;
    code = MPI_Gatherv(in, 2, MPI_INT, out, counts, displs, MPI_INT, size - 1, comm);
    say("gatherv, too little room for the root's own", code);
    if (rank == size - 1)
        expect(out[0] == 0 && out[1] == 1, "its data");
    in_step("gatherv, too little room for the root's own");
    begin();
    counts[size - 1] = 1;
    code = MPI_Scatterv(in, counts, displs, MPI_INT, out, 2, MPI_INT, size - 1, comm);
    say("scatterv, less for the root", code);
    expect(out[0] == 1000 * (size - 1) + 2 * rank && (rank == size - 1 ? out[1] == -1 : out[1] == out[0] + 1),
           "its data");
    in_step("scatterv, less for the root");
    begin();
    out[2 * rank] = out[2 * rank + 1] = 77;
    code = MPI_Allgather(in, rank == 1 ? 1 : 2, MPI_INT, out, 2, MPI_INT, comm);
    say("allgather, less of one rank", code);
    for (int r = 0; r < size; ++r)
        expect(out[2 * r] == 1000 * r && out[2 * r + 1] == (r == 1 ? 77 : 1000 * r + 1), "its data");
    in_step("allgather, less of one rank");
#ifdef OPEN_MPI /* which does nothing then */
    begin();
    say("allgather, nothing given", MPI_Allgather(in, 0, MPI_INT, out, 2, MPI_INT, comm));
    say("gather, nothing given", MPI_Gather(in, 0, MPI_INT, out, 2, MPI_INT, 0, comm));
    say("scatter, nothing taken", MPI_Scatter(in, 2, MPI_INT, out, 0, MPI_INT, 0, comm));
    for (int i = 0; i < 2 * size; ++i)
        expect(out[i] == -1, "its data");
    in_step("nothing given");
#endif
}

#ifdef MPICH_VERSION
static const int in_place_error = MPI_ERR_BUFFER;
#else
static const int in_place_error = MPI_ERR_ARG;
#endif

/* What Open MPI 4.1 does not look at, or not everywhere: MPI's classes all the same. */
static void stricter(void) {
    const int root = size - 1;
#define IS(CLASS, CALL)                  \
    do {                                 \
        int class = 0;                   \
        MPI_Error_class(CALL, &class);   \
        expect(class == (CLASS), #CALL); \
    } while (0)
#define ROOT_IS(CLASS, CALL)                            \
    do {                                                \
        begin();                                        \
        IS(rank == root ? (CLASS) : MPI_SUCCESS, CALL); \
        in_step(#CALL);                                 \
    } while (0)
#define CALLER_IS(CLASS, CALL) \
    do {                       \
        begin();               \
        if (rank == root)      \
            IS(CLASS, CALL);   \
        in_step(#CALL);        \
    } while (0)
    CALLER_IS(MPI_ERR_COUNT, MPI_Scatter(in, -1, MPI_INT, out, 2, MPI_INT, root, comm));
    CALLER_IS(MPI_ERR_TYPE, MPI_Scatter(in, 2, MPI_DATATYPE_NULL, out, 2, MPI_INT, root, comm));
    CALLER_IS(MPI_ERR_COUNT, (counts[0] = -1, MPI_Allgatherv(in, 2, MPI_INT, out, counts, displs, MPI_INT, comm)));
    CALLER_IS(MPI_ERR_TRUNCATE, MPI_Allgather(in, 3, MPI_INT, out, 2, MPI_INT, comm));
    CALLER_IS(MPI_ERR_TRUNCATE, MPI_Allgatherv(in, 3, MPI_INT, out, counts, displs, MPI_INT, comm));
    CALLER_IS(in_place_error, MPI_Exscan(in, MPI_IN_PLACE, 2, MPI_INT, MPI_SUM, comm));
    ROOT_IS(MPI_ERR_TRUNCATE, MPI_Gather(in, 2, MPI_INT, out, rank == root ? 3 : 0, MPI_SHORT, root, comm));
    ROOT_IS(MPI_ERR_TRUNCATE, MPI_Scatter(in, rank == root ? 3 : 0, MPI_INT, out, 2, MPI_INT, root, comm));
    ROOT_IS(MPI_ERR_TRUNCATE, MPI_Scatter(in, rank == root ? 1 : 0, MPI_INT, out, 2, MPI_INT, root, comm));
    ROOT_IS(MPI_ERR_TRUNCATE, (counts[root] = rank == root ? 3 : 0,
                               MPI_Scatterv(in, counts, displs, MPI_INT, out, 2, MPI_INT, root, comm)));
#ifdef OPEN_MPI /* of others FLX has no requests */
    begin();
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Barrier(comm);
    expect(MPI_Igather(in, 2, MPI_INT, out, rank == root ? 1 : 0, MPI_INT, root, comm, &request) == MPI_SUCCESS,
           "an igather with too little room begins");
    IS(rank == root ? MPI_ERR_TRUNCATE : MPI_SUCCESS, MPI_Wait(&request, MPI_STATUS_IGNORE));
    in_step("an igather with too little room");
#endif
}

/* Buffers that overlap, or are the same, in calls where MPI lets them. */
static void one_buffer(void) {
    begin();
    for (int r = 0; r < size; ++r) /* what comes and goes lies in turn */
        counts[r] = 1, displs[r] = 2 * r;
    int code = MPI_Alltoallv(in, counts, displs, MPI_INT, in + 1, counts, displs, MPI_INT, comm);
    say("alltoallv, blocks in turn", code);
    for (int r = 0; r < size; ++r)
        expect(in[2 * r] == rank * 1000 + 2 * r && in[2 * r + 1] == r * 1000 + 2 * rank, "its data");
    in_step("alltoallv, blocks in turn");
    begin();
    say("alltoallv, one buffer", MPI_Alltoallv(in, counts, displs, MPI_INT, in, counts, displs, MPI_INT, comm));
    in_step("alltoallv, one buffer");
    begin();
    MPI_Datatype types[kMost];
    for (int r = 0; r < size; ++r)
        types[r] = MPI_INT, displs[r] = 8 * r;
    say("alltoallw, one buffer", MPI_Alltoallw(in, counts, displs, types, in, counts, displs, types, comm));
    in_step("alltoallw, one buffer");
    begin();
    int *own = in + 2 * rank;
    const int first = own[0];
    code = MPI_Gather(own, 2, MPI_INT, in, 2, MPI_INT, 1, comm);
    say("gather, from where it goes", code);
    if (rank == 1)
        expect(in[0] == 0 && in[1] == 1 && in[2] == first && in[3] == first + 1, "its data");
    in_step("gather, from where it goes");
    begin();
    code = MPI_Gatherv(in + 2 * rank, 2, MPI_INT, in, counts, displs, MPI_INT, 1, comm);
    say("gatherv, from where it goes", code);
    in_step("gatherv, from where it goes");
    begin();
    say("scatter, to where it comes from", MPI_Scatter(in, 2, MPI_INT, rank == 1 ? in + 2 : out, 2, MPI_INT, 1, comm));
    expect((rank == 1 ? in[2] : out[0]) == 1000 + 2 * rank, "its data");
    in_step("scatter, to where it comes from");
    begin();
    say("scatterv, to where it comes from",
        MPI_Scatterv(in, counts, displs, MPI_INT, rank == 1 ? in + 2 : out, 2, MPI_INT, 1, comm));
    in_step("scatterv, to where it comes from");
    begin();
    say("allgatherv, from where it goes", MPI_Allgatherv(in + 2 * rank, 2, MPI_INT, in, counts, displs, MPI_INT, comm));
    for (int r = 0; r < size; ++r)
        expect(in[2 * r] == 1000 * r + 2 * r, "its data");
    in_step("allgatherv, from where it goes");
    begin();
    int both[1] = {rank + 1};
    say("allreduce of one element, one buffer", MPI_Allreduce(both, both, 1, MPI_INT, MPI_SUM, comm));
    expect(both[0] == size * (size + 1) / 2, "its data");
    in_step("allreduce of one element, one buffer");
    begin();
    say("reduce, one buffer elsewhere than at the root",
        MPI_Reduce(in, rank == 0 ? out : in, 2, MPI_INT, MPI_MAX, 0, comm));
    expect(rank != 0 || out[1] == 1000 * (size - 1) + 1, "its data");
    in_step("reduce, one buffer elsewhere than at the root");
}

static void add(void *left, void *right, int *n, MPI_Datatype *type) {
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    MPI_Type_get_true_extent(*type, &lower, &extent);
    (void)n; /* one element */
    for (MPI_Aint at = lower; at < lower + extent; at += (MPI_Aint)sizeof(int)) {
        int value = 0;
        int other = 0;
        memcpy(&value, (char *)left + at, sizeof value);
        memcpy(&other, (char *)right + at, sizeof other);
        value += other;
        memcpy((char *)right + at, &value, sizeof value);
    }
}

/* Types with absolute addresses. MPI_BOTTOM is null, as what is not given may be. */
static void at_bottom(void) {
    static int mine[2];
    MPI_Op op = MPI_OP_NULL;
    MPI_Op_create(add, 1, &op);
    for (int root = 0; root < 2; ++root) {
        begin();
        MPI_Aint at = 0;
        int length = 2;
        MPI_Datatype type = MPI_DATATYPE_NULL;
        MPI_Get_address(mine, &at);
        MPI_Type_create_hindexed(1, &length, &at, MPI_INT, &type);
        MPI_Type_commit(&type);
        mine[0] = rank;
        mine[1] = 1;
        /* NOLINTNEXTLINE(bugprone-branch-clone): MPI_BOTTOM is null here, not everywhere */
        int code = MPI_Reduce(rank == root ? MPI_IN_PLACE : MPI_BOTTOM, rank == root ? MPI_BOTTOM : NULL, 1, type, op,
                              root, comm);
        say("reduce at MPI_BOTTOM", code);
        if (rank == root)
            expect(mine[0] == size * (size - 1) / 2 && mine[1] == size, "its data");
        mine[0] = rank;
        mine[1] = 1;
        code = MPI_Allreduce(MPI_IN_PLACE, MPI_BOTTOM, 1, type, op, comm);
        say("allreduce at MPI_BOTTOM", code);
        expect(mine[0] == size * (size - 1) / 2 && mine[1] == size, "its data");
        mine[0] = rank;
        mine[1] = 1;
        code = MPI_Gather(MPI_BOTTOM, 1, type, out, 2, MPI_INT, root, comm);
        say("gather at MPI_BOTTOM", code);
        if (rank == root)
            expect(out[2 * (size - 1)] == size - 1 && out[1] == 1, "its data");
        code = MPI_Scatter(in, 2, MPI_INT, MPI_BOTTOM, 1, type, root, comm);
        say("scatter at MPI_BOTTOM", code);
        expect(mine[0] == root * 1000 + 2 * rank, "its data");
        MPI_Type_free(&type);
        in_step("MPI_BOTTOM");
    }
    MPI_Op_free(&op);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    alarm(100);
    static char line[4096];
    setvbuf(stdout, line, _IOFBF, sizeof line); /* MPICH takes the buffer away */
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    comm = MPI_COMM_WORLD;
    const char *preloaded = getenv("LD_PRELOAD");
    const char *served = getenv("FLX_MPI");
    strict =
        preloaded != NULL && strstr(preloaded, "libflx_mpi") != NULL && served != NULL && strcmp(served, "on") == 0;
    if (size < 2 || size > kMost)
        MPI_Abort(MPI_COMM_WORLD, 2);
    if (argc > 1 && strcmp(argv[1], "fatal") == 0) {
        MPI_Barrier(comm);
        MPI_Gather(in, rank == 1 ? -1 : 2, MPI_INT, out, 2, MPI_INT, 1, comm);
        MPI_Barrier(comm);
        printf("it went on\n");
        return 0;
    }
    checked = argc > 1 && strcmp(argv[1], "checked") == 0;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    refused();
    once_more();
    long_after();
    if (!checked) {
        lengths();
        if (strict)
            stricter();
        one_buffer();
    }
    at_bottom();
    MPI_Allreduce(MPI_IN_PLACE, &bad, 1, MPI_INT, MPI_SUM, comm);
    if (rank == 0)
        printf("%s\n", bad == 0 ? "right" : "wrong");
    MPI_Finalize();
    return bad != 0;
}
