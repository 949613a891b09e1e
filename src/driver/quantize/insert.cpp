#include "driver/quantize/insert.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "base/error.h"

namespace tilewright::quantize {

namespace {

constexpr double kLargest = 127;    // of int8, symmetric
constexpr int64_t kAxesOpset = 13;  // DequantizeLinear has a scale for each index of an axis
constexpr int64_t kWhereOpset = 16;

float scale_for(double limit, double levels) {
    const auto scale = static_cast<float>(limit / levels);
    return scale > 0 && std::isnormal(scale) ? scale : 1;  // all elements are 0, or nearly
}

void for_each_subgraph(const Node& node, const std::function<void(const Graph&)>& f) {
    for (const auto& [name, value] : node.attributes)
        if (const auto* inner = std::get_if<std::shared_ptr<const Graph>>(&value)) f(**inner);
}

class Inserter {
  public:
    Inserter(const Model& model, const Layers& layers, const std::map<std::string, Range>& ranges,
             const InsertOptions& options)
        : layers_(layers), ranges_(ranges), options_(options), constants_(constants_of(model.graph)), out_(model) {
        collect_names(model.graph);
        if (!has_axes(model)) {
            domain_ = "com.microsoft";
            opset_ = out_.opsets[domain_] = 1;
        } else {
            opset_ = model.opsets.at("");
        }
    }

    Model run() {
        Graph& g = out_.graph;
        std::vector<Node> nodes = std::move(g.nodes);
        g.nodes.clear();
        std::set<std::string> wanted;
        for (const Layer& layer : layers_.layers)
            for (const size_t k : layer.activations) wanted.insert(nodes[layer.node].inputs[k]);
        for (const GraphInput& input : out_.graph.inputs)
            if (wanted.count(input.name) != 0) quantise_tensor(input.name);
        size_t next = 0;
        for (size_t k = 0; k < nodes.size(); ++k) {
            Node& n = nodes[k];
            if (next < layers_.layers.size() && layers_.layers[next].node == k) quantise_node(n, next++);
            const std::vector<std::string> results = n.outputs;
            g.nodes.push_back(std::move(n));
            for (const std::string& name : results)
                if (wanted.count(name) != 0) quantise_tensor(name);
        }
        remove_unread();
        return std::move(out_);
    }

  private:
    void collect_names(const Graph& g) {
        for (const GraphInput& input : g.inputs) names_.insert(input.name);
        for (const auto& [name, tensor] : g.initializers) names_.insert(name);
        for (const Node& n : g.nodes) {
            names_.insert(n.outputs.begin(), n.outputs.end());
            nodes_.insert(n.name);
            for_each_subgraph(n, [&](const Graph& inner) { collect_names(inner); });
        }
    }

    std::string fresh(std::set<std::string>& names, const std::string& base) {
        std::string name = base;
        for (int n = 1; !names.insert(name).second; ++n) name = fmt::format("{}_{}", base, n);
        return name;
    }
    std::string initializer(const std::string& base, Tensor value) {
        const std::string name = fresh(names_, base);
        out_.graph.initializers.emplace(name, std::move(value));
        return name;
    }
    /// Of the quantising operators' domain; Where is ONNX's own.
    std::string node(const char* op, std::vector<std::string> inputs, const std::string& result,
                     std::map<std::string, Attribute> attributes = {}) {
        Node n;
        n.name = fresh(nodes_, result + "_" + op);
        n.op = op;
        const bool where = n.op == "Where";
        n.domain = where ? "" : domain_;
        n.opset = where ? kWhereOpset : opset_;
        n.inputs = std::move(inputs);
        n.outputs = {fresh(names_, result)};
        n.attributes = std::move(attributes);
        out_.graph.nodes.push_back(std::move(n));
        return out_.graph.nodes.back().outputs[0];
    }

    /// Of the tensor, or of the one whose elements it has.
    std::string source_of(std::string tensor) const {
        for (auto it = layers_.same_range.find(tensor);
             it != layers_.same_range.end() && ranges_.count(it->second) != 0; it = layers_.same_range.find(tensor))
            tensor = it->second;
        return tensor;
    }

    void quantise_tensor(const std::string& tensor) {
        const ElementScale s = scale_of(ranges_.at(source_of(tensor)), options_.type);
        const DType type = options_.type == ActivationType::U8 ? DType::U8 : DType::I8;
        const std::string scale =
            initializer(tensor + "_scale", Tensor::of(DType::F32, {}, std::vector<float>{s.scale}));
        const std::string zero =
            initializer(tensor + "_zero_point", Tensor::of(type, {}, std::vector<int64_t>{s.zero_point}));
        const std::string q = node("QuantizeLinear", {tensor, scale, zero}, tensor + "_quantized");
        dequantised_[tensor] = node("DequantizeLinear", {q, scale, zero}, tensor + "_dequantized");
        scales_[tensor] = s.scale;
    }

    void quantise_node(Node& n, size_t at) {
        const Layer& layer = layers_.layers[at];
        std::map<size_t, std::string> operands;
        for (const size_t k : layer.activations) operands[k] = dequantised_.at(n.inputs[k]);
        if (layer.weights) quantise_constants(n, *layer.weights, operands);
        std::string on;
        if (options_.switches) {
            on = fresh(names_, fmt::format("quantise_{}", at));
            GraphInput input;
            input.name = on;
            input.type.dtype = DType::Bool;
            input.type.has_dtype = true;
            input.type.shape.emplace();
            out_.graph.inputs.push_back(std::move(input));
        }
        for (const auto& [k, name] : operands)
            n.inputs[k] = on.empty() ? name : node("Where", {on, name, n.inputs[k]}, n.inputs[k] + "_switched");
    }

    void quantise_constants(const Node& n, const Weights& w, std::map<size_t, std::string>& operands) {
        const std::string& name = n.inputs[w.input];
        const auto key = std::pair(name, w.axis.value_or(-1));
        auto it = weights_.find(key);
        if (it == weights_.end()) {
            QuantisedWeights q = quantise_weights(*constants_.at(name), w.axis);
            Stored stored;
            stored.scales = q.scales;
            const std::string elements = initializer(name + "_quantized", std::move(q.elements));
            const std::string scales = initializer(name + "_scale", std::move(q.scales));
            std::map<std::string, Attribute> attributes;
            if (w.axis) attributes["axis"] = *w.axis;
            stored.dequantised = node("DequantizeLinear", {elements, scales}, name + "_dequantized", attributes);
            it = weights_.emplace(key, std::move(stored)).first;
        }
        operands[w.input] = it->second.dequantised;
        if (w.bias) quantise_bias(n.inputs[*w.bias], scales_.at(n.inputs[0]), it->second.scales, *w.bias, operands);
    }

    /// In units of the products of both scales. A bias that passes int32 stays in f32.
    void quantise_bias(const std::string& name, float activation, const Tensor& weights, size_t input,
                       std::map<size_t, std::string>& operands) {
        const Tensor& bias = *constants_.at(name);
        Tensor scales(DType::F32, weights.shape()), elements(DType::I32, bias.shape());
        for (int64_t k = 0; k < scales.count(); ++k) scales.set(k, activation * static_cast<float>(weights.get(k)));
        for (int64_t k = 0; k < bias.count(); ++k) {
            const double units = std::nearbyint(bias.get(k) / scales.get(scales.count() == 1 ? 0 : k));
            if (!(std::fabs(units) <= INT32_MAX)) return;
            elements.set(k, static_cast<int64_t>(units));
        }
        std::map<std::string, Attribute> attributes;
        if (scales.rank() == 1) attributes["axis"] = int64_t{0};
        const std::string stored = initializer(name + "_quantized", std::move(elements));
        const std::string scale = initializer(name + "_scale", std::move(scales));
        operands[input] = node("DequantizeLinear", {stored, scale}, name + "_dequantized", attributes);
    }

    void remove_unread() {
        Graph& g = out_.graph;
        std::set<std::string> read;
        const std::function<void(const Graph&)> add = [&](const Graph& graph) {
            for (const Node& n : graph.nodes) {
                read.insert(n.inputs.begin(), n.inputs.end());
                for_each_subgraph(n, add);
            }
            for (const GraphInput& output : graph.outputs) read.insert(output.name);
        };
        add(g);
        std::erase_if(g.initializers, [&](const auto& pair) { return read.count(pair.first) == 0; });
        std::erase_if(g.nodes, [&](const Node& n) {
            return n.domain.empty() && n.op == "Constant" && n.outputs.size() == 1 && read.count(n.outputs[0]) == 0;
        });
    }

    struct Stored {
        std::string dequantised;
        Tensor scales;
    };
    const Layers& layers_;
    const std::map<std::string, Range>& ranges_;
    InsertOptions options_;
    std::map<std::string, const Tensor*> constants_;
    Model out_;
    std::string domain_;
    int64_t opset_ = 0;  ///< of the domain
    std::set<std::string> names_, nodes_;
    std::map<std::string, std::string> dequantised_;
    std::map<std::string, float> scales_;  ///< of quantised tensors
    std::map<std::pair<std::string, int64_t>, Stored> weights_;
};

}  // namespace

bool has_axes(const Model& model) {
    const auto opset = model.opsets.find("");
    return opset != model.opsets.end() && opset->second >= kAxesOpset;
}

ElementScale scale_of(Range range, ActivationType type) {
    if (type == ActivationType::S8) return {scale_for(std::max(-range.least, range.most), kLargest), 0};
    const float scale = scale_for(range.most - range.least, 255);
    const double zero = std::nearbyint(-range.least / static_cast<double>(scale));
    return {scale, static_cast<int64_t>(std::clamp(zero, 0.0, 255.0))};
}

QuantisedWeights quantise_weights(const Tensor& weights, std::optional<int64_t> axis) {
    int64_t channels = 1, inner = 1;
    if (axis) {
        channels = weights.shape()[static_cast<size_t>(*axis)];
        for (auto d = static_cast<size_t>(*axis) + 1; d < weights.shape().size(); ++d) inner *= weights.shape()[d];
    }
    const auto elements = weights.as<float>();
    const auto channel = [&](size_t k) { return k / static_cast<size_t>(inner) % static_cast<size_t>(channels); };
    std::vector<float> limits(static_cast<size_t>(channels));
    for (size_t k = 0; k < elements.size(); ++k) {
        if (!std::isfinite(elements[k])) continue;
        float& limit = limits[channel(k)];
        limit = std::max(limit, std::fabs(elements[k]));
    }
    std::vector<float> scales;
    for (const float limit : limits) scales.push_back(scale_for(static_cast<double>(limit), kLargest));
    QuantisedWeights q;
    q.elements = Tensor(DType::I8, weights.shape(), false);
    const auto to = q.elements.as_mutable<int8_t>();
    for (size_t k = 0; k < elements.size(); ++k) {
        const double units = static_cast<double>(elements[k]) / static_cast<double>(scales[channel(k)]);
        to[k] =
            std::isnan(units) ? int8_t{0} : static_cast<int8_t>(std::clamp(std::nearbyint(units), -kLargest, kLargest));
    }
    q.scales = Tensor::of(DType::F32, axis ? Shape{channels} : Shape{}, scales);
    return q;
}

Model insert_quantisation(const Model& model, const Layers& layers, const std::map<std::string, Range>& ranges,
                          const InsertOptions& options) {
    return Inserter(model, layers, ranges, options).run();
}

}  // namespace tilewright::quantize
