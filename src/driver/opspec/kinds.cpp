#include "driver/opspec/kinds.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "driver/zoo/ops.h"

namespace tilewright::nets {

namespace {

using Activation = Value (*)(GraphBuilder&, const Value&);

const std::vector<std::pair<std::string, Activation>>& activation_table() {
    static const std::vector<std::pair<std::string, Activation>> table = {
        {"none", [](GraphBuilder&, const Value& x) { return x; }},
        {"relu", relu},
        {"relu6", relu6},
        {"leaky_relu", leaky_relu},
        {"sigmoid", sigmoid},
        {"tanh", tanh},
        {"silu", silu},
        {"hard_swish", hard_swish},
        {"gelu", gelu},
        {"gelu_tanh", gelu_tanh},
        {"mish", mish},
    };
    return table;
}

}  // namespace

OpParam needed(const std::string& name, const std::string& help) {
    OpParam p;
    p.name = name;
    p.help = help;
    p.required = true;
    return p;
}

OpParam number(const std::string& name, int64_t fallback, const std::string& help, int64_t lowest) {
    OpParam p;
    p.name = name;
    p.fallback = std::to_string(fallback);
    p.help = help;
    p.lowest = lowest;
    return p;
}

OpParam as_other(const std::string& name, const std::string& other, const std::string& help) {
    OpParam p;
    p.name = name;
    p.fallback = "=" + other;
    p.help = help;
    return p;
}

OpParam flag(const std::string& name, const std::string& help) {
    OpParam p = number(name, 0, help, 0);
    p.highest = 1;
    return p;
}

OpParam optional_real(const std::string& name, const std::string& help) {
    OpParam p = needed(name, help);
    p.required = false;
    p.type = OpParam::Type::Real;
    return p;
}

OpParam choice(const std::string& name, const std::vector<std::string>& choices, const std::string& help) {
    OpParam p;
    p.name = name;
    p.type = OpParam::Type::Choice;
    p.fallback = choices.at(0);
    p.help = help;
    p.choices = choices;
    return p;
}

OpParam list(const std::string& name, const std::string& help, bool required, int64_t lowest) {
    OpParam p;
    p.name = name;
    p.type = OpParam::Type::Numbers;
    p.help = help;
    p.required = required;
    p.lowest = lowest;
    return p;
}

OpParam act_param() { return choice("act", activations(), "activation of the result"); }

const std::vector<std::string>& activations() {
    static const std::vector<std::string> names = [] {
        std::vector<std::string> out;
        for (const auto& entry : activation_table()) out.push_back(entry.first);
        return out;
    }();
    return names;
}

Value activate(GraphBuilder& b, const Value& x, const std::string& name) {
    for (const auto& [known, apply] : activation_table())
        if (known == name) return apply(b, x);
    TW_CHECK(false, "no activation '{}'", name);
    return x;
}

Value rms_norm(GraphBuilder& b, const std::string& name, const Value& x, float epsilon) {
    const auto scope = b.scope(name);
    const Value scale = b.weight("weight", {x.size(-1)}, Draw{1, 0.1});
    const Value squares = b.node("Pow", {x, b.scalar(2)});
    const Value root = b.node("Sqrt", {add(b, reduce_mean(b, squares, {-1}, true), b.scalar(epsilon))});
    return mul(b, div(b, x, root), scale);
}

Value swap_last(GraphBuilder& b, const Value& x) {
    Ints perm(static_cast<size_t>(x.rank()));
    std::iota(perm.begin(), perm.end(), int64_t{0});
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    return transpose(b, x, perm);
}

Value batched_input(GraphBuilder& b, const std::string& name, int64_t batch, const Ints& shape) {
    Extents extents(shape.begin(), shape.end());
    if (batch != 1) extents.insert(extents.begin(), Extent(batch));
    return b.input(name, DType::F32, extents);
}

}  // namespace tilewright::nets
