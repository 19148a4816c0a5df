/// \file shared_memory.h
/// GPU memory of all ranks, open at each of them.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/cuda/memory/driver.h"
#include "runtime/cuda/memory/memory_offer.h"
#include "runtime/cuda/protocol/exchange.h"
#include "runtime/link/bootstrap.h"

namespace flx::cuda {

class SharedMemory {
  public:
    SharedMemory() = default;
    SharedMemory(SharedMemory &&other) noexcept { *this = std::move(other); }
    SharedMemory &operator=(SharedMemory &&other) noexcept;
    ~SharedMemory() { close(); }

    /// Collective. `base` is this rank's memory on `device`, `process` as in Group::make. `kept`: all ranks' stays
    /// their processes' as long as they run (kept_memory.h), so it stays open when it is closed here. On an error of
    /// any rank, an error on all.
    static Status open(Bootstrap &bootstrap, char *base, uint64_t bytes, int device, uint64_t process, bool kept,
                       SharedMemory &result);
    /// Not collective. Closes peers' memory, which may wait for the GPU as CUDA does, and which a rank may free only
    /// then; what is `kept` stays open, for the next that opens it, and closing it waits for nothing.
    void close();

    [[nodiscard]] char *of(int rank) const { return bases_[rank]; }
    /// Where `rank` sees this rank's; null for what is `kept`, of which nobody is told.
    [[nodiscard]] char *seen_by(int rank) const { return seen_[rank]; }
    [[nodiscard]] char *base() const { return base_; }
    [[nodiscard]] uint64_t bytes() const { return bytes_; }
    /// Whether [memory, memory + bytes) lies in this rank's.
    [[nodiscard]] bool holds(const void *memory, uint64_t bytes) const {
        const auto *at = static_cast<const char *>(memory);
        return at >= base_ && bytes <= bytes_ && static_cast<uint64_t>(at - base_) <= bytes_ - bytes;
    }
    /// Whether the memory is still the allocation that was opened.
    [[nodiscard]] bool current() const { return allocation_of(base_) == allocation_; }
    /// Whether all ranks' memory lies alike with respect to the widest store.
    [[nodiscard]] bool alike() const { return alike_; }
    /// Whether all ranks' allocations are whole pages. Where 64 bytes were more than that, copy engines fell from 387
    /// to 279 GB/s each way (H200).
    [[nodiscard]] bool paged() const { return paged_; }

  private:
    char *base_ = nullptr;
    uint64_t bytes_ = 0;
    unsigned long long allocation_ = 0;
    bool alike_ = false;
    bool paged_ = false;
    std::array<char *, kMaxRanks> bases_{};
    std::array<char *, kMaxRanks> seen_{};
    std::array<OpenedMemory, kMaxRanks> opened_{};
};

}  // namespace flx::cuda
