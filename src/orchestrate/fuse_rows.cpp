#include "orchestrate/fuse_rows.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>

#include "program/analysis/contraction.h"
#include "program/analysis/dynamic.h"
#include "program/analysis/sized.h"
#include "schedule/default_schedule.h"

namespace tilewright {

namespace {

constexpr int64_t kRowBytes = 512 * 1024;  // maximum bytes of one row's intermediate values

bool multiplies_two_values(const TensorExpr& e) {
    const auto c = contraction(e);
    return c && c->reads_widened() && e.accesses[*c->factors[0].read].value != e.accesses[*c->factors[1].read].value;
}

/// Per output dimension, the axis that indexes it; kNoAxis: none (it has one element). Nothing where an index is
/// neither.
constexpr size_t kNoAxis = SIZE_MAX;
std::optional<std::vector<size_t>> axis_of_dimension(const TensorExpr& e, size_t rank) {
    std::vector<size_t> out;
    for (size_t d = 0; d < rank; ++d) {
        if (e.output_index.empty()) {
            out.push_back(d);
            continue;
        }
        const auto v = e.output_index[d].as_var();
        if (!e.output_index[d].is_constant(0) && (!v || v->kind != VarKind::Axis)) return std::nullopt;
        out.push_back(v ? v->id : kNoAxis);
    }
    return out;
}

/// Whether an operand is constant along a non-row axis of the expression, such as the mean of each row.
bool is_row_statistic(const TensorExpr& e, const Access& access) {
    for (size_t k = 0; k < e.extents.size(); ++k) {
        if (e.extents[k].is_constant(1)) continue;
        bool used = false;
        for (const Expr& i : access.index) used = used || uses(i, {VarKind::Axis, static_cast<uint32_t>(k)});
        if (!used) return true;
    }
    return false;
}

/// Whether neighbours along axis `a` are contiguous in memory, in an operand that varies along it or in the result.
bool walks_lanes(const Program& program, const TensorExpr& e, ValueId out, size_t a) {
    if (e.extents[a].is_constant(1)) return false;
    std::vector<Expr> index = e.output_index;
    if (index.empty())
        for (size_t k = 0; k < e.spatial; ++k) index.push_back(axis(k));
    // The result of a reduction is short, so only the operands' strides count.
    if (e.reducer == Reducer::None) {
        const auto strides = axis_strides(program, e, out, index);
        if (strides[a] && strides[a]->is_constant(1)) return true;
    }
    return std::any_of(e.accesses.begin(), e.accesses.end(), [&](const Access& access) {
        const auto strides = axis_strides(program, e, access.value, access.index);
        if (!strides[a] || !strides[a]->is_constant(1)) return false;
        // Statistics of the rows (one number per row) do not count.
        return std::any_of(
                   strides.begin(), strides.end(),
                   [&](const std::optional<Expr>& s) { return &s != &strides[a] && (!s || !s->is_constant(0)); }) &&
               !access.index.empty() && !is_row_statistic(e, access);
    });
}

/// A group that may still grow.
struct RowGroup {
    std::vector<PrimitiveId> members;
    std::vector<std::vector<size_t>> rows;  ///< per member: the axes that are the shared rows, in the group's order
};

constexpr size_t kMostRowStages = 12;

class RowFuser {
  public:
    RowFuser(const Program& program, const FusionLimits& limits)
        : p_(program),
          limits_(limits),
          producers_(program.producers()),
          consumers_(program.consumers()),
          of_sizes_(limits.sizes_apart ? depend_on_sizes(program)
                                       : IndexVector<ValueId, char>(program.values.size(), 0)) {}

    std::vector<KernelGroup> run() {
        for (const PrimitiveId id : p_.primitives.ids())
            if (p_.primitives[id].expr() != nullptr) place(id);
        std::vector<KernelGroup> out;
        for (RowGroup& g : groups_) {
            KernelGroup& made = out.emplace_back();
            made.primitives = std::move(g.members);
            made.row_axes = std::move(g.rows);
            if (made.primitives.size() == 1) made.row_axes = {{}};
        }
        return out;
    }

  private:
    /// Per row of the writer, the reader's axis; none where the reader has no such row.
    using Rows = std::vector<std::optional<size_t>>;
    template <class T>
    using OrRefusal = std::variant<T, FusionRefusal>;

    const TensorExpr& expr(PrimitiveId id) const { return *p_.primitives[id].expr(); }

    /// Adds the primitive to the latest group that feeds it, or starts a new group.
    void place(PrimitiveId id) {
        if (const auto latest = latest_producer(id)) {
            OrRefusal<RowGroup> joined = can_join(groups_[*latest], id);
            record(id, *latest, std::get_if<FusionRefusal>(&joined));
            if (auto* group = std::get_if<RowGroup>(&joined)) {
                groups_[*latest] = std::move(*group);
                group_of_[id] = *latest;
                return;
            }
        }
        std::vector<size_t> rows;
        for (size_t a = 0; a < expr(id).spatial; ++a) rows.push_back(a);
        group_of_[id] = groups_.size();
        groups_.push_back({{id}, {std::move(rows)}});
    }

    std::optional<size_t> latest_producer(PrimitiveId id) const {
        std::optional<size_t> latest;
        for (const ValueId v : p_.primitives[id].inputs())
            if (const auto it = group_of_.find(producers_[v]); it != group_of_.end())
                latest = std::max(latest.value_or(0), it->second);
        return latest;
    }

    void record(PrimitiveId id, size_t latest, const FusionRefusal* refusal) const {
        if (!limits_.refusals) return;
        for (const ValueId v : p_.primitives[id].inputs()) {
            const auto it = group_of_.find(producers_[v]);
            if (it == group_of_.end()) continue;
            if (it->second != latest)
                limits_.refuse(p_.primitives[it->first], p_.primitives[id],
                               {"rows are shared with the last kernel it reads from only"});
            else if (refusal != nullptr)
                limits_.refuse(p_.primitives[it->first], p_.primitives[id], *refusal);
        }
    }

    /// The group extended by the primitive.
    OrRefusal<RowGroup> can_join(const RowGroup& group, PrimitiveId id) const {
        if (multiplies_two_values(expr(id))) return FusionRefusal{"a product of two values starts a kernel of its own"};
        if (multiplies_two_values(expr(group.members[0])))
            return FusionRefusal{"a product of two values shares no rows with its readers"};
        if (limits_.may_share && !std::all_of(group.members.begin(), group.members.end(), [&](PrimitiveId m) {
                return limits_.may_share(p_.primitives[m], p_.primitives[id]);
            }))
            return FusionRefusal{"an option forbids fusing the two"};
        if (of_sizes_[p_.primitives[id].outputs[0]] != of_sizes_[p_.primitives[group.members[0]].outputs[0]])
            return FusionRefusal{"its operand is computed once for all runs of equal sizes"};
        if (!is_ordered(group, id)) return FusionRefusal{"the kernels would depend on each other"};
        OrRefusal<Rows> rows = rows_of(group, id);
        if (const auto* refusal = std::get_if<FusionRefusal>(&rows)) return *refusal;
        RowGroup joined = with_shared_rows(group, id, std::get<Rows>(rows));
        if (const auto refusal = too_much(joined)) return *refusal;
        return joined;
    }

    /// Whether the group, which runs at the place of its last member, can run at `id`.
    bool is_ordered(const RowGroup& group, PrimitiveId id) const {
        const auto is_member = [&](PrimitiveId m) {
            return std::find(group.members.begin(), group.members.end(), m) != group.members.end();
        };
        // Other operands must exist before the group runs.
        for (const ValueId v : p_.primitives[id].inputs())
            if (producers_[v] && producers_[v] > group.members.front() && !is_member(producers_[v])) return false;
        // Other readers of the group's values must not come before `id`.
        for (const PrimitiveId m : group.members)
            for (const PrimitiveId c : consumers_[p_.primitives[m].outputs[0]])
                if (c < id && !is_member(c)) return false;
        return true;
    }

    /// The axes of `id` that correspond to the group's rows, through all values of the group that it reads.
    OrRefusal<Rows> rows_of(const RowGroup& group, PrimitiveId id) const {
        const TensorExpr& e = expr(id);
        std::optional<Rows> mine;
        for (size_t i = 0; i < group.members.size(); ++i) {
            const ValueId v = p_.primitives[group.members[i]].outputs[0];
            if (std::none_of(e.accesses.begin(), e.accesses.end(), [&](const Access& a) { return a.value == v; }))
                continue;
            OrRefusal<Rows> rows = corresponding(e, expr(group.members[i]), group.rows[i], v);
            if (std::holds_alternative<FusionRefusal>(rows)) return rows;
            const Rows& here = std::get<Rows>(rows);
            if (!mine) mine = here;
            for (size_t r = 0; r < mine->size(); ++r)
                if ((*mine)[r] != here[r]) (*mine)[r].reset();
        }
        if (!mine) return FusionRefusal{"it reads no result of the group row by row"};
        return std::move(*mine);
    }

    /// Rows of `reader` that correspond to the rows of `writer` through the accesses of `value`.
    OrRefusal<Rows> corresponding(const TensorExpr& reader, const TensorExpr& writer,
                                  const std::vector<size_t>& writer_rows, ValueId value) const {
        const auto dims = axis_of_dimension(writer, p_.values[value].shape.size());
        if (!dims) return FusionRefusal{"its operand's output index has entries other than plain axes"};
        std::optional<Rows> out;
        for (const Access& a : reader.accesses) {
            if (a.value != value) continue;
            if (!a.valid.empty()) return FusionRefusal{"it pads its operand"};
            Rows here(writer_rows.size());
            for (size_t d = 0; d < dims->size(); ++d) {
                const auto row = std::find(writer_rows.begin(), writer_rows.end(), (*dims)[d]);
                if (row == writer_rows.end()) continue;
                const auto v = a.index[d].as_var();
                if (v && v->kind == VarKind::Axis && v->id < reader.spatial &&
                    reader.extents[v->id] == writer.extents[*row])
                    here[static_cast<size_t>(row - writer_rows.begin())] = v->id;
            }
            if (out && here != *out) return FusionRefusal{"it reads its operand twice, along different rows"};
            out = std::move(here);
        }
        return out ? std::move(*out) : Rows(writer_rows.size());
    }

    /// The group extended by `id`, with the rows that all its members share.
    RowGroup with_shared_rows(const RowGroup& group, PrimitiveId id, const Rows& mine) const {
        RowGroup joined;
        joined.members = group.members;
        joined.rows.resize(group.members.size());
        std::vector<size_t> kept;
        for (size_t r = 0; r < mine.size(); ++r) {
            if (!mine[r] || std::find(kept.begin(), kept.end(), *mine[r]) != kept.end()) continue;
            // An axis along which memory is contiguous is left for the vectors inside a row.
            bool contiguous = walks_lanes(p_, expr(id), p_.primitives[id].outputs[0], *mine[r]);
            for (size_t i = 0; i < group.members.size(); ++i) {
                const Primitive& m = p_.primitives[group.members[i]];
                contiguous = contiguous || walks_lanes(p_, *m.expr(), m.outputs[0], group.rows[i][r]);
            }
            if (contiguous) continue;
            kept.push_back(*mine[r]);
            for (size_t i = 0; i < group.members.size(); ++i) joined.rows[i].push_back(group.rows[i][r]);
        }
        joined.members.push_back(id);
        joined.rows.push_back(std::move(kept));
        return joined;
    }

    /// The reason why the group, whose last member is new, would be a slow kernel.
    std::optional<FusionRefusal> too_much(const RowGroup& group) const {
        if (std::none_of(group.members.begin(), group.members.end(),
                         [&](PrimitiveId m) { return expr(m).reducer != Reducer::None; }))
            return FusionRefusal{"neither is a reduction"};
        // A full reduction leaves no rows. It is a single task, which only suits little work.
        constexpr int64_t kLittleWork = 16384;
        const TensorExpr& e = expr(group.members.back());
        int64_t points = 1, whole = 1;
        for (const size_t a : group.rows.back()) points *= assumed_extent(e.extents[a], p_.assumed);
        for (size_t a = 0; a < e.spatial; ++a) whole *= assumed_extent(e.extents[a], p_.assumed);
        if (points < 2 && whole > kLittleWork) return FusionRefusal{"the two share no rows"};
        const std::optional<int64_t> bytes = row_bytes(group);
        if (!bytes) return FusionRefusal{"the size of a row is unknown at compile time"};
        if (*bytes > kRowBytes) return FusionRefusal{"a row's intermediate values exceed the cache"};
        if (group.members.size() > kMostRowStages) return FusionRefusal{"the kernel would have too many stages"};
        return std::nullopt;
    }

    /// Bytes that all members write per row, at most; nothing where that is unknown.
    std::optional<int64_t> row_bytes(const RowGroup& group) const {
        int64_t bytes = 0;
        for (size_t i = 0; i < group.members.size(); ++i) {
            const Primitive& p = p_.primitives[group.members[i]];
            const TensorExpr& e = *p.expr();
            int64_t elements = 1;
            for (size_t a = 0; a < e.spatial; ++a) {
                if (std::find(group.rows[i].begin(), group.rows[i].end(), a) != group.rows[i].end()) continue;
                const std::optional<int64_t> most = most_value(e.extents[a], p_.at_most);
                if (!most || __builtin_mul_overflow(elements, *most, &elements)) return std::nullopt;
            }
            const auto size = static_cast<int64_t>(byte_size(p_.values[p.outputs[0]].dtype));
            if (__builtin_mul_overflow(elements, size, &elements) || __builtin_add_overflow(bytes, elements, &bytes))
                return std::nullopt;
        }
        return bytes;
    }

    const Program& p_;
    const FusionLimits& limits_;
    const IndexVector<ValueId, PrimitiveId> producers_;
    const IndexVector<ValueId, std::vector<PrimitiveId>> consumers_;
    const IndexVector<ValueId, char> of_sizes_;
    std::vector<RowGroup> groups_;
    std::map<PrimitiveId, size_t> group_of_;
};

}  // namespace

std::vector<KernelGroup> fuse_rows(const Program& program, const FusionLimits& limits) {
    return RowFuser(program, limits).run();
}

std::vector<KernelGroup> single_kernels(const Program& program) {
    std::vector<KernelGroup> out;
    for (const PrimitiveId id : program.primitives.ids())
        if (program.primitives[id].expr() != nullptr) out.push_back({{id}, {{}}});
    return out;
}

}  // namespace tilewright
