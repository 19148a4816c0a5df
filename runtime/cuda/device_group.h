/// \file device_group.h
/// Group on CUDA.
#pragma once

#include <atomic>
#include <list>

#include "driver.h"
#include "group.h"
#include "kernels.h"
#include "plan.h"
#include "shared_memory.h"
#include "watcher.h"

namespace flx::cuda {

class DeviceGroup final : public Group {
  public:
    DeviceGroup(Bootstrap &bootstrap, uint64_t process, Health &health)
        : bootstrap_(bootstrap), health_(health), process_(process), watcher_(health) {}
    ~DeviceGroup() override;

    /// Collective.
    Status make(const Config &config);

    Status enqueue(const Call &call, CUstream_st *stream) override;
    Status run(const Call &call) override;
    [[nodiscard]] const char *way(const Call &call) const override;
    Status add_memory(void *memory, size_t bytes) override;
    Status remove_memory(void *memory) override;
    void close() override;
    [[nodiscard]] uint64_t bytes_sent() const override { return sent_.load(std::memory_order_relaxed); }
    [[nodiscard]] std::vector<std::string> report() const override;

  private:
    Status allocate(const Config &config);
    Status agree_on(const Config &config);
    Status load_kernels() const;
    Status open_for(const Call &call, const SharedMemory *&region);
    [[nodiscard]] const SharedMemory *region_of(const Call &call) const;
    [[nodiscard]] Plan plan(const Call &call, const SharedMemory *region) const;
    [[nodiscard]] Job job_for(const Call &call, const Plan &plan, const SharedMemory *region) const;
    Status launch(const void *kernel, uint32_t blocks, uint32_t threads, const void *argument,
                  CUstream_st *stream) const;
    void count(const Call &call, const Plan &plan);

    // Copy engines (engines.cpp).
    Status run_engines(const Call &call, const Job &job, CUstream_st *stream);
    Status copy_steps(const Job &job, CUstream_st *stream);
    Status reduce_steps(const Call &call, const Job &job, CUstream_st *stream);
    Status step_flags(const Job &job, uint32_t channel, uint32_t tell, uint32_t hear, CUstream_st *stream) const;
    Status fork(CUstream_st *from, CUstream_st *to);

    Bootstrap &bootstrap_;
    Health &health_;
    uint64_t process_;
    int rank_ = 0;
    int ranks_ = 0;
    int device_ = -1;
    WindowLayout layout_;
    Limits limits_;
    char *window_ = nullptr;
    SharedMemory windows_;
    std::list<SharedMemory> regions_;
    Watcher watcher_;
    CUstream_st *stream_ = nullptr;  ///< of blocking calls
    CUstream_st *side_ = nullptr;    ///< of what runs beside the caller's stream
    CUevent_st *event_ = nullptr;
    std::vector<CUevent_st *> reduced_;  ///< by chunk, in turn
    std::atomic<uint64_t> sent_{0};
};

}  // namespace flx::cuda
