// Which stages share a kernel: those that work on the same rows, so that a row is still in the cache when the next
// stage reads it (softmax: maximum, sum of exponentials, quotient; the normalisations; InstanceNorm's planes).

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "orchestrate/plan.h"
#include "program/analysis/contraction.h"
#include "program/analysis/dynamic.h"

namespace tilewright {

namespace {

constexpr int64_t kRowBytes = 512 * 1024;  // what the intermediates of one row may take of the cache

bool multiplies_two_values(const TensorExpr& e) {
    const auto c = contraction(e);
    return c && c->reads_plainly() && e.accesses[*c->factors[0].slot].value != e.accesses[*c->factors[1].slot].value;
}

/// Output dimension d is walked by which axis; kNoAxis: by none (it has one element). Nothing where an index is
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

/// An operand that does not vary along some non-row axis of the expression, such as the mean of each row.
bool is_row_statistic(const TensorExpr& e, const Access& access) {
    for (size_t k = 0; k < e.extents.size(); ++k) {
        if (e.extents[k].is_constant(1)) continue;
        bool used = false;
        for (const Expr& i : access.index) used = used || uses(i, {VarKind::Axis, static_cast<uint32_t>(k)});
        if (!used) return true;
    }
    return false;
}

/// True when neighbours along axis `a` are neighbours in memory, in some operand that varies along it or in the result.
bool walks_lanes(const Program& program, const TensorExpr& e, ValueId out, size_t a) {
    if (e.extents[a].is_constant(1)) return false;
    std::vector<Expr> index = e.output_index;
    if (index.empty())
        for (size_t k = 0; k < e.spatial; ++k) index.push_back(axis(k));
    // A reduced result is short: what matters is how its operands are walked.
    if (e.reducer == Reducer::None) {
        const auto strides = axis_strides(program, e, out, index);
        if (strides[a] && strides[a]->is_constant(1)) return true;
    }
    return std::any_of(e.accesses.begin(), e.accesses.end(), [&](const Access& access) {
        const auto strides = axis_strides(program, e, access.value, access.index);
        if (!strides[a] || !strides[a]->is_constant(1)) return false;
        // Statistics of the rows themselves (one number a row) do not count.
        return std::any_of(
                   strides.begin(), strides.end(),
                   [&](const std::optional<Expr>& s) { return &s != &strides[a] && (!s || !s->is_constant(0)); }) &&
               access.index.size() > 0 && !is_row_statistic(e, access);
    });
}

struct Open {
    std::vector<PrimitiveId> members;
    std::vector<std::vector<size_t>> rows;  ///< per member: its axes that are the shared rows, in the group's order
};

}  // namespace

std::vector<KernelGroup> group_rows(const Program& program, bool fuse, const FusionLimits& limits) {
    std::vector<KernelGroup> groups;
    IndexVector<ValueId, PrimitiveId> producers = program.producers();
    const auto consumers = program.consumers();
    const std::set<ValueId> results(program.outputs.begin(), program.outputs.end());
    std::map<PrimitiveId, size_t> group_of;
    std::vector<Open> open;

    // Rows of `reader` that correspond to the rows of `writer` through an access; fewer rows may remain.
    const auto corresponding = [&](const TensorExpr& reader, const TensorExpr& writer,
                                   const std::vector<size_t>& writer_rows,
                                   ValueId value) -> std::optional<std::vector<std::optional<size_t>>> {
        const auto dims = axis_of_dimension(writer, program.values[value].shape.size());
        if (!dims) return std::nullopt;
        std::vector<std::optional<size_t>> out(writer_rows.size());
        bool first = true;
        for (const Access& a : reader.accesses) {
            if (a.value != value) continue;
            if (!a.valid.empty()) return std::nullopt;
            std::vector<std::optional<size_t>> here(writer_rows.size());
            for (size_t d = 0; d < dims->size(); ++d) {
                const auto row = std::find(writer_rows.begin(), writer_rows.end(), (*dims)[d]);
                if (row == writer_rows.end()) continue;
                const auto v = a.index[d].as_var();
                if (v && v->kind == VarKind::Axis && v->id < reader.spatial &&
                    reader.extents[v->id] == writer.extents[*row])
                    here[static_cast<size_t>(row - writer_rows.begin())] = v->id;
            }
            if (!first && here != out) return std::nullopt;
            out = here;
            first = false;
        }
        return out;
    };

    const auto row_bytes = [&](const Open& g) {
        int64_t bytes = 0;
        for (size_t i = 0; i < g.members.size(); ++i) {
            const Primitive& p = program.primitives[g.members[i]];
            const TensorExpr& e = *p.expr();
            int64_t elements = 1;
            for (size_t a = 0; a < e.spatial; ++a) {
                if (std::find(g.rows[i].begin(), g.rows[i].end(), a) != g.rows[i].end()) continue;
                if (!e.extents[a].is_constant()) return int64_t{-1};
                elements *= e.extents[a].constant();
            }
            bytes += elements * static_cast<int64_t>(byte_size(program.values[p.outputs[0]].dtype));
        }
        return bytes;
    };

    for (const PrimitiveId id : program.primitives.ids()) {
        const Primitive& primitive = program.primitives[id];
        const TensorExpr* e = primitive.expr();
        if (e == nullptr) continue;
        bool joined = false;
        if (fuse && !multiplies_two_values(*e)) {
            // The latest group that feeds this primitive.
            std::optional<size_t> candidate;
            for (const ValueId v : primitive.inputs())
                if (producers[v] && group_of.count(producers[v]) != 0)
                    candidate = std::max(candidate.value_or(0), group_of.at(producers[v]));
            while (candidate && !joined) {
                Open g = open[*candidate];
                if (multiplies_two_values(*program.primitives[g.members[0]].expr())) break;
                if (limits.may_share && !std::all_of(g.members.begin(), g.members.end(), [&](PrimitiveId m) {
                        return limits.may_share(program.primitives[m], primitive);
                    }))
                    break;
                // Whatever else it reads must exist before the group runs: groups run where their last member stands,
                // so a value from a later group is fine only if that group ends before; refuse anything made after the
                // group began by another group.
                bool ordered = true;
                for (const ValueId v : primitive.inputs()) {
                    if (!producers[v] || !program.primitives[producers[v]].expr()) {
                        if (producers[v] && producers[v] > g.members.front()) ordered = false;
                        continue;
                    }
                    if (group_of.at(producers[v]) != *candidate && producers[v] > g.members.front()) ordered = false;
                }
                // And whatever reads the group's earlier values outside must not stand before this primitive.
                for (const PrimitiveId m : g.members)
                    for (const PrimitiveId c : consumers[program.primitives[m].outputs[0]])
                        if (c < id && std::find(g.members.begin(), g.members.end(), c) == g.members.end())
                            ordered = false;
                if (!ordered) break;
                std::vector<std::optional<size_t>> mine;
                bool ok = true, any = false;
                for (size_t i = 0; i < g.members.size() && ok; ++i) {
                    const ValueId v = program.primitives[g.members[i]].outputs[0];
                    if (std::none_of(e->accesses.begin(), e->accesses.end(),
                                     [&](const Access& a) { return a.value == v; }))
                        continue;
                    const auto rows = corresponding(*e, *program.primitives[g.members[i]].expr(), g.rows[i], v);
                    if (!rows) {
                        ok = false;
                        break;
                    }
                    if (!any)
                        mine = *rows;
                    else
                        for (size_t r = 0; r < mine.size(); ++r)
                            if (mine[r] != (*rows)[r]) mine[r].reset();
                    any = true;
                }
                if (!ok || !any) break;
                // Keep the rows that everybody shares.
                Open next;
                next.members = g.members;
                next.rows.resize(g.members.size());
                std::vector<size_t> kept;
                for (size_t r = 0; r < mine.size(); ++r) {
                    if (!mine[r] || std::find(kept.begin(), kept.end(), *mine[r]) != kept.end()) continue;
                    // An axis along which memory is contiguous belongs to the vectors inside a row.
                    bool contiguous = walks_lanes(program, *e, primitive.outputs[0], *mine[r]);
                    for (size_t i = 0; i < g.members.size(); ++i) {
                        const Primitive& m = program.primitives[g.members[i]];
                        contiguous = contiguous || walks_lanes(program, *m.expr(), m.outputs[0], g.rows[i][r]);
                    }
                    if (contiguous) continue;
                    kept.push_back(*mine[r]);
                    for (size_t i = 0; i < g.members.size(); ++i) next.rows[i].push_back(g.rows[i][r]);
                }
                next.members.push_back(id);
                next.rows.push_back(kept);
                int64_t points = 1;
                for (const size_t a : kept) points *= assumed_extent(e->extents[a]);
                int64_t whole = 1;
                for (size_t a = 0; a < e->spatial; ++a) whole *= assumed_extent(e->extents[a]);
                const int64_t bytes = row_bytes(next);
                // A reduction over everything leaves no rows: then one task does it all, which is right for little work
                // only.
                const bool enough = points >= 2 || whole <= 16384;
                const bool reduces = std::any_of(next.members.begin(), next.members.end(), [&](PrimitiveId m) {
                    return program.primitives[m].expr()->reducer != Reducer::None;
                });
                if (!reduces || bytes < 0 || bytes > kRowBytes || !enough || next.members.size() > 12) break;
                open[*candidate] = std::move(next);
                group_of[id] = *candidate;
                joined = true;
            }
        }
        if (!joined) {
            Open g;
            g.members = {id};
            std::vector<size_t> rows;
            for (size_t a = 0; a < e->spatial; ++a) rows.push_back(a);
            g.rows = {rows};
            group_of[id] = open.size();
            open.push_back(std::move(g));
        }
    }
    for (Open& g : open) {
        KernelGroup out;
        out.primitives = std::move(g.members);
        out.row_axes = std::move(g.rows);
        if (out.primitives.size() == 1) out.row_axes = {{}};
        groups.push_back(std::move(out));
    }
    return groups;
}

}  // namespace tilewright
