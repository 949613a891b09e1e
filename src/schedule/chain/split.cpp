#include "schedule/chain/split.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"
#include "program/analysis/access.h"
#include "program/transform/tidy.h"
#include "tile/online.h"

namespace tilewright::chain {

namespace {

constexpr int64_t kShortestPart = 16;  // terms; shorter parts do not justify a second kernel

class Splitter {
  public:
    Splitter(const Program& stages, const KernelAxes& axes, size_t axis, int64_t parts)
        : p_(stages),
          producers_(stages.producers()),
          parts_(parts),
          length_(axes.axes[axis].extent.constant() / parts) {
        for (const PrimitiveId s : p_.primitives.ids()) {
            const auto& mine = axes.stage_axes[s];
            const auto it = std::find(mine.begin(), mine.end(), axis);
            at_.push_back(it == mine.end() ? std::nullopt : std::optional<size_t>(it - mine.begin()));
        }
    }

    std::optional<SplitSum> run() {
        if (!can_be_cut()) return std::nullopt;
        SplitSum out;
        out.parts = parts_;
        if (!make_merge(out.merge)) return std::nullopt;
        make_partial(out.partial);
        return out;
    }

  private:
    const TensorExpr& expr(PrimitiveId s) const { return *p_.primitives[s].expr(); }
    ValueId result(PrimitiveId s) const { return p_.primitives[s].outputs[0]; }
    bool sums(PrimitiveId s) const { return at_[s] && *at_[s] >= expr(s).spatial; }
    /// Whether the result has the axis: every part then has its own range of it.
    bool carries(PrimitiveId s) const { return at_[s] && *at_[s] < expr(s).spatial; }

    /// The dimension of a stage's result along the axis. Nothing where the result is not indexed by the axis itself.
    std::optional<size_t> dimension_of(PrimitiveId s) const {
        const std::vector<Expr> written = result_index(expr(s));
        std::optional<size_t> found;
        for (size_t d = 0; d < written.size(); ++d) {
            if (!index_uses({&written[d], 1}, *at_[s])) continue;
            if (found || !(written[d] == axis(*at_[s]))) return std::nullopt;
            found = d;
        }
        return found;
    }

    /// Whether every part can be computed independently. Sets scales_.
    bool can_be_cut() {
        std::set<ValueId> maxima;
        for (const PrimitiveId s : p_.primitives.ids()) {
            if (!sums(s)) continue;
            const TensorExpr& e = expr(s);
            if (e.reducer == Reducer::Max && e.body.dtype() == DType::F32 && e.epilogue.empty() && read_inside(s))
                maxima.insert(result(s));
        }
        scales_ = online_scales(p_, maxima);
        const std::set<ValueId> given(p_.outputs.begin(), p_.outputs.end());
        std::vector<bool> late(p_.primitives.size(), false);  // depends on a complete sum along the axis
        std::vector<bool> scaled(p_.primitives.size(), false);
        for (const PrimitiveId s : p_.primitives.ids()) {
            if (carries(s) && (given.count(result(s)) != 0 || !dimension_of(s))) return false;
            if (sums(s) && !expr(s).epilogue.empty() && reads_by_data(s)) return false;
            bool needs_maximum = false;
            for (const uint32_t slot : read_by_parts(s)) {
                const Access& a = expr(s).accesses[slot];
                const PrimitiveId from = producers_[a.value];
                if (!from) continue;
                if (carries(from) && !reads_own_part(s, a, *dimension_of(from))) return false;
                if (!at_[s]) {
                    late[s.index()] = late[s.index()] || late[from.index()] || sums(from);
                    continue;
                }
                if (late[from.index()]) return false;
                if (sums(from) && maxima.count(a.value) == 0) return false;
                if (sums(from) && index_uses(a.index, *at_[s])) return false;
                needs_maximum = needs_maximum || sums(from) || scaled[from.index()];
            }
            if (!needs_maximum) continue;
            if (!scales_[s] || expr(s).body.dtype() != DType::F32) return false;
            scaled[s.index()] = true;
        }
        for (const PrimitiveId s : p_.primitives.ids())
            if (!scaled[s.index()]) scales_[s].reset();
        return true;
    }

    /// Positions of the accesses that a part reads. Those that only the epilogue of a sum reads belong to the merge
    /// kernel.
    std::vector<uint32_t> read_by_parts(PrimitiveId s) const {
        const TensorExpr& e = expr(s);
        if (sums(s) && !e.epilogue.empty()) return e.body.slots();
        std::vector<uint32_t> all(e.accesses.size());
        std::iota(all.begin(), all.end(), 0U);
        return all;
    }
    bool reads_by_data(PrimitiveId s) const {
        for (const Access& a : expr(s).accesses)
            for (const Expr& i : a.index)
                for (const Var v : variables(i))
                    if (v.kind == VarKind::Load) return true;
        return false;
    }

    bool read_inside(PrimitiveId s) const {
        for (const PrimitiveId t : p_.primitives.ids())
            for (const Access& a : expr(t).accesses)
                if (at_[t] && a.value == result(s)) return true;
        return false;
    }

    bool reads_own_part(PrimitiveId s, const Access& a, size_t dimension) const {
        if (!at_[s] || !(a.index[dimension] == axis(*at_[s]))) return false;
        for (size_t d = 0; d < a.index.size(); ++d)
            if (d != dimension && index_uses({&a.index[d], 1}, *at_[s])) return false;
        return true;
    }

    // --- the two programs

    /// A program under construction, with values of the original.
    struct Half {
        Program& program;
        std::map<ValueId, ValueId> values;  ///< original value -> value or part of this half
        std::map<ValueId, ValueId> parts;
    };

    static std::string part_name(const Value& v) { return v.name + ".part"; }

    ValueId value_of(Half& half, ValueId v) const {
        const auto it = half.values.find(v);
        if (it != half.values.end()) return it->second;
        const ValueId mine = half.values[v] = half.program.values.push_back(p_.values[v]);
        if (!producers_[v]) half.program.inputs.push_back(mine);
        return mine;
    }

    /// The parts of a sum as a tensor: [parts, its shape].
    Value part_of(PrimitiveId s) const {
        Value part = p_.values[result(s)];
        part.name = part_name(part);
        part.dtype = expr(s).body.dtype();
        part.shape.insert(part.shape.begin(), parts_);
        return part;
    }

    std::set<PrimitiveId> needed(std::vector<PrimitiveId> todo, bool behind_sums) const {
        std::set<PrimitiveId> out;
        while (!todo.empty()) {
            const PrimitiveId s = todo.back();
            todo.pop_back();
            if (!out.insert(s).second) continue;
            if (!behind_sums && sums(s)) {
                if (scales_[s]) todo.push_back(producers_[scales_[s]->maximum]);
                for (const uint32_t slot : expr(s).epilogue.slots())
                    if (const PrimitiveId from = producers_[expr(s).accesses[slot].value]) todo.push_back(from);
                continue;
            }
            for (const uint32_t slot : read_by_parts(s))
                if (const PrimitiveId from = producers_[expr(s).accesses[slot].value]) todo.push_back(from);
        }
        return out;
    }

    void make_partial(Program& out) const {
        out.name = p_.name;
        Half half{out, {}, {}};
        std::vector<PrimitiveId> roots;
        for (const PrimitiveId s : p_.primitives.ids())
            if (merged_.count(s) != 0) roots.push_back(s);
        for (const PrimitiveId s : needed(roots, true)) {
            Primitive stage = p_.primitives[s];
            stage.name += ".part";
            if (at_[s])
                stage.kind = partial(half, s);
            else
                for (Access& a : stage.expr()->accesses) a.value = value_of(half, a.value);
            if (sums(s)) {
                const ValueId v = half.parts[result(s)] = out.values.push_back(part_of(s));
                if (merged_.count(s) != 0) out.outputs.push_back(v);
                stage.outputs = {v};
            } else {
                const ValueId v = value_of(half, result(s));
                Value& value = out.values[v];
                if (carries(s)) {
                    value.shape[*dimension_of(s)] = length_;
                    value.shape.insert(value.shape.begin(), parts_);
                }
                stage.outputs = {v};
            }
            out.primitives.push_back(std::move(stage));
        }
    }

    /// A sum without its epilogue, which the merge kernel computes. Accesses that only the epilogue has are dropped.
    TensorExpr without_epilogue(PrimitiveId s) const {
        TensorExpr e = expr(s);
        if (!sums(s) || e.epilogue.empty()) return e;
        const std::vector<uint32_t> read = read_by_parts(s);
        for (uint32_t k = 0; k < e.accesses.size(); ++k)
            if (!read.empty() && std::find(read.begin(), read.end(), k) == read.end())
                e.accesses[k] = e.accesses[read[0]];  // a duplicate, which tidy drops
        if (read.empty()) e.accesses.clear();
        e.epilogue = ScalarBody();
        return e;
    }

    /// One part: a new first axis j, and C * j + k in place of k.
    TensorExpr partial(Half& half, PrimitiveId s) const {
        const TensorExpr e = without_epilogue(s);
        std::vector<Expr> inside, whole;  // replacements of each axis, within the part and overall
        std::vector<Expr> extents = {Expr(parts_)};
        for (size_t k = 0; k < e.extents.size(); ++k) {
            inside.push_back(axis(k + 1));
            whole.push_back(k == *at_[s] ? axis(0) * length_ + axis(k + 1) : axis(k + 1));
            extents.push_back(k == *at_[s] ? Expr(length_) : e.extents[k]);
        }
        TensorExpr out = map_indices(e, [&](Expr i) { return substitute_axes(i, whole); });
        out.extents = std::move(extents);
        out.spatial = e.spatial + 1;
        const auto in_part = [&](const std::vector<Expr>& index) {
            std::vector<Expr> moved = {axis(0)};
            for (const Expr& i : index) moved.push_back(substitute_axes(i, inside));
            return moved;
        };
        out.output_index = in_part(result_index(e));
        for (size_t k = 0; k < e.accesses.size(); ++k) {
            Access& a = out.accesses[k];
            const PrimitiveId from = producers_[a.value];
            if (from && at_[from]) a.index = in_part(e.accesses[k].index);
            a.value = from && sums(from) ? half.parts.at(a.value) : value_of(half, a.value);
        }
        return tidy(without_plain_index(std::move(out)));
    }

    static TensorExpr without_plain_index(TensorExpr e) {
        bool plain = e.output_index.size() == e.spatial;
        for (size_t d = 0; plain && d < e.spatial; ++d) plain = e.output_index[d] == axis(d);
        if (plain) e.output_index.clear();
        return e;
    }

    bool make_merge(Program& out) {
        out.name = p_.name;
        Half half{out, {}, {}};
        std::vector<PrimitiveId> roots;
        for (const ValueId v : p_.outputs)
            if (producers_[v]) roots.push_back(producers_[v]);
        for (const PrimitiveId s : needed(roots, false)) {
            if (carries(s)) return false;  // read across parts
            Primitive stage = p_.primitives[s];
            if (sums(s)) {
                merged_.insert(s);
                stage.kind = merge(half, s);
            } else {
                for (Access& a : stage.expr()->accesses) a.value = value_of(half, a.value);
            }
            stage.outputs = {value_of(half, result(s))};
            out.primitives.push_back(std::move(stage));
        }
        for (const ValueId v : p_.outputs) out.outputs.push_back(value_of(half, v));
        return !merged_.empty();
    }

    ValueId part_input(Half& half, PrimitiveId s) const {
        const auto [it, fresh] = half.parts.try_emplace(result(s));
        if (fresh) {
            it->second = half.program.values.push_back(part_of(s));
            half.program.inputs.push_back(it->second);
        }
        return it->second;
    }

    /// The sum over the parts, then the epilogue.
    TensorExpr merge(Half& half, PrimitiveId s) const {
        const TensorExpr& e = expr(s);
        const Expr j = axis(e.spatial);
        TensorExpr out;
        out.extents.assign(e.extents.begin(), e.extents.begin() + static_cast<std::ptrdiff_t>(e.spatial));
        out.extents.emplace_back(parts_);
        out.spatial = e.spatial;
        out.reducer = e.reducer;
        out.output_index = e.output_index;
        const auto read = [&](ValueId v, std::vector<Expr> index, bool part) {
            Access a;
            a.value = v;
            if (part) index.insert(index.begin(), j);
            a.index = std::move(index);
            out.accesses.push_back(std::move(a));
            return static_cast<uint32_t>(out.accesses.size() - 1);
        };
        ScalarBody& b = out.body;
        const DType type = e.body.dtype();
        const ScalarId x = b.access(read(part_input(half, s), result_index(e), true), type);
        if (!scales_[s]) {
            b.set_root(x);
        } else {
            const PrimitiveId maximum = producers_[scales_[s]->maximum];
            const ScalarId mine = b.access(read(part_input(half, maximum), scales_[s]->index, true), type);
            const ScalarId all = b.access(read(value_of(half, result(maximum)), scales_[s]->index, false), type);
            const ScalarId moved =
                b.binary(ScalarOp::Mul, x, b.unary(ScalarOp::Exp, b.binary(ScalarOp::Sub, mine, all)));
            const ScalarId lowest = b.constant(type, -std::numeric_limits<double>::infinity());
            b.set_root(b.select(b.binary(ScalarOp::Eq, mine, all), x,
                                b.select(b.binary(ScalarOp::Eq, mine, lowest), b.constant(type, 0), moved)));
        }
        if (!e.epilogue.empty()) {
            std::map<uint32_t, uint32_t> slots;
            for (const uint32_t slot : e.epilogue.slots()) {
                slots[slot] = static_cast<uint32_t>(out.accesses.size());
                out.accesses.push_back(e.accesses[slot]);
                out.accesses.back().value = value_of(half, e.accesses[slot].value);
            }
            out.epilogue.set_root(out.epilogue.inline_body(e.epilogue, [&](ScalarBody& into, const ScalarNode& leaf) {
                return leaf.op == ScalarOp::Access
                           ? into.access(slots.at(leaf.slot), p_.values[e.accesses[leaf.slot].value].dtype)
                           : ScalarId();
            }));
        }
        return tidy(out);
    }

    const Program& p_;
    IndexVector<ValueId, PrimitiveId> producers_;
    int64_t parts_, length_;
    IndexVector<PrimitiveId, std::optional<size_t>> at_;  ///< the axis' position in each stage
    IndexVector<PrimitiveId, std::optional<OnlineScale>> scales_;
    std::set<PrimitiveId> merged_;  ///< sums whose parts the merge kernel adds
};

/// Drops inputs that no stage reads any more.
void drop_unread_inputs(Program& p) {
    std::set<ValueId> read;
    for (const Primitive& s : p.primitives)
        for (const ValueId v : s.inputs()) read.insert(v);
    std::erase_if(p.inputs, [&](ValueId v) { return read.count(v) == 0; });
}

}  // namespace

std::optional<SplitSum> split_sum(const Program& stages, int64_t parts) {
    for (const Primitive& s : stages.primitives)
        if (s.expr() == nullptr) return std::nullopt;
    const Program p = factored(stages);
    const auto axes = identify_axes(p);
    if (!axes) return std::nullopt;
    std::optional<PrimitiveId> last;
    for (const PrimitiveId s : p.primitives.ids())
        if (p.primitives[s].expr()->reducer != Reducer::None) last = s;
    if (!last) return std::nullopt;
    const TensorExpr& e = *p.primitives[*last].expr();
    std::optional<size_t> longest;
    for (size_t k = e.spatial; k < e.extents.size(); ++k)
        if (e.extents[k].is_constant() && (!longest || e.extents[k].constant() > e.extents[*longest].constant()))
            longest = k;
    if (!longest) return std::nullopt;
    const int64_t extent = e.extents[*longest].constant();
    for (int64_t n = std::max<int64_t>(2, parts); n <= 4 * parts && n * kShortestPart <= extent; ++n) {
        if (extent % n != 0) continue;
        auto out = Splitter(p, *axes, axes->stage_axes[*last][*longest], n).run();
        if (!out) return std::nullopt;
        drop_unread_inputs(out->partial);
        drop_unread_inputs(out->merge);
        return out;
    }
    return std::nullopt;
}

}  // namespace tilewright::chain
