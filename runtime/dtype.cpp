#include "dtype.h"

#include <array>
#include <cstdint>

#include "custom.h"

namespace flx {
namespace {

struct DtypeInfo {
    std::string_view name;
    size_t size;
};

/// Indexed by flx_dtype_t.
constexpr std::array<DtypeInfo, kAllDtypes> kDtypeInfo{
    {{"i8", 1},       {"u8", 1},      {"i16", 2},     {"u16", 2},      {"i32", 4},     {"u32", 4},
     {"i64", 8},      {"u64", 8},     {"f16", 2},     {"bf16", 2},     {"f32", 4},     {"f64", 8},
     {"cf32", 8},     {"cf64", 16},   {"f32_i32", 8}, {"f64_i32", 16}, {"i16_i32", 8}, {"i32_i32", 8},
     {"i64_i32", 16}, {"f32_f32", 8}, {"f64_f64", 16}}};

/// Indexed by flx_op_t.
constexpr std::array<std::string_view, kAllOps> kOpNames{"sum",  "prod", "min", "max",  "avg",    "land",  "lor",
                                                         "lxor", "band", "bor", "bxor", "minloc", "maxloc"};
constexpr uint64_t kCustom = uint64_t{1} << 32;

}  // namespace

// The enum may hold any int that a C program passed, so it is compared as a number.
bool valid(flx_dtype_t dtype) {
    return static_cast<unsigned>(dtype) < static_cast<unsigned>(kAllDtypes) || find_dtype(dtype) != 0;
}

bool valid(flx_op_t op) {
    return static_cast<unsigned>(op) < static_cast<unsigned>(kAllOps) || find_op(op) != nullptr;
}

bool fits(flx_op_t op, flx_dtype_t dtype) {
    if (is_custom(op))
        return !scales(op) || custom_op(op).dtype == dtype;
    const bool integer = dtype <= FLX_UINT64;
    const bool real = dtype < kDtypes;
    const bool complex = dtype == FLX_COMPLEX_F32 || dtype == FLX_COMPLEX_F64;
    if (op == FLX_SUM || op == FLX_PROD || op == FLX_AVG)
        return real || complex;
    if (op == FLX_MIN || op == FLX_MAX)
        return real;
    if (op == FLX_MINLOC || op == FLX_MAXLOC)
        return dtype >= FLX_F32_INT32 && !is_custom(dtype);
    return integer;
}

bool commutes(flx_op_t op) {
    return !is_custom(op) || custom_op(op).commutative;
}

bool scales(flx_op_t op) {
    return is_custom(op) && custom_op(op).function == nullptr;
}

uint64_t agreed(flx_dtype_t dtype) {
    return is_custom(dtype) ? kCustom + custom_size(dtype) : static_cast<uint64_t>(dtype);
}

uint64_t agreed(flx_op_t op) {
    if (!is_custom(op))
        return static_cast<uint64_t>(op);
    return kCustom + (scales(op) ? 2 : 0) + (commutes(op) ? 1 : 0);
}

size_t size_of(flx_dtype_t dtype) {
    return is_custom(dtype) ? custom_size(dtype) : kDtypeInfo[dtype].size;
}

std::string_view name_of(flx_dtype_t dtype) {
    return is_custom(dtype) ? "custom" : kDtypeInfo[dtype].name;
}

std::string_view name_of(flx_op_t op) {
    return is_custom(op) ? "custom" : kOpNames[op];
}

std::optional<flx_dtype_t> parse_dtype(std::string_view name) {
    for (int i = 0; i < kAllDtypes; ++i) {
        if (kDtypeInfo[i].name == name)
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
