#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "index/map.h"
#include "program/program.h"
#include "program/scalar_eval.h"
#include "program/scalar_text.h"
#include "program/verify_index.h"

namespace tilewright {

namespace {

constexpr size_t kFewNames = 8;                // of a requirement that is used to check an index
constexpr int64_t kMaxOutputPoints = 1 << 16;  // for an output index that is checked point by point

class Verifier {
  public:
    Verifier(const Program& program, std::string prefix, std::set<Var> bound, std::vector<std::string>& faults)
        : p_(program), prefix_(std::move(prefix)), faults_(faults), bound_(std::move(bound)) {
        for (const Requirement& r : p_.requirements)
            if (variables(r.a).size() + variables(r.b).size() <= kFewNames) of_few_names_.push_back(r);
    }

    void run() {
        names();
        for (const size_t i : binding_order(p_)) {
            where_ = fmt::format("input {}", quoted(p_.inputs[i]));
            define(p_.inputs[i]);
        }
        for (const auto& [v, tensor] : p_.constants) constant(v, tensor);
        for (const Primitive& primitive : p_.primitives) {
            where_ = fmt::format("primitive '{}'", primitive.name);
            if (!primitive.outputs.empty()) where_ += fmt::format(" (value {})", quoted(primitive.outputs[0]));
            for (const ValueId v : primitive.inputs()) operand(v);
            check(primitive);
        }
        where_ = "program output";
        for (const ValueId v : p_.outputs) operand(v);
        for (const Requirement& r : p_.requirements) {
            where_ = fmt::format("requirement of {}", r.source.empty() ? "unknown origin" : r.source);
            uniform(r.a, r.what);
            uniform(r.b, r.what);
        }
    }

  private:
    template <class... Args>
    void fault(fmt::format_string<Args...> format, Args&&... args) {
        faults_.push_back(prefix_ + where_ + ": " + fmt::format(format, std::forward<Args>(args)...));
    }

    std::string quoted(ValueId v) const {
        return p_.values.contains(v) ? "'" + p_.values[v].name + "'" : fmt::format("number {}", v.value);
    }
    bool known(ValueId v) const { return p_.values.contains(v); }
    const Value& value(ValueId v) const { return p_.values[v]; }

    void names() {
        std::set<std::string_view> seen;
        for (const ValueId v : p_.values.ids()) {
            where_ = fmt::format("value {}", quoted(v));
            if (!seen.insert(value(v).name).second) fault("another value has the same name");
            for (const Expr d : value(v).shape) {
                if (!is_uniform(d)) fault("dimension {} uses an axis or a load", d.text());
                if (d.is_constant() && d.constant() < 0) fault("dimension {} is negative", d.text());
            }
        }
    }

    // --- definitions

    /// `binds`: bare dimensions are bound from the tensor; else the shape is computed.
    void define(ValueId v, bool binds = true) {
        if (!known(v)) return fault("value number {} does not exist", v.value);
        if (!defined_.insert(v).second) fault("value {} is defined twice", quoted(v));
        if (binds)
            for (const Expr d : value(v).shape)
                if (const auto s = bound_symbol(d)) bound_.insert(*s);
        for (const Expr d : value(v).shape) uniform(d, "the shape");
    }

    void operand(ValueId v) {
        if (!v) return;
        if (!known(v))
            fault("value number {} does not exist", v.value);
        else if (defined_.count(v) == 0)
            fault("value {} is read before it is computed", quoted(v));
    }

    void constant(ValueId v, const Tensor& tensor) {
        where_ = fmt::format("constant {}", quoted(v));
        if (!known(v)) return fault("value number {} does not exist", v.value);
        define(v, false);
        if (tensor.dtype() != value(v).dtype)
            fault("is declared {}, but holds {}", to_string(value(v).dtype), to_string(tensor.dtype()));
        std::vector<Expr> actual(tensor.shape().begin(), tensor.shape().end());
        if (actual != value(v).shape)
            fault("is declared {}, but holds {}", to_string(value(v).shape), to_string(actual));
    }

    /// Symbols and scalars of `e` must be bound already; axes and loads may not occur.
    void uniform(Expr e, std::string_view what) {
        for (const Var v : variables(e)) {
            if (v.kind == VarKind::Axis || v.kind == VarKind::Load)
                fault("{} uses {}", what, Expr::var(v).text());
            else
                bound(v, what);
        }
    }

    void bound(Var v, std::string_view what) {
        if (bound_.count(v) != 0) return;
        if (v.kind == VarKind::Scalar)
            fault("{} uses {}, which no primitive has read yet", what, Expr::var(v).text());
        else
            fault("{} uses {}, which is not a dimension of an earlier tensor", what, Expr::var(v).text());
        bound_.insert(v);  // reported once
    }

    // --- primitives

    void check(const Primitive& primitive) {
        if (const TensorExpr* e = primitive.expr()) {
            expression(primitive, *e);
        } else if (const auto* opaque = std::get_if<Opaque>(&primitive.kind)) {
            if (!opaque->op) fault("has no operator");
            for (const ValueId v : primitive.outputs) define(v);
        } else if (const auto* read = std::get_if<ReadScalar>(&primitive.kind)) {
            read_scalar(primitive, *read);
        } else if (const auto* branch = std::get_if<If>(&primitive.kind)) {
            conditional(primitive, *branch);
        } else if (const auto* loop = std::get_if<Loop>(&primitive.kind)) {
            iteration(primitive, *loop);
        }
    }

    void read_scalar(const Primitive& primitive, const ReadScalar& read) {
        if (!primitive.outputs.empty()) fault("reads a scalar and gives {} values", primitive.outputs.size());
        const Var v = *scalar(read.name).as_var();
        if (!bound_.insert(v).second) fault("scalar {} is read twice", Expr::var(v).text());
        if (!known(read.value)) return fault("reads no value");
        const Value& from = value(read.value);
        if (is_float(from.dtype)) fault("a scalar is read from {}, an integer was expected", to_string(from.dtype));
        const Expr count = product(from.shape);
        if (read.position < 0 || (count.is_constant() && read.position >= count.constant()))
            fault("element {} of {} elements is read", read.position, count.text());
    }

    void expression(const Primitive& primitive, const TensorExpr& e) {
        if (primitive.outputs.size() != 1) fault("an expression gives one value, found {}", primitive.outputs.size());
        if (e.spatial > e.extents.size()) return fault("{} spatial axes of {}", e.spatial, e.extents.size());
        if ((e.reducer == Reducer::None) != (e.spatial == e.extents.size()))
            fault("reducer '{}' with {} reduction axes", to_string(e.reducer), e.extents.size() - e.spatial);
        for (const Expr x : e.extents) {
            uniform(x, "an extent");
            if (x.is_constant() && x.constant() < 0) fault("extent {} is negative", x.text());
        }
        for (size_t k = 0; k < e.accesses.size(); ++k) access(e, k);
        body(e, e.body, false);
        if (!e.epilogue.empty()) body(e, e.epilogue, true);
        if (primitive.outputs.size() == 1 && known(primitive.outputs[0])) {
            define(primitive.outputs[0], false);
            result(e, value(primitive.outputs[0]));
        }
    }

    /// Variables of an index, condition or Index node: axes below `axes`, loads below `loads`.
    bool variables_fit(const TensorExpr& e, Expr x, size_t axes, size_t loads, std::string_view what) {
        bool fit = true;
        for (const Var v : variables(x)) {
            if (v.kind == VarKind::Axis && v.id >= axes) {
                fault("{} uses axis {} of {}", what, Expr::var(v).text(), axes);
                fit = false;
            } else if (v.kind == VarKind::Load) {
                if (v.id >= loads) {
                    fault("{} uses {}, which is not an earlier access", what, Expr::var(v).text());
                    fit = false;
                } else if (const ValueId from = e.accesses[v.id].value; known(from) && !is_integer(value(from).dtype)) {
                    fault("{} uses {}, which reads {}: an integer was expected", what, Expr::var(v).text(),
                          to_string(value(from).dtype));
                }
            } else if (v.kind == VarKind::Symbol || v.kind == VarKind::Scalar) {
                bound(v, what);
            }
        }
        return fit;
    }

    void access(const TensorExpr& e, size_t k) {
        const Access& a = e.accesses[k];
        if (!known(a.value)) return fault("access @{} reads no value", k);
        const Value& from = value(a.value);
        if (a.index.size() != from.shape.size())
            return fault("access @{} has {} indices into {}, which has {} dimensions", k, a.index.size(),
                         quoted(a.value), from.shape.size());
        bool fit = true;
        for (const Expr x : a.index)
            fit = variables_fit(e, x, e.extents.size(), k, fmt::format("an index of access @{}", k)) && fit;
        for (const Expr c : a.valid)
            fit = variables_fit(e, c, e.extents.size(), k, fmt::format("a condition of access @{}", k)) && fit;
        if (!a.valid.empty() && !is_float(from.dtype) &&
            (a.fill != std::trunc(a.fill) || static_cast<double>(scalar_from_double(from.dtype, a.fill).i) != a.fill))
            fault("access @{} fills {} with {}", k, to_string(from.dtype), a.fill);
        if (!fit) return;
        for (size_t d = 0; d < a.index.size(); ++d)
            if (const auto found = find_outside(a.index[d], from.shape[d], a.valid, e.extents, of_few_names_))
                fault("access @{} leaves dimension {} of {}, which is {}: index {}: {}", k, d, quoted(a.value),
                      from.shape[d].text(), a.index[d].text(), *found);
    }

    void body(const TensorExpr& e, const ScalarBody& b, bool epilogue) {
        const std::string_view what = epilogue ? "the epilogue" : "the body";
        if (b.empty()) return fault("{} is empty", what);
        if (!b.nodes().contains(b.root())) return fault("{} has no root", what);
        const ScalarBody needed = b.pruned();
        const DType acc = e.body.empty() ? DType::F32 : compute_type(e.body.dtype());
        for (const ScalarNode& n : needed.nodes()) {
            if (arity(n.op) > 0) {
                if (const std::string wrong = type_fault(needed, n); !wrong.empty()) fault("{}: {}", what, wrong);
            } else if (n.op == ScalarOp::Access) {
                slot(e, n, epilogue, what);
            } else if (n.op == ScalarOp::Acc) {
                if (!epilogue)
                    fault("the body uses acc, which only an epilogue has");
                else if (n.dtype != acc)
                    fault("the epilogue uses acc as {}, but its type is {}", to_string(n.dtype), to_string(acc));
            } else if (n.op == ScalarOp::Index) {
                if (n.dtype != DType::I64) fault("{}: an index is i64, not {}", what, to_string(n.dtype));
                variables_fit(e, n.index, epilogue ? e.spatial : e.extents.size(), e.accesses.size(), what);
            } else if (n.dtype != compute_type(n.dtype)) {
                fault("{}: a constant of type {}", what, to_string(n.dtype));
            }
        }
    }

    void slot(const TensorExpr& e, const ScalarNode& n, bool epilogue, std::string_view what) {
        if (n.slot >= e.accesses.size()) return fault("{} uses access @{} of {}", what, n.slot, e.accesses.size());
        const Access& a = e.accesses[n.slot];
        if (!known(a.value)) return;
        const DType type = compute_type(value(a.value).dtype);
        if (n.dtype != type)
            fault("{} takes access @{} for {}, but it is {}", what, n.slot, to_string(n.dtype), to_string(type));
        if (!epilogue) return;
        for (const Expr x : a.index)
            for (const Var v : variables(x))
                if (v.kind == VarKind::Axis && v.id >= e.spatial)
                    fault("the epilogue uses access @{}, whose index uses the reduction axis {}", n.slot,
                          Expr::var(v).text());
    }

    void result(const TensorExpr& e, const Value& out) {
        const ScalarBody& last = e.epilogue.empty() ? e.body : e.epilogue;
        if (!last.empty() && last.nodes().contains(last.root())) {
            const DType given = compute_type(last.dtype());
            if (given != compute_type(out.dtype))
                fault("gives {} where the value is {}", to_string(given), to_string(out.dtype));
            if ((e.reducer == Reducer::Sum || e.reducer == Reducer::Prod) && e.body.dtype() == DType::Bool)
                fault("reducer '{}' of booleans", to_string(e.reducer));
        }
        const auto spatial = std::span(e.extents).first(e.spatial);
        if (e.output_index.empty()) {
            bool same = spatial.size() == out.shape.size();
            for (size_t k = 0; same && k < spatial.size(); ++k) same = equal(spatial[k], out.shape[k]);
            if (!same)
                fault("has spatial extents {} where the value's shape is {}", to_string(spatial), to_string(out.shape));
            return;
        }
        if (e.output_index.size() != out.shape.size())
            return fault("has {} output indices where the value has {} dimensions", e.output_index.size(),
                         out.shape.size());
        bool fit = true;
        for (const Expr x : e.output_index) fit = variables_fit(e, x, e.spatial, 0, "the output index") && fit;
        if (fit) output_index(e, spatial, out);
    }

    static bool equal(Expr a, Expr b) { return a == b || simplify(a - b, {}).is_constant(0); }

    /// Checks that every element is reached exactly once: by the inverse, by counting, or (small and constant) point by
    /// point.
    void output_index(const TensorExpr& e, std::span<const Expr> spatial, const Value& out) {
        for (size_t d = 0; d < out.shape.size(); ++d)
            if (const auto found = find_outside(e.output_index[d], out.shape[d], {}, spatial))
                return fault("the output index leaves dimension {}, which is {}: index {}: {}", d, out.shape[d].text(),
                             e.output_index[d].text(), *found);
        if (invert({{spatial.begin(), spatial.end()}, e.output_index}, out.shape)) return;
        const Expr points = product(spatial), elements = product(out.shape);
        if (!points.is_constant() || !elements.is_constant()) return;
        if (!(points == elements))
            return fault("the output index maps {} points to {} elements", points.text(), elements.text());
        if (points.constant() > kMaxOutputPoints) return;
        std::set<std::vector<int64_t>> reached;
        std::vector<int64_t> at(spatial.size(), 0), element(out.shape.size());
        Env env;
        env.axes = at;
        for (int64_t n = 0; n < points.constant(); ++n) {
            for (size_t d = 0; d < element.size(); ++d) element[d] = evaluate(e.output_index[d], env);
            if (!reached.insert(element).second)
                return fault("the output index reaches element {} twice", to_string(element));
            for (size_t k = at.size(); k > 0 && ++at[k - 1] == spatial[k - 1].constant(); --k) at[k - 1] = 0;
        }
    }

    // --- control flow

    void arity_fault(std::string_view what, size_t expected, size_t found) {
        if (expected != found) fault("{}: expected {}, found {}", what, expected, found);
    }

    /// `rank_change`: of inner relative to outer, -1 where one is a slice of the other.
    void same_type(ValueId outer, const Program& inner_program, ValueId inner, std::string_view what,
                   int rank_change = 0) {
        if (!known(outer) || !inner_program.values.contains(inner)) return;
        const Value& a = value(outer);
        const Value& b = inner_program.values[inner];
        if (a.dtype != b.dtype)
            fault("{}: '{}' is {}, but '{}' is {}", what, a.name, to_string(a.dtype), b.name, to_string(b.dtype));
        if (a.shape.size() + static_cast<size_t>(rank_change) != b.shape.size())
            fault("{}: '{}' has {} dimensions, but '{}' has {}", what, a.name, a.shape.size(), b.name, b.shape.size());
    }

    void nested(const Program& body, std::string_view name) {
        const std::string prefix = fmt::format("{}{}, {}: ", prefix_, where_, name);
        Verifier(body, prefix, bound_, faults_).run();
    }

    void one_element(ValueId v, std::string_view what) {
        if (!known(v)) return fault("has no {}", what);
        const Value& c = value(v);
        const Expr count = product(c.shape);
        if (c.dtype != DType::Bool || (count.is_constant() && !count.is_constant(1)))
            fault("its {} is {}{}, one boolean was expected", what, to_string(c.dtype), to_string(c.shape));
    }

    void conditional(const Primitive& primitive, const If& branch) {
        one_element(branch.condition, "condition");
        for (const auto& [name, body] :
             {std::pair("then", branch.then_branch), std::pair("else", branch.else_branch)}) {
            if (!body) {
                fault("has no '{}' branch", name);
                continue;
            }
            arity_fault(fmt::format("inputs of the '{}' branch", name), branch.captures.size(), body->inputs.size());
            arity_fault(fmt::format("outputs of the '{}' branch", name), primitive.outputs.size(),
                        body->outputs.size());
            for (size_t k = 0; k < std::min(branch.captures.size(), body->inputs.size()); ++k)
                same_type(branch.captures[k], *body, body->inputs[k], fmt::format("input {} of '{}'", k, name));
            for (size_t k = 0; k < std::min(primitive.outputs.size(), body->outputs.size()); ++k)
                same_type(primitive.outputs[k], *body, body->outputs[k], fmt::format("output {} of '{}'", k, name));
            nested(*body, name);
        }
        for (const ValueId v : primitive.outputs) define(v);
    }

    void scalar_value(const Program& body, ValueId v, DType type, std::string_view what) {
        if (!body.values.contains(v)) return;
        const Value& x = body.values[v];
        const Expr count = product(x.shape);
        if (x.dtype != type || (count.is_constant() && !count.is_constant(1)))
            fault("the body's {} '{}' is {}{}, one {} was expected", what, x.name, to_string(x.dtype),
                  to_string(x.shape), to_string(type));
    }

    void scan_axis(const Value& v, int64_t axis) {
        if (axis < 0 || axis >= static_cast<int64_t>(v.shape.size()))
            fault("scans axis {} of '{}', which has {} dimensions", axis, v.name, v.shape.size());
    }

    void iteration(const Primitive& primitive, const Loop& loop) {
        if (loop.trip_count) uniform(*loop.trip_count, "the trip count");
        if (loop.condition) one_element(*loop.condition, "condition");
        const size_t results = loop.carried.size() + loop.scan_outputs.size();
        arity_fault("outputs", results, primitive.outputs.size());
        for (const Loop::ScanInput& s : loop.scan_inputs)
            if (known(s.value)) scan_axis(value(s.value), s.axis);
        for (size_t k = loop.carried.size(); k < std::min(results, primitive.outputs.size()); ++k)
            if (known(primitive.outputs[k]))
                scan_axis(value(primitive.outputs[k]), loop.scan_outputs[k - loop.carried.size()].axis);
        if (!loop.body) {
            fault("has no body");
        } else {
            loop_body(primitive, loop, *loop.body);
            nested(*loop.body, "body");
        }
        for (const ValueId v : primitive.outputs) define(v);
    }

    void loop_body(const Primitive& primitive, const Loop& loop, const Program& body) {
        const size_t flags = loop.has_condition ? 1 : 0;
        const size_t takes = 1 + flags + loop.carried.size() + loop.scan_inputs.size() + loop.captures.size();
        const size_t gives = flags + loop.carried.size() + loop.scan_outputs.size();
        arity_fault("inputs of the body", takes, body.inputs.size());
        arity_fault("outputs of the body", gives, body.outputs.size());
        if (body.inputs.size() != takes || body.outputs.size() != gives || primitive.outputs.size() + flags != gives)
            return;
        size_t in = 0, out = 0;
        scalar_value(body, body.inputs[in++], DType::I64, "iteration number");
        if (loop.has_condition) {
            scalar_value(body, body.inputs[in++], DType::Bool, "condition");
            scalar_value(body, body.outputs[out++], DType::Bool, "condition");
        }
        for (size_t k = 0; k < loop.carried.size(); ++k) {
            same_type(loop.carried[k], body, body.inputs[in++], fmt::format("carried value {}", k));
            same_type(primitive.outputs[k], body, body.outputs[out++], fmt::format("carried value {}", k));
        }
        for (size_t k = 0; k < loop.scan_inputs.size(); ++k)
            same_type(loop.scan_inputs[k].value, body, body.inputs[in++], fmt::format("scan input {}", k), -1);
        for (size_t k = 0; k < loop.captures.size(); ++k)
            same_type(loop.captures[k], body, body.inputs[in++], fmt::format("capture {}", k));
        for (size_t k = 0; k < loop.scan_outputs.size(); ++k)
            same_type(primitive.outputs[loop.carried.size() + k], body, body.outputs[out++],
                      fmt::format("scan output {}", k), -1);
    }

    const Program& p_;
    std::vector<Requirement> of_few_names_;
    std::string prefix_, where_;
    std::vector<std::string>& faults_;
    std::set<Var> bound_;  ///< bound symbols and scalars
    std::set<ValueId> defined_;
};

}  // namespace

std::vector<std::string> verify(const Program& program) {
    std::vector<std::string> faults;
    Verifier(program, "", {}, faults).run();
    return faults;
}

}  // namespace tilewright
