#include "opaque/custom.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/quoted_name.h"
#include "opaque/text.h"
#include "program/text.h"
#include "runtime/float_mode.h"

namespace tilewright {

namespace {

/// Between codes of sizes: larger than any difference that a caller's own arithmetic has.
constexpr uint64_t kCodeStep = 1'000'003;
constexpr const char* kText = "text of a custom operator";
constexpr std::string_view kAttributePrefix = "attribute ";

std::string describe(const CustomNode& node, const CustomOperator& op) {
    return fmt::format("node {} ({})", quoted_name(node.name), operator_title(op.domain, op.name));
}

/// Calls `f`; its ModelErrors then begin with the node.
template <class F>
void describing(const CustomNode& node, const CustomOperator& op, F&& f) {
    const ScopedFloatMode mode((FloatMode()));  // that of new threads, not that of kernels
    try {
        f();
    } catch (const ModelError& e) {
        throw ModelError(fmt::format("{}: {}", describe(node, op), e.what()), e.hint());
    }
}

// --- attributes as text: "i:1", "f:0.5", "s:text", "I:1,2", "F:0.5,1", "t:2"

std::string attribute_text(const CustomAttribute& attribute) {
    std::string text;
    const auto list = [&text](const auto& all, const auto& one) {
        for (const auto& v : all) text += (text.empty() ? "" : ",") + one(v);
    };
    switch (attribute.index()) {
        case 0:
            return fmt::format("i:{}", std::get<int64_t>(attribute));
        case 1:
            return "f:" + float_text(std::get<float>(attribute));
        case 2:
            return "s:" + std::get<std::string>(attribute);
        case 3:
            list(std::get<std::vector<int64_t>>(attribute), [](int64_t v) { return std::to_string(v); });
            return "I:" + text;
        case 4:
            list(std::get<std::vector<float>>(attribute), [](float v) { return float_text(v); });
            return "F:" + text;
        default:
            return fmt::format("t:{}", std::get<TensorOperand>(attribute).operand);
    }
}

CustomAttribute attribute_of(std::string_view text) {
    if (text.size() < 2 || text[1] != ':') model_error("{}: an attribute has no kind", kText);
    TextCursor cursor(text.substr(2), kText);
    const auto list = [&cursor](const auto& one) {
        std::vector<std::decay_t<decltype(one())>> all;
        while (!cursor.at_end()) {
            if (!all.empty()) cursor.expect(",");
            all.push_back(one());
        }
        return all;
    };
    switch (text[0]) {
        case 'i':
            return cursor.integer();
        case 'f':
            return cursor.single();
        case 's':
            return std::string(text.substr(2));
        case 'I':
            return list([&] { return cursor.integer(); });
        case 'F':
            return list([&] { return cursor.single(); });
        case 't':
            return TensorOperand{static_cast<size_t>(cursor.integer())};
        default:
            model_error("{}: an attribute is of the unknown kind '{}'", kText, text[0]);
    }
}

size_t operand_count(const CustomNode& node) {
    return node.inputs +
           static_cast<size_t>(std::count_if(node.attributes.begin(), node.attributes.end(), [](const auto& a) {
               return std::holds_alternative<TensorOperand>(a.second);
           }));
}

class Custom final : public OpaqueOp {
  public:
    Custom(std::shared_ptr<const CustomOperator> op, CustomNode node)
        : op_(std::move(op)), node_(std::move(node)), operands_(operand_count(node_)) {}

    std::string print() const override {
        std::string s = fmt::format("{}(domain={}, name={}, version={}, node={}, inputs={}, outputs={}", kCustomName,
                                    name_text(op_->domain), name_text(op_->name), node_.version, name_text(node_.name),
                                    node_.inputs, node_.outputs);
        for (const auto& [name, value] : node_.attributes)
            s += fmt::format(", {}={}", name_text(std::string(kAttributePrefix) + name),
                             name_text(attribute_text(value)));
        return s + ")";
    }

    void run(std::span<const TensorView> inputs, OpaqueOutputs& outputs) const override {
        TW_CHECK(inputs.size() == operands_, "{} has {} operands", print(), inputs.size());
        std::vector<CustomCall::Operand> operands;
        for (const TensorView& v : inputs)
            operands.push_back({v.data != nullptr || !v.shape.empty(), v.dtype, Shape(v.shape.begin(), v.shape.end()),
                                v.data != nullptr ? v.data : kNoElements});
        CustomCall call(node_, std::move(operands));
        describing(node_, *op_, [&] {
            op_->infer(call);
            call.memory = &outputs;
            for (size_t k = 0; k < node_.outputs; ++k) {
                const Shape& sizes = call.results[k].sizes;
                if (!call.results[k].dtype) model_error("output {} was given no type", k);
                if (std::find(sizes.begin(), sizes.end(), kUnknownSize) == sizes.end()) call.allocate(k, sizes);
            }
            op_->compute(call);
            for (size_t k = 0; k < node_.outputs; ++k)
                if (!call.results[k].tensor) model_error("output {} was given no memory: its size is unknown", k);
        });
    }

    bool deterministic() const override { return !op_->varies; }
    const std::shared_ptr<const CustomOperator>& op() const { return op_; }

  private:
    alignas(64) static constexpr char kNoElements[64] = {};

    std::shared_ptr<const CustomOperator> op_;
    CustomNode node_;
    size_t operands_;
};

}  // namespace

std::string operator_title(std::string_view domain, std::string_view name) {
    const std::string full = domain.empty() ? std::string(name) : fmt::format("{}.{}", domain, name);
    const std::string quoted = quoted_name(full);
    return quoted.ends_with('\'') ? quoted.substr(1, quoted.size() - 2) : quoted;
}

// --- sizes

int64_t SizeCodes::code(Expr e) {
    if (e.is_constant() && e.constant() >= 0) return e.constant();
    auto it = std::find(expressions_.begin(), expressions_.end(), e);
    if (it == expressions_.end()) it = expressions_.insert(it, e);
    const auto position = static_cast<uint64_t>(it - expressions_.begin());
    return static_cast<int64_t>(static_cast<uint64_t>(INT64_MIN) + (position + 1) * kCodeStep);
}

std::optional<Expr> SizeCodes::size(int64_t code) const {
    if (code >= 0) return Expr(code);
    const uint64_t distance = static_cast<uint64_t>(code) - static_cast<uint64_t>(INT64_MIN);
    if (distance % kCodeStep != 0 || distance == 0 || distance / kCodeStep > expressions_.size()) return std::nullopt;
    return expressions_[distance / kCodeStep - 1];
}

// --- calls

void CustomCall::set_output(size_t k, DType dtype, Shape sizes) {
    if (memory != nullptr) model_error("output {} is given a type while it is computed", k);
    if (k >= results.size()) model_error("output {} is given a type, and the node has {}", k, results.size());
    for (size_t d = 0; d < sizes.size(); ++d) {
        if (sizes[d] == kUnknownSize) continue;
        const std::optional<Expr> size = codes.size(sizes[d]);
        if (!size)
            throw ModelError(fmt::format("dimension {} of output {} is {}, which is no size", d, k, sizes[d]),
                             "sizes below -1 stand for dynamic dimensions: compute with them by tilewright_call_add "
                             "and the like");
        if (size->is_constant() && size->constant() < 0)
            model_error("dimension {} of output {} is {}", d, k, size->constant());
    }
    results[k].dtype = dtype;
    results[k].sizes = std::move(sizes);
}

void* CustomCall::allocate(size_t k, const Shape& sizes) {
    if (memory == nullptr) model_error("memory for output {} is requested before it is computed", k);
    if (k >= results.size()) model_error("memory is requested for output {}, and the node has {}", k, results.size());
    Result& r = results[k];
    if (r.tensor) model_error("memory for output {} is requested twice", k);
    if (sizes.size() != r.sizes.size())
        model_error("memory for output {} is requested with {} dimensions, and its type has {}", k, sizes.size(),
                    r.sizes.size());
    for (size_t d = 0; d < sizes.size(); ++d)
        if (sizes[d] < 0 || (r.sizes[d] != kUnknownSize && r.sizes[d] != sizes[d]))
            model_error("memory for output {} is requested with {} elements in dimension {}, and its type has {}", k,
                        sizes[d], d, r.sizes[d] == kUnknownSize ? "any number" : std::to_string(r.sizes[d]));
    r.tensor = memory->allocate(k, sizes);
    if (r.tensor->dtype != r.dtype)
        model_error("output {} is of type {}, and was {} when the model was compiled", k, to_string(*r.dtype),
                    to_string(r.tensor->dtype));
    return r.tensor->data;
}

int64_t CustomCall::combine(int64_t a, int64_t b, Arithmetic f) {
    if (a == kUnknownSize || b == kUnknownSize) return kUnknownSize;
    const std::optional<Expr> x = codes.size(a), y = codes.size(b);
    if (!x || !y) model_error("{} is no size", x ? b : a);
    return codes.code(f(*x, *y));
}

// --- operators by name

CustomOperators CustomOperators::any() {
    CustomOperators all;
    all.any_ = true;
    return all;
}

void CustomOperators::add(std::shared_ptr<const CustomOperator> op) {
    const CustomOperator& o = *op;
    if (!by_name_[{o.domain, o.name}].emplace(o.version, std::move(op)).second)
        model_error("the operator {} is given twice in version {}", operator_title(o.domain, o.name), o.version);
}

bool CustomOperators::has(const std::string& domain, const std::string& name) const {
    return any_ || by_name_.count({domain, name}) != 0;
}

std::shared_ptr<const CustomOperator> CustomOperators::find(const std::string& domain, const std::string& name,
                                                            int64_t version) const {
    const auto it = by_name_.find({domain, name});
    if (it == by_name_.end()) {
        const std::string missing = fmt::format("the operator {} was not given", operator_title(domain, name));
        if (!any_) throw ModelError(missing, "give it by --operators or tilewright_load_with");
        const auto fail = [missing](CustomCall&) { throw ModelError(missing); };
        auto stub = std::make_shared<CustomOperator>();
        stub->domain = domain;
        stub->name = name;
        stub->infer = stub->compute = fail;
        return stub;
    }
    const auto after = it->second.upper_bound(version);
    if (after == it->second.begin())
        model_error("the operator {} was given from version {} on, and version {} of its domain is imported",
                    operator_title(domain, name), after->first, version);
    return std::prev(after)->second;
}

// --- nodes

std::vector<InferredOutput> infer_outputs(const CustomOperator& op, const CustomNode& node,
                                          const std::vector<KnownOperand>& operands) {
    CustomCall call(node, {});
    for (const KnownOperand& o : operands) {
        CustomCall::Operand& to = call.operands.emplace_back();
        to.given = o.given;
        to.dtype = o.dtype;
        for (const Expr e : o.shape) to.sizes.push_back(call.codes.code(e));
        to.data = o.contents;
    }
    std::vector<InferredOutput> outputs;
    describing(node, op, [&] {
        op.infer(call);
        for (size_t k = 0; k < node.outputs; ++k) {
            const CustomCall::Result& r = call.results[k];
            if (!r.dtype) model_error("output {} was given no type", k);
            InferredOutput& out = outputs.emplace_back();
            out.dtype = *r.dtype;
            for (const int64_t size : r.sizes)
                out.shape.push_back(size == kUnknownSize ? std::nullopt : call.codes.size(size));
        }
    });
    return outputs;
}

namespace opaque {

Operator custom(std::shared_ptr<const CustomOperator> op, CustomNode node) {
    return std::make_shared<Custom>(std::move(op), std::move(node));
}

}  // namespace opaque

std::shared_ptr<const CustomOperator> custom_operator_of(const OpaqueOp& op) {
    const auto* custom = dynamic_cast<const Custom*>(&op);
    return custom != nullptr ? custom->op() : nullptr;
}

OpaquePointer read_custom(const OpaqueText& text, const CustomOperators* operators) {
    static const CustomOperators kNone;
    CustomNode node;
    node.name = text.text("node");
    node.version = text.integer("version");
    const int64_t inputs = text.integer("inputs"), outputs = text.integer("outputs");
    if (inputs < 0 || outputs < 0) model_error("{}: {} inputs, {} outputs", kText, inputs, outputs);
    node.inputs = static_cast<size_t>(inputs);
    node.outputs = static_cast<size_t>(outputs);
    for (const auto& [key, value] : text.values())
        if (key.starts_with(kAttributePrefix))
            node.attributes.emplace(key.substr(kAttributePrefix.size()), attribute_of(value));
    const size_t operands = operand_count(node);
    for (const auto& [name, attribute] : node.attributes)
        if (const auto* t = std::get_if<TensorOperand>(&attribute);
            t != nullptr && (t->operand < node.inputs || t->operand >= operands))
            model_error("{}: attribute {} is no operand", kText, quoted_name(name));
    std::shared_ptr<const CustomOperator> op =
        (operators != nullptr ? *operators : kNone).find(text.text("domain"), text.text("name"), node.version);
    return opaque::custom(std::move(op), std::move(node));
}

}  // namespace tilewright
