// The table of what scalar operators cost.

#include "program/analysis/scalar_cost.h"

#include <gtest/gtest.h>

namespace tilewright {
namespace {

TEST(ScalarCost, ReadsAndConversionsAreFree) {
    ScalarBody body;
    body.set_root(body.cast(DType::F64, body.access(0, DType::F32)));
    EXPECT_EQ(body_operations(body), 0);
}

TEST(ScalarCost, CountsEachNodeOnce) {
    ScalarBody body;
    const ScalarId x = body.access(0, DType::F32), e = body.unary(ScalarOp::Exp, x);
    body.set_root(body.binary(ScalarOp::Div, e, body.binary(ScalarOp::Add, e, body.constant(DType::F32, 1))));
    EXPECT_EQ(body_operations(body),
              operation_cost(ScalarOp::Exp) + operation_cost(ScalarOp::Div) + operation_cost(ScalarOp::Add));
}

TEST(ScalarCost, WeighsNodesByHowOftenTheyAreNeeded) {
    ScalarBody body;
    const ScalarId x = body.access(0, DType::F32);
    const ScalarId e = body.unary(ScalarOp::Exp, x);
    body.set_root(body.select(body.binary(ScalarOp::Lt, x, body.constant(DType::F32, 0)), e, x));
    std::vector<double> share(body.nodes().size(), 1);
    share[e.index()] = 0.25;
    EXPECT_EQ(body_operations(body) - body_operations(body, &share), 0.75 * operation_cost(ScalarOp::Exp));
}

TEST(ScalarCost, TranscendentalsCostMoreThanArithmetic) {
    EXPECT_LT(operation_cost(ScalarOp::Mul), operation_cost(ScalarOp::Div));
    EXPECT_LT(operation_cost(ScalarOp::Div), operation_cost(ScalarOp::Exp));
    EXPECT_LT(operation_cost(ScalarOp::Exp), operation_cost(ScalarOp::Tanh));
    EXPECT_LT(operation_cost(ScalarOp::Tanh), operation_cost(ScalarOp::Pow));
}

}  // namespace
}  // namespace tilewright
