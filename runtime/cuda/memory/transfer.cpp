#include "runtime/cuda/memory/transfer.h"

#include "runtime/cuda/memory/driver.h"

namespace flx::cuda {

namespace {

Status copy(std::span<const Transfer> transfers, bool down) {
    if (transfers.empty())
        return {};
    cudaPointerAttributes attributes{};
    FLX_TRY_CUDA(cudaPointerGetAttributes(&attributes, transfers.front().device));
    const CurrentDevice current(attributes.device);
    const OutsideCaptures outside;
    cudaStream_t stream = nullptr;
    FLX_TRY_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    Status status;
    for (const Transfer &each : transfers) {
        if (!status.ok())
            break;
        status = check(cudaMemcpyAsync(down ? each.host : each.device, down ? each.device : each.host, each.bytes,
                                       cudaMemcpyDefault, stream),
                       "a copy between GPU memory and the host's");
    }
    Status ended = check(cudaStreamSynchronize(stream), "copies between GPU memory and the host's");
    cudaStreamDestroy(stream);
    return status.ok() ? std::move(ended) : std::move(status);
}

}  // namespace

Status copy_down(std::span<const Transfer> transfers) {
    return copy(transfers, true);
}

Status copy_up(std::span<const Transfer> transfers) {
    return copy(transfers, false);
}

}  // namespace flx::cuda
