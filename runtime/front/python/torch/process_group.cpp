#include "runtime/front/python/torch/process_group.h"

#include <ATen/ATen.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <utility>

#include "runtime/front/python/torch/meeting.h"
#include "runtime/front/python/torch/sparse.h"

namespace flx::torch {
namespace {

using c10d::OpType;

/// What all ranks have as `input`, one after the other.
Queue::Call gather_into(const Tensor &output, const Tensor &input) {
    return [output, input, type = dtype_of(input)](flx_comm_t comm) {
        return flx_allgather(input.data_ptr(), output.data_ptr(), count_of(input), type, comm);
    };
}

}  // namespace

ProcessGroupFlx::ProcessGroupFlx(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size, Milliseconds timeout)
    : Base(rank, size), store_(store), timeout_(timeout) {
    queue_ = std::make_shared<Queue>(meet(*store, "flx/", rank, size, {timeout}), timeout);
    messages_ = std::make_unique<Messages>(store, rank, size, timeout);
    init();
}

ProcessGroupFlx::~ProcessGroupFlx() {
    if (queue_ && queue_->of_parent())
        (void)store_.release();  // whose threads a forked child does not have
    // To free a communicator takes all its ranks, which may have made these in other orders: all at once.
    const auto end = [this] {
        if (queue_)
            queue_->end();
        if (messages_)
            messages_->end();
        queue_.reset();
        messages_.reset();
    };
    if (Py_IsInitialized() == 0 || PyGILState_Check() == 0) {
        end();
        return;
    }
    const pybind11::gil_scoped_release released;
    end();
}

c10::intrusive_ptr<FlxWork> ProcessGroupFlx::begin(OpType type, const char *name, const Tensors &inputs, Tensors result,
                                                   Milliseconds timeout, Queue::Call call,
                                                   std::function<void()> after) {
    ++operations_;
    auto work = c10::make_intrusive<FlxWork>(rank_, type, name, inputs, std::move(result),
                                             timeout == c10d::kUnsetTimeout ? timeout_ : timeout, queue_);
    queue_->add(work, std::move(call), std::move(after));
    return work;
}

WorkPtr ProcessGroupFlx::broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) {
    check_root(options.rootRank, size_);
    check_root_tensor(options.rootTensor, tensors);
    check_all_alike(tensors);
    const Tensor tensor = in_order(tensors[static_cast<size_t>(options.rootTensor)]);
    return begin(
        OpType::BROADCAST, "flx:broadcast", tensors, tensors, options.timeout,
        [tensor, type = dtype_of(tensor), root = static_cast<int>(options.rootRank)](flx_comm_t comm) {
            return flx_bcast(tensor.data_ptr(), count_of(tensor), type, root, comm);
        },
        back(tensor, tensors));
}

WorkPtr ProcessGroupFlx::allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) {
    if (std::any_of(tensors.begin(), tensors.end(), [](const Tensor &each) { return each.is_sparse(); }))
        return sum_sparse(tensors, options);
    check_all_alike(tensors);
    const Tensor tensor = in_order(tensors.size() == 1 ? tensors.front() : reduced(tensors, options.reduceOp));
    return begin(
        OpType::ALLREDUCE, "flx:all_reduce", tensors, tensors, options.timeout,
        [tensor, type = dtype_of(tensor), op = op_of(options.reduceOp, tensor)](flx_comm_t comm) {
            return flx_allreduce(FLX_IN_PLACE, tensor.data_ptr(), count_of(tensor), type, op, comm);
        },
        back(tensor, tensors));
}

WorkPtr ProcessGroupFlx::sum_sparse(Tensors &tensors, const c10d::AllreduceOptions &options) {
    check_sparse(tensors, options.reduceOp);
    const auto sum = std::make_shared<Tensor>(own_sum(tensors));
    return begin(
        OpType::ALLREDUCE, "flx:sparse_all_reduce", tensors, tensors, options.timeout,
        [sum, size = size_](flx_comm_t comm) {
            *sum = sum_of_sparse(*sum, size, comm);
            return FLX_SUCCESS;
        },
        [sum, tensors] {
            for (const Tensor &tensor : tensors)
                const_cast<Tensor &>(tensor).copy_(*sum);
        });
}

/// In one operation.
WorkPtr ProcessGroupFlx::allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &options) {
    TORCH_CHECK(!tensors.empty(), "requires non-empty tensor list");
    for (size_t i = 0; i < tensors.size(); ++i) {
        TORCH_CHECK(tensors[i].layout() == tensors.front().layout(), "invalid tensor layout at index ", i, ": ",
                    tensors[i].layout());
        TORCH_CHECK(tensors[i].scalar_type() == tensors.front().scalar_type(),
                    "tensors must all have the same type: ", tensors.front().scalar_type(), " and, at index ", i, ", ",
                    tensors[i].scalar_type());
    }
    TORCH_CHECK(!tensors.front().is_sparse(), "unsupported layout: sparse tensors are added one by one");
    const Tensor flat = flat_of(tensors);
    return begin(
        OpType::ALLREDUCE_COALESCED, "flx:all_reduce", tensors, tensors, options.timeout,
        [flat, type = dtype_of(flat), op = op_of(options.reduceOp, flat)](flx_comm_t comm) {
            return flx_allreduce(FLX_IN_PLACE, flat.data_ptr(), count_of(flat), type, op, comm);
        },
        [flat, parts = tensors] { copy_out(flat, parts); });
}

WorkPtr ProcessGroupFlx::reduce(Tensors &tensors, const c10d::ReduceOptions &options) {
    check_root(options.rootRank, size_);
    check_root_tensor(options.rootTensor, tensors);
    const Tensor tensor = in_order(only(tensors, "tensor list"));
    const bool here = rank_ == options.rootRank;
    return begin(
        OpType::REDUCE, "flx:reduce", tensors, tensors, options.timeout,
        [tensor, type = dtype_of(tensor), op = op_of(options.reduceOp, tensor),
         root = static_cast<int>(options.rootRank), here](flx_comm_t comm) {
            return flx_reduce(here ? FLX_IN_PLACE : tensor.data_ptr(), here ? tensor.data_ptr() : nullptr,
                              count_of(tensor), type, op, root, comm);
        },
        here ? back(tensor, tensors) : std::function<void()>());
}

WorkPtr ProcessGroupFlx::_allgather_base(Tensor &output, Tensor &input, const c10d::AllgatherOptions &options) {
    check_contiguous(output);
    check_contiguous(input);
    check_same_type(output, input);
    TORCH_CHECK(output.numel() == input.numel() * size_, "the output has ", output.numel(),
                " elements and has to have ", input.numel() * size_);
    return begin(OpType::_ALLGATHER_BASE, "flx:_all_gather_base", {input}, {output}, options.timeout,
                 gather_into(output, input));
}

/// `outputs[i]` is for the i-th input of each rank, or has those of all of a rank, one after the other: either way each
/// list has all that all ranks have, in their order.
WorkPtr ProcessGroupFlx::allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                                   const c10d::AllgatherOptions &options) {
    TORCH_CHECK(!inputs.empty(), "requires non-empty input tensor list");
    TORCH_CHECK(outputs.size() == inputs.size(), "requires input/output tensor lists to have the same length, and not ",
                inputs.size(), " and ", outputs.size());
    check_all_alike(inputs);
    for (size_t list = 0; list < outputs.size(); ++list) {
        const size_t wanted = inputs.size() * static_cast<size_t>(size_);
        TORCH_CHECK(outputs[list].size() == wanted, "invalid output tensor list at index ", list, ": of ",
                    outputs[list].size(), " tensors, where ", wanted, " are expected");
        for (size_t i = 0; i < wanted; ++i)
            check_alike(outputs[list][i], inputs.front(), i);
    }
    const Tensor input = flat_of(inputs);
    const Tensor output = flat_like(outputs.front());
    auto work = begin(OpType::ALLGATHER, "flx:all_gather", inputs, outputs.front(), options.timeout,
                      gather_into(output, input), [output, outputs] {
                          for (const Tensors &list : outputs)
                              copy_out(output, list);
                      });
    if (outputs.size() > 1)
        work->give_lists(outputs);
    return work;
}

/// `outputs[r]` is for what rank r has.
WorkPtr ProcessGroupFlx::allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                             const c10d::AllgatherOptions &options) {
    TORCH_CHECK(!inputs.empty(), "requires non-empty input tensor list");
    TORCH_CHECK(outputs.size() == static_cast<size_t>(size_), "output lists should be equal to world size, which is ",
                size_, ", and there are ", outputs.size());
    Tensors parts;
    for (const Tensors &of_rank : outputs) {
        TORCH_CHECK(of_rank.size() == inputs.size(), "invalid output size: each rank's list has to have ",
                    inputs.size(), " tensors, and one has ", of_rank.size());
        for (size_t i = 0; i < inputs.size(); ++i) {
            TORCH_CHECK(of_rank[i].sizes() == inputs[i].sizes(), "invalid size of output tensor at index ", i, ": ",
                        of_rank[i].sizes(), ", where ", inputs[i].sizes(), " is expected");
            check_alike(of_rank[i], inputs[i], i);
        }
        parts.insert(parts.end(), of_rank.begin(), of_rank.end());
    }
    const Tensor input = flat_of(inputs);
    const Tensor output = flat_like(parts);
    return begin(OpType::ALLGATHER_COALESCED, "flx:all_gather", inputs, parts, options.timeout,
                 gather_into(output, input), [output, parts] { copy_out(output, parts); });
}

WorkPtr ProcessGroupFlx::gather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::GatherOptions &options) {
    check_root(options.rootRank, size_);
    const Tensor &given = check(only(inputs, "input tensor list"));
    const Tensor input = given.contiguous();
    const bool here = rank_ == options.rootRank;
    const Tensors parts = lists_of_root(outputs, given, size_, here, "output");
    const Tensor output = here ? flat_like(parts) : Tensor();
    return begin(
        OpType::GATHER, "flx:gather", inputs, parts, options.timeout,
        [output, input, type = dtype_of(input), root = static_cast<int>(options.rootRank)](flx_comm_t comm) {
            return flx_gather(input.data_ptr(), output.defined() ? output.data_ptr() : nullptr, count_of(input), type,
                              root, comm);
        },
        [output, parts] { copy_out(output, parts); });
}

WorkPtr ProcessGroupFlx::scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ScatterOptions &options) {
    check_root(options.rootRank, size_);
    const Tensor output = check_contiguous(only(outputs, "output tensor list"));
    const bool here = rank_ == options.rootRank;
    const Tensors parts = lists_of_root(inputs, output, size_, here, "input");
    const Tensor input = here ? flat_of(parts) : Tensor();
    return begin(OpType::SCATTER, "flx:scatter", parts, outputs, options.timeout,
                 [output, input, type = dtype_of(output), root = static_cast<int>(options.rootRank)](flx_comm_t comm) {
                     return flx_scatter(input.defined() ? input.data_ptr() : nullptr, output.data_ptr(),
                                        count_of(output), type, root, comm);
                 });
}

WorkPtr ProcessGroupFlx::_reduce_scatter_base(Tensor &output, Tensor &input,
                                              const c10d::ReduceScatterOptions &options) {
    check_contiguous(output);
    check_contiguous(input);
    check_same_type(output, input);
    TORCH_CHECK(input.numel() == output.numel() * size_, "the input has ", input.numel(), " elements and has to have ",
                output.numel() * size_);
    return begin(OpType::_REDUCE_SCATTER_BASE, "flx:_reduce_scatter_base", {input}, {output}, options.timeout,
                 [output, input, type = dtype_of(input), op = op_of(options.reduceOp, input)](flx_comm_t comm) {
                     return flx_reduce_scatter_block(input.data_ptr(), output.data_ptr(), count_of(output), type, op,
                                                     comm);
                 });
}

WorkPtr ProcessGroupFlx::reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                                        const c10d::ReduceScatterOptions &options) {
    const Tensor output = check_contiguous(only(outputs, "output tensor list"));
    TORCH_CHECK(inputs.size() == 1, "one list of inputs is needed");
    const Cuts cuts = cuts_of(inputs.front(), size_);
    TORCH_CHECK(cuts.counts[static_cast<size_t>(rank_)] == count_of(output), "the output has ", output.numel(),
                " elements and this rank's part ", cuts.counts[static_cast<size_t>(rank_)]);
    const Tensor input = flat_of(inputs.front());
    check_same_type(output, input);
    return begin(OpType::REDUCE_SCATTER, "flx:reduce_scatter", inputs.front(), outputs, options.timeout,
                 [output, input, type = dtype_of(input), op = op_of(options.reduceOp, input),
                  counts = cuts.counts](flx_comm_t comm) {
                     return flx_reduce_scatter(input.data_ptr(), output.data_ptr(), counts.data(), type, op, comm);
                 });
}

WorkPtr ProcessGroupFlx::alltoall_base(Tensor &output, Tensor &input, std::vector<int64_t> &output_splits,
                                       std::vector<int64_t> &input_splits, const c10d::AllToAllOptions &options) {
    check_contiguous(output);
    check_contiguous(input);
    check_same_type(output, input);
    return begin(OpType::ALLTOALL_BASE, "flx:all_to_all", {input}, {output}, options.timeout,
                 [output, input, type = dtype_of(input), to = cuts_of(input, input_splits, size_),
                  from = cuts_of(output, output_splits, size_)](flx_comm_t comm) {
                     return flx_alltoallv(input.data_ptr(), output.data_ptr(), to.counts.data(), to.places.data(),
                                          from.counts.data(), from.places.data(), type, comm);
                 });
}

WorkPtr ProcessGroupFlx::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options) {
    const Cuts to = cuts_of(inputs, size_);
    const Cuts from = cuts_of(outputs, size_);
    const Tensor input = flat_of(inputs);
    const Tensor output = flat_like(outputs);
    check_same_type(output, input);
    return begin(
        OpType::ALLTOALL, "flx:all_to_all", inputs, outputs, options.timeout,
        [output, input, type = dtype_of(input), to, from](flx_comm_t comm) {
            return flx_alltoallv(input.data_ptr(), output.data_ptr(), to.counts.data(), to.places.data(),
                                 from.counts.data(), from.places.data(), type, comm);
        },
        [output, parts = outputs] { copy_out(output, parts); });
}

WorkPtr ProcessGroupFlx::send(Tensors &tensors, int to, int tag) {
    return messages_->send(check_contiguous(only(tensors, "tensor list")), to, tag);
}

WorkPtr ProcessGroupFlx::recv(Tensors &tensors, int from, int tag) {
    return messages_->receive(check_contiguous(only(tensors, "tensor list")), from, tag);
}

WorkPtr ProcessGroupFlx::recvAnysource(Tensors &tensors, int tag) {
    return messages_->receive_from_any(check_contiguous(only(tensors, "tensor list")), tag);
}

WorkPtr ProcessGroupFlx::barrier(const c10d::BarrierOptions &options) {
    return begin(OpType::BARRIER, "flx:barrier", {}, {}, options.timeout, flx_barrier);
}

void ProcessGroupFlx::monitoredBarrier(const c10d::BarrierOptions &options, bool all) {
    const Milliseconds timeout = options.timeout == c10d::kUnsetTimeout ? timeout_ : options.timeout;
    const auto place = [](uint64_t number) { return "flx/barrier/" + std::to_string(number) + "/"; };
    const uint64_t number = barriers_++;
    const std::string here = place(number);
    TORCH_CHECK(timeout.count() > 0, "Rank ", rank_, " timed out in monitoredBarrier: its timeout is 0 ms");
    store_->set(here + std::to_string(rank_), std::vector<uint8_t>{1});
    const auto answer = [&](const std::string &text) {
        store_->set(here + "answer", std::vector<uint8_t>(text.begin(), text.end()));
    };
    if (rank_ == 0) {
        std::vector<int> absent = missing(*store_, here, size_, {timeout});
        std::string text;
        if (!absent.empty()) {
            if (!all)
                absent.resize(1);
            const std::string who = ranks_text(absent);
            text = "R" + who.substr(1) + " failed to pass monitoredBarrier in " + std::to_string(timeout.count()) +
                   " ms: " + who + " did not reach it";
        }
        answer(text);
        if (number > 0 && absent.empty()) {  // all have read what was said of the one before
            std::vector<std::string> keys = keys_of(place(number - 1), size_);
            keys.push_back(place(number - 1) + "answer");
            forget(*store_, keys);
        }
        TORCH_CHECK(text.empty(), text);
        return;
    }
    // Rank 0 may wait as long itself before it answers.
    std::string said;
    TORCH_CHECK(told(*store_, here + "answer", {2 * timeout}, said),
                "rank 0 did not reach the monitored barrier within ", 2 * timeout.count(), " ms");
    TORCH_CHECK(said.empty(), "Rank ", rank_, " successfully reached monitoredBarrier, but received errors while ",
                "waiting for send/recv from rank 0: ", said);
}

}  // namespace flx::torch
