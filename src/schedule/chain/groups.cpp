#include "schedule/chain/groups.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "program/analysis/access.h"
#include "program/transform/axes.h"

namespace tilewright::chain {

namespace {

/// Classes of stages' axes and values' dimensions that index each other. A class is called a line.
class Lines {
  public:
    explicit Lines(const Program& p) : p_(p) {
        for (const PrimitiveId s : p.primitives.ids()) {
            axes_.push_back(total_);
            total_ += p.primitives[s].expr()->extents.size();
        }
        for (const ValueId v : p.values.ids()) {
            dimensions_.push_back(total_);
            total_ += p.values[v].shape.size();
        }
        parent_.resize(total_);
        std::iota(parent_.begin(), parent_.end(), size_t{0});
        for (const Primitive& q : p.primitives) made_.insert(q.outputs[0]);
        for (const ValueId v : p.outputs) made_.erase(v);
        for (const PrimitiveId s : p.primitives.ids())
            each_index(s, [&](ValueId v, size_t d, Expr index) {
                const auto x = index.as_var();
                if (x && x->kind == VarKind::Axis && p.primitives[s].expr()->extents[x->id] == p.values[v].shape[d])
                    join(axis_of(s, x->id), dimension(v, d));
            });
    }

    size_t axis_of(PrimitiveId s, size_t k) { return find(axes_[s] + k); }
    size_t dimension(ValueId v, size_t d) { return find(dimensions_[v] + d); }
    bool stays(ValueId v) const { return made_.count(v) != 0; }

    /// Calls `f` for every index into a value that stays in the kernel, of reads and of results.
    void each_index(PrimitiveId s, const std::function<void(ValueId, size_t, Expr)>& f) const {
        const Primitive& q = p_.primitives[s];
        for (const Access& a : q.expr()->accesses)
            for (size_t d = 0; stays(a.value) && d < a.index.size(); ++d) f(a.value, d, a.index[d]);
        const ValueId made = q.outputs[0];
        const std::vector<Expr> written = result_index(*q.expr());
        for (size_t d = 0; stays(made) && d < written.size(); ++d) f(made, d, written[d]);
    }

  private:
    size_t find(size_t x) { return parent_[x] == x ? x : parent_[x] = find(parent_[x]); }
    void join(size_t a, size_t b) { parent_[find(a)] = find(b); }

    const Program& p_;
    size_t total_ = 0;
    IndexVector<PrimitiveId, size_t> axes_;
    IndexVector<ValueId, size_t> dimensions_;
    std::vector<size_t> parent_;
    std::set<ValueId> made_;
};

/// How an index uses axis k.
struct Use {
    bool bare = false;                        ///< without quotient or remainder
    std::set<int64_t> quotients, remainders;  ///< i // 4, i % 4
};

void find_uses(Expr e, size_t k, Use& use) {
    for (const Term& t : e.terms())
        for (const Atom* a : t.atoms) {
            if (a->kind == Atom::Kind::Var) {
                use.bare = use.bare || (a->var.kind == VarKind::Axis && a->var.id == k);
                continue;
            }
            const auto v = a->a.as_var();
            const bool divided = (a->kind == Atom::Kind::FloorDiv || a->kind == Atom::Kind::Mod) && v &&
                                 v->kind == VarKind::Axis && v->id == k && a->b.is_constant();
            if (divided) {
                (a->kind == Atom::Kind::Mod ? use.remainders : use.quotients).insert(a->b.constant());
                continue;
            }
            find_uses(a->a, k, use);
            find_uses(a->b, k, use);
        }
}

/// G where an operand is the same for G neighbours along axis k (i // G), or for every G-th point (i % G), and k occurs
/// nowhere else. Packed weights, which use i // 32 and i % 32, do not count.
std::optional<int64_t> shared_by(const Access& access, size_t k) {
    Use use;
    for (const Expr& i : access.index) find_uses(i, k, use);
    if (use.bare || use.quotients.size() + use.remainders.size() != 1) return std::nullopt;
    return use.quotients.empty() ? *use.remainders.begin() : *use.quotients.begin();
}

/// G where an index is G * i + j with j over G points: the stage's axis is split already.
struct Split {
    uint32_t outer, inner;
    int64_t size;
};
std::optional<Split> split_by(const TensorExpr& e, Expr index) {
    const std::vector<Var> vars = variables(index);
    if (vars.size() != 2 || vars[0].kind != VarKind::Axis || vars[1].kind != VarKind::Axis) return std::nullopt;
    for (size_t k = 0; k < 2; ++k) {
        const Expr inner = e.extents[vars[k].id];
        if (inner.is_constant() && index == Expr::var(vars[1 - k]) * inner + Expr::var(vars[k]))
            return Split{vars[1 - k].id, vars[k].id, inner.constant()};
    }
    return std::nullopt;
}

/// The group size of every line that is split. A line is split where a value in the kernel has it as a dimension; an
/// axis of a single stage shares no groups with others. Lines that are grouped in several ways stay unsplit.
std::map<size_t, int64_t> group_sizes(const Program& p, Lines& lines) {
    std::map<size_t, int64_t> by;  // 0: several sizes
    const auto add = [&](size_t line, int64_t g) {
        const auto [it, fresh] = by.try_emplace(line, g);
        if (!fresh && it->second != g) it->second = 0;
    };
    for (const PrimitiveId s : p.primitives.ids()) {
        const TensorExpr& e = *p.primitives[s].expr();
        for (const Access& a : e.accesses) {
            if (lines.stays(a.value)) continue;
            for (size_t k = 0; k < e.extents.size(); ++k) {
                const auto g = shared_by(a, k);
                const Expr extent = e.extents[k];
                if (g && *g > 1 && extent.is_constant() && extent.constant() > *g && extent.constant() % *g == 0)
                    add(lines.axis_of(s, k), *g);
            }
        }
        lines.each_index(s, [&](ValueId v, size_t d, Expr index) {
            const auto split = split_by(e, index);
            const Expr whole = p.values[v].shape[d];  // a padded index may exceed it
            if (!split || !whole.is_constant() || whole.constant() % split->size != 0) return;
            for (const Access& a : e.accesses)
                if (!lines.stays(a.value) && index_uses(a.index, split->outer) != index_uses(a.index, split->inner))
                    return add(lines.dimension(v, d), split->size);
        });
    }
    std::map<size_t, int64_t> shared;
    for (const ValueId v : p.values.ids())
        for (size_t d = 0; lines.stays(v) && d < p.values[v].shape.size(); ++d)
            if (const auto it = by.find(lines.dimension(v, d)); it != by.end() && it->second > 1) shared.insert(*it);
    return shared;
}

/// Splits the grouped dimensions of an index into a value. Dimension d is on line line_of(d).
std::vector<Expr> split_index(const std::vector<Expr>& index, const std::map<size_t, int64_t>& groups,
                              const std::function<size_t(size_t)>& line_of, const Ranges& ranges) {
    std::vector<Expr> parts;
    for (size_t d = 0; d < index.size(); ++d) {
        const auto group = groups.find(line_of(d));
        if (group == groups.end()) {
            parts.push_back(index[d]);
        } else {
            parts.push_back(simplify(floor_div(index[d], group->second), ranges));
            parts.push_back(simplify(mod(index[d], group->second), ranges));
        }
    }
    return parts;
}

TensorExpr split_stage(const Program& p, PrimitiveId s, Lines& lines, const std::map<size_t, int64_t>& groups) {
    TensorExpr e = *p.primitives[s].expr();
    for (size_t k = e.extents.size(); k-- > 0;)
        if (const auto group = groups.find(lines.axis_of(s, k)); group != groups.end())
            e = split_axis(e, k, group->second);
    const Ranges ranges = e.ranges();
    const auto indices = [&](ValueId v, const std::vector<Expr>& index) {
        return split_index(
            index, groups, [&](size_t d) { return lines.dimension(v, d); }, ranges);
    };
    for (Access& a : e.accesses)
        if (lines.stays(a.value)) a.index = indices(a.value, a.index);
    if (const ValueId made = p.primitives[s].outputs[0]; lines.stays(made)) {
        e.output_index = indices(made, result_index(e));
        bool plain = e.output_index.size() == e.spatial;
        for (size_t d = 0; plain && d < e.spatial; ++d) plain = e.output_index[d] == axis(d);
        if (plain) e.output_index.clear();
    }
    return e;
}

}  // namespace

Program split_groups(const Program& p) {
    Lines lines(p);
    const std::map<size_t, int64_t> groups = group_sizes(p, lines);
    if (groups.empty()) return p;
    Program out = p;
    for (const ValueId v : p.values.ids()) {
        if (!lines.stays(v)) continue;
        std::vector<Expr>& shape = out.values[v].shape;
        for (size_t d = shape.size(); d-- > 0;)
            if (const auto group = groups.find(lines.dimension(v, d)); group != groups.end()) {
                shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(d) + 1, group->second);
                shape[d] = floor_div(shape[d], group->second);
            }
    }
    for (const PrimitiveId s : p.primitives.ids()) out.primitives[s].kind = split_stage(p, s, lines, groups);
    return out;
}

}  // namespace tilewright::chain
