#include "driver/quantize/layers.h"

#include <algorithm>

#include "base/error.h"
#include "base/suggest.h"

namespace tilewright::quantize {

namespace {

bool is_standard(const Node& n, std::initializer_list<const char*> ops) {
    return n.domain.empty() && std::any_of(ops.begin(), ops.end(), [&](const char* op) { return n.op == op; });
}

/// What applies a function to single elements that a requantisation takes in.
bool keeps_region(const Node& n) { return is_standard(n, {"Relu", "Clip", "LeakyRelu"}); }
/// What only moves or selects elements: its result has the range of its first input.
bool moves_elements(const Node& n) {
    return is_standard(n, {"MaxPool", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Identity"});
}
bool is_between_products(const Node& n) {
    return is_standard(n, {"Add", "AveragePool", "GlobalAveragePool", "Concat"});
}

/// The axis of output channels of a product's weights of this rank; none where they have no such axis.
std::optional<int64_t> channel_axis(const Node& n, int64_t rank) {
    if (n.op == "Conv") return 0;
    if (n.op == "ConvTranspose") return n.attr_int("group", 1) == 1 ? std::optional<int64_t>(1) : std::nullopt;
    if (n.op == "Gemm") return n.attr_int("transB", 0) != 0 ? 0 : 1;
    return rank >= 2 ? std::optional<int64_t>(rank - 1) : std::nullopt;
}

class Chooser {
  public:
    Chooser(const Graph& graph, bool per_channel)
        : graph_(graph), per_channel_(per_channel), constants_(constants_of(graph)) {
        for (size_t k = 0; k < graph.nodes.size(); ++k) {
            for (const std::string& name : graph.nodes[k].outputs) producers_[name] = k;
            for (const std::string& name : graph.nodes[k].inputs) ++readers_[name];
        }
        for (const GraphInput& output : graph.outputs) ++readers_[output.name];
    }

    Layers run(const std::set<std::string>& excluded) {
        excluded_ = &excluded;
        for (size_t k = 0; k < graph_.nodes.size(); ++k) add_product(k);
        for (size_t k = 0; k < pending_.size(); ++k) add_producers(std::string(pending_[k]));
        for (auto& [node, layer] : layers_) out_.layers.push_back(std::move(layer));
        std::erase_if(out_.same_range, [&](const auto& pair) { return quantised_.count(pair.second) == 0; });
        return std::move(out_);
    }

  private:
    void add_product(size_t at) {
        const Node& n = graph_.nodes[at];
        if (!is_standard(n, {"Conv", "ConvTranspose", "Gemm", "MatMul"}) || n.inputs.size() < 2) return;
        const auto leave_out = [&](const char* why) { out_.left_out.push_back(n.describe() + ": " + why); };
        if (excluded_->count(n.name) != 0) return leave_out("excluded");
        const Tensor* w = constant(n.inputs[1]);
        if (w == nullptr) {
            const Node* from = producer(n.inputs[1]);
            return leave_out(from != nullptr && from->op == "DequantizeLinear" ? "it is quantised already"
                                                                               : "it has no constant weights");
        }
        if (w->dtype() != DType::F32) return leave_out("its weights are not of type float32");
        if (constant(n.inputs[0]) != nullptr) return leave_out("both operands are constants");
        if (w->count() == 0 || w->rank() < 2) return leave_out("its weights are no matrix");
        Weights weights;
        if (per_channel_) weights.axis = channel_axis(n, w->rank());
        const bool plain = n.op != "Gemm" || (n.attr_float("alpha", 1) == 1 && n.attr_float("beta", 1) == 1);
        if (n.inputs.size() > 2 && !n.inputs[2].empty() && plain) {
            const Tensor* bias = constant(n.inputs[2]);
            const auto axis = channel_axis(n, w->rank());
            if (bias != nullptr && bias->dtype() == DType::F32 && bias->rank() == 1 && axis &&
                bias->count() == w->shape()[static_cast<size_t>(*axis)])
                weights.bias = 2;
        }
        layers_[at] = {at, {0}, weights};
        quantise(n.inputs[0]);
    }

    /// The nodes whose results are quantised at once, and so the operands of additions and poolings.
    ///     Add -> Relu -> [quantised] -> Conv: the operands of Add are quantised as well
    void add_producers(const std::string& tensor) {
        const Node* n = producer(tensor);
        std::string result = tensor;
        while (n != nullptr && keeps_region(*n) && readers_.at(n->inputs[0]) == 1) {
            result = n->inputs[0];
            n = producer(result);
        }
        if (n == nullptr || excluded_->count(n->name) != 0) return;
        const auto at = static_cast<size_t>(n - graph_.nodes.data());
        if (moves_elements(*n) && n->outputs[0] == result && !n->inputs.empty() && is_computed(n->inputs[0])) {
            if (result == tensor) out_.same_range[tensor] = n->inputs[0];
            layers_[at] = {at, {0}, std::nullopt};
            quantise(n->inputs[0]);
            return;
        }
        if (!is_between_products(*n)) return;
        Layer layer{at, {}, std::nullopt};
        for (size_t k = 0; k < n->inputs.size(); ++k)
            if (is_computed(n->inputs[k])) layer.activations.push_back(k);
        // An addition of a constant is an epilogue of the product before it.
        if (layer.activations.size() != n->inputs.size()) return;
        for (const size_t k : layer.activations) quantise(n->inputs[k]);
        layers_[at] = std::move(layer);
    }

    bool is_computed(const std::string& tensor) const {
        return !tensor.empty() && constant(tensor) == nullptr &&
               (producers_.count(tensor) != 0 ||
                std::any_of(graph_.inputs.begin(), graph_.inputs.end(),
                            [&](const GraphInput& input) { return input.name == tensor; }));
    }
    const Node* producer(const std::string& tensor) const {
        const auto it = producers_.find(tensor);
        return it == producers_.end() ? nullptr : &graph_.nodes[it->second];
    }
    const Tensor* constant(const std::string& tensor) const {
        const auto it = constants_.find(tensor);
        return it == constants_.end() ? nullptr : it->second;
    }
    void quantise(const std::string& tensor) {
        if (quantised_.insert(tensor).second) pending_.push_back(tensor);
    }

    const Graph& graph_;
    bool per_channel_;
    std::map<std::string, const Tensor*> constants_;
    std::map<std::string, size_t> readers_;
    const std::set<std::string>* excluded_ = nullptr;
    std::map<std::string, size_t> producers_;
    std::map<size_t, Layer> layers_;
    std::set<std::string> quantised_;
    std::vector<std::string> pending_;
    Layers out_;
};

}  // namespace

std::map<std::string, const Tensor*> constants_of(const Graph& graph) {
    std::map<std::string, const Tensor*> constants;
    for (const auto& [name, tensor] : graph.initializers) constants.emplace(name, &tensor);
    for (const Node& n : graph.nodes)
        if (is_standard(n, {"Constant"}) && n.outputs.size() == 1)
            if (const Tensor* value = n.attr_tensor("value")) constants.emplace(n.outputs[0], value);
    return constants;
}

std::vector<std::string> Layers::tensors(const Graph& graph) const {
    std::vector<std::string> all;
    std::set<std::string> seen;
    for (const Layer& layer : layers)
        for (const size_t k : layer.activations)
            if (const std::string& name = graph.nodes[layer.node].inputs[k]; seen.insert(name).second)
                all.push_back(name);
    return all;
}

Layers choose_layers(const Graph& graph, const std::set<std::string>& excluded, bool per_channel) {
    for (const std::string& name : excluded)
        if (std::none_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& n) { return n.name == name; })) {
            std::vector<std::string> names;
            for (const Node& n : graph.nodes) names.push_back(n.name);
            const std::vector<std::string> near = closest_names(name, names);
            throw ModelError(fmt::format("the model has no node {}", quoted_name(name)),
                             near.empty() ? "`tilewright dump MODEL` lists the nodes"
                                          : fmt::format("did you mean {}?", quoted_name(near[0])));
        }
    return Chooser(graph, per_channel).run(excluded);
}

Layers with_types(Layers layers, const Graph& graph, const std::map<std::string, DType>& types) {
    std::erase_if(layers.layers, [&](const Layer& layer) {
        const Node& n = graph.nodes[layer.node];
        const bool fits = std::all_of(layer.activations.begin(), layer.activations.end(), [&](size_t k) {
            const auto it = types.find(n.inputs[k]);
            return it != types.end() && it->second == DType::F32;
        });
        if (!fits && layer.weights) layers.left_out.push_back(n.describe() + ": it does not read float32");
        return !fits;
    });
    return layers;
}

}  // namespace tilewright::quantize
