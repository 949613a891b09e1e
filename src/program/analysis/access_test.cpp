// Strides and dependencies of accesses.

#include "program/analysis/access.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tilewright
