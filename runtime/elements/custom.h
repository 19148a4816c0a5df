/// \file custom.h
/// Element types and reductions that a program made (flx_dtype_create, flx_op_create). Of the process. Thread-safe;
/// what is looked up takes no lock.
///
/// A handle that was freed is no longer valid for new calls; what stands behind it stays for operations under way,
/// until tens of thousands of others were made after it.
#pragma once

#include <array>
#include <cstddef>

#include "runtime/include/flx.h"

namespace flx {

class Status;  // kernels' sources see this header, and nvcc does not read fmt's

/// A reduction of the program's own.
struct CustomOp {
    flx_reduce_function_t function = nullptr;  ///< null: a scaled sum
    void *arg = nullptr;
    bool commutative = true;
    flx_dtype_t dtype = FLX_F32;                     ///< scaled sum: its type
    alignas(16) std::array<std::byte, 16> factor{};  ///< scaled sum: an element of it
};

Status create_op(const CustomOp &op, flx_op_t &handle);
Status create_dtype(size_t bytes, flx_dtype_t &handle);
/// FLX_ERR_ARGUMENT if it is no handle of a program's own.
Status free_op(flx_op_t handle);
Status free_dtype(flx_dtype_t handle);

/// Null if `handle` is none, or was freed.
const CustomOp *find_op(flx_op_t handle);
/// Any reduction that an operation under way has, also one that was freed since.
const CustomOp &custom_op(flx_op_t handle);
/// Bytes of an element, 0 if `handle` is none or was freed.
size_t find_dtype(flx_dtype_t handle);
size_t custom_size(flx_dtype_t handle);

/// out[i] = factor · in[i]
void scale(const CustomOp &op, void *out, const void *in, size_t count);

}  // namespace flx
