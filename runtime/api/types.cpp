/// The public functions for types and reductions of the program's own.
#include <cstring>

#include "runtime/api/api.h"
#include "runtime/elements/custom.h"

using flx::CustomOp;
using flx::fail;
using flx::Fault;
using flx::Status;
using namespace flx::api;

flx_status_t flx_op_create(flx_reduce_function_t function, void *arg, int commutative, flx_op_t *op) {
    return guarded([&]() -> Status {
        FLX_TRY(need(reinterpret_cast<const void *>(function), "function"));
        FLX_TRY(need(op, "op"));
        CustomOp custom;
        custom.function = function;
        custom.arg = arg;
        custom.commutative = commutative != 0;
        return flx::create_op(custom, *op);
    });
}

flx_status_t flx_op_create_scaled_sum(const void *factor, flx_dtype_t dtype, flx_op_t *op) {
    return guarded([&]() -> Status {
        FLX_TRY(need(factor, "factor"));
        FLX_TRY(need(op, "op"));
        if (dtype < FLX_F16 || dtype > FLX_COMPLEX_F64)
            return fail(Fault::op_not_for_dtype,
                        "a scaled sum of dtype {}; FLX_F16 ({}) to FLX_COMPLEX_F64 ({}) are allowed",
                        flx::valid(dtype) ? std::string(flx::name_of(dtype)) : std::to_string(dtype),
                        static_cast<int>(FLX_F16), static_cast<int>(FLX_COMPLEX_F64));
        CustomOp custom;
        custom.dtype = dtype;
        std::memcpy(custom.factor.data(), factor, flx::size_of(dtype));
        return flx::create_op(custom, *op);
    });
}

flx_status_t flx_op_free(flx_op_t *op) {
    return guarded([&]() -> Status {
        FLX_TRY(need(op, "op"));
        FLX_TRY(flx::free_op(*op));
        *op = static_cast<flx_op_t>(-1);
        return {};
    });
}

flx_status_t flx_dtype_create(size_t bytes, flx_dtype_t *dtype) {
    return guarded([&]() -> Status {
        FLX_TRY(need(dtype, "dtype"));
        return flx::create_dtype(bytes, *dtype);
    });
}

flx_status_t flx_dtype_free(flx_dtype_t *dtype) {
    return guarded([&]() -> Status {
        FLX_TRY(need(dtype, "dtype"));
        FLX_TRY(flx::free_dtype(*dtype));
        *dtype = static_cast<flx_dtype_t>(-1);
        return {};
    });
}

flx_status_t flx_dtype_size(flx_dtype_t dtype, size_t *bytes) {
    return guarded([&]() -> Status {
        FLX_TRY(need(bytes, "bytes"));
        FLX_TRY(check_dtype(dtype));
        *bytes = flx::size_of(dtype);
        return {};
    });
}
