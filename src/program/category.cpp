#include <algorithm>
#include <set>

#include "program/analysis/access.h"
#include "program/analysis/contraction.h"
#include "program/program.h"

namespace tilewright {

namespace {

/// Slots below a node.
void collect_slots(const ScalarBody& body, ScalarId id, std::set<uint32_t>& slots) {
    const ScalarNode& n = body[id];
    if (n.op == ScalarOp::Access) slots.insert(n.slot);
    for (const ScalarId o : {n.a, n.b, n.c})
        if (o) collect_slots(body, o, slots);
}

std::set<uint32_t> slots_of(const ScalarBody& body, ScalarId id) {
    std::set<uint32_t> slots;
    collect_slots(body, id, slots);
    return slots;
}

/// Variables of an access's index, including those of the loads in it.
void collect_axes(const TensorExpr& e, const Access& a, std::set<uint32_t>& axes) {
    for (const Expr x : a.index)
        for (const Var v : variables(x)) {
            if (v.kind == VarKind::Axis) axes.insert(v.id);
            if (v.kind == VarKind::Load && v.id < e.accesses.size() && &e.accesses[v.id] != &a)
                collect_axes(e, e.accesses[v.id], axes);
        }
}

std::set<uint32_t> axes_of(const TensorExpr& e, const std::set<uint32_t>& slots) {
    std::set<uint32_t> axes;
    for (const uint32_t s : slots)
        if (s < e.accesses.size()) collect_axes(e, e.accesses[s], axes);
    return axes;
}

/// The result is one of the accesses (or a constant), selected by the position only:
///     @0        select(lt(index(i0), 2), @0, @1)
bool only_moves(const ScalarBody& body, ScalarId id) {
    const ScalarNode& n = body[id];
    if (n.op == ScalarOp::Access || n.op == ScalarOp::Const) return true;
    if (n.op != ScalarOp::Select) return false;
    return slots_of(body, n.a).empty() && only_moves(body, n.b) && only_moves(body, n.c);
}

/// A sum of products of two operands over an axis that both use. The factors may contain elementwise work, such as the
/// zero points of a quantised product: mul(sub(@0, @1), sub(@2, @3)). Or a constant-coefficient linear transform.
bool is_linear(const TensorExpr& e) {
    if (e.reducer != Reducer::Sum) return false;
    const ScalarNode& root = e.body[e.body.root()];
    if (root.op == ScalarOp::Weigh && slots_of(e.body, root.a).empty()) return true;
    const auto c = contraction(e, Casts::Through);
    if (!c) return false;
    for (const uint32_t l : slots_of(e.body, c->factors[0].node))
        for (const uint32_t r : slots_of(e.body, c->factors[1].node))
            if (l == r || e.accesses.at(l) == e.accesses.at(r)) return false;  // a square
    return !axes(e, *c).sum.empty();
}

/// Whether two elements of the result certainly read the same element of the operand: an axis that the index does not
/// use, or more elements than the operand has.
bool repeats(const Program& p, const TensorExpr& e) {
    const std::vector<uint32_t> slots = e.body.slots();
    const auto axes = axes_of(e, {slots.begin(), slots.end()});
    for (size_t k = 0; k < e.spatial; ++k)
        if (axes.count(static_cast<uint32_t>(k)) == 0 && !e.extents[k].is_constant(1)) return true;
    if (slots.size() != 1) return false;
    const Access& a = e.accesses.at(slots[0]);
    const bool loads = std::any_of(a.index.begin(), a.index.end(), [](Expr x) {
        const auto vars = variables(x);
        return std::any_of(vars.begin(), vars.end(), [](Var v) { return v.kind == VarKind::Load; });
    });
    if (loads || !a.valid.empty()) return false;
    return prove_positive(product(e.extents) - product(p.values[a.value].shape), {});
}

}  // namespace

Category category(const Program& program, const Primitive& primitive) {
    if (std::holds_alternative<If>(primitive.kind) || std::holds_alternative<Loop>(primitive.kind))
        return Category::Control;
    const TensorExpr* e = primitive.expr();
    if (e == nullptr) return Category::Opaque;
    if (e->reducer != Reducer::None) return is_linear(*e) ? Category::Linear : Category::Reduce;
    if (!e->epilogue.empty() || !only_moves(e->body, e->body.root()) || e->body.slots().empty())
        return Category::Elementwise;
    return repeats(program, *e) ? Category::Broadcast : Category::Layout;
}

}  // namespace tilewright
