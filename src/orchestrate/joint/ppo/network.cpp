#include "orchestrate/joint/ppo/network.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "base/error.h"
#include "base/random.h"

namespace tilewright::joint::ppo {

Network::Network(const std::vector<size_t>& sizes, uint64_t seed) {
    std::mt19937_64 rng(seed);
    for (size_t l = 0; l + 1 < sizes.size(); ++l) {
        Layer layer;
        layer.inputs = sizes[l];
        layer.outputs = sizes[l + 1];
        layer.weights.assign((layer.inputs + 1) * layer.outputs, 0);
        // A small last layer: the first policy is nearly uniform, and the first values are near 0.
        const double most = (l + 2 == sizes.size() ? 0.01 : 1.0) * std::sqrt(3.0 / static_cast<double>(layer.inputs));
        for (size_t k = 0; k < layer.inputs * layer.outputs; ++k) layer.weights[k] = most * (2 * uniform(rng) - 1);
        layer.gradient = layer.mean = layer.square = std::vector<double>(layer.weights.size(), 0);
        layers_.push_back(std::move(layer));
    }
}

std::vector<std::vector<double>> Network::values(std::span<const double> input) const {
    TW_CHECK(input.size() == layers_.front().inputs, "a network of {} inputs has {}", layers_.front().inputs,
             input.size());
    std::vector<std::vector<double>> out = {{input.begin(), input.end()}};
    for (size_t l = 0; l < layers_.size(); ++l) {
        const Layer& layer = layers_[l];
        std::vector<double> y(layer.outputs);
        for (size_t o = 0; o < layer.outputs; ++o) {
            double sum = layer.weights[layer.inputs * layer.outputs + o];
            for (size_t i = 0; i < layer.inputs; ++i) sum += layer.weights[o * layer.inputs + i] * out.back()[i];
            y[o] = l + 1 < layers_.size() ? std::tanh(sum) : sum;
        }
        out.push_back(std::move(y));
    }
    return out;
}

std::vector<double> Network::at(std::span<const double> input) const { return values(input).back(); }

void Network::add_gradient(std::span<const double> input, std::span<const double> by_output) {
    const std::vector<std::vector<double>> all = values(input);
    std::vector<double> by(by_output.begin(), by_output.end());
    for (size_t l = layers_.size(); l-- > 0;) {
        Layer& layer = layers_[l];
        if (l + 1 < layers_.size())
            for (size_t o = 0; o < layer.outputs; ++o) by[o] *= 1 - all[l + 1][o] * all[l + 1][o];
        std::vector<double> by_input(layer.inputs, 0);
        for (size_t o = 0; o < layer.outputs; ++o) {
            for (size_t i = 0; i < layer.inputs; ++i) {
                layer.gradient[o * layer.inputs + i] += by[o] * all[l][i];
                by_input[i] += by[o] * layer.weights[o * layer.inputs + i];
            }
            layer.gradient[layer.inputs * layer.outputs + o] += by[o];
        }
        by = std::move(by_input);
    }
}

void Network::step(double rate) {
    constexpr double kMean = 0.9, kSquare = 0.999, kLeast = 1e-8;  // Adam's own
    double norm = 0;
    for (const Layer& layer : layers_)
        for (const double g : layer.gradient) norm += g * g;
    const double scale = 1 / std::max(1.0, std::sqrt(norm));
    ++steps_;
    const double mean_share = 1 - std::pow(kMean, steps_), square_share = 1 - std::pow(kSquare, steps_);
    for (Layer& layer : layers_)
        for (size_t k = 0; k < layer.weights.size(); ++k) {
            const double g = scale * layer.gradient[k];
            layer.mean[k] = kMean * layer.mean[k] + (1 - kMean) * g;
            layer.square[k] = kSquare * layer.square[k] + (1 - kSquare) * g * g;
            layer.weights[k] -=
                rate * (layer.mean[k] / mean_share) / (std::sqrt(layer.square[k] / square_share) + kLeast);
            layer.gradient[k] = 0;
        }
}

}  // namespace tilewright::joint::ppo
