#include "ops/type_constraints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/lowering.h"
#include "ops/rule_test.h"

namespace tilewright {
namespace {

using test::graph;
using test::model;
using test::node;
using testing::AllOf;
using testing::HasSubstr;

using Types = std::vector<std::optional<DType>>;

std::string problem(std::string_view op, int64_t opset, const Types& types) {
    const OperatorSchema* schema = find_schema(op, opset);
    return schema == nullptr ? "no schema" : type_problem(*schema, types).value_or("");
}

TEST(TypeConstraints, DependOnTheOperatorsVersion) {
    EXPECT_EQ(find_schema("Abs", 5)->since, 1);
    EXPECT_EQ(find_schema("Abs", 12)->since, 6);
    EXPECT_EQ(find_schema("Abs", 99)->since, 13);
    EXPECT_EQ(problem("Abs", 5, {DType::F32}), "");
    EXPECT_NE(problem("Abs", 5, {DType::I8}), "");
    EXPECT_EQ(problem("Abs", 6, {DType::I8}), "");
    EXPECT_EQ(find_schema("NoSuchOperator", 20), nullptr);
}

/// Optimised models contain operators in opsets older than the operator.
TEST(TypeConstraints, OfAnOlderOpsetUseTheFirstVersion) { EXPECT_EQ(find_schema("LayerNormalization", 16)->since, 17); }

TEST(TypeConstraints, NameTheInputItsTypeAndAllowedTypes) {
    EXPECT_EQ(problem("Xor", 7, {DType::Bool, DType::F32}),
              "input 1 (B) has element type f32, and Xor of opset 7 allows bool; a Cast in front of it would help");
    EXPECT_EQ(problem("Add", 14, {DType::F32, DType::F64}),
              "input 1 (B) has element type f64, and input 0 has f32: Add needs one type (T) for both; a Cast in front "
              "of one would help");
}

TEST(TypeConstraints, OfVariadicInputsApplyToAllOfThem) {
    EXPECT_EQ(problem("Concat", 13, {DType::I8, DType::I8, DType::I8}), "");
    EXPECT_THAT(problem("Concat", 13, {DType::I8, DType::I8, DType::I16}), HasSubstr("input 2"));
    EXPECT_EQ(problem("Loop", 13, {DType::I64, std::nullopt, DType::F32, DType::I8}), "");
    EXPECT_EQ(problem("Clip", 13, {DType::F32, std::nullopt, DType::F32}), "");
}

TEST(TypeConstraints, AreCheckedBeforeLowering) {
    Graph g = graph({{"x", DType::F32, {DeclaredDim(int64_t{4})}}, {"y", DType::F32, {DeclaredDim(int64_t{4})}}},
                    {node("And", {"x", "y"}, {"z"})}, {"z"});
    try {
        lower(model(std::move(g), 17));
        FAIL();
    } catch (const ModelError& e) {
        EXPECT_THAT(e.what(), AllOf(HasSubstr("(And, opset 17)"), HasSubstr("input 0 (A) has element type f32")));
    }
}

TEST(TypeConstraints, ANewerOpsetThanTheSchemasIsRejectedWithARemedy) {
    Graph g = graph({{"x", DType::F32, {DeclaredDim(int64_t{4})}}}, {node("Abs", {"x"}, {"y"})}, {"y"});
    std::vector<Problem> problems;
    try {
        lower(model(std::move(g), 99), {}, &problems);
        FAIL();
    } catch (const ModelError& e) {
        EXPECT_THAT(e.what(), HasSubstr("imports opset 99"));
        EXPECT_THAT(e.hint(), HasSubstr("version_converter"));
    }
}

}  // namespace
}  // namespace tilewright
