/// \file tensors.h
/// What tensors of torch are to FLX, and what is asked of them. Autograd sees nothing of what is done to them here.
/// Where torch's own backends have words for an error, it begins with those, as programs may know them.
#pragma once

#include <flx.h>

#include <cstdint>
#include <functional>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "runtime/front/python/torch/base.h"

namespace flx::torch {

/// bool is as uint8. Throws where FLX has no such elements.
flx_dtype_t dtype_of(const Tensor &tensor);
/// bool is added as `or`, multiplied as `and`. Throws where FLX, or bool, has no such reduction.
flx_op_t op_of(const c10d::ReduceOp &op, const Tensor &tensor);

// Checks throw, and return what they have checked.
/// In host memory, and not sparse.
const Tensor &check(const Tensor &tensor);
const Tensor &check_contiguous(const Tensor &tensor);
/// Of `list`, as it is named in the sentence.
const Tensor &only(const Tensors &tensors, const char *list);
void check_root(int64_t root, int size);
/// `root`: a place in a rank's list of tensors.
void check_root_tensor(int64_t root, const Tensors &tensors);
/// As long, and of the same elements, as the first.
void check_alike(const Tensor &tensor, const Tensor &first, size_t index = 0);
/// At least one, all like the first.
void check_all_alike(const Tensors &tensors);
/// The root's one list of `what`, for each rank a tensor like `like`. Others have none.
Tensors lists_of_root(const std::vector<Tensors> &lists, const Tensor &like, int size, bool at_root, const char *what);
void check_same_type(const Tensor &tensor, const Tensor &other);

/// `tensor`, or a copy in C's order: others may have their axes in other orders, but no gaps.
Tensor in_order(const Tensor &tensor);
/// Puts `ordered` into each of `tensors` that is not the same one.
std::function<void()> back(const Tensor &ordered, const Tensors &tensors);

size_t count_of(const Tensor &tensor);
/// One tensor for the blocks of `parts`, of which each has a rank's.
Tensor flat_like(const Tensors &parts);
/// The same, with what they have.
Tensor flat_of(const Tensors &parts);
void copy_out(const Tensor &flat, const Tensors &parts);
/// The tensors of one rank, alike, as one.
Tensor reduced(const Tensors &tensors, const c10d::ReduceOp &op);

struct Cuts {
    std::vector<size_t> counts, places;
};
/// Elements for each rank: `splits` says rows, none: all ranks have as many.
Cuts cuts_of(const Tensor &tensor, const std::vector<int64_t> &splits, int size);
Cuts cuts_of(const Tensors &parts, int size);

}  // namespace flx::torch
