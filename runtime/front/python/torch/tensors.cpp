#include "runtime/front/python/torch/tensors.h"

#include <ATen/ATen.h>

#include <numeric>

namespace flx::torch {

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

flx_op_t op_of(const c10d::ReduceOp &op, const Tensor &tensor) {
    const bool truth = tensor.scalar_type() == at::kBool;
    switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
        case c10d::ReduceOp::SUM:
            return truth ? FLX_LOR : FLX_SUM;
        case c10d::ReduceOp::AVG:
            TORCH_CHECK(!truth, "tensors of bool have no average");
            return FLX_AVG;
        case c10d::ReduceOp::PRODUCT:
            return truth ? FLX_LAND : FLX_PROD;
        case c10d::ReduceOp::MIN:
            return FLX_MIN;
        case c10d::ReduceOp::MAX:
            return FLX_MAX;
        case c10d::ReduceOp::BAND:
            return FLX_BAND;
        case c10d::ReduceOp::BOR:
            return FLX_BOR;
        case c10d::ReduceOp::BXOR:
            return FLX_BXOR;
        default:
            TORCH_CHECK(false, "the backend flx does not know this reduction");
    }
}

const Tensor &check(const Tensor &tensor) {
    TORCH_CHECK(tensor.device().is_cpu() && tensor.layout() == at::kStrided,
                "the backend flx is for dense tensors in host memory, and this one is on ", tensor.device(),
                " with layout ", tensor.layout());
    TORCH_CHECK(!tensor.is_conj() && !tensor.is_neg(),
                "tensors that are conjugated or negated when they are read have to be made: resolve_conj(), "
                "resolve_neg()");
    return tensor;
}

const Tensor &check_contiguous(const Tensor &tensor) {
    check(tensor);
    TORCH_CHECK(tensor.is_contiguous(), "tensors have to be contiguous; contiguous() makes a copy that is");
    return tensor;
}

Tensor in_order(const Tensor &tensor) {
    const at::AutoDispatchBelowADInplaceOrView unseen;
    TORCH_CHECK(check(tensor).is_non_overlapping_and_dense(),
                "tensors have to be dense; contiguous() makes a copy that is");
    return tensor.contiguous();
}

std::function<void()> back(const Tensor &ordered, const Tensors &tensors) {
    Tensors others;
    for (const Tensor &tensor : tensors)
        if (!ordered.is_same(tensor))
            others.push_back(tensor);
    if (others.empty())
        return {};
    return [ordered, others] {
        for (const Tensor &tensor : others)
            const_cast<Tensor &>(tensor).copy_(ordered);
    };
}

Tensors lists_of_root(const std::vector<Tensors> &lists, const Tensor &like, int size, bool at_root, const char *what) {
    if (!at_root) {
        TORCH_CHECK(lists.empty(), "requires empty ", what, " on non-root ranks");
        return {};
    }
    TORCH_CHECK(lists.size() == 1, "requires a single-element ", what, " list with a tensor for each rank on the root");
    const Tensors &parts = lists.front();
    TORCH_CHECK(parts.size() == static_cast<size_t>(size), "Incorrect ", what, " list size ", parts.size(), ". ",
                what[0] == 'i' ? "Input" : "Output", " list size should be ", size, ", the number of ranks");
    for (size_t i = 0; i < parts.size(); ++i)
        check_alike(parts[i], like, i);
    return parts;
}

void check_same_type(const Tensor &tensor, const Tensor &other) {
    TORCH_CHECK(tensor.scalar_type() == other.scalar_type(), "invalid tensor type: tensors have elements of types ",
                tensor.scalar_type(), " and ", other.scalar_type());
}

void check_alike(const Tensor &tensor, const Tensor &first, size_t index) {
    TORCH_CHECK(tensor.layout() == first.layout(), "invalid tensor layout at index ", index, ": ", tensor.layout(),
                ", where ", first.layout(), " is expected");
    TORCH_CHECK(tensor.scalar_type() == first.scalar_type(), "invalid tensor type at index ", index, ": ",
                tensor.scalar_type(), ", where ", first.scalar_type(), " is expected");
    TORCH_CHECK(tensor.sizes() == first.sizes(), "invalid tensor size at index ", index, ": ", tensor.sizes(),
                ", where ", first.sizes(), " is expected");
}

void check_all_alike(const Tensors &tensors) {
    TORCH_CHECK(!tensors.empty(), "requires non-empty tensor list");
    for (size_t i = 0; i < tensors.size(); ++i)
        check_alike(tensors[i], tensors.front(), i);
}

const Tensor &only(const Tensors &tensors, const char *list) {
    TORCH_CHECK(tensors.size() == 1, "requires a single-element ", list, ", and not one of ", tensors.size());
    return tensors.front();
}

void check_root(int64_t root, int size) {
    TORCH_CHECK(root >= 0 && root < size, "invalid root rank: there is no rank ", root, " among ", size);
}

void check_root_tensor(int64_t root, const Tensors &tensors) {
    TORCH_CHECK(root >= 0 && static_cast<size_t>(root) < tensors.size(), "invalid root tensor: there is no tensor ",
                root, " among ", tensors.size());
}

size_t count_of(const Tensor &tensor) {
    return static_cast<size_t>(tensor.numel());
}

Tensor flat_like(const Tensors &parts) {
    int64_t count = 0;
    for (const Tensor &part : parts) {
        check(part);
        check_same_type(part, parts.front());
        count += part.numel();
    }
    return at::empty({count}, parts.front().options());
}

Tensor flat_of(const Tensors &parts) {
    const at::AutoDispatchBelowADInplaceOrView unseen;
    Tensor flat = flat_like(parts);
    int64_t at = 0;
    for (const Tensor &part : parts) {
        flat.narrow(0, at, part.numel()).view(part.sizes()).copy_(part);
        at += part.numel();
    }
    return flat;
}

void copy_out(const Tensor &flat, const Tensors &parts) {
    int64_t at = 0;
    for (const Tensor &part : parts) {
        const_cast<Tensor &>(part).copy_(flat.narrow(0, at, part.numel()).view(part.sizes()));
        at += part.numel();
    }
}

Tensor reduced(const Tensors &tensors, const c10d::ReduceOp &op) {
    const at::AutoDispatchBelowADInplaceOrView unseen;
    Tensor result = tensors.front().is_sparse() ? tensors.front() : tensors.front().contiguous();
    const bool truth = result.scalar_type() == at::kBool;
    for (size_t i = 1; i < tensors.size(); ++i) {
        const Tensor &next = tensors[i];
        switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
            case c10d::ReduceOp::SUM:
                result = truth ? result.logical_or(next) : result + next;
                break;
            case c10d::ReduceOp::PRODUCT:
                result = truth ? result.logical_and(next) : result * next;
                break;
            case c10d::ReduceOp::MIN:
                result = at::minimum(result, next);
                break;
            case c10d::ReduceOp::MAX:
                result = at::maximum(result, next);
                break;
            case c10d::ReduceOp::BAND:
                result = result.bitwise_and(next);
                break;
            case c10d::ReduceOp::BOR:
                result = result.bitwise_or(next);
                break;
            case c10d::ReduceOp::BXOR:
                result = result.bitwise_xor(next);
                break;
            default:
                TORCH_CHECK(false, "several tensors a rank are not reduced so; stack them, and reduce one tensor");
        }
    }
    return result;
}

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

}  // namespace flx::torch
