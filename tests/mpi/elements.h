/// \file elements.h
/// Elements of every type as pairs of integers, so that one serial reference serves all types and reductions. Values
/// are small enough that no type rounds.
#pragma once

#include <flx.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace flx::test {

/// A number (b is 0), a complex number (a + b·i), or a value a at place b.
struct Element {
    int64_t a = 0;
    int64_t b = 0;
    friend bool operator==(const Element &, const Element &) = default;
};

/// Types of flx.h.
inline constexpr int kTypes = FLX_F8E5M2 + 1;

size_t element_size(flx_dtype_t dtype);
bool is_integer(flx_dtype_t dtype);
bool is_complex(flx_dtype_t dtype);
bool is_pair(flx_dtype_t dtype);
bool is_float8(flx_dtype_t dtype);
/// One of the test's own.
bool is_own(flx_dtype_t dtype);
/// Integers wrap.
void store(flx_dtype_t dtype, Element element, std::byte *to);
Element load(flx_dtype_t dtype, const std::byte *from);

/// The composition of affine maps, x → a·x + b modulo 2^32, of an UINT64 that holds a above b: associative, and not
/// commutative.
uint64_t compose(uint64_t first, uint64_t second);
/// As flx_op_create wants it.
void compose_all(const void *in, void *inout, size_t count, flx_dtype_t dtype, void *calls);

/// What tests call `op`: one of flx.h, or those below.
inline constexpr int kCompose = 100;
inline constexpr int kScaledSum = 101;  ///< by rank + 1

/// Whether `op` goes with `dtype`.
bool goes_with(int op, flx_dtype_t dtype);
/// What `rank` gives for element i.
Element input(int op, flx_dtype_t dtype, int rank, size_t i, uint64_t seed);
/// op(… op(op(x_0, x_1), x_2) …, x_last) of element i; for FLX_AVG divided by last + 1.
Element reduced(int op, flx_dtype_t dtype, int last, size_t i, uint64_t seed);

}  // namespace flx::test
