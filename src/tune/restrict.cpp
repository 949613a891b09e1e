#include "tune/restrict.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "program/transform/substitute.h"

namespace tilewright {
namespace {

/// The required region of a value, per dimension (per spatial axis of its stage), inclusive.
struct Box {
    std::vector<int64_t> lo, hi;

    void include(const Box& other) {
        if (lo.empty()) {
            *this = other;
            return;
        }
        for (size_t d = 0; d < lo.size(); ++d) {
            lo[d] = std::min(lo[d], other.lo[d]);
            hi[d] = std::max(hi[d], other.hi[d]);
        }
    }
};

std::vector<int64_t> numbers(const std::vector<Expr>& exprs) {
    std::vector<int64_t> out;
    out.reserve(exprs.size());
    for (const Expr e : exprs) {
        TW_CHECK(e.is_constant(), "'{}' is not a number", e.text());
        out.push_back(e.constant());
    }
    return out;
}

/// The region of a value of `shape` that `a` reads, whose indices are over `ranges`.
Box box_read(const Access& a, const std::vector<int64_t>& shape, const Ranges& ranges) {
    Box box{shape, shape};
    for (size_t d = 0; d < shape.size(); ++d) {
        const Interval known = bounds(a.index[d], ranges);
        const bool low = known.lo && known.lo->is_constant(), high = known.hi && known.hi->is_constant();
        // The bounds of an index may exceed the dimension if conditions keep it inside.
        box.lo[d] = low ? std::clamp<int64_t>(known.lo->constant(), 0, shape[d] - 1) : 0;
        box.hi[d] = high ? std::clamp<int64_t>(known.hi->constant(), box.lo[d], shape[d] - 1) : shape[d] - 1;
    }
    return box;
}

/// The expression over the box only: spatial axes start at 0 again, and the result has the axes as dimensions.
TensorExpr cut(const TensorExpr& e, const Box& box) {
    std::vector<Expr> axes;
    axes.reserve(e.extents.size());
    for (size_t k = 0; k < e.extents.size(); ++k) axes.push_back(k < e.spatial ? axis(k) + box.lo[k] : axis(k));
    TensorExpr out = e;
    out.output_index.clear();
    out = map_exprs(out, [&](Expr x) { return substitute_axes(x, axes); });
    for (size_t k = 0; k < e.spatial; ++k) out.extents[k] = box.hi[k] - box.lo[k] + 1;
    return out;
}

/// The axis that indexes each dimension of the result, SIZE_MAX for a constant index; nothing for any other index, or
/// if an axis of several points indexes no dimension.
std::optional<std::vector<size_t>> axes_of_dimensions(const TensorExpr& e) {
    std::vector<size_t> out;
    std::vector<bool> walked(e.spatial, false);
    for (const Expr& i : result_index(e)) {
        const auto v = i.as_var();
        if (v && v->kind == VarKind::Axis && !walked[v->id]) {
            walked[v->id] = true;
            out.push_back(v->id);
        } else if (i.is_constant()) {
            out.push_back(SIZE_MAX);
        } else {
            return std::nullopt;
        }
    }
    for (size_t k = 0; k < e.spatial; ++k)
        if (!walked[k] && !e.extents[k].is_constant(1)) return std::nullopt;
    return out;
}

}  // namespace

int64_t work_of(const Program& stages) {
    double work = 0;
    for (const Primitive& p : stages.primitives) {
        double points = 1;
        for (const int64_t n : numbers(p.expr()->extents)) points *= static_cast<double>(n);
        work += points * static_cast<double>(p.expr()->body.nodes().size() + p.expr()->accesses.size());
    }
    return static_cast<int64_t>(std::min(work, 0x1p62));
}

const TensorExpr& stage_of_output(const Program& stages, size_t output) {
    const PrimitiveId id = stages.producers()[stages.outputs.at(output)];
    TW_CHECK(id && stages.primitives[id].expr() != nullptr, "no stage computes output {}", output);
    return *stages.primitives[id].expr();
}

RestrictedKernel restrict_kernel(const Program& stages, size_t output, const Window& window) {
    const ValueId wanted = stages.outputs.at(output);
    std::map<ValueId, Box> boxes;  // of the values that stages produce and the window needs
    Box all;
    for (size_t k = 0; k < window.begin.size(); ++k) {
        all.lo.push_back(window.begin[k]);
        all.hi.push_back(window.begin[k] + window.length[k] - 1);
    }
    TW_CHECK(all.lo.size() == stage_of_output(stages, output).spatial, "a window of {} axes", all.lo.size());
    boxes[wanted] = all;
    const auto producers = stages.producers();

    // In reverse order: all readers of a stage's value have added their regions before the stage is visited.
    struct Part {
        ValueId v;
        TensorExpr e;
        bool whole;
    };
    std::vector<Part> kept;
    const std::vector<PrimitiveId> ids = stages.primitives.ids();
    for (auto id = ids.rbegin(); id != ids.rend(); ++id) {
        const ValueId v = stages.primitives[*id].outputs.at(0);
        const TensorExpr& e = *stages.primitives[*id].expr();
        const auto needed = boxes.find(v);
        if (needed == boxes.end()) continue;
        const auto walks = v == wanted ? std::nullopt : axes_of_dimensions(e);
        const bool whole = v != wanted && !walks;  // dimensions are not axes: not restricted
        if (whole) needed->second = {};
        Box axes = needed->second;
        if (walks) {
            axes.lo.assign(e.spatial, 0);
            axes.hi.assign(e.spatial, 0);
            for (size_t d = 0; d < walks->size(); ++d) {
                if ((*walks)[d] == SIZE_MAX) {
                    needed->second.lo[d] = 0;  // the dimension is not restricted
                    continue;
                }
                axes.lo[(*walks)[d]] = needed->second.lo[d];
                axes.hi[(*walks)[d]] = needed->second.hi[d];
            }
        }
        kept.push_back({v, whole ? e : cut(e, axes), whole});
        if (walks && !e.output_index.empty()) kept.back().e.output_index = e.output_index;
        const TensorExpr& part = kept.back().e;
        for (const Access& a : part.accesses)
            if (producers[a.value])
                boxes[a.value].include(box_read(a, numbers(stages.values[a.value].shape), part.ranges()));
    }

    RestrictedKernel out;
    out.program = stages;
    out.program.primitives = {};
    out.program.outputs = {wanted};
    std::reverse(kept.begin(), kept.end());
    for (auto& [v, e, whole] : kept) {
        std::vector<Expr>& shape = out.program.values[v].shape;
        if (!whole && e.output_index.empty())
            shape.assign(e.extents.begin(), e.extents.begin() + static_cast<ptrdiff_t>(e.spatial));
        else if (!whole)
            for (size_t d = 0; d < shape.size(); ++d)
                if (const auto walk = e.output_index[d].as_var()) shape[d] = e.extents[walk->id];
        for (Access& a : e.accesses) {
            const auto box = boxes.find(a.value);
            if (box == boxes.end()) continue;
            for (size_t d = 0; d < box->second.lo.size(); ++d) a.index[d] = a.index[d] - box->second.lo[d];
        }
        Primitive p;
        p.outputs = {v};
        p.kind = std::move(e);
        out.program.primitives.push_back(std::move(p));
    }
    out.work = work_of(out.program);
    return out;
}

}  // namespace tilewright
