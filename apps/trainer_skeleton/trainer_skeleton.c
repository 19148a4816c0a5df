/// What data-parallel training needs of FLX, in C: first weights by broadcast, gradients averaged in buckets, and a
/// look at whether all ranks still have the same model. The model is linear and its data made up, so that the right
/// weights are known; put your own in their place.
///
///     mpirun -n 4 trainer_skeleton [STEPS]
#include <flx.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kWeights = 4096, kBucket = 1024, kBatch = 16 };

/// Any error ends the program, with FLX's sentence.
static void check(flx_status_t status, const char *call) {
    if (status == FLX_SUCCESS)
        return;
    fprintf(stderr, "%s: %s\n", call, flx_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}
#define CHECK(call) check(call, #call)

/// Numbers from -1 to 1.
static float draw(uint64_t *state) {
    *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
    return (float)((double)(*state >> 11) / 4503599627370496.0 - 1.0);
}

/// One step on this rank's batch: fills `gradient` and returns the loss. `right` makes the labels.
static double backward(const float *weights, const float *right, uint64_t *state, float *gradient) {
    static float sample[kWeights];
    double loss = 0;
    memset(gradient, 0, kWeights * sizeof *gradient);
    for (int s = 0; s < kBatch; ++s) {
        float off = 0;
        for (int i = 0; i < kWeights; ++i) {
            sample[i] = draw(state);
            off += sample[i] * (weights[i] - right[i]);
        }
        for (int i = 0; i < kWeights; ++i)
            gradient[i] += off * sample[i] / kBatch;
        loss += 0.5 * off * off / kBatch;
    }
    return loss;
}

static uint64_t hash_of(const float *weights) {
    uint64_t hash = 1469598103934665603ULL;
    for (size_t i = 0; i < kWeights * sizeof *weights; ++i)
        hash = (hash ^ ((const unsigned char *)weights)[i]) * 1099511628211ULL;
    return hash;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    const long steps = argc > 1 ? strtol(argv[1], NULL, 10) : 200;
    int rank;
    int ranks;
    flx_comm_t comm;
    CHECK(flx_comm_create(MPI_COMM_WORLD, NULL, &comm));
    CHECK(flx_comm_rank(comm, &rank));
    CHECK(flx_comm_size(comm, &ranks));

    static float weights[kWeights];
    static float right[kWeights];
    static float gradient[kWeights];
    uint64_t labels = 42;
    for (int i = 0; i < kWeights; ++i)
        right[i] = draw(&labels);
    // Every rank begins with rank 0's weights and goes through data of its own.
    uint64_t state = 1000 + (uint64_t)rank;
    for (int i = 0; i < kWeights; ++i)
        weights[i] = draw(&state);
    CHECK(flx_bcast(weights, kWeights, FLX_F32, 0, comm));

    // The step that least squares by stochastic gradients stand: samples have the squared length kWeights / 3.
    const float rate = (float)(0.9 * kBatch * ranks / (kBatch * ranks + kWeights) * 3.0);
    double first = 0;
    double loss = 0;
    for (long step = 0; step < steps; ++step) {
        loss = backward(weights, right, &state, gradient);
        // From the last layer to the first, as a backward pass has them ready.
        for (int end = kWeights; end > 0; end -= kBucket)
            CHECK(flx_allreduce(FLX_IN_PLACE, gradient + end - kBucket, kBucket, FLX_F32, FLX_AVG, comm));
        for (int i = 0; i < kWeights; ++i)
            weights[i] -= rate * gradient[i];
        CHECK(flx_allreduce(FLX_IN_PLACE, &loss, 1, FLX_F64, FLX_AVG, comm));
        if (step == 0)
            first = loss;
        if (rank == 0 && (step % 50 == 0 || step == steps - 1))
            printf("step %ld: loss %g\n", step, loss);
    }

    // All ranks added the same bits in the same order: their weights are equal, not nearly so.
    const uint64_t mine = hash_of(weights);
    uint64_t *all = malloc((size_t)ranks * sizeof *all);
    CHECK(flx_allgather(&mine, all, 1, FLX_UINT64, comm));
    int same = 1;
    for (int r = 0; r < ranks; ++r)
        same = same && all[r] == mine;
    free(all);
    if (rank == 0) {
        flx_link_stats_t links[16];
        size_t count = 0;
        CHECK(flx_comm_link_stats(comm, links, sizeof links[0], 16, &count));
        for (size_t l = 0; l < count && l < 16; ++l)
            printf("link %s: %llu bytes\n", links[l].name, (unsigned long long)links[l].bytes_sent);
        printf("%s weights on %d ranks, loss from %g to %g\n", same ? "equal" : "DIFFERENT", ranks, first, loss);
    }
    CHECK(flx_comm_free(&comm));
    MPI_Finalize();
    return same && (steps < 200 || loss < first / 2) ? 0 : 1;
}
