#include "ucx_glue/landing.h"

#include <utility>

#include "runtime/base/counters.h"
#include "ucx_glue/context.h"

namespace flx::ucx {

Status LandingRing::map(ucp_context_h context, uint32_t slots, size_t slot_bytes) {
    ucp_mem_map_params_t params{};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS;
    params.length = slots * slot_bytes;
    params.flags = UCP_MEM_MAP_ALLOCATE;
    ucs_status_t status = ucp_mem_map(context, &params, &memory_);
    if (status != UCS_OK) {
        memory_ = nullptr;
        return fail(Fault::ucx_refused, "UCX cannot map {} bytes of landing memory: {}", params.length, reason(status));
    }
    context_ = context;
    Telemetry::count(telemetry().registrations);
    ucp_mem_attr_t attributes{};
    attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
    status = ucp_mem_query(memory_, &attributes);
    void *key = nullptr;
    size_t key_bytes = 0;
    if (status == UCS_OK)
        status = ucp_rkey_pack(context, memory_, &key, &key_bytes);
    if (status != UCS_OK) {
        unmap();
        return fail(Fault::ucx_refused, "UCX gives no key for landing memory: {}", reason(status));
    }
    key_.assign(static_cast<const char *>(key), key_bytes);
    ucp_rkey_buffer_release(key);
    base_ = static_cast<std::byte *>(attributes.address);
    slots_ = slots;
    slot_bytes_ = slot_bytes;
    return {};
}

void LandingRing::unmap() {
    if (memory_ != nullptr)
        ucp_mem_unmap(context_, std::exchange(memory_, nullptr));
    base_ = nullptr;
    slots_ = 0;
}

Status RemoteRing::granted(ucp_ep_h endpoint, uint64_t base, uint32_t slots, size_t slot_bytes, const void *key) {
    ucs_status_t status = ucp_ep_rkey_unpack(endpoint, key, &key_);
    if (status != UCS_OK) {
        key_ = nullptr;
        state_ = State::refused;
        return fail(Fault::no_landing, "UCX cannot use the key of the peer's landing memory: {}", reason(status));
    }
    base_ = base;
    slot_bytes_ = slot_bytes;
    free_.reserve(slots);
    for (uint32_t slot = slots; slot > 0; --slot)
        free_.push_back(slot - 1);
    state_ = State::granted;
    return {};
}

void RemoteRing::forget() {
    if (key_ != nullptr)
        ucp_rkey_destroy(std::exchange(key_, nullptr));
    free_.clear();
    if (state_ == State::granted)
        state_ = State::refused;
}

}  // namespace flx::ucx
