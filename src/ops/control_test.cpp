// If with branches of different ranks, as torch exports squeeze(0) of a dynamic dimension.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/rule_test.h"

namespace tilewright {
namespace {

using test::floats;
using test::graph;
using test::ints;
using test::model;
using test::node;
using test::numbers;
using test::whole;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::shared_ptr<const Graph> body(Graph g) { return std::make_shared<const Graph>(std::move(g)); }

std::map<std::string, Attribute> branches(Graph then_branch, Graph else_branch) {
    return {{"then_branch", body(std::move(then_branch))}, {"else_branch", body(std::move(else_branch))}};
}

/// `to` = `from` without its first dimension if that is 1, else `from`. Requires the initialisers of `numbers_needed`.
std::vector<Node> squeeze_if_one(const std::string& from, const std::string& to) {
    return {node("Shape", {from}, {to + "_shape"}), node("Gather", {to + "_shape", "zero"}, {to + "_length"}),
            node("Equal", {to + "_length", "one"}, {to + "_is_one"}),
            node("If", {to + "_is_one"}, {to},
                 branches(graph({}, {node("Squeeze", {from, "zeros"}, {to + "_then"})}, {to + "_then"}),
                          graph({}, {node("Identity", {from}, {to + "_else"})}, {to + "_else"})))};
}

std::map<std::string, Tensor> numbers_needed() {
    return {{"zero", whole({}, {0})}, {"one", whole({}, {1})}, {"zeros", whole({1}, {0})}};
}

std::vector<Node> joined(const std::vector<std::vector<Node>>& parts) {
    std::vector<Node> all;
    for (const std::vector<Node>& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
}

std::string error_of(const std::function<void()>& f) {
    try {
        f();
    } catch (const ModelError& e) {
        return e.what();
    }
    return "nothing was refused";
}

TEST(ControlIf, BothBranchesAreLoweredToTheEndIfValid) {
    const Program p = lower(model(
        graph({{"x", DType::F32, {"n", 3}}},
              joined({{node("Neg", {"x"}, {"before"})},
                      squeeze_if_one("x", "y"),
                      {node("Add", {"y", "y"}, {"z"}), node("ReduceSum", {"z"}, {"sum"}, {{"keepdims", int64_t{0}}})}}),
              {"sum", "before"}, numbers_needed())));
    EXPECT_THAT(verify(p), IsEmpty());
    EXPECT_EQ(p.values[p.outputs[0]].name, "sum");
    const std::vector<Tensor> one = interpret(p, {floats({1, 3}, {1, 2, 3})});
    EXPECT_THAT(numbers(one[0]), ElementsAre(12));
    EXPECT_THAT(numbers(one[1]), ElementsAre(-1, -2, -3));
    const std::vector<Tensor> two = interpret(p, {floats({2, 3}, {1, 2, 3, 4, 5, 6})});
    EXPECT_THAT(numbers(two[0]), ElementsAre(42));
    EXPECT_THAT(numbers(two[1]), ElementsAre(-1, -2, -3, -4, -5, -6));
}

TEST(ControlIf, ADataDependentConditionSplits) {
    const Program p = lower(model(graph({{"c", DType::Bool, {}}, {"x", DType::F32, {1, 2}}},
                                        {node("If", {"c"}, {"y"},
                                              branches(graph({}, {node("Squeeze", {"x", "zeros"}, {"a"})}, {"a"}),
                                                       graph({}, {node("Identity", {"x"}, {"b"})}, {"b"}))),
                                         node("Shape", {"y"}, {"shape"}), node("Size", {"shape"}, {"rank"})},
                                        {"rank"}, numbers_needed())));
    const Tensor x = floats({1, 2}, {5, 6});
    EXPECT_THAT(numbers(interpret(p, {Tensor::of<int>(DType::Bool, {}, {1}), x})[0]), ElementsAre(1));
    EXPECT_THAT(numbers(interpret(p, {Tensor::of<int>(DType::Bool, {}, {0}), x})[0]), ElementsAre(2));
}

/// Transpose(perm=[0]) is valid for vectors only: the branch that keeps the matrix is invalid.
Model squeezed_to_a_vector() {
    return model(graph({{"x", DType::F32, {"n", 3}}},
                       joined({squeeze_if_one("x", "y"), {node("Transpose", {"y"}, {"z"}, {{"perm", ints({0})}})}}),
                       {"z"}, numbers_needed()));
}

TEST(ControlIf, AnInvalidBranchIsNotLowered) {
    const Program p = lower(squeezed_to_a_vector());
    EXPECT_THAT(verify(p), IsEmpty());
    for (const Primitive& q : p.primitives) EXPECT_FALSE(std::holds_alternative<If>(q.kind));
    EXPECT_THAT(numbers(interpret(p, {floats({1, 3}, {1, 2, 3})})[0]), ElementsAre(1, 2, 3));
}

TEST(ControlIf, TakingAnInvalidBranchIsARunTimeError) {
    const Program p = lower(squeezed_to_a_vector());
    EXPECT_THAT(error_of([&] {
                    interpret(p, {floats({2, 3}, {1, 2, 3, 4, 5, 6})});
                }),
                AllOf(HasSubstr("node 'Squeeze0' (Squeeze, opset 17), in the only valid branch of node 'If3'"),
                      HasSubstr("Transpose4"), HasSubstr("): dimensions n = 2 and 1 differ")));
    // The dimensions fit, but the condition selects the invalid branch.
    const Program q = lower(model(graph({{"c", DType::Bool, {}}, {"x", DType::F32, {1, 3}}},
                                        {node("If", {"c"}, {"y"},
                                              branches(graph({}, {node("Squeeze", {"x", "zeros"}, {"a"})}, {"a"}),
                                                       graph({}, {node("Identity", {"x"}, {"b"})}, {"b"}))),
                                         node("Transpose", {"y"}, {"z"}, {{"perm", ints({0})}})},
                                        {"z"}, numbers_needed())));
    const Tensor x = floats({1, 3}, {1, 2, 3});
    EXPECT_THAT(numbers(interpret(q, {Tensor::of<int>(DType::Bool, {}, {1}), x})[0]), ElementsAre(1, 2, 3));
    EXPECT_THAT(error_of([&] {
                    interpret(q, {Tensor::of<int>(DType::Bool, {}, {0}), x});
                }),
                AllOf(HasSubstr("'If0'"), HasSubstr("the condition is false"), HasSubstr("Transpose1")));
}

TEST(ControlIf, TwoInvalidBranchesAreAModelError) {
    EXPECT_THAT(error_of([] {
                    lower(model(graph(
                        {{"x", DType::F32, {"n", 3}}},
                        joined({squeeze_if_one("x", "y"), {node("Transpose", {"y"}, {"z"}, {{"perm", ints({0, 0})}})}}),
                        {"z"}, numbers_needed())));
                }),
                HasSubstr("Transpose4"));
}

TEST(ControlIf, AnUnsupportedOperatorIsReportedInEitherBranch) {
    const Model m =
        model(graph({{"x", DType::F32, {"n", 3}}}, joined({squeeze_if_one("x", "y"), {node("Frob", {"y"}, {"z"})}}),
                    {"z"}, numbers_needed()));
    EXPECT_THAT(error_of([&] { lower(m); }), HasSubstr("'Frob'"));
    std::vector<Problem> problems;
    lower(m, {}, &problems);
    ASSERT_EQ(problems.size(), 1u);
    EXPECT_EQ(problems[0].op, "Frob");
    EXPECT_TRUE(problems[0].unsupported);
}

TEST(ControlIf, AnOutputOfUnknownRankIsRejected) {
    EXPECT_THAT(error_of([] {
                    lower(model(graph({{"x", DType::F32, {"n", 3}}},
                                      joined({squeeze_if_one("x", "y"), {node("Neg", {"y"}, {"z"})}}), {"z"},
                                      numbers_needed())));
                }),
                AllOf(HasSubstr("the rank of the graph's output"), HasSubstr("[3]"), HasSubstr("[$n, 3]")));
}

/// Lowering continues after the inlined branch, in the enclosing graph.
TEST(ControlIf, LoweringContinuesAfterAnInlinedBranch) {
    auto known = numbers_needed();
    known["yes"] = Tensor::of<int>(DType::Bool, {}, {1});
    const Program p =
        lower(model(graph({{"x", DType::F32, {"n", 3}}},
                          {node("If", {"yes"}, {"w"},
                                branches(graph({}, squeeze_if_one("x", "y"), {"y"}),
                                         graph({}, {node("Identity", {"x"}, {"unused"})}, {"unused"}))),
                           node("ReduceMax", {"w"}, {"z"}, {{"keepdims", int64_t{0}}}), node("Neg", {"z"}, {"out"})},
                          {"out"}, known)));
    EXPECT_THAT(verify(p), IsEmpty());
    EXPECT_THAT(numbers(interpret(p, {floats({1, 3}, {1, 9, 3})})[0]), ElementsAre(-9));
    EXPECT_THAT(numbers(interpret(p, {floats({2, 3}, {1, 2, 3, 4, 5, 6})})[0]), ElementsAre(-6));
}

TEST(ControlIf, LoweringStopsAtTheEndOfTheLoopBody) {
    Graph step = graph(
        {{"i", DType::I64, {}}, {"go", DType::Bool, {}}, {"v", DType::F32, {}}},
        joined({squeeze_if_one("x", "y"),
                {node("ReduceSum", {"y"}, {"sum"}, {{"keepdims", int64_t{0}}}), node("Add", {"v", "sum"}, {"v_out"})}}),
        {"go", "v_out"});
    auto known = numbers_needed();
    known["three"] = whole({}, {3});
    const Program p =
        lower(model(graph({{"x", DType::F32, {"n", 2}}, {"start", DType::F32, {}}},
                          {node("Loop", {"three", "", "start"}, {"end"}, {{"body", body(step)}})}, {"end"}, known)));
    EXPECT_THAT(verify(p), IsEmpty());
    EXPECT_THAT(numbers(interpret(p, {floats({1, 2}, {1, 2}), floats({}, {10})})[0]), ElementsAre(19));
    EXPECT_THAT(numbers(interpret(p, {floats({2, 2}, {1, 2, 3, 4}), floats({}, {10})})[0]), ElementsAre(40));
}

/// Each If is decided by lowering up to the next one; lowering each to the end would take 2^40 steps.
TEST(ControlIf, AChainOfIfsIsDecidedOneByOne) {
    std::vector<Node> nodes;
    std::string at = "x";
    for (int k = 0; k < 40; ++k) {
        const std::string flat = fmt::format("flat{}", k), next = fmt::format("next{}", k);
        nodes = joined({nodes,
                        squeeze_if_one(at, flat),
                        {node("Transpose", {flat}, {flat + "t"}, {{"perm", ints({0})}}),
                         node("Unsqueeze", {flat + "t", "zeros"}, {next + "u"}),
                         node("Concat", {next + "u", "more"}, {next}, {{"axis", int64_t{0}}})}});
        at = next;
    }
    auto known = numbers_needed();
    known["more"] = floats({0, 3}, {});
    const Program p = lower(model(graph({{"x", DType::F32, {"n", 3}}}, nodes, {at}, known)));
    EXPECT_THAT(numbers(interpret(p, {floats({1, 3}, {1, 2, 3})})[0]), ElementsAre(1, 2, 3));
}

TEST(ControlIf, NestedSplitsHaveALimit) {
    std::vector<Node> nodes;
    std::string sum = "start";
    std::vector<test::In> inputs = {{"start", DType::F32, {}}};
    for (int k = 0; k < 5; ++k) {
        const std::string x = fmt::format("x{}", k), flat = x + "flat", next = x + "sum";
        inputs.push_back({x, DType::F32, {fmt::format("n{}", k), 3}});
        nodes = joined({nodes,
                        squeeze_if_one(x, flat),
                        {node("ReduceSum", {flat}, {flat + "s"}, {{"keepdims", int64_t{0}}}),
                         node("Add", {sum, flat + "s"}, {next})}});
        sum = next;
    }
    EXPECT_THAT(error_of([&] { lower(model(graph(inputs, nodes, {sum}, numbers_needed()))); }),
                HasSubstr("different ranks, nested in 4 other such nodes"));
}

}  // namespace
}  // namespace tilewright
