// Gemm's options and Einsum's equations.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/rule_test.h"

namespace tilewright {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace test;

Tensor counting(Shape shape) {
    Tensor t(DType::F32, std::move(shape));
    for (int64_t i = 0; i < t.count(); ++i) t.set(i, i % 7 - 3);
    return t;
}

TEST(Gemm, transposes_scales_and_adds) {
    const Tensor a = floats({2, 1}, {1, 2}), b = floats({3, 2}, {1, 2, 3, 4, 5, 6}), c = floats({1, 3}, {10, 20, 30});
    const Tensor y =
        run("Gemm", {a, b, c}, {{"transA", int64_t{1}}, {"transB", int64_t{1}}, {"alpha", 2.0f}, {"beta", 0.5f}}, 13)
            .front();
    EXPECT_EQ(y.shape(), (Shape{1, 3}));
    EXPECT_THAT(numbers(y), ElementsAre(2 * 5 + 5, 2 * 11 + 10, 2 * 17 + 15));
}

TEST(Gemm, with_plain_factors_is_a_product_and_a_sum) {
    const Program p = lower(model(graph({{"a", DType::F32, {2, 3}}}, {node("Gemm", {"a", "b", "c"}, {"y"})}, {"y"},
                                        {{"b", counting({3, 4})}, {"c", counting({4})}})));
    EXPECT_EQ(p.primitives.size(), 2U);
}

TEST(Gemm, rejects_mismatched_shapes) {
    const auto refusal = [](Shape a, Shape b, Shape c) -> std::string {
        try {
            run("Gemm", {counting(std::move(a)), counting(std::move(b)), counting(std::move(c))});
        } catch (const ModelError& e) {
            return e.what();
        }
        return "accepted";
    };
    EXPECT_THAT(refusal({2, 3}, {4, 5}, {5}), HasSubstr("3 columns, 4 rows"));
    EXPECT_THAT(refusal({2, 3}, {3, 5}, {4}), HasSubstr("C of shape [4] does not broadcast to [2, 5]"));
    EXPECT_THAT(refusal({2, 3, 1}, {3, 5}, {5}), HasSubstr("two matrices are expected"));
}

Tensor einsum(const std::string& equation, const std::vector<Tensor>& operands) {
    return run("Einsum", operands, {{"equation", equation}}, 12).front();
}

TEST(Einsum, multiplies_matrices_in_either_spelling) {
    const Tensor a = counting({2, 3}), b = counting({3, 4});
    const Tensor product = run("MatMul", {a, b}).front();
    EXPECT_EQ(einsum("ij,jk->ik", {a, b}), product);
    EXPECT_EQ(einsum("ij, jk", {a, b}), product);
    EXPECT_EQ(einsum("ij,jk->ki", {a, b}), run("Transpose", {product}).front());
}

TEST(Einsum, computes_diagonals_traces_and_sums) {
    const Tensor m = floats({2, 2}, {1, 2, 3, 4});
    EXPECT_THAT(numbers(einsum("ii->i", {m})), ElementsAre(1, 4));
    EXPECT_THAT(numbers(einsum("ii", {m})), ElementsAre(5));
    EXPECT_THAT(numbers(einsum("ij->j", {m})), ElementsAre(4, 6));
    EXPECT_THAT(numbers(einsum("ij->ji", {m})), ElementsAre(1, 3, 2, 4));
}

TEST(Einsum, broadcasts_the_dimensions_of_an_ellipsis) {
    const Tensor a = counting({2, 1, 3, 4}), b = counting({5, 4, 2});
    EXPECT_EQ(einsum("...ij,...jk->...ik", {a, b}), run("MatMul", {a, b}).front());
}

TEST(Einsum, multiplies_more_than_two_operands_two_at_a_time) {
    const Tensor a = counting({2, 3}), b = counting({3, 4}), c = counting({4, 5}), s = floats({}, {2});
    const Tensor chain = run("MatMul", {run("MatMul", {a, b}).front(), c}).front();
    const Tensor y = einsum("ab,bc,cd,->ad", {a, b, c, s});
    for (int64_t i = 0; i < y.count(); ++i) EXPECT_EQ(y.get(i), 2 * chain.get(i));
}

TEST(Einsum, sums_labels_of_one_operand_before_the_product) {
    const Program p =
        lower(model(graph({{"a", DType::F32, {2, 3}}, {"b", DType::F32, {4, 5}}},
                          {node("Einsum", {"a", "b"}, {"y"}, {{"equation", std::string("ij,kl->")}})}, {"y"})));
    for (const Primitive& q : p.primitives) {
        ASSERT_NE(q.expr(), nullptr);
        EXPECT_LE(q.expr()->extents.size(), 2U) << print(p);
    }
    EXPECT_EQ(
        interpret(p, {counting({2, 3}), counting({4, 5})}).front().get(0),
        run("ReduceSum", {counting({2, 3})}).front().get(0) * run("ReduceSum", {counting({4, 5})}).front().get(0));
}

TEST(Einsum, rejects_invalid_equations) {
    const auto refusal = [](const std::string& equation, const std::vector<Tensor>& operands) -> std::string {
        try {
            einsum(equation, operands);
        } catch (const ModelError& e) {
            return e.what();
        }
        return "accepted";
    };
    EXPECT_THAT(refusal("ij,jk->ik", {counting({2, 3})}), HasSubstr("has 2 operands, and 1 are given"));
    EXPECT_THAT(refusal("ijk->i", {counting({2, 3})}), HasSubstr("does not fit an operand of shape [2, 3]"));
    EXPECT_THAT(refusal("ij->k", {counting({2, 3})}), HasSubstr("label 'k' of the result is in no operand"));
    EXPECT_THAT(refusal("ij,jk->ik", {counting({2, 3}), counting({4, 2})}), HasSubstr("'j'"));
    EXPECT_THAT(refusal("i?->i", {counting({2, 3})}), HasSubstr("is not a label"));
}

}  // namespace
}  // namespace tilewright
