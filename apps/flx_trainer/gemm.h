/// \file gemm.h
/// Product of dense f32 matrices, for the network's layers.
#pragma once

#include <cstddef>

namespace flx::trainer {

/// A row-major matrix as a product reads it: element (i, j) is `data[i * stride + j]`, or `data[j * stride + i]` where
/// `transposed`. `stride` counts elements of the stored matrix's row.
struct MatrixView {
    const float *data;
    std::size_t stride;
    bool transposed = false;
};

/// c (m × n, row-major, `c_stride` elements a row) = a (m × k) · b (k × n). `c` must not overlap `a` or `b`; k = 0
/// gives zeros. Every element is summed over k in ascending order, whatever m, n and the vector width are: the product
/// of one row has the same bits in any batch. Thread safe; each thread keeps its packing buffers.
///
/// Blocked and packed after Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34(3).
void gemm(std::size_t m, std::size_t n, std::size_t k, const MatrixView &a, const MatrixView &b, float *c,
          std::size_t c_stride);

}  // namespace flx::trainer
