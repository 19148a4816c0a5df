/// \file model.h
/// A multi-layer perceptron: dense layers with ReLU between them, softmax and cross-entropy at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace flx::trainer {

/// Parameters and gradients are one contiguous vector each, layer after layer, weights (inputs × outputs, row-major)
/// before biases, so that any range of them can be reduced in place. Not thread safe.
class Model {
  public:
    /// `widths`: inputs, hidden layers, classes; at least two. Weights are drawn uniformly with He et al.'s variance
    /// ("Delving Deep into Rectifiers", ICCV 2015, eq. 10); equal seeds give equal bits on every machine.
    Model(std::vector<std::size_t> widths, std::uint64_t seed);

    std::span<float> parameters() { return parameters_; }
    std::span<const float> parameters() const { return parameters_; }
    std::span<float> gradients() { return gradients_; }

    /// Overwrites gradients() with the sum over `rows` samples of the loss's gradient, divided by `batch`, the size of
    /// the whole batch of which these are a part. `inputs` is rows × widths[0], `labels` has one class per row; `rows`
    /// may be 0. Returns the sum of the samples' losses.
    double compute_gradients(const float *inputs, const std::uint8_t *labels, std::size_t rows, std::size_t batch);

    /// How many of `rows` samples have their label's output as the largest. Outputs that are not numbers count as
    /// wrong.
    std::size_t count_correct(const float *inputs, const std::uint8_t *labels, std::size_t rows);

    /// velocity = momentum · velocity + gradient; parameter -= rate · velocity.
    void descend(float rate, float momentum);

  private:
    struct Layer {
        std::size_t inputs;
        std::size_t outputs;
        std::size_t weights;  // offset in parameters_
        std::size_t biases;   // offset in parameters_
    };

    void forward(const float *inputs, std::size_t rows);

    std::vector<Layer> layers_;
    std::vector<float> parameters_;
    std::vector<float> gradients_;
    std::vector<float> velocity_;
    std::vector<std::vector<float>> outputs_;  // of each layer, rows × outputs; after ReLU, the last without
    std::vector<std::vector<float>> deltas_;   // the loss's derivative by each layer's output before ReLU
};

}  // namespace flx::trainer
