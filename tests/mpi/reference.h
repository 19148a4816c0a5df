/// \file reference.h
/// One call of a collective with data that every rank can make for all ranks, and what must come out of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/mpi/harness.h"

namespace flx::test {

enum class Collective : uint8_t { allreduce, reduce_scatter_block, allgather, bcast, reduce, barrier };
constexpr int kCollectives = 6;
constexpr int kDtypes = 14;  ///< of them, dtype_at
constexpr int kOps = 5;

enum class Data : uint8_t {
    exact,   ///< floats are small integers: no order of adding rounds, so the result is known to the bit
    random,  ///< anything; floats agree within n·eps·Σ|x|, integers wrap and are exact
    special  ///< minima and maxima of floats: NaN, infinities and both zeros among the values
};

/// Where buffers lie.
enum class Memory : uint8_t {
    own,     ///< of the process's own allocator
    shared,  ///< of flx_malloc
    mixed    ///< by rank and buffer one or the other
};

/// A call. The same on all ranks.
struct Case {
    Collective collective = Collective::allreduce;
    flx_dtype_t dtype = FLX_F32;
    flx_op_t op = FLX_SUM;
    size_t count = 0;  ///< as the function takes it
    int root = 0;
    bool in_place = false;
    int shift = 0;  ///< buffers begin this many elements after a boundary of 64 bytes
    Data data = Data::exact;
    uint64_t seed = 0;
    Memory memory = Memory::own;
};

/// Integers and floats, 8-bit ones last.
flx_dtype_t dtype_at(size_t index);
/// `op`, or a sum where the type has none such.
flx_op_t fitting(flx_op_t op, flx_dtype_t dtype);
const char *name_of(Collective collective);
std::string to_string(const Case &c);
size_t size_of(flx_dtype_t dtype);
bool is_float(flx_dtype_t dtype);
bool reduces(Collective collective);

/// What this rank got, bit for bit; empty where it gets nothing.
using Bytes = std::vector<std::byte>;

/// Makes the call on `comm` and checks status, result, that inputs are as they were, and bytes around the output.
/// `result`, if given, is set to the output. Collective over `comm`.
testing::AssertionResult check(const Case &c, flx_comm_t comm, Bytes *result = nullptr);

/// Whether all ranks of `mpi` that got a result that must be alike got the same bits. Collective over `mpi`.
testing::AssertionResult same_everywhere(const Case &c, const Bytes &result, MPI_Comm mpi);

uint64_t hash_of(const void *data, size_t bytes);

/// Input of `rank`, `count` elements from element `first` on of what it contributes.
void fill(const Case &c, int rank, int size, size_t first, size_t count, void *out);

}  // namespace flx::test
