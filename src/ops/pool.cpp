// Pools: a reduction over windows; padding is the reduction's identity.

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "ops/families.h"
#include "ops/pool.h"
#include "ops/pool_index.h"
#include "ops/scalar_math.h"
#include "ops/window.h"

namespace tilewright {

namespace {

using Ids = std::span<const ScalarId>;

Dims spatial_dims(const NodeContext& c, ValueId input) {
    const Dims x = c.b.shape(input);
    c.require(x.size() >= 3, fmt::format("an input of rank 3 or more is expected, and its shape is {}", to_string(x)));
    return sub_dims(x, 2, x.size() - 2);
}

std::vector<WindowAxis> pool_windows(const NodeContext& c, ValueId x) {
    const Dims in = spatial_dims(c, x);
    c.require(c.node.has("kernel_shape"), "attribute 'kernel_shape' is missing");
    return window_axes(c, in, positive_ints(c, "kernel_shape", in.size()));
}

/// out[n, c, y...] = reduce over the window of f(x), padded with `fill`.
ValueId pool(NodeContext& c, ValueId x, const std::vector<WindowAxis>& windows, Reducer reducer, DType out, double fill,
             const std::function<Sx(Sx)>& f, std::string_view role) {
    TensorExpr e;
    e.extents = {c.b.shape(x)[0], c.b.shape(x)[1]};
    for (const WindowAxis& w : windows) e.extents.push_back(w.out);
    e.spatial = e.extents.size();
    const std::vector<Expr> taps = add_kernel_axes(e.extents, windows);
    e.reducer = e.extents.size() > e.spatial ? reducer : Reducer::None;
    e.accesses = {window_access(x, {axis(0), axis(1)}, windows, 2, taps, fill)};
    e.body.set_root(f(Sx(e.body, e.body.access(0, c.b.dtype(x)))));
    return c.b.emit(std::move(e), out, role);
}

// --- MaxPool

/// The least value of a type.
double lowest(DType t) {
    if (is_float(t)) return -std::numeric_limits<double>::infinity();
    if (t == DType::Bool || !is_signed(t)) return 0;
    return -std::ldexp(1.0, static_cast<int>(8 * byte_size(t)) - 1);
}

void max_pool(NodeContext& c) {
    const auto windows = pool_windows(c, c.in(0));
    const DType t = c.dtype(0);
    const ValueId y = pool(
        c, c.in(0), windows, Reducer::Max, t, lowest(t), [](Sx x) { return x; }, "max");
    c.out(0, y);
    if (c.uses_output(1)) c.out(1, max_positions(c, y, windows, c.node.attr_int("storage_order", 0) != 0));
}

// --- AveragePool

/// The number of elements per window, [y...]: those inside the input (and its padding, if included).
ValueId window_counts(NodeContext& c, const std::vector<WindowAxis>& windows, bool padding_counts, DType t) {
    TensorExpr e;
    for (const WindowAxis& w : windows) e.extents.push_back(w.out);
    e.spatial = e.extents.size();
    std::optional<Sx> count;
    for (size_t k = 0; k < windows.size(); ++k) {
        const WindowAxis& w = windows[k];
        const Expr lo = padding_counts ? -w.before : Expr(0), hi = padding_counts ? w.in + w.after : w.in;
        const Expr start = axis(k) * w.stride - w.before;
        const Expr first = max(ceil_div(lo - start, w.dilation), 0);
        const Expr last = min(floor_div(hi - 1 - start, w.dilation), w.kernel - 1);
        const Sx inside(e.body, e.body.index(simplify(last - first + 1, e.ranges())));
        count = count ? *count * inside : inside;
    }
    e.body.set_root(count->cast(t));
    return c.b.emit(std::move(e), t, "counts");
}

}  // namespace

ValueId average_pool(NodeContext& c, ValueId x) {
    const auto windows = pool_windows(c, x);
    const DType storage = c.b.dtype(x), t = compute_type(storage);
    const ValueId sum = pool(
        c, x, windows, Reducer::Sum, t, 0, [](Sx e) { return e; }, "sum");
    const bool padding_counts = c.node.attr_int("count_include_pad", 0) != 0;
    const bool all_inside = std::all_of(windows.begin(), windows.end(), [&](const WindowAxis& w) {
        const Expr hi = w.in + (padding_counts ? w.after : Expr(0));
        return (padding_counts || w.before.is_constant(0)) &&
               prove_nonnegative(hi + w.before - (w.out - 1) * w.stride - w.reach(), {});
    });
    double whole = 1;
    for (const WindowAxis& w : windows) whole *= static_cast<double>(w.kernel);
    const ValueId count = all_inside ? c.b.scalar_constant(t, whole) : window_counts(c, windows, padding_counts, t);
    return c.b.map(
        {sum, count}, storage, [](ScalarBody& body, Ids v) -> ScalarId { return Sx(body, v[0]) / Sx(body, v[1]); },
        "average");
}

ValueId global_average_pool(NodeContext& c, ValueId x) {
    return c.b.mean(x, axis_range(2, 2 + spatial_dims(c, x).size()), true);
}

namespace {

void average_pool(NodeContext& c) { c.out(0, average_pool(c, c.in(0))); }

// --- LpPool

/// |x|^p
Sx power(Sx x, double p) {
    if (p == 1) return x.abs();
    if (p == 2) return x * x;
    return x.abs().apply(ScalarOp::Pow, p);
}

ValueId root(NodeContext& c, ValueId sum, double p) {
    return c.b.map(
        {sum}, c.dtype(0),
        [&](ScalarBody& body, Ids x) -> ScalarId {
            const Sx s(body, x[0]);
            return p == 1 ? s : p == 2 ? s.sqrt() : s.apply(ScalarOp::Pow, 1 / p);
        },
        "root");
}

/// An integer since opset 2, a float before.
double norm_order(const NodeContext& c) {
    const auto it = c.node.attributes.find("p");
    if (it != c.node.attributes.end() && std::holds_alternative<float>(it->second))
        return static_cast<double>(std::get<float>(it->second));
    return static_cast<double>(c.node.attr_int("p", 2));
}

void lp_pool(NodeContext& c) {
    const double p = norm_order(c);
    const ValueId sum = pool(
        c, c.in(0), pool_windows(c, c.in(0)), Reducer::Sum, compute_type(c.dtype(0)), 0,
        [&](Sx x) { return power(x, p); }, "powers");
    c.out(0, root(c, sum, p));
}

// --- global pools

void global_max_pool(NodeContext& c) {
    c.out(0, c.b.reduce(Reducer::Max, c.in(0), axis_range(2, 2 + spatial_dims(c, c.in(0)).size()), true, "max"));
}

void global_average_pool(NodeContext& c) { c.out(0, global_average_pool(c, c.in(0))); }

void global_lp_pool(NodeContext& c) {
    const double p = norm_order(c);
    const ValueId sum = c.b.reduce_map(
        Reducer::Sum, {c.in(0)}, compute_type(c.dtype(0)),
        [&](ScalarBody& body, Ids x) -> ScalarId { return power(Sx(body, x[0]), p); },
        axis_range(2, 2 + spatial_dims(c, c.in(0)).size()), true, "powers");
    c.out(0, root(c, sum, p));
}

}  // namespace

std::vector<OpLowering> pool_lowerings() {
    return {
        {"", "AveragePool", 1, average_pool},
        {"", "GlobalAveragePool", 1, global_average_pool},
        {"", "GlobalLpPool", 1, global_lp_pool},
        {"", "GlobalMaxPool", 1, global_max_pool},
        {"", "LpPool", 1, lp_pool},
        {"", "MaxPool", 1, max_pool},
        {"", "MaxUnpool", 9, max_unpool},
    };
}

}  // namespace tilewright
