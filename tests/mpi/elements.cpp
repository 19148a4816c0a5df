#include "tests/mpi/elements.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "tests/mpi/harness.h"

namespace flx::test {
namespace {

template <typename T>
void put(T value, std::byte *to) {
    std::memcpy(to, &value, sizeof value);
}

template <typename T>
T get(const std::byte *from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

template <typename A, typename B>
struct Two {
    A a;
    B b;
};

/// Calls `body` with a null pointer to the C type.
template <typename Body>
void on_type(flx_dtype_t dtype, Body &&body) {
    switch (dtype) {
        case FLX_INT8:
            return body(static_cast<int8_t *>(nullptr));
        case FLX_UINT8:
            return body(static_cast<uint8_t *>(nullptr));
        case FLX_INT16:
            return body(static_cast<int16_t *>(nullptr));
        case FLX_UINT16:
            return body(static_cast<uint16_t *>(nullptr));
        case FLX_INT32:
            return body(static_cast<int32_t *>(nullptr));
        case FLX_UINT32:
            return body(static_cast<uint32_t *>(nullptr));
        case FLX_INT64:
            return body(static_cast<int64_t *>(nullptr));
        case FLX_UINT64:
            return body(static_cast<uint64_t *>(nullptr));
        case FLX_F16:
            return body(static_cast<_Float16 *>(nullptr));
        case FLX_F32:
            return body(static_cast<float *>(nullptr));
        case FLX_F64:
            return body(static_cast<double *>(nullptr));
        default:
            return;
    }
}

template <typename Body>
void with_pair(flx_dtype_t dtype, Body &&body) {
    switch (dtype) {
        case FLX_COMPLEX_F32:
        case FLX_F32_F32:
            return body(static_cast<Two<float, float> *>(nullptr));
        case FLX_COMPLEX_F64:
        case FLX_F64_F64:
            return body(static_cast<Two<double, double> *>(nullptr));
        case FLX_F32_INT32:
            return body(static_cast<Two<float, int32_t> *>(nullptr));
        case FLX_F64_INT32:
            return body(static_cast<Two<double, int32_t> *>(nullptr));
        case FLX_INT16_INT32:
            return body(static_cast<Two<int16_t, int32_t> *>(nullptr));
        case FLX_INT32_INT32:
            return body(static_cast<Two<int32_t, int32_t> *>(nullptr));
        default:
            return body(static_cast<Two<int64_t, int32_t> *>(nullptr));
    }
}

int mantissa_bits(flx_dtype_t dtype) {
    return dtype == FLX_F8E4M3 ? 3 : 2;
}

int bias(flx_dtype_t dtype) {
    return dtype == FLX_F8E4M3 ? 7 : 15;
}

/// Of integers from 0 on: to nearest, to even where two are as near.
uint8_t to_float8(flx_dtype_t dtype, int64_t value) {
    if (value == 0)
        return 0;
    const int digits = mantissa_bits(dtype) + 1;
    int exponent = 0;
    const double fraction = std::frexp(static_cast<double>(value), &exponent);  // in [1/2, 1)
    const int mantissa = static_cast<int>(std::nearbyint(std::ldexp(fraction, digits)));
    // The leading one is added to the exponent, so that a carry out of the mantissa is too.
    return static_cast<uint8_t>(((exponent - 2 + bias(dtype)) << mantissa_bits(dtype)) + mantissa);
}

int64_t from_float8(flx_dtype_t dtype, uint8_t bits) {
    if (bits == 0)
        return 0;
    const int exponent = (bits >> mantissa_bits(dtype)) - bias(dtype);
    const int leading = 1 << mantissa_bits(dtype);
    return static_cast<int64_t>(std::ldexp(leading + (bits & (leading - 1)), exponent - mantissa_bits(dtype)));
}

Element combine(int op, flx_dtype_t dtype, Element x, Element y) {
    const auto wrap = [](int64_t l, int64_t r, auto f) {
        return static_cast<int64_t>(f(static_cast<uint64_t>(l), static_cast<uint64_t>(r)));
    };
    switch (op) {
        case FLX_SUM:
        case FLX_AVG:
        case kScaledSum:
            return {wrap(x.a, y.a, std::plus<>()), x.b + y.b};
        case FLX_PROD:
            if (is_complex(dtype))
                return {x.a * y.a - x.b * y.b, x.a * y.b + x.b * y.a};
            return {wrap(x.a, y.a, std::multiplies<>()), 0};
        case FLX_MIN:
            return {std::min(x.a, y.a), 0};
        case FLX_MAX:
            return {std::max(x.a, y.a), 0};
        case FLX_LAND:
            return {x.a != 0 && y.a != 0, 0};
        case FLX_LOR:
            return {x.a != 0 || y.a != 0, 0};
        case FLX_LXOR:
            return {(x.a != 0) != (y.a != 0), 0};
        case FLX_BAND:
            return {x.a & y.a, 0};
        case FLX_BOR:
            return {x.a | y.a, 0};
        case FLX_BXOR:
            return {x.a ^ y.a, 0};
        case FLX_MINLOC:
            return x.a < y.a || (x.a == y.a && x.b <= y.b) ? x : y;
        case FLX_MAXLOC:
            return x.a > y.a || (x.a == y.a && x.b <= y.b) ? x : y;
        default:
            return {static_cast<int64_t>(compose(static_cast<uint64_t>(x.a), static_cast<uint64_t>(y.a))), 0};
    }
}

}  // namespace

size_t element_size(flx_dtype_t dtype) {
    size_t size = 0;
    return flx_dtype_size(dtype, &size) == FLX_SUCCESS ? size : 0;
}

bool is_integer(flx_dtype_t dtype) {
    return dtype <= FLX_UINT64;
}

bool is_complex(flx_dtype_t dtype) {
    return dtype == FLX_COMPLEX_F32 || dtype == FLX_COMPLEX_F64;
}

bool is_pair(flx_dtype_t dtype) {
    return dtype >= FLX_F32_INT32 && dtype <= FLX_F64_F64;
}

bool is_float8(flx_dtype_t dtype) {
    return dtype == FLX_F8E4M3 || dtype == FLX_F8E5M2;
}

bool is_own(flx_dtype_t dtype) {
    return dtype >= kTypes;
}

void store(flx_dtype_t dtype, Element element, std::byte *to) {
    if (is_float8(dtype))
        return put(to_float8(dtype, element.a), to);
    if (dtype == FLX_BF16)
        return put(static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(element.a)) >> 16), to);
    if (is_own(dtype)) {  // a type of the test's own
        for (size_t i = 0; i < element_size(dtype); ++i)
            to[i] = static_cast<std::byte>(element.a >> 8 * (i % 8));
        return;
    }
    if (dtype <= FLX_F64)
        return on_type(dtype, [&](auto *type) {
            using T = std::remove_pointer_t<decltype(type)>;
            put(static_cast<T>(element.a), to);
        });
    with_pair(dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        put(static_cast<decltype(T::a)>(element.a), to + offsetof(T, a));
        put(static_cast<decltype(T::b)>(element.b), to + offsetof(T, b));
    });
}

Element load(flx_dtype_t dtype, const std::byte *from) {
    if (is_float8(dtype))
        return {from_float8(dtype, get<uint8_t>(from)), 0};
    if (dtype == FLX_BF16)
        return {static_cast<int64_t>(std::bit_cast<float>(static_cast<uint32_t>(get<uint16_t>(from)) << 16)), 0};
    Element element;
    if (is_own(dtype)) {
        for (size_t i = 0; i < element_size(dtype); ++i) {
            const auto byte = static_cast<uint64_t>(from[i]);
            if (i < 8)
                element.a |= static_cast<int64_t>(byte << 8 * i);
            else if (byte != (static_cast<uint64_t>(element.a) >> 8 * (i % 8) & 0xff))
                element.b = -1;
        }
        return element;
    }
    if (dtype <= FLX_F64) {
        on_type(dtype, [&](auto *type) {
            using T = std::remove_pointer_t<decltype(type)>;
            element.a = static_cast<int64_t>(get<T>(from));
        });
        return element;
    }
    with_pair(dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        element.a = static_cast<int64_t>(get<decltype(T::a)>(from + offsetof(T, a)));
        element.b = static_cast<int64_t>(get<decltype(T::b)>(from + offsetof(T, b)));
    });
    return element;
}

uint64_t compose(uint64_t first, uint64_t second) {
    const auto a1 = static_cast<uint32_t>(first >> 32);
    const auto b1 = static_cast<uint32_t>(first);
    const auto a2 = static_cast<uint32_t>(second >> 32);
    const auto b2 = static_cast<uint32_t>(second);
    return uint64_t{a1 * a2} << 32 | static_cast<uint32_t>(b1 * a2 + b2);
}

void compose_all(const void *in, void *inout, size_t count, flx_dtype_t dtype, void *calls) {
    if (dtype != FLX_UINT64)
        return;
    ++*static_cast<size_t *>(calls);
    const auto *from = static_cast<const uint64_t *>(in);
    auto *to = static_cast<uint64_t *>(inout);
    for (size_t i = 0; i < count; ++i)
        to[i] = compose(from[i], to[i]);
}

bool goes_with(int op, flx_dtype_t dtype) {
    if (is_float8(dtype))
        return op == FLX_SUM || op == FLX_AVG || op == FLX_MIN || op == FLX_MAX;
    switch (op) {
        case FLX_SUM:
        case FLX_PROD:
        case FLX_AVG:
            return dtype <= FLX_COMPLEX_F64;
        case FLX_MIN:
        case FLX_MAX:
            return dtype <= FLX_F64;
        case FLX_MINLOC:
        case FLX_MAXLOC:
            return is_pair(dtype);
        case kCompose:
            return dtype == FLX_UINT64;
        case kScaledSum:
            return dtype >= FLX_F16 && dtype <= FLX_COMPLEX_F64;
        default:
            return is_integer(dtype);
    }
}

Element input(int op, flx_dtype_t dtype, int rank, size_t i, uint64_t seed) {
    if (op == FLX_AVG)
        rank = 0;
    const uint64_t random = Random::mix(seed * 1000003 + static_cast<uint64_t>(rank) * 7919 + i * 104729);
    // Sums of eight ranks are exact in every type.
    const auto small = static_cast<int64_t>(random >> 20 & (is_float8(dtype) ? 1 : 3));
    if (op == kCompose || is_own(dtype))
        return {static_cast<int64_t>(random), 0};
    if (is_pair(dtype))
        return {small, static_cast<int64_t>(random >> 30 & 0xff)};
    if (is_complex(dtype))
        return {small, static_cast<int64_t>(random >> 33 & 1)};
    if (op == FLX_PROD)
        return {1 + (small & 1), 0};
    if (op >= FLX_LAND && op <= FLX_LXOR)
        return {random >> 13 & 1 ? small : 0, 0};
    if (op >= FLX_BAND && op <= FLX_BXOR)
        return {static_cast<int64_t>(random >> 24 & 0x7f), 0};
    return {small, 0};
}

Element reduced(int op, flx_dtype_t dtype, int last, size_t i, uint64_t seed) {
    Element result;
    for (int rank = 0; rank <= last; ++rank) {
        Element next = input(op, dtype, rank, i, seed);
        if (op == kScaledSum)
            next = {next.a * (rank + 1), next.b * (rank + 1)};
        result = rank == 0 ? next : combine(op, dtype, result, next);
    }
    if (op == FLX_AVG)
        result = {result.a / (last + 1), result.b / (last + 1)};
    // As the type holds it.
    std::byte memory[16] = {};
    if (is_own(dtype))
        return result;
    store(dtype, result, memory);
    return load(dtype, memory);
}

}  // namespace flx::test
