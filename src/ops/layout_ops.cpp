// Operators that move elements unchanged: each is one view, an index map from the output to the input.

#include <algorithm>

#include "base/error.h"
#include "ops/checked_values.h"
#include "ops/families.h"
#include "ops/scalar_math.h"
#include "ops/shape_math.h"

namespace tilewright {

namespace {

void transpose(NodeContext& c) {
    std::vector<int64_t> reversed;
    for (size_t k = c.rank(0); k-- > 0;) reversed.push_back(static_cast<int64_t>(k));
    c.out(0, c.b.transpose(c.in(0), c.node.attr_ints("perm", reversed)));
}

void concat(NodeContext& c) {
    std::vector<ValueId> parts;
    for (size_t k = 0; k < c.input_count(); ++k) parts.push_back(c.in(k));
    c.require(c.node.opset < 4 || c.node.has("axis"), "attribute 'axis' is missing");
    c.out(0, c.b.concat(parts, c.node.attr_int("axis", 1)));
}

/// out[i] = in[i % d], where d is the input's dimension.
void tile(NodeContext& c) {
    std::vector<Expr> repeats;
    if (c.node.opset >= 6) {
        repeats = c.b.read_ints(c.in(1));
        c.require(repeats.size() == c.rank(0),
                  fmt::format("{} repeats are given for an input of shape {}", repeats.size(), to_string(c.shape(0))));
    } else {  // one axis, repeated `tiles` times
        repeats.assign(c.rank(0), 1);
        const Expr along = c.b.read_int(c.in(2));
        if (!along.is_constant()) c.unsupported("the axis must be known before the model runs");
        repeats[static_cast<size_t>(c.b.normalize_axis(along.constant(), c.rank(0)))] = c.b.read_int(c.in(1));
    }
    Dims out = c.shape(0);
    std::vector<Expr> index;
    for (size_t k = 0; k < out.size(); ++k) {
        index.push_back(out[k].is_constant(1) ? Expr(0) : mod(axis(k), out[k]));
        out[k] = out[k] * repeats[k];
    }
    c.out(0, c.b.view(c.in(0), std::move(out), std::move(index), "tile"));
}

/// Keeps j - i >= k (upper) or j - i <= k (lower) of each matrix; other elements are 0.
void trilu(NodeContext& c) {
    const size_t r = c.rank(0);
    c.require(r >= 2, fmt::format("matrices are expected, and the input has shape {}", to_string(c.shape(0))));
    const Expr k = within_reach(c.has(1) ? c.b.read_int(c.in(1)) : Expr(0));
    const Expr above = axis(r - 1) - axis(r - 2) - k;
    const bool upper = c.node.attr_int("upper", 1) != 0;
    c.out(0, c.b.view(c.in(0), c.shape(0), plain_axes(r), upper ? "triu" : "tril", {upper ? above : -above}));
}

Expr block_size(NodeContext& c) {
    const int64_t size = c.node.attr_int("blocksize", 0);
    c.require(size > 0, fmt::format("attribute 'blocksize' should be positive, and is {}", size));
    c.require(c.rank(0) == 4,
              fmt::format("an input of rank 4 is expected, and its shape is {}", to_string(c.shape(0))));
    return size;
}

Expr divided(NodeContext& c, Expr dimension, Expr by) {
    c.b.require_multiple(dimension, by,
                         fmt::format("dimension {} of shape {} is not a multiple of {}", dimension.text(),
                                     to_string(c.shape(0)), by.text()));
    return floor_div(dimension, by);
}

/// out[n, c, h, w] = in[n, block part and c, h // s, w // s], the block part (h % s) * s + w % s: outermost (DCR) or
/// innermost (CRD) in the channel.
void depth_to_space(NodeContext& c) {
    const Expr s = block_size(c);
    const Dims& in = c.shape(0);
    const Expr channels = divided(c, in[1], s * s);
    const std::string mode = c.node.attr_string("mode", "DCR");
    c.require(mode == "DCR" || mode == "CRD",
              fmt::format("attribute 'mode' should be DCR or CRD, and is {}", quoted_name(mode)));
    const Expr block = mod(axis(2), s) * s + mod(axis(3), s);
    const Expr channel = mode == "DCR" ? block * channels + axis(1) : axis(1) * (s * s) + block;
    c.out(0, c.b.view(c.in(0), {in[0], channels, in[2] * s, in[3] * s},
                      {axis(0), channel, floor_div(axis(2), s), floor_div(axis(3), s)}, "depth_to_space"));
}

/// out[n, k, h, w] = in[n, k % C, h * s + k // C // s, w * s + k // C % s]
void space_to_depth(NodeContext& c) {
    const Expr s = block_size(c);
    const Dims& in = c.shape(0);
    const Expr block = floor_div(axis(1), in[1]);
    c.out(0, c.b.view(c.in(0), {in[0], in[1] * s * s, divided(c, in[2], s), divided(c, in[3], s)},
                      {axis(0), mod(axis(1), in[1]), axis(2) * s + floor_div(block, s), axis(3) * s + mod(block, s)},
                      "space_to_depth"));
}

/// out[t] = in[length - 1 - t] for t < length, else in[t]; one length per example.
void reverse_sequence(NodeContext& c) {
    const auto batch = static_cast<size_t>(c.axis_attr("batch_axis", 1, c.rank(0)));
    const auto time = static_cast<size_t>(c.axis_attr("time_axis", 0, c.rank(0)));
    c.require(batch != time, "batch_axis and time_axis are the same");
    c.require(c.rank(1) == 1, "sequence_lens must have one dimension");
    c.b.require_equal(
        c.shape(1)[0], c.shape(0)[batch],
        fmt::format("{} lengths are given for {} examples", c.shape(1)[0].text(), c.shape(0)[batch].text()));
    TensorExpr e;
    e.extents = c.shape(0);
    e.spatial = e.extents.size();
    std::vector<Expr> reversed = plain_axes(e.spatial);
    reversed[time] = min(max(load(0) - 1 - axis(time), 0), e.extents[time] - 1);
    const ValueId lengths = checked_values(c, 1, 0, e.extents[time], "length", product(e.extents));
    e.accesses = {{lengths, {axis(batch)}, {}, 0},
                  {c.in(0), std::move(reversed), {}, 0},
                  {c.in(0), plain_axes(e.spatial), {}, 0}};
    const DType t = c.dtype(0);
    const Sx length = Sx(e.body, e.body.access(0, c.dtype(1))).cast(DType::I64);
    const Sx inside = Sx(e.body, e.body.index(axis(time))).apply(ScalarOp::Lt, length);
    e.body.set_root(inside.choose(Sx(e.body, e.body.access(1, t)), Sx(e.body, e.body.access(2, t))));
    c.out(0, c.b.emit(std::move(e), t, "reverse"));
}

}  // namespace

std::vector<OpLowering> layout_lowerings() {
    return {
        {"", "Concat", 1, concat},
        {"", "DepthToSpace", 1, depth_to_space},
        {"", "ReverseSequence", 10, reverse_sequence},
        {"", "SpaceToDepth", 1, space_to_depth},
        {"", "Tile", 1, tile},
        {"", "Transpose", 1, transpose},
        {"", "Trilu", 14, trilu},
    };
}

}  // namespace tilewright
