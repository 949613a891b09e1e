// Layouts by the default rule. Convolutions want their channels side by side in memory: activations become
// channel-blocked (blocks of a vector's lanes where the channel count divides, else one block of all channels), weights
// are packed in the order the micro-kernel reads them. Both are ALT layouts on values; nothing after this pass knows a
// layout's name.

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "orchestrate/plan.h"

namespace tilewright {

namespace {

/// A product of one constant and one computed operand.
struct Product {
    size_t data = 0, weights = 0;  ///< accesses
};

std::optional<Product> weighted_product(const Program& program, const TensorExpr& e) {
    if (e.reducer != Reducer::Sum) return std::nullopt;
    const ScalarNode& root = e.body[e.body.root()];
    if (root.op != ScalarOp::Mul) return std::nullopt;
    const ScalarNode& a = e.body[root.a];
    const ScalarNode& b = e.body[root.b];
    if (a.op != ScalarOp::Access || b.op != ScalarOp::Access) return std::nullopt;
    const bool ca = program.is_constant(e.accesses[a.slot].value), cb = program.is_constant(e.accesses[b.slot].value);
    if (ca == cb) return std::nullopt;
    return ca ? Product{b.slot, a.slot} : Product{a.slot, b.slot};
}

bool in_index(const std::vector<Expr>& index, size_t a) {
    return std::any_of(index.begin(), index.end(), [&](Expr i) {
        return uses(i, {VarKind::Axis, static_cast<uint32_t>(a)});
    });
}

std::optional<size_t> dimension_of(const std::vector<Expr>& index, size_t a) {
    for (size_t d = 0; d < index.size(); ++d)
        if (const auto v = index[d].as_var(); v && v->kind == VarKind::Axis && v->id == a) return d;
    return std::nullopt;
}

std::vector<Expr> result_index(const TensorExpr& e) {
    if (!e.output_index.empty()) return e.output_index;
    std::vector<Expr> index;
    for (size_t a = 0; a < e.spatial; ++a) index.push_back(axis(a));
    return index;
}

/// Dimension `dim` last in memory: a block of it as long as a vector where the lanes divide its extent, or all of it.
std::optional<Layout> channel_block(const std::vector<Expr>& shape, size_t dim, int lanes, bool whole) {
    if (!shape[dim].is_constant() || dim + 1 >= shape.size()) return std::nullopt;
    const int64_t extent = shape[dim].constant();
    if (extent < lanes / 2) return std::nullopt;
    Layout layout;
    layout::Reorder reorder;
    if (extent % lanes == 0 && extent > lanes && !whole && getenv("BLK")) {
        layout.primitives.emplace_back(layout::Split{dim, lanes});
        for (size_t d = 0; d <= shape.size(); ++d)
            if (d != dim + 1) reorder.permutation.push_back(d);
        reorder.permutation.push_back(dim + 1);
    } else {
        for (size_t d = 0; d < shape.size(); ++d)
            if (d != dim) reorder.permutation.push_back(d);
        reorder.permutation.push_back(dim);
    }
    layout.primitives.emplace_back(reorder);
    return layout;
}

/// Which dimension a layout made by channel_block blocks.
size_t blocked_dimension(const Layout& layout) {
    if (const auto* split = std::get_if<layout::Split>(&layout.primitives[0])) return split->dim;
    return std::get<layout::Reorder>(layout.primitives[0]).permutation.back();
}

struct Chooser {
    const Program& program;
    int lanes;
    std::set<ValueId> fixed;  ///< stay row-major: the model's own tensors and what is no tensor expression
    std::map<ValueId, Layout> layouts;

    void fix() {
        fixed.insert(program.inputs.begin(), program.inputs.end());
        fixed.insert(program.outputs.begin(), program.outputs.end());
        for (const Primitive& p : program.primitives) {
            if (p.expr() != nullptr) continue;
            for (const ValueId v : p.inputs()) fixed.insert(v);
            fixed.insert(p.outputs.begin(), p.outputs.end());
        }
        for (const auto& [v, t] : program.constants) fixed.insert(v);
    }

    void wish(ValueId v, size_t dim, bool whole = false) {
        if (fixed.count(v) != 0 || layouts.count(v) != 0) return;
        if (auto layout = channel_block(program.values[v].shape, dim, lanes, whole)) layouts.emplace(v, *layout);
    }

    /// The axis of the weights whose neighbours should be neighbours in the result's memory. None where one already is
    /// (a matrix product). Of several (a projection split into heads: [head, width]) the one that is densest in the
    /// weights.
    std::optional<size_t> lane_axis(const TensorExpr& e, const Access& x, const Access& w) const {
        const std::vector<Expr> out = result_index(e);
        const auto strides = axis_strides(program, e, w.value, w.index);
        std::optional<size_t> best;
        int64_t best_stride = 0;
        for (size_t a = 0; a < e.spatial; ++a) {
            if (!in_index(w.index, a)) continue;
            const auto dim = dimension_of(out, a);
            if (!dim) continue;
            if (*dim + 1 == out.size()) return std::nullopt;
            if (in_index(x.index, a) && !dimension_of(x.index, a)) continue;
            const int64_t stride =
                strides[a] && strides[a]->is_constant() ? std::abs(strides[a]->constant()) : INT64_MAX;
            if (best && stride >= best_stride) continue;
            best = a;
            best_stride = stride;
        }
        return best;
    }

    void products() {
        for (const Primitive& p : program.primitives) {
            const TensorExpr* e = p.expr();
            if (e == nullptr) continue;
            const auto product = weighted_product(program, *e);
            if (!product) continue;
            const Access& x = e->accesses[product->data];
            const Access& w = e->accesses[product->weights];
            if (const auto a = lane_axis(*e, x, w)) {
                // A matrix product (whose sum runs along the data's last dimension) writes whole rows.
                bool rows = false;
                for (size_t r = e->spatial; r < e->extents.size(); ++r)
                    rows = rows || dimension_of(x.index, r) == x.index.size() - 1;
                wish(p.outputs[0], *dimension_of(result_index(*e), *a), rows && layouts.count(x.value) == 0);
                if (const auto d = dimension_of(x.index, *a)) wish(x.value, *d);
            }
            if (layouts.count(p.outputs[0]) == 0 && fixed.count(p.outputs[0]) == 0) continue;
            for (size_t a = e->spatial; a < e->extents.size(); ++a)
                if (in_index(w.index, a))
                    if (const auto d = dimension_of(x.index, a); d && *d + 1 < x.index.size()) wish(x.value, *d);
        }
    }

    /// A stage that keeps a blocked dimension of its operand as a dimension of its result gives it the same block.
    void propagate() {
        for (const Primitive& p : program.primitives) {
            const TensorExpr* e = p.expr();
            if (e == nullptr || layouts.count(p.outputs[0]) != 0 || weighted_product(program, *e)) continue;
            const std::vector<Expr> out = result_index(*e);
            for (const Access& a : e->accesses) {
                const auto layout = layouts.find(a.value);
                if (layout == layouts.end()) continue;
                const auto v = a.index[blocked_dimension(layout->second)].as_var();
                if (!v || v->kind != VarKind::Axis || v->id >= e->spatial) continue;
                const auto dim = dimension_of(out, v->id);
                if (!dim || *dim + 1 == out.size()) continue;
                wish(p.outputs[0], *dim);
                break;
            }
        }
    }
};

ScalarBody substitute_body(const ScalarBody& body, const std::function<Expr(Expr)>& f) {
    if (body.empty()) return body;
    ScalarBody fresh;
    fresh.set_root(fresh.inline_body(body, [&](ScalarBody& into, const ScalarNode& leaf) {
        return leaf.op == ScalarOp::Index ? into.index(f(leaf.index)) : ScalarId();
    }));
    return fresh;
}

/// Smallest f > 1 for which (axis a) // f or % f appears, f dividing the extent.
std::optional<int64_t> split_factor(Expr e, size_t a) {
    std::optional<int64_t> found;
    for (const Term& t : e.terms())
        for (const Atom* atom : t.atoms) {
            if (atom->kind == Atom::Kind::Var) continue;
            if ((atom->kind == Atom::Kind::FloorDiv || atom->kind == Atom::Kind::Mod) && atom->b.is_constant()) {
                const auto v = atom->a.as_var();
                if (v && v->kind == VarKind::Axis && v->id == a) found = atom->b.constant();
            }
            for (const Expr inner : {atom->a, atom->b})
                if (!found) found = split_factor(inner, a);
        }
    return found;
}

/// Axis a becomes a (extent / factor) and a + 1 (factor); every index is rewritten and simplified.
void split_axis(TensorExpr& e, size_t a, int64_t factor) {
    if (e.output_index.empty()) e.output_index = result_index(e);
    const Expr outer = floor_div(e.extents[a], factor);
    e.extents[a] = factor;
    e.extents.insert(e.extents.begin() + static_cast<std::ptrdiff_t>(a), outer);
    if (a < e.spatial) ++e.spatial;
    const Ranges ranges = e.ranges();
    const auto rewrite = [&](Expr x) {
        return simplify(substitute(x,
                                   [&](Var v) -> std::optional<Expr> {
                                       if (v.kind != VarKind::Axis || v.id < a) return std::nullopt;
                                       if (v.id == a) return axis(a) * factor + axis(a + 1);
                                       return axis(v.id + 1);
                                   }),
                        ranges);
    };
    for (Access& access : e.accesses) {
        for (Expr& i : access.index) i = rewrite(i);
        for (Expr& i : access.valid) i = rewrite(i);
    }
    for (Expr& i : e.output_index) i = rewrite(i);
    e.body = substitute_body(e.body, rewrite);
    e.epilogue = substitute_body(e.epilogue, rewrite);
}

/// Splits axes whose blocks the layouts address, so that indices are affine again; `keep` stays whole (its lanes are
/// the vector's, which the generator resolves by itself).
void split_blocked_axes(TensorExpr& e, std::optional<size_t> keep) {
    for (size_t a = 0; a < e.extents.size(); ++a) {
        if (keep && a == *keep) continue;
        std::optional<int64_t> factor;
        const auto look = [&](Expr x) {
            if (!factor) factor = split_factor(x, a);
        };
        for (const Access& access : e.accesses)
            for (const Expr& i : access.index) look(i);
        for (const Expr& i : e.output_index) look(i);
        if (!factor || *factor <= 1 || !e.extents[a].is_constant() || e.extents[a].constant() % *factor != 0 ||
            e.extents[a].constant() == *factor)
            continue;
        split_axis(e, a, *factor);
        if (keep && *keep > a) ++*keep;
        ++a;
    }
}

/// The order in which the micro-kernel reads a constant operand, as a layout: [spatial..., v / block, reductions..., v
/// % block].
std::optional<Layout> packed_weights(const TensorExpr& e, const Access& w, const Shape& shape, size_t vector,
                                     int64_t block, const std::vector<size_t>& reduction_order) {
    Layout layout;
    struct Dim {
        size_t axis;
        bool lane = false;
    };
    std::vector<Dim> dims;  // of the layout so far: which axis walks each
    std::vector<std::vector<Dim>> per_dimension;
    for (size_t d = 0; d < w.index.size(); ++d) {
        struct Part {
            size_t axis;
            int64_t stride;
        };
        std::vector<Part> parts;
        if (w.index[d].constant() != 0) return std::nullopt;
        for (const Term& t : w.index[d].terms()) {
            if (t.atoms.size() != 1 || t.atoms[0]->kind != Atom::Kind::Var || t.atoms[0]->var.kind != VarKind::Axis)
                return std::nullopt;
            parts.push_back({t.atoms[0]->var.id, t.coefficient});
        }
        std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.stride > b.stride; });
        if (parts.empty()) {
            if (shape[d] != 1) return std::nullopt;
            per_dimension.push_back({{SIZE_MAX}});
            continue;
        }
        int64_t expected = 1;
        for (size_t k = parts.size(); k-- > 0;) {
            if (parts[k].stride != expected || !e.extents[parts[k].axis].is_constant()) return std::nullopt;
            expected *= e.extents[parts[k].axis].constant();
        }
        if (expected != shape[d]) return std::nullopt;
        std::vector<Dim> out;
        for (const Part& p : parts) out.push_back({p.axis});
        per_dimension.push_back(out);
    }
    // Splits, outermost part first: dimension -> part0, (rest), ...
    for (size_t d = 0; d < per_dimension.size(); ++d) {
        const std::vector<Dim>& parts = per_dimension[d];
        for (size_t k = 0; k < parts.size(); ++k) {
            if (k + 1 < parts.size()) {
                int64_t inner = 1;
                for (size_t j = k + 1; j < parts.size(); ++j) inner *= e.extents[parts[j].axis].constant();
                layout.primitives.emplace_back(layout::Split{dims.size(), inner});
            }
            if (parts[k].axis == vector) {
                if (k + 1 != parts.size()) return std::nullopt;
                layout.primitives.emplace_back(layout::Split{dims.size(), block});
                dims.push_back({vector});
                dims.push_back({vector, true});
            } else {
                dims.push_back(parts[k]);
            }
        }
    }
    std::vector<size_t> order;
    const auto append = [&](const std::function<bool(const Dim&)>& f) {
        for (size_t i = 0; i < dims.size(); ++i)
            if (f(dims[i]) && std::find(order.begin(), order.end(), i) == order.end()) order.push_back(i);
    };
    append([&](const Dim& x) { return x.axis == SIZE_MAX; });
    append([&](const Dim& x) { return x.axis < e.spatial && x.axis != vector; });
    append([&](const Dim& x) { return x.axis == vector && !x.lane; });
    for (const size_t r : reduction_order) append([&](const Dim& x) { return x.axis == r; });
    append([&](const Dim& x) { return !x.lane; });
    append([](const Dim&) { return true; });
    layout::Reorder reorder;
    reorder.permutation = order;
    layout.primitives.emplace_back(reorder);
    return layout;
}

}  // namespace

Program assign_layouts(const Program& original, const ScheduleTarget& target) {
    Program program = original;
    Chooser chooser{original, target.lanes, {}, {}};
    chooser.fix();
    chooser.products();
    chooser.propagate();
    for (const auto& [v, layout] : chooser.layouts)
        program.values[v].shape = physical_shape(layout, original.values[v].shape);
    std::map<std::pair<ValueId, std::string>, ValueId> packed;
    for (Primitive& p : program.primitives) {
        TensorExpr* e = p.expr();
        if (e == nullptr) continue;
        const auto product = weighted_product(original, *e);
        const Ranges ranges = e->ranges();
        bool touched = false;
        for (Access& a : e->accesses)
            if (const auto it = chooser.layouts.find(a.value); it != chooser.layouts.end()) {
                a.index = physical_index(it->second, original.values[a.value].shape, a.index);
                for (Expr& i : a.index) i = simplify(i, ranges);
                touched = true;
            }
        if (const auto it = chooser.layouts.find(p.outputs[0]); it != chooser.layouts.end()) {
            e->output_index = physical_index(it->second, original.values[p.outputs[0]].shape, result_index(*e));
            for (Expr& i : e->output_index) i = simplify(i, ranges);
            touched = true;
        }
        // In a product the axis that only weights and result share is the vector's.
        std::optional<size_t> keep;
        if (product)
            for (size_t a = 0; a < e->spatial; ++a)
                if (in_index(e->accesses[product->weights].index, a) && !in_index(e->accesses[product->data].index, a))
                    keep = a;
        if (touched) split_blocked_axes(*e, keep);
        if (!product) continue;
        // Pack the weights as the micro-kernel chosen for this product will read them.
        Program alone;
        alone.values = program.values;
        alone.primitives.push_back(p);
        const TensorExpr& view = *alone.primitives[PrimitiveId(0)].expr();
        const StageChoice choice = choose_micro(alone, view, program.values[p.outputs[0]].dtype, target);
        if (!choice.micro.vector_axis || !choice.contraction) continue;
        const size_t vector = *choice.micro.vector_axis;
        Access& w = e->accesses[product->weights];
        if (!in_index(w.index, vector)) continue;
        std::vector<size_t> reductions;
        for (const size_t a : choice.micro.order)
            if (a >= e->spatial) reductions.push_back(a);
        const Tensor& weights = original.constants.at(w.value);
        const auto layout = packed_weights(*e, w, weights.shape(), vector, choice.micro.registers[vector], reductions);
        if (!layout) continue;
        const auto key = std::pair(w.value, print(*layout));
        auto it = packed.find(key);
        if (it == packed.end()) {
            Value value = original.values[w.value];
            value.name += ".packed" + std::to_string(packed.size());
            value.shape = physical_shape(*layout, original.values[w.value].shape);
            const ValueId v = program.values.push_back(value);
            program.constants.emplace(v, to_physical(*layout, weights));
            it = packed.emplace(key, v).first;
        }
        const std::vector<Expr> index = physical_index(*layout, original.values[w.value].shape, w.index);
        w.value = it->second;
        w.index = index;
        const Ranges now = e->ranges();
        for (Expr& i : w.index) i = simplify(i, now);
    }
    // Weights that only packed copies replace are not kept twice.
    std::set<ValueId> used(program.outputs.begin(), program.outputs.end());
    for (const Primitive& p : program.primitives)
        for (const ValueId v : p.inputs()) used.insert(v);
    for (auto it = program.constants.begin(); it != program.constants.end();)
        it = used.count(it->first) != 0 ? std::next(it) : program.constants.erase(it);
    return program;
}

}  // namespace tilewright
