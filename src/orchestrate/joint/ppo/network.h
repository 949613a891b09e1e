#pragma once
// A perceptron with tanh between its layers, trained by Adam (D. Kingma and J. Ba, 2015). Those of PPO's agents have
// some thousand weights, for which a library would be larger than the code.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tilewright::joint::ppo {

class Network {
  public:
    /// `sizes`: of the input, of each hidden layer, of the output. Weights are random, those of the last layer small.
    Network(const std::vector<size_t>& sizes, uint64_t seed);

    std::vector<double> at(std::span<const double> input) const;
    /// Adds the gradient of a loss at this input, given its gradient by the outputs.
    void add_gradient(std::span<const double> input, std::span<const double> by_output);
    /// One step of Adam down the sum of the gradients since the last one, limited to a norm of 1.
    void step(double rate);

  private:
    struct Layer {
        size_t inputs = 0, outputs = 0;
        std::vector<double> weights;  ///< [output][input], and behind them one bias an output
        std::vector<double> gradient, mean, square;
    };
    /// The values of all layers, the input first.
    std::vector<std::vector<double>> values(std::span<const double> input) const;

    std::vector<Layer> layers_;
    int steps_ = 0;
};

}  // namespace tilewright::joint::ppo
