#include "apps/flx_trainer/model.h"

#include <algorithm>
#include <cmath>

#include "apps/flx_trainer/gemm.h"
#include "apps/flx_trainer/random.h"

namespace flx::trainer {

Model::Model(std::vector<std::size_t> widths, std::uint64_t seed) {
    std::size_t offset = 0;
    for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
        const Layer layer{widths[i], widths[i + 1], offset, offset + widths[i] * widths[i + 1]};
        offset = layer.biases + layer.outputs;
        layers_.push_back(layer);
    }
    parameters_.assign(offset, 0.0f);
    gradients_.assign(offset, 0.0f);
    velocity_.assign(offset, 0.0f);
    outputs_.resize(layers_.size());
    deltas_.resize(layers_.size());
    Random random(seed);
    for (const Layer &layer : layers_) {
        // No ReLU follows the last layer, and small first outputs keep the first steps' gradients moderate.
        const float variance = &layer == &layers_.back() ? 0.02f : 2.0f;
        const float bound = std::sqrt(3.0f * variance / static_cast<float>(layer.inputs));
        for (std::size_t i = 0; i < layer.inputs * layer.outputs; ++i) {
            parameters_[layer.weights + i] = bound * random.symmetric();
        }
    }
}

void Model::forward(const float *inputs, std::size_t rows) {
    for (std::size_t l = 0; l < layers_.size(); ++l) {
        const Layer &layer = layers_[l];
        std::vector<float> &out = outputs_[l];
        out.resize(std::max(out.size(), rows * layer.outputs));
        const float *in = l == 0 ? inputs : outputs_[l - 1].data();
        gemm(rows, layer.outputs, layer.inputs, {in, layer.inputs}, {&parameters_[layer.weights], layer.outputs},
             out.data(), layer.outputs);
        const float *bias = &parameters_[layer.biases];
        // -inf leaves the last layer's outputs as they are. The comparison's order lets a NaN through.
        const float floor = l + 1 < layers_.size() ? 0.0f : -INFINITY;
        for (std::size_t i = 0; i < rows; ++i) {
            float *row = out.data() + i * layer.outputs;
            for (std::size_t j = 0; j < layer.outputs; ++j) {
                const float sum = row[j] + bias[j];
                row[j] = sum < floor ? floor : sum;
            }
        }
    }
}

double Model::compute_gradients(const float *inputs, const std::uint8_t *labels, std::size_t rows, std::size_t batch) {
    forward(inputs, rows);
    const std::size_t last = layers_.size() - 1;
    for (std::size_t l = 0; l <= last; ++l) {
        deltas_[l].resize(std::max(deltas_[l].size(), rows * layers_[l].outputs));
    }

    // Softmax and cross-entropy: the derivative by an output is its probability, less one at the label.
    const std::size_t classes = layers_[last].outputs;
    const float scale = 1.0f / static_cast<float>(batch);
    double loss = 0.0;
    for (std::size_t i = 0; i < rows; ++i) {
        const float *out = outputs_[last].data() + i * classes;
        float *delta = deltas_[last].data() + i * classes;
        const float largest = *std::max_element(out, out + classes);
        float sum = 0.0f;
        for (std::size_t j = 0; j < classes; ++j) {
            delta[j] = std::exp(out[j] - largest);
            sum += delta[j];
        }
        loss += std::log(static_cast<double>(sum)) - static_cast<double>(out[labels[i]] - largest);
        for (std::size_t j = 0; j < classes; ++j) {
            delta[j] *= scale / sum;
        }
        delta[labels[i]] -= scale;
    }

    for (std::size_t l = last + 1; l-- > 0;) {
        const Layer &layer = layers_[l];
        const float *in = l == 0 ? inputs : outputs_[l - 1].data();
        const float *delta = deltas_[l].data();
        gemm(layer.inputs, layer.outputs, rows, {in, layer.inputs, true}, {delta, layer.outputs},
             &gradients_[layer.weights], layer.outputs);
        float *bias = &gradients_[layer.biases];
        std::fill(bias, bias + layer.outputs, 0.0f);
        for (std::size_t i = 0; i < rows; ++i) {
            for (std::size_t j = 0; j < layer.outputs; ++j) {
                bias[j] += delta[i * layer.outputs + j];
            }
        }
        if (l > 0) {
            float *below = deltas_[l - 1].data();
            gemm(rows, layer.inputs, layer.outputs, {delta, layer.outputs},
                 {&parameters_[layer.weights], layer.outputs, true}, below, layer.inputs);
            for (std::size_t i = 0; i < rows * layer.inputs; ++i) {
                below[i] = in[i] == 0.0f ? 0.0f : below[i];
            }
        }
    }
    return loss;
}

std::size_t Model::count_correct(const float *inputs, const std::uint8_t *labels, std::size_t rows) {
    forward(inputs, rows);
    const std::size_t classes = layers_.back().outputs;
    std::size_t correct = 0;
    for (std::size_t i = 0; i < rows; ++i) {
        const float *out = outputs_.back().data() + i * classes;
        const float right = out[labels[i]];
        bool largest = true;
        for (std::size_t j = 0; j < classes; ++j) {
            largest = largest && (j == labels[i] || right > out[j]);
        }
        correct += largest ? 1 : 0;
    }
    return correct;
}

void Model::descend(float rate, float momentum) {
    float *parameter = parameters_.data();
    float *velocity = velocity_.data();
    const float *gradient = gradients_.data();
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        velocity[i] = momentum * velocity[i] + gradient[i];
        parameter[i] -= rate * velocity[i];
    }
}

}  // namespace flx::trainer
