#include "apps/flx_trainer/gemm.h"

#include <algorithm>

// Highway compiles the code between the marks once per instruction set and picks one when the program runs.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "apps/flx_trainer/gemm.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/aligned_allocator.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace flx::trainer {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The tile that a kernel keeps in registers is 6 rows × 2 vectors: 12 sums, enough to hide the latency of fused
// multiply-add on two ports, and with 2 loads and a broadcast it fits in 16 registers.
constexpr std::size_t kRows = 6;
// A packed block of a (96 × 256, 96 KiB) and one of b (256 × 256, 256 KiB) stay in the second-level cache together.
constexpr std::size_t kBlockM = 16 * kRows;
constexpr std::size_t kBlockN = 256;
constexpr std::size_t kBlockK = 256;

// Packs rows [i0, i0 + rows) × columns [k0, k0 + depth) of `a` in panels of kRows rows, each panel column by column.
void pack_a(const MatrixView &a, std::size_t i0, std::size_t rows, std::size_t k0, std::size_t depth, float *out) {
    for (std::size_t i = 0; i < rows; i += kRows, out += kRows * depth) {
        const std::size_t filled = std::min(kRows, rows - i);
        if (filled < kRows) {
            std::fill(out, out + kRows * depth, 0.0f);
        }
        if (a.transposed) {
            for (std::size_t p = 0; p < depth; ++p) {
                const float *from = a.data + (k0 + p) * a.stride + i0 + i;
                std::copy(from, from + filled, out + p * kRows);
            }
        } else {
            for (std::size_t r = 0; r < filled; ++r) {
                const float *from = a.data + (i0 + i + r) * a.stride + k0;
                for (std::size_t p = 0; p < depth; ++p) {
                    out[p * kRows + r] = from[p];
                }
            }
        }
    }
}

// Packs rows [k0, k0 + depth) × columns [j0, j0 + columns) of `b` in panels of `width` columns, each row by row.
void pack_b(const MatrixView &b, std::size_t k0, std::size_t depth, std::size_t j0, std::size_t columns,
            std::size_t width, float *out) {
    for (std::size_t j = 0; j < columns; j += width, out += width * depth) {
        const std::size_t filled = std::min(width, columns - j);
        if (filled < width) {
            std::fill(out, out + width * depth, 0.0f);
        }
        if (b.transposed) {
            for (std::size_t q = 0; q < filled; ++q) {
                const float *from = b.data + (j0 + j + q) * b.stride + k0;
                for (std::size_t p = 0; p < depth; ++p) {
                    out[p * width + q] = from[p];
                }
            }
        } else {
            for (std::size_t p = 0; p < depth; ++p) {
                const float *from = b.data + (k0 + p) * b.stride + j0 + j;
                std::copy(from, from + filled, out + p * width);
            }
        }
    }
}

// One row of the tile into memory, on top of what earlier blocks of k left there.
template <class V>
HWY_INLINE void put_row(V left, V right, float *to, bool add) {
    const hn::ScalableTag<float> d;
    const std::size_t lanes = hn::Lanes(d);
    if (add) {
        left = hn::Add(hn::LoadU(d, to), left);
        right = hn::Add(hn::LoadU(d, to + lanes), right);
    }
    hn::StoreU(left, d, to);
    hn::StoreU(right, d, to + lanes);
}

// kRows × 2 vectors of c from a panel of a and a panel of b. Sums are named, not an array, so that scalable vectors
// (SVE) compile too.
void kernel(std::size_t depth, const float *HWY_RESTRICT a, const float *HWY_RESTRICT b, float *c, std::size_t stride,
            bool add) {
    const hn::ScalableTag<float> d;
    const std::size_t lanes = hn::Lanes(d);
    auto s00 = hn::Zero(d), s01 = s00, s10 = s00, s11 = s00, s20 = s00, s21 = s00;
    auto s30 = s00, s31 = s00, s40 = s00, s41 = s00, s50 = s00, s51 = s00;
    for (std::size_t p = 0; p < depth; ++p, a += kRows, b += 2 * lanes) {
        const auto b0 = hn::LoadU(d, b);
        const auto b1 = hn::LoadU(d, b + lanes);
        auto x = hn::Set(d, a[0]);
        s00 = hn::MulAdd(x, b0, s00);
        s01 = hn::MulAdd(x, b1, s01);
        x = hn::Set(d, a[1]);
        s10 = hn::MulAdd(x, b0, s10);
        s11 = hn::MulAdd(x, b1, s11);
        x = hn::Set(d, a[2]);
        s20 = hn::MulAdd(x, b0, s20);
        s21 = hn::MulAdd(x, b1, s21);
        x = hn::Set(d, a[3]);
        s30 = hn::MulAdd(x, b0, s30);
        s31 = hn::MulAdd(x, b1, s31);
        x = hn::Set(d, a[4]);
        s40 = hn::MulAdd(x, b0, s40);
        s41 = hn::MulAdd(x, b1, s41);
        x = hn::Set(d, a[5]);
        s50 = hn::MulAdd(x, b0, s50);
        s51 = hn::MulAdd(x, b1, s51);
    }
    put_row(s00, s01, c, add);
    put_row(s10, s11, c + stride, add);
    put_row(s20, s21, c + 2 * stride, add);
    put_row(s30, s31, c + 3 * stride, add);
    put_row(s40, s41, c + 4 * stride, add);
    put_row(s50, s51, c + 5 * stride, add);
}

struct Workspace {
    hwy::AlignedFreeUniquePtr<float[]> a, b, edge;
};

void multiply(std::size_t m, std::size_t n, std::size_t k, const MatrixView &a, const MatrixView &b, float *c,
              std::size_t c_stride) {
    const std::size_t width = 2 * hn::Lanes(hn::ScalableTag<float>());
    const std::size_t block_n = std::max(kBlockN / width, std::size_t{1}) * width;
    thread_local Workspace work;
    if (!work.a) {
        work.a = hwy::AllocateAligned<float>(kBlockM * kBlockK);
        work.b = hwy::AllocateAligned<float>(kBlockK * block_n);
        work.edge = hwy::AllocateAligned<float>(kRows * width);
    }
    for (std::size_t j0 = 0; j0 < n; j0 += block_n) {
        const std::size_t columns = std::min(block_n, n - j0);
        for (std::size_t k0 = 0; k0 < k; k0 += kBlockK) {
            const std::size_t depth = std::min(kBlockK, k - k0);
            const bool add = k0 > 0;
            pack_b(b, k0, depth, j0, columns, width, work.b.get());
            for (std::size_t i0 = 0; i0 < m; i0 += kBlockM) {
                const std::size_t rows = std::min(kBlockM, m - i0);
                pack_a(a, i0, rows, k0, depth, work.a.get());
                for (std::size_t j = 0; j < columns; j += width) {
                    const float *panel_b = work.b.get() + j * depth;
                    const std::size_t tile_columns = std::min(width, columns - j);
                    for (std::size_t i = 0; i < rows; i += kRows) {
                        const float *panel_a = work.a.get() + i * depth;
                        const std::size_t tile_rows = std::min(kRows, rows - i);
                        float *tile = c + (i0 + i) * c_stride + j0 + j;
                        if (tile_rows == kRows && tile_columns == width) {
                            kernel(depth, panel_a, panel_b, tile, c_stride, add);
                            continue;
                        }
                        kernel(depth, panel_a, panel_b, work.edge.get(), width, false);
                        for (std::size_t r = 0; r < tile_rows; ++r) {
                            for (std::size_t q = 0; q < tile_columns; ++q) {
                                const float sum = work.edge[r * width + q];
                                float &to = tile[r * c_stride + q];
                                to = add ? to + sum : sum;
                            }
                        }
                    }
                }
            }
        }
    }
}

}  // namespace HWY_NAMESPACE
}  // namespace flx::trainer
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace flx::trainer {

HWY_EXPORT(multiply);

void gemm(std::size_t m, std::size_t n, std::size_t k, const MatrixView &a, const MatrixView &b, float *c,
          std::size_t c_stride) {
    if (k == 0) {
        for (std::size_t i = 0; i < m; ++i) {
            std::fill(c + i * c_stride, c + i * c_stride + n, 0.0f);
        }
        return;
    }
    HWY_DYNAMIC_DISPATCH(multiply)(m, n, k, a, b, c, c_stride);
}

}  // namespace flx::trainer
#endif
