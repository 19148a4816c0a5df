#include "apps/flx_trainer/batches.h"

#include <algorithm>
#include <array>

#include "apps/flx_trainer/random.h"

namespace flx::trainer {
namespace {

// Mean and standard deviation of the training images' pixels, scaled to [0, 1].
constexpr float kMean = 0.2860f;
constexpr float kDeviation = 0.3530f;

std::array<float, 256> make_levels() {
    std::array<float, 256> levels{};
    for (std::size_t i = 0; i < levels.size(); ++i) {
        levels[i] = (static_cast<float>(i) / 255.0f - kMean) / kDeviation;
    }
    return levels;
}

}  // namespace

Range part_of(std::size_t count, std::size_t part, std::size_t parts) {
    return {count * part / parts, count * (part + 1) / parts};
}

void convert(const Samples &samples, const std::uint32_t *indices, Range range, Rows &rows) {
    static const std::array<float, 256> levels = make_levels();
    rows.count = range.end - range.begin;
    rows.inputs.resize(rows.count * samples.pixels);
    rows.labels.resize(rows.count);
    float *to = rows.inputs.data();
    for (std::size_t i = 0; i < rows.count; ++i) {
        const std::size_t index = indices != nullptr ? indices[range.begin + i] : range.begin + i;
        const std::uint8_t *from = samples.images.data() + index * samples.pixels;
        to = std::transform(from, from + samples.pixels, to, [](std::uint8_t pixel) { return levels[pixel]; });
        rows.labels[i] = samples.labels[index];
    }
}

Batches::Batches(const Samples &samples, std::size_t limit, std::size_t batch, std::uint64_t seed)
    : samples_(samples), count_(std::min(limit, samples.count)), batch_(batch), seed_(seed) {}

std::size_t Batches::size(std::size_t step) const {
    return std::min(batch_, count_ - step * batch_);
}

void Batches::begin_epoch(std::size_t epoch) {
    order_ = shuffled(static_cast<std::uint32_t>(count_), Random(seed_ + epoch).next());
}

void Batches::load(std::size_t step, std::size_t rank, std::size_t ranks, Rows &rows) const {
    Range range = part_of(size(step), rank, ranks);
    range.begin += step * batch_;
    range.end += step * batch_;
    convert(samples_, order_.data(), range, rows);
}

}  // namespace flx::trainer
