/// Data in types that are made of parts, as programs have them for more than 2^31 of something where MPI lacks
/// functions with MPI_Count: says "right".
///   large_types BLOCK BLOCKS   a vector of BLOCKS times BLOCK bytes, and seven bytes
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kRest = 7, kHalf = 12 };

static MPI_Datatype parts(int block, int blocks) {
    MPI_Datatype pieces[2], all;
    const int lengths[2] = {1, 1};
    const MPI_Aint places[2] = {0, (MPI_Aint)block * blocks};
    MPI_Type_vector(blocks, block, block, MPI_BYTE, &pieces[0]);
    MPI_Type_contiguous(kRest, MPI_BYTE, &pieces[1]);
    MPI_Type_create_struct(2, lengths, places, pieces, &all);
    MPI_Type_commit(&all);
    MPI_Type_free(&pieces[0]);
    MPI_Type_free(&pieces[1]);
    return all;
}

/// No holes, but not in the order in which the bytes lie.
static MPI_Datatype swapped(int block) {
    const int lengths[2] = {1, 1};
    const MPI_Aint places[2] = {block, 0};
    MPI_Datatype pieces[2], all;
    MPI_Type_contiguous(block, MPI_BYTE, &pieces[0]);
    pieces[1] = pieces[0];
    MPI_Type_create_struct(2, lengths, places, pieces, &all);
    MPI_Type_commit(&all);
    MPI_Type_free(&pieces[0]);
    return all;
}

static unsigned char byte_at(size_t i) {
    return (unsigned char)((uint32_t)i * 2654435761U >> 16);
}

int main(int argc, char **argv) {
    const int block = argc > 1 ? atoi(argv[1]) : 1000;
    const int blocks = argc > 2 ? atoi(argv[2]) : 3;
    const size_t bytes = (size_t)block * (size_t)blocks + kRest;
    int rank = 0, ranks = 0, failures = 0, all = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int root = ranks - 1;
    unsigned char *data = calloc(1, bytes);
    if (data == NULL) {
        MPI_Abort(MPI_COMM_WORLD, 1);
        return 1;
    }
    MPI_Datatype type = parts(block, blocks);
    for (size_t i = 0; rank == root && i < bytes; ++i)
        data[i] = byte_at(i);
    MPI_Bcast(data, 1, type, root, MPI_COMM_WORLD);
    for (size_t i = 0; i < bytes && failures == 0; ++i)
        failures += data[i] != byte_at(i);
    MPI_Type_free(&type);

    char halves[2 * kHalf + 1] = "abcdefghijklmnopqrstuvwx", got[2 * kHalf + 1] = "";
    type = swapped(kHalf);
    if (rank == root)
        MPI_Bcast(halves, 1, type, root, MPI_COMM_WORLD);
    else
        MPI_Bcast(got, 2 * kHalf, MPI_BYTE, root, MPI_COMM_WORLD);
    failures += rank != root && strcmp(got, "mnopqrstuvwxabcdefghijkl") != 0;
    MPI_Type_free(&type);

    // Nobody may free these, and what is made of them is asked what it is made of.
    MPI_Datatype real;
    double values[4] = {rank, rank, rank, rank};
    MPI_Type_create_f90_real(15, 300, &real);
    MPI_Type_contiguous(2, real, &type);
    MPI_Type_commit(&type);
    MPI_Bcast(values, 2, type, root, MPI_COMM_WORLD);
    failures += values[0] != root || values[3] != root;
    MPI_Type_free(&type);

    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf(all == 0 ? "right\n" : "wrong\n");
    free(data);
    MPI_Finalize();
    return all == 0 ? 0 : 1;
}
