#include "ops/pool_index.h"

#include <limits>

#include "base/error.h"
#include "opaque/operators.h"
#include "ops/scalar_math.h"

namespace tilewright {

ValueId max_positions(NodeContext& c, ValueId largest, const std::vector<WindowAxis>& windows, bool column_major) {
    const Dims x = c.shape(0), image = sub_dims(x, 2, x.size() - 2);
    TensorExpr e;
    e.extents = c.b.shape(largest);
    e.spatial = e.extents.size();
    const std::vector<Expr> taps = add_kernel_axes(e.extents, windows);
    e.reducer = e.extents.size() > e.spatial ? Reducer::Min : Reducer::None;
    Access y{largest, {}, {}, 0};
    for (size_t k = 0; k < e.spatial; ++k) y.index.push_back(axis(k));
    Access element = window_access(c.in(0), {axis(0), axis(1)}, windows, 2, taps, 0);
    Expr position = 0;
    for (size_t k = 0; k < image.size(); ++k) position = position * image[k] + element.index[2 + k];

    // min over the window of   inside and x == largest ? position : element count
    const Sx v(e.body, e.body.access(0, c.dtype(0))), top(e.body, e.body.access(1, c.dtype(0)));
    Sx found = v.apply(ScalarOp::Eq, top);
    if (is_float(c.dtype(0))) found = found.apply(ScalarOp::BitOr, v.apply(ScalarOp::IsNan));
    const Ranges ranges = e.ranges();
    for (const Expr condition : element.valid)
        if (!prove_nonnegative(condition, ranges))
            found = found.apply(ScalarOp::BitAnd, Sx(e.body, e.body.index(condition)).apply(ScalarOp::Ge, 0));
    const Sx past(e.body, e.body.int_constant(DType::I64, std::numeric_limits<int64_t>::max()));
    e.body.set_root(found.choose(Sx(e.body, e.body.index(position)), past));
    e.accesses = {std::move(element), std::move(y)};
    const ValueId within = c.b.emit(std::move(e), DType::I64, "positions");

    TensorExpr all;
    all.extents = c.b.shape(within);
    all.spatial = all.extents.size();
    Access a{within, {}, {}, 0};
    for (size_t k = 0; k < all.spatial; ++k) a.index.push_back(axis(k));
    all.accesses = {std::move(a)};
    const Expr before = (axis(0) * x[1] + axis(1)) * product(image);
    const Sx p(all.body, all.body.access(0, DType::I64));
    Sx place = p;
    if (column_major && image.size() > 1) {
        // Divisions of a loaded index are done in the scalar body, where each digit is p / after % d.
        std::optional<Sx> sum;
        Expr stride = 1, after = product(image);
        for (const Expr d : image) {
            after = floor_div(after, d);
            const auto index = [&](Expr i) { return Sx(all.body, all.body.index(i)); };
            const Sx digit = (p / index(after)).apply(ScalarOp::FloorMod, index(d)) * index(stride);
            sum = sum ? *sum + digit : digit;
            stride = stride * d;
        }
        place = *sum;
    }
    all.body.set_root(place + Sx(all.body, all.body.index(before)));
    return c.b.emit(std::move(all), DType::I64, "indices");
}

/// The output's shape is inferred as MaxPool's input shape, or `output_shape`; the indices count in the former.
void max_unpool(NodeContext& c) {
    const Dims x = c.shape(0);
    c.require(x.size() >= 3, fmt::format("an input of rank 3 or more is expected, and its shape is {}", to_string(x)));
    const size_t n = x.size() - 2;
    c.require(c.node.has("kernel_shape"), "attribute 'kernel_shape' is missing");
    const std::vector<int64_t> kernel = positive_ints(c, "kernel_shape", n), strides = positive_ints(c, "strides", n);
    const std::vector<int64_t> pads = window_pads(c, n);
    Dims counted = {x[0], x[1]};
    for (size_t k = 0; k < n; ++k) counted.push_back((x[2 + k] - 1) * strides[k] + kernel[k] - pads[k] - pads[n + k]);
    Dims out = c.has(2) ? c.b.read_ints(c.in(2)) : counted;
    c.require(out.size() == x.size(),
              fmt::format("'output_shape' has {} numbers, and {} are expected", out.size(), x.size()));
    c.require(c.rank(1) == x.size(),
              fmt::format("an input of shape {} has indices of shape {}", to_string(x), to_string(c.shape(1))));
    for (size_t k = 0; k < x.size(); ++k)
        c.b.require_equal(
            c.shape(1)[k], x[k],
            fmt::format("an input of shape {} has indices of shape {}", to_string(x), to_string(c.shape(1))));
    const auto length = static_cast<int64_t>(x.size());
    const std::vector<ValueId> inputs = {c.in(0), c.in(1), c.b.int_values(out, {length}),
                                         c.b.int_values(counted, {length})};
    c.out(0, c.b.emit_opaque(opaque::max_unpool(x.size()), inputs, {{c.dtype(0), out}}, "unpool").front());
}

}  // namespace tilewright
