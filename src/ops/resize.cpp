// Resize and Upsample, one axis after another:
//
//     out[.., x, ..] = sum over taps t of in[.., index[x, t], ..] * weight[x, t]
//
// Indices and weights are a table, computed at compile time if scales and extents are known, else at run time.
// Repeating every element, or taking every n-th, is an index map and needs no table.

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "opaque/resize_table.h"
#include "ops/families.h"
#include "ops/scalar_math.h"

namespace tilewright {

namespace {

template <class E>
E choice(const NodeContext& c, const std::string& attribute, const std::string& fallback,
         std::initializer_list<std::pair<std::string_view, E>> names) {
    const std::string given = c.node.attr_string(attribute, fallback);
    for (const auto& [name, value] : names)
        if (name == given) return value;
    c.fail(fmt::format("attribute '{}' has the unknown value {}", attribute, quoted_name(given)));
}

ResizeMode mode_attr(const NodeContext& c) {
    return choice<ResizeMode>(c, "mode", "nearest",
                              {{"nearest", ResizeMode::Nearest},
                               {"linear", ResizeMode::Linear},
                               {"bilinear", ResizeMode::Linear},
                               {"cubic", ResizeMode::Cubic}});
}

ResizeOptions options_of(const NodeContext& c) {
    ResizeOptions o;
    o.mode = mode_attr(c);
    if (c.node.op == "Upsample" || c.node.opset < 11) {
        o.coordinates = ResizeCoordinates::Asymmetric;
        o.nearest = c.node.op == "Upsample" ? NearestMode::Floor : NearestMode::CeilToShrink;
        return o;
    }
    using C = ResizeCoordinates;
    o.coordinates = choice<C>(c, "coordinate_transformation_mode", "half_pixel",
                              {{"half_pixel", C::HalfPixel},
                               {"half_pixel_symmetric", C::HalfPixelSymmetric},
                               {"pytorch_half_pixel", C::PytorchHalfPixel},
                               {"align_corners", C::AlignCorners},
                               {"asymmetric", C::Asymmetric},
                               {"tf_half_pixel_for_nn", C::TfHalfPixelForNn},
                               {"tf_crop_and_resize", C::TfCropAndResize}});
    o.nearest = choice<NearestMode>(c, "nearest_mode", "round_prefer_floor",
                                    {{"round_prefer_floor", NearestMode::RoundPreferFloor},
                                     {"round_prefer_ceil", NearestMode::RoundPreferCeil},
                                     {"floor", NearestMode::Floor},
                                     {"ceil", NearestMode::Ceil}});
    o.policy = choice<AspectPolicy>(c, "keep_aspect_ratio_policy", "stretch",
                                    {{"stretch", AspectPolicy::Stretch},
                                     {"not_larger", AspectPolicy::NotLarger},
                                     {"not_smaller", AspectPolicy::NotSmaller}});
    o.cubic_a = static_cast<double>(c.node.attr_float("cubic_coeff_a", -0.75f));
    o.exclude_outside = c.node.attr_int("exclude_outside", 0) != 0;
    o.antialias = c.node.attr_int("antialias", 0) != 0;
    return o;
}

/// The integer s with b = a * s, if there is one.
std::optional<int64_t> whole_ratio(Expr a, Expr b) {
    if (a.is_constant() && b.is_constant()) {
        if (a.constant() <= 0 || b.constant() % a.constant() != 0) return std::nullopt;
        return b.constant() / a.constant();
    }
    if (a.terms().empty() || b.terms().empty() || a.terms()[0].coefficient == 0) return std::nullopt;
    const int64_t s = b.terms()[0].coefficient / a.terms()[0].coefficient;
    return s >= 1 && a * s == b ? std::optional(s) : std::nullopt;
}

/// The parameters of a Resize that do not depend on the axis.
struct Request {
    ResizeOptions options;
    std::vector<int64_t> axes;
    ValueId extents, requested, roi;  ///< inputs of the tables
    double extrapolation = 0;
    DType wide = DType::F32;  ///< the type in which elements are blended
};

/// The known properties of one resized axis.
struct AxisPlan {
    Expr in, out;
    std::optional<double> scale;
    bool unchanged = false;
    std::optional<int64_t> repeat;  ///< out[x] = in[x / repeat]
};

/// Whether moving by one input element moves the output by `scale`: then one period determines the whole pattern.
bool is_periodic(ResizeCoordinates c) {
    return c == ResizeCoordinates::HalfPixel || c == ResizeCoordinates::PytorchHalfPixel ||
           c == ResizeCoordinates::HalfPixelSymmetric || c == ResizeCoordinates::Asymmetric ||
           c == ResizeCoordinates::TfHalfPixelForNn;
}

bool repeats(const ResizeTable& t, int64_t factor) {
    for (int64_t x = 0; x < t.out; ++x)
        if (t.index[static_cast<size_t>(x)] != x / factor) return false;
    return true;
}

AxisPlan plan_axis(NodeContext& c, const Request& r, size_t position) {
    AxisPlan p;
    p.in = c.shape(0)[static_cast<size_t>(r.axes[position])];
    std::optional<Expr> out;
    const auto k = static_cast<int64_t>(position);
    if (r.options.by_sizes) {
        if (r.options.policy == AspectPolicy::Stretch) {
            out = c.b.read_ints(r.requested).at(position);
            if (const auto s = whole_ratio(p.in, *out)) p.scale = static_cast<double>(*s);
        }
    } else if (const Tensor* scales = c.b.contents(r.requested)) {
        p.scale = scales->get(k);
        c.require(*p.scale > 0, fmt::format("scale {} of axis {} is not positive", *p.scale, r.axes[position]));
        const double inverse = 1 / *p.scale;
        if (*p.scale == std::floor(*p.scale) && *p.scale < 0x1p31)
            out = p.in * static_cast<int64_t>(*p.scale);
        else if (inverse == std::floor(inverse) && inverse < 0x1p31)
            out = floor_div(p.in, static_cast<int64_t>(inverse));
        else if (p.in.is_constant())
            out = static_cast<int64_t>(std::floor(static_cast<float>(p.in.constant()) * static_cast<float>(*p.scale)));
    }
    const bool crop = r.options.coordinates == ResizeCoordinates::TfCropAndResize;
    p.unchanged = !crop && p.scale == 1.0 && out && *out == p.in;
    if (r.options.mode == ResizeMode::Nearest && p.scale && out && *p.scale == std::floor(*p.scale) &&
        is_periodic(r.options.coordinates)) {
        const auto s = static_cast<int64_t>(*p.scale);
        if (whole_ratio(p.in, *out) == s && s <= 1024 && repeats(resize_table(r.options, 8, 8 * s, *p.scale), s))
            p.repeat = s;
    }
    p.out = out ? *out : c.b.fresh_symbol(fmt::format("d{}", r.axes[position]));
    return p;
}

/// index[x] = first + step * x for all x.
struct Progression {
    int64_t first = 0, step = 1;
};

std::optional<Progression> progression(const Tensor& index) {
    if (index.count() == 0) return std::nullopt;
    Progression p{index.get_int(0), index.count() > 1 ? index.get_int(1) - index.get_int(0) : 0};
    for (int64_t x = 0; x < index.count(); ++x)
        if (index.get_int(x) != p.first + p.step * x) return std::nullopt;
    return p;
}

/// x with dimension `dim` blended by a table; the result has type `out`.
ValueId blend(NodeContext& c, ValueId x, size_t dim, Expr extent, ValueId index, ValueId weight, DType out) {
    const size_t rank = c.b.rank(x);
    const Expr taps = c.b.shape(index)[1];
    TensorExpr e;
    e.extents = c.b.shape(x);
    e.extents[dim] = extent;
    e.spatial = rank;
    const DType storage = c.b.dtype(x), t = compute_type(out);
    const auto tap = [&](Expr which) {
        const auto slot = static_cast<uint32_t>(e.accesses.size());
        e.accesses.push_back({index, {axis(dim), which}, {}, 0});
        Access from{x, plain_axes(rank), {}, 0};
        from.index[dim] = load(slot);
        e.accesses.push_back(std::move(from));
        return Sx(e.body, e.body.access(slot + 1, storage)).cast(t);
    };
    const auto weighted = [&](Expr which) {
        const Sx v = tap(which);
        const auto slot = static_cast<uint32_t>(e.accesses.size());
        e.accesses.push_back({weight, {axis(dim), which}, {}, 0});
        return v * Sx(e.body, e.body.access(slot, c.b.dtype(weight))).cast(t);
    };
    if (taps.is_constant(1)) {
        e.body.set_root(tap(0));
    } else if (taps.is_constant(2)) {
        const Sx left = weighted(0);
        e.body.set_root(left + weighted(1));
    } else {
        e.extents.push_back(taps);
        e.reducer = Reducer::Sum;
        e.body.set_root(weighted(axis(rank)));
    }
    return c.b.emit(std::move(e), out, "resize");
}

/// Positions outside the crop's source get the extrapolation value.
ValueId extrapolate(NodeContext& c, ValueId y, size_t dim, ValueId inside, double value) {
    Dims shape(c.b.rank(y), Expr(1));
    shape[dim] = c.b.shape(y)[dim];
    return c.b.map(
        {y, c.b.reshape(inside, std::move(shape))}, c.b.dtype(y),
        [&](ScalarBody& body, std::span<const ScalarId> x) -> ScalarId {
            const Sx v(body, x[0]);
            return Sx(body, x[1]).choose(v, v.of(value));
        },
        "extrapolate");
}

ValueId resize_axis(NodeContext& c, const Request& r, size_t position, ValueId x) {
    const auto dim = static_cast<size_t>(r.axes[position]);
    const AxisPlan p = plan_axis(c, r, position);
    if (p.unchanged) return x;
    Dims shape = c.b.shape(x);
    shape[dim] = p.out;
    std::vector<Expr> at = plain_axes(shape.size());
    if (p.repeat) {
        at[dim] = floor_div(axis(dim), *p.repeat);
        return c.b.view(x, std::move(shape), std::move(at), "repeat");
    }
    const int64_t fixed = fixed_taps(r.options);
    const Expr taps = fixed != 0 ? Expr(fixed) : c.b.fresh_symbol(fmt::format("taps{}", dim));
    const std::vector<ValueId> table =
        c.b.emit_opaque(resize_table_op(r.options, position, r.wide), {r.extents, r.requested, r.roi},
                        {{DType::I64, {p.out, taps}}, {r.wide, {p.out, taps}}, {DType::Bool, {p.out}}}, "table");
    const Tensor* index = c.b.contents(table[0]);
    const Expr extent = c.b.shape(table[0])[0];
    const bool nearest = r.options.mode == ResizeMode::Nearest;
    const DType out = nearest ? c.b.dtype(x) : r.wide;
    ValueId y;
    if (const auto steps = nearest && index != nullptr ? progression(*index) : std::nullopt) {
        shape[dim] = extent;
        at[dim] = axis(dim) * steps->step + steps->first;
        y = c.b.view(x, std::move(shape), std::move(at), "stride");
    } else {
        y = blend(c, x, dim, extent, table[0], table[1], out);
    }
    if (r.options.coordinates != ResizeCoordinates::TfCropAndResize) return y;
    return extrapolate(c, y, dim, table[2], r.extrapolation);
}

void resize_by(NodeContext& c, Request r) {
    const DType t = c.dtype(0);
    r.wide = t == DType::F64 ? DType::F64 : DType::F32;
    std::vector<Expr> extents;
    for (const int64_t a : r.axes) extents.push_back(c.shape(0)[static_cast<size_t>(a)]);
    const auto n = static_cast<int64_t>(r.axes.size());
    r.extents = c.b.int_values(std::move(extents), {n});
    const Expr given = c.b.count(r.requested);
    c.b.require_equal(given, n, fmt::format("{} scales or sizes are given for {} axes", given.text(), n), "numbers");
    ValueId x = c.in(0);
    for (size_t k = 0; k < r.axes.size(); ++k) x = resize_axis(c, r, k, x);
    c.out(0, c.b.cast(x, t));
}

bool given(const NodeContext& c, size_t input) { return c.has(input) && !c.b.count(c.in(input)).is_constant(0); }

void resize(NodeContext& c) {
    Request r;
    r.options = options_of(c);
    for (size_t k = 0; k < c.rank(0); ++k) r.axes.push_back(static_cast<int64_t>(k));
    if (c.node.opset < 11) {
        r.requested = c.in(1);
        return resize_by(c, std::move(r));
    }
    r.axes = c.b.normalize_axes(c.node.attr_ints("axes", r.axes), c.rank(0));
    r.extrapolation = static_cast<double>(c.node.attr_float("extrapolation_value", 0));
    if (given(c, 1)) r.roi = c.in(1);
    r.options.by_sizes = !given(c, 2);
    c.require(!r.options.by_sizes || given(c, 3), "either 'scales' or 'sizes' is expected, and neither is given");
    r.requested = c.in(r.options.by_sizes ? 3 : 2);
    resize_by(c, std::move(r));
}

/// Scales are attributes before opset 9 (only height and width before opset 7).
void upsample(NodeContext& c) {
    Request r;
    r.options = options_of(c);
    for (size_t k = 0; k < c.rank(0); ++k) r.axes.push_back(static_cast<int64_t>(k));
    if (c.node.opset >= 9) {
        r.requested = c.in(1);
        return resize_by(c, std::move(r));
    }
    std::vector<float> scales = c.node.attr_floats("scales", {});
    if (c.node.opset < 7 && scales.empty())
        scales = {1, 1, c.node.attr_float("height_scale", 1), c.node.attr_float("width_scale", 1)};
    c.require(scales.size() == c.rank(0),
              fmt::format("{} scales are given for an input of rank {}", scales.size(), c.rank(0)));
    r.requested = c.b.constant(Tensor::of(DType::F32, {static_cast<int64_t>(scales.size())}, scales));
    resize_by(c, std::move(r));
}

}  // namespace

std::vector<OpLowering> resize_lowerings() {
    return {
        {"", "Resize", 10, resize},
        {"", "Upsample", 1, upsample},
    };
}

}  // namespace tilewright
