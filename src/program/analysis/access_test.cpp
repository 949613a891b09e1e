// Strides and dependencies of accesses.

#include "program/analysis/access.h"

#include <gtest/gtest.h>

#include <cstring>

#include "program/random_program.h"
#include "program/text.h"
#include "program/transform/contiguous_axes.h"

namespace tilewright {
namespace {

/// y[i0, i1] = x[...] over 8 x 64 points.
Program copy_of(std::vector<Expr> shape, std::vector<Expr> index) {
    Program p;
    const ValueId x = p.values.push_back({"x", DType::F32, std::move(shape)});
    const ValueId y = p.values.push_back({"y", DType::F32, {8, 64}});
    p.inputs = {x};
    p.outputs = {y};
    TensorExpr e;
    e.extents = {8, 64};
    e.spatial = 2;
    Access a;
    a.value = x;
    a.index = std::move(index);
    e.accesses = {a};
    e.body.set_root(e.body.access(0, DType::F32));
    Primitive q;
    q.name = "copy";
    q.outputs = {y};
    q.kind = std::move(e);
    p.primitives.push_back(std::move(q));
    return p;
}

const TensorExpr& expr_of(const Program& p) { return *p.primitives[PrimitiveId(0)].expr(); }

TEST(AxisStrides, AreElementsBetweenNeighbours) {
    const Program p = copy_of({64, 8}, {axis(1), axis(0)});
    const auto strides = axis_strides(p, expr_of(p), p.inputs[0], expr_of(p).accesses[0].index);
    ASSERT_EQ(strides.size(), 2u);
    ASSERT_TRUE(strides[0] && strides[1]);
    EXPECT_TRUE(strides[0]->is_constant(1));
    EXPECT_TRUE(strides[1]->is_constant(8));
}

TEST(AxisStrides, HaveNoneWhereTheOffsetIsNotLinear) {
    // Blocks of 16 channels: [4, 8, 16].
    const Program p = copy_of({4, 8, 16}, {floor_div(axis(1), 16), axis(0), mod(axis(1), 16)});
    const TensorExpr& e = expr_of(p);
    const auto strides = axis_strides(p, e, p.inputs[0], e.accesses[0].index);
    ASSERT_TRUE(strides[0]);
    EXPECT_TRUE(strides[0]->is_constant(16));
    EXPECT_FALSE(strides[1]);
    const auto lanes = lane_stride(p, e, p.inputs[0], e.accesses[0].index, 1, 8);
    ASSERT_TRUE(lanes) << "lanes lie inside a block";
    EXPECT_TRUE(lanes->is_constant(1));
    EXPECT_FALSE(lane_stride(p, e, p.inputs[0], e.accesses[0].index, 1, 32)) << "32 lanes span two blocks";
}

TEST(MergeContiguousAxes, TakesAxesThatAllOperandsWalkAsOne) {
    const auto merged = merge_contiguous_axes(copy_of({8, 64}, {axis(0), axis(1)}));
    ASSERT_TRUE(merged);
    ASSERT_EQ(expr_of(*merged).extents.size(), 1u);
    EXPECT_TRUE(expr_of(*merged).extents[0].is_constant(512));
    EXPECT_EQ(merged->values[merged->inputs[0]].shape.size(), 1u);
    EXPECT_FALSE(merge_contiguous_axes(copy_of({64, 8}, {axis(1), axis(0)}))) << "a transpose";
}

std::string merged_stage(const std::string& text) {
    const Program p = parse_program(text);
    const auto merged = merge_dimensions(p);
    if (!merged) return "nothing";
    const std::vector<Tensor> inputs = random_inputs(p, 1);
    std::vector<Tensor> reshaped;
    for (size_t i = 0; i < inputs.size(); ++i) {
        const Shape shape = evaluate(merged->values[merged->inputs[i]].shape, Bindings{});
        reshaped.emplace_back(inputs[i].dtype(), shape);
        std::memcpy(reshaped.back().mutable_data(), inputs[i].data(), inputs[i].bytes());
    }
    const Tensor expected = interpret(p, inputs)[0], found = interpret(*merged, reshaped)[0];
    EXPECT_EQ(expected.count(), found.count());
    for (int64_t i = 0; i < expected.count(); ++i) EXPECT_EQ(expected.get(i), found.get(i));
    const std::string all = print(*merged);
    const size_t at = all.find("y: ");
    return all.substr(at, all.find('\n', at) - at);
}

TEST(MergeDimensions, MakesThePixelsOfAConvolutionOneAxisInTheOrderOfTheResult) {
    EXPECT_EQ(
        merged_stage(R"(program p {
  input x: f32[1, 6, 4, 8]
  input k: f32[5, 8]
  y: f32[1, 6, 4, 5] = [5, 6, 4] -> [0, i1, i2, i0] sum(i3 < 8) mul(@0, @1) where @0 = x[0, i1, i2, i3], @1 = k[i0, i3]
  output y
})"),
        "y: f32[1, 24, 5] = [24, 5] -> [0, i0, i1] sum(i2 < 8) mul(@0, @1) where @0 = x[0, i0, i2], @1 = k[i1, i2]");
}

TEST(MergeDimensions, LeavesWindowsAndStridesApart) {
    EXPECT_EQ(merged_stage(R"(program p {
  input x: f32[13, 9, 8]
  input k: f32[5, 8]
  y: f32[6, 4, 5] = [6, 4, 5] sum(i3 < 8) mul(@0, @1) where @0 = x[2*i0, 2*i1, i3], @1 = k[i2, i3]
  output y
})"),
              "y: f32[6, 4, 5] = [6, 4, 5] sum(i3 < 8) mul(@0, @1) where @0 = x[2*i0, 2*i1, i3], @1 = k[i2, i3]");
    // x is read at two places, of which one has the axes apart.
    EXPECT_EQ(merged_stage(R"(program p {
  input x: f32[6, 6]
  y: f32[6, 6] = [6, 6] add(@0, @1) where @0 = x[i0, i1], @1 = x[i1, i0]
  output y
})"),
              "y: f32[6, 6] = [6, 6] add(@0, @1) where @0 = x[i0, i1], @1 = x[i1, i0]");
}

}  // namespace
}  // namespace tilewright
