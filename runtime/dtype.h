/// \file dtype.h
/// Element types and reductions: sizes, names, and whether a value of the C enum is one of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "flx.h"

namespace flx {

/// Numbers, and the reductions of all of them: what has SIMD kernels and a form for GPU memory.
inline constexpr int kDtypes = FLX_F64 + 1;
inline constexpr int kOps = FLX_AVG + 1;
/// With those that exist besides. What is no name of the enums may be a handle of the program's own (custom.h).
inline constexpr int kAllDtypes = FLX_F64_F64 + 1;
inline constexpr int kAllOps = FLX_MAXLOC + 1;

[[nodiscard]] bool valid(flx_dtype_t dtype);
[[nodiscard]] bool valid(flx_op_t op);
[[nodiscard]] constexpr bool is_custom(flx_dtype_t dtype) {
    return static_cast<int>(dtype) >= kAllDtypes;
}
[[nodiscard]] constexpr bool is_custom(flx_op_t op) {
    return static_cast<int>(op) >= kAllOps;
}
/// Whether the reduction goes with the type, both being valid.
[[nodiscard]] bool fits(flx_op_t op, flx_dtype_t dtype);
/// Whether ranks may combine in any order.
[[nodiscard]] bool commutes(flx_op_t op);
/// Whether it is a sum of scaled inputs.
[[nodiscard]] bool scales(flx_op_t op);
/// What must be equal on all ranks: handles of the program's own differ between processes.
[[nodiscard]] uint64_t agreed(flx_dtype_t dtype);
[[nodiscard]] uint64_t agreed(flx_op_t op);

/// Bytes of one element. `dtype` is valid.
[[nodiscard]] size_t size_of(flx_dtype_t dtype);
/// `i8 u8 i16 u16 i32 u32 i64 u64 f16 bf16 f32 f64`, `cf32 cf64` (complex), pairs as `f32_i32`; `custom`.
[[nodiscard]] std::string_view name_of(flx_dtype_t dtype);
/// `sum prod min max avg land lor lxor band bor bxor minloc maxloc`; `custom`.
[[nodiscard]] std::string_view name_of(flx_op_t op);
[[nodiscard]] std::optional<flx_dtype_t> parse_dtype(std::string_view name);
[[nodiscard]] std::optional<flx_op_t> parse_op(std::string_view name);

}  // namespace flx
