/* A program that loads FLX when it runs already, as Python, Julia and plug-ins do:
 *   loaded_late LIBFLX [ANOTHER LIBRARY TO LOAD]...
 * It has threads by then and has loaded other libraries, which took of the room that threads' blocks have left. */
#include <dlfcn.h>
#include <flx.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static int rank;

#define DIE(...)                            \
    do {                                    \
        fprintf(stderr, "rank %d: ", rank); \
        fprintf(stderr, __VA_ARGS__);       \
        fputc('\n', stderr);                \
        MPI_Abort(MPI_COMM_WORLD, 1);       \
        exit(1);                            \
    } while (0)

static void *load(const char *name) {
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        DIE("%s is not loaded: %s", name, dlerror());
    return library;
}

static void *find(void *library, const char *name) {
    void *function = dlsym(library, name);
    if (function == NULL)
        DIE("%s is not found: %s", name, dlerror());
    return function;
}

/* Declares NAME as a pointer to the function of the library. */
#define FIND(NAME) __typeof__(&flx_##NAME) NAME = (__typeof__(&flx_##NAME))find(flx, "flx_" #NAME)

static void add(const void *in, void *inout, size_t count, flx_dtype_t dtype, void *arg) {
    (void)dtype;
    (void)arg;
    for (size_t i = 0; i < count; ++i)
        ((int *)inout)[i] += ((const int *)in)[i];
}

enum { kCount = 20000 };
static flx_comm_t comm;
static __typeof__(&flx_allreduce) allreduce;
static int size;

/* Sums by FLX and by a function of the program's, which needs room of the thread that calls. */
static void check(flx_op_t op) {
    static int in[kCount];
    static int out[kCount];
    for (int i = 0; i < kCount; ++i)
        in[i] = i + rank;
    if (allreduce(in, out, kCount, FLX_INT32, op, comm) != FLX_SUCCESS)
        DIE("an allreduce fails");
    for (int i = 0; i < kCount; ++i)
        if (out[i] != i * size + size * (size - 1) / 2)
            DIE("element %d of an allreduce is %d", i, out[i]);
}

static pthread_barrier_t loaded;

static void *of_thread(void *op) {
    pthread_barrier_wait(&loaded);
    check(*(flx_op_t *)op);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 2)
        return 2;
    int level = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    flx_op_t op = FLX_SUM;
    pthread_t thread;
    pthread_barrier_init(&loaded, NULL, 2);
    pthread_create(&thread, NULL, of_thread, &op);
    static const char *const others[] = {"libgomp.so.1", "libstdc++.so.6", "libgfortran.so.5", "libz.so.1"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; ++i)
        dlopen(others[i], RTLD_NOW | RTLD_LOCAL); /* where they are installed */

    void *flx = load(argv[1]);
    for (int i = 2; i < argc; ++i)
        load(argv[i]);
    FIND(comm_create);
    FIND(comm_free);
    FIND(op_create);
    FIND(op_free);
    FIND(last_error);
    allreduce = (__typeof__(allreduce))find(flx, "flx_allreduce");
    if (comm_create(MPI_COMM_WORLD, NULL, &comm) != FLX_SUCCESS)
        DIE("no communicator: %s", last_error());
    check(FLX_SUM);
    if (op_create(add, NULL, 1, &op) != FLX_SUCCESS)
        DIE("no reduction: %s", last_error());
    check(op);
    pthread_barrier_wait(&loaded);
    pthread_join(thread, NULL);
    if (op_free(&op) != FLX_SUCCESS || comm_free(&comm) != FLX_SUCCESS)
        DIE("not freed: %s", last_error());
    MPI_Finalize();
    return 0;
}
