/// \file device_data.h
/// Patterns in GPU memory: filled and compared there, since gigabytes would take long to copy.
#pragma once

#include <cstddef>
#include <cstdint>

struct CUstream_st;

namespace flx::bench {

/// dst[i] = table[i mod period], elements of `element` bytes (1, 2, 4 or 8); all in GPU memory. Zero, or CUDA's error.
int fill_from_table(void *dst, const void *table, size_t count, size_t element, size_t period, CUstream_st *stream);
/// Adds to `*wrong` (GPU memory) how many of the elements differ in any bit.
int count_unlike_table(const void *got, const void *table, size_t count, size_t element, size_t period,
                       unsigned long long *wrong, CUstream_st *stream);

}  // namespace flx::bench
