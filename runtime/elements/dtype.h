/// \file dtype.h
/// Element types and reductions: sizes, names, and whether a value of the C enum is one of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "runtime/elements/custom.h"
#include "runtime/include/flx.h"

namespace flx {

/// Numbers but for 8-bit floats, which the enum has last, and the reductions of all of them.
inline constexpr int kDtypes = FLX_F64 + 1;
inline constexpr int kOps = FLX_AVG + 1;
/// All types and reductions of the enums. Other values may be handles of the program's own (custom.h).
inline constexpr int kAllDtypes = FLX_F8E5M2 + 1;
inline constexpr int kAllOps = FLX_MAXLOC + 1;

/// Bytes of each element type.
inline constexpr std::array<uint8_t, kAllDtypes> kDtypeBytes{1, 1,  2, 2,  4, 4, 8,  8, 2,  2, 4, 8,
                                                             8, 16, 8, 16, 8, 8, 16, 8, 16, 1, 1};

// The enum may hold any int that a C program passed, so it is compared as a number.
[[nodiscard]] inline bool valid(flx_dtype_t dtype) {
    return static_cast<unsigned>(dtype) < static_cast<unsigned>(kAllDtypes) || find_dtype(dtype) != 0;
}
[[nodiscard]] inline bool valid(flx_op_t op) {
    return static_cast<unsigned>(op) < static_cast<unsigned>(kAllOps) || find_op(op) != nullptr;
}
[[nodiscard]] constexpr bool is_custom(flx_dtype_t dtype) {
    return static_cast<int>(dtype) >= kAllDtypes;
}
[[nodiscard]] constexpr bool is_custom(flx_op_t op) {
    return static_cast<int>(op) >= kAllOps;
}
[[nodiscard]] constexpr bool is_float8(flx_dtype_t dtype) {
    return dtype == FLX_F8E4M3 || dtype == FLX_F8E5M2;
}
/// Whether the reduction of the type, which it goes with, has a SIMD kernel and a form for GPU memory.
[[nodiscard]] constexpr bool has_kernel(flx_dtype_t dtype, flx_op_t op) {
    return (dtype < kDtypes || is_float8(dtype)) && op < kOps;
}
/// Whether the reduction goes with the type, both being valid.
[[nodiscard]] bool fits(flx_op_t op, flx_dtype_t dtype);
/// Whether ranks may combine in any order.
[[nodiscard]] inline bool commutes(flx_op_t op) {
    return !is_custom(op) || custom_op(op).commutative;
}
/// Whether it is a sum of scaled inputs.
[[nodiscard]] inline bool scales(flx_op_t op) {
    return is_custom(op) && custom_op(op).function == nullptr;
}
/// What must be equal on all ranks: handles of the program's own differ between processes.
[[nodiscard]] inline uint64_t agreed(flx_dtype_t dtype) {
    constexpr uint64_t kCustom = uint64_t{1} << 32;
    return is_custom(dtype) ? kCustom + custom_size(dtype) : static_cast<uint64_t>(dtype);
}
[[nodiscard]] inline uint64_t agreed(flx_op_t op) {
    constexpr uint64_t kCustom = uint64_t{1} << 32;
    if (!is_custom(op))
        return static_cast<uint64_t>(op);
    return kCustom + (scales(op) ? 2 : 0) + (commutes(op) ? 1 : 0);
}

/// Bytes of one element. `dtype` is valid.
[[nodiscard]] inline size_t size_of(flx_dtype_t dtype) {
    return is_custom(dtype) ? custom_size(dtype) : kDtypeBytes[static_cast<size_t>(dtype)];
}
/// `i8 u8 i16 u16 i32 u32 i64 u64 f16 bf16 f32 f64 f8e4m3 f8e5m2`, `cf32 cf64` (complex), pairs as `f32_i32`; `custom`.
[[nodiscard]] std::string_view name_of(flx_dtype_t dtype);
/// `sum prod min max avg land lor lxor band bor bxor minloc maxloc`; `custom`.
[[nodiscard]] std::string_view name_of(flx_op_t op);
[[nodiscard]] std::optional<flx_dtype_t> parse_dtype(std::string_view name);
[[nodiscard]] std::optional<flx_op_t> parse_op(std::string_view name);

}  // namespace flx
