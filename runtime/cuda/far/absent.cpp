// FLX without CUDA: device memory does not exist.
#include "runtime/cuda/far/far_lanes.h"
#include "runtime/cuda/memory/host_copies.h"
#include "runtime/cuda/memory/mark.h"
#include "runtime/cuda/memory/transfer.h"
#include "runtime/cuda/near/group.h"

namespace flx::cuda {

const std::string &why_none() {
    static const std::string why = "FLX was built without CUDA";
    return why;
}

bool in_use() {
    return false;
}

std::unique_ptr<shm::CopyEngine> host_copies(int /*nth*/, bool /*opens*/, std::string &why) {
    why = why_none();
    return nullptr;
}

bool on_device(const void * /*memory*/) {
    return false;
}

Mark::~Mark() = default;

Status Mark::put(CUstream_st * /*stream*/, int /*device*/) {
    return fail(Fault::no_gpu, "no GPU can be used: {}", why_none());
}

Status Mark::look(bool &passed) const {
    passed = true;
    return {};
}

Status copy_down(std::span<const Transfer> /*transfers*/) {
    return fail(Fault::no_gpu, "no GPU can be used: {}", why_none());
}

Status copy_up(std::span<const Transfer> /*transfers*/) {
    return fail(Fault::no_gpu, "no GPU can be used: {}", why_none());
}

Status copy_alone(const Operation & /*call*/, CUstream_st * /*stream*/, bool /*blocking*/) {
    return fail(Fault::no_gpu, "no GPU can be used: {}", why_none());
}

Status copy_own(std::span<const OwnMessage> /*messages*/, CUstream_st * /*stream*/) {
    return fail(Fault::no_gpu, "no GPU can be used: {}", why_none());
}

Status await(CUstream_st * /*stream*/) {
    return fail(Fault::no_gpu, "no GPU can be used: {}", why_none());
}

Status Group::make(Bootstrap & /*bootstrap*/, const Config & /*config*/, uint64_t /*process*/, Health & /*health*/,
                   std::unique_ptr<Group> & /*result*/) {
    return fail(Fault::no_gpu, "no GPU can be used: {}", why_none());
}

bool captures(CUstream_st * /*stream*/) {
    return false;
}

Status Group::make_far(Bootstrap & /*bootstrap*/, const Config & /*config*/, uint64_t /*process*/,
                       const Tiers & /*tiers*/, const std::string & /*why_flat*/, std::unique_ptr<FarHost> /*host*/,
                       Health & /*health*/, std::unique_ptr<Group> & /*result*/) {
    return fail(Fault::no_gpu, "no GPU can be used: {}", why_none());
}

OpenedMemory &OpenedMemory::operator=(OpenedMemory &&other) noexcept {
    base_ = std::exchange(other.base_, nullptr);
    return *this;
}

Status OpenedMemory::open(const MemoryOffer & /*offer*/, uint64_t /*process*/, int /*device*/) {
    return fail(Fault::no_gpu, "no GPU can be used: {}", why_none());
}

void OpenedMemory::close() {
    base_ = nullptr;
}

}  // namespace flx::cuda
