#include "dtype.h"

#include <array>
#include <cstdint>

namespace flx {
namespace {

struct DtypeInfo {
    std::string_view name;
    size_t size;
};

/// Indexed by flx_dtype_t.
constexpr std::array<DtypeInfo, kDtypes> kDtypeInfo{{{"i8", 1},
                                                     {"u8", 1},
                                                     {"i16", 2},
                                                     {"u16", 2},
                                                     {"i32", 4},
                                                     {"u32", 4},
                                                     {"i64", 8},
                                                     {"u64", 8},
                                                     {"f16", 2},
                                                     {"bf16", 2},
                                                     {"f32", 4},
                                                     {"f64", 8}}};

/// Indexed by flx_op_t.
constexpr std::array<std::string_view, kOps> kOpNames{"sum", "prod", "min", "max", "avg"};

}  // namespace

// The enum may hold any int that a C program passed, so it is compared as a number.
bool valid(flx_dtype_t dtype) {
    return static_cast<unsigned>(dtype) < static_cast<unsigned>(kDtypes);
}

bool valid(flx_op_t op) {
    return static_cast<unsigned>(op) < static_cast<unsigned>(kOps);
}

size_t size_of(flx_dtype_t dtype) {
    return kDtypeInfo[dtype].size;
}

std::string_view name_of(flx_dtype_t dtype) {
    return kDtypeInfo[dtype].name;
}

std::string_view name_of(flx_op_t op) {
    return kOpNames[op];
}

std::optional<flx_dtype_t> parse_dtype(std::string_view name) {
    for (int i = 0; i < kDtypes; ++i) {
        if (kDtypeInfo[i].name == name)
            return static_cast<flx_dtype_t>(i);
    }
    return std::nullopt;
}

std::optional<flx_op_t> parse_op(std::string_view name) {
    for (int i = 0; i < kOps; ++i) {
        if (kOpNames[i] == name)
            return static_cast<flx_op_t>(i);
    }
    return std::nullopt;
}

}  // namespace flx
