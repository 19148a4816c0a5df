/// \file reduce_targets.h
/// The SIMD targets that reductions are compiled for. To be included before any header of Highway's.
#pragma once

// Kernels keep vectors in structs, which sizeless vectors (SVE, RVV) do not allow; on those machines the next target is
// taken. AVX3_DL adds compile time and no speed over AVX3; processors with SSE alone are of before 2013.
#define HWY_DISABLED_TARGETS \
    (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_EMU128)
