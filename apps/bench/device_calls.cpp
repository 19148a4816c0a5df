#include "apps/bench/device_calls.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <type_traits>

#include "apps/bench/data.h"
#include "apps/bench/device_data.h"
#include "apps/bench/nccl.h"
#include "apps/bench/sizes.h"
#include "apps/bench/timing.h"
#include "apps/common/clock.h"
#include "apps/common/ranks.h"
#include "apps/flx_perf/copies.h"
#include "apps/flx_perf/device_beside.h"
#include "apps/flx_perf/product.h"

namespace flx::bench::perf {
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

class Measurement final : public DeviceMeasurer {
  public:
    Measurement(const Options &options, flx_comm_t flx_comm, MPI_Comm mpi_comm, LinkCounters &links)
        : options_(options),
          flx_comm_(flx_comm),
          mpi_comm_(mpi_comm),
          links_(links),
          job_(job_of(options, mpi_comm)),
          pattern_(pattern_for(job_)) {}

    ~Measurement() override {
        if (options_.registered && recv_)
            flx_deregister(flx_comm_, recv_.get());
        if (spare_comm_ != nullptr)
            flx_comm_free(&spare_comm_);
        for (cudaStream_t stream : {stream_, product_stream_})
            if (stream != nullptr)
                cudaStreamDestroy(stream);
    }

    std::string prepare() {
        size_t send = 0;
        for (const uint64_t bytes : options_.sizes) {
            const Shape shape = shape_of(options_, bytes, job_.ranks);
            send = std::max(send, shape.send_elements * size_of(options_.dtype));
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
        if (options_.against_nccl) {
            // In-switch multicast is left out of the comparison; FLX does not use it.
            setenv("NCCL_NVLS_ENABLE", "0", 1);
            nccl_ = Nccl::make(mpi_comm_, why);
            if (!nccl_)
                return why;
        }
        if (options_.registered && flx_register(flx_comm_, recv_.get(), most_ + kGuardBytes) != FLX_SUCCESS)
            return flx_last_error();
        if (options_.queued_copies > 0) {
            std::string why;
            copies_ = Copies::make(options_.queued_copies, why);
            return why;
        }
        return options_.beside_product ? connect_beside() : "";
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

    Result measure(const Shape &shape, const std::function<void(double)> &done) override {
        job_.shape = shape;
        const bool peer = nccl_ && nccl_->serves(job_);
        Result result;
        result.bytes = shape.bytes;
        result.algorithm = way(Side::flx);
        result.why_no_peer = nccl_ && !peer ? fmt::format("{} has no such type", nccl_->version()) : "";
        Carried carried = Carried(links_.names().size());
        result.wrong = carried_in([&] { return checked_call(Side::flx); }, carried);
        result.first_call = over_ranks(carried);
        uint64_t peer_wrong = peer ? checked_call(Side::peer) : 0;

        const int sides = peer ? 3 : 1;
        for (int side = 0; side < std::min(sides, 2); ++side)
            time_calls(side_of(side), std::max(options_.warmup, 1));
        const double enough = 0.002;
        double seconds = seconds_of_a_call(Side::flx, enough);
        if (peer)
            seconds = std::max(seconds, seconds_of_a_call(Side::peer, enough));
        const int blocks = options_.blocks > 0 ? options_.blocks : kFewestBlocks;
        const int64_t calls =
            options_.iterations > 0
                ? (options_.iterations + blocks - 1) / blocks
                : std::clamp<int64_t>(calls_for(options_.max_seconds / blocks / sides, seconds), 2, 400);
        std::vector<std::vector<double>> us(sides);
        carried.assign(carried.size(), 0);
        for (int block = 0; block < blocks; ++block) {
            for (int turn = 0; turn < sides; ++turn) {
                const int side = side_in_turn(block, turn, sides);
                const double all = carried_in([&] { return time_calls(side_of(side), calls); }, carried);
                us[side].push_back(1e6 * all / static_cast<double>(calls));
            }
            done((block + 1.0) / blocks);
        }
        result.partition = over_ranks(carried);
        carried.assign(carried.size(), 0);
        result.wrong += carried_in([&] { return checked_call(Side::flx); }, carried);
        result.last_call = over_ranks(carried);
        for (std::vector<double> &side : us)
            MPI_Allreduce(MPI_IN_PLACE, side.data(), static_cast<int>(side.size()), MPI_DOUBLE, MPI_MAX, mpi_comm_);
        result.us = summarise(us[0]);
        result.iterations = calls * blocks;
        result.blocks = blocks;
        result.busbw_GBps =
            static_cast<double>(shape.bytes) * bus_factor(job_.kind, job_.ranks) / result.us.median / 1e3;
        if (peer) {
            result.peer = PeerResult{summarise(us[1]), summarise(ratios(us[1], us[0])), summarise(ratios(us[2], us[1])),
                                     std::nullopt};
            peer_wrong += checked_call(Side::peer);
            if (options_.check_peer)
                result.peer->wrong = peer_wrong;
        }
        return result;
    }

    Beside beside(const Shape &shape) override {
        constexpr double kWindow = 0.03;
        constexpr int kLeastPieces = 8;
        constexpr int kMostPieces = 400;
        job_.shape = shape;
        Beside result;
        result.bytes = shape.bytes;
        std::vector<int> calls;
        for (const Side side : {Side::flx, Side::spare, Side::peer}) {
            if (side == Side::peer && !(nccl_ && nccl_->serves(job_)))
                continue;
            BesideSide &made = result.sides.emplace_back();
            made.side = side;
            made.algorithm = side == Side::peer ? "-" : way(side);
            made.wrong = checked_call(side);
            time_calls(side, std::max(options_.warmup, 1));
            calls.push_back(std::clamp(static_cast<int>(kWindow / seconds_of_a_call(side, kWindow / 4)), kLeastPieces,
                                       kMostPieces));
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
                const auto calls_of = static_cast<double>(calls[at]);
                measured.alone.push_back(slowest(time_calls(measured.side, calls[at]) / calls_of));
                const Pace pace = together(measured.side, calls[at], products);
                measured.beside.push_back(slowest(pace.one));
                measured.product.push_back(slowest(pace.other));
            }
        }
        for (BesideSide &side : result.sides)
            side.wrong += checked_call(side.side);
        return result;
    }

    UnderLoad under_load(const Shape &shape) override {
        job_.shape = shape;
        UnderLoad result;
        result.bytes = shape.bytes;
        result.bus_bytes = static_cast<double>(shape.bytes) * bus_factor(job_.kind, job_.ranks);
        result.wrong = checked_call(Side::flx);
        measure_static(result);
        for (int warm = 0; warm < kLoadCalls; ++warm)
            logged_call();
        for (size_t phase = 0; phase < result.phases.size(); ++phase) {
            if (phase == 1)
                copies_->start();
            if (phase == 2)
                copies_->stop();
            for (int i = 0; i < kLoadCalls; ++i)
                result.phases[phase].push_back(logged_call());
        }
        result.copies = copies_->rate();
        result.wrong += checked_call(Side::flx);
        return result;
    }

    [[nodiscard]] double product_flops() const override { return product_ ? product_->flops() : 0; }

  private:
    /// Sides 0, 1 and 2 of measure().
    static Side side_of(int side) { return side == 0 ? Side::flx : Side::peer; }

    /// Collective.
    std::string connect_beside() {
        std::string why;
        product_ = Product::make(kProductSide, why);
        if (!product_)
            return why;
        if (cudaStreamCreateWithFlags(&product_stream_, cudaStreamNonBlocking) != cudaSuccess)
            return "no stream for the product";
        const char *set = std::getenv("FLX_CUDA_BLOCKS");
        const std::string before = set == nullptr ? "" : set;
        setenv("FLX_CUDA_BLOCKS", "0", 1);
        const flx_status_t made = flx_comm_create(mpi_comm_, nullptr, &spare_comm_);
        if (set == nullptr)
            unsetenv("FLX_CUDA_BLOCKS");
        else
            setenv("FLX_CUDA_BLOCKS", before.c_str(), 1);
        if (made != FLX_SUCCESS ||
            (options_.registered && flx_register(spare_comm_, recv_.get(), most_ + kGuardBytes) != FLX_SUCCESS))
            return flx_last_error();
        return {};
    }

    /// A call by itself, as a program waits for it that needs its result.
    LoadCall logged_call() {
        Carried carried(links_.names().size());
        LoadCall logged;
        const double seconds = carried_in(
            [&] {
                MPI_Barrier(mpi_comm_);
                const double begin = now();
                call(Side::flx);
                must(cudaStreamSynchronize(stream_));
                return now() - begin;
            },
            carried);
        logged.seconds = slowest(seconds);
        const Shares shares = over_ranks(carried);
        for (size_t link = 0; link < shares.size(); ++link)
            logged.share += links_.names()[link] == "pcie" ? shares[link] : 0;
        return logged;
    }

    /// Communicators with shares that stay, each idle and loaded.
    void measure_static(UnderLoad &result) {
        constexpr std::array<double, 9> kShares = {0, .01, .02, .03, .04, .05, .06, .08, .1};
        flx_comm_t const adaptive = flx_comm_;
        for (const double forced : kShares) {
            const std::string partition = fmt::format("nvlink:{},pcie:{}", 1 - forced, forced);
            flx_config_t config = FLX_CONFIG_INIT;
            config.partition = partition.c_str();
            flx_comm_t comm = nullptr;
            if (flx_comm_create(mpi_comm_, &config, &comm) != FLX_SUCCESS ||
                flx_register(comm, recv_.get(), most_ + kGuardBytes) != FLX_SUCCESS)
                fail(flx_last_error());
            flx_comm_ = comm;
            StaticShare &share = result.statics.emplace_back();
            share.forced = forced;
            for (double *seconds : {&share.idle, &share.loaded}) {
                if (seconds == &share.loaded)
                    copies_->start();
                std::vector<double> calls;
                for (int i = 0; i < kStaticCalls + 2; ++i)
                    calls.push_back(logged_call().seconds);
                *seconds = summarise({calls.begin() + 2, calls.end()}).median;
            }
            copies_->stop();
            flx_comm_ = adaptive;
            if (flx_comm_free(&comm) != FLX_SUCCESS)
                fail(flx_last_error());
        }
    }

    void put_product() {
        if (const std::string what = product_->put(product_stream_); !what.empty())
            fail(what);
    }

    [[nodiscard]] double slowest(double seconds) const {
        MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, mpi_comm_);
        return seconds;
    }

    /// Seconds of one, alone, on the slowest rank.
    double time_products(int count) {
        put_product();
        must(cudaStreamSynchronize(product_stream_));
        MPI_Barrier(mpi_comm_);
        const double begin = now();
        for (int i = 0; i < count; ++i)
            put_product();
        must(cudaStreamSynchronize(product_stream_));
        return slowest((now() - begin) / count);
    }

    Pace together(Side side, int calls, int products) {
        Pace pace;
        MPI_Barrier(mpi_comm_);
        must(run_together({stream_, calls, [&] { call(side); }}, {product_stream_, products, [&] { put_product(); }},
                          pace));
        return pace;
    }

    using Carried = std::vector<uint64_t>;

    /// Adds what this rank's links carried meanwhile. Of graphs, what was captured.
    template <typename Function>
    std::invoke_result_t<Function> carried_in(const Function &function, Carried &carried) {
        Carried before(carried.size());
        Carried after(carried.size());
        links_.read(before.data());
        const auto result = function();
        links_.read(after.data());
        for (size_t i = 0; i < carried.size(); ++i)
            carried[i] += after[i] - before[i];
        return result;
    }
    Shares over_ranks(Carried carried) const {
        MPI_Allreduce(MPI_IN_PLACE, carried.data(), static_cast<int>(carried.size()), MPI_UINT64_T, MPI_SUM, mpi_comm_);
        return shares_of(carried);
    }

    [[noreturn]] void fail(const std::string &what) const {
        apps::give_up(fmt::format("{} of {} stopped", name_of(job_.kind), size_text(job_.shape.bytes)), what);
    }
    void must(int error) const {
        if (error != cudaSuccess)
            fail(cudaGetErrorString(static_cast<cudaError_t>(error)));
    }

    [[nodiscard]] flx_comm_t comm_of(Side side) const { return side == Side::spare ? spare_comm_ : flx_comm_; }

    std::string way(Side side) const {
        const char *name = "-";
        std::string text(name_of(job_.kind));
        if (flx_comm_device_algorithm(comm_of(side), text.c_str(), job_.shape.bytes, job_.recv, &name) != FLX_SUCCESS)
            return "-";
        return name;
    }

    void call(Side side) {
        if (side == Side::peer) {
            if (const std::string what = nccl_->call(job_, stream_); !what.empty())
                fail(what);
            return;
        }
        flx_comm_t comm = comm_of(side);
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
            default:  // options.cpp: on host memory only
                break;
        }
        if (status != FLX_SUCCESS)
            fail(flx_last_error());
    }

    /// Writes this turn of a rank's input from element `first`, or of the result, into the table.
    void load_table(int rank, size_t first) {
        host_.resize(Pattern::kPeriod * size_of(job_.dtype));
        if (rank < 0)
            pattern_.write_result(host_.data(), first, Pattern::kPeriod, call_);
        else
            pattern_.write_input(host_.data(), rank, first, Pattern::kPeriod, call_);
        must(cudaMemcpyAsync(table_.get(), host_.data(), host_.size(), cudaMemcpyHostToDevice, stream_));
        must(cudaStreamSynchronize(stream_));
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

    /// One call on fresh data; how many elements are wrong, over all ranks.
    uint64_t checked_call(Side side) {
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
        must(cudaStreamSynchronize(stream_));
        MPI_Barrier(mpi_comm_);
        call(side);
        must(cudaStreamSynchronize(stream_));
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
            default:  // options.cpp: on host memory only
                break;
        }
        std::array<std::byte, kGuardBytes> after{};
        unsigned long long wrong = 0;
        must(cudaMemcpyAsync(after.data(), job_.recv + guard, after.size(), cudaMemcpyDeviceToHost, stream_));
        must(cudaMemcpyAsync(&wrong, wrong_.get(), sizeof wrong, cudaMemcpyDeviceToHost, stream_));
        must(cudaStreamSynchronize(stream_));
        uint64_t all = wrong + std::count_if(after.begin(), after.end(), [](std::byte b) { return b != kPoison; });
        MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_UINT64_T, MPI_SUM, mpi_comm_);
        return all;
    }

    /// Seconds of this rank for so many calls, from a common start; one more goes before.
    double time_calls(Side side, int64_t count) {
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t replay = nullptr;
        if (options_.graph) {
            must(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
            for (int64_t i = 0; i < count; ++i)
                call(side);
            must(cudaStreamEndCapture(stream_, &graph));
            must(cudaGraphInstantiate(&replay, graph, 0));
            must(cudaGraphUpload(replay, stream_));
        } else {
            call(side);
        }
        must(cudaStreamSynchronize(stream_));
        MPI_Barrier(mpi_comm_);
        const double begin = now();
        if (options_.graph)
            must(cudaGraphLaunch(replay, stream_));
        for (int64_t i = 0; !options_.graph && i < count; ++i)
            call(side);
        must(cudaStreamSynchronize(stream_));
        const double seconds = now() - begin;
        if (options_.graph) {
            cudaGraphExecDestroy(replay);
            cudaGraphDestroy(graph);
        }
        return seconds;
    }

    double seconds_of_a_call(Side side, double enough) {
        for (int64_t count = 2;; count *= 4) {
            double seconds = time_calls(side, count);
            MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, mpi_comm_);
            if (seconds >= enough || count >= 512)
                return seconds / static_cast<double>(count);
        }
    }

    const Options &options_;
    flx_comm_t flx_comm_;
    MPI_Comm mpi_comm_;
    LinkCounters &links_;
    Job job_;
    Pattern pattern_;
    std::unique_ptr<Nccl> nccl_;
    flx_comm_t spare_comm_ = nullptr;
    std::unique_ptr<Product> product_;
    std::unique_ptr<Copies> copies_;
    cudaStream_t product_stream_ = nullptr;
    Memory send_;
    Memory recv_;
    Memory table_;
    Memory wrong_;
    size_t most_ = 0;
    cudaStream_t stream_ = nullptr;
    std::vector<std::byte> host_;
    uint64_t call_ = 0;
};

/// The first text that is not empty among the ranks', everywhere.
std::string any_of(const std::string &why, MPI_Comm mpi_comm) {
    int bad = why.empty() ? 0 : 1;
    MPI_Allreduce(MPI_IN_PLACE, &bad, 1, MPI_INT, MPI_MAX, mpi_comm);
    return bad == 0 || !why.empty() ? why : "another rank lacks something";
}

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

std::unique_ptr<DeviceMeasurer> make_device_measurer(const Options &options, flx_comm_t flx_comm, MPI_Comm mpi_comm,
                                                     LinkCounters &links, std::string &why) {
    auto made = std::make_unique<Measurement>(options, flx_comm, mpi_comm, links);
    why = any_of(made->prepare(), mpi_comm);
    if (why.empty())
        why = any_of(made->connect(), mpi_comm);
    return why.empty() ? std::move(made) : nullptr;
}

}  // namespace flx::bench::perf
