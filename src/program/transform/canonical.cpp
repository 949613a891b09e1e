#include "program/transform/canonical.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/hash.h"
#include "program/analysis/access.h"
#include "program/analysis/contraction.h"
#include "program/rewrite/algebra.h"
#include "program/scalar_ops.h"
#include "program/transform/dead_code.h"
#include "program/transform/tidy.h"

namespace tilewright {

namespace {

/// Whether a small change of an operand may change the result discontinuously.
bool steps(const ScalarBody& body, const ScalarNode& n) {
    switch (n.op) {
        case ScalarOp::FloorMod:
        case ScalarOp::TruncMod:
            return is_float(n.dtype);
        case ScalarOp::Cast:
            return !is_float(n.dtype) && is_float(body[n.a].dtype);
        default:
            return rounds_to_integer(n.op) && is_float(n.dtype);
    }
}

bool any_steps(const Program& program) {
    return std::any_of(program.primitives.begin(), program.primitives.end(), [](const Primitive& p) {
        const TensorExpr* e = p.expr();
        if (e == nullptr) return false;
        for (const ScalarBody* b : {&e->body, &e->epilogue})
            for (const ScalarNode& n : b->nodes())
                if (steps(*b, n)) return true;
        return false;
    });
}

bool is_number(const ScalarNode& n) { return n.op == ScalarOp::Const && is_real(n.dtype); }

/// Whether a product may absorb the constant: f32 represents it and its divisor about equally exactly.
bool fits(double c) { return c == 0 || (std::fabs(c) > 1e-30 && std::fabs(c) < 1e30); }

/// constant * over... / under...
struct Quotient {
    double constant = 1;
    std::vector<ScalarId> over, under;
};

class Canonical {
  public:
    explicit Canonical(const ScalarBody& body) : in_(body.pruned()), uses_(in_.nodes().size(), 0) {
        for (const ScalarNode& n : in_.nodes())
            for (const ScalarId o : {n.a, n.b, n.c})
                if (o) ++uses_[o.index()];
    }

    ScalarBody run() {
        std::vector<ScalarId> moved;
        for (const ScalarId id : in_.nodes().ids()) {
            moved_ = &moved;
            moved.push_back(write(id));
        }
        out_.set_root(moved[in_.root().index()]);
        return out_.pruned();
    }

  private:
    ScalarId at(ScalarId in) const { return (*moved_)[in.index()]; }

    /// Collects factors, through products without other users.
    void collect(ScalarId id, bool under, bool root, Quotient& p) const {
        const ScalarNode& n = in_[id];
        constexpr size_t kMost = 16;
        if (is_number(n)) {
            p.constant = under ? p.constant / n.value : p.constant * n.value;
        } else if ((n.op == ScalarOp::Mul || n.op == ScalarOp::Div) && (root || uses_[id.index()] == 1) &&
                   p.over.size() + p.under.size() < kMost) {
            collect(n.a, under, false, p);
            collect(n.b, under != (n.op == ScalarOp::Div), false, p);
        } else {
            (under ? p.under : p.over).push_back(at(id));
        }
    }
    Quotient product(ScalarId id) const {
        Quotient p;
        collect(id, false, true, p);
        for (std::vector<ScalarId>* list : {&p.over, &p.under}) sort(*list);
        return p;
    }

    /// Sort key: the reduction result, then accesses by number, then other nodes by a hash of their form.
    std::pair<uint64_t, uint64_t> key(ScalarId out) const {
        const ScalarNode& n = out_[out];
        if (n.op == ScalarOp::Acc) return {0, 0};
        if (n.op == ScalarOp::Access) return {1, n.slot};
        return {n.op == ScalarOp::Const ? 3 : 2, hash_text(part(out).print())};
    }
    ScalarBody part(ScalarId out) const {
        ScalarBody b = out_;
        b.set_root(out);
        return b;
    }
    void sort(std::vector<ScalarId>& list) const {
        std::sort(list.begin(), list.end(), [&](ScalarId a, ScalarId b) { return key(a) < key(b); });
    }

    ScalarId times(const std::vector<ScalarId>& factors) {
        ScalarId out;
        for (const ScalarId f : factors) out = out ? out_.binary(ScalarOp::Mul, out, f) : f;
        return out;
    }
    ScalarId written(const Quotient& p, DType t) {
        ScalarId out = times(p.over);
        if (!out)
            out = out_.constant(t, p.constant);
        else if (p.constant != 1)
            out = out_.binary(ScalarOp::Mul, out, out_.constant(t, p.constant));
        if (const ScalarId under = times(p.under)) out = out_.binary(ScalarOp::Div, out, under);
        return out;
    }

    // x f + (b - m f)  ->  f (x - m) + b
    std::optional<ScalarId> factored(const ScalarNode& n) {
        for (const auto& [plus, rest] : {std::pair(n.a, n.b), std::pair(n.b, n.a)}) {
            const ScalarNode& r = in_[rest];
            if (r.op != ScalarOp::Sub) continue;
            Quotient x = product(plus), m = product(r.b);
            if (x.constant != 1 || m.constant != 1 || !x.under.empty() || !m.under.empty()) continue;
            Quotient shared;
            for (size_t k = 0; k < x.over.size();) {
                const auto same = std::find(m.over.begin(), m.over.end(), x.over[k]);
                if (same == m.over.end()) {
                    ++k;
                    continue;
                }
                shared.over.push_back(x.over[k]);
                m.over.erase(same);
                x.over.erase(x.over.begin() + static_cast<std::ptrdiff_t>(k));
            }
            if (shared.over.empty() || x.over.empty() || m.over.empty()) continue;
            shared.over.push_back(out_.binary(ScalarOp::Sub, written(x, n.dtype), written(m, n.dtype)));
            return sum(written(shared, n.dtype), at(r.a));
        }
        return std::nullopt;
    }
    ScalarId sum(ScalarId a, ScalarId b) {
        if (key(b) < key(a)) std::swap(a, b);
        return out_.binary(ScalarOp::Add, a, b);
    }

    bool is(ScalarId id, ScalarOp op) const { return in_[id].op == op; }
    /// Matches x in max(x, 0) + log(1 + exp(-|x|)), which is log(1 + exp x).
    std::optional<ScalarId> softplus_of(ScalarId id) const {
        const ScalarNode& n = in_[id];
        if (n.op != ScalarOp::Add) return std::nullopt;
        for (const auto& [kink, rest] : {std::pair(n.a, n.b), std::pair(n.b, n.a)}) {
            if (!is(kink, ScalarOp::Max) || !is(rest, ScalarOp::Log1p)) continue;
            const ScalarId e = in_[rest].a;
            if (!is(e, ScalarOp::Exp) || !is(in_[e].a, ScalarOp::Neg) || !is(in_[in_[e].a].a, ScalarOp::Abs)) continue;
            const ScalarId x = in_[in_[in_[e].a].a].a;
            const ScalarNode& k = in_[kink];
            for (const auto& [same, zero] : {std::pair(k.a, k.b), std::pair(k.b, k.a)})
                if (same == x && is_number(in_[zero]) && in_[zero].value == 0) return x;
        }
        return std::nullopt;
    }

    /// tanh(log(1 + e)) = ((1 + e)^2 - 1) / ((1 + e)^2 + 1). With e = exp x and n = e (e + 2) this is n / (n + 2): one
    /// exponential instead of three functions (Mish). For x >= 20, 2 / n is less than half a unit of f64's last place.
    ScalarId tanh_of_softplus(ScalarId x, DType t) {
        const ScalarId e = out_.unary(ScalarOp::Exp, x), two = out_.constant(t, 2);
        const ScalarId n = out_.binary(ScalarOp::Mul, e, sum(e, two));
        return out_.select(out_.binary(ScalarOp::Gt, x, out_.constant(t, 20)), out_.constant(t, 1),
                           out_.binary(ScalarOp::Div, n, sum(n, two)));
    }

    ScalarId write(ScalarId id) {
        ScalarNode n = in_[id];
        if (n.op == ScalarOp::Tanh && (n.dtype == DType::F32 || n.dtype == DType::F64))
            if (const auto x = softplus_of(n.a)) return tanh_of_softplus(at(*x), n.dtype);
        if (is_real(n.dtype)) {
            if (n.op == ScalarOp::Mul || n.op == ScalarOp::Div) {
                const Quotient p = product(id);
                if (fits(p.constant)) return written(p, n.dtype);
            }
            if (n.op == ScalarOp::Add) {
                if (const auto f = factored(n)) return *f;
                return sum(at(n.a), at(n.b));
            }
            if (n.op == ScalarOp::Pow && is_number(in_[n.b]) && in_[n.b].value == 0.5)
                return out_.unary(ScalarOp::Sqrt, at(n.a));
        }
        for (ScalarId* o : {&n.a, &n.b, &n.c})
            if (*o) *o = at(*o);
        return out_.add(std::move(n));
    }

    ScalarBody in_, out_;
    std::vector<int> uses_;
    std::vector<ScalarId>* moved_ = nullptr;
};

constexpr size_t kLargest = 128;  // nodes of a body: larger ones are not canonicalised

ScalarBody canonical(const ScalarBody& body) {
    if (body.empty() || body.nodes().size() > kLargest) return body;
    ScalarBody out = Canonical(body).run();
    return Canonical(out).run();  // nodes may have become single-use
}

bool has_loads(const TensorExpr& e) {
    const auto any = [](const std::vector<Expr>& list) { return uses_load(list); };
    for (const Access& a : e.accesses)
        if (any(a.index) || any(a.valid)) return true;
    return any(e.output_index) || std::any_of(e.body.nodes().begin(), e.body.nodes().end(), [](const ScalarNode& n) {
               return n.op == ScalarOp::Index && uses_load(std::vector<Expr>{n.index});
           });
}

/// Sorts accesses by the value that they read.
TensorExpr with_sorted_accesses(const TensorExpr& e) {
    if (is_plain_product(e) || has_loads(e)) return e;
    std::vector<uint32_t> order;
    for (uint32_t k = 0; k < e.accesses.size(); ++k) order.push_back(k);
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return e.accesses[a].value.value < e.accesses[b].value.value; });
    std::vector<uint32_t> place(order.size());
    TensorExpr out = e;
    for (uint32_t k = 0; k < order.size(); ++k) {
        place[order[k]] = k;
        out.accesses[k] = e.accesses[order[k]];
    }
    for (ScalarBody* body : {&out.body, &out.epilogue}) {
        if (body->empty()) continue;
        ScalarBody moved;
        moved.set_root(moved.inline_body(*body, [&](ScalarBody& b, const ScalarNode& n) {
            return n.op == ScalarOp::Access ? b.access(place[n.slot], n.dtype) : ScalarId();
        }));
        *body = std::move(moved);
    }
    return out;
}

/// The root of an expression's last operator: its epilogue's, or its body's without an epilogue.
ScalarBody& last_body(TensorExpr& e) { return e.epilogue.empty() ? e.body : e.epilogue; }

/// Whether the expression's only use of the value is a division by it.
bool only_divides_by(const TensorExpr& e, ValueId v) {
    for (const ScalarBody* b : {&e.body, &e.epilogue})
        for (const ScalarNode& n : b->nodes())
            for (const ScalarId o : {n.a, n.b, n.c}) {
                if (!o || (*b)[o].op != ScalarOp::Access || e.accesses[(*b)[o].slot].value != v) continue;
                if (n.op != ScalarOp::Div || o != n.b || o == n.a) return false;
            }
    for (const ScalarBody* b : {&e.body, &e.epilogue}) {
        if (b->empty()) continue;
        const ScalarNode& root = (*b)[b->root()];
        if (root.op == ScalarOp::Access && e.accesses[root.slot].value == v) return false;
    }
    return !std::any_of(e.accesses.begin(), e.accesses.end(),
                        [&](const Access& a) { return a.value == v && !a.valid.empty(); });
}

void multiply_instead(TensorExpr& e, ValueId v) {
    for (ScalarBody* b : {&e.body, &e.epilogue}) {
        if (b->empty()) continue;
        ScalarBody out;
        std::vector<ScalarId> moved;
        for (ScalarNode n : b->nodes()) {
            if (n.op == ScalarOp::Div && (*b)[n.b].op == ScalarOp::Access && e.accesses[(*b)[n.b].slot].value == v)
                n.op = ScalarOp::Mul;
            for (ScalarId* o : {&n.a, &n.b, &n.c})
                if (*o) *o = moved[o->index()];
            moved.push_back(out.add(std::move(n)));
        }
        out.set_root(moved[b->root().index()]);
        *b = out.pruned();
    }
}

/// Rewrites roots that are read only by divisions over more elements as reciprocals.
void invert_roots(Program& program) {
    const auto consumers = program.consumers();
    std::vector<ValueId> outputs = program.outputs;
    std::sort(outputs.begin(), outputs.end());
    for (const PrimitiveId id : program.primitives.ids()) {
        TensorExpr* e = program.primitives[id].expr();
        if (e == nullptr) continue;
        const ValueId v = program.primitives[id].outputs[0];
        ScalarBody& last = last_body(*e);
        if (!is_real(program.values[v].dtype) || last[last.root()].op != ScalarOp::Sqrt || consumers[v].empty() ||
            (e->reducer != Reducer::None && e->epilogue.empty()) ||
            std::binary_search(outputs.begin(), outputs.end(), v))
            continue;
        const Expr elements = product(program.values[v].shape);
        const bool all = std::all_of(consumers[v].begin(), consumers[v].end(), [&](PrimitiveId reader) {
            const TensorExpr* r = program.primitives[reader].expr();
            return r != nullptr && !(product(r->extents) == elements) && only_divides_by(*r, v);
        });
        if (!all) continue;
        last.set_root(last.binary(ScalarOp::Div, last.constant(program.values[v].dtype, 1), last.root()));
        for (const PrimitiveId reader : consumers[v]) multiply_instead(*program.primitives[reader].expr(), v);
    }
}

}  // namespace

Program canonical_bodies(Program program) {
    if (any_steps(program)) return program;
    for (const bool again : {false, true}) {
        for (Primitive& p : program.primitives) {
            TensorExpr* e = p.expr();
            if (e == nullptr || e->accesses.size() > kMaxAccesses) continue;
            *e = with_sorted_accesses(*e);
            if (!is_plain_product(*e)) e->body = canonical(e->body);
            e->epilogue = canonical(e->epilogue);
        }
        if (!again) invert_roots(program);
    }
    return program;
}

Program scales_behind_products(const Program& program) {
    if (any_steps(program)) return program;
    const RewriteContext context(program);
    Program out = program;
    out.primitives = {};
    const auto fresh = [&](ValueId like, const char* role) {
        Value v = program.values[like];
        v.name += role;
        return out.values.push_back(std::move(v));
    };
    for (const PrimitiveId id : program.primitives.ids()) {
        Primitive p = program.primitives[id];
        const TensorExpr* e = p.expr();
        const DType t = p.outputs.empty() ? DType::F32 : program.values[p.outputs[0]].dtype;
        if (e == nullptr || !is_sum(*e, t) || !is_plain_product(*e) ||
            std::any_of(e->accesses.begin(), e->accesses.end(),
                        [&](const Access& a) { return context.foldable(a.value); })) {
            out.primitives.push_back(std::move(p));
            continue;
        }
        TensorExpr sum = *e;
        Quotient scale;
        for (Access& a : sum.accesses) {
            const TensorExpr* map = context.producer(a.value);
            if (map == nullptr || !is_map(*map, t) || !context.read_once(a.value) || !a.valid.empty()) continue;
            std::vector<std::pair<ScalarId, bool>> kept;
            double constant = 1;
            ExprWriter w(map->extents, map->spatial);
            const std::vector<Expr> axes = plain_axes(map->spatial);
            for (const Factor& f : factors(map->body, map->body.root())) {
                if (is_number(map->body[f.node]))
                    constant = f.under ? constant / map->body[f.node].value : constant * map->body[f.node].value;
                else
                    kept.emplace_back(w.copy(*map, f.node, axes), f.under);
            }
            if (constant == 1 || kept.empty() || !fits(constant) || !fits(scale.constant * constant)) continue;
            const PrimitiveId from = context.producer_id(a.value);
            const ValueId operand = fresh(a.value, "/unscaled");
            Primitive without = program.primitives[from];
            without.outputs = {operand};
            without.name += "/unscaled";
            without.kind = w.finish(w.multiply(t, kept));
            out.primitives.push_back(std::move(without));
            a.value = operand;
            scale.constant *= constant;
        }
        if (scale.constant == 1) {
            out.primitives.push_back(std::move(p));
            continue;
        }
        const ValueId result = fresh(p.outputs[0], "/unscaled");
        Primitive scaled = p;
        ExprWriter w({sum.extents.begin(), sum.extents.begin() + static_cast<std::ptrdiff_t>(sum.spatial)},
                     sum.spatial);
        const ScalarId x = w.read(result, t, plain_axes(sum.spatial));
        scaled.kind = w.finish(w.body().binary(ScalarOp::Mul, x, w.body().constant(t, scale.constant)));
        p.name += "/unscaled";
        p.outputs = {result};
        p.kind = std::move(sum);
        out.primitives.push_back(std::move(p));
        out.primitives.push_back(std::move(scaled));
    }
    return with_unique_names(eliminate_dead_code(std::move(out)));
}

}  // namespace tilewright
