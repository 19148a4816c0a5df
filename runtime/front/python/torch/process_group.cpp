#include "runtime/front/python/torch/process_group.h"

#include <ATen/ATen.h>
#include <pybind11/pybind11.h>

#include <numeric>
#include <utility>

#include "runtime/front/python/torch/meeting.h"

namespace flx::torch {
namespace {

using c10d::OpType;
using c10d::ReduceOp;

flx_dtype_t dtype_of(const Tensor &tensor) {
    switch (tensor.scalar_type()) {
        case at::kByte:
        case at::kBool:
            return FLX_UINT8;
        case at::kChar:
            return FLX_INT8;
        case at::kShort:
            return FLX_INT16;
        case at::kInt:
            return FLX_INT32;
        case at::kLong:
            return FLX_INT64;
        case at::kHalf:
            return FLX_F16;
        case at::kBFloat16:
            return FLX_BF16;
        case at::kFloat:
            return FLX_F32;
        case at::kDouble:
            return FLX_F64;
        case at::kComplexFloat:
            return FLX_COMPLEX_F32;
        case at::kComplexDouble:
            return FLX_COMPLEX_F64;
        default:
            TORCH_CHECK(false, "FLX does not know elements of type ", tensor.scalar_type());
    }
}

flx_op_t op_of(const ReduceOp &op, const Tensor &tensor) {
    const bool truth = tensor.scalar_type() == at::kBool;
    switch (static_cast<ReduceOp::RedOpType>(op)) {
        case ReduceOp::SUM:
            return truth ? FLX_LOR : FLX_SUM;
        case ReduceOp::AVG:
            TORCH_CHECK(!truth, "tensors of bool have no average");
            return FLX_AVG;
        case ReduceOp::PRODUCT:
            return truth ? FLX_LAND : FLX_PROD;
        case ReduceOp::MIN:
            return FLX_MIN;
        case ReduceOp::MAX:
            return FLX_MAX;
        case ReduceOp::BAND:
            return FLX_BAND;
        case ReduceOp::BOR:
            return FLX_BOR;
        case ReduceOp::BXOR:
            return FLX_BXOR;
        default:
            TORCH_CHECK(false, "the backend flx does not know this reduction");
    }
}

/// In host memory, and one element after the other in some order of the axes.
const Tensor &check(const Tensor &tensor) {
    TORCH_CHECK(tensor.device().is_cpu() && tensor.layout() == at::kStrided,
                "the backend flx is for dense tensors in host memory, and this one is on ", tensor.device(),
                " with layout ", tensor.layout());
    TORCH_CHECK(tensor.is_non_overlapping_and_dense(), "tensors have to be dense; contiguous() makes a copy that is");
    return tensor;
}

const Tensor &check_contiguous(const Tensor &tensor) {
    check(tensor);
    TORCH_CHECK(tensor.is_contiguous(), "tensors have to be contiguous; contiguous() makes a copy that is");
    return tensor;
}

/// `tensor`, or a copy in C's order: others may have their axes in other orders.
Tensor in_order(const Tensor &tensor) {
    return check(tensor).contiguous();
}

/// Puts back what in_order() copied.
std::function<void()> back(const Tensor &ordered, const Tensor &tensor) {
    if (ordered.is_same(tensor))
        return {};
    return [ordered, tensor] { const_cast<Tensor &>(tensor).copy_(ordered); };
}

void check_alike(const Tensor &tensor, const Tensor &other) {
    TORCH_CHECK(tensor.scalar_type() == other.scalar_type(), "tensors have elements of different types, ",
                tensor.scalar_type(), " and ", other.scalar_type());
}

const Tensor &only(const Tensors &tensors) {
    TORCH_CHECK(tensors.size() == 1, "one tensor a rank is needed, not ", tensors.size());
    return tensors.front();
}

void check_root(int64_t root, int size) {
    TORCH_CHECK(root >= 0 && root < size, "there is no rank ", root, " among ", size);
}

/// Messages of at most so many bytes do not wait for who receives them.
constexpr size_t kCopiedBytes = size_t{64} << 10;
/// How long the end of a group waits for messages that nobody has waited for.
constexpr Milliseconds kReceiversGrace(1000);
/// How long messages wait for the other rank to begin its first: as long as it takes, since who waits for them gives up
/// in time.
constexpr Milliseconds kWeek = std::chrono::hours(24 * 7);

void check_message(int peer, int rank, int tag) {
    TORCH_CHECK(tag == 0, "the backend flx has no tags: messages of two ranks meet in their order");
    TORCH_CHECK(peer != rank, "rank ", rank, " cannot send to itself");
}

size_t count_of(const Tensor &tensor) {
    return static_cast<size_t>(tensor.numel());
}

/// One tensor for the blocks of `parts`, of which each has a rank's.
Tensor flat_like(const Tensors &parts) {
    int64_t count = 0;
    for (const Tensor &part : parts) {
        check(part);
        check_alike(part, parts.front());
        count += part.numel();
    }
    return at::empty({count}, parts.front().options());
}

void copy_in(const Tensors &parts, const Tensor &flat) {
    int64_t at = 0;
    for (const Tensor &part : parts) {
        flat.narrow(0, at, part.numel()).view(part.sizes()).copy_(part);
        at += part.numel();
    }
}

void copy_out(const Tensor &flat, const Tensors &parts) {
    int64_t at = 0;
    for (const Tensor &part : parts) {
        const_cast<Tensor &>(part).copy_(flat.narrow(0, at, part.numel()).view(part.sizes()));
        at += part.numel();
    }
}

/// All of the size of `like`, as blocks of a collective are.
void check_blocks(const Tensors &parts, const Tensor &like, int size) {
    TORCH_CHECK(parts.size() == static_cast<size_t>(size), "a list of ", size, " tensors is needed, not of ",
                parts.size());
    for (const Tensor &part : parts)
        TORCH_CHECK(part.numel() == like.numel(), "the tensors of all ranks have to have ", like.numel(),
                    " elements, and one has ", part.numel());
}

struct Cuts {
    std::vector<size_t> counts, places;
};

/// Elements for each rank: `splits` says rows, none: all ranks have as many.
Cuts cuts_of(const Tensor &tensor, const std::vector<int64_t> &splits, int size) {
    Cuts cuts;
    const auto ranks = static_cast<size_t>(size);
    const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
    const int64_t row = rows == 0 ? 0 : tensor.numel() / rows;
    if (splits.empty()) {
        TORCH_CHECK(rows % size == 0, "the first axis has ", rows, " rows, which are no multiple of ", size, " ranks");
        cuts.counts.assign(ranks, static_cast<size_t>(rows / size * row));
    } else {
        TORCH_CHECK(splits.size() == ranks && std::accumulate(splits.begin(), splits.end(), int64_t{0}) == rows,
                    "split sizes have to be ", size, " numbers whose sum is ", rows);
        for (const int64_t split : splits) {
            TORCH_CHECK(split >= 0, "split sizes have to be 0 or more, and one is ", split);
            cuts.counts.push_back(static_cast<size_t>(split * row));
        }
    }
    cuts.places.resize(ranks);
    for (size_t rank = 1; rank < ranks; ++rank)
        cuts.places[rank] = cuts.places[rank - 1] + cuts.counts[rank - 1];
    return cuts;
}

Cuts cuts_of(const Tensors &parts, int size) {
    TORCH_CHECK(parts.size() == static_cast<size_t>(size), "a list of ", size, " tensors is needed, not of ",
                parts.size());
    Cuts cuts;
    size_t at = 0;
    for (const Tensor &part : parts) {
        cuts.counts.push_back(count_of(part));
        cuts.places.push_back(at);
        at += count_of(part);
    }
    return cuts;
}

}  // namespace

ProcessGroupFlx::ProcessGroupFlx(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size, Milliseconds timeout)
    : ProcessGroup(rank, size), store_(store), timeout_(timeout) {
    queue_ = std::make_shared<Queue>(meet(*store, "flx/", rank, size, {timeout}), timeout);
    init();
}

ProcessGroupFlx::~ProcessGroupFlx() {
    if (queue_ && queue_->of_parent())
        (void)store_.release();  // whose threads a forked child does not have
    // To free a communicator takes all its ranks, which may have made these in other orders: all at once.
    const auto end = [this] {
        if (queue_)
            queue_->end();
        for (const auto &[of, queue] : channels_)
            queue->end();
        queue_.reset();
        channels_.clear();
    };
    if (Py_IsInitialized() == 0 || PyGILState_Check() == 0) {
        end();
        return;
    }
    const pybind11::gil_scoped_release released;
    end();
}

const std::shared_ptr<Queue> &ProcessGroupFlx::channel(int peer, bool sends) {
    const std::lock_guard guard(channels_mutex_);
    std::shared_ptr<Queue> &queue = channels_[{peer, sends}];
    if (!queue) {
        const std::string at =
            "flx/" + std::to_string(sends ? rank_ : peer) + "-" + std::to_string(sends ? peer : rank_) + "/";
        const auto open = [store = store_, at, sends](const std::atomic<bool> &over) {
            return meet(*store, at, sends ? 0 : 1, 2, {kWeek, sends ? nullptr : &over});
        };
        // What has not been sent by the end of the group does not come any more.
        queue = std::make_shared<Queue>(open, sends ? timeout_ : kReceiversGrace);
    }
    return queue;
}

c10::intrusive_ptr<FlxWork> ProcessGroupFlx::make(OpType type, const char *name, const Tensors &inputs, Tensors result,
                                                  Milliseconds timeout, const std::shared_ptr<Queue> &queue) {
    ++operations_;
    return c10::make_intrusive<FlxWork>(rank_, type, name, inputs, std::move(result),
                                        timeout == c10d::kUnsetTimeout ? timeout_ : timeout, queue);
}

WorkPtr ProcessGroupFlx::begin(OpType type, const char *name, const Tensors &inputs, Tensors result,
                               Milliseconds timeout, Queue::Call call, std::function<void()> after) {
    auto work = make(type, name, inputs, std::move(result), timeout, queue_);
    queue_->add(work, std::move(call), std::move(after));
    return work;
}

WorkPtr ProcessGroupFlx::broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) {
    const Tensor tensor = in_order(only(tensors));
    check_root(options.rootRank, size_);
    return begin(
        OpType::BROADCAST, "flx:broadcast", tensors, tensors, options.timeout,
        [tensor, type = dtype_of(tensor), root = static_cast<int>(options.rootRank)](flx_comm_t comm) {
            return flx_bcast(tensor.data_ptr(), count_of(tensor), type, root, comm);
        },
        back(tensor, tensors.front()));
}

WorkPtr ProcessGroupFlx::allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) {
    const Tensor tensor = in_order(only(tensors));
    return begin(
        OpType::ALLREDUCE, "flx:all_reduce", tensors, tensors, options.timeout,
        [tensor, type = dtype_of(tensor), op = op_of(options.reduceOp, tensor)](flx_comm_t comm) {
            return flx_allreduce(FLX_IN_PLACE, tensor.data_ptr(), count_of(tensor), type, op, comm);
        },
        back(tensor, tensors.front()));
}

/// In one operation.
WorkPtr ProcessGroupFlx::allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &options) {
    TORCH_CHECK(!tensors.empty(), "there are no tensors");
    const Tensor flat = flat_like(tensors);
    copy_in(tensors, flat);
    return begin(
        OpType::ALLREDUCE_COALESCED, "flx:all_reduce_coalesced", tensors, tensors, options.timeout,
        [flat, type = dtype_of(flat), op = op_of(options.reduceOp, flat)](flx_comm_t comm) {
            return flx_allreduce(FLX_IN_PLACE, flat.data_ptr(), count_of(flat), type, op, comm);
        },
        [flat, parts = tensors] { copy_out(flat, parts); });
}

WorkPtr ProcessGroupFlx::reduce(Tensors &tensors, const c10d::ReduceOptions &options) {
    const Tensor tensor = in_order(only(tensors));
    check_root(options.rootRank, size_);
    const bool here = rank_ == options.rootRank;
    return begin(
        OpType::REDUCE, "flx:reduce", tensors, tensors, options.timeout,
        [tensor, type = dtype_of(tensor), op = op_of(options.reduceOp, tensor),
         root = static_cast<int>(options.rootRank), here](flx_comm_t comm) {
            return flx_reduce(here ? FLX_IN_PLACE : tensor.data_ptr(), here ? tensor.data_ptr() : nullptr,
                              count_of(tensor), type, op, root, comm);
        },
        here ? back(tensor, tensors.front()) : std::function<void()>());
}

WorkPtr ProcessGroupFlx::_allgather_base(Tensor &output, Tensor &input, const c10d::AllgatherOptions &options) {
    check_contiguous(output);
    check_contiguous(input);
    check_alike(output, input);
    TORCH_CHECK(output.numel() == input.numel() * size_, "the output has ", output.numel(),
                " elements and has to have ", input.numel() * size_);
    return begin(OpType::_ALLGATHER_BASE, "flx:_all_gather_base", {input}, {output}, options.timeout,
                 [output, input, type = dtype_of(input)](flx_comm_t comm) {
                     return flx_allgather(input.data_ptr(), output.data_ptr(), count_of(input), type, comm);
                 });
}

WorkPtr ProcessGroupFlx::allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                                   const c10d::AllgatherOptions &options) {
    return allgather_coalesced(outputs, inputs, options);
}

/// `outputs` here are of each input, one of each rank; allgather_coalesced of torch has them the other way round.
WorkPtr ProcessGroupFlx::allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                             const c10d::AllgatherOptions &options) {
    const bool one = inputs.size() == 1 && outputs.size() == 1 && outputs.front().size() == static_cast<size_t>(size_);
    if (!one)
        TORCH_CHECK(outputs.size() == static_cast<size_t>(size_), "lists of all ", size_, " ranks are needed");
    Tensors parts;
    if (one) {
        check_blocks(outputs.front(), inputs.front(), size_);
        parts = outputs.front();
    } else {
        for (const Tensors &of_rank : outputs) {
            TORCH_CHECK(of_rank.size() == inputs.size(), "each rank's list has to have ", inputs.size(), " tensors");
            for (size_t i = 0; i < inputs.size(); ++i)
                TORCH_CHECK(of_rank[i].numel() == inputs[i].numel(), "an output is as long as its input");
            parts.insert(parts.end(), of_rank.begin(), of_rank.end());
        }
    }
    TORCH_CHECK(!inputs.empty(), "there are no tensors");
    const Tensor input = flat_like(inputs);
    copy_in(inputs, input);
    const Tensor output = flat_like(parts);
    check_alike(output, input);
    return begin(
        OpType::ALLGATHER, "flx:all_gather", inputs, parts, options.timeout,
        [output, input, type = dtype_of(input)](flx_comm_t comm) {
            return flx_allgather(input.data_ptr(), output.data_ptr(), count_of(input), type, comm);
        },
        [output, parts] { copy_out(output, parts); });
}

WorkPtr ProcessGroupFlx::gather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::GatherOptions &options) {
    check_root(options.rootRank, size_);
    const Tensor input = check(only(inputs)).contiguous();
    const bool here = rank_ == options.rootRank;
    TORCH_CHECK(outputs.size() == (here ? 1U : 0U), "the root, and no other rank, has one list of outputs");
    const Tensors parts = here ? outputs.front() : Tensors{};
    Tensor output;
    if (here) {
        check_blocks(parts, input, size_);
        output = flat_like(parts);
        check_alike(output, input);
    }
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
    const Tensor output = check_contiguous(only(outputs));
    const bool here = rank_ == options.rootRank;
    TORCH_CHECK(inputs.size() == (here ? 1U : 0U), "the root, and no other rank, has one list of inputs");
    Tensor input;
    if (here) {
        check_blocks(inputs.front(), output, size_);
        input = flat_like(inputs.front());
        check_alike(output, input);
        copy_in(inputs.front(), input);
    }
    return begin(OpType::SCATTER, "flx:scatter", here ? inputs.front() : Tensors{}, outputs, options.timeout,
                 [output, input, type = dtype_of(output), root = static_cast<int>(options.rootRank)](flx_comm_t comm) {
                     return flx_scatter(input.defined() ? input.data_ptr() : nullptr, output.data_ptr(),
                                        count_of(output), type, root, comm);
                 });
}

WorkPtr ProcessGroupFlx::_reduce_scatter_base(Tensor &output, Tensor &input,
                                              const c10d::ReduceScatterOptions &options) {
    check_contiguous(output);
    check_contiguous(input);
    check_alike(output, input);
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
    const Tensor output = check_contiguous(only(outputs));
    TORCH_CHECK(inputs.size() == 1, "one list of inputs is needed");
    const Cuts cuts = cuts_of(inputs.front(), size_);
    TORCH_CHECK(cuts.counts[static_cast<size_t>(rank_)] == count_of(output), "the output has ", output.numel(),
                " elements and this rank's part ", cuts.counts[static_cast<size_t>(rank_)]);
    const Tensor input = flat_like(inputs.front());
    check_alike(output, input);
    copy_in(inputs.front(), input);
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
    check_alike(output, input);
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
    const Tensor input = flat_like(inputs);
    const Tensor output = flat_like(outputs);
    check_alike(output, input);
    copy_in(inputs, input);
    return begin(
        OpType::ALLTOALL, "flx:all_to_all", inputs, outputs, options.timeout,
        [output, input, type = dtype_of(input), to, from](flx_comm_t comm) {
            return flx_alltoallv(input.data_ptr(), output.data_ptr(), to.counts.data(), to.places.data(),
                                 from.counts.data(), from.places.data(), type, comm);
        },
        [output, parts = outputs] { copy_out(output, parts); });
}

WorkPtr ProcessGroupFlx::send(Tensors &tensors, int to, int tag) {
    const Tensor tensor = check_contiguous(only(tensors));
    check_root(to, size_);
    check_message(to, rank_, tag);
    const auto &queue = channel(to, true);
    auto work = make(OpType::SEND, "flx:send", tensors, tensors, timeout_, queue);
    const bool small = tensor.nbytes() <= kCopiedBytes;
    queue->add(small ? make(OpType::SEND, "flx:send", {}, {}, timeout_, queue) : work,
               [tensor = small ? tensor.clone() : tensor, type = dtype_of(tensor)](flx_comm_t comm) {
                   return flx_send(tensor.data_ptr(), count_of(tensor), type, 1, comm);
               });
    if (small)
        work->complete("");
    return work;
}

WorkPtr ProcessGroupFlx::recv(Tensors &tensors, int from, int tag) {
    const Tensor tensor = check_contiguous(only(tensors));
    check_root(from, size_);
    check_message(from, rank_, tag);
    const auto &queue = channel(from, false);
    auto work = make(OpType::RECV, "flx:recv", tensors, tensors, timeout_, queue);
    queue->add(work, [tensor, type = dtype_of(tensor)](flx_comm_t comm) {
        return flx_recv(tensor.data_ptr(), count_of(tensor), type, 0, comm);
    });
    return work;
}

WorkPtr ProcessGroupFlx::barrier(const c10d::BarrierOptions &options) {
    return begin(OpType::BARRIER, "flx:barrier", {}, {}, options.timeout, flx_barrier);
}

void ProcessGroupFlx::monitoredBarrier(const c10d::BarrierOptions &options, bool all) {
    const Milliseconds timeout = options.timeout == c10d::kUnsetTimeout ? timeout_ : options.timeout;
    const auto place = [](uint64_t number) { return "flx/barrier/" + std::to_string(number) + "/"; };
    const uint64_t number = barriers_++;
    const std::string here = place(number);
    store_->set(here + std::to_string(rank_), {1});
    const auto answer = [&](const std::string &text) {
        store_->set(here + "answer", std::vector<uint8_t>(text.begin(), text.end()));
    };
    if (rank_ == 0) {
        std::vector<int> absent = missing(*store_, here, size_, {timeout});
        std::string text;
        if (!absent.empty()) {
            if (!all)
                absent.resize(1);
            text = ranks_text(absent) + " did not reach the monitored barrier within " +
                   std::to_string(timeout.count()) + " ms";
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
    TORCH_CHECK(said.empty(), said);
}

}  // namespace flx::torch
