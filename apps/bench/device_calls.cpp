#include "apps/bench/device_calls.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "apps/bench/data.h"
#include "apps/bench/device_data.h"
#include "apps/bench/nccl.h"
#include "apps/bench/sizes.h"
#include "apps/common/clock.h"
#include "apps/common/ranks.h"

namespace flx::bench {
namespace {

using apps::now;

struct Free {
    void operator()(void *memory) const { cudaFree(memory); }
};
using Memory = std::unique_ptr<void, Free>;

/// Of whole pages, as memory pools have it: in other allocations, copies both ways at once are a quarter slower.
Memory allocate(size_t bytes) {
    constexpr size_t kPage = 2 << 20;
    void *memory = nullptr;
    const size_t pages = std::max<size_t>((bytes + kPage - 1) / kPage, 1);
    return Memory(cudaMalloc(&memory, pages * kPage) == cudaSuccess ? memory : nullptr);
}

class Calls final : public DeviceCalls {
  public:
    Calls(const CallOptions &options, const DeviceSettings &settings, flx_comm_t comm, MPI_Comm mpi_comm)
        : settings_(settings),
          comm_(comm),
          mpi_comm_(mpi_comm),
          job_(job_of(options, mpi_comm)),
          pattern_(pattern_for(job_)) {}

    ~Calls() override {
        if (settings_.registered && recv_)
            flx_deregister(comm_, recv_.get());
        if (stream_ != nullptr)
            cudaStreamDestroy(stream_);
    }

    std::string prepare(const CallOptions &options) {
        size_t send = 0;
        for (const uint64_t bytes : options.sizes) {
            const Shape shape = shape_of(options, bytes, job_.ranks);
            send = std::max(send, shape.send_elements * size_of(options.dtype));
            most_ = std::max<size_t>(most_, shape.bytes);
        }
        send_ = allocate(send);
        recv_ = allocate(most_ + kGuardBytes);
        table_ = allocate(Pattern::kPeriod * sizeof(uint64_t));
        wrong_ = allocate(sizeof(unsigned long long));
        if (!send_ || !recv_ || !table_ || !wrong_ ||
            cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) != cudaSuccess)
            return "not enough GPU memory for buffers of the largest size";
        job_.send = static_cast<std::byte *>(send_.get());
        job_.recv = static_cast<std::byte *>(recv_.get());
        return {};
    }

    /// Collective.
    std::string connect() {
        std::string why;
        if (settings_.nccl) {
            // In-switch multicast is left out of the comparison; FLX does not use it.
            setenv("NCCL_NVLS_ENABLE", "0", 1);
            nccl_ = Nccl::make(mpi_comm_, why);
            if (!nccl_)
                return why;
        }
        return admit(comm_);
    }

    void take(const Shape &shape) override { job_.shape = shape; }
    [[nodiscard]] const Job &job() const override { return job_; }

    std::string admit(flx_comm_t comm) override {
        if (settings_.registered && flx_register(comm, recv_.get(), most_ + kGuardBytes) != FLX_SUCCESS)
            return flx_last_error();
        return {};
    }

    [[nodiscard]] std::string way(flx_comm_t comm) const override {
        const char *name = "-";
        std::string text(name_of(job_.kind));
        if (flx_comm_device_algorithm(comm, text.c_str(), job_.shape.bytes, job_.recv, &name) != FLX_SUCCESS)
            return "-";
        return name;
    }
    [[nodiscard]] bool has_nccl() const override { return nccl_ && nccl_->serves(job_); }
    [[nodiscard]] std::string why_no_nccl() const override {
        return nccl_ && !has_nccl() ? fmt::format("{} has no such type", nccl_->version()) : "";
    }

    [[nodiscard]] CUstream_st *stream() const override { return stream_; }
    void wait() override { must(cudaStreamSynchronize(stream_)); }

    void put(flx_comm_t comm) override {
        if (comm == kNccl) {
            if (const std::string what = nccl_->call(job_, stream_); !what.empty())
                fail(what);
            return;
        }
        const void *send = job_.in_place ? FLX_IN_PLACE : job_.send;
        const size_t count = job_.shape.count;
        flx_status_t status = FLX_ERR_ARGUMENT;
        switch (job_.kind) {
            case Collective::kAllreduce:
                status = flx_allreduce_on_stream(send, job_.recv, count, job_.dtype, job_.op, comm, stream_);
                break;
            case Collective::kReduceScatterBlock:
                status = flx_reduce_scatter_block_on_stream(send, job_.recv, count, job_.dtype, job_.op, comm, stream_);
                break;
            case Collective::kAllgather:
                status = flx_allgather_on_stream(send, job_.recv, count, job_.dtype, comm, stream_);
                break;
            case Collective::kBcast:
                status = flx_bcast_on_stream(job_.recv, count, job_.dtype, job_.root, comm, stream_);
                break;
            case Collective::kReduce:
                status = flx_reduce_on_stream(job_.rank == job_.root ? send
                                              : job_.in_place        ? job_.recv
                                                                     : job_.send,
                                              job_.recv, count, job_.dtype, job_.op, job_.root, comm, stream_);
                break;
            case Collective::kAlltoall:
                status = flx_alltoall_on_stream(send, job_.recv, count, job_.dtype, comm, stream_);
                break;
            case Collective::kSendrecv:
                status = flx_sendrecv_on_stream(job_.send, job_.recv, count, count, job_.dtype,
                                                (job_.rank + 1) % job_.ranks, previous(), comm, stream_);
                break;
            default:  // on host memory only: is_for_devices()
                break;
        }
        if (status != FLX_SUCCESS)
            fail(flx_last_error());
    }

    uint64_t checked(flx_comm_t comm) override {
        ++call_;
        const size_t count = job_.shape.count;
        const size_t block = count * size_of(job_.dtype);
        must(cudaMemsetAsync(job_.recv, static_cast<int>(kPoison), job_.shape.bytes + kGuardBytes, stream_));
        must(cudaMemsetAsync(wrong_.get(), 0, sizeof(unsigned long long), stream_));
        if (job_.kind == Collective::kBcast) {
            if (job_.rank == job_.root)
                fill(job_.recv, job_.rank, count);
        } else if (!job_.in_place) {
            fill(job_.send, job_.rank, job_.shape.send_elements);
        } else {
            fill(job_.recv + (job_.kind == Collective::kAllgather ? job_.rank * block : 0), job_.rank,
                 job_.shape.send_elements);
        }
        wait();
        MPI_Barrier(mpi_comm_);
        put(comm);
        wait();
        size_t guard = job_.shape.recv_elements * size_of(job_.dtype);
        switch (job_.kind) {
            case Collective::kAllreduce:
                compare(job_.recv, -1, 0, count);
                break;
            case Collective::kReduceScatterBlock:
                compare(job_.recv, -1, job_.rank * count, count);
                guard = job_.in_place ? job_.shape.bytes : guard;
                break;
            case Collective::kReduce:
                if (job_.rank == job_.root)
                    compare(job_.recv, -1, 0, count);
                else if (!job_.in_place)
                    guard = 0;
                break;
            case Collective::kBcast:
                compare(job_.recv, job_.root, 0, count);
                break;
            case Collective::kAllgather:
            case Collective::kAlltoall:
                for (int rank = 0; rank < job_.ranks; ++rank)
                    compare(job_.recv + rank * block, rank, job_.kind == Collective::kAlltoall ? job_.rank * count : 0,
                            count);
                break;
            case Collective::kSendrecv:
                compare(job_.recv, previous(), 0, count);
                break;
            default:  // on host memory only: is_for_devices()
                break;
        }
        std::array<std::byte, kGuardBytes> after{};
        unsigned long long wrong = 0;
        must(cudaMemcpyAsync(after.data(), job_.recv + guard, after.size(), cudaMemcpyDeviceToHost, stream_));
        must(cudaMemcpyAsync(&wrong, wrong_.get(), sizeof wrong, cudaMemcpyDeviceToHost, stream_));
        wait();
        uint64_t all = wrong + std::count_if(after.begin(), after.end(), [](std::byte b) { return b != kPoison; });
        MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_UINT64_T, MPI_SUM, mpi_comm_);
        return all;
    }

    double time(flx_comm_t comm, int64_t count) override {
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t replay = nullptr;
        if (settings_.graph) {
            must(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
            for (int64_t i = 0; i < count; ++i)
                put(comm);
            must(cudaStreamEndCapture(stream_, &graph));
            must(cudaGraphInstantiate(&replay, graph, 0));
            must(cudaGraphUpload(replay, stream_));
        } else {
            put(comm);
        }
        wait();
        MPI_Barrier(mpi_comm_);
        const double begin = now();
        if (settings_.graph)
            must(cudaGraphLaunch(replay, stream_));
        for (int64_t i = 0; !settings_.graph && i < count; ++i)
            put(comm);
        wait();
        const double seconds = now() - begin;
        if (settings_.graph) {
            cudaGraphExecDestroy(replay);
            cudaGraphDestroy(graph);
        }
        return seconds;
    }

    double seconds_of_one(flx_comm_t comm, double enough) override {
        for (int64_t count = 2;; count *= 4) {
            const double seconds = slowest(time(comm, count));
            if (seconds >= enough || count >= 512)
                return seconds / static_cast<double>(count);
        }
    }
    [[nodiscard]] double slowest(double seconds) const override {
        MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, mpi_comm_);
        return seconds;
    }

    void describe(Machine &machine) const override {
        cudaDeviceProp properties{};
        int device = 0;
        int driver = 0;
        cudaGetDevice(&device);
        cudaGetDeviceProperties(&properties, device);
        cudaDriverGetVersion(&driver);
        machine.text +=
            fmt::format("; GPUs: {}, driver for CUDA {}.{}", properties.name, driver / 1000, driver % 1000 / 10);
        if (nccl_) {
            machine.mpi = nccl_->version() + ", NVLS off";
            machine.mpi_settings = {"NCCL_NVLS_ENABLE=0"};
        }
    }

    [[noreturn]] void fail(const std::string &what) const override {
        apps::give_up(fmt::format("{} of {} stopped", name_of(job_.kind), size_text(job_.shape.bytes)), what);
    }
    void must(int error) const override {
        if (error != cudaSuccess)
            fail(cudaGetErrorString(static_cast<cudaError_t>(error)));
    }

  private:
    /// Writes this turn of a rank's input from element `first`, or of the result, into the table.
    void load_table(int rank, size_t first) {
        host_.resize(Pattern::kPeriod * size_of(job_.dtype));
        if (rank < 0)
            pattern_.write_result(host_.data(), first, Pattern::kPeriod, call_);
        else
            pattern_.write_input(host_.data(), rank, first, Pattern::kPeriod, call_);
        must(cudaMemcpyAsync(table_.get(), host_.data(), host_.size(), cudaMemcpyHostToDevice, stream_));
        wait();
    }
    /// From which a sendrecv receives.
    [[nodiscard]] int previous() const { return (job_.rank + job_.ranks - 1) % job_.ranks; }

    void fill(std::byte *to, int rank, size_t count) {
        load_table(rank, 0);
        must(fill_from_table(to, table_.get(), count, size_of(job_.dtype), Pattern::kPeriod, stream_));
    }
    void compare(const std::byte *got, int rank, size_t first, size_t count) {
        load_table(rank, first);
        must(count_unlike_table(got, table_.get(), count, size_of(job_.dtype), Pattern::kPeriod,
                                static_cast<unsigned long long *>(wrong_.get()), stream_));
    }

    const DeviceSettings settings_;
    flx_comm_t comm_;
    MPI_Comm mpi_comm_;
    Job job_;
    Pattern pattern_;
    std::unique_ptr<Nccl> nccl_;
    Memory send_;
    Memory recv_;
    Memory table_;
    Memory wrong_;
    size_t most_ = 0;
    cudaStream_t stream_ = nullptr;
    std::vector<std::byte> host_;
    uint64_t call_ = 0;  ///< which turn of the pattern is in the buffers
};

}  // namespace

std::string take_device(MPI_Comm mpi_comm) {
    MPI_Comm host = MPI_COMM_NULL;
    MPI_Comm_split_type(mpi_comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    int place = 0;
    MPI_Comm_rank(host, &place);
    MPI_Comm_free(&host);
    int devices = 0;
    const cudaError_t error = cudaGetDeviceCount(&devices);
    if (error != cudaSuccess || devices == 0)
        return fmt::format("no GPU can be used: {}",
                           error != cudaSuccess ? cudaGetErrorString(error) : "none is visible");
    if (cudaSetDevice(place % devices) != cudaSuccess || cudaFree(nullptr) != cudaSuccess)
        return fmt::format("GPU {} could not be used: {}", place % devices, cudaGetErrorString(cudaGetLastError()));
    return {};
}

std::unique_ptr<DeviceCalls> DeviceCalls::make(const CallOptions &options, const DeviceSettings &settings,
                                               flx_comm_t comm, MPI_Comm mpi_comm, std::string &why) {
    auto made = std::make_unique<Calls>(options, settings, comm, mpi_comm);
    why = apps::agreed(made->prepare(options));
    if (why.empty())
        why = apps::agreed(made->connect());
    return why.empty() ? std::move(made) : nullptr;
}

}  // namespace flx::bench
