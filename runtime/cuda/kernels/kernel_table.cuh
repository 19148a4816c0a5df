/// \file kernel_table.cuh
/// From a type and a reduction at run time to kernels.
#pragma once

#include "runtime/cuda/kernels/anywhere.cuh"
#include "runtime/cuda/kernels/bulk.cuh"
#include "runtime/cuda/kernels/lines.cuh"
#include "runtime/cuda/kernels/packets.cuh"
#include "runtime/cuda/kernels/pipeline.cuh"

namespace flx::cuda {

template <typename T, typename Op>
Kernels kernels_for() {
    return {reinterpret_cast<const void *>(&exchange_kernel<T, Op>),
            reinterpret_cast<const void *>(&exchange_anywhere_kernel<T, Op>),
            reinterpret_cast<const void *>(&packets_kernel<T, Op>),
            reinterpret_cast<const void *>(&lines_kernel<T, Op>),
            reinterpret_cast<const void *>(&local_kernel<T, Op>),
            reinterpret_cast<const void *>(&bulk_kernel<T, Op>)};
}

template <typename T>
Kernels kernels_for(flx_op_t op) {
    return op == FLX_SUM || op == FLX_AVG ? kernels_for<T, Sum>() : kernels_for<T, NotSum>();
}

}  // namespace flx::cuda
