/* C11, outside the tree: the README's example, checked. */
#include <flx.h>
#include <stdio.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    flx_config_t config = FLX_CONFIG_INIT;
    flx_comm_t comm = NULL;
    if (flx_version() != FLX_VERSION_MAJOR * 10000 + FLX_VERSION_MINOR * 100 + FLX_VERSION_PATCH) {
        fprintf(stderr, "flx.h and the library have different versions\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (flx_comm_create(MPI_COMM_WORLD, &config, &comm) != FLX_SUCCESS) {
        fprintf(stderr, "%s\n", flx_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    int size = 0;
    flx_comm_size(comm, &size);
    float ones[1000];
    float sums[1000] = {0};
    for (int i = 0; i < 1000; i++) {
        ones[i] = 1;
    }
    flx_status_t status = flx_allreduce(ones, sums, 1000, FLX_F32, FLX_SUM, comm);
    int wrong = status != FLX_SUCCESS;
    for (int i = 0; i < 1000; i++) {
        wrong += sums[i] != (float)size;
    }
    /* In place without a cast, where it is the output. */
    int rank = 0;
    float parts[2] = {1, 2};
    flx_comm_rank(comm, &rank);
    wrong += flx_scatter(parts, rank == 0 ? FLX_IN_PLACE : parts, 1, FLX_F32, 0, comm) != FLX_SUCCESS;
    wrong += parts[0] != (float)(rank + 1);
    flx_comm_free(&comm);
    MPI_Finalize();
    if (wrong == 0 && size == 2) {
        printf("right\n");
    }
    return wrong != 0;
}
