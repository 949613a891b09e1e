#include "schedule/chain/chain.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/union_find.h"
#include "program/analysis/access.h"
#include "program/analysis/contraction.h"
#include "program/analysis/dynamic.h"
#include "program/constant_transform.h"
#include "program/rewrite/algebra.h"
#include "program/transform/inline.h"
#include "schedule/chain/groups.h"

namespace tilewright::chain {

namespace {

/// How the factors of a sum of products are reused.
struct Reuse {
    bool product = false;            ///< the expression is a sum of products
    bool again[2] = {false, false};  ///< per factor: a spatial axis of more than one point moves only the other one
    bool batch = false;              ///< an axis moves both
    bool plain = true;               ///< every index is an axis or constant: no windows
};

Reuse reuse_of(const TensorExpr& e) {
    Reuse r;
    const auto c = contraction(e);
    if (!c || !c->of_reals() || !c->reads_plainly()) return r;
    r.product = true;
    const Access& left = e.accesses[*c->factors[0].slot];
    const Access& right = e.accesses[*c->factors[1].slot];
    for (size_t a = 0; a < e.spatial; ++a) {
        if (e.extents[a].is_constant(1)) continue;
        const bool x = moves_along(e, left, a), y = moves_along(e, right, a);
        if (x != y) r.again[x ? 1 : 0] = true;
        r.batch = r.batch || (x && y);
    }
    for (const Access* a : {&left, &right}) {
        r.plain = r.plain && a->valid.empty();
        for (const Expr& i : a->index) {
            size_t axes = 0;
            for (const Var v : variables(i)) axes += v.kind == VarKind::Axis || v.kind == VarKind::Load ? 1 : 0;
            r.plain = r.plain && axes <= 1;
        }
    }
    return r;
}

}  // namespace

bool is_product(const TensorExpr& e) {
    const Reuse r = reuse_of(e);
    return r.product && r.again[0] && r.again[1];
}

bool is_link(const TensorExpr& e) {
    const Reuse r = reuse_of(e);
    return r.product && ((r.again[0] && r.again[1]) || ((r.again[0] || r.again[1]) && r.batch && r.plain));
}

namespace {

// --- factors that move out of sums

struct Factors {
    std::vector<ScalarId> above, below;  ///< the body is product(above) / product(below)
    void add(const Factor& f) { (f.under ? below : above).push_back(f.node); }
};

bool moves_along_sum(const TensorExpr& e, ScalarId at) {
    for (size_t a = e.spatial; a < e.extents.size(); ++a)
        if (moves_along(e, e.body, at, a)) return true;
    return false;
}

/// Copies the subtree of `body` at `at` into `into`, whose access slots are the same plus `shift`.
ScalarId copy_part(ScalarBody& into, const ScalarBody& body, ScalarId at, uint32_t shift, const TensorExpr& e,
                   const Program& p) {
    ScalarBody part = body;
    part.set_root(at);
    return into.inline_body(part.pruned(), [&](ScalarBody& b, const ScalarNode& leaf) {
        return leaf.op == ScalarOp::Access ? b.access(leaf.slot + shift, p.values[e.accesses[leaf.slot].value].dtype)
                                           : ScalarId();
    });
}

/// Writes start * product(above) / product(below) into `into`; no `start`: 1. `e` has the factors; its access slots are
/// those of `into` minus `shift`.
ScalarId multiply_factors(ScalarBody& into, const Factors& f, uint32_t shift, std::optional<ScalarId> start,
                          const TensorExpr& e, const Program& p) {
    std::optional<ScalarId> result = start;
    for (const ScalarId x : f.above) {
        const ScalarId y = copy_part(into, e.body, x, shift, e, p);
        result = result ? into.binary(ScalarOp::Mul, *result, y) : y;
    }
    for (const ScalarId x : f.below)
        result = into.binary(ScalarOp::Div, *result, copy_part(into, e.body, x, shift, e, p));
    return *result;
}

/// Drops accesses that the body does not read. An expression with data-dependent indices stays unchanged, because loads
/// are numbered by slot.
void keep_used_accesses(TensorExpr& e, const Program& p) {
    std::map<uint32_t, uint32_t> number;
    std::vector<Access> kept;
    for (const uint32_t s : e.body.slots()) {
        if (uses_load(e.accesses[s].index)) return;
        number[s] = static_cast<uint32_t>(kept.size());
        kept.push_back(e.accesses[s]);
    }
    ScalarBody fresh;
    const ScalarBody old = e.body.pruned();
    fresh.set_root(fresh.inline_body(old, [&](ScalarBody& b, const ScalarNode& leaf) {
        return leaf.op == ScalarOp::Access ? b.access(number.at(leaf.slot), p.values[e.accesses[leaf.slot].value].dtype)
                                           : ScalarId();
    }));
    e.body = std::move(fresh);
    e.accesses = std::move(kept);
}

/// The sum of the factors in `in`, without an epilogue.
TensorExpr sum_of(const TensorExpr& e, const Factors& in, const Program& p) {
    TensorExpr sum;
    sum.extents = e.extents;
    sum.spatial = e.spatial;
    sum.accesses = e.accesses;
    sum.reducer = e.reducer;
    sum.body.set_root(multiply_factors(sum.body, in, 0, std::nullopt, e, p));
    keep_used_accesses(sum, p);
    return sum;
}

/// The elementwise expression after the sum `between`: the factors `out`, then the epilogue of `e`.
TensorExpr scaled_sum(ValueId between, const TensorExpr& e, const Factors& out, const Program& p) {
    TensorExpr x;
    x.extents.assign(e.extents.begin(), e.extents.begin() + static_cast<std::ptrdiff_t>(e.spatial));
    x.spatial = e.spatial;
    Access read;
    read.value = between;
    for (size_t a = 0; a < e.spatial; ++a) read.index.push_back(axis(a));
    x.accesses = {read};
    x.accesses.insert(x.accesses.end(), e.accesses.begin(), e.accesses.end());
    x.output_index = e.output_index;
    ScalarBody& body = x.body;
    const ScalarId whole = multiply_factors(body, out, 1, body.access(0, DType::F32), e, p);
    if (e.epilogue.empty()) {
        body.set_root(whole);
    } else {
        body.set_root(body.inline_body(e.epilogue, [&](ScalarBody& b, const ScalarNode& leaf) {
            if (leaf.op == ScalarOp::Acc) return whole;
            return leaf.op == ScalarOp::Access ? b.access(leaf.slot + 1, p.values[e.accesses[leaf.slot].value].dtype)
                                               : ScalarId();
        }));
    }
    keep_used_accesses(x, p);
    return x;
}

/// Moves factors that do not depend on the reduction axis behind the sum:
///     y = sum(k) a[i, k] * b[k, j] * c[j]   ->   s = sum(k) a[i, k] * b[k, j];  y = s * c[j]
/// `none`: the sum becomes a stage of its own even where there are no such factors.
bool take_factors_out(Program& p, PrimitiveId id, bool none = false) {
    const TensorExpr e = *p.primitives[id].expr();
    if (e.reducer != Reducer::Sum || e.body.dtype() != DType::F32) return false;
    Factors out, in;
    for (const Factor& f : factors(e.body, e.body.root())) (moves_along_sum(e, f.node) ? in : out).add(f);
    if ((out.above.empty() && out.below.empty() && !none) || in.above.empty()) return false;

    Value partial;
    partial.name = p.values[p.primitives[id].outputs[0]].name + ".sum";
    partial.dtype = DType::F32;
    partial.shape.assign(e.extents.begin(), e.extents.begin() + static_cast<std::ptrdiff_t>(e.spatial));
    const ValueId between = p.values.push_back(partial);

    Primitive behind = p.primitives[id];
    Primitive first = p.primitives[id];
    first.name += ".sum";
    first.kind = sum_of(e, in, p);
    first.outputs = {between};
    behind.kind = scaled_sum(between, e, out, p);
    IndexVector<PrimitiveId, Primitive> stages;
    for (const PrimitiveId k : p.primitives.ids()) {
        if (k == id) stages.push_back(first);
        stages.push_back(k == id ? behind : p.primitives[k]);
    }
    p.primitives = std::move(stages);
    return true;
}

/// Moves elementwise stages that only one sum reads into that sum, where its body is then a product of factors:
///     q = p / s;  e = sum q * v    ->    e = sum (p / s) * v
bool move_quotients(Program& p) {
    const auto consumers = p.consumers();
    for (const PrimitiveId id : p.primitives.ids()) {
        const Primitive& producer = p.primitives[id];
        const TensorExpr& q = *producer.expr();
        const ValueId v = producer.outputs[0];
        if (q.reducer != Reducer::None || consumers[v].size() != 1 ||
            std::find(p.outputs.begin(), p.outputs.end(), v) != p.outputs.end())
            continue;
        const ScalarNode& root = q.body[q.body.root()];
        if (root.op != ScalarOp::Div && root.op != ScalarOp::Mul) continue;
        const PrimitiveId reader = consumers[v][0];
        const TensorExpr& e = *p.primitives[reader].expr();
        if (!reuse_of(e).product) continue;
        size_t reads = 0, slot = 0;
        for (size_t i = 0; i < e.accesses.size(); ++i)
            if (e.accesses[i].value == v) {
                ++reads;
                slot = i;
            }
        if (reads != 1) continue;
        const auto merged = inline_producer(e, slot, q, p.values[v]);
        if (!merged) continue;
        Program next = p;
        next.primitives[reader].kind = *merged;
        // More than two factors are no product: (d / s) * scale * w stays unchanged.
        if (!take_factors_out(next, reader) || !reuse_of(*next.primitives[reader].expr()).product) continue;
        IndexVector<PrimitiveId, Primitive> stages;
        for (const PrimitiveId k : next.primitives.ids())
            if (k != id) stages.push_back(next.primitives[k]);
        next.primitives = std::move(stages);
        p = std::move(next);
        return true;
    }
    return false;
}

/// Gives a product whose 16-bit result is an output a sum of 32 bits, which is rounded behind it: loops around a sum
/// add to it.
bool widen_sums(Program& p) {
    for (const ValueId v : std::vector<ValueId>(p.outputs)) {
        const PrimitiveId id = p.producers()[v];
        if (id && byte_size(p.values[v].dtype) < byte_size(DType::F32) && is_link(*p.primitives[id].expr()) &&
            take_factors_out(p, id, true))
            return true;
    }
    return false;
}

// --- axes

/// Whether the product `s` depends on another reduction (a sum, a maximum).
bool needs_statistics(const Program& p, PrimitiveId s) {
    const auto producers = p.producers();
    std::vector<PrimitiveId> todo{s};
    std::vector<bool> seen(p.primitives.size(), false);
    while (!todo.empty()) {
        const PrimitiveId at = todo.back();
        todo.pop_back();
        for (const ValueId v : p.primitives[at].inputs()) {
            const PrimitiveId from = producers[v];
            if (!from || seen[from.index()]) continue;
            if (p.primitives[from].expr()->reducer != Reducer::None) return true;
            seen[from.index()] = true;
            todo.push_back(from);
        }
    }
    return false;
}

}  // namespace

Program factored(const Program& stages) {
    Program out = split_groups(stages);
    while (move_quotients(out)) {
    }
    while (widen_sums(out)) {
    }
    return out;
}

Program unrounded(Program p) {
    const std::set<ValueId> given(p.outputs.begin(), p.outputs.end());
    for (const Primitive& s : p.primitives)
        for (const ValueId v : s.outputs)
            if (const DType t = p.values[v].dtype; (t == DType::F16 || t == DType::BF16) && given.count(v) == 0)
                p.values[v].dtype = DType::F32;
    return p;
}

std::optional<KernelAxes> identify_axes(const Program& p) {
    IndexVector<PrimitiveId, size_t> first;
    size_t total = 0;
    for (const Primitive& s : p.primitives) {
        first.push_back(total);
        total += s.expr()->extents.size();
    }
    UnionFind same(total);
    const auto producers = p.producers();
    for (const PrimitiveId reader : p.primitives.ids())
        for (const Access& a : p.primitives[reader].expr()->accesses) {
            const PrimitiveId writer = producers[a.value];
            if (!writer) continue;
            const TensorExpr& w = *p.primitives[writer].expr();
            const std::vector<Expr> written = result_index(w);
            for (size_t d = 0; d < written.size(); ++d) {
                const auto mine = written[d].as_var(), theirs = a.index[d].as_var();
                if (!mine || !theirs || mine->kind != VarKind::Axis || theirs->kind != VarKind::Axis) continue;
                const TensorExpr& r = *p.primitives[reader].expr();
                if (!(w.extents[mine->id] == r.extents[theirs->id])) continue;
                same.join(first[writer] + mine->id, first[reader] + theirs->id);
            }
        }
    KernelAxes out;
    std::map<size_t, size_t> number;
    for (const PrimitiveId s : p.primitives.ids()) {
        const TensorExpr& e = *p.primitives[s].expr();
        std::vector<size_t> mine;
        for (size_t k = 0; k < e.extents.size(); ++k) {
            const auto [it, fresh] = number.try_emplace(same.find(first[s] + k), out.axes.size());
            if (fresh) out.axes.push_back({fmt::format("x{}", out.axes.size()), e.extents[k]});
            if (std::find(mine.begin(), mine.end(), it->second) != mine.end()) return std::nullopt;
            mine.push_back(it->second);
        }
        out.stage_axes.push_back(mine);
    }
    return out;
}

std::optional<Chain> make_chain(const Program& original) {
    // The tile of a constant-coefficient linear transform is its whole matrix. The tiling of chains does not support
    // that.
    for (const Primitive& s : original.primitives)
        if (s.expr() == nullptr || map_size(*s.expr())) return std::nullopt;
    Chain c;
    c.stages = factored(original);
    const Program& p = c.stages;
    auto axes = identify_axes(p);
    if (!axes) return std::nullopt;
    static_cast<KernelAxes&>(c) = std::move(*axes);
    for (const TileAxis& a : c.axes) {
        c.extents.push_back(assumed_extent(a.extent, p.assumed));
        c.open.push_back(!a.extent.is_constant());
    }
    UnionFind connected(p.primitives.size());
    const auto producers = p.producers();
    for (const PrimitiveId s : p.primitives.ids()) {
        for (const ValueId v : p.primitives[s].inputs())
            if (const PrimitiveId writer = producers[v]) connected.join(writer.index(), s.index());
        if (is_link(*p.primitives[s].expr())) c.products.push_back(s);
    }
    if (c.products.empty() || (c.products.size() == 1 && !needs_statistics(p, c.products[0]))) return std::nullopt;
    for (const PrimitiveId s : c.products)
        if (connected.find(s.index()) != connected.find(c.products[0].index())) return std::nullopt;
    c.batch.assign(c.axes.size(), true);
    c.reduced.assign(c.axes.size(), false);
    for (const PrimitiveId s : p.primitives.ids()) {
        const TensorExpr& e = *p.primitives[s].expr();
        std::vector<bool> spatial(c.axes.size(), false);
        for (size_t k = 0; k < e.extents.size(); ++k)
            if (k < e.spatial)
                spatial[c.stage_axes[s][k]] = true;
            else
                c.reduced[c.stage_axes[s][k]] = true;
        for (size_t a = 0; a < c.axes.size(); ++a)
            if (!spatial[a]) c.batch[a] = false;
    }
    // An axis of every stage is a batch only where it moves both factors of every product; rows move one.
    for (const PrimitiveId s : c.products) {
        const TensorExpr& e = *p.primitives[s].expr();
        const auto product = contraction(e);
        TW_CHECK(product, "a product of a chain is no contraction");
        for (size_t k = 0; k < e.spatial; ++k)
            if (!e.extents[k].is_constant(1) && (!moves_along(e, e.body, product->factors[0].node, k) ||
                                                 !moves_along(e, e.body, product->factors[1].node, k)))
                c.batch[c.stage_axes[s][k]] = false;
    }
    for (const PrimitiveId s : c.products)
        for (const size_t a : c.stage_axes[s])
            if (!c.batch[a] && (c.open[a] || c.extents[a] > 1) &&
                std::find(c.tiled.begin(), c.tiled.end(), a) == c.tiled.end())
                c.tiled.push_back(a);
    return c;
}

}  // namespace tilewright::chain
