/// \file buckets.h
/// Cuts the gradients into the pieces that one call reduces, and damages one on purpose.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace flx::trainer {

/// A range of the gradient vector that one call reduces; in elements.
struct Bucket {
    std::size_t offset;
    std::size_t count;
};

/// Cuts `elements` f32 values into buckets of `bucket_bytes` (at least one element), from the end to the start: the
/// last layer's gradients are ready first. The last bucket takes what is left.
std::vector<Bucket> plan_buckets(std::size_t elements, std::size_t bucket_bytes);

/// Flips one bit in each value of the last 4 KiB (or less) of `chunk`: values below 1 become huge, but stay finite.
void corrupt(std::span<float> chunk);

}  // namespace flx::trainer
