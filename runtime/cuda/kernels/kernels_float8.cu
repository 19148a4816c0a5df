#include "runtime/cuda/kernels/kernel_table.cuh"

namespace flx::cuda {
namespace {

/// Minima and maxima alone: what asks for products too (NotSum) computes them, of four times as many elements a byte
/// as those of f32.
struct Extremes {
    explicit __device__ Extremes(int op) : less_(op == FLX_MIN) {}
    __device__ __forceinline__ float apply(float a, float b) const { return extreme(a, b, less_); }

  private:
    bool less_;
};

template <__nv_fp8_interpretation_t kFormat>
Kernels kernels_of_format(flx_op_t op) {
    return op == FLX_SUM || op == FLX_AVG ? kernels_for<Float8<kFormat, true>, Sum>()
                                          : kernels_for<Float8<kFormat, false>, Extremes>();
}

}  // namespace

Kernels float8_kernels(flx_dtype_t dtype, flx_op_t op) {
    return dtype == FLX_F8E4M3 ? kernels_of_format<__NV_E4M3>(op) : kernels_of_format<__NV_E5M2>(op);
}

}  // namespace flx::cuda
