// Layouts on the examples of ALT §4.1, and on random ones.

#include "layout/layout.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "layout/random_layout_test.h"
#include "program/program.h"

namespace tilewright {
namespace {

using Dims = std::vector<Expr>;

Dims dims(const Shape& shape) { return {shape.begin(), shape.end()}; }
Dims axes(size_t n) {
    Dims out;
    for (size_t d = 0; d < n; ++d) out.push_back(axis(d));
    return out;
}

std::string shape_text(const std::string& layout, const Dims& shape) {
    return to_string(physical_shape(parse_layout(layout), shape));
}
std::string index_text(const std::string& layout, const Dims& shape) {
    return to_string(physical_index(parse_layout(layout), shape, axes(shape.size())));
}
std::vector<int64_t> data(const std::string& layout, const Tensor& t) {
    return to_physical(parse_layout(layout), t).to_ints();
}

/// The logical element of a physical position, if there is one.
struct Found {
    std::vector<int64_t> index;
    bool valid = true;
};
Found found(const LogicalIndex& logical, std::span<const int64_t> at) {
    Env env;
    env.axes = at;
    Found f;
    for (const Expr& i : logical.index) f.index.push_back(evaluate(i, env));
    for (const Expr& c : logical.valid) f.valid = f.valid && evaluate(c, env) >= 0;
    return f;
}

int64_t offset(std::span<const int64_t> shape, std::span<const int64_t> index) {
    int64_t o = 0;
    for (size_t d = 0; d < shape.size(); ++d) o = o * shape[d] + index[d];
    return o;
}
std::vector<int64_t> position(std::span<const int64_t> shape, int64_t o) {
    std::vector<int64_t> index(shape.size());
    for (size_t d = shape.size(); d-- > 0; o /= shape[d]) index[d] = o % shape[d];
    return index;
}

// --- the basic primitives: Table 1

TEST(Layout, split_makes_blocks_of_a_dimension) {
    EXPECT_EQ(shape_text("split(1, 4)", {2, 8, 3}), "[2, 2, 4, 3]");
    EXPECT_EQ(index_text("split(1, 4)", {2, 8, 3}), "[i0, i1 // 4, i1 % 4, i2]");
    EXPECT_EQ(shape_text("split(0, 4)", {symbol("n")}), "[($n + 3) // 4, 4]");
}

TEST(Layout, split_pads_the_last_block) {
    EXPECT_EQ(shape_text("split(0, 3)", {5}), "[2, 3]");
    EXPECT_EQ(data("split(0, 3)", counted({5})), (std::vector<int64_t>{1, 2, 3, 4, 5, 0}));
    EXPECT_EQ(data("pad(0, 0, 1) split(0, 3)", counted({5})), data("split(0, 3)", counted({5})));
}

TEST(Layout, reorder_permutes_dimensions) {
    EXPECT_EQ(shape_text("reorder(2, 0, 1)", {2, 3, 4}), "[4, 2, 3]");
    EXPECT_EQ(index_text("reorder(2, 0, 1)", {2, 3, 4}), "[i2, i0, i1]");
    EXPECT_EQ(data("reorder(1, 0)", counted({2, 3})), (std::vector<int64_t>{1, 4, 2, 5, 3, 6}));
}

TEST(Layout, fuse_makes_one_dimension_of_several) {
    EXPECT_EQ(shape_text("fuse(1, 2)", {2, 3, 4}), "[2, 12]");
    EXPECT_EQ(index_text("fuse(1, 2)", {2, 3, 4}), "[i0, 4*i1 + i2]");
    EXPECT_EQ(index_text("fuse(0, 3)", {2, symbol("h"), 4}), "[4*$h*i0 + 4*i1 + i2]");
}

// --- the advanced primitives: §4.1.2

TEST(Layout, unfold_makes_overlapped_tiles) {
    // "an array {1,2,3,4,5} can be unfolded to a 2-D array {{1,2,3},{3,4,5}} by setting B = 3 and S = 2"
    EXPECT_EQ(shape_text("unfold(0, 3, 2)", {5}), "[2, 3]");
    EXPECT_EQ(data("unfold(0, 3, 2)", counted({5})), (std::vector<int64_t>{1, 2, 3, 3, 4, 5}));
    // ceil((D - B) / S) + 1 tiles; the last reaches past the end.
    EXPECT_EQ(data("unfold(0, 3, 2)", counted({6})), (std::vector<int64_t>{1, 2, 3, 3, 4, 5, 5, 6, 0}));
    EXPECT_EQ(data("unfold(0, 3, 2)", counted({2})), (std::vector<int64_t>{1, 2, 0}));
}

TEST(Layout, windows_of_a_convolution_lie_in_one_tile) {
    // V = 2, M = 3, tiles of 4 windows: B = V*3 + M = 9, S = V*4 = 8. Equation 1 with floor((B - M) / V) + 1 = 4.
    const Dims shape = {17};
    const Expr i = axis(0), r = axis(1);
    const Ranges ranges = Ranges::of_extents(Dims{8, 3});
    Dims at = physical_index(parse_layout("unfold(0, 9, 8)"), shape, Dims{i * 2 + r}, Dims{i * 2});
    for (int64_t window = 0; window < 8; ++window)
        for (int64_t k = 0; k < 3; ++k) {
            const std::vector<int64_t> point = {window, k};
            Env env;
            env.axes = point;
            EXPECT_EQ(evaluate(at[0], env), window / 4);
            EXPECT_EQ(evaluate(at[1], env), 2 * window + k - 8 * (window / 4));
            EXPECT_LT(evaluate(at[1], env), 9);
        }
    EXPECT_EQ(simplify(at[0], ranges).text(), "i0 // 4");
}

TEST(Layout, windows_pass_through_primitives_before_the_unfold) {
    // NHW, H unfolded after a padding of one row and a reordering.
    const Layout layout = parse_layout("pad(1, 1, 1) reorder(1, 0, 2) unfold(0, 4, 2)");
    const Dims shape = {2, 6, 5}, index = {axis(0), axis(1) + axis(3) - 1, axis(2)};
    const Dims window = {axis(0), axis(1) - 1, axis(2)};
    const Ranges ranges = Ranges::of_extents(Dims{2, 6, 5, 3});
    const Dims at = physical_index(layout, shape, index, window);
    EXPECT_EQ(simplify(at[0], ranges).text(), "i1 // 2");
    EXPECT_EQ(simplify(at[1], ranges).text(), "-2*(i1 // 2) + i1 + i3");
}

TEST(Layout, pad_puts_zeros_around_a_dimension) {
    EXPECT_EQ(shape_text("pad(1, 1, 2)", {2, 2}), "[2, 5]");
    EXPECT_EQ(index_text("pad(1, 1, 2)", {2, 2}), "[i0, i1 + 1]");
    EXPECT_EQ(data("pad(1, 1, 2)", counted({2, 2})), (std::vector<int64_t>{0, 1, 2, 0, 0, 0, 3, 4, 0, 0}));
}

TEST(Layout, store_at_places_a_tensor_in_another) {
    // "attach each element of the bias vector to each column of the weight matrix": one more row of [3, 2].
    EXPECT_EQ(shape_text("store_at(weights, 0, 3, 4)", {1, 2}), "[4, 2]");
    EXPECT_EQ(index_text("store_at(weights, 0, 3, 4)", {1, 2}), "[i0 + 3, i1]");
    EXPECT_EQ(data("store_at(weights, 0, 3, 4)", counted({1, 2})), (std::vector<int64_t>{0, 0, 0, 0, 0, 0, 1, 2}));
}

// --- the examples

TEST(Layout, channel_blocks) {
    // NOHW -> N O/ot H W ot
    const std::string layout = "split(1, 4) reorder(0, 1, 3, 4, 2)";
    EXPECT_EQ(shape_text(layout, {1, 8, 3, 5}), "[1, 2, 3, 5, 4]");
    EXPECT_EQ(index_text(layout, {1, 8, 3, 5}), "[i0, i1 // 4, i2, i3, i1 % 4]");
}

TEST(Layout, spatial_blocks) {
    // NHWO -> N (HWO) -> N (O/4) 4 (HW) -> N (O/4) (HW) 4, with H = 3, W = 5, O = 8
    const std::string layout = "fuse(1, 3) split(1, 15) split(1, 4) reorder(0, 1, 3, 2)";
    EXPECT_EQ(shape_text(layout, {2, 3, 5, 8}), "[2, 2, 15, 4]");
    const Dims shape = {2, 3, 5, 8};
    const Dims at = physical_index(parse_layout(layout), shape, axes(4));
    for (int64_t o = 0; o < 240; ++o) {
        const std::vector<int64_t> i = position(std::vector<int64_t>{2, 3, 5, 8}, o);
        const int64_t e = i[1] * 5 * 8 + i[2] * 8 + i[3];
        Env env;
        env.axes = i;
        EXPECT_EQ(evaluate(at[1], env), e / (15 * 4));
        EXPECT_EQ(evaluate(at[2], env), e % 15);
        EXPECT_EQ(evaluate(at[3], env), e / 15 % 4);
    }
}

TEST(Layout, tiles_of_a_convolutions_image) {
    // NIHW, tiles of 4 x 4 outputs of a 3x3 window: N H/4 W/4 I/2 6 6 2
    const std::string layout = "unfold(3, 6, 4) unfold(2, 6, 4) split(1, 2) reorder(0, 3, 5, 1, 4, 6, 2)";
    EXPECT_EQ(shape_text(layout, {1, 4, 10, 14}), "[1, 2, 3, 2, 6, 6, 2]");
}

// --- errors

TEST(Layout, reports_primitives_that_do_not_fit) {
    const auto error = [](const std::string& layout) {
        try {
            physical_shape(parse_layout(layout), Dims{2, 3});
        } catch (const ModelError& e) {
            return std::string(e.what());
        }
        return std::string();
    };
    EXPECT_EQ(error("split(2, 2)"), "layout: split does not fit a tensor of shape [2, 3]");
    EXPECT_EQ(error("split(0, 0)"), "layout: split does not fit a tensor of shape [2, 3]");
    EXPECT_EQ(error("reorder(0)"), "layout: reorder does not fit a tensor of shape [2, 3]");
    EXPECT_EQ(error("reorder(0, 0)"), "layout: reorder does not fit a tensor of shape [2, 3]");
    EXPECT_EQ(error("fuse(1, 2)"), "layout: fuse does not fit a tensor of shape [2, 3]");
    EXPECT_EQ(error("unfold(0, 0, 1)"), "layout: unfold does not fit a tensor of shape [2, 3]");
    EXPECT_EQ(error("pad(2, 1, 0)"), "layout: pad does not fit a tensor of shape [2, 3]");
    EXPECT_EQ(error("store_at(w, 5, 0, 9)"), "layout: store_at does not fit a tensor of shape [2, 3]");
    EXPECT_THROW(physical_index(Layout(), Dims{2, 3}, Dims{axis(0)}), ModelError);
    EXPECT_THROW(logical_index(Layout(), Dims{2, 3}, Dims{axis(0)}), ModelError);
}

// --- text

TEST(LayoutText, round_trips) {
    for (uint64_t seed = 0; seed < 300; ++seed) {
        LayoutChoice choice(seed);
        const Layout layout = choice.layout(static_cast<size_t>(choice.upto(0, 4)), false);
        EXPECT_EQ(parse_layout(print(layout)), layout) << print(layout);
        EXPECT_EQ(print(parse_layout(print(layout))), print(layout));
    }
    EXPECT_EQ(print(parse_layout(" split( 1,16 )\nreorder(0,1)")), "split(1, 16) reorder(0, 1)");
    EXPECT_TRUE(parse_layout("").is_identity());
    EXPECT_FALSE(parse_layout("split(0, 2)") == parse_layout("split(0, 3)"));
}

TEST(LayoutText, parse_errors_name_the_column) {
    const auto error = [](const std::string& text) {
        try {
            parse_layout(text);
        } catch (const ModelError& e) {
            return std::string(e.what());
        }
        return std::string();
    };
    EXPECT_EQ(error("spilt(1, 2)"),
              "layout 'spilt(1, 2)': expected split, reorder, fuse, unfold, pad or store_at at column 7");
    EXPECT_EQ(error("split(1)"), "layout 'split(1)': expected , at column 8");
    EXPECT_EQ(error("split(1, x)"), "layout 'split(1, x)': expected a number at column 11");
    EXPECT_EQ(error("split(1, 2"), "layout 'split(1, 2': expected ) at column 11");
}

// --- properties

/// Every element is where physical_index says.
void expect_moved(const Layout& layout, const Tensor& logical, const Tensor& physical) {
    const Shape& shape = logical.shape();
    const std::string what = print(layout) + " of " + to_string(shape);
    const Dims there = physical_index(layout, dims(shape), axes(shape.size()));
    for (int64_t o = 0; o < logical.count(); ++o) {
        const std::vector<int64_t> at = position(shape, o);
        Env env;
        env.axes = at;
        std::vector<int64_t> place;
        for (const Expr& i : there) place.push_back(evaluate(i, env));
        for (size_t d = 0; d < place.size(); ++d) ASSERT_LT(place[d], physical.shape()[d]) << what;
        ASSERT_EQ(physical.get_int(offset(physical.shape(), place)), logical.get_int(o)) << what;
    }
}

TEST(LayoutProperty, holds_for_pairs_and_large_matrices) {
    // Pairs and quads along the first dimension; rows and columns of zeros; blocks of more than 64 KiB.
    for (const DType type : {DType::I8, DType::I16, DType::I32, DType::I64})
        for (const char* text :
             {"reorder(1, 0)", "split(1, 16) reorder(1, 0, 2)", "split(0, 2) split(2, 16) reorder(2, 0, 3, 1)",
              "split(0, 4) split(2, 16) reorder(2, 0, 3, 1)", "pad(0, 1, 2) reorder(1, 0)"}) {
            Tensor logical(type, {301, 250});
            for (int64_t i = 0; i < logical.count(); ++i) logical.set(i, i * 7 % 127 + 1);
            const Layout layout = parse_layout(text);
            const Tensor physical = to_physical(layout, logical);
            expect_moved(layout, logical, physical);
            int64_t filled = 0;
            for (int64_t i = 0; i < physical.count(); ++i) filled += physical.get_int(i) != 0 ? 1 : 0;
            EXPECT_EQ(filled, logical.count()) << text;
            EXPECT_EQ(to_logical(layout, physical, logical.shape()), logical) << text;
        }
}

TEST(LayoutProperty, index_maps_agree_with_moved_data) {
    int padded = 0, copied = 0;
    for (uint64_t seed = 0; seed < 400; ++seed) {
        LayoutChoice choice(seed);
        const Shape shape = choice.shape();
        const Layout layout = choice.layout(shape.size(), seed % 2 == 0);
        const Tensor logical = counted(shape);
        const Tensor physical = to_physical(layout, logical);
        const std::string what = print(layout) + " of " + to_string(shape);
        ASSERT_EQ(to_string(physical_shape(layout, dims(shape))), to_string(dims(physical.shape()))) << what;

        expect_moved(layout, logical, physical);
        const LogicalIndex back = logical_index(layout, dims(shape), axes(physical.shape().size()));
        std::vector<int> seen(static_cast<size_t>(logical.count()), 0);
        for (int64_t o = 0; o < physical.count(); ++o) {
            const Found f = found(back, position(physical.shape(), o));
            if (f.valid) ++seen[static_cast<size_t>(offset(shape, f.index))];
            EXPECT_EQ(physical.get_int(o), f.valid ? logical.get_int(offset(shape, f.index)) : 0) << what;
            padded += f.valid ? 0 : 1;
        }
        for (const int n : seen) {
            EXPECT_GE(n, 1) << what;
            copied += n - 1;
        }
        EXPECT_EQ(to_logical(layout, physical, shape), logical) << what;
    }
    EXPECT_GT(padded, 1000);
    EXPECT_GT(copied, 100);
}

TEST(LayoutProperty, symbolic_shapes_agree_with_constant_ones) {
    for (uint64_t seed = 0; seed < 200; ++seed) {
        LayoutChoice choice(seed);
        Shape shape = choice.shape();
        if (shape.empty()) continue;
        const Layout layout = choice.layout(shape.size(), true);
        Dims open = dims(shape);
        open[0] = symbol("n");
        Bindings n;
        bind_shape(n, Dims{symbol("n")}, Shape{shape[0]}, "n");
        EXPECT_EQ(evaluate(physical_shape(layout, open), n), to_physical(layout, counted(shape)).shape())
            << print(layout);
    }
}

/// y[i] = x[i] in other layouts: rewriting the indices is moving the data.
TEST(LayoutProperty, rewriting_indices_is_moving_data) {
    int moved = 0;
    for (uint64_t seed = 0; seed < 300; ++seed) {
        LayoutChoice choice(seed);
        const Shape shape = choice.shape();
        const Layout in = choice.layout(shape.size(), false), out = choice.layout(shape.size(), true);
        const Tensor logical = counted(shape);
        const Tensor expected = to_physical(out, logical);
        if (expected.count() != logical.count()) continue;  // padded: an expression does not write padding
        ++moved;
        TensorExpr copy;
        copy.extents = dims(shape);
        copy.spatial = shape.size();
        copy.accesses = {Access{ValueId(0), physical_index(in, dims(shape), axes(shape.size())), {}, 0}};
        copy.body.set_root(copy.body.access(0, DType::I64));
        copy.output_index = physical_index(out, dims(shape), axes(shape.size()));
        const std::vector<Tensor> operands = {to_physical(in, logical)};
        EXPECT_EQ(interpret(copy, operands, DType::I64, expected.shape(), {}), expected)
            << print(in) << " to " << print(out) << " of " << to_string(shape);
    }
    EXPECT_GT(moved, 100);
}

TEST(LayoutProperty, all_element_types_move_alike) {
    const Layout layout = parse_layout("split(0, 2) reorder(1, 0, 2)");
    for (const DType t : {DType::I8, DType::F16, DType::F32, DType::F64}) {
        const Tensor x = Tensor::of<int>(t, {3, 2}, {1, 2, 3, 4, 5, 6});
        EXPECT_EQ(to_physical(layout, x), Tensor::of<int>(t, {2, 2, 2}, {1, 2, 5, 6, 3, 4, 0, 0}));
    }
}

}  // namespace
}  // namespace tilewright
