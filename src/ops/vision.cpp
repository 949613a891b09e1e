// Image operators: sampling at data-dependent positions (GridSample, RoiAlign, DeformConv), their grids (AffineGrid),
// and the sum of overlapping patches (Col2Im).

#include "base/error.h"
#include "opaque/operators.h"
#include "ops/families.h"
#include "ops/scalar_math.h"
#include "ops/window.h"

namespace tilewright {

namespace {

using opaque::Border;
using opaque::Sampling;

void grid_sample(NodeContext& c) {
    const Dims &x = c.shape(0), &grid = c.shape(1);
    c.require(x.size() >= 3 && grid.size() == x.size(),
              fmt::format("input and grid should have one rank of 3 or more, and have shapes {} and {}", to_string(x),
                          to_string(grid)));
    const std::string mode = c.node.attr_string("mode", "linear"), pad = c.node.attr_string("padding_mode", "zeros");
    const bool nearest = mode == "nearest", cubic = mode == "cubic" || mode == "bicubic";
    c.require(nearest || cubic || mode == "linear" || mode == "bilinear",
              fmt::format("attribute 'mode' should be nearest, linear or cubic, and is {}", quoted_name(mode)));
    c.require(
        pad == "zeros" || pad == "border" || pad == "reflection",
        fmt::format("attribute 'padding_mode' should be zeros, border or reflection, and is {}", quoted_name(pad)));
    const auto op = opaque::grid_sample(nearest ? Sampling::Nearest
                                        : cubic ? Sampling::Cubic
                                                : Sampling::Linear,
                                        pad == "zeros"    ? Border::Zeros
                                        : pad == "border" ? Border::Edge
                                                          : Border::Reflection,
                                        c.node.attr_int("align_corners", 0) != 0);
    Dims shape = {x[0], x[1]};
    shape.insert(shape.end(), grid.begin() + 1, grid.end() - 1);
    c.out(0, c.b.emit_opaque(op, {c.in(0), c.in(1)}, {{c.dtype(0), std::move(shape)}}, "sample").front());
}

/// grid[n, y, x, i] = theta[n, i, 0] * x' + theta[n, i, 1] * y' + theta[n, i, 2], with x' and y' from -1 to 1.
void affine_grid(NodeContext& c) {
    const std::vector<Expr> size = c.b.read_ints(c.in(1));
    c.require(size.size() == 4 || size.size() == 5,
              fmt::format("'size' must contain 4 or 5 numbers, but contains {}", size.size()));
    const size_t dims = size.size() - 2;
    const auto n = static_cast<int64_t>(dims);
    c.require(c.rank(0) == 3,
              fmt::format("matrices [N, {}, {}] are expected, and the shape is {}", n, n + 1, to_string(c.shape(0))));
    const bool corners = c.node.attr_int("align_corners", 0) != 0;
    const DType t = c.dtype(0), real = compute_type(t);
    TensorExpr e;
    e.extents = {c.shape(0)[0]};
    for (size_t k = 0; k < dims; ++k) e.extents.push_back(size[2 + k]);
    e.extents.emplace_back(n);
    e.spatial = e.extents.size();
    for (int64_t k = 0; k <= n; ++k) e.accesses.push_back({c.in(0), {axis(0), axis(1 + dims), k}, {}, 0});
    const auto theta = [&](size_t k) { return Sx(e.body, e.body.access(static_cast<uint32_t>(k), t)); };
    Sx sum = theta(dims);
    for (size_t k = 0; k < dims; ++k) {
        const size_t dim = 1 + dims - 1 - k;  // the grid lists x first, which is the image's last dimension
        const Expr d = size[1 + dim];
        // 2 i / (d - 1) - 1, or (2 i + 1) / d - 1
        const Expr above = corners ? axis(dim) * 2 : axis(dim) * 2 + 1, below = corners ? max(d - 1, 1) : d;
        const Sx at = Sx(e.body, e.body.index(above)).cast(real) / Sx(e.body, e.body.index(below)).cast(real) - 1.0;
        sum = sum + theta(k) * at;
    }
    e.body.set_root(sum);
    c.out(0, c.b.emit(std::move(e), t, "grid"));
}

/// Opset 10 has no coordinate_transformation_mode; the default is output_half_pixel.
void roi_align(NodeContext& c) {
    c.require(c.rank(0) == 4 && c.rank(1) == 2, fmt::format("images and regions [n, 4] are expected, and have shapes "
                                                            "{} and {}",
                                                            to_string(c.shape(0)), to_string(c.shape(1))));
    opaque::RoiOptions o;
    o.height = c.node.attr_int("output_height", 1);
    o.width = c.node.attr_int("output_width", 1);
    o.samples = c.node.attr_int("sampling_ratio", 0);
    o.scale = static_cast<double>(c.node.attr_float("spatial_scale", 1));
    o.max = c.node.attr_string("mode", "avg") == "max";
    const std::string fallback = c.node.opset < 16 ? "output_half_pixel" : "half_pixel";
    o.half_pixel = c.node.attr_string("coordinate_transformation_mode", fallback) == "half_pixel";
    c.require(o.height >= 1 && o.width >= 1, "the output's height and width should be positive");
    const Dims shape = {c.shape(1)[0], c.shape(0)[1], o.height, o.width};
    c.out(0,
          c.b.emit_opaque(opaque::roi_align(o), {c.in(0), c.in(1), c.in(2)}, {{c.dtype(0), shape}}, "align").front());
}

/// The displaced columns multiplied by the weights.
void deform_conv(NodeContext& c) {
    const Dims x = c.shape(0), w = c.shape(1), offsets = c.shape(2);
    c.require(x.size() == w.size() && x.size() == offsets.size() && x.size() >= 3,
              fmt::format("input, weights and offsets should have one rank, and have shapes {}, {} and {}",
                          to_string(x), to_string(w), to_string(offsets)));
    if (x.size() != 4) c.unsupported("deformable convolutions are implemented for images of two dimensions");
    if (!w[2].is_constant() || !w[3].is_constant()) c.unsupported("the kernel's size must be known");
    const int64_t groups = c.node.attr_int("group", 1), offset_groups = c.node.attr_int("offset_group", 1);
    c.require(groups >= 1 && offset_groups >= 1, "the numbers of groups should be positive");
    const auto op =
        opaque::deformed_columns(std::vector<int64_t>{w[2].constant(), w[3].constant()}, positive_ints(c, "strides", 2),
                                 positive_ints(c, "dilations", 2), window_pads(c, 2), offset_groups);
    std::vector<ValueId> inputs = {c.in(0), c.in(2)};
    if (c.has(4)) inputs.push_back(c.in(4));
    const ValueId columns =
        c.b.emit_opaque(op, inputs, {{c.dtype(0), {x[0], x[1], w[2], w[3], offsets[2], offsets[3]}}}, "columns")
            .front();
    // [n, g, c, taps, places] x [g, o, c, taps]
    const Expr taps = w[2] * w[3], places = offsets[2] * offsets[3], outs = floor_div(w[0], groups);
    const ValueId y = c.b.contract("ngctp,goct->ngop", c.b.reshape(columns, {x[0], groups, w[1], taps, places}),
                                   c.b.reshape(c.in(1), {groups, outs, w[1], taps}), c.dtype(0), "products");
    ValueId image = c.b.reshape(y, {x[0], w[0], offsets[2], offsets[3]});
    if (c.has(3)) image = c.b.binary(ScalarOp::Add, image, c.b.reshape(c.in(3), {w[0], 1, 1}));
    c.out(0, image);
}

void col2im(NodeContext& c) {
    c.require(c.rank(0) == 3,
              fmt::format("patches [n, c * taps, places] are expected, and the shape is {}", to_string(c.shape(0))));
    const std::vector<Expr> image = c.b.read_ints(c.in(1)), block = c.b.read_ints(c.in(2));
    c.require(!image.empty() && image.size() == block.size(),
              fmt::format("'image_shape' has {} numbers and 'block_shape' {}", image.size(), block.size()));
    const auto op = opaque::col2im(positive_ints(c, "strides", image.size()),
                                   positive_ints(c, "dilations", image.size()), window_pads(c, image.size()));
    Dims shape = {c.shape(0)[0], floor_div(c.shape(0)[1], product(block))};
    shape.insert(shape.end(), image.begin(), image.end());
    c.out(0, c.b.emit_opaque(op, {c.in(0), c.in(1), c.in(2)}, {{c.dtype(0), std::move(shape)}}, "sum").front());
}

}  // namespace

std::vector<OpLowering> vision_lowerings() {
    return {
        {"", "AffineGrid", 20, affine_grid}, {"", "Col2Im", 18, col2im},      {"", "DeformConv", 19, deform_conv},
        {"", "GridSample", 16, grid_sample}, {"", "RoiAlign", 10, roi_align},
    };
}

}  // namespace tilewright
