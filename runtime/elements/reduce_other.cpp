#include "runtime/elements/reduce_other.h"

#include <algorithm>
#include <cassert>
#include <complex>
#include <cstdint>
#include <cstring>

#include "runtime/base/scratch.h"
#include "runtime/elements/custom.h"
#include "runtime/elements/dtype.h"

namespace flx {
namespace {

/// A pair as C lays it out; what the compiler pads is copied with the rest.
template <typename Value, typename Index>
struct Located {
    Value value;
    Index index;
};

template <typename T, typename Combine>
void each(void *dst, const void *a, const void *b, size_t count, Combine &&combine) {
    for (size_t i = 0; i < count; ++i) {
        T left;
        T right;
        std::memcpy(&left, static_cast<const std::byte *>(a) + i * sizeof(T), sizeof(T));
        std::memcpy(&right, static_cast<const std::byte *>(b) + i * sizeof(T), sizeof(T));
        const T result = combine(left, right);
        std::memcpy(static_cast<std::byte *>(dst) + i * sizeof(T), &result, sizeof(T));
    }
}

template <typename T>
void integers(flx_op_t op, void *dst, const void *a, const void *b, size_t count) {
    const auto run = [&](auto combine) { each<T>(dst, a, b, count, combine); };
    switch (op) {
        case FLX_LAND:
            return run([](T x, T y) { return static_cast<T>(x != 0 && y != 0); });
        case FLX_LOR:
            return run([](T x, T y) { return static_cast<T>(x != 0 || y != 0); });
        case FLX_LXOR:
            return run([](T x, T y) { return static_cast<T>((x != 0) != (y != 0)); });
        case FLX_BAND:
            return run([](T x, T y) { return static_cast<T>(x & y); });
        case FLX_BOR:
            return run([](T x, T y) { return static_cast<T>(x | y); });
        case FLX_BXOR:
            return run([](T x, T y) { return static_cast<T>(x ^ y); });
        default:
            assert(false && "fits() let it pass");
    }
}

/// The naive formula: what compilers do without regard to infinities, and in the same order everywhere.
template <typename T>
void products(void *dst, const void *a, const void *b, size_t count) {
    each<std::complex<T>>(dst, a, b, count, [](std::complex<T> x, std::complex<T> y) {
        return std::complex<T>(x.real() * y.real() - x.imag() * y.imag(), x.real() * y.imag() + x.imag() * y.real());
    });
}

template <typename Value, typename Index>
void located(flx_op_t op, void *dst, const void *a, const void *b, size_t count) {
    using Pair = Located<Value, Index>;
    each<Pair>(dst, a, b, count, [op](const Pair &x, const Pair &y) {
        if (x.value == y.value)
            return x.index <= y.index ? x : y;
        const bool first = op == FLX_MINLOC ? x.value < y.value : x.value > y.value;
        return first ? x : y;
    });
}

/// The program's function, on memory that is aligned as elements of this size can be, in runs that fit into a buffer:
/// it writes over its second operand, and neither operand may be written here unless it is `dst`.
void by_function(const CustomOp &custom, flx_dtype_t dtype, void *dst, const void *a, const void *b, size_t count) {
    constexpr size_t kBuffer = 16384;
    struct Operands;
    std::byte *const first = scratch<Operands, 2 * kBuffer>();
    std::byte *const second = first + kBuffer;
    const size_t size = size_of(dtype);
    const size_t run = kBuffer / size;
    const auto *left = static_cast<const std::byte *>(a);
    const auto *right = static_cast<const std::byte *>(b);
    auto *to = static_cast<std::byte *>(dst);
    for (size_t at = 0; at < count; at += run) {
        const size_t here = std::min(run, count - at);
        std::memcpy(first, left + at * size, here * size);
        std::memcpy(second, right + at * size, here * size);
        custom.function(first, second, here, dtype, custom.arg);
        std::memcpy(to + at * size, second, here * size);
    }
}

}  // namespace

void reduce_other(flx_dtype_t dtype, flx_op_t op, void *dst, const void *a, const void *b, size_t count) {
    if (is_custom(op))
        return by_function(custom_op(op), dtype, dst, a, b, count);
    switch (dtype) {
        case FLX_INT8:
        case FLX_UINT8:
            return integers<uint8_t>(op, dst, a, b, count);
        case FLX_INT16:
        case FLX_UINT16:
            return integers<uint16_t>(op, dst, a, b, count);
        case FLX_INT32:
        case FLX_UINT32:
            return integers<uint32_t>(op, dst, a, b, count);
        case FLX_INT64:
        case FLX_UINT64:
            return integers<uint64_t>(op, dst, a, b, count);
        case FLX_COMPLEX_F32:
            return products<float>(dst, a, b, count);
        case FLX_COMPLEX_F64:
            return products<double>(dst, a, b, count);
        case FLX_F32_INT32:
            return located<float, int32_t>(op, dst, a, b, count);
        case FLX_F64_INT32:
            return located<double, int32_t>(op, dst, a, b, count);
        case FLX_INT16_INT32:
            return located<int16_t, int32_t>(op, dst, a, b, count);
        case FLX_INT32_INT32:
            return located<int32_t, int32_t>(op, dst, a, b, count);
        case FLX_INT64_INT32:
            return located<int64_t, int32_t>(op, dst, a, b, count);
        case FLX_F32_F32:
            return located<float, float>(op, dst, a, b, count);
        case FLX_F64_F64:
            return located<double, double>(op, dst, a, b, count);
        default:
            assert(false && "fits() let it pass");
    }
}

}  // namespace flx
