#include "layout/propagate.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "index/facts.h"
#include "program/transform/tidy.h"

namespace tilewright {

namespace {

bool is_complex(const Program& program, const Primitive& p, const PropagateOptions& options) {
    return options.complex ? options.complex(program, p) : category(program, p) == Category::Linear;
}

/// The axis that indexes each dimension of the result; kNoAxis for one element. Nothing if an index is not an axis.
constexpr size_t kNoAxis = SIZE_MAX;
std::optional<std::vector<size_t>> axes_of_result(const TensorExpr& e) {
    std::vector<size_t> out;
    for (const Expr& i : result_index(e)) {
        const auto v = i.as_var();
        if (!i.is_constant(0) && (!v || v->kind != VarKind::Axis)) return std::nullopt;
        out.push_back(v ? v->id : kNoAxis);
    }
    return out;
}

/// result[i] comes from operand[i], and both have one shape.
bool elementwise(const Program& program, const Primitive& p, const Access& a) {
    const auto axes = axes_of_result(*p.expr());
    const std::vector<Expr>& shape = program.values[p.outputs[0]].shape;
    if (!axes || program.values[a.value].shape != shape || !a.valid.empty()) return false;
    for (size_t d = 0; d < a.index.size(); ++d) {  // a dimension of one element is only accessed at 0
        if (a.index[d].is_constant(0) && shape[d].is_constant(1)) continue;
        if ((*axes)[d] == kNoAxis || !(a.index[d] == axis((*axes)[d]))) return false;
    }
    return true;
}

/// Per dimension of the operand: the dimension of the result that the same axis indexes, over the same extent.
std::vector<std::optional<size_t>> kept_dimensions(const Program& program, const Primitive& p, const Access& a) {
    std::vector<std::optional<size_t>> out(a.index.size());
    const std::vector<Expr>& from = program.values[a.value].shape;
    const std::vector<Expr>& to = program.values[p.outputs[0]].shape;
    const auto axes = axes_of_result(*p.expr());
    if (!axes) return out;
    for (size_t d = 0; d < a.index.size(); ++d) {
        const auto v = a.index[d].as_var();
        if (!v || v->kind != VarKind::Axis) continue;
        const auto at = std::find(axes->begin(), axes->end(), v->id);
        if (at == axes->end()) continue;
        const auto dimension = static_cast<size_t>(at - axes->begin());
        if (from[d] == to[dimension]) out[d] = dimension;
    }
    return out;
}

/// Transfers a layout to a tensor of `rank` dimensions, some of which are the operand's. For layouts that split
/// dimensions and move inner parts (or whole dimensions) last: [N, C/16, H, W, 16] gives [N, C/16, L, 16].
std::optional<Layout> carried(const Layout& layout, const std::vector<std::optional<size_t>>& kept, size_t rank) {
    struct Part {
        size_t dimension = 0;
        int64_t factor = 0;  ///< of an inner part; 0: the outer part
    };
    std::vector<Part> parts(kept.size());
    for (size_t d = 0; d < parts.size(); ++d) parts[d] = {d, 0};
    bool reordered = false;
    for (const layout::Primitive& p : layout.primitives) {
        if (const auto* split = std::get_if<layout::Split>(&p)) {
            if (reordered || parts[split->dim].factor != 0) return std::nullopt;
            parts.insert(parts.begin() + static_cast<std::ptrdiff_t>(split->dim) + 1,
                         {parts[split->dim].dimension, split->factor});
        } else if (const auto* reorder = std::get_if<layout::Reorder>(&p)) {
            std::vector<Part> next;
            next.reserve(parts.size());
            for (const size_t from : reorder->permutation) next.push_back(parts[from]);
            parts = std::move(next);
            reordered = true;
        } else {
            return std::nullopt;
        }
    }
    // The longest prefix of outer parts in order; the parts after it are moved last.
    size_t front = 0;
    while (front < parts.size() && parts[front].factor == 0 &&
           (front == 0 || parts[front].dimension > parts[front - 1].dimension))
        ++front;
    std::vector<Part> last;
    std::set<size_t> moved;
    for (size_t k = front; k < parts.size(); ++k) {
        const auto to = kept[parts[k].dimension];
        if (!to) return std::nullopt;
        last.push_back({*to, parts[k].factor});
        if (parts[k].factor == 0) moved.insert(*to);
    }
    Layout out;
    std::vector<Part> there;
    for (size_t d = 0; d < rank; ++d) {
        there.push_back({d, 0});
        for (const Part& p : last)
            if (p.dimension == d && p.factor != 0) {
                if (there.back().factor != 0) return std::nullopt;  // one level of blocks
                out.primitives.emplace_back(layout::Split{there.size() - 1, p.factor});
                there.push_back(p);
            }
    }
    layout::Reorder reorder;
    for (size_t k = 0; k < there.size(); ++k)
        if (there[k].factor == 0 && moved.count(there[k].dimension) == 0) reorder.permutation.push_back(k);
    for (const Part& p : last)
        for (size_t k = 0; k < there.size(); ++k)
            if (there[k].dimension == p.dimension && there[k].factor == p.factor) reorder.permutation.push_back(k);
    if (std::is_sorted(reorder.permutation.begin(), reorder.permutation.end())) return std::nullopt;  // row-major
    out.primitives.emplace_back(std::move(reorder));
    return out;
}

class Propagation {
  public:
    Propagation(const Program& program, std::map<ValueId, Layout> chosen, const PropagateOptions& options)
        : p_(program), options_(options), producers_(program.producers()), layouts_(std::move(chosen)) {
        for (const ValueId v : options.fixed) layouts_.erase(v);
    }

    std::map<ValueId, Layout> run() {
        for (size_t before = SIZE_MAX; before != layouts_.size();) {
            before = layouts_.size();
            for (const PrimitiveId id : p_.primitives.ids()) downstream(p_.primitives[id]);
            if (!options_.upstream) break;
            for (size_t k = p_.primitives.size(); k-- > 0;) upstream(p_.primitives[PrimitiveId(k)]);
        }
        return std::move(layouts_);
    }

  private:
    /// True if propagation may give this value a layout.
    bool free(ValueId v) const {
        if (layouts_.count(v) != 0 || options_.fixed.count(v) != 0) return false;
        if (p_.is_constant(v)) return true;
        const PrimitiveId made = producers_[v];
        return made && p_.primitives[made].expr() != nullptr && !is_complex(p_, p_.primitives[made], options_);
    }

    /// The layout of this value if it may be propagated further.
    const Layout* spreading(ValueId v) const {
        const auto it = layouts_.find(v);
        return it == layouts_.end() || expands(it->second, p_.values[v].shape) ? nullptr : &it->second;
    }

    void downstream(const Primitive& p) {
        if (p.expr() == nullptr || !free(p.outputs[0])) return;
        for (const Access& a : p.expr()->accesses) {
            const Layout* layout = spreading(a.value);
            if (layout == nullptr) continue;
            std::optional<Layout> mine;
            if (elementwise(p_, p, a))
                mine = *layout;
            else if (options_.kept_dimensions)
                mine = carried(*layout, kept_dimensions(p_, p, a), p_.values[p.outputs[0]].shape.size());
            if (!mine) continue;
            layouts_.emplace(p.outputs[0], std::move(*mine));
            return;
        }
    }

    void upstream(const Primitive& p) {
        if (p.expr() == nullptr) return;
        const Layout* layout = spreading(p.outputs[0]);
        if (layout == nullptr) return;
        for (const Access& a : p.expr()->accesses)
            if (elementwise(p_, p, a) && free(a.value)) layouts_.emplace(a.value, *layout);
    }

    const Program& p_;
    const PropagateOptions& options_;
    const IndexVector<ValueId, PrimitiveId> producers_;
    std::map<ValueId, Layout> layouts_;
};

}  // namespace

std::set<ValueId> row_major_values(const Program& program) {
    std::set<ValueId> out(program.inputs.begin(), program.inputs.end());
    out.insert(program.outputs.begin(), program.outputs.end());
    for (const Primitive& p : program.primitives) {
        if (p.expr() != nullptr) continue;
        for (const ValueId v : p.inputs()) out.insert(v);
        out.insert(p.outputs.begin(), p.outputs.end());
    }
    return out;
}

bool expands(const Layout& layout, std::span<const Expr> shape) {
    const std::vector<Expr> physical = physical_shape(layout, shape);
    return !simplify(product(physical) - product(shape), {}).is_constant(0) ||
           std::any_of(layout.primitives.begin(), layout.primitives.end(), [](const layout::Primitive& p) {
               return std::holds_alternative<layout::Unfold>(p) || std::holds_alternative<layout::StoreAt>(p);
           });
}

std::map<ValueId, Layout> propagate_layouts(const Program& program, std::map<ValueId, Layout> chosen,
                                            const PropagateOptions& options) {
    return Propagation(program, std::move(chosen), options).run();
}

LayoutPlan plan_layouts(const Program& program, const LayoutRequests& requests, const PropagateOptions& options) {
    LayoutPlan plan;
    const auto producers = program.producers();
    std::map<ValueId, Layout> chosen;
    const auto give = [&](ValueId v, const Layout& layout) {
        if (options.fixed.count(v) != 0 || program.is_constant(v) || !producers[v]) return false;
        if (program.primitives[producers[v]].expr() == nullptr || expands(layout, program.values[v].shape))
            return false;
        return chosen.emplace(v, layout).first->second == layout;
    };
    for (const auto& [v, layout] : requests.written) {
        if (options.fixed.count(v) == 0 && program.is_constant(v))
            chosen.emplace(v, layout);
        else
            give(v, layout);
    }
    const auto convert = [&](const Reader& reader, ValueId v, const Layout& layout) {
        for (LayoutPlan::Conversion& c : plan.conversions)
            if (c.value == v && c.layout == layout) return c.readers.push_back(reader);
        plan.conversions.push_back({v, layout, {reader}});
    };
    for (const auto& [reader, layout] : requests.read) {  // in order of the primitives
        const ValueId v = program.primitives[reader.first].expr()->accesses.at(reader.second).value;
        if (const auto it = chosen.find(v); it != chosen.end() ? it->second == layout : give(v, layout)) continue;
        if (!layout.is_identity() || chosen.count(v) != 0) convert(reader, v, layout);
    }
    plan.values = propagate_layouts(program, std::move(chosen), options);
    for (auto it = plan.values.begin(); it != plan.values.end();)
        it = it->second.is_identity() ? plan.values.erase(it) : std::next(it);
    return plan;
}

namespace {

/// Computes an element for every place of a layout that stores some elements several times and pads with zeros. The
/// axes become the layout's dimensions.
///     y[i0] = f(x[i0])   in unfold(0, 6, 4)   ->   y[i0, i1] = select(4*i0 + i1 < 10, f(x[4*i0 + i1]), 0)
TensorExpr expanded(const TensorExpr& given, const Layout& layout, const std::vector<Expr>& shape) {
    const auto axes = axes_of_result(given);
    TW_CHECK(axes, "a result that is not indexed by axes cannot be written in layout {}", print(layout));
    const std::vector<Expr> physical = physical_shape(layout, shape);
    std::vector<Expr> at;
    at.reserve(physical.size());
    for (size_t d = 0; d < physical.size(); ++d) at.push_back(axis(d));
    const LogicalIndex logical = logical_index(layout, shape, at);
    TensorExpr e = map_indices(given, [&](Expr i) {
        return substitute(i, [&](Var v) -> std::optional<Expr> {
            if (v.kind != VarKind::Axis) return std::nullopt;
            if (v.id >= given.spatial) return axis(v.id - given.spatial + physical.size());
            const auto d = std::find(axes->begin(), axes->end(), v.id);
            return d == axes->end() ? Expr(0) : logical.index[static_cast<size_t>(d - axes->begin())];
        });
    });
    e.output_index.clear();
    e.extents = physical;
    e.extents.insert(e.extents.end(), given.extents.begin() + static_cast<std::ptrdiff_t>(given.spatial),
                     given.extents.end());
    e.spatial = physical.size();
    const Ranges ranges = e.ranges();
    e = map_indices(e, [&](Expr i) { return simplify(i, ranges); });
    std::vector<Expr> valid;
    for (const Expr& c : logical.valid)
        if (const Expr s = simplify(c, ranges); !prove_nonnegative(s, ranges)) valid.push_back(s);
    if (valid.empty()) return e;
    for (Access& a : e.accesses) a.valid.insert(a.valid.end(), valid.begin(), valid.end());
    const ScalarNode& root = e.body[e.body.root()];
    if (e.reducer == Reducer::None && root.op == ScalarOp::Access && e.accesses[root.slot].fill == 0) return e;
    // Padding is zero, whatever the function is of the zeros that are read there.
    const bool reduces = e.reducer != Reducer::None;
    ScalarBody& last = reduces ? e.epilogue : e.body;
    ScalarId value = !last.empty() ? last.root() : last.acc(e.body.dtype());
    for (const Expr& c : valid) {
        const ScalarId inside = last.binary(ScalarOp::Ge, last.index(c), last.int_constant(DType::I64, 0));
        const DType type = last[value].dtype;
        value = last.select(inside, value, last.constant(type, 0));
    }
    last.set_root(value);
    return e;
}

class Application {
  public:
    Application(const Program& program, const LayoutPlan& plan) : p_(program), plan_(plan), out_(program) {}

    Program run() {
        out_.primitives = {};
        for (const auto& [v, layout] : plan_.values) {
            out_.values[v].shape = physical_shape(layout, p_.values[v].shape);
            if (p_.is_constant(v)) out_.constants[v] = to_physical(layout, p_.constants.at(v));
        }
        for (const ValueId v : p_.inputs) conversions_of(v);
        for (const auto& [v, tensor] : p_.constants) conversions_of(v);
        for (const PrimitiveId id : p_.primitives.ids()) {
            out_.primitives.push_back(rewritten(id));
            for (const ValueId v : p_.primitives[id].outputs) conversions_of(v);
        }
        drop_constants();
        return std::move(out_);
    }

  private:
    Layout layout_of(ValueId v) const {
        const auto it = plan_.values.find(v);
        return it == plan_.values.end() ? Layout() : it->second;
    }

    void conversions_of(ValueId v) {
        for (const LayoutPlan::Conversion& c : plan_.conversions) {
            if (c.value != v) continue;
            Value value = p_.values[v];
            value.name += fmt::format(".layout{}", copies_++);
            value.shape = physical_shape(c.layout, p_.values[v].shape);
            const ValueId copy = out_.values.push_back(value);
            for (const Reader& r : c.readers) converted_[r] = {copy, c.layout};
            if (p_.is_constant(v))
                out_.constants.emplace(copy, to_physical(c.layout, p_.constants.at(v)));
            else
                out_.primitives.push_back(conversion(v, c.layout, copy));
        }
    }

    /// Copies every element from the old layout to the new one; padding is zero.
    Primitive conversion(ValueId v, const Layout& to, ValueId copy) const {
        TensorExpr e;
        e.extents = out_.values[copy].shape;
        e.spatial = e.extents.size();
        const std::vector<Expr>& shape = p_.values[v].shape;
        std::vector<Expr> at;
        at.reserve(e.spatial);
        for (size_t d = 0; d < e.spatial; ++d) at.push_back(axis(d));
        LogicalIndex logical = logical_index(to, shape, at);
        Access a;
        a.value = v;
        a.index = physical_index(layout_of(v), shape, logical.index);
        const Ranges ranges = e.ranges();
        for (Expr& i : a.index) i = simplify(i, ranges);
        for (const Expr& c : logical.valid)
            if (const Expr s = simplify(c, ranges); !prove_nonnegative(s, ranges)) a.valid.push_back(s);
        e.accesses = {a};
        e.body.set_root(e.body.access(0, p_.values[v].dtype));
        Primitive p;
        p.name = out_.values[copy].name;
        p.source = "Layout";
        p.outputs = {copy};
        p.kind = std::move(e);
        return p;
    }

    Primitive rewritten(PrimitiveId id) const {
        Primitive p = p_.primitives[id];
        TensorExpr* e = p.expr();
        if (e == nullptr) return p;
        const Ranges ranges = e->ranges();
        for (size_t k = 0; k < e->accesses.size(); ++k) {
            Access& a = e->accesses[k];
            const std::vector<Expr>& shape = p_.values[a.value].shape;
            const auto it = converted_.find({id, k});
            const Layout layout = it == converted_.end() ? layout_of(a.value) : it->second.second;
            if (!layout.is_identity()) a.index = operand_index(*e, layout, shape, a.index);
            if (it != converted_.end()) a.value = it->second.first;
        }
        const Layout layout = layout_of(p.outputs[0]);
        if (layout.is_identity()) return p;
        const std::vector<Expr>& shape = p_.values[p.outputs[0]].shape;
        if (expands(layout, shape)) {
            *e = expanded(*e, layout, shape);
            return p;
        }
        e->output_index = physical_index(layout, shape, result_index(*e));
        for (Expr& i : e->output_index) i = simplify(i, ranges);
        return p;
    }

    /// Windows that are inside one tile of an unfolded operand are read from that tile (equation 1 of ALT §4.1.2);
    /// other elements are read from the last tile that contains them.
    static std::vector<Expr> operand_index(const TensorExpr& e, const Layout& layout, const std::vector<Expr>& shape,
                                           const std::vector<Expr>& index) {
        const Ranges ranges = e.ranges();
        std::vector<Expr> first;
        first.reserve(index.size());
        for (const Expr& i : index)
            first.push_back(substitute(i, [&](Var v) -> std::optional<Expr> {
                if (v.kind == VarKind::Axis && v.id >= e.spatial) return Expr(0);
                return std::nullopt;
            }));
        const std::vector<Expr> physical = physical_shape(layout, shape);
        std::vector<Expr> at = physical_index(layout, shape, index, first);
        bool inside = true;
        for (size_t d = 0; d < at.size(); ++d) {
            at[d] = simplify(at[d], ranges);
            inside = inside && prove_nonnegative(at[d], ranges, {}) &&
                     prove_nonnegative(physical[d] - 1 - at[d], ranges, {});
        }
        if (inside) return at;
        at = physical_index(layout, shape, index);
        for (Expr& i : at) i = simplify(i, ranges);
        return at;
    }

    /// Drops constants of which only converted copies are read.
    void drop_constants() {
        std::set<ValueId> used(out_.outputs.begin(), out_.outputs.end());
        for (const Primitive& p : out_.primitives)
            for (const ValueId v : p.inputs()) used.insert(v);
        for (const LayoutPlan::Conversion& c : plan_.conversions)
            if (used.count(c.value) == 0) out_.constants.erase(c.value);
    }

    const Program& p_;
    const LayoutPlan& plan_;
    Program out_;
    size_t copies_ = 0;
    std::map<Reader, std::pair<ValueId, Layout>> converted_;
};

}  // namespace

bool can_expand(const TensorExpr& e) { return axes_of_result(e).has_value(); }

Program apply_layouts(const Program& program, const LayoutPlan& plan) { return Application(program, plan).run(); }

}  // namespace tilewright
