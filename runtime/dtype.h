/// \file dtype.h
/// Element types and reductions: sizes, names, and whether a value of the C enum is one of them.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "flx.h"

namespace flx {

inline constexpr int kDtypes = FLX_F64 + 1;
inline constexpr int kOps = FLX_AVG + 1;

[[nodiscard]] bool valid(flx_dtype_t dtype);
[[nodiscard]] bool valid(flx_op_t op);
/// Bytes of one element. `dtype` is valid.
[[nodiscard]] size_t size_of(flx_dtype_t dtype);
/// `i8 u8 i16 u16 i32 u32 i64 u64 f16 bf16 f32 f64`.
[[nodiscard]] std::string_view name_of(flx_dtype_t dtype);
/// `sum prod min max avg`.
[[nodiscard]] std::string_view name_of(flx_op_t op);
[[nodiscard]] std::optional<flx_dtype_t> parse_dtype(std::string_view name);
[[nodiscard]] std::optional<flx_op_t> parse_op(std::string_view name);

}  // namespace flx
