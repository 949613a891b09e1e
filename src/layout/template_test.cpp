// The templates of ALT §5.1 (its equations for C2D and GMM), their derivation for other contractions, and that programs
// compute the same at every point.

#include "layout/template.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "layout/random_layout_test.h"
#include "program/builder.h"
#include "program/random_program.h"

namespace tilewright {
namespace {

using testing::ElementsAre;

struct Form {
    Shape space = {10, 10};  ///< of the data
    int64_t in = 16, out = 32, taps = 3, stride = 1, dilation = 1, groups = 1, pad = 0, images = 1;
    bool flipped = false;  ///< the last tap reads the first element: a transposed convolution
};

/// relu, a convolution and relu: the layouts of the convolution's data and result are free.
struct Convolution {
    Program program;
    PrimitiveId primitive;
    ValueId result;

    explicit Convolution(const Form& f) {
        Builder b(program);
        b.set_source("conv", "Conv");
        Shape data = {f.images, f.in};
        data.insert(data.end(), f.space.begin(), f.space.end());
        const ValueId x = b.binary(ScalarOp::Max, b.input("x", DType::F32, {data.begin(), data.end()}), 0.0);
        const size_t rank = f.space.size();
        const int64_t per_group = f.in / f.groups;
        Shape kernel = {f.out, per_group};
        kernel.insert(kernel.end(), rank, f.taps);
        Tensor w(DType::F32, kernel);
        for (int64_t i = 0; i < w.count(); ++i) w.set(i, static_cast<double>(i * 37 % 19 - 9) * 0.05);
        TensorExpr e;
        e.extents = {f.images, f.groups, f.out / f.groups};
        std::vector<Expr> shape = {f.images, f.out};
        for (const int64_t n : f.space) {
            const int64_t results = (n + 2 * f.pad - f.dilation * (f.taps - 1) - 1) / f.stride + 1;
            e.extents.emplace_back(results);
            shape.emplace_back(results);
        }
        e.spatial = e.extents.size();
        e.extents.emplace_back(per_group);
        e.extents.insert(e.extents.end(), rank, f.taps);
        const size_t channel = e.spatial;
        Access read{x, {axis(0), axis(1) * per_group + axis(channel)}, {}, 0};
        const ValueId weights = b.constant(std::move(w), "weights");
        Access kernels{weights, {axis(1) * (f.out / f.groups) + axis(2), axis(channel)}, {}, 0};
        e.output_index = {axis(0), axis(1) * (f.out / f.groups) + axis(2)};
        for (size_t d = 0; d < rank; ++d) {
            const Expr tap = axis(channel + 1 + d);
            const Expr at = axis(3 + d) * f.stride - f.pad + (f.flipped ? Expr(f.taps - 1) - tap : tap) * f.dilation;
            read.index.push_back(at);
            if (f.pad > 0) {
                read.valid.push_back(at);
                read.valid.push_back(Expr(f.space[d] - 1) - at);
            }
            kernels.index.push_back(tap);
            e.output_index.push_back(axis(3 + d));
        }
        e.accesses = {read, kernels};
        e.reducer = Reducer::Sum;
        e.body.set_root(e.body.binary(ScalarOp::Mul, e.body.access(0, DType::F32), e.body.access(1, DType::F32)));
        // The result's shape differs from the spatial axes: group and channel are one dimension.
        result = program.values.push_back({"conv", DType::F32, shape});
        Primitive p;
        p.name = "conv";
        p.source = "Conv";
        p.outputs = {result};
        p.kind = std::move(e);
        primitive = program.primitives.push_back(std::move(p));
        b.set_outputs({b.binary(ScalarOp::Max, result, 0.0)});
    }
};

/// c = a b of [m, k] and [k, n].
struct Product {
    Program program;
    PrimitiveId primitive;
    ValueId result;

    Product(int64_t m, int64_t n, int64_t k, bool transposed = false) {
        Builder b(program);
        b.set_source("gemm", "MatMul");
        const ValueId a = b.binary(ScalarOp::Max, b.input("a", DType::F32, {m, k}), 0.0);
        const std::vector<Expr> shape = transposed ? std::vector<Expr>{n, k} : std::vector<Expr>{k, n};
        const ValueId c = b.binary(ScalarOp::Max, b.input("b", DType::F32, shape), 0.0);
        TensorExpr e;
        e.extents = {m, n, k};
        e.spatial = 2;
        e.accesses = {
            {a, {axis(0), axis(2)}, {}, 0},
            {c, transposed ? std::vector<Expr>{axis(1), axis(2)} : std::vector<Expr>{axis(2), axis(1)}, {}, 0}};
        e.reducer = Reducer::Sum;
        e.body.set_root(e.body.binary(ScalarOp::Mul, e.body.access(0, DType::F32), e.body.access(1, DType::F32)));
        result = b.emit(std::move(e), DType::F32, "gemm");
        primitive = program.producers()[result];
        b.set_outputs({b.binary(ScalarOp::Max, result, 0.0)});
    }
};

template <class Case>
LayoutTemplate template_of(const Case& c, int levels = 1) {
    auto found = layout_template(c.program, c.primitive, levels);
    EXPECT_TRUE(found.has_value());
    return found.value();
}

std::vector<std::string> names(const LayoutTemplate& t) {
    std::vector<std::string> out;
    for (const LayoutParameter& p : t.parameters()) out.push_back(p.name);
    return out;
}

/// "[1, 2, 5] [..] [..]": result and operands at the point.
template <class Case>
std::string shapes(const Case& c, const LayoutTemplate& t, const LayoutPoint& point) {
    const LayoutRequests r = t.requests(point);
    std::string out = to_string(physical_shape(r.written.at(c.result), c.program.values[c.result].shape));
    for (uint32_t slot = 0; slot < 2; ++slot) {
        const ValueId v = c.program.primitives[c.primitive].expr()->accesses[slot].value;
        out += " " + to_string(physical_shape(r.read.at({c.primitive, slot}), c.program.values[v].shape));
    }
    return out;
}

TEST(LayoutTemplate, OfAConvolutionIsThePublishedOne) {
    const Convolution c({});
    const LayoutTemplate t = template_of(c);
    EXPECT_THAT(names(t), ElementsAre("h", "w", "o", "i", "o'", "i'"));
    EXPECT_EQ(t.size(), 4 * 4 * 6 * 5 * 6 * 5) << "8, 8, 32, 16, 32 and 16 have so many divisors";
    // N H/h W/w O/o h w o, N H/h W/w I/i (h + 2) (w + 2) i, O/o' I/i' KH KW i' o'
    EXPECT_EQ(shapes(c, t, {4, 2, 16, 8, 8, 4}), "[1, 2, 4, 2, 4, 2, 16] [1, 2, 4, 2, 6, 4, 8] [4, 4, 3, 3, 4, 8]");
    // No tiles of space: N O/o H W o, as in NeoCPU; with one channel tile channels-last.
    EXPECT_EQ(shapes(c, t, {8, 8, 16, 16, 32, 16}), "[1, 2, 8, 8, 16] [1, 10, 10, 16] [3, 3, 16, 32]");
    EXPECT_EQ(shapes(c, t, {8, 8, 32, 16, 32, 16}), "[1, 8, 8, 32] [1, 10, 10, 16] [3, 3, 16, 32]");
}

TEST(LayoutTemplate, OfAProductIsThePublishedOne) {
    const Product p(64, 48, 32);
    const LayoutTemplate t = template_of(p);
    EXPECT_THAT(names(t), ElementsAre("m", "n", "k"));
    EXPECT_EQ(shapes(p, t, {16, 12, 8}), "[4, 4, 16, 12] [4, 4, 16, 8] [4, 4, 8, 12]");
    EXPECT_EQ(shapes(p, t, {64, 48, 32}), "[64, 48] [64, 32] [32, 48]");
    const Product transposed(64, 48, 32, true);
    EXPECT_EQ(shapes(transposed, template_of(transposed), {16, 12, 8}), "[4, 4, 16, 12] [4, 4, 16, 8] [4, 4, 8, 12]");
}

TEST(LayoutTemplate, UnfoldsWhatWindowsOfStridesAndDilationsRead) {
    // 2 (h - 1) + 3 = 9 elements for 4 results, 8 apart
    const Convolution strided({.space = {17, 17}, .stride = 2});
    EXPECT_EQ(shapes(strided, template_of(strided), {4, 8, 32, 16, 32, 16}).substr(0, 41),
              "[1, 2, 4, 8, 32] [1, 2, 9, 17, 16] [3, 3,");
    // (h - 1) + 2 * 2 + 1 = 8
    const Convolution dilated({.space = {12, 12}, .dilation = 2});
    EXPECT_EQ(shapes(dilated, template_of(dilated), {4, 8, 32, 16, 32, 16}).substr(0, 42),
              "[1, 2, 4, 8, 32] [1, 2, 8, 12, 16] [3, 3, ");
    // Padding is part of the tiles: 8 results of 8 elements, from -1 on.
    const Convolution padded({.space = {8, 8}, .pad = 1});
    EXPECT_EQ(shapes(padded, template_of(padded), {4, 8, 32, 16, 32, 16}).substr(0, 40),
              "[1, 2, 4, 8, 32] [1, 2, 6, 8, 16] [3, 3,");
}

TEST(LayoutTemplate, OfOtherContractionsFollowsFromTheirAccesses) {
    EXPECT_THAT(names(template_of(Convolution({.space = {10}}))), ElementsAre("w", "o", "i", "o'", "i'"));
    EXPECT_THAT(names(template_of(Convolution({.space = {6, 6, 6}, .in = 4, .out = 8}))),
                ElementsAre("d", "h", "w", "o", "i", "o'", "i'"));
    EXPECT_THAT(names(template_of(Convolution({.taps = 1}))), ElementsAre("h", "w", "o", "i", "o'", "i'"));
    const LayoutTemplate depthwise = template_of(Convolution({.in = 16, .out = 16, .groups = 16}));
    EXPECT_THAT(names(depthwise), ElementsAre("h", "w", "o", "i", "o'"));
    // A tile of channels is part of one group, or all of them.
    const LayoutTemplate grouped = template_of(Convolution({.in = 16, .out = 32, .groups = 4}));
    EXPECT_THAT(grouped.parameters()[2].factors, ElementsAre(1, 2, 4, 8, 32));
}

TEST(LayoutTemplate, HasTilesOfTilesWithTwoLevels) {
    const Convolution c({});
    const LayoutTemplate t = template_of(c, 2);
    EXPECT_THAT(names(t), ElementsAre("h", "h2", "w", "w2", "o", "o2", "i", "i2", "o'", "o'2", "i'", "i'2"));
    // N H/h2 W/w2 O/o2 h2/h w2/w o2/o h w o
    const LayoutPoint point = {2, 4, 2, 4, 8, 16, 16, 16, 32, 32, 16, 16};
    EXPECT_TRUE(t.valid(point));
    EXPECT_EQ(shapes(c, t, point), "[1, 2, 2, 2, 2, 2, 2, 2, 2, 8] [1, 2, 2, 6, 6, 16] [3, 3, 16, 32]");
    EXPECT_FALSE(t.valid({4, 2, 2, 4, 8, 16, 16, 16, 32, 32, 16, 16})) << "tiles of 4 in tiles of 2";
}

TEST(LayoutTemplate, IsOnlyOfContractionsOfConstantSize) {
    const Convolution c({});
    const PrimitiveId relu = c.program.producers()[c.program.primitives[c.primitive].expr()->accesses[0].value];
    EXPECT_FALSE(layout_template(c.program, relu).has_value());
    Program open = c.program;
    open.primitives[c.primitive].expr()->extents[0] = symbol("n");
    EXPECT_FALSE(layout_template(open, c.primitive).has_value());
}

/// The program in the layouts of random points is valid and computes the same.
template <class Case>
void expect_equal_results(const Case& c, uint64_t seed) {
    for (const int levels : {1, 2}) {
        const LayoutTemplate t = template_of(c, levels);
        LayoutChoice choice(seed);
        const std::vector<Tensor> inputs = random_inputs(c.program, 3);
        const std::vector<Tensor> expected = interpret(c.program, inputs);
        for (int n = 0; n < 6; ++n) {
            LayoutPoint point;
            for (const LayoutParameter& p : t.parameters())
                point.push_back(p.factors[static_cast<size_t>(choice.upto(0, std::ssize(p.factors) - 1))]);
            if (!t.valid(point)) continue;
            PropagateOptions options;
            options.fixed = row_major_values(c.program);
            const Program moved = apply_layouts(c.program, plan_layouts(c.program, t.requests(point), options));
            ASSERT_EQ(verify(moved), std::vector<std::string>()) << fmt::format("{}\n", point) << print(moved);
            ASSERT_LE(largest_difference(expected, interpret(moved, inputs)), 1e-6)
                << fmt::format("{}\n", point) << print(moved);
        }
    }
}

TEST(LayoutTemplate, KeepsResultsAtEveryPoint) {
    for (const Form& f :
         {Form{.in = 4, .out = 8}, Form{.space = {9}, .in = 4, .out = 8, .taps = 2, .images = 2},
          Form{.space = {5, 6, 7}, .in = 2, .out = 4, .taps = 2},
          Form{.space = {9, 12}, .in = 4, .out = 6, .stride = 2},
          Form{.space = {12, 12}, .in = 4, .out = 6, .dilation = 2}, Form{.space = {8, 8}, .in = 4, .out = 6, .pad = 1},
          Form{.space = {12, 12}, .in = 4, .out = 6, .taps = 1, .stride = 3},
          Form{.space = {8, 8}, .in = 8, .out = 12, .groups = 4, .pad = 1},
          Form{.space = {8, 8}, .in = 8, .out = 8, .stride = 2, .groups = 8, .pad = 1},
          Form{.space = {8, 8}, .in = 4, .out = 6, .flipped = true}})
        expect_equal_results(Convolution(f), 7);
    expect_equal_results(Product(12, 8, 18), 8);
    expect_equal_results(Product(12, 8, 18, true), 9);
}

}  // namespace
}  // namespace tilewright
