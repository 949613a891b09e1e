// Operators with data-dependent output size or order: TopK, NonZero, Compress, Unique, NonMaxSuppression; also Det; and
// the window functions, which are expressions.

#include <numbers>

#include "base/error.h"
#include "opaque/operators.h"
#include "ops/families.h"
#include "ops/scalar_math.h"

namespace tilewright {

namespace {

/// `k` is an attribute before opset 10. The output is always sorted.
void top_k(NodeContext& c) {
    c.require(c.rank(0) >= 1, "a scalar has no axis to choose along");
    const int64_t along = c.axis_attr("axis", -1, c.rank(0));
    ValueId k;
    if (c.node.opset < 10) {
        c.require(c.node.has("k"), "attribute 'k' is missing");
        k = c.b.constant(Tensor::of_i64({c.node.attr_int("k", 0)}));
    } else {
        k = c.in(1);
        c.require(c.b.count(k).is_constant(1), "'K' must hold one number");
    }
    Dims shape = c.shape(0);
    shape[static_cast<size_t>(along)] = c.b.read_int(k);
    const auto op = opaque::top_k(along, c.node.attr_int("largest", 1) != 0);
    const auto y = c.b.emit_opaque(op, {c.in(0), k}, {{c.dtype(0), shape}, {DType::I64, shape}}, "topk");
    for (size_t n = 0; n < 2; ++n)
        if (c.uses_output(n)) c.out(n, y[n]);
}

void non_zero(NodeContext& c) {
    const Dims shape = {static_cast<int64_t>(c.rank(0)), c.b.fresh_symbol("nonzero")};
    c.out(0, c.b.emit_opaque(opaque::non_zero(), {c.in(0)}, {{DType::I64, shape}}, "nonzero").front());
}

void compress(NodeContext& c) {
    c.require(c.dtype(1) == DType::Bool && c.rank(1) == 1, "the condition must be a vector of booleans");
    const bool flat = !c.node.has("axis");
    const ValueId x = flat ? c.b.reshape(c.in(0), {c.b.count(c.in(0))}) : c.in(0);
    const int64_t along = flat ? 0 : c.axis_attr("axis", 0, c.rank(0));
    Dims shape = c.b.shape(x);
    shape[static_cast<size_t>(along)] = c.b.fresh_symbol("kept");
    c.out(0, c.b.emit_opaque(opaque::compress(along), {x, c.in(1)}, {{c.dtype(0), shape}}, "compress").front());
}

void unique(NodeContext& c) {
    const bool flat = !c.node.has("axis");
    const ValueId x = flat ? c.b.reshape(c.in(0), {c.b.count(c.in(0))}) : c.in(0);
    const int64_t along = flat ? 0 : c.axis_attr("axis", 0, c.rank(0));
    const Expr found = c.b.fresh_symbol("unique");
    Dims shape = c.b.shape(x);
    const Expr length = shape[static_cast<size_t>(along)];
    shape[static_cast<size_t>(along)] = found;
    const auto op = opaque::unique(along, c.node.attr_int("sorted", 1) != 0);
    const auto y = c.b.emit_opaque(
        op, {x}, {{c.dtype(0), shape}, {DType::I64, {found}}, {DType::I64, {length}}, {DType::I64, {found}}}, "unique");
    for (size_t k = 0; k < y.size(); ++k)
        if (c.uses_output(k)) c.out(k, y[k]);
}

void non_max_suppression(NodeContext& c) {
    std::vector<ValueId> inputs = {c.in(0), c.in(1)};
    for (size_t k = 2; k < c.input_count(); ++k) inputs.push_back(c.has(k) ? c.in(k) : ValueId{});
    const auto op = opaque::non_max_suppression(c.node.attr_int("center_point_box", 0) != 0);
    const Dims shape = {c.b.fresh_symbol("boxes"), 3};
    c.out(0, c.b.emit_opaque(op, inputs, {{DType::I64, shape}}, "suppress").front());
}

void det(NodeContext& c) {
    const Dims& x = c.shape(0);
    c.require(x.size() >= 2 && is_float(c.dtype(0)),
              fmt::format("matrices of floats are expected, and the shape is {}", to_string(x)));
    const Dims shape(x.begin(), x.end() - 2);
    c.out(0, c.b.emit_opaque(opaque::det(), {c.in(0)}, {{c.dtype(0), shape}}, "det").front());
}

// --- window functions

/// y[i] = a - b * cos(2 pi i / n) + second * cos(4 pi i / n), where n is the size, minus one for a symmetric window.
void window_function(NodeContext& c, double a, double b, double second) {
    c.require(c.b.count(c.in(0)).is_constant(1), "the size must be a scalar");
    const Expr size = c.b.read_int(c.in(0));
    const DType t = c.dtype_attr("output_datatype").value_or(DType::F32);
    const bool periodic = c.node.attr_int("periodic", 1) != 0;
    TensorExpr e;
    e.extents = {size};
    e.spatial = 1;
    const Sx i = Sx(e.body, e.body.index(axis(0))).cast(DType::F64);
    const Sx n = Sx(e.body, e.body.index(periodic ? size : max(size - 1, 1))).cast(DType::F64);
    const Sx angle = i * (2 * std::numbers::pi) / n;
    Sx y = i.of(a) - angle.cos() * b;
    if (second != 0) y = y + (angle * 2.0).cos() * second;
    e.body.set_root(y.cast(compute_type(t)));
    c.out(0, c.b.emit(std::move(e), t, "window"));
}

void hann_window(NodeContext& c) { window_function(c, 0.5, 0.5, 0); }
void hamming_window(NodeContext& c) { window_function(c, 25.0 / 46.0, 21.0 / 46.0, 0); }
void blackman_window(NodeContext& c) { window_function(c, 0.42, 0.5, 0.08); }

}  // namespace

std::vector<OpLowering> opaque_lowerings() {
    return {
        {"", "BlackmanWindow", 17, blackman_window},
        {"", "Compress", 9, compress},
        {"", "Det", 11, det},
        {"", "HammingWindow", 17, hamming_window},
        {"", "HannWindow", 17, hann_window},
        {"", "NonMaxSuppression", 10, non_max_suppression},
        {"", "NonZero", 9, non_zero},
        {"", "TopK", 1, top_k},
        {"", "Unique", 11, unique},
    };
}

}  // namespace tilewright
