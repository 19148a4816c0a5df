#include "runtime/elements/dtype.h"

#include <array>

namespace flx {
namespace {

/// Indexed by flx_dtype_t.
constexpr std::array<std::string_view, kAllDtypes> kDtypeNames{
    "i8",      "u8",      "i16",     "u16",     "i32",     "u32",    "i64",     "u64",
    "f16",     "bf16",    "f32",     "f64",     "cf32",    "cf64",   "f32_i32", "f64_i32",
    "i16_i32", "i32_i32", "i64_i32", "f32_f32", "f64_f64", "f8e4m3", "f8e5m2"};

/// Indexed by flx_op_t.
constexpr std::array<std::string_view, kAllOps> kOpNames{"sum",  "prod", "min", "max",  "avg",    "land",  "lor",
                                                         "lxor", "band", "bor", "bxor", "minloc", "maxloc"};

}  // namespace

bool fits(flx_op_t op, flx_dtype_t dtype) {
    if (is_custom(op))
        return !scales(op) || custom_op(op).dtype == dtype;
    if (is_float8(dtype))
        return op < kOps && op != FLX_PROD;
    const bool integer = dtype <= FLX_UINT64;
    const bool real = dtype < kDtypes;
    const bool complex = dtype == FLX_COMPLEX_F32 || dtype == FLX_COMPLEX_F64;
    if (op == FLX_SUM || op == FLX_PROD || op == FLX_AVG)
        return real || complex;
    if (op == FLX_MIN || op == FLX_MAX)
        return real;
    if (op == FLX_MINLOC || op == FLX_MAXLOC)
        return dtype >= FLX_F32_INT32 && dtype <= FLX_F64_F64;
    return op >= FLX_LAND && op <= FLX_BXOR && integer;
}

std::string_view name_of(flx_dtype_t dtype) {
    return is_custom(dtype) ? "custom" : kDtypeNames[dtype];
}

std::string_view name_of(flx_op_t op) {
    return is_custom(op) ? "custom" : kOpNames[op];
}

std::optional<flx_dtype_t> parse_dtype(std::string_view name) {
    for (int i = 0; i < kAllDtypes; ++i) {
        if (kDtypeNames[i] == name)
            return static_cast<flx_dtype_t>(i);
    }
    return std::nullopt;
}

std::optional<flx_op_t> parse_op(std::string_view name) {
    for (int i = 0; i < kAllOps; ++i) {
        if (kOpNames[i] == name)
            return static_cast<flx_op_t>(i);
    }
    return std::nullopt;
}

}  // namespace flx
