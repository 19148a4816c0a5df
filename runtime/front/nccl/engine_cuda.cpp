/// FLX's collectives on GPUs, and CUDA's streams and events.
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "runtime/communicator/communicator.h"
#include "runtime/cuda/memory/driver.h"
#include "runtime/cuda/near/group.h"
#include "runtime/elements/dtype.h"
#include "runtime/front/nccl/engine.h"

namespace flx::nccl {
namespace {

using cuda::CurrentDevice;
using cuda::OutsideCaptures;

/// An event, and whose: the streams without a handle of their own are the current device's.
struct CudaEvent {
    cudaEvent_t event = nullptr;
    int device = 0;
};
CudaEvent &of(Event event) {
    return *static_cast<CudaEvent *>(event);
}
bool is_default(cudaStream_t stream) {
    return stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}

Operation nothing() {
    return {.collective = algorithms::Collective::allreduce};
}

class CudaLane final : public Lane {
  public:
    CudaLane(std::unique_ptr<Communicator> comm, int device) : comm_(std::move(comm)), device_(device) {}
    ~CudaLane() override {
        const CurrentDevice current(device_);
        comm_.reset();
    }

    void abort() override {
        if (cuda::Group *group = comm_->devices(); group != nullptr)  // else closed
            group->abandon();
    }
    Status note_capture(cudaStream_t stream) override { return comm_->devices()->note_capture(stream); }
    Status enqueue(const Operation &operation, cudaStream_t stream, std::span<const cuda::Showing> shown) override {
        return comm_->run_on_device(of_this_rank(operation), stream, false, shown);
    }
    Status post(std::span<const cuda::Message> messages, cudaStream_t stream) override {
        return comm_->post_on_device(messages, stream, false, false);
    }
    Status expect_shown() override { return comm_->devices()->expect_shown(); }
    void show(const Operation &operation, bool frozen, cuda::Showing &mine) override {
        comm_->devices()->show(of_this_rank(operation), frozen, mine);
    }
    Status open_shown(std::span<const cuda::Showing> all) override { return comm_->devices()->open_shown(all); }
    void settle_shown(std::span<const cuda::Showing> all, bool opened) override {
        comm_->devices()->settle_shown(all, opened);
    }
    void close_shown() override { comm_->devices()->close_shown(); }
    [[nodiscard]] bool is_small() const override { return comm_->devices()->is_small(); }
    [[nodiscard]] bool slows(const Operation &operation, bool shown) const override {
        return comm_->devices()->slows(operation.collective, operation.count * flx::size_of(operation.dtype), shown);
    }
    [[nodiscard]] bool writes_outputs(const Operation &operation) const override {
        return comm_->devices()->writes_outputs(operation.collective, operation.count * flx::size_of(operation.dtype));
    }
    [[nodiscard]] bool slows_message(uint64_t bytes) const override { return comm_->devices()->slows_message(bytes); }
    /// A call of nothing says what the watcher found.
    Status failure() override { return comm_->run_on_device(nothing(), nullptr, false); }
    void close() override {
        const CurrentDevice current(device_);
        comm_->close();
    }

  private:
    /// NCCL says nothing of the buffers that a rank does not use.
    [[nodiscard]] Operation of_this_rank(Operation operation) const {
        using algorithms::Collective;
        if (operation.collective == Collective::bcast && comm_->rank() != operation.root)
            operation.in = operation.out;
        else if (operation.collective == Collective::reduce && comm_->rank() != operation.root)
            operation.out = nullptr;
        return operation;
    }

    std::unique_ptr<Communicator> comm_;
    int device_;
};

class CudaEngine final : public Engine {
  public:
    std::string why_none() override { return cuda::why_none(); }

    Status make(std::unique_ptr<Bootstrap> bootstrap, const Config &config, int device,
                std::unique_ptr<Lane> &result) override {
        const CurrentDevice current(device);
        std::shared_ptr<Process> process;
        FLX_TRY(agree(*bootstrap, process_of(device, process)));
        std::unique_ptr<Communicator> comm;
        FLX_TRY(Communicator::make(std::move(process), std::move(bootstrap), config, nullptr, comm));
        if (comm->hosts() != 1)
            return fail(Fault::several_hosts, "ranks are told to be on {} hosts; NCCL carries what goes between hosts",
                        comm->hosts());
        if (comm->devices() == nullptr) {
            // Says why. Collective, as all ranks lack them.
            FLX_TRY(comm->run_on_device(nothing(), nullptr, false));
        }
        comm->devices()->caller_sees_ends();  // libflx_nccl's events do
        result = std::make_unique<CudaLane>(std::move(comm), device);
        return {};
    }

    Status make_event(int device, Event &event) override {
        const CurrentDevice current(device);
        auto made = std::make_unique<CudaEvent>();
        made->device = device;
        FLX_TRY_CUDA(cudaEventCreateWithFlags(&made->event, cudaEventDisableTiming));
        event = made.release();
        return {};
    }
    void free_event(Event event) override {
        if (event == nullptr)
            return;
        cudaEventDestroy(of(event).event);
        delete &of(event);
    }
    Status make_stream(int device, cudaStream_t &stream) override {
        const CurrentDevice current(device);
        FLX_TRY_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        return {};
    }
    void free_stream(int device, cudaStream_t stream) override {
        if (stream == nullptr)
            return;
        const CurrentDevice current(device);
        cudaStreamDestroy(stream);
    }
    Status record(Event event, cudaStream_t stream, bool external) override {
        if (external)
            return record_in_graph(of(event), stream);
        std::optional<CurrentDevice> current;
        if (is_default(stream))
            current.emplace(of(event).device);
        return cuda::check(cudaEventRecord(of(event).event, stream), "cudaEventRecord");
    }
    Status wait(Event event, cudaStream_t stream, bool external) override {
        std::optional<CurrentDevice> current;
        if (is_default(stream))
            current.emplace(of(event).device);
        return cuda::check(
            cudaStreamWaitEvent(stream, of(event).event, external ? cudaEventWaitExternal : cudaEventWaitDefault),
            "cudaStreamWaitEvent");
    }
    bool ended(Event event) override {
        if (event == nullptr)
            return true;
        const OutsideCaptures outside;
        // An error is another's business: nothing runs any more.
        const bool ended = cudaEventQuery(of(event).event) != cudaErrorNotReady;
        cudaGetLastError();
        return ended;
    }
    Status look_at(cudaStream_t stream, Stream &found) override {
        found = {reinterpret_cast<uintptr_t>(stream), 0};
        if (is_default(stream))  // the legacy one cannot be captured; of the other nobody knows whose it is
            return {};
        cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
        unsigned long long capture = 0;
        FLX_TRY_CUDA(cudaStreamGetCaptureInfo(stream, &state, &capture));
        if (state != cudaStreamCaptureStatusNone) {
            // It may not be asked for its name meanwhile; nor does it go while it is captured.
            found.capture = capture;
            return {};
        }
        unsigned long long name = 0;
        FLX_TRY_CUDA(cudaStreamGetId(stream, &name));
        constexpr unsigned long long kNamed = 1ULL << 63;  // apart from the default ones
        found.name = name | kNamed;
        return {};
    }

    Status note_capture(cuda::GraphUse &use, cudaStream_t stream) override { return use.begin(stream); }

    bool has_work(cudaStream_t stream) override {
        const OutsideCaptures outside;  // another thread may be at one that forbids such questions to all
        const bool works = cudaStreamQuery(stream) == cudaErrorNotReady;
        cudaGetLastError();
        return works;
    }

    Status open_bench(int device, size_t bytes, Bench &bench) override {
        const CurrentDevice current(device);
        const auto made = [&]() -> Status {
            FLX_TRY_CUDA(cudaMalloc(&bench.in, bytes));
            FLX_TRY_CUDA(cudaMalloc(&bench.out, bytes));
            FLX_TRY_CUDA(cudaStreamCreateWithFlags(&bench.stream, cudaStreamNonBlocking));
            FLX_TRY_CUDA(cudaMemsetAsync(bench.in, 0, bytes, bench.stream));
            FLX_TRY_CUDA(cudaStreamSynchronize(bench.stream));
            return {};
        };
        Status status = made();
        bench.bytes = bytes;
        if (!status.ok())
            close_bench(device, bench);
        return status;
    }
    void close_bench(int device, Bench &bench) override {
        const CurrentDevice current(device);
        if (bench.stream != nullptr)
            cudaStreamDestroy(bench.stream);
        cudaFree(bench.in);
        cudaFree(bench.out);
        cudaGetLastError();
        bench = {};
    }
    Status time(const Bench &bench, int device, int warm, int turns, const std::function<Status()> &call,
                double &us) override {
        const CurrentDevice current(device);
        struct Events {
            cudaEvent_t begin = nullptr, end = nullptr;
            ~Events() {
                for (cudaEvent_t event : {begin, end})
                    if (event != nullptr)
                        cudaEventDestroy(event);
            }
        } events;
        FLX_TRY_CUDA(cudaEventCreate(&events.begin));
        FLX_TRY_CUDA(cudaEventCreate(&events.end));
        for (int turn = 0; turn < warm; ++turn)
            FLX_TRY(call());
        FLX_TRY_CUDA(cudaEventRecord(events.begin, bench.stream));
        for (int turn = 0; turn < turns; ++turn)
            FLX_TRY(call());
        FLX_TRY_CUDA(cudaEventRecord(events.end, bench.stream));
        FLX_TRY_CUDA(cudaEventSynchronize(events.end));
        float ms = 0;
        FLX_TRY_CUDA(cudaEventElapsedTime(&ms, events.begin, events.end));
        us = 1000.0 * ms / turns;
        return {};
    }
    bool adds_float8(int device) override {
        constexpr int kHopper = 9;
        int major = 0;
        const cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
        cudaGetLastError();
        return error == cudaSuccess && major >= kHopper;
    }
    void on_device(int device, const std::function<void()> &body) override {
        const CurrentDevice current(device);
        body();
    }
    void stay_on(int device) override { cuda::stay_on(device); }

  private:
    /// Each GPU's rank has one of its own, as if it were a process: several ranks of a communicator may be here. It
    /// goes with the last communicator of that GPU.
    Status process_of(int device, std::shared_ptr<Process> &process) {
        const std::lock_guard guard(mutex_);
        process = processes_[device].lock();
        if (process != nullptr)
            return {};
        FLX_TRY(Process::make(true, process));
        processes_[device] = process;
        return {};
    }

    /// A node on no path to what the program captures next: on the path, each one took 30 us of every replay (H200).
    static Status record_in_graph(const CudaEvent &event, cudaStream_t stream) {
        cuda::Capture capture;
        FLX_TRY(cuda::capture_of(stream, capture));
        cudaGraphNode_t node = nullptr;
        FLX_TRY_CUDA(cudaGraphAddEventRecordNode(&node, capture.graph, capture.after, capture.count, event.event));
        return {};
    }

    std::mutex mutex_;
    std::unordered_map<int, std::weak_ptr<Process>> processes_;
};

}  // namespace

Engine &engine() {
    static auto *const only = new CudaEngine;
    return *only;
}

}  // namespace flx::nccl
