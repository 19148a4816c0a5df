/// \file memory_offer.h
/// GPU memory that a rank lets the other ranks of its host open. No CUDA types: it lies in memory that ranks share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "runtime/base/status.h"

namespace flx::cuda {

/// A page of GPU memory. Copy engines are a quarter slower in allocations that are not whole pages.
inline constexpr uint64_t kPage = 2 << 20;

/// Plain data.
struct MemoryOffer {
    uint64_t process = 0;  ///< equal for ranks that are threads of one process
    char *base = nullptr;  ///< there
    uint64_t bytes = 0;
    uint64_t offset = 0;  ///< of base in the allocation that the handle names
    uint64_t allocation_bytes = 0;
    int device = 0;
    unsigned long long kept = 0;         ///< not 0: it stays its process's (kept_memory.h), and this is its name
    bool mapped = false;                 ///< by the driver's mapping functions: `file` is open in process `pid`
    std::array<std::byte, 64> handle{};  ///< CUDA's, for other processes, of what was allocated
    int pid = 0;
    int file = -1;
};

/// An error: memory that other processes cannot open, or that is none of a GPU. What was offered is withdrawn once
/// peers have opened it.
Status offer_memory(uint64_t process, char *base, uint64_t bytes, int device, MemoryOffer &offer);
void withdraw(MemoryOffer &offer);
/// Closes memory that was kept open of processes that are no more, whose memory is free only then. May wait for GPUs
/// as CUDA does.
void close_kept_of_dead();

/// A peer's memory, open here: by CUDA IPC or by mapping it between processes, by peer access between threads. Closed
/// with it.
class OpenedMemory {
  public:
    OpenedMemory() = default;
    OpenedMemory(OpenedMemory &&other) noexcept { *this = std::move(other); }
    OpenedMemory &operator=(OpenedMemory &&other) noexcept;
    ~OpenedMemory() { close(); }

    /// Opens the offered memory on `device`, in `process`.
    Status open(const MemoryOffer &offer, uint64_t process, int device);
    void close();
    /// Where the offer's base is here; null: not open.
    [[nodiscard]] char *base() const { return base_; }

  private:
    Status map(const MemoryOffer &offer, int device);

    char *base_ = nullptr;
    void *opened_ = nullptr;     ///< by CUDA IPC
    void *shared_ = nullptr;     ///< an entry of what stays open for the next that opens it
    uint64_t reserved_ = 0;      ///< where it is mapped
    uint64_t mapped_bytes_ = 0;  ///< more than 0: it is
};

}  // namespace flx::cuda
