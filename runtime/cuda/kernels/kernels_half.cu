#include "runtime/cuda/kernels/kernel_table.cuh"

namespace flx::cuda {

Kernels half_kernels(flx_dtype_t dtype, flx_op_t op) {
    return dtype == FLX_F16 ? kernels_for<__half>(op) : kernels_for<__nv_bfloat16>(op);
}

}  // namespace flx::cuda
