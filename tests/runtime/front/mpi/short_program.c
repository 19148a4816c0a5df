/// A program that is over before FLX would pay. Its sums are by a function of its own: says "right".
#include <mpi.h>
#include <stdio.h>

static void add(void *in, void *inout, int *count, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *count; ++i)
        ((long *)inout)[i] += ((const long *)in)[i];
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank = 0, size = 0, right = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Op op = MPI_OP_NULL;
    MPI_Op_create(add, 1, &op);
    for (int call = 0; call < 20; ++call) {
        long values[2] = {rank, call};
        MPI_Allreduce(MPI_IN_PLACE, values, 2, MPI_LONG, op, MPI_COMM_WORLD);
        right = right && values[0] == (long)size * (size - 1) / 2 && values[1] == (long)size * call;
    }
    MPI_Op_free(&op);
    MPI_Finalize();
    if (rank == 0 || !right)
        puts(right ? "right" : "wrong");
    return right ? 0 : 1;
}
