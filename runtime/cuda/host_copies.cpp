#include "host_copies.h"

#include <array>

#include "driver.h"
#include "group.h"
#include "log.h"

namespace flx::cuda {

namespace {

/// What is allocated or pinned while some stream is captured is no part of a graph.
class OutsideCaptures {
  public:
    OutsideCaptures() { cudaThreadExchangeStreamCaptureMode(&mode_); }
    ~OutsideCaptures() { cudaThreadExchangeStreamCaptureMode(&mode_); }
    OutsideCaptures(const OutsideCaptures &) = delete;
    OutsideCaptures &operator=(const OutsideCaptures &) = delete;

  private:
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

class HostPins final : public shm::Pins {
  public:
    HostPins(std::byte *mapping, int device) : mapping_(mapping), device_(device) {}
    ~HostPins() override { drop(); }

  protected:
    bool pin(const Range &pages) override {
        const CurrentDevice current(device_);
        const OutsideCaptures outside;
        const Status status =
            check(cudaHostRegister(mapping_ + pages.begin, pages.end - pages.begin, cudaHostRegisterPortable),
                  "to pin host memory");
        if (!status.ok())
            log().info("the cores alone copy memory of flx_malloc: {}", status.sentence());
        return status.ok();
    }
    void unpin(const Range &pages) override {
        const CurrentDevice current(device_);
        const OutsideCaptures outside;
        if (cudaHostUnregister(mapping_ + pages.begin) != cudaSuccess)
            cudaGetLastError();
    }

  private:
    std::byte *mapping_;
    int device_;
};

class HostCopies final : public shm::CopyEngine {
  public:
    explicit HostCopies(int device) : device_(device), name_(fmt::format("GPU {}", device)) {}
    ~HostCopies() override {
        const CurrentDevice current(device_);
        const OutsideCaptures outside;
        stop();
        for (size_t slot = 0; slot < kSlots; ++slot) {
            if (up_done_[slot] != nullptr)
                cudaEventDestroy(up_done_[slot]);
            if (down_done_[slot] != nullptr)
                cudaEventDestroy(down_done_[slot]);
        }
        if (up_ != nullptr)
            cudaStreamDestroy(up_);
        if (down_ != nullptr)
            cudaStreamDestroy(down_);
        cudaFree(memory_);
        cudaGetLastError();
    }

    Status open() {
        const CurrentDevice current(device_);
        const OutsideCaptures outside;
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

    std::unique_ptr<shm::Pins> pin(std::byte *mapping) override { return std::make_unique<HostPins>(mapping, device_); }

    /// A slot that is free was read from before its last copy ended.
    bool begin(std::byte *to, const std::byte *from, size_t bytes) override {
        const CurrentDevice current(device_);
        const size_t slot = begun_ % kSlots;
        std::byte *stage = memory_ + slot * kSlice;
        const bool done = cudaMemcpyAsync(stage, from, bytes, cudaMemcpyHostToDevice, up_) == cudaSuccess &&
                          cudaEventRecord(up_done_[slot], up_) == cudaSuccess &&
                          cudaStreamWaitEvent(down_, up_done_[slot], 0) == cudaSuccess &&
                          cudaMemcpyAsync(to, stage, bytes, cudaMemcpyDeviceToHost, down_) == cudaSuccess &&
                          cudaEventRecord(down_done_[slot], down_) == cudaSuccess;
        ++begun_;
        return done;
    }

    bool ended(size_t &copies) override {
        const CurrentDevice current(device_);
        for (copies = 0; ended_ != begun_; ++copies, ++ended_) {
            const cudaError_t error = cudaEventQuery(down_done_[ended_ % kSlots]);
            if (error == cudaErrorNotReady)
                return true;
            if (error != cudaSuccess)
                return false;
        }
        return true;
    }

    void stop() override {
        const CurrentDevice current(device_);
        if (up_ != nullptr)
            cudaStreamSynchronize(up_);
        if (down_ != nullptr)
            cudaStreamSynchronize(down_);
        cudaGetLastError();
        ended_ = begun_;
    }

    [[nodiscard]] const std::string &name() const override { return name_; }

  private:
    int device_;
    std::string name_;
    std::byte *memory_ = nullptr;  ///< of the GPU: kSlots of kSlice
    cudaStream_t up_ = nullptr;
    cudaStream_t down_ = nullptr;
    std::array<cudaEvent_t, kSlots> up_done_{};
    std::array<cudaEvent_t, kSlots> down_done_{};
    uint64_t begun_ = 0;
    uint64_t ended_ = 0;
};

}  // namespace

std::unique_ptr<shm::CopyEngine> host_copies(int nth, bool opens, std::string &why) {
    const bool used = in_use();
    if (!used && !opens)
        return nullptr;
    if (why = why_none(); !why.empty())
        return nullptr;
    int device = nth % driver().devices;
    if (used && cudaGetDevice(&device) != cudaSuccess)
        cudaGetLastError();
    auto engine = std::make_unique<HostCopies>(device);
    if (const Status status = engine->open(); !status.ok()) {
        why = status.sentence();
        return nullptr;
    }
    return engine;
}

}  // namespace flx::cuda
