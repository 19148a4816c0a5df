#include "runtime/cuda/kernels/kernel_table.cuh"

namespace flx::cuda {

Kernels float_kernels(flx_dtype_t dtype, flx_op_t op) {
    return dtype == FLX_F32 ? kernels_for<float>(op) : kernels_for<double>(op);
}

}  // namespace flx::cuda
