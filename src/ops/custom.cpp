// Operators of the library's caller: opaque operators, whose shapes their own function infers.

#include "ops/custom.h"

#include "base/quoted_name.h"

namespace tilewright {

namespace {

void check_counts(const NodeContext& c, const CustomOperator& op) {
    const size_t inputs = c.input_count(), outputs = c.node.outputs.size();
    c.require(inputs <= op.most_inputs,
              fmt::format("the node has {} inputs, and the operator at most {}", inputs, op.most_inputs));
    c.require(outputs <= op.most_outputs,
              fmt::format("the node has {} outputs, and the operator at most {}", outputs, op.most_outputs));
    for (size_t i = 0; i < op.least_inputs; ++i) c.require(c.has(i), fmt::format("input {} is missing", i));
}

/// Tensors become operands behind `operands`.
CustomAttribute attribute_of(NodeContext& c, const std::string& name, const Attribute& value,
                             std::vector<ValueId>& operands) {
    if (const auto* v = std::get_if<int64_t>(&value)) return *v;
    if (const auto* v = std::get_if<float>(&value)) return *v;
    if (const auto* v = std::get_if<std::string>(&value)) return *v;
    if (const auto* v = std::get_if<std::vector<int64_t>>(&value)) return *v;
    if (const auto* v = std::get_if<std::vector<float>>(&value)) return *v;
    const auto* tensor = std::get_if<Tensor>(&value);
    if (tensor == nullptr)
        c.unsupported(
            fmt::format("attribute {} is of a kind that custom operators do not have (a list of strings or "
                        "tensors, or a graph)",
                        quoted_name(name)));
    operands.push_back(c.b.constant(*tensor, name));
    return TensorOperand{operands.size() - 1};
}

std::vector<KnownOperand> known(const Builder& b, const std::vector<ValueId>& operands) {
    std::vector<KnownOperand> all;
    for (const ValueId v : operands) {
        KnownOperand& o = all.emplace_back();
        if (!v) continue;
        const Tensor* contents = b.contents(v);
        o = {true, b.dtype(v), b.shape(v), contents != nullptr ? contents->data() : nullptr};
    }
    return all;
}

}  // namespace

void lower_custom(NodeContext& c, const std::shared_ptr<const CustomOperator>& op) {
    check_counts(c, *op);
    CustomNode node;
    node.name = c.node.name;
    node.version = c.node.opset;
    node.inputs = c.input_count();
    node.outputs = c.node.outputs.size();
    std::vector<ValueId> operands;
    for (size_t i = 0; i < node.inputs; ++i) operands.push_back(c.has(i) ? c.in(i) : ValueId{});
    for (const auto& [name, value] : c.node.attributes)
        node.attributes.emplace(name, attribute_of(c, name, value, operands));

    std::vector<std::pair<DType, Dims>> outputs;
    for (const InferredOutput& inferred : infer_outputs(*op, node, known(c.b, operands))) {
        Dims shape;
        for (const std::optional<Expr>& size : inferred.shape)
            shape.push_back(size ? c.b.settled(*size) : c.b.fresh_symbol(op->name));
        outputs.emplace_back(inferred.dtype, std::move(shape));
    }
    const std::vector<ValueId> y =
        c.b.emit_opaque(opaque::custom(op, std::move(node)), std::move(operands), std::move(outputs), "custom");
    for (size_t k = 0; k < y.size(); ++k) c.out(k, y[k]);
}

}  // namespace tilewright
