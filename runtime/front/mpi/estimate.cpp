#include "runtime/front/mpi/estimate.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <vector>

namespace flx::preload {
namespace {

constexpr size_t kMostBytes = size_t{16} << 20;
constexpr double kBudgetS = 0.5;

struct Cell {
    size_t collective;
    size_t bucket;
    uint64_t calls;
};

/// One call of `bytes`, the larger of a rank's input and output, by FLX or by MPI. False where it failed or there is
/// nothing that is alike.
class Trial {
  public:
    Trial(Collective collective, size_t bytes, flx_comm_t comm) : collective_(collective), comm_(comm) {
        PMPI_Comm_size(MPI_COMM_WORLD, &size_);
        const size_t elements = std::max<size_t>(bytes / sizeof(float), 1);
        block_ = std::max<size_t>(elements / size_, 1);
        count_ = elements;
        const size_t most = std::max(count_, block_ * size_);
        in_.assign(most, 1.0F);
        out_.assign(most, 0.0F);
    }
    bool by_flx() {
        const float *in = in_.data();
        float *out = out_.data();
        switch (collective_) {
            case Collective::allreduce:
                return flx_allreduce(in, out, count_, FLX_F32, FLX_SUM, comm_) == FLX_SUCCESS;
            case Collective::reduce:
                return flx_reduce(in, out, count_, FLX_F32, FLX_SUM, 0, comm_) == FLX_SUCCESS;
            case Collective::bcast:
                return flx_bcast(out, count_, FLX_F32, 0, comm_) == FLX_SUCCESS;
            case Collective::barrier:
                return flx_barrier(comm_) == FLX_SUCCESS;
            case Collective::scan:
                return flx_scan(in, out, count_, FLX_F32, FLX_SUM, comm_) == FLX_SUCCESS;
            case Collective::exscan:
                return flx_exscan(in, out, count_, FLX_F32, FLX_SUM, comm_) == FLX_SUCCESS;
            case Collective::allgather:
            case Collective::allgatherv:
                return flx_allgather(in, out, block_, FLX_F32, comm_) == FLX_SUCCESS;
            case Collective::alltoall:
            case Collective::alltoallv:
            case Collective::alltoallw:
                return flx_alltoall(in, out, block_, FLX_F32, comm_) == FLX_SUCCESS;
            case Collective::reduce_scatter:
            case Collective::reduce_scatter_block:
                return flx_reduce_scatter_block(in, out, block_, FLX_F32, FLX_SUM, comm_) == FLX_SUCCESS;
            case Collective::gather:
                return flx_gather(in, out, block_, FLX_F32, 0, comm_) == FLX_SUCCESS;
            case Collective::scatter:
                return flx_scatter(in, out, block_, FLX_F32, 0, comm_) == FLX_SUCCESS;
            default:
                return false;
        }
    }
    bool by_mpi() {
        MPI_Comm world = MPI_COMM_WORLD;
        const float *in = in_.data();
        float *out = out_.data();
        const int count = static_cast<int>(count_);
        const int block = static_cast<int>(block_);
        switch (collective_) {
            case Collective::allreduce:
                return PMPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, world) == MPI_SUCCESS;
            case Collective::reduce:
                return PMPI_Reduce(in, out, count, MPI_FLOAT, MPI_SUM, 0, world) == MPI_SUCCESS;
            case Collective::bcast:
                return PMPI_Bcast(out, count, MPI_FLOAT, 0, world) == MPI_SUCCESS;
            case Collective::barrier:
                return PMPI_Barrier(world) == MPI_SUCCESS;
            case Collective::scan:
                return PMPI_Scan(in, out, count, MPI_FLOAT, MPI_SUM, world) == MPI_SUCCESS;
            case Collective::exscan:
                return PMPI_Exscan(in, out, count, MPI_FLOAT, MPI_SUM, world) == MPI_SUCCESS;
            case Collective::allgather:
            case Collective::allgatherv:
                return PMPI_Allgather(in, block, MPI_FLOAT, out, block, MPI_FLOAT, world) == MPI_SUCCESS;
            case Collective::alltoall:
            case Collective::alltoallv:
            case Collective::alltoallw:
                return PMPI_Alltoall(in, block, MPI_FLOAT, out, block, MPI_FLOAT, world) == MPI_SUCCESS;
            case Collective::reduce_scatter:
            case Collective::reduce_scatter_block:
                return PMPI_Reduce_scatter_block(in, out, block, MPI_FLOAT, MPI_SUM, world) == MPI_SUCCESS;
            case Collective::gather:
                return PMPI_Gather(in, block, MPI_FLOAT, out, block, MPI_FLOAT, 0, world) == MPI_SUCCESS;
            case Collective::scatter:
                return PMPI_Scatter(in, block, MPI_FLOAT, out, block, MPI_FLOAT, 0, world) == MPI_SUCCESS;
            default:
                return false;
        }
    }

  private:
    Collective collective_;
    flx_comm_t comm_;
    int size_ = 1;
    size_t count_ = 0;
    size_t block_ = 0;
    std::vector<float> in_;
    std::vector<float> out_;
};

/// Seconds of one of some calls in a row.
template <typename Once>
double time_of(int calls, Once &&once) {
    PMPI_Barrier(MPI_COMM_WORLD);
    const double began = PMPI_Wtime();
    for (int i = 0; i < calls; ++i)
        if (!once())
            return -1;
    return (PMPI_Wtime() - began) / calls;
}

}  // namespace

Saved estimate(const Sizes &sizes, flx_comm_t comm) {
    Saved saved;
    std::vector<Cell> cells;
    for (size_t c = 0; c < kCollectives.size(); ++c)
        for (size_t b = 0; b < kSizes && b < std::bit_width(kMostBytes); ++b)
            if (sizes[c][b] != 0)
                cells.push_back({c, b, sizes[c][b]});
    std::stable_sort(cells.begin(), cells.end(), [](const Cell &x, const Cell &y) { return x.calls > y.calls; });
    int ranks = 1;
    PMPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const double began = PMPI_Wtime();
    for (const Cell &cell : cells) {
        int on = PMPI_Wtime() - began < kBudgetS ? 1 : 0;
        PMPI_Bcast(&on, 1, MPI_INT, 0, MPI_COMM_WORLD);
        if (on == 0)
            break;
        constexpr size_t kSmall = 64 << 10;
        // In the middle of the sizes that the bucket stands for.
        const size_t bytes = cell.bucket == 0 ? 0 : (size_t{3} << cell.bucket) / 4;
        const int calls = bytes <= kSmall ? 20 : 2;
        Trial trial(static_cast<Collective>(cell.collective), bytes, comm);
        double flx_s = std::numeric_limits<double>::max();
        double mpi_s = flx_s;
        double worst = 0;
        for (int turn = 0; turn < 3; ++turn) {  // of several, the least disturbed
            const double with = time_of(calls, [&] { return trial.by_flx(); });
            const double without = time_of(calls, [&] { return trial.by_mpi(); });
            worst = std::min({worst, with, without});
            flx_s = std::min(flx_s, with);
            mpi_s = std::min(mpi_s, without);
        }
        int failed = worst < 0 ? 1 : 0;
        PMPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        if (failed != 0)
            break;
        saved.known[cell.collective] = true;
        saved.seconds[cell.collective] += static_cast<double>(cell.calls) / ranks * (mpi_s - flx_s);
    }
    return saved;
}

}  // namespace flx::preload
