#include "program/rewrite/algebra.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "program/transform/inline.h"
#include "program/transform/tidy.h"

namespace tilewright {

bool is_real(DType t) { return t == DType::F32 || t == DType::F64; }

bool is_sum(const TensorExpr& e, DType made) {
    return e.reducer == Reducer::Sum && e.epilogue.empty() && e.output_index.empty() && is_real(made) &&
           e.body.dtype() == made;
}

bool is_map(const TensorExpr& e, DType made) {
    return e.reducer == Reducer::None && e.epilogue.empty() && e.output_index.empty() && is_real(made) &&
           e.body.dtype() == made;
}

bool is_view(const TensorExpr& e) {
    return e.reducer == Reducer::None && e.epilogue.empty() && e.output_index.empty() && e.accesses.size() == 1 &&
           e.body[e.body.root()].op == ScalarOp::Access;
}

bool is_identity(const RewriteContext& context, const TensorExpr& e) {
    if (!is_view(e) || !e.accesses[0].valid.empty()) return false;
    return context.value(e.accesses[0].value).shape == e.extents && at_own_point(e, e.accesses[0]);
}

bool same_index(std::span<const Expr> extents, const std::vector<Expr>& index, const std::vector<Expr>& expected) {
    const auto at_zero = [&](Expr e) {
        return substitute(e, [&](Var v) -> std::optional<Expr> {
            if (v.kind == VarKind::Axis && v.id < extents.size() && extents[v.id].is_constant(1)) return Expr(0);
            return std::nullopt;
        });
    };
    if (index.size() != expected.size()) return false;
    for (size_t k = 0; k < index.size(); ++k)
        if (!(at_zero(index[k]) == at_zero(expected[k]))) return false;
    return true;
}

bool at_own_point(const TensorExpr& e, const Access& a) {
    return a.valid.empty() && same_index(e.extents, a.index, plain_axes(e.spatial));
}

namespace {

/// Calls f once for each node that `node` depends on, including itself. Bodies are DAGs: expanded to a tree, their
/// size may be exponential in the number of nodes.
template <class F>
void each_below(const ScalarBody& body, ScalarId node, F&& f) {
    std::vector<char> needed(node.index() + 1, 0);
    needed[node.index()] = 1;
    for (size_t k = node.index() + 1; k-- > 0;) {  // operands precede their users
        if (needed[k] == 0) continue;
        const ScalarNode& n = body[ScalarId(k)];
        f(n);
        for (const ScalarId o : {n.a, n.b, n.c})
            if (o) needed[o.index()] = 1;
    }
}

/// Axes used in indices and conditions, including those of the loads in them.
class AxesBelow {
  public:
    explicit AxesBelow(const TensorExpr& e) : e_(e), seen_(e.accesses.size(), 0) {}
    std::set<uint32_t> axes;

    void add(Expr x) {
        for (const Var v : variables(x)) {
            if (v.kind == VarKind::Axis) axes.insert(v.id);
            if (v.kind == VarKind::Load) add_access(v.id);
        }
    }
    void add_access(uint32_t slot) {
        if (std::exchange(seen_.at(slot), 1) != 0) return;
        for (const Expr x : e_.accesses[slot].index) add(x);
        for (const Expr x : e_.accesses[slot].valid) add(x);
    }

  private:
    const TensorExpr& e_;
    std::vector<char> seen_;
};

/// Beyond this many factors, the rest is one factor: x * x of x * x ... has exponentially many factors.
constexpr size_t kMaxFactors = 32;

void add_factors(const ScalarBody& body, ScalarId node, bool under, std::vector<Factor>& out) {
    const ScalarNode& n = body[node];
    if ((n.op == ScalarOp::Mul || n.op == ScalarOp::Div) && out.size() < kMaxFactors) {
        add_factors(body, n.a, under, out);
        add_factors(body, n.b, under != (n.op == ScalarOp::Div), out);
    } else if (!(n.op == ScalarOp::Const && n.value == 1)) {
        out.push_back({node, under});
    }
}

}  // namespace

std::set<uint32_t> axes_below(const TensorExpr& e, ScalarId node) {
    AxesBelow below(e);
    each_below(e.body, node, [&](const ScalarNode& n) {
        if (n.op == ScalarOp::Index) below.add(n.index);
        if (n.op == ScalarOp::Access) below.add_access(n.slot);
    });
    return std::move(below.axes);
}

std::set<uint32_t> slots_below(const ScalarBody& body, ScalarId node) {
    std::set<uint32_t> slots;
    each_below(body, node, [&](const ScalarNode& n) {
        if (n.op == ScalarOp::Access) slots.insert(n.slot);
    });
    return slots;
}

std::vector<Factor> factors(const ScalarBody& body, ScalarId node) {
    std::vector<Factor> out;
    add_factors(body, node, false, out);
    return out;
}

std::optional<uint32_t> bare_slot(const ScalarBody& body, ScalarId node) {
    const ScalarNode& n = body[node];
    return n.op == ScalarOp::Access ? std::optional(n.slot) : std::nullopt;
}

std::optional<size_t> bare_dim(const RewriteContext& context, const TensorExpr& e, const Access& access, uint32_t a) {
    std::optional<size_t> found;
    for (size_t d = 0; d < access.index.size(); ++d) {
        if (!uses(access.index[d], {VarKind::Axis, a})) continue;
        if (found || !(access.index[d] == axis(a))) return std::nullopt;
        if (!(context.value(access.value).shape[d] == e.extents[a])) return std::nullopt;
        found = d;
    }
    return found;
}

// --- writing expressions

uint32_t ExprWriter::slot(const Access& access) {
    const auto same = std::find(expr_.accesses.begin(), expr_.accesses.end(), access);
    const auto k = static_cast<uint32_t>(same - expr_.accesses.begin());
    if (same == expr_.accesses.end()) expr_.accesses.push_back(access);
    return k;
}

ScalarId ExprWriter::read(const RewriteContext& context, ValueId value, std::vector<Expr> index) {
    return read(value, context.value(value).dtype, std::move(index));
}

ScalarId ExprWriter::read(ValueId value, DType stored, std::vector<Expr> index, std::vector<Expr> valid, double fill) {
    return expr_.body.access(slot({value, std::move(index), std::move(valid), fill}), stored);
}

ScalarId ExprWriter::copy(const TensorExpr& from, ScalarId node, std::span<const Expr> axes) {
    ScalarBody part = from.body;
    part.set_root(node);
    return copy(from, part, axes);
}

ScalarId ExprWriter::copy(const TensorExpr& from, const ScalarBody& part, std::span<const Expr> axes) {
    std::map<uint32_t, uint32_t> moved;
    const auto map_expr = [&](const auto& map_slot, Expr e) {
        return substitute(e, [&](Var v) -> std::optional<Expr> {
            if (v.kind == VarKind::Axis) return axes[v.id];
            if (v.kind == VarKind::Load) return load(map_slot(map_slot, v.id));
            return std::nullopt;
        });
    };
    const auto map_slot = [&](const auto& self, uint32_t k) -> uint32_t {
        if (const auto it = moved.find(k); it != moved.end()) return it->second;
        Access a = from.accesses.at(k);
        for (Expr& e : a.index) e = map_expr(self, e);
        for (Expr& e : a.valid) e = map_expr(self, e);
        return moved[k] = slot(a);
    };
    return expr_.body.inline_body(part, [&](ScalarBody& b, const ScalarNode& n) -> ScalarId {
        if (n.op == ScalarOp::Index) return b.index(map_expr(map_slot, n.index));
        if (n.op == ScalarOp::Access) return b.access(map_slot(map_slot, n.slot), n.dtype);
        return {};
    });
}

ScalarId ExprWriter::multiply(DType t, std::span<const std::pair<ScalarId, bool>> factors) {
    ScalarId out;
    for (const auto& [f, under] : factors)
        if (!under) out = out ? expr_.body.binary(ScalarOp::Mul, out, f) : f;
    if (!out) out = expr_.body.constant(t, 1);
    for (const auto& [f, under] : factors)
        if (under) out = expr_.body.binary(ScalarOp::Div, out, f);
    return out;
}

TensorExpr ExprWriter::finish(ScalarId root) {
    expr_.body.set_root(root);
    return tidy(expr_);
}

// --- affine forms

namespace {

/// scale * x + shift, over nodes of one body; none means 0.
struct Parts {
    ScalarId scale, shift;
};

class AffineFinder {
  public:
    AffineFinder(const TensorExpr& e, uint32_t slot) {
        out_.set_root(out_.inline_body(e.body, nullptr));
        for (const ScalarNode& n : out_.nodes()) {
            const auto reads = [&](ScalarId o) { return o && reads_[o.index()] != 0; };
            reads_.push_back((n.op == ScalarOp::Access && n.slot == slot) || reads(n.a) || reads(n.b) || reads(n.c));
        }
        found_.resize(reads_.size());
    }

    /// Memoised per node, because nodes have several users.
    std::optional<Parts> find(ScalarId id) {
        if (reads_[id.index()] == 0) return Parts{{}, id};
        auto& found = found_[id.index()];
        if (!found) found.emplace(find_new(id));
        return *found;
    }

    ScalarBody body(ScalarId root) const {
        ScalarBody b = out_;
        b.set_root(root);
        return b.pruned();
    }
    const ScalarBody& nodes() const { return out_; }
    ScalarId root() const { return out_.root(); }

  private:
    std::optional<Parts> find_new(ScalarId id) {
        const ScalarNode n = out_[id];
        if (n.op == ScalarOp::Access) return Parts{out_.constant(n.dtype, 1), {}};
        if (n.op == ScalarOp::Neg) {
            const auto a = find(n.a);
            if (!a) return std::nullopt;
            return Parts{negated(a->scale), negated(a->shift)};
        }
        if (n.op == ScalarOp::Add || n.op == ScalarOp::Sub) {
            const auto a = find(n.a), b = find(n.b);
            if (!a || !b) return std::nullopt;
            return Parts{combined(n.op, a->scale, b->scale), combined(n.op, a->shift, b->shift)};
        }
        if (n.op == ScalarOp::Mul || n.op == ScalarOp::Div) {
            auto a = find(n.a), b = find(n.b);
            if (!a || !b) return std::nullopt;
            if (a->scale && b->scale) return std::nullopt;
            if (n.op == ScalarOp::Div && b->scale) return std::nullopt;
            if (!a->scale) std::swap(a, b);
            return Parts{times(n.op, a->scale, b->shift), times(n.op, a->shift, b->shift)};
        }
        return std::nullopt;
    }

    ScalarId negated(ScalarId x) { return x ? out_.unary(ScalarOp::Neg, x) : x; }
    ScalarId combined(ScalarOp op, ScalarId a, ScalarId b) {
        if (!b) return a;
        if (!a) return op == ScalarOp::Sub ? negated(b) : b;
        return out_.binary(op, a, b);
    }
    ScalarId times(ScalarOp op, ScalarId a, ScalarId by) { return a ? out_.binary(op, a, by) : a; }

    ScalarBody out_;
    std::vector<char> reads_;  ///< by node of the expression: whether it depends on the slot
    std::vector<std::optional<std::optional<Parts>>> found_;
};

}  // namespace

std::optional<AffineForm> affine_in(const TensorExpr& e, uint32_t slot) {
    AffineFinder finder(e, slot);
    const auto parts = finder.find(finder.root());
    if (!parts || !parts->scale) return std::nullopt;
    AffineForm out;
    out.scale = finder.body(parts->scale);
    if (parts->shift) {
        const ScalarNode& n = finder.nodes()[parts->shift];
        if (n.op != ScalarOp::Const || n.value != 0) out.shift = finder.body(parts->shift);
    }
    const ScalarNode& scale = out.scale[out.scale.root()];
    out.scales = scale.op != ScalarOp::Const || scale.value != 1;
    return out;
}

// --- writing patches

ValueId PatchWriter::make(TensorExpr expr, DType dtype, std::string_view role) {
    Value v;
    const Primitive& at = context_.program().primitives[at_];
    v.name = context_.value(at.outputs[0]).name + "/" + std::string(role);
    v.dtype = dtype;
    v.shape.assign(expr.extents.begin(), expr.extents.begin() + static_cast<std::ptrdiff_t>(expr.spatial));
    const ValueId id(context_.program().values.size() + patch_.values.size());
    patch_.primitives.push_back({v.name, at.source, {id}, std::move(expr)});
    patch_.values.push_back(std::move(v));
    return id;
}

ValueId PatchWriter::constant(Tensor tensor, std::string_view role) {
    Value v;
    v.name = context_.value(context_.program().primitives[at_].outputs[0]).name + "/" + std::string(role);
    v.dtype = tensor.dtype();
    v.shape.assign(tensor.shape().begin(), tensor.shape().end());
    const ValueId id(context_.program().values.size() + patch_.values.size());
    patch_.constants.emplace(id, std::move(tensor));
    patch_.values.push_back(std::move(v));
    return id;
}

void PatchWriter::define(ValueId value, TensorExpr expr) {
    const PrimitiveId was = context_.producer_id(value);
    TW_CHECK(was && expr.spatial == context_.value(value).shape.size());
    const Primitive& p = context_.program().primitives[was];
    patch_.primitives.push_back({p.name, p.source, {value}, std::move(expr)});
}

const Value& PatchWriter::value(ValueId v) const {
    const size_t known = context_.program().values.size();
    return v.index() < known ? context_.value(v) : patch_.values.at(v.index() - known);
}

const TensorExpr* PatchWriter::made(ValueId v) const {
    for (const Primitive& p : patch_.primitives)
        if (p.outputs[0] == v) return p.expr();
    return nullptr;
}

TensorExpr with_operand(const PatchWriter& patch, const TensorExpr& e, uint32_t slot, ValueId value) {
    TensorExpr out = e;
    out.accesses.at(slot).value = value;
    const TensorExpr* view = patch.made(value);
    if (view != nullptr && is_view(*view))
        if (auto through = inline_producer(out, slot, *view, patch.value(value))) return *through;
    return tidy(out);
}

TensorExpr with_number(const TensorExpr& e, uint32_t slot, double number) {
    TensorExpr out = e;
    for (ScalarBody* body : {&out.body, &out.epilogue}) {
        if (body->empty()) continue;
        ScalarBody changed;
        changed.set_root(changed.inline_body(*body, [&](ScalarBody& b, const ScalarNode& n) {
            return n.op == ScalarOp::Access && n.slot == slot ? b.constant(n.dtype, number) : ScalarId();
        }));
        *body = std::move(changed);
    }
    return tidy(out);
}

}  // namespace tilewright
