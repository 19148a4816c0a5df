/// \file data.h
/// Input data whose results are known exactly for every type and reduction, in whatever order ranks are added, and the
/// checks against them. The idea is that of nccl-tests' `verifiable`; expected values are computed here, serially, in
/// 64-bit integers or doubles, by neither FLX nor MPI.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "apps/bench/collectives.h"

namespace flx::bench {

/// Values of one type for one reduction and number of ranks. Element i of call c is entry (i + c·stride) mod 4093 of a
/// table: the period is prime, so that a block in the wrong place shows, and turns from call to call, so that a result
/// left over from an earlier call shows.
///
/// - Integers: all bits are random and results wrap, except for averages, which stay small enough not to wrap.
/// - Floats: small integers (products: ±1 and up to eight twos), so that every partial sum in any order is exact even
///   with the type's own rounding; sums that are averaged are multiples of the number of ranks.
///
/// Immutable once made; any thread may read.
class Pattern {
  public:
    static constexpr size_t kPeriod = 4093;

    /// `op` is empty for collectives that only move data.
    /// `last`: the reduction is over the ranks up to this one; -1: over all.
    Pattern(flx_dtype_t dtype, std::optional<flx_op_t> op, int ranks, int last = -1);

    /// Writes elements [first, first + count) of `rank`'s input in call `call`.
    void write_input(void *dst, int rank, size_t first, size_t count, uint64_t call) const;
    /// Writes elements [first, first + count) of the reduction over the ranks in call `call`.
    void write_result(void *dst, size_t first, size_t count, uint64_t call) const;
    /// How many of `count` elements differ from `rank`'s input, in any bit.
    [[nodiscard]] size_t count_wrong_input(const void *got, int rank, size_t first, size_t count, uint64_t call) const;
    /// How many of `count` elements differ from the reduction over the ranks, in any bit.
    [[nodiscard]] size_t count_wrong_result(const void *got, size_t first, size_t count, uint64_t call) const;

  private:
    using Table = std::vector<std::byte>;
    void write(const Table &table, void *dst, size_t first, size_t count, uint64_t call) const;
    [[nodiscard]] size_t entry(size_t first, uint64_t call) const;
    [[nodiscard]] size_t count_wrong(const Table &table, const void *got, size_t first, size_t count,
                                     uint64_t call) const;

    size_t element_bytes_;
    std::vector<Table> inputs_;  ///< by rank
    Table result_;
};

/// Of the job's type, for what its ranks call: of a scan, over the ranks up to its own.
[[nodiscard]] Pattern pattern_for(const Job &job);

/// What output memory holds before a call: no expected float has this bit pattern.
inline constexpr std::byte kPoison{0xCB};

/// Writes this rank's input of call `call` and poisons its output and guard.
void prepare(const Job &job, const Pattern &pattern, uint64_t call);

/// How many elements of this rank are wrong after call `call`: outputs that are not the expected ones, inputs that were
/// written, and elements of the guard after the output that were touched.
[[nodiscard]] size_t count_wrong(const Job &job, const Pattern &pattern, uint64_t call);

}  // namespace flx::bench
