/// \file reduce.h
/// Element-wise reductions on the CPU, for every type; those of numbers with Google Highway's run-time dispatch.
/// All functions are pure, thread-safe, allocate nothing and accept any alignment.
///
/// Bits: an element's result depends on its operands alone, not on where it lies in the range, on how the range is cut
/// into calls, or on the SIMD target. A result that is NaN is the canonical quiet one (positive, empty payload; of
/// 8-bit floats 0x7F).
#pragma once

#include <cstddef>
#include <cstring>

#include "runtime/include/flx.h"

namespace flx {

/// dst[i] = op(a[i], b[i]), i < count. `dst` may be exactly `a` or exactly `b`; other overlap is not allowed.
/// `FLX_AVG` adds. 8- and 16-bit floats are converted to f32, combined, and rounded to nearest even once; sums of 8-bit
/// floats that are infinite or beyond the largest number become that number.
void reduce_pair(flx_dtype_t dtype, flx_op_t op, void *dst, const void *a, const void *b, size_t count);

/// dst[i] = op(…op(op(s[0][i], s[1][i]), s[2][i])…, s[n-1][i]), then `finish` if `divisor` > 1 and op is FLX_AVG.
/// Order is exactly left to right. A single source that is not divided is copied as it is, NaNs included. Small floats
/// stay in f32 until one rounding at the end (after the division). `dst` may be exactly one of the sources. n ≥ 1.
/// `stream`: the result is not read soon, so stores may bypass the cache. `kept`: the result goes there as well, and
/// stays in the cache; it overlaps nothing else.
void reduce_many(flx_dtype_t dtype, flx_op_t op, void *dst, const void *const *sources, int n, size_t count,
                 int divisor, bool stream, void *kept = nullptr);

/// dst[i] /= divisor, as FLX_AVG does at the end (integers: towards zero).
void divide(flx_dtype_t dtype, void *dst, size_t count, int divisor);

/// memcpy with stores that bypass the cache, for results larger than it. Any alignment.
void copy_streaming(void *dst, const void *src, size_t bytes);

/// The same, or memcpy unless `stream`.
inline void copy_bytes(void *dst, const void *src, size_t bytes, bool stream) {
    if (stream)
        copy_streaming(dst, src, bytes);
    else
        std::memcpy(dst, src, bytes);
}

/// A rank's own block, from its input to its output: copy_streaming where it is large.
void copy_own(void *dst, const void *src, size_t bytes);

/// The SIMD target in use, e.g. "AVX3"; static storage.
const char *reduce_target();

}  // namespace flx
