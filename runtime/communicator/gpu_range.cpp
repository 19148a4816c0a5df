#include "runtime/communicator/gpu_range.h"

#ifdef FLX_NVTX
#include <fmt/format.h>
#include <nvtx3/nvToolsExt.h>

#include <array>
#endif

namespace flx {

#ifdef FLX_NVTX

/// NVTX looks for a profiler when its first function is called, and gives no domain where there is none.
void *GpuRange::domain() {
    static const nvtxDomainHandle_t domain = nvtxDomainCreateA("FLX");
    return domain;
}

void GpuRange::begin(std::string_view what, uint64_t bytes) const {
    std::array<char, 64> name{};
    fmt::format_to_n(name.data(), name.size() - 1, "{} {} B", what, bytes);
    nvtxEventAttributes_t range{};
    range.version = NVTX_VERSION;
    range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    range.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    range.payload.ullValue = bytes;
    range.messageType = NVTX_MESSAGE_TYPE_ASCII;
    range.message.ascii = name.data();
    nvtxDomainRangePushEx(static_cast<nvtxDomainHandle_t>(domain_), &range);
}

void GpuRange::end() const {
    nvtxDomainRangePop(static_cast<nvtxDomainHandle_t>(domain_));
}

#else

void *GpuRange::domain() {
    return nullptr;
}
void GpuRange::begin(std::string_view /*what*/, uint64_t /*bytes*/) const {}
void GpuRange::end() const {}

#endif

}  // namespace flx
