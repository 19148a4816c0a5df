/// \file kernel_table.cuh
/// From a type and a reduction at run time to kernels.
#pragma once

#include "pipeline.cuh"
#include "small.cuh"

namespace flx::cuda {

template <typename T, typename Op>
Kernels kernels_for() {
    return {reinterpret_cast<const void *>(&exchange_kernel<T, Op>),
            reinterpret_cast<const void *>(&small_kernel<T, Op>), reinterpret_cast<const void *>(&local_kernel<T, Op>)};
}

template <typename T>
Kernels kernels_for(flx_op_t op) {
    switch (op) {
        case FLX_SUM:
        case FLX_AVG:
            return kernels_for<T, Sum>();
        case FLX_PROD:
            return kernels_for<T, Prod>();
        case FLX_MIN:
            return kernels_for<T, Min>();
        case FLX_MAX:
            return kernels_for<T, Max>();
    }
    return {};
}

}  // namespace flx::cuda
