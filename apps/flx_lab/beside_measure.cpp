#include "apps/flx_lab/beside_measure.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>

#include "apps/bench/timing.h"
#include "apps/common/clock.h"
#include "apps/common/ranks.h"
#include "apps/flx_lab/device_beside.h"
#include "apps/flx_lab/product.h"

namespace flx::bench::lab {
namespace {

using apps::now;

class Measurement final : public BesideMeasurer {
  public:
    Measurement(const Options &options, DeviceCalls &calls, flx_comm_t comm, MPI_Comm mpi_comm)
        : warmup_(options.warmup), calls_(calls), comm_(comm), mpi_comm_(mpi_comm) {}

    ~Measurement() override {
        if (spare_comm_ != nullptr)
            flx_comm_free(&spare_comm_);
        if (stream_ != nullptr)
            cudaStreamDestroy(stream_);
    }

    /// Collective.
    std::string prepare() {
        std::string why;
        product_ = Product::make(kProductSide, why);
        if (!product_)
            return why;
        if (cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) != cudaSuccess)
            return "no stream for the product";
        const char *set = std::getenv("FLX_CUDA_BLOCKS");
        const std::string before = set == nullptr ? "" : set;
        setenv("FLX_CUDA_BLOCKS", "0", 1);
        const flx_status_t made = flx_comm_create(mpi_comm_, nullptr, &spare_comm_);
        if (set == nullptr)
            unsetenv("FLX_CUDA_BLOCKS");
        else
            setenv("FLX_CUDA_BLOCKS", before.c_str(), 1);
        return made != FLX_SUCCESS ? flx_last_error() : calls_.admit(spare_comm_);
    }

    Beside measure(const Shape &shape) override {
        constexpr double kWindow = 0.03;  // seconds
        constexpr int kLeastPieces = 8;
        constexpr int kMostPieces = 400;
        calls_.take(shape);
        Beside result;
        result.bytes = shape.bytes;
        std::vector<int> calls;
        for (const Side side : {Side::flx, Side::spare, Side::peer}) {
            if (side == Side::peer && !calls_.has_nccl())
                continue;
            BesideSide &made = result.sides.emplace_back();
            made.side = side;
            made.algorithm = side == Side::peer ? "-" : calls_.way(comm_of(side));
            made.wrong = calls_.checked(comm_of(side));
            calls_.time(comm_of(side), std::max(warmup_, 1));
            calls.push_back(std::clamp(static_cast<int>(kWindow / calls_.seconds_of_one(comm_of(side), kWindow / 4)),
                                       kLeastPieces, kMostPieces));
        }
        time_products(2);
        const int products =
            std::clamp(static_cast<int>(kWindow / time_products(kLeastPieces)), kLeastPieces, kMostPieces);
        for (int round = 0; round < kBesideRounds; ++round) {
            result.product.push_back(time_products(products));
            const int sides = static_cast<int>(result.sides.size());
            for (int turn = 0; turn < sides; ++turn) {
                const int at = side_in_turn(round, turn, sides);
                BesideSide &measured = result.sides[at];
                const double seconds = calls_.time(comm_of(measured.side), calls[at]);
                measured.alone.push_back(calls_.slowest(seconds / static_cast<double>(calls[at])));
                const Pace pace = together(measured.side, calls[at], products);
                measured.beside.push_back(calls_.slowest(pace.one));
                measured.product.push_back(calls_.slowest(pace.other));
            }
        }
        for (BesideSide &side : result.sides)
            side.wrong += calls_.checked(comm_of(side.side));
        return result;
    }

    [[nodiscard]] double flops() const override { return product_->flops(); }

  private:
    [[nodiscard]] flx_comm_t comm_of(Side side) const {
        return side == Side::peer ? kNccl : side == Side::spare ? spare_comm_ : comm_;
    }

    void put_product() {
        if (const std::string what = product_->put(stream_); !what.empty())
            calls_.fail(what);
    }

    /// Seconds of one, alone, on the slowest rank.
    double time_products(int count) {
        put_product();
        calls_.must(cudaStreamSynchronize(stream_));
        MPI_Barrier(mpi_comm_);
        const double begin = now();
        for (int i = 0; i < count; ++i)
            put_product();
        calls_.must(cudaStreamSynchronize(stream_));
        return calls_.slowest((now() - begin) / count);
    }

    Pace together(Side side, int calls, int products) {
        Pace pace;
        MPI_Barrier(mpi_comm_);
        calls_.must(run_together({calls_.stream(), calls, [&] { calls_.put(comm_of(side)); }},
                                 {stream_, products, [&] { put_product(); }}, pace));
        return pace;
    }

    int warmup_;
    DeviceCalls &calls_;
    flx_comm_t comm_;
    MPI_Comm mpi_comm_;
    flx_comm_t spare_comm_ = nullptr;
    std::unique_ptr<Product> product_;
    cudaStream_t stream_ = nullptr;
};

}  // namespace

std::unique_ptr<BesideMeasurer> BesideMeasurer::make(const Options &options, DeviceCalls &calls, flx_comm_t comm,
                                                     MPI_Comm mpi_comm, std::string &why) {
    auto made = std::make_unique<Measurement>(options, calls, comm, mpi_comm);
    why = apps::agreed(made->prepare());
    return why.empty() ? std::move(made) : nullptr;
}

}  // namespace flx::bench::lab
