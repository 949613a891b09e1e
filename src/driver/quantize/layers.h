#pragma once
// Which nodes of a model compute on 8 bits, and which of their inputs are quantised.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace tilewright::quantize {

/// Constant weights of a product.
struct Weights {
    size_t input = 1;             ///< position among the node's inputs
    std::optional<int64_t> axis;  ///< of output channels; none: one scale for the tensor
    std::optional<size_t> bias;   ///< position of a constant bias of one element a channel
};

/// A node that reads quantised tensors: a product with constant weights, or a node between products whose operands and
/// result are quantised (the addition of a residual connection, pooling, concatenation).
struct Layer {
    size_t node = 0;                  ///< of Graph::nodes
    std::vector<size_t> activations;  ///< positions of its quantised inputs, weights left out
    std::optional<Weights> weights;   ///< none: not a product
};

struct Layers {
    std::vector<Layer> layers;  ///< in the graph's order
    /// tensor -> tensor, quantised as well, whose elements are the only ones it has: both get one scale.
    std::map<std::string, std::string> same_range;
    std::vector<std::string> left_out;  ///< products in f32, each with the reason
    /// Tensors to quantise, each once, in the graph's order.
    std::vector<std::string> tensors(const Graph& graph) const;
};

/// `excluded`: names of nodes that stay in f32. Throws ModelError for a name that is no node's.
/// `per_channel`: scales along the axis of output channels.
Layers choose_layers(const Graph& graph, const std::set<std::string>& excluded, bool per_channel);

/// The tensors that are initialisers or of Constant nodes.
std::map<std::string, const Tensor*> constants_of(const Graph& graph);

/// Keeps the layers whose activations all have the type f32. `types`: by tensor.
Layers with_types(Layers layers, const Graph& graph, const std::map<std::string, DType>& types);

}  // namespace tilewright::quantize
