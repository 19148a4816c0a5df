/// \file reduce_table.h
/// What one SIMD target offers: a kernel per type and reduction. Private to the reduction kernels and their tests.
#pragma once

#include <cstddef>

#include "runtime/elements/dtype.h"

namespace flx {

/// A kernel for reduce_pair.
using PairKernel = void (*)(void *dst, const void *a, const void *b, size_t count);
/// A kernel for reduce_many; a divisor of 1 or less does not divide.
using ManyKernel = void (*)(void *dst, const void *const *sources, int n, size_t count, int divisor, bool stream,
                            void *kept);
/// A kernel for copy_streaming.
using CopyKernel = void (*)(void *dst, const void *src, size_t bytes);

/// The kernels, by type and reduction: null where there is none (has_kernel), and for products of 8-bit floats.
struct ReduceTable {
    PairKernel pair[kAllDtypes][kOps];
    ManyKernel many[kAllDtypes][kOps];
    CopyKernel copy;
    const char *target;
};

/// Each fills its types' entries for the best target that Highway allows.
void fill_integer_kernels(ReduceTable &table);
void fill_float_kernels(ReduceTable &table);
void fill_float8_kernels(ReduceTable &table);
/// Fills in sums of two vectors of 8-bit floats in f16, where the processor adds f16 and this is compiled for it.
void use_f16_for_sums(ReduceTable &table);

/// Chooses the target anew, after hwy::SetSupportedTargetsForTest: for tests. No reduction may run meanwhile.
void reselect_reduce_target();

}  // namespace flx
