#include "runtime/cuda/kernels/kernel_table.cuh"

namespace flx::cuda {

Kernels wide_integer_kernels(flx_dtype_t dtype, flx_op_t op) {
    switch (dtype) {
        case FLX_INT32:
            return kernels_for<int32_t>(op);
        case FLX_UINT32:
            return kernels_for<uint32_t>(op);
        case FLX_INT64:
            return kernels_for<int64_t>(op);
        case FLX_UINT64:
            return kernels_for<uint64_t>(op);
        default:
            return {};
    }
}

}  // namespace flx::cuda
