#include "runtime/cuda/memory/stream_flags.h"

namespace flx::cuda {

Status StreamFlags::open(Bootstrap &bootstrap) {
    constexpr uint64_t kBytes = FlagWords::kAll * sizeof(uint32_t);
    words_ = FlagWords(bootstrap.rank(), bootstrap.size());
    FLX_TRY(shm::Segment::make(bootstrap, kBytes, segment_));
    Status status = agree(bootstrap, map(kBytes));
    (void)bootstrap.barrier().ok();
    if (!status.ok())
        close();
    return status;
}

Status StreamFlags::map(uint64_t bytes) {
    if (driver().batch_memory == nullptr)
        return fail(Fault::driver_lacks,
                    "FLX_CUDA_BLOCKS is 0, but the driver lacks cuStreamBatchMemOp; with 1 or more it is not needed");
    const cudaError_t error =
        cudaHostRegister(segment_->base(), bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    registered_ = error == cudaSuccess;
    if (error == cudaErrorHostMemoryAlreadyRegistered)  // by another rank that is a thread of this process
        cudaGetLastError();
    else
        FLX_TRY(check(error, "pinning flags"));
    void *mapped = nullptr;
    FLX_TRY_CUDA(cudaHostGetDevicePointer(&mapped, segment_->base(), 0));
    mapped_ = reinterpret_cast<CUdeviceptr>(mapped);
    return {};
}

void StreamFlags::close() {
    if (registered_)
        cudaHostUnregister(segment_->base());
    registered_ = false;
    segment_.reset();
}

Status StreamFlags::put(CUstream_st *stream) {
    operations_.clear();
    for (const FlagStroke &stroke : strokes_) {
        const CUdeviceptr address = mapped_ + stroke.word * sizeof(uint32_t);
        CUstreamBatchMemOpParams &operation = operations_.emplace_back();
        if (stroke.waits) {
            operation.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
            operation.waitValue.address = address;
            operation.waitValue.value = stroke.value;
            operation.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
        } else {
            operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
            operation.writeValue.address = address;
            operation.writeValue.value = stroke.value;
            operation.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
        }
    }
    strokes_.clear();
    if (operations_.empty())
        return {};
    const CUresult error =
        driver().batch_memory(stream, static_cast<unsigned>(operations_.size()), operations_.data(), 0);
    return error == CUDA_SUCCESS
               ? Status()
               : fail(Fault::gpu_error, "CUDA refused flags on a stream: error {}", static_cast<int>(error));
}

Status StreamFlags::begin(CUstream_st *stream) {
    words_.begin(strokes_);
    return put(stream);
}

Status StreamFlags::end(CUstream_st *stream) {
    words_.end(strokes_);
    return put(stream);
}

Status StreamFlags::tell(Channel channel, uint32_t peers, uint32_t times, CUstream_st *stream) {
    words_.tell(channel, peers, times, strokes_);
    return put(stream);
}

Status StreamFlags::hear(Channel channel, uint32_t peers, uint32_t times, CUstream_st *stream) {
    words_.hear(channel, peers, times, strokes_);
    return put(stream);
}

bool StreamFlags::busy() const {
    return reinterpret_cast<const volatile uint32_t *>(segment_->base())[words_.busy()] != 0;
}

void StreamFlags::release() {
    // More than any operation counts to; waits compare cyclically.
    constexpr uint32_t kReleased = 1U << 30;
    auto *words = reinterpret_cast<volatile uint32_t *>(segment_->base()) + words_.first();
    for (uint32_t i = 0; i < FlagWords::kAwaited; ++i)
        words[i] = kReleased;
}

}  // namespace flx::cuda
