/// \file sparse.h
/// The sum of sparse tensors of all ranks.
#pragma once

#include <flx.h>

#include "runtime/front/python/torch/tensors.h"

namespace flx::torch {

/// Throws unless `tensors`, of which one is sparse, are sparse in host memory (COO), alike, and to be added.
void check_sparse(const Tensors &tensors, const c10d::ReduceOp &op);

/// Of one rank, coalesced.
Tensor own_sum(const Tensors &tensors);

/// The sum of what each rank has, coalesced: entries of all ranks are gathered, in order of rank, and added on each.
/// Collective, of `size` ranks. `mine`: coalesced. Throws where ranks have tensors of other shapes, or a call fails.
Tensor sum_of_sparse(const Tensor &mine, int size, flx_comm_t comm);

}  // namespace flx::torch
