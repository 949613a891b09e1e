// Operators that compute shapes, and tensors from shapes. Contents that are dimensions are expressions, so that shape
// arithmetic of exporters is evaluated at compile time.

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/families.h"
#include "ops/scalar_math.h"
#include "ops/shape_math.h"

namespace tilewright {

namespace {

using Ids = std::span<const ScalarId>;

/// Every element equals the element of `value`, exactly.
ValueId filled(Builder& b, Dims shape, const Tensor& value, std::string_view role) {
    const DType t = value.dtype();
    TensorExpr e;
    e.extents = std::move(shape);
    e.spatial = e.extents.size();
    e.body.set_root(is_float(t) ? e.body.constant(compute_type(t), value.get(0))
                                : e.body.int_constant(compute_type(t), value.get_int(0)));
    return b.emit(std::move(e), t, role);
}

// --- Shape, Size, Constant, ConstantOfShape

void shape(NodeContext& c) {
    const Dims& dims = c.shape(0);
    const auto r = static_cast<int64_t>(dims.size());
    const auto clamped = [&](int64_t k) { return std::clamp<int64_t>(k < 0 ? k + r : k, 0, r); };
    const int64_t start = clamped(c.node.attr_int("start", 0)), end = clamped(c.node.attr_int("end", r));
    std::vector<Expr> elements;
    for (int64_t k = start; k < end; ++k) elements.push_back(dims[static_cast<size_t>(k)]);
    const auto n = static_cast<int64_t>(elements.size());
    c.out(0, c.b.int_values(std::move(elements), {n}));
}

void size(NodeContext& c) { c.out(0, c.b.int_values({c.b.count(c.in(0))}, {})); }

void constant(NodeContext& c) {
    const Node& n = c.node;
    if (const Tensor* t = n.attr_tensor("value")) return c.out(0, c.b.constant(*t));
    if (const Tensor* t = n.attr_tensor("sparse_value")) return c.out(0, c.b.constant(*t));
    if (n.has("value_float")) return c.out(0, c.b.scalar_constant(DType::F32, n.attr_float("value_float", 0)));
    if (n.has("value_int")) return c.out(0, c.b.scalar_constant(DType::I64, n.attr_int("value_int", 0)));
    if (n.has("value_ints")) return c.out(0, c.b.constant(Tensor::of_i64(n.attr_ints("value_ints", {}))));
    if (n.has("value_floats")) {
        const std::vector<float> v = n.attr_floats("value_floats", {});
        return c.out(0, c.b.constant(Tensor::of(DType::F32, {static_cast<int64_t>(v.size())}, v)));
    }
    if (n.has("value_string") || n.has("value_strings")) c.unsupported("tensors of strings cannot be computed with");
    c.fail("an attribute with the value is expected");
}

void constant_of_shape(NodeContext& c) {
    const Tensor* value = c.node.attr_tensor("value");
    if (value != nullptr && value->count() != 1)
        c.fail(fmt::format("attribute 'value' should have one element, and has shape {}", to_string(value->shape())));
    c.out(0, filled(c.b, c.b.read_ints(c.in(0)), value != nullptr ? *value : Tensor(DType::F32, {1}), "fill"));
}

// --- Range, EyeLike

/// Limit of the magnitude of an integer start or limit.
constexpr int64_t kMaxRange = int64_t{1} << 62;

/// start + i * delta, for max(0, ceil((limit - start) / delta)) elements.
void range(NodeContext& c) {
    const DType t = c.dtype(0);
    std::vector<ValueId> inputs;
    for (size_t k = 0; k < 3; ++k) {
        c.require(c.dtype(k) == t, "start, limit and delta must have one type");
        c.require(c.b.count(c.in(k)).is_constant(1), "start, limit and delta must be scalars");
        inputs.push_back(c.b.reshape(c.in(k), {}));
    }
    TensorExpr e;
    e.spatial = 1;
    if (!is_float(t)) {
        std::vector<Expr> v;
        for (const ValueId x : inputs) v.push_back(c.b.read_int(x));
        require_not_zero(c.b, v[2], "delta");
        for (const Expr bound : {v[0], v[1]}) {  // their difference needs 64 bits
            c.b.require_at_least(bound, -kMaxRange, fmt::format("{} is below -2^62", bound.text()), "start or limit");
            c.b.require_at_least(kMaxRange, bound, fmt::format("{} is above 2^62", bound.text()), "start or limit");
        }
        e.extents = {max(-floor_div(v[0] - v[1], v[2]), 0)};
        e.body.set_root(e.body.cast(compute_type(t), e.body.index(v[0] + axis(0) * v[2])));
        return c.out(0, c.b.emit(std::move(e), t, "range"));
    }
    const ValueId count = c.b.map(
        inputs, DType::I64,
        [](ScalarBody& body, Ids x) -> ScalarId {
            const Sx start = Sx(body, x[0]).cast(DType::F64);
            const Sx limit = Sx(body, x[1]).cast(DType::F64);
            const Sx n = (limit - start) / Sx(body, x[2]).cast(DType::F64);
            return n.ceil().max(0).cast(DType::I64);
        },
        "count");
    e.extents = c.b.read_ints(count);
    e.accesses = {{inputs[0], {}, {}, 0}, {inputs[2], {}, {}, 0}};
    const Sx start(e.body, e.body.access(0, t)), delta(e.body, e.body.access(1, t));
    e.body.set_root(start + Sx(e.body, e.body.index(axis(0))).cast(compute_type(t)) * delta);
    c.out(0, c.b.emit(std::move(e), t, "range"));
}

void eye_like(NodeContext& c) {
    c.require(c.rank(0) == 2, fmt::format("a matrix is expected, and the input has shape {}", to_string(c.shape(0))));
    const DType t = c.dtype_attr("dtype").value_or(c.dtype(0));
    TensorExpr e;
    e.extents = c.shape(0);
    e.spatial = 2;
    const Sx diagonal(e.body, e.body.index(axis(1) - axis(0) - c.node.attr_int("k", 0)));
    e.body.set_root(diagonal.apply(ScalarOp::Eq, 0).cast(compute_type(t)));
    c.out(0, c.b.emit(std::move(e), t, "eye"));
}

// --- Reshape, Flatten, Squeeze, Unsqueeze, Expand

/// The target dimensions of Reshape. A 0 copies the input's dimension (unless allowzero), one -1 is inferred. Numbers
/// unknown at compile time may be either, so the result is computed by arithmetic:
///     ?v    ->    ?v + (?v == 0) * d + (?v == -1) * (total // others + 1)
Dims reshaped_dims(NodeContext& c, const std::vector<Expr>& wanted, bool allow_zero) {
    const Dims& in = c.shape(0);
    const auto minus_one = [](Expr e) { return e.is_constant(-1); };
    const bool inferred = std::any_of(wanted.begin(), wanted.end(), minus_one);
    Dims dims;                  // an inferred dimension counts as 1 until it is known
    std::vector<Expr> unknown;  // whether (1 or 0) each is inferred
    for (size_t k = 0; k < wanted.size(); ++k) {
        Expr d = wanted[k], infer = 0;
        if (minus_one(d)) {
            c.require(std::count_if(unknown.begin(), unknown.end(), [](Expr u) { return u.is_constant(1); }) == 0,
                      fmt::format("shape {} holds -1 twice", to_string(wanted)));
            d = infer = 1;
        } else if (d.is_constant() && d.constant() < 0) {
            c.fail(fmt::format("shape {} holds {}", to_string(wanted), d.text()));
        } else if (d.is_constant(0) && !allow_zero) {
            c.require(k < in.size(), fmt::format("shape {} copies dimension {} of an input of shape {}",
                                                 to_string(wanted), k, to_string(in)));
            d = in[k];
        } else if (reads_data(d)) {
            infer = inferred ? Expr(0) : is_negative(d);
            const Expr zero = allow_zero || k >= in.size() ? Expr(0) : is_zero(d);
            d = c.b.settled(d + (zero.is_constant(0) ? Expr(0) : zero * in[k]) + infer * 2);
        }
        dims.push_back(d);
        unknown.push_back(infer);
    }
    const Expr total = product(in), others = product(dims);
    for (size_t k = 0; k < dims.size(); ++k) {
        if (unknown[k].is_constant(0)) continue;
        if (total.is_constant() && others.is_constant() && floor_mod(total.constant(), others.constant()) != 0)
            c.fail(fmt::format("{} elements of shape {} do not make a tensor of shape {}", total.text(), to_string(in),
                               to_string(wanted)));
        dims[k] = c.b.settled(dims[k] + unknown[k] * (floor_div(total, others) - 1));
    }
    return dims;
}

void reshape(NodeContext& c) {
    std::vector<Expr> wanted;
    if (c.has(1)) {
        wanted = c.b.read_ints(c.in(1));
    } else {
        for (const int64_t d : c.node.attr_ints("shape", {})) wanted.emplace_back(d);
    }
    c.out(0, c.b.reshape(c.in(0), reshaped_dims(c, wanted, c.node.attr_int("allowzero", 0) != 0)));
}

/// Merges the dimensions before `axis`, and those from it on.
void flatten(NodeContext& c) {
    const Dims& in = c.shape(0);
    const auto r = static_cast<int64_t>(in.size());
    int64_t at = c.node.attr_int("axis", 1);
    c.require(at >= -r && at <= r, fmt::format("axis {} is outside [{}, {}]", at, -r, r));
    if (at < 0) at += r;
    const auto all = std::span(in);
    c.out(0, c.b.reshape(c.in(0),
                         {product(all.first(static_cast<size_t>(at))), product(all.subspan(static_cast<size_t>(at)))}));
}

/// The dimensions of the longer shape (of rank `rank`) that the axes name, 1 or 0 each; and how the others map to the
/// shorter shape: match[j][p] is 1 where dimension p of the longer is dimension j of the shorter.
struct AxisMatch {
    std::vector<Expr> named;
    std::vector<std::vector<Expr>> match;
};

AxisMatch match_axes(std::span<const Expr> axes, size_t rank) {
    AxisMatch m;
    m.named = by_axis(axes, std::vector<Expr>(axes.size(), 1), Dims(rank, 0));
    m.match.assign(rank - axes.size(), std::vector<Expr>(rank));
    Expr before = 0;
    for (size_t p = 0; p < rank; ++p) {
        const Expr j = static_cast<int64_t>(p) - before;
        for (size_t n = 0; n < m.match.size(); ++n)
            m.match[n][p] = (1 - m.named[p]) * is_zero(j - static_cast<int64_t>(n));
        before = before + m.named[p];
    }
    return m;
}

/// The axes as numbers, if all are constant.
std::optional<std::vector<int64_t>> known_axes(const std::vector<Expr>& axes) {
    std::vector<int64_t> out;
    for (const Expr a : axes) {
        if (!a.is_constant()) return std::nullopt;
        out.push_back(a.constant());
    }
    return out;
}

/// The axes from the attribute or input; none if both are absent.
std::optional<std::vector<Expr>> axes_of(NodeContext& c) {
    if (c.has(1)) return c.b.read_ints(c.in(1));
    if (!c.node.has("axes")) return std::nullopt;
    const std::vector<int64_t> v = c.node.attr_ints("axes", {});
    return std::vector<Expr>(v.begin(), v.end());
}

void squeeze(NodeContext& c) {
    const Dims& in = c.shape(0);
    std::vector<Expr> axes;
    if (const auto given = axes_of(c)) {
        axes = *given;
    } else {
        for (size_t k = 0; k < in.size(); ++k)
            if (in[k].is_constant(1)) axes.emplace_back(static_cast<int64_t>(k));
    }
    if (const auto known = known_axes(axes)) return c.out(0, c.b.squeeze(c.in(0), *known));
    c.require(axes.size() <= in.size(),
              fmt::format("{} axes are given for an input of shape {}", axes.size(), to_string(in)));
    const AxisMatch m = match_axes(positive_axes(c.b, axes, in.size()), in.size());
    for (size_t p = 0; p < in.size(); ++p)
        c.b.require_equal(1 + m.named[p] * (in[p] - 1), 1,
                          fmt::format("dimension {} of shape {} is not 1 and cannot be squeezed", p, to_string(in)),
                          "squeezed dimensions");
    Dims out(in.size() - axes.size(), 0);
    std::vector<Expr> index(in.size(), 0);
    for (size_t p = 0; p < in.size(); ++p)
        for (size_t j = 0; j < out.size(); ++j) {
            out[j] = out[j] + m.match[j][p] * in[p];
            index[p] = index[p] + m.match[j][p] * axis(j);
        }
    c.out(0, c.b.view(c.in(0), std::move(out), std::move(index), "squeeze"));
}

void unsqueeze(NodeContext& c) {
    const auto axes = axes_of(c);
    c.require(axes.has_value(), "'axes' are missing");
    if (const auto known = known_axes(*axes)) return c.out(0, c.b.unsqueeze(c.in(0), *known));
    const Dims& in = c.shape(0);
    const size_t r = in.size() + axes->size();
    const AxisMatch m = match_axes(positive_axes(c.b, *axes, r), r);
    Dims out = m.named;
    std::vector<Expr> index(in.size(), 0);
    for (size_t p = 0; p < r; ++p)
        for (size_t j = 0; j < in.size(); ++j) {
            out[p] = out[p] + m.match[j][p] * in[j];
            index[j] = index[j] + m.match[j][p] * axis(p);
        }
    c.out(0, c.b.view(c.in(0), std::move(out), std::move(index), "unsqueeze"));
}

void expand(NodeContext& c) { c.out(0, c.b.expand(c.in(0), c.b.read_ints(c.in(1)))); }

}  // namespace

std::vector<OpLowering> shape_lowerings() {
    return {
        {"", "Constant", 1, constant},   {"", "ConstantOfShape", 9, constant_of_shape},
        {"", "Expand", 8, expand},       {"", "EyeLike", 9, eye_like},
        {"", "Flatten", 1, flatten},     {"", "Range", 11, range},
        {"", "Reshape", 1, reshape},     {"", "Shape", 1, shape},
        {"", "Size", 1, size},           {"", "Squeeze", 1, squeeze},
        {"", "Unsqueeze", 1, unsqueeze},
    };
}

}  // namespace tilewright
