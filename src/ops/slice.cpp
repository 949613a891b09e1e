// Operators that slice or pad a tensor: Slice, Split, Pad, CenterCropPad.

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/families.h"
#include "ops/scalar_math.h"
#include "ops/shape_math.h"

namespace tilewright {

namespace {

// --- Slice

/// A start or end as a position clamped to [lo, hi]: negative ones count from the end.
Expr slice_bound(Expr bound, Expr extent, Expr lo, Expr hi) {
    if (bound.is_constant() && bound.constant() >= kFar) return hi;
    if (bound.is_constant() && bound.constant() <= -kFar) return lo;
    return max(lo, min(hi, bound + is_negative(bound) * extent));
}

void slice(NodeContext& c) {
    std::vector<Expr> starts, ends, axes, steps;
    const auto exprs = [](const std::vector<int64_t>& v) { return std::vector<Expr>(v.begin(), v.end()); };
    if (c.node.opset < 10) {
        starts = exprs(c.node.attr_ints("starts", {}));
        ends = exprs(c.node.attr_ints("ends", {}));
        axes = exprs(c.node.attr_ints("axes", {}));
    } else {
        starts = c.b.read_ints(c.in(1));
        ends = c.b.read_ints(c.in(2));
        if (c.has(3)) axes = c.b.read_ints(c.in(3));
        if (c.has(4)) steps = c.b.read_ints(c.in(4));
    }
    if (axes.empty())
        for (size_t k = 0; k < starts.size(); ++k) axes.emplace_back(static_cast<int64_t>(k));
    if (steps.empty()) steps.assign(axes.size(), 1);
    c.require(starts.size() == axes.size() && ends.size() == axes.size() && steps.size() == axes.size(),
              fmt::format("starts, ends, axes and steps should have one length, and have {}, {}, {} and {}",
                          starts.size(), ends.size(), axes.size(), steps.size()));
    for (auto* bounds : {&starts, &ends})
        for (Expr& e : *bounds) e = within_reach(e);
    for (const Expr step : steps) require_not_zero(c.b, step, "step");
    const size_t r = c.rank(0);
    axes = positive_axes(c.b, axes, r);
    const Dims from = by_axis(axes, starts, Dims(r, 0)), to = by_axis(axes, ends, Dims(r, kFar)),
               by = by_axis(axes, steps, Dims(r, 1));
    Dims out;
    std::vector<Expr> index;
    for (size_t k = 0; k < r; ++k) {
        if (from[k].is_constant(0) && to[k].is_constant(kFar) && by[k].is_constant(1)) {  // unchanged
            out.push_back(c.shape(0)[k]);
            index.push_back(axis(k));
            continue;
        }
        const Expr d = c.shape(0)[k], backwards = is_negative(by[k]);
        const Expr lo = -backwards, hi = d - backwards;  // a negative step may start at d - 1 and end at -1
        const Expr start = slice_bound(from[k], d, lo, hi), end = slice_bound(to[k], d, lo, hi);
        out.push_back(c.b.settled(max(-floor_div(start - end, by[k]), 0)));
        index.push_back(c.b.settled(start) + axis(k) * by[k]);
    }
    c.out(0, c.b.view(c.in(0), std::move(out), std::move(index), "slice"));
}

// --- Split

void split(NodeContext& c) {
    const auto k = static_cast<size_t>(c.axis_attr("axis", 0, c.rank(0)));
    const Expr d = c.shape(0)[k];
    const size_t parts = c.node.outputs.size();
    std::vector<Expr> sizes;
    if (c.has(1)) {
        sizes = c.b.read_ints(c.in(1));
    } else if (c.node.has("split")) {
        for (const int64_t s : c.node.attr_ints("split", {})) sizes.emplace_back(s);
    } else {
        const int64_t n = c.node.attr_int("num_outputs", static_cast<int64_t>(parts));
        c.require(n == static_cast<int64_t>(parts),
                  fmt::format("attribute 'num_outputs' should be the number of outputs, {}, and is {}", parts, n));
        if (c.node.opset < 18)
            c.b.require_multiple(d, n,
                                 fmt::format("dimension {} of shape {} does not split into {} equal parts", k,
                                             to_string(c.shape(0)), n));
        const Expr each = c.node.opset >= 18 ? ceil_div(d, n) : floor_div(d, n);
        sizes.assign(static_cast<size_t>(n), each);
        if (c.node.opset >= 18)
            sizes.back() = d - each * (n - 1);  // the last one is smaller if the sizes are not equal
    }
    c.require(parts <= sizes.size(), fmt::format("{} outputs are named, and {} parts made", parts, sizes.size()));
    Expr total = 0;
    for (const Expr s : sizes) total = total + s;
    c.b.require_equal(total, d,
                      fmt::format("parts of sizes {} do not make dimension {} of shape {}", to_string(sizes), k,
                                  to_string(c.shape(0))));
    Expr start = 0;
    for (size_t p = 0; p < parts; ++p) {
        if (c.uses_output(p)) c.out(p, c.b.slice(c.in(0), static_cast<int64_t>(k), start, sizes[p]));
        start = start + sizes[p];
    }
}

// --- Pad

enum class PadMode { Constant, Reflect, Edge, Wrap };

PadMode pad_mode(NodeContext& c) {
    const std::string mode = c.node.attr_string("mode", "constant");
    if (mode == "constant") return PadMode::Constant;
    if (mode == "reflect") return PadMode::Reflect;
    if (mode == "edge") return PadMode::Edge;
    if (mode == "wrap") return PadMode::Wrap;
    c.fail(fmt::format("attribute 'mode' should be constant, reflect, edge or wrap, and is {}", quoted_name(mode)));
}

/// Whether both borders are narrower than the interior: they are mirrored once, where wider ones repeat.
bool is_narrow(Expr d, Expr before, Expr after) { return prove_less(before, d, {}) && prove_less(after, d, {}); }

/// The interior position that position p, before 0 or beyond d - 1, reads. `once`: is_narrow; other borders repeat with
/// period 2 (d - 1).
Expr mirrored(PadMode mode, Expr p, Expr d, bool once) {
    if (mode == PadMode::Edge) return max(0, min(p, d - 1));
    if (mode == PadMode::Wrap) return mod(p, d);
    const Expr distance = once ? max(p, -p) : mod(p, (d - 1) * 2);
    return min(distance, (d - 1) * 2 - distance);
}

/// mirrored() of all positions: i64[before + d + after].
ValueId positions(Builder& b, PadMode mode, Expr d, Expr before, Expr after) {
    TensorExpr e;
    e.extents = {before + d + after};
    e.spatial = 1;
    e.body.set_root(e.body.index(mirrored(mode, axis(0) - before, d, false)));
    return b.emit(std::move(e), DType::I64, "positions");
}

/// Pads the axes whose size is unknown at compile time and may be smaller than a border, and sets their pads to 0.
/// Dividing by such sizes takes long: positions become tables, which are computed once for all runs of equal sizes.
ValueId pad_by_tables(Builder& b, PadMode mode, ValueId x, Dims& before, Dims& after) {
    TensorExpr e;
    Access read{x, plain_axes(before.size()), {}, 0};
    e.extents = b.shape(x);
    e.spatial = e.extents.size();
    for (size_t k = 0; k < before.size(); ++k) {
        const Expr d = e.extents[k];
        if (d.is_constant() || is_narrow(d, before[k], after[k])) continue;
        read.index[k] = max(0, min(load(e.accesses.size()), d - 1));
        e.accesses.push_back({positions(b, mode, d, before[k], after[k]), {axis(k)}, {}, 0});
        e.extents[k] = before[k] + d + after[k];
        before[k] = after[k] = 0;
    }
    if (e.accesses.empty()) return x;
    const DType t = b.dtype(x);
    e.body.set_root(e.body.access(e.accesses.size(), t));
    e.accesses.push_back(std::move(read));
    return b.emit(std::move(e), t, "pad");
}

/// x at `index`, where the last index, which has a border, reads the interior at position p of it without detour:
/// copies of the interior are vectors then.
///     x[min(max(i1 - 1, 1 - i1), ...)]  ->  select(0 <= i1 - 1 < d, x[i1 - 1], x[min(max(i1 - 1, 1 - i1), ...)])
ValueId pad_mirrored(Builder& b, ValueId x, Dims out, std::vector<Expr> index, Expr p) {
    const DType t = b.dtype(x);
    TensorExpr e;
    e.spatial = out.size();
    e.extents = std::move(out);
    Access inside{x, index, {p, b.shape(x).back() - 1 - p}, 0};
    inside.index.back() = p;
    e.accesses = {inside, {x, std::move(index), {}, 0}};
    const auto holds = [&](size_t k) { return Sx(e.body, e.body.index(inside.valid[k])).apply(ScalarOp::Ge, 0); };
    const Sx all = holds(0).apply(ScalarOp::BitAnd, holds(1));
    e.body.set_root(all.choose(Sx(e.body, e.body.access(0, t)), Sx(e.body, e.body.access(1, t))));
    return b.emit(std::move(e), t, "pad");
}

/// Pads with `value`, a scalar unknown at compile time (or one that cannot be an access's fill).
ValueId pad_with(Builder& b, ValueId x, ValueId value, const Dims& before, const Dims& after) {
    TensorExpr e;
    Access inside{x, {}, {}, 0};
    const DType t = b.dtype(x);
    std::optional<Sx> all;
    for (size_t k = 0; k < before.size(); ++k) {
        const Expr d = b.shape(x)[k], p = axis(k) - before[k];
        e.extents.push_back(before[k] + d + after[k]);
        inside.index.push_back(p);
        if (before[k].is_constant(0) && after[k].is_constant(0)) continue;
        for (const Expr condition : {p, d - 1 - p}) {
            inside.valid.push_back(condition);
            const Sx holds = Sx(e.body, e.body.index(condition)).apply(ScalarOp::Ge, 0);
            all = all ? all->apply(ScalarOp::BitAnd, holds) : holds;
        }
    }
    if (!all) return x;
    e.spatial = e.extents.size();
    e.accesses = {std::move(inside), {value, {}, {}, 0}};
    e.body.set_root(all->choose(Sx(e.body, e.body.access(0, t)), Sx(e.body, e.body.access(1, t))));
    return b.emit(std::move(e), t, "pad");
}

ValueId pad_constant(NodeContext& c, ValueId x, const Dims& before, const Dims& after) {
    if (c.node.opset < 11 || !c.has(2)) return c.b.pad(x, before, after, c.node.attr_float("value", 0));
    const ValueId value = c.b.reshape(c.in(2), {});
    c.require(c.dtype(2) == c.dtype(0), fmt::format("the input has type {} and the padding value {}",
                                                    to_string(c.dtype(0)), to_string(c.dtype(2))));
    const Tensor* known = c.b.contents(value);
    const bool exact = known != nullptr && !std::isnan(known->get(0)) &&
                       (is_float(known->dtype()) || std::fabs(known->get(0)) <= 0x1p53);
    return exact ? c.b.pad(x, before, after, known->get(0)) : pad_with(c.b, x, value, before, after);
}

void pad(NodeContext& c) {
    std::vector<Expr> pads;
    if (c.node.opset >= 11) {
        pads = c.b.read_ints(c.in(1));
    } else {
        for (const int64_t p : c.node.attr_ints(c.node.opset < 2 ? "paddings" : "pads", {})) pads.emplace_back(p);
    }
    std::vector<Expr> axes;
    if (c.has(3)) {
        axes = c.b.read_ints(c.in(3));
    } else {
        for (size_t k = 0; k < c.rank(0); ++k) axes.emplace_back(static_cast<int64_t>(k));
    }
    const size_t n = axes.size();
    c.require(pads.size() == 2 * n, fmt::format("{} pads are given, and {} expected", pads.size(), 2 * n));
    axes = positive_axes(c.b, axes, c.rank(0));
    Dims before = by_axis(axes, std::span(pads).first(n), Dims(c.rank(0), 0));
    Dims after = by_axis(axes, std::span(pads).subspan(n), Dims(c.rank(0), 0));
    const PadMode mode = pad_mode(c);
    if (mode == PadMode::Constant) return c.out(0, pad_constant(c, c.in(0), before, after));
    // Negative pads crop first: the border mirrors the cropped tensor.
    ValueId x = c.in(0);
    for (size_t k = 0; k < before.size(); ++k) {
        const Expr cut_before = max(-before[k], 0), cut_after = max(-after[k], 0);
        if (cut_before.is_constant(0) && cut_after.is_constant(0)) continue;
        x = c.b.slice(x, static_cast<int64_t>(k), cut_before, c.b.shape(x)[k] - cut_before - cut_after);
        before[k] = max(before[k], 0);
        after[k] = max(after[k], 0);
    }
    if (mode != PadMode::Edge) x = pad_by_tables(c.b, mode, x, before, after);
    Dims out = c.b.shape(x);
    std::vector<Expr> index = plain_axes(out.size());
    for (size_t k = 0; k < out.size(); ++k) {
        if (before[k].is_constant(0) && after[k].is_constant(0)) continue;
        index[k] = mirrored(mode, axis(k) - before[k], out[k], is_narrow(out[k], before[k], after[k]));
        out[k] = before[k] + out[k] + after[k];
    }
    const Expr last_before = before.empty() ? Expr(0) : before.back();
    const bool plain = before.empty() || (last_before.is_constant(0) && after.back().is_constant(0));
    c.out(0, plain ? c.b.view(x, std::move(out), std::move(index), "pad")
                   : pad_mirrored(c.b, x, std::move(out), std::move(index), axis(before.size() - 1) - last_before));
}

/// Crops or pads each axis around its middle to the requested size; the odd element is at the end.
void center_crop_pad(NodeContext& c) {
    const std::vector<Expr> sizes = c.b.read_ints(c.in(1));
    std::vector<int64_t> axes;
    for (size_t k = 0; k < c.rank(0); ++k) axes.push_back(static_cast<int64_t>(k));
    axes = c.b.normalize_axes(c.node.attr_ints("axes", axes), c.rank(0));
    c.require(sizes.size() == axes.size(), fmt::format("{} sizes are given for {} axes", sizes.size(), axes.size()));
    Dims out = c.shape(0);
    std::vector<Expr> index = plain_axes(out.size()), valid;
    for (size_t k = 0; k < axes.size(); ++k) {
        const auto a = static_cast<size_t>(axes[k]);
        const Expr d = out[a], s = sizes[k];
        const Expr p = axis(a) + floor_div(max(d - s, 0), 2) - floor_div(max(s - d, 0), 2);
        out[a] = s;
        index[a] = p;
        valid.push_back(p);
        valid.push_back(d - 1 - p);
    }
    c.out(0, c.b.view(c.in(0), std::move(out), std::move(index), "center", std::move(valid)));
}

}  // namespace

std::vector<OpLowering> slice_lowerings() {
    return {
        {"", "CenterCropPad", 18, center_crop_pad},
        {"", "Pad", 1, pad},
        {"", "Slice", 1, slice},
        {"", "Split", 1, split},
    };
}

}  // namespace tilewright
