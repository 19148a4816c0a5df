/// What a program may notice of the drop-in library besides results: run under it, checks itself and says "right".
#include <dirent.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/runtime/front/mpi/persistent.h"

static int rank;
static int ranks;
static int failures;

static void expect(int holds, const char *what) {
    if (holds)
        return;
    fprintf(stderr, "rank %d: %s\n", rank, what);
    ++failures;
}

/// Of this process, in KiB.
static long resident(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%*d %ld", &pages) != 1)
        pages = 0;
    if (file != NULL)
        fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static int open_files(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder != NULL && readdir(folder) != NULL)
        ++count;
    closedir(folder);
    return count;
}

static int sum_over(MPI_Comm comm, int mine) {
    int sum = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm);
    return sum;
}

/// Communicators come and go: what they take does not grow.
static void churn(int rounds) {
    long before = 0;
    int files = 0;
    for (int round = 0; round < rounds; ++round) {
        MPI_Comm dup;
        MPI_Comm part;
        MPI_Comm_dup(MPI_COMM_WORLD, &dup);
        MPI_Comm_split(MPI_COMM_WORLD, rank % 2, round % 3 == 0 ? -rank : rank, &part);
        expect(sum_over(dup, 1) == ranks, "a sum over a duplicate is wrong");
        expect(sum_over(part, 1) == (ranks + (rank + 1) % 2) / 2, "a sum over a part is wrong");
        // In different orders, and not at the same time.
        if (rank == 0)
            MPI_Comm_free(&dup);
        MPI_Comm_free(&part);
        if (rank != 0)
            MPI_Comm_free(&dup);
        if (round == rounds / 4) {
            before = resident();
            files = open_files();
        }
    }
    if (resident() - before > 4096 || open_files() != files)
        fprintf(stderr, "rank %d: %ld KiB more, %d files instead of %d\n", rank, resident() - before, open_files(),
                files);
    expect(resident() - before <= 4096, "memory grows with communicators that were freed");
    expect(open_files() == files, "files stay open with communicators that were freed");
}

static int handled;
static void handler(MPI_Comm *comm, int *code, ...) {
    (void)comm;
    (void)code;
    ++handled;
}

static int copies;
static int copy(MPI_Comm comm, int keyval, void *extra, void *in, void *out, int *flag) {
    (void)comm, (void)keyval, (void)extra;
    *(void **)out = in;
    *flag = 1;
    ++copies;
    return MPI_SUCCESS;
}

/// Errors go to the program's handlers, and its attributes are not touched.
static void handlers(void) {
    MPI_Comm comm;
    MPI_Errhandler own;
    int keyval;
    int value = 0;
    int error_class = MPI_SUCCESS;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_keyval(copy, MPI_COMM_NULL_DELETE_FN, &keyval, NULL);
    MPI_Comm_set_attr(comm, keyval, &value);
    MPI_Comm_create_errhandler(handler, &own);
    MPI_Comm_set_errhandler(comm, own);
    expect(sum_over(comm, 1) == ranks, "a sum before errors is wrong");
    expect(MPI_Bcast(&value, 1, MPI_INT, ranks + 5, comm) != MPI_SUCCESS && handled == 1,
           "a wrong root does not reach the error handler");
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    const int code = MPI_Allreduce(&value, &value + 1, -1, MPI_INT, MPI_SUM, comm);
    MPI_Error_class(code, &error_class);
    expect(error_class == MPI_ERR_COUNT, "a negative count is not MPI_ERR_COUNT");
    expect(handled == 1, "a handler that was replaced is called");
    expect(sum_over(comm, 1) == ranks, "a sum after errors is wrong");
    expect(copies == 0, "the program's attributes were copied");
    MPI_Errhandler_free(&own);
    MPI_Comm_free_keyval(&keyval);
    MPI_Comm_free(&comm);
}

/// A message that moves only when its sender is inside MPI, while the sender waits in a collective; and the reverse.
static void pending(void) {
    enum { kCount = 1 << 20 };
    int *data = malloc(kCount * sizeof *data);
    MPI_Request request = MPI_REQUEST_NULL;
    for (int i = 0; i < kCount; ++i)
        data[i] = rank == 0 ? i : -1;
    if (rank == 0)
        MPI_Isend(data, kCount, MPI_INT, 1, 7, MPI_COMM_WORLD, &request);
    if (rank == 1) {
        MPI_Recv(data, kCount, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        expect(data[kCount - 1] == kCount - 1, "a pending message is wrong");
    }
    expect(sum_over(MPI_COMM_WORLD, 1) == ranks, "a sum with a message pending is wrong");
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    free(data);
}

/// Collectives that do not block, beside those that do, and waited for together with messages.
static void not_blocking(void) {
    const int next = (rank + 1) % ranks;
    int from = -1;
    int mine = rank + 1;
    int sum = -1;
    int most = -1;
    MPI_Request requests[4];
    MPI_Irecv(&from, 1, MPI_INT, (rank + ranks - 1) % ranks, 3, MPI_COMM_WORLD, &requests[0]);
    MPI_Iallreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[1]);
    expect(sum_over(MPI_COMM_WORLD, 2) == 2 * ranks, "a sum while another is under way is wrong");
    MPI_Isend(&mine, 1, MPI_INT, next, 3, MPI_COMM_WORLD, &requests[2]);
    MPI_Ibarrier(MPI_COMM_WORLD, &requests[3]);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    expect(sum == ranks * (ranks + 1) / 2, "a sum that does not block is wrong");
    expect(from == (rank + ranks - 1) % ranks + 1, "a message beside collectives that do not block is wrong");
    PERSISTENT(Allreduce)(&mine, &most, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
    for (int round = 0; round < 3; ++round) {
        mine = rank + round;
        MPI_Start(&requests[0]);
        expect(sum_over(MPI_COMM_WORLD, 1) == ranks, "a sum beside a persistent one is wrong");
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        expect(most == ranks - 1 + round, "a persistent maximum is wrong");
    }
    MPI_Request_free(&requests[0]);
}

static void *work(void *comm) {
    for (int i = 0; i < 200; ++i)
        expect(sum_over(*(MPI_Comm *)comm, i) == i * ranks, "a sum from a thread is wrong");
    return NULL;
}

/// Threads with a communicator each, whose FLX communicators are made at once.
static void threads(void) {
    MPI_Comm comms[3];
    pthread_t thread[3];
    for (int i = 0; i < 3; ++i)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    for (int i = 0; i < 3; ++i)
        pthread_create(&thread[i], NULL, work, &comms[i]);
    for (int i = 0; i < 3; ++i)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < 3; ++i)
        MPI_Comm_free(&comms[2 - i]);
}

/// A rank that is stopped for longer than FLX's programs are given, as by a debugger: MPI waits, and so must this.
static void stopped(void) {
    enum { kSeconds = 35 };
    const pid_t self = getpid();
    expect(sum_over(MPI_COMM_WORLD, 1) == ranks, "a sum before the stop is wrong");
    if (rank == 1) {
        const pid_t waker = fork();
        if (waker == 0) {
            sleep(kSeconds);
            kill(self, SIGCONT);
            _exit(0);
        }
        kill(self, SIGSTOP);
        waitpid(waker, NULL, 0);
    }
    expect(sum_over(MPI_COMM_WORLD, 1) == ranks, "a sum after the stop is wrong");
}

int main(int argc, char **argv) {
    const int with_threads = argc > 1 && strcmp(argv[1], "threads") == 0;
    int provided = MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, with_threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (with_threads && provided != MPI_THREAD_MULTIPLE) {
        printf("skipped: MPI has no MPI_THREAD_MULTIPLE\n");
        MPI_Finalize();
        return 77;
    }
    handlers();
    if (ranks > 1)
        pending();
    not_blocking();
    if (argc > 1 && strcmp(argv[1], "stopped") == 0)
        stopped();
    else if (with_threads)
        threads();
    else
        churn(200);
    if (rank == 1)
        usleep(500000);  // late, which is no error
    const int all = sum_over(MPI_COMM_WORLD, failures);
    if (rank == 0)
        printf(all == 0 ? "right\n" : "wrong\n");
    MPI_Finalize();
    return all == 0 ? 0 : 1;
}
