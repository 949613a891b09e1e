// Softmax, LogSoftmax, Hardmax.
//
//     m = max(x);  p = exp(x - m);  s = sum(p);  y = p / s
//
// Since opset 13 along one axis; before, along all dimensions from `axis` on.

#include "ops/softmax.h"
#include "base/error.h"
#include "ops/arg_reduce.h"
#include "ops/families.h"
#include "ops/scalar_math.h"
#include "ops/window.h"

namespace tilewright {

namespace {

using Ids = std::span<const ScalarId>;

std::vector<int64_t> softmax_axes(const NodeContext& c) {
    const size_t r = c.rank(0);
    c.require(is_float(c.dtype(0)),
              fmt::format("a floating-point input is expected, and its type is {}", to_string(c.dtype(0))));
    if (c.node.opset >= 13) {
        if (r == 0) return {};
        return {c.axis_attr("axis", -1, r)};
    }
    // `axis` may equal the rank: then the reduction is over the element itself.
    const int64_t axis = c.node.attr_int("axis", 1);
    if (axis == static_cast<int64_t>(r)) return {};
    return axis_range(static_cast<size_t>(c.b.normalize_axis(axis, r)), r);
}

ValueId shifted(Builder& b, ValueId x, const std::vector<int64_t>& axes) {
    const DType wide = compute_type(b.dtype(x));
    const ValueId largest = b.reduce(Reducer::Max, x, axes, true, "max");
    return b.map(
        {x, largest}, wide, [](ScalarBody& body, Ids v) -> ScalarId { return Sx(body, v[0]) - Sx(body, v[1]); },
        "shift");
}

void softmax_lowering(NodeContext& c) { c.out(0, softmax(c.b, c.in(0), softmax_axes(c))); }

void log_softmax(NodeContext& c) {
    const std::vector<int64_t> axes = softmax_axes(c);
    const ValueId z = shifted(c.b, c.in(0), axes);
    const ValueId sum = c.b.reduce_map(
        Reducer::Sum, {z}, c.b.dtype(z), [](ScalarBody& body, Ids v) -> ScalarId { return Sx(body, v[0]).exp(); }, axes,
        true, "sum");
    c.out(0,
          c.b.map(
              {z, sum}, c.dtype(0),
              [](ScalarBody& body, Ids v) -> ScalarId { return Sx(body, v[0]) - Sx(body, v[1]).log(); }, "difference"));
}

/// 1 at the first largest element, else 0.
void hardmax(NodeContext& c) {
    const Dims shape = c.shape(0);
    const std::vector<int64_t> axes = softmax_axes(c);
    const DType t = c.dtype(0);
    if (axes.empty()) return c.out(0, c.b.full(shape, t, 1));
    // Several axes become one by flattening: [2, 3, 4], axis 1  ->  [2, 12]
    const auto first = static_cast<size_t>(axes.front());
    Dims flat = sub_dims(shape, 0, first);
    flat.push_back(product(sub_dims(shape, first, axes.size())));
    const Dims rest = sub_dims(shape, first + axes.size(), shape.size() - first - axes.size());
    flat.insert(flat.end(), rest.begin(), rest.end());
    const ValueId x = c.b.reshape(c.in(0), flat);
    const ValueId position = first_extremum(c.b, x, axes.front(), true, false);
    TensorExpr e;
    e.extents = flat;
    e.spatial = flat.size();
    Access where{position, {}, {}, 0};
    for (size_t k = 0; k < flat.size(); ++k) where.index.push_back(k == first ? Expr(0) : axis(k));
    e.accesses = {std::move(where)};
    const Sx p(e.body, e.body.access(0, DType::I64)), here(e.body, e.body.index(axis(first)));
    e.body.set_root(p.apply(ScalarOp::Eq, here).cast(compute_type(t)));
    c.out(0, c.b.reshape(c.b.emit(std::move(e), t, "one"), shape));
}

}  // namespace

ValueId softmax(Builder& b, ValueId x, const std::vector<int64_t>& axes, std::optional<DType> to) {
    const ValueId z = shifted(b, x, axes);
    const ValueId p = b.unary(ScalarOp::Exp, z);
    const ValueId sum = b.reduce(Reducer::Sum, p, axes, true, "sum");
    return b.map(
        {p, sum}, to.value_or(b.dtype(x)),
        [](ScalarBody& body, Ids v) -> ScalarId { return Sx(body, v[0]) / Sx(body, v[1]); }, "softmax");
}

std::vector<OpLowering> softmax_lowerings() {
    return {
        {"", "Hardmax", 1, hardmax},
        {"", "LogSoftmax", 1, log_softmax},
        {"", "Softmax", 1, softmax_lowering},
    };
}

}  // namespace tilewright
