// C++17, outside the tree: in place, and the reason of a failure.
#include <flx.h>

#include <cstdio>
#include <string>
#include <vector>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    flx_config_t config = FLX_CONFIG_INIT;
    flx_comm_t comm = nullptr;
    if (flx_comm_create(MPI_COMM_WORLD, &config, &comm) != FLX_SUCCESS) {
        std::fprintf(stderr, "%s\n", flx_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    int size = 0;
    flx_comm_size(comm, &size);
    std::vector<float> data(1000, 1.0F);
    bool right = flx_allreduce(FLX_IN_PLACE, data.data(), data.size(), FLX_F32, FLX_SUM, comm) == FLX_SUCCESS;
    right = right && data == std::vector<float>(1000, static_cast<float>(size));
    right = right && !std::string(flx_strerror(FLX_ERR_PEER)).empty();
    // In place without a cast, where it is the output.
    int rank = 0;
    float parts[2] = {1, 2};
    flx_comm_rank(comm, &rank);
    right = right && flx_scatter(parts, rank == 0 ? FLX_IN_PLACE : parts, 1, FLX_F32, 0, comm) == FLX_SUCCESS;
    right = right && parts[0] == static_cast<float>(rank + 1);
    flx_comm_free(&comm);
    MPI_Finalize();
    if (right && size == 2) {
        std::printf("right\n");
    }
    return right ? 0 : 1;
}
