#include "runtime/cuda/kernels/kernel_table.cuh"

namespace flx::cuda {

Kernels integer_kernels(flx_dtype_t dtype, flx_op_t op) {
    switch (dtype) {
        case FLX_INT8:
            return kernels_for<int8_t>(op);
        case FLX_UINT8:
            return kernels_for<uint8_t>(op);
        case FLX_INT16:
            return kernels_for<int16_t>(op);
        case FLX_UINT16:
            return kernels_for<uint16_t>(op);
        default:
            return {};
    }
}

}  // namespace flx::cuda
