#include "program/program.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace tilewright {

bool has_names(const TensorExpr& e) {
    const auto has_name = [](Expr x) {
        const std::vector<Var> all = variables(x);
        return std::any_of(all.begin(), all.end(),
                           [](Var v) { return v.kind == VarKind::Symbol || v.kind == VarKind::Scalar; });
    };
    const auto any = [&](const std::vector<Expr>& list) { return std::any_of(list.begin(), list.end(), has_name); };
    const auto in_body = [&](const ScalarBody& b) {
        return std::any_of(b.nodes().begin(), b.nodes().end(),
                           [&](const ScalarNode& n) { return n.op == ScalarOp::Index && has_name(n.index); });
    };
    return any(e.extents) || any(e.output_index) || in_body(e.body) || in_body(e.epilogue) ||
           std::any_of(e.accesses.begin(), e.accesses.end(),
                       [&](const Access& a) { return any(a.index) || any(a.valid); });
}

bool Requirement::holds(int64_t a_is, int64_t b_is) const {
    switch (kind) {
        case Kind::Equal:
            return a_is == b_is;
        case Kind::Broadcast:
            // The result is their maximum, which is wrong for 0 and 1; no other valid case is rejected.
            return a_is == b_is || (a_is == 1 && b_is > 0) || (b_is == 1 && a_is > 0);
        case Kind::Spread:
            return a_is == b_is || a_is == 1;
        case Kind::AtLeast:
        case Kind::Declared:
            return a_is >= b_is;
    }
    return false;
}

namespace {

constexpr size_t kLongestShown = 80;  ///< characters; an expression of many names is no help in a message

/// The name in the model: "N" for $N. None for expressions that do not help.
std::string shown(Expr e) {
    const std::optional<Var> size = bound_symbol(e);
    std::string text = e.is_constant() ? "" : size ? size_name(*size).name : e.text();
    text.erase(std::remove_if(text.begin(), text.end(), [](char c) { return c == '$' || c == '?'; }), text.end());
    return text.size() <= kLongestShown ? text : "";
}

/// "N is dimension 0 of 'a', M is dimension 1 of 'b'": the input dimensions that the caller can change.
std::string where_given(const Requirement& r, const Program& p) {
    std::vector<Var> names = variables(r.a);
    for (const Var v : variables(r.b))
        if (std::find(names.begin(), names.end(), v) == names.end()) names.push_back(v);
    std::string text;
    for (const Var name : names) {
        const auto given = [&]() -> std::string {
            for (const ValueId v : p.inputs)
                for (size_t d = 0; d < p.values[v].shape.size(); ++d)
                    if (bound_symbol(p.values[v].shape[d]) == name)
                        return fmt::format("{} is dimension {} of '{}'", shown(p.values[v].shape[d]), d,
                                           p.values[v].name);
            return "";
        }();
        if (!given.empty()) text += (text.empty() ? "" : ", ") + given;
    }
    return text;
}

}  // namespace

void check(const Requirement& r, const Program& program, const std::function<int64_t(Expr)>& number) {
    std::string found;
    try {
        const int64_t a = number(r.a), b = number(r.b);
        if (r.holds(a, b)) return;
        found = r.violated(a, b);
    } catch (const ModelError& e) {  // beyond 64 bits
        found = fmt::format("{}{}{}: {}", r.source, r.source.empty() ? "" : ": ", r.what, e.what());
    }
    if (r.when == Requirement::Check::Fallback) throw NeedsFallback(found);
    const std::string where = where_given(r, program);
    throw ModelError(found, where.empty() ? "" : "give inputs whose sizes fit: " + where);
}

std::string Requirement::violated(int64_t a_is, int64_t b_is) const {
    const auto number = [](Expr e, int64_t is) {
        const std::string text = shown(e);
        return text.empty() ? std::to_string(is) : fmt::format("{} = {}", text, is);
    };
    std::string_view how;
    switch (kind) {
        case Kind::Equal:
            how = "differ";
            break;
        case Kind::Broadcast:
            how = "do not broadcast";
            break;
        case Kind::Spread:
            how = "do not broadcast: the first should be 1 or the second";
            break;
        case Kind::AtLeast:
            how = "do not fit: the first should not be smaller";
            break;
        case Kind::Declared:
            return fmt::format("dimension {}, and the model is compiled for {}",
                               a.is_constant() ? number(b, b_is) : number(a, a_is), what);
    }
    return fmt::format("{}{}{} {} and {} {}", source, source.empty() ? "" : ": ", what, number(a, a_is),
                       number(b, b_is), how);
}

std::string_view to_string(Requirement::Kind kind) {
    switch (kind) {
        case Requirement::Kind::Equal:
            return "equal";
        case Requirement::Kind::Broadcast:
            return "broadcast";
        case Requirement::Kind::Spread:
            return "spread";
        case Requirement::Kind::AtLeast:
            return "at_least";
        case Requirement::Kind::Declared:
            return "declared";
    }
    return "equal";
}

std::string_view to_string(Requirement::Check check) {
    switch (check) {
        case Requirement::Check::Free:
            return "free";
        case Requirement::Check::Always:
            return "always";
        case Requirement::Check::Fallback:
            return "fallback";
    }
    return "free";
}

std::vector<Expr> result_index(const TensorExpr& e) {
    if (!e.output_index.empty()) return e.output_index;
    std::vector<Expr> index;
    index.reserve(e.spatial);
    for (size_t a = 0; a < e.spatial; ++a) index.push_back(axis(a));
    return index;
}

std::string_view to_string(Reducer r) {
    switch (r) {
        case Reducer::None:
            return "none";
        case Reducer::Sum:
            return "sum";
        case Reducer::Prod:
            return "prod";
        case Reducer::Max:
            return "max";
        case Reducer::Min:
            return "min";
    }
    return "none";
}

std::string_view to_string(Category c) {
    switch (c) {
        case Category::Elementwise:
            return "elementwise";
        case Category::Broadcast:
            return "broadcast";
        case Category::Reduce:
            return "reduce";
        case Category::Layout:
            return "layout";
        case Category::Linear:
            return "linear";
        case Category::Opaque:
            return "opaque";
        case Category::Control:
            return "control";
    }
    return "elementwise";
}

void Origin::add(const Origin& other) {
    const auto merge = [](std::vector<uint32_t>& to, const std::vector<uint32_t>& from) {
        if (from.empty()) return;
        std::vector<uint32_t> both;
        std::set_union(to.begin(), to.end(), from.begin(), from.end(), std::back_inserter(both));
        to = std::move(both);
    };
    merge(nodes, other.nodes);
    merge(parts, other.parts);
}

std::vector<ValueId> Primitive::inputs() const {
    std::vector<ValueId> out;
    const auto add = [&](ValueId v) {
        if (v && std::find(out.begin(), out.end(), v) == out.end()) out.push_back(v);
    };
    if (const TensorExpr* e = expr()) {
        for (const Access& a : e->accesses) add(a.value);
    } else if (const auto* opaque = std::get_if<Opaque>(&kind)) {
        for (const ValueId v : opaque->inputs) add(v);
    } else if (const auto* read = std::get_if<ReadScalar>(&kind)) {
        add(read->value);
    } else if (const auto* branch = std::get_if<If>(&kind)) {
        add(branch->condition);
        for (const ValueId v : branch->captures) add(v);
    } else if (const auto* loop = std::get_if<Loop>(&kind)) {
        if (loop->condition) add(*loop->condition);
        for (const ValueId v : loop->carried) add(v);
        for (const Loop::ScanInput& s : loop->scan_inputs) add(s.value);
        for (const ValueId v : loop->captures) add(v);
    }
    return out;
}

IndexVector<ValueId, PrimitiveId> Program::producers() const {
    IndexVector<ValueId, PrimitiveId> out(values.size());
    for (const PrimitiveId p : primitives.ids())
        for (const ValueId v : primitives[p].outputs) out[v] = p;
    return out;
}

IndexVector<ValueId, std::vector<PrimitiveId>> Program::consumers() const {
    IndexVector<ValueId, std::vector<PrimitiveId>> out(values.size());
    for (const PrimitiveId p : primitives.ids())
        for (const ValueId v : primitives[p].inputs()) out[v].push_back(p);
    return out;
}

void bind_shape(Bindings& bindings, std::span<const Expr> shape, std::span<const int64_t> actual,
                std::string_view what) {
    if (shape.size() != actual.size())
        model_error("{} has {} dimensions, {}, where {} are expected, {}", what, actual.size(), to_string(actual),
                    shape.size(), to_string(shape));
    for (size_t d = 0; d < shape.size(); ++d) {
        if (const auto v = bound_symbol(shape[d])) bindings.try_emplace(*v, actual[d] / size_name(*v).step);
    }
    for (size_t d = 0; d < shape.size(); ++d) {
        const int64_t expected = evaluate(shape[d], bindings);
        if (expected == actual[d]) continue;
        if (shape[d].is_constant())
            model_error("{} has shape {}: dimension {} is {} where {} is expected", what, to_string(actual), d,
                        actual[d], expected);
        model_error("{} has shape {}: dimension {} is {} where {} = {} is expected", what, to_string(actual), d,
                    actual[d], shape[d].text(), expected);
    }
}

std::vector<size_t> binding_order(const Program& program) {
    std::vector<size_t> order(program.inputs.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_partition(order.begin(), order.end(), [&](size_t i) {
        if (!program.values.contains(program.inputs[i])) return true;  // a fault, which verify() reports
        const std::vector<Expr>& shape = program.values[program.inputs[i]].shape;
        return std::all_of(shape.begin(), shape.end(), [](Expr d) { return d.is_constant() || bound_symbol(d); });
    });
    return order;
}

int64_t evaluate(Expr e, const Bindings& bindings) {
    if (e.is_constant()) return e.constant();
    const std::function<std::optional<int64_t>(Var)> names = [&](Var v) -> std::optional<int64_t> {
        const auto it = bindings.find(v);
        if (it == bindings.end()) return std::nullopt;
        return it->second;
    };
    Env env;
    env.names = &names;
    return evaluate(e, env);
}

Shape evaluate(std::span<const Expr> shape, const Bindings& bindings) {
    Shape out;
    out.reserve(shape.size());
    for (const Expr e : shape) out.push_back(evaluate(e, bindings));
    return out;
}

}  // namespace tilewright
