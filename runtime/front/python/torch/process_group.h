/// \file process_group.h
/// A process group of torch.distributed for tensors in host memory, on a communicator of FLX of its own.
#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "runtime/front/python/torch/base.h"
#include "runtime/front/python/torch/messages.h"
#include "runtime/front/python/torch/queue.h"
#include "runtime/front/python/torch/tensors.h"

namespace flx::torch {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

/// All collectives of c10d, which check their arguments when they are called, and are carried out by a thread of the
/// group in that order, and messages (messages.h). Tensors of one type a call, dense but where they are added.
class ProcessGroupFlx final : public Base {
  public:
    /// Collective over the group's ranks, which meet in `store`. `timeout`: of waits that say none of their own.
    ProcessGroupFlx(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size, Milliseconds timeout);
    /// Waits for what is under way, without Python's lock, which that may need.
    ~ProcessGroupFlx() override;

    const std::string getBackendName() const override {  // NOLINT(readability-const-return-type): as the base has it
        return "flx";
    }

    WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) override;
    WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) override;
    WorkPtr allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &options) override;
    WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &options) override;
    WorkPtr allgather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::AllgatherOptions &options) override;
    WorkPtr _allgather_base(Tensor &output, Tensor &input, const c10d::AllgatherOptions &options) override;
    WorkPtr allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                const c10d::AllgatherOptions &options) override;
    WorkPtr gather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::GatherOptions &options) override;
    WorkPtr scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ScatterOptions &options) override;
    WorkPtr reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                           const c10d::ReduceScatterOptions &options) override;
    WorkPtr _reduce_scatter_base(Tensor &output, Tensor &input, const c10d::ReduceScatterOptions &options) override;
    WorkPtr alltoall_base(Tensor &output, Tensor &input, std::vector<int64_t> &output_splits,
                          std::vector<int64_t> &input_splits, const c10d::AllToAllOptions &options) override;
    WorkPtr alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options) override;
    WorkPtr send(Tensors &tensors, int to, int tag) override;
    WorkPtr recv(Tensors &tensors, int from, int tag) override;
    WorkPtr recvAnysource(Tensors &tensors, int tag) override;
    WorkPtr barrier(const c10d::BarrierOptions &options) override;

    /// Names the ranks that do not come in time: on rank 0 the first of them or, with `all`, each one.
    void monitoredBarrier(const c10d::BarrierOptions &options, bool all) override;
    void setSequenceNumberForGroup() override {}
    uint64_t getSequenceNumberForGroup() override { return operations_; }

  private:
    WorkPtr sum_sparse(Tensors &tensors, const c10d::AllreduceOptions &options);
    c10::intrusive_ptr<FlxWork> begin(c10d::OpType type, const char *name, const Tensors &inputs, Tensors result,
                                      Milliseconds timeout, Queue::Call call, std::function<void()> after = {});

    c10::intrusive_ptr<c10d::Store> store_;
    Milliseconds timeout_;
    uint64_t operations_ = 0;
    uint64_t barriers_ = 0;
    std::shared_ptr<Queue> queue_;
    std::unique_ptr<Messages> messages_;
};

}  // namespace flx::torch
