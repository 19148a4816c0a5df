/// \file batches.h
/// The global order of samples and each rank's part of each batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "apps/flx_trainer/idx.h"

namespace flx::trainer {

/// Samples as the network takes them.
struct Rows {
    std::vector<float> inputs;  ///< count × pixels, standardised
    std::vector<std::uint8_t> labels;
    std::size_t count = 0;
};

/// Part `part` of `parts` of [0, count): contiguous, sizes differ by at most one, parts in order cover all of it.
struct Range {
    std::size_t begin;
    std::size_t end;
};
Range part_of(std::size_t count, std::size_t part, std::size_t parts);

/// Converts samples `indices[range]`, or samples `range` themselves where `indices` is null.
void convert(const Samples &samples, const std::uint32_t *indices, Range range, Rows &rows);

/// The first `limit` samples in an order that is new each epoch and depends on seed and epoch alone: however many ranks
/// share a batch, its samples are the same. Keeps a reference to `samples`.
class Batches {
  public:
    Batches(const Samples &samples, std::size_t limit, std::size_t batch, std::uint64_t seed);

    std::size_t samples() const { return count_; }
    std::size_t steps() const { return (count_ + batch_ - 1) / batch_; }  ///< of one epoch

    /// Samples of the whole batch `step`; the last of an epoch may be smaller.
    std::size_t size(std::size_t step) const;

    void begin_epoch(std::size_t epoch);

    /// Rank `rank`'s part of batch `step` among `ranks`; may be empty.
    void load(std::size_t step, std::size_t rank, std::size_t ranks, Rows &rows) const;

  private:
    const Samples &samples_;
    std::size_t count_;
    std::size_t batch_;
    std::uint64_t seed_;
    std::vector<std::uint32_t> order_;
};

}  // namespace flx::trainer
