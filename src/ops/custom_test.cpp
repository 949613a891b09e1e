// Nodes of the caller's operators in the program, and their interpretation.

#include "ops/custom.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "ops/rule_test.h"

namespace tilewright::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// y = x, twice as often: [n, ...] -> [2 * n, ...]
std::shared_ptr<const CustomOperators> repeat() {
    auto op = std::make_shared<CustomOperator>();
    op->domain = "com.example";
    op->name = "Repeat";
    op->least_inputs = op->most_inputs = 1;
    op->infer = [](CustomCall& c) {
        Shape sizes = c.operands[0].sizes;
        if (sizes.empty()) throw ModelError("a scalar cannot be repeated");
        sizes[0] = c.combine(sizes[0], 2, [](Expr a, Expr b) { return a * b; });
        c.set_output(0, c.operands[0].dtype, sizes);
    };
    op->compute = [](CustomCall& c) {
        const TensorView& y = *c.results[0].tensor;
        const size_t half = static_cast<size_t>(y.count()) * byte_size(y.dtype) / 2;
        std::memcpy(y.data, c.operands[0].data, half);
        std::memcpy(y.as<std::byte>() + half, c.operands[0].data, half);
    };
    auto all = std::make_shared<CustomOperators>();
    all->add(op);
    return all;
}

Program lowered(const std::vector<In>& inputs, std::vector<Node> nodes, std::vector<Problem>* problems = nullptr) {
    for (Node& n : nodes)
        if (n.op == "Repeat") n.domain = "com.example";
    LowerOptions options;
    options.operators = repeat();
    return lower(model(graph(inputs, std::move(nodes), {"y"})), options, problems);
}

TEST(CustomNode, HasSizesThatFollowFromItsInputs) {
    const Program p =
        lowered({{"x", DType::I64, {"n", int64_t{3}}}}, {node("Repeat", {"x"}, {"t"}), node("Repeat", {"t"}, {"y"})});
    EXPECT_THAT(verify(p), IsEmpty());
    EXPECT_EQ(to_string(std::span<const Expr>(p.values[p.outputs[0]].shape)), "[4*$n, 3]");
    const Tensor x = whole({1, 3}, {1, 2, 3});
    EXPECT_EQ(interpret(p, {x})[0], whole({4, 3}, {1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3}));
}

TEST(CustomNode, IsFoldedWhereItsInputsAreKnown) {
    std::vector<Node> nodes = {node("Constant", {}, {"c"}, {{"value", whole({2}, {7, 8})}}),
                               node("Repeat", {"c"}, {"t"}), node("Mul", {"t", "x"}, {"y"})};
    const Program p = lowered({{"x", DType::I64, {int64_t{1}}}}, std::move(nodes));
    EXPECT_THAT(primitives(p), testing::Not(HasSubstr("Repeat")));
    EXPECT_EQ(interpret(p, {whole({1}, {10})})[0], whole({4}, {70, 80, 70, 80}));
}

TEST(CustomNode, IsAmongTheProblemsOfAModel) {
    std::vector<Problem> problems;
    lowered({{"x", DType::I64, {}}}, {node("Repeat", {"x"}, {"y"})}, &problems);
    ASSERT_EQ(problems.size(), 1U);
    EXPECT_FALSE(problems[0].unsupported);
    EXPECT_EQ(problems[0].reason, "node 'Repeat0' (com.example.Repeat): a scalar cannot be repeated");
}

TEST(CustomNode, HasNoAttributesThatAreGraphs) {
    std::vector<Problem> problems;
    lowered({{"x", DType::I64, {int64_t{1}}}},
            {node("Repeat", {"x"}, {"y"}, {{"body", std::make_shared<const Graph>()}})}, &problems);
    ASSERT_EQ(problems.size(), 1U);
    EXPECT_THAT(problems[0].reason, HasSubstr("attribute 'body' is of a kind that custom operators do not have"));
}

}  // namespace
}  // namespace tilewright::test
