#include "tune/restrict.h"

#include <gtest/gtest.h>

#include <random>

#include "program/random_program.h"
#include "tile/examples_test.h"
#include "tile/random_case_test.h"
#include "tune/operands.h"

namespace tilewright {
namespace {

/// Element `point` (plus the window's begin) of output `output` of the complete program.
double whole_element(const Program& p, size_t output, const Tensor& whole, Shape point, const Window& window) {
    for (size_t k = 0; k < point.size(); ++k) point[k] += window.begin[k];
    int64_t flat = 0;
    const std::vector<Expr> index = result_index(stage_of_output(p, output));
    for (size_t d = 0; d < index.size(); ++d)
        flat = flat * whole.shape()[d] + evaluate(index[d], Env{point, {}, nullptr});
    return whole.get(flat);
}

TEST(Restricted, a_window_of_a_product_needs_only_its_rows_and_columns) {
    const Program p = parse_tile_program(kChain).stages;
    const RestrictedKernel part = restrict_kernel(p, 0, {{2, 1}, {3, 2}});
    EXPECT_EQ(to_string(part.program.values[p.outputs[0]].shape), "[3, 2]");
    const ValueId c = p.primitives[PrimitiveId(0)].outputs[0];
    EXPECT_EQ(to_string(part.program.values[c].shape), "[3, 8]");
    EXPECT_LT(part.work, work_of(p) / 2);
    EXPECT_EQ(verify(part.program), std::vector<std::string>{});
}

TEST(Restricted, a_value_with_one_axis_per_dimension_is_restricted_too) {
    // A row's maximum is stored as [rows, 1], the terms as [1, rows, columns]: one row of the result needs one of each.
    const Program p = parse_program(
        "program p {\n  input x: f32[9, 8]\n"
        "  r: f32[9, 1] = [9] -> [i0, 0] max(i1 < 8) @0 where @0 = x[i0, i1]\n"
        "  e: f32[1, 9, 8] = [9, 8] -> [0, i0, i1] exp(sub(@0, @1)) where @0 = x[i0, i1], @1 = r[i0, 0]\n"
        "  s: f32[9] = [9] sum(i1 < 8) @0 where @0 = e[0, i0, i1]\n  output s\n}\n");
    const RestrictedKernel part = restrict_kernel(p, 0, {{4}, {1}});
    EXPECT_EQ(part.work, work_of(p) / 9);
    EXPECT_EQ(verify(part.program), std::vector<std::string>{});
    Tensor x(DType::F32, {9, 8});
    for (int64_t i = 0; i < x.count(); ++i) x.set(i, static_cast<double>(i % 7) / 3);
    EXPECT_EQ(interpret(part.program, {x})[0].get(0), interpret(p, {x})[0].get(4));
}

TEST(Restricted, unused_stages_are_removed) {
    const Program p = parse_program(
        "program p {\n  input x: f32[8]\n  a: f32[8] = [8] neg(@0) where @0 = x[i0]\n"
        "  b: f32[8] = [8] abs(@0) where @0 = a[i0]\n  output a, b\n}\n");
    const RestrictedKernel part = restrict_kernel(p, 0, {{3}, {1}});
    EXPECT_EQ(part.program.primitives.size(), 1u);
    EXPECT_EQ(part.program.outputs.size(), 1u);
}

TEST(Restricted, windows_of_random_kernels_equal_the_complete_result) {
    int windows = 0, smaller = 0;
    for (uint64_t seed = 0; seed < 120; ++seed) {
        Case c = random_case(seed, 1 + static_cast<int>(seed % 7), false, {.symbolic = false});
        const std::vector<Tensor> whole = interpret(c.stages, c.inputs);
        std::mt19937_64 rng(seed);
        for (size_t i = 0; i < whole.size(); ++i) {
            Window w;
            const TensorExpr& stage = stage_of_output(c.stages, i);
            for (size_t k = 0; k < stage.spatial; ++k) {
                const int64_t extent = stage.extents[k].constant();
                w.length.push_back(1 + static_cast<int64_t>(rng() % static_cast<uint64_t>(extent)));
                w.begin.push_back(static_cast<int64_t>(rng() % static_cast<uint64_t>(extent - w.length.back() + 1)));
            }
            const RestrictedKernel part = restrict_kernel(c.stages, i, w);
            EXPECT_LE(part.work, work_of(c.stages));
            smaller += part.work < work_of(c.stages) ? 1 : 0;
            const Tensor got = interpret(part.program, c.inputs).at(0);
            for (int64_t e = 0; e < got.count(); ++e) {
                Shape point(w.length.size());
                int64_t rest = e;
                for (size_t d = point.size(); d-- > 0; rest /= w.length[d]) point[d] = rest % w.length[d];
                const double expected = whole_element(c.stages, i, whole[i], point, w);
                ASSERT_TRUE(got.get(e) == expected || (got.get(e) != got.get(e) && expected != expected))
                    << got.get(e) << " " << expected << "\n"
                    << print(c.stages) << print(part.program);
            }
            ++windows;
        }
    }
    EXPECT_GT(windows, 120);
    EXPECT_GT(smaller, 80);
}

}  // namespace
}  // namespace tilewright
