#include "runtime/cuda/memory/host_copies.h"

#include <sched.h>

#include <array>
#include <map>
#include <mutex>

#include "runtime/base/log.h"
#include "runtime/cuda/memory/driver.h"
#include "runtime/cuda/memory/gpu.h"

namespace flx::cuda {

namespace {

/// A context of FLX's own on a GPU, one for all communicators of the process. In the program's, to unpin or to free
/// would wait until nothing runs any more, and what runs may wait for another rank, which may wait for this one.
class Context {
  public:
    static std::shared_ptr<const Context> of(int device, std::string &why) {
        static std::mutex mutex;
        static std::map<int, std::weak_ptr<const Context>> contexts;
        const std::lock_guard guard(mutex);
        std::shared_ptr<const Context> context = contexts[device].lock();
        if (context != nullptr)
            return context;
        CUcontext made = nullptr;
        CUcontext current = nullptr;
        if (driver().push_context == nullptr || driver().create_context(&made, 0, device) != CUDA_SUCCESS) {
            why = fmt::format("GPU {} gave no context of its own", device);
            return nullptr;
        }
        driver().pop_context(&current);
        context = std::make_shared<const Context>(device, made);
        contexts[device] = context;
        return context;
    }
    Context(int device, CUcontext context) : device_(device), context_(context) {}
    ~Context() { driver().destroy_context(context_); }
    Context(const Context &) = delete;
    Context &operator=(const Context &) = delete;

    [[nodiscard]] int device() const { return device_; }
    [[nodiscard]] CUcontext get() const { return context_; }

  private:
    int device_;
    CUcontext context_;
};

/// Calls on a GPU that the program sees nothing of: not which GPU is current, on threads that have none either, nor in
/// graphs that are captured meanwhile, by whatever thread.
class Aside {
  public:
    explicit Aside(const Context &context) : current_(context) {}

  private:
    struct Current {
        explicit Current(const Context &context) { driver().push_context(context.get()); }
        ~Current() {
            CUcontext context = nullptr;
            driver().pop_context(&context);
        }
        Current(const Current &) = delete;
        Current &operator=(const Current &) = delete;
    };
    Current current_;  // first: a thread without a context would be given the program's
    OutsideCaptures outside_;
};

/// An answer, not an error that the program should find.
bool is_not_ready(cudaError_t error) {
    if (error != cudaErrorNotReady)
        return false;
    if (cudaPeekAtLastError() == cudaErrorNotReady)
        cudaGetLastError();
    return true;
}

class HostPins final : public shm::Pins {
  public:
    HostPins(std::byte *mapping, std::shared_ptr<const Context> context)
        : mapping_(mapping), context_(std::move(context)) {}
    ~HostPins() override { drop(); }

  protected:
    bool pin(const Range &pages) override {
        const Aside aside(*context_);
        const Status status =
            check(cudaHostRegister(mapping_ + pages.begin, pages.end - pages.begin, cudaHostRegisterPortable),
                  "to pin host memory");
        if (!status.ok())
            log().info("the cores alone copy memory of flx_malloc: {}", status.sentence());
        return status.ok();
    }
    void unpin(const Range &pages) override {
        const Aside aside(*context_);
        (void)check(cudaHostUnregister(mapping_ + pages.begin), "to unpin host memory");
    }

  private:
    std::byte *mapping_;
    std::shared_ptr<const Context> context_;
};

class HostCopies final : public shm::CopyEngine {
  public:
    explicit HostCopies(std::shared_ptr<const Context> context)
        : context_(std::move(context)), name_(fmt::format("GPU {}", context_->device())) {}
    ~HostCopies() override {
        stop();
        const Aside aside(*context_);
        for (size_t slot = 0; slot < kSlots; ++slot) {
            if (up_done_[slot] != nullptr)
                (void)check(cudaEventDestroy(up_done_[slot]), "to destroy an event");
            if (down_done_[slot] != nullptr)
                (void)check(cudaEventDestroy(down_done_[slot]), "to destroy an event");
        }
        for (cudaStream_t stream : {up_, down_})
            if (stream != nullptr)
                (void)check(cudaStreamDestroy(stream), "to destroy a stream");
        (void)check(cudaFree(memory_), "to free memory");
    }

    Status open() {
        const Aside aside(*context_);
        void *memory = nullptr;
        FLX_TRY_CUDA(cudaMalloc(&memory, kSlots * kSlice));
        memory_ = static_cast<std::byte *>(memory);
        FLX_TRY_CUDA(cudaStreamCreateWithFlags(&up_, cudaStreamNonBlocking));
        FLX_TRY_CUDA(cudaStreamCreateWithFlags(&down_, cudaStreamNonBlocking));
        for (size_t slot = 0; slot < kSlots; ++slot) {
            FLX_TRY_CUDA(cudaEventCreateWithFlags(&up_done_[slot], cudaEventDisableTiming));
            FLX_TRY_CUDA(cudaEventCreateWithFlags(&down_done_[slot], cudaEventDisableTiming));
        }
        return {};
    }

    std::unique_ptr<shm::Pins> pin(std::byte *mapping) override {
        return std::make_unique<HostPins>(mapping, context_);
    }

    /// A slot that is free was read from before its last copy ended.
    bool begin(std::byte *to, const std::byte *from, size_t bytes) override {
        const Aside aside(*context_);
        const size_t slot = begun_ % kSlots;
        std::byte *stage = memory_ + slot * kSlice;
        ++begun_;
        const auto enqueue = [&]() -> Status {
            FLX_TRY_CUDA(cudaMemcpyAsync(stage, from, bytes, cudaMemcpyHostToDevice, up_));
            FLX_TRY_CUDA(cudaEventRecord(up_done_[slot], up_));
            FLX_TRY_CUDA(cudaStreamWaitEvent(down_, up_done_[slot], 0));
            FLX_TRY_CUDA(cudaMemcpyAsync(to, stage, bytes, cudaMemcpyDeviceToHost, down_));
            FLX_TRY_CUDA(cudaEventRecord(down_done_[slot], down_));
            return {};
        };
        return said(enqueue());
    }

    bool ended(size_t &copies) override {
        const Aside aside(*context_);
        for (copies = 0; ended_ != begun_; ++copies, ++ended_) {
            const cudaError_t error = cudaEventQuery(down_done_[ended_ % kSlots]);
            if (is_not_ready(error))
                return true;
            if (const Status status = check(error, "to copy host memory"); !status.ok())
                return said(status);
        }
        return true;
    }

    /// A stream that answers anything but "not ready" has ended, or its context has.
    void stop() override {
        const Aside aside(*context_);
        for (cudaStream_t stream : {up_, down_}) {
            while (stream != nullptr && is_not_ready(cudaStreamQuery(stream)))
                sched_yield();
        }
        ended_ = begun_;
    }

    [[nodiscard]] const std::string &name() const override { return name_; }

  private:
    static bool said(const Status &status) {
        if (!status.ok())
            log().info("copying host memory: {}", status.sentence());
        return status.ok();
    }

    std::shared_ptr<const Context> context_;
    std::string name_;
    std::byte *memory_ = nullptr;  ///< of the GPU: kSlots of kSlice
    cudaStream_t up_ = nullptr;
    cudaStream_t down_ = nullptr;
    std::array<cudaEvent_t, kSlots> up_done_{};
    std::array<cudaEvent_t, kSlots> down_done_{};
    uint64_t begun_ = 0;
    uint64_t ended_ = 0;
};

/// The GPU that the program uses: on this thread, else the first that it has opened. -1: none.
int device_in_use() {
    int current = -1;
    if (check(cudaGetDevice(&current), "to name a GPU").ok() && is_open(current))
        return current;
    for (int device = 0; device < driver().devices; ++device)
        if (is_open(device))
            return device;
    return -1;
}

}  // namespace

std::unique_ptr<shm::CopyEngine> host_copies(int nth, bool opens, std::string &why) {
    if (!in_use() && !opens)
        return nullptr;
    if (why = why_none(); !why.empty())
        return nullptr;
    const int device = device_in_use();
    const auto context = Context::of(device < 0 ? nth % driver().devices : device, why);
    if (context == nullptr)
        return nullptr;
    auto engine = std::make_unique<HostCopies>(context);
    if (const Status status = engine->open(); !status.ok()) {
        why = status.words();
        return nullptr;
    }
    return engine;
}

}  // namespace flx::cuda
