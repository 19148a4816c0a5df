/// \file reduce_other.h
/// Reductions that have no SIMD kernel of their own (reduce_table.h): logical and bitwise ones, complex products, pairs
/// of a value and a place, and functions of the program. Private to reduce.cpp.
#pragma once

#include <cstddef>

#include "runtime/include/flx.h"

namespace flx {

/// dst[i] = op(a[i], b[i]), as reduce_pair: `dst` may be exactly `a` or `b`. The reduction fits the type (dtype.h).
void reduce_other(flx_dtype_t dtype, flx_op_t op, void *dst, const void *a, const void *b, size_t count);

}  // namespace flx
