/* A solver as programs have it: conjugate gradients for Poisson's equation on a square, cut into blocks. In each step
   neighbours exchange the edges of their blocks by MPI_Neighbor_alltoallv, and two sums over all ranks are persistent
   allreduces, made once and started in every step.
     poisson [POINTS [STEPS]]    POINTS along each side (256), STEPS of the solver (800)
   The right-hand side is made from a known solution. Says "right" if what it finds is nearer to that than it began by a
   factor of a million, and how long a step took. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/runtime/front/mpi/persistent.h"

enum { kSides = 4, kUp = 0, kDown = 1, kLeft = 2, kRight = 3 };

/* This rank's block, and what goes to its neighbours and comes from them, side by side. */
static int rows, columns;
static int first_row, first_column;
static int counts[kSides], places[kSides];
static double *given, *taken;
static MPI_Comm grid;

static void *room(size_t count) {
    void *memory = calloc(count, sizeof(double));
    if (memory == NULL)
        MPI_Abort(MPI_COMM_WORLD, 2);
    return memory;
}

/* Point (i, j) of a block with an edge of one point around it. */
static size_t at(int i, int j) {
    return (size_t)(i + 1) * (size_t)(columns + 2) + (size_t)(j + 1);
}

static void exchange_edges(double *x) {
    for (int j = 0; j < columns; ++j) {
        given[places[kUp] + j] = x[at(0, j)];
        given[places[kDown] + j] = x[at(rows - 1, j)];
    }
    for (int i = 0; i < rows; ++i) {
        given[places[kLeft] + i] = x[at(i, 0)];
        given[places[kRight] + i] = x[at(i, columns - 1)];
    }
    /* What lies beyond the square stays zero: there is no neighbour to take it from. */
    MPI_Neighbor_alltoallv(given, counts, places, MPI_DOUBLE, taken, counts, places, MPI_DOUBLE, grid);
    for (int j = 0; j < columns; ++j) {
        x[at(-1, j)] = taken[places[kUp] + j];
        x[at(rows, j)] = taken[places[kDown] + j];
    }
    for (int i = 0; i < rows; ++i) {
        x[at(i, -1)] = taken[places[kLeft] + i];
        x[at(i, columns)] = taken[places[kRight] + i];
    }
}

/* y = A x, and this rank's part of x·y. */
static double apply(double *x, double *y) {
    double product = 0;
    exchange_edges(x);
    for (int i = 0; i < rows; ++i)
        for (int j = 0; j < columns; ++j) {
            y[at(i, j)] = 4 * x[at(i, j)] - x[at(i - 1, j)] - x[at(i + 1, j)] - x[at(i, j - 1)] - x[at(i, j + 1)];
            product += x[at(i, j)] * y[at(i, j)];
        }
    return product;
}

/* x = a x + b y, and this rank's part of x·x. */
static double combine(double a, double *x, double b, const double *y) {
    double square = 0;
    for (int i = 0; i < rows; ++i)
        for (int j = 0; j < columns; ++j) {
            x[at(i, j)] = a * x[at(i, j)] + b * y[at(i, j)];
            square += x[at(i, j)] * x[at(i, j)];
        }
    return square;
}

/* Several waves, so that the solver needs some steps. */
static double solution(int i, int j, int points) {
    const double u = (i + 1.0) / (points + 1);
    const double v = (j + 1.0) / (points + 1);
    return u * (1 - u) * v * (1 - v) * exp(2 * u + v) + 0.1 * sin(9.42477796 * u) * sin(15.70796327 * v);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    const int points = argc > 1 ? atoi(argv[1]) : 256;
    const int steps = argc > 2 ? atoi(argv[2]) : 800;
    int rank = 0;
    int ranks = 0;
    int shape[2] = {0, 0};
    int place[2] = {0, 0};
    const int periods[2] = {0, 0};
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Dims_create(ranks, 2, shape);
    MPI_Cart_create(MPI_COMM_WORLD, 2, shape, periods, 0, &grid);
    MPI_Comm_rank(grid, &rank);
    MPI_Cart_coords(grid, rank, 2, place);
    if (points < shape[0] || steps < 1) {
        fprintf(stderr, "poisson: needs a step, and a row of points for each rank\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    first_row = points * place[0] / shape[0];
    rows = points * (place[0] + 1) / shape[0] - first_row;
    first_column = points * place[1] / shape[1];
    columns = points * (place[1] + 1) / shape[1] - first_column;
    for (int side = 0, next = 0; side < kSides; next += counts[side++]) {
        counts[side] = side == kUp || side == kDown ? columns : rows;
        places[side] = next;
    }
    const size_t block = (size_t)(rows + 2) * (size_t)(columns + 2);
    const size_t edges = 2 * (size_t)(rows + columns);
    given = room(edges);
    taken = room(edges);
    double *exact = room(block);
    double *x = room(block);
    double *r = room(block);
    double *p = room(block);
    double *q = room(block);
    for (int i = 0; i < rows; ++i)
        for (int j = 0; j < columns; ++j)
            exact[at(i, j)] = solution(first_row + i, first_column + j, points);
    apply(exact, r); /* what is left, from x = 0 */
    const double begun = combine(0, p, 1, exact);

    double mine[2] = {0, 0};
    double all[2] = {0, 0};
    MPI_Request products[2];
    for (int k = 0; k < 2; ++k)
        PERSISTENT(Allreduce)(&mine[k], &all[k], 1, MPI_DOUBLE, MPI_SUM, grid, MPI_INFO_NULL, &products[k]);
    MPI_Barrier(grid);
    const double begin = MPI_Wtime();
    mine[1] = combine(0, p, 1, r);
    MPI_Start(&products[1]);
    MPI_Wait(&products[1], MPI_STATUS_IGNORE);
    for (int step = 0; step < steps; ++step) {
        const double before = all[1];
        mine[0] = apply(p, q);
        MPI_Start(&products[0]);
        MPI_Wait(&products[0], MPI_STATUS_IGNORE);
        const double a = before / all[0];
        mine[1] = combine(1, r, -a, q);
        MPI_Start(&products[1]);
        combine(1, x, a, p); /* while the sum is under way */
        MPI_Wait(&products[1], MPI_STATUS_IGNORE);
        combine(all[1] / before, p, 1, r);
    }
    const double took = MPI_Wtime() - begin;
    double squares[2] = {combine(1, x, -1, exact), begun};
    MPI_Allreduce(MPI_IN_PLACE, squares, 2, MPI_DOUBLE, MPI_SUM, grid);
    const double left = sqrt(squares[0] / squares[1]);
    const int right = left < 1e-6;
    if (rank == 0) {
        puts(right ? "right" : "wrong");
        fprintf(stderr, "%d steps on %d x %d blocks, %.1f us each; %.1e of the error is left\n", steps, shape[0],
                shape[1], took / steps * 1e6, left);
    }
    for (int k = 0; k < 2; ++k)
        MPI_Request_free(&products[k]);
    MPI_Comm_free(&grid);
    MPI_Finalize();
    return right ? 0 : 1;
}
