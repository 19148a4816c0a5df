/// \file device_memory.h
/// MemoryAccess on CUDA.
#pragma once

#include "runtime/cuda/memory/driver.h"
#include "runtime/cuda/memory/shown_memory.h"

namespace flx::cuda {

class DeviceMemory final : public MemoryAccess {
  public:
    DeviceMemory(uint64_t process, int device) : process_(process), device_(device) {}

    unsigned long long name_of(const void *memory) override { return allocation_of(memory); }
    bool find(const void *memory, Allocation &found) override {
        CUdeviceptr begin = 0;
        size_t length = 0;
        if (driver().address_range(&begin, &length, reinterpret_cast<CUdeviceptr>(memory)) != CUDA_SUCCESS)
            return false;
        int device = -1;
        if (driver().pointer_attribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                       reinterpret_cast<CUdeviceptr>(memory)) != CUDA_SUCCESS ||
            device != device_)
            return false;
        found = {allocation_of(memory), reinterpret_cast<char *>(begin), length};
        return found.name != 0;
    }
    Status offer(const Allocation &allocation, MemoryOffer &offer) override {
        return offer_memory(process_, allocation.base, allocation.bytes, device_, offer);
    }
    void withdraw(MemoryOffer &offer) override { cuda::withdraw(offer); }
    Status open(const MemoryOffer &offer, OpenedMemory &opened) override {
        return opened.open(offer, process_, device_);
    }

  private:
    uint64_t process_;
    int device_;
};

}  // namespace flx::cuda
