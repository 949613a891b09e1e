#include "ops/lowering.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/rule_test.h"

namespace tilewright {
namespace {

using test::graph;
using test::ints;
using test::model;
using test::node;
using test::numbers;
using test::primitives;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string refusal(const Model& m) {
    try {
        lower(m);
    } catch (const ModelError& e) {
        return e.what();
    }
    return "nothing was refused";
}

// --- inputs, outputs, names

TEST(Lowering, DeclaredDimensionsBecomeNumbersSymbolsAndNames) {
    const Program p =
        lower(model(graph({{"x", DType::F32, {2, "batch", std::monostate{}}}}, {node("Neg", {"x"}, {"y"})}, {"y"})));
    EXPECT_THAT(p.values[p.inputs[0]].shape, ElementsAre(Expr(2), symbol("batch"), symbol("x_d2")));
    EXPECT_EQ(p.values[p.outputs[0]].name, "y");
    EXPECT_EQ(primitives(p), "y = [2, $batch, $x_d2] neg(@0) where @0 = x[i0, i1, i2]\n");
}

TEST(Lowering, DimensionsCanBeFixed) {
    LowerOptions options;
    options.dims = {{"batch", 8}, {"x_d1", 3}};
    const Program p = lower(
        model(graph({{"x", DType::F32, {"batch", std::monostate{}}}}, {node("Neg", {"x"}, {"y"})}, {"y"})), options);
    EXPECT_THAT(p.values[p.outputs[0]].shape, ElementsAre(Expr(8), Expr(3)));
}

TEST(Lowering, InitializersAreConstantsWithoutACopy) {
    const Tensor w = Tensor::of<float>(DType::F32, {2}, {3, 4});
    const Program p =
        lower(model(graph({{"x", DType::F32, {2}}}, {node("Add", {"x", "w"}, {"y"})}, {"y"}, {{"w", w}})));
    ASSERT_EQ(p.constants.size(), 1u);
    EXPECT_EQ(p.constants.begin()->second.data(), w.data());
    EXPECT_EQ(p.values[p.constants.begin()->first].name, "w");
}

TEST(Lowering, InputsAndConstantsThatAreOutputsAreCopied) {
    const Tensor w = Tensor::of<float>(DType::F32, {2}, {3, 4});
    const Program p =
        lower(model(graph({{"x", DType::F32, {2}}}, {node("Identity", {"x"}, {"a"}), node("Identity", {"w"}, {"b"})},
                          {"a", "b"}, {{"w", w}})));
    EXPECT_THAT(verify(p), IsEmpty());
    const std::vector<Tensor> out = interpret(p, {Tensor::of<float>(DType::F32, {2}, {1, 2})});
    EXPECT_THAT(numbers(out[0]), ElementsAre(1, 2));
    EXPECT_THAT(numbers(out[1]), ElementsAre(3, 4));
    EXPECT_EQ(p.values[p.outputs[0]].name, "a");
    EXPECT_EQ(p.values[p.outputs[1]].name, "b");
}

TEST(Lowering, AShapeThatIsAnOutputIsComputedAtRunTime) {
    const Program p = lower(model(graph({{"x", DType::F32, {"n", 3}}}, {node("Shape", {"x"}, {"s"})}, {"s"})));
    EXPECT_THAT(verify(p), IsEmpty());
    EXPECT_THAT(numbers(interpret(p, {Tensor(DType::F32, {5, 3})})[0]), ElementsAre(5, 3));
}

// --- symbolic shapes

/// Exporters name a mask's dimension by the sum that it is.
TEST(Lowering, ADimensionThatIsNamedAsASumOfOthersIsTheSum) {
    const auto shape = [](const char* name, const LowerOptions& options = {}) {
        const Program p = lower(model(graph({{"mask", DType::I64, {name}}, {"x", DType::F32, {"past", "seq"}}},
                                            {node("Identity", {"mask"}, {"y"})}, {"y"})),
                                options);
        EXPECT_THAT(verify(p), IsEmpty());
        return p.values[p.inputs[0]].shape[0].text();
    };
    EXPECT_EQ(shape("past + seq"), "$past + $seq");
    EXPECT_EQ(shape("seq+2*past+1"), "2*$past + $seq + 1");
    LowerOptions fixed;
    fixed.dims = {{"past", 3}};
    EXPECT_EQ(shape("past + seq", fixed), "$seq + 3");
    for (const char* name : {"past + total", "past", "2", "past +", "+ seq", "past - seq", "past seq"})
        EXPECT_EQ(shape(name), symbol(name).text()) << "a name like others";
    const Model m = model(graph({{"mask", DType::I64, {"past + seq"}}, {"x", DType::F32, {"past", "seq"}}},
                                {node("Identity", {"mask"}, {"y"})}, {"y"}));
    EXPECT_THAT(dimension_names(m), ElementsAre("past", "seq"));
    const Program p = lower(m);
    const Tensor x(DType::F32, {2, 3});
    EXPECT_EQ(interpret(p, {Tensor(DType::I64, {5}), x})[0].shape(), Shape{5});
    EXPECT_THROW(interpret(p, {Tensor(DType::I64, {4}), x}), ModelError);
}

/// Exported head splitting of attention: Reshape(x, Concat(Gather(Shape(x), 0), [-1, 12, 64])).
TEST(Lowering, ShapeArithmeticFoldsToTheBatch) {
    const std::map<std::string, Tensor> constants = {{"zero", Tensor::of<int64_t>(DType::I64, {}, {0})},
                                                     {"rest", Tensor::of_i64({-1, 12, 64})}};
    const Program p = lower(
        model(graph({{"x", DType::F32, {"batch", "seq", 768}}},
                    {node("Shape", {"x"}, {"s"}), node("Gather", {"s", "zero"}, {"b"}),
                     node("Unsqueeze", {"b"}, {"b1"}, {{"axes", ints({0})}}),
                     node("Concat", {"b1", "rest"}, {"t"}, {{"axis", int64_t{0}}}), node("Reshape", {"x", "t"}, {"y"})},
                    {"y"}, constants, 11),
              11));
    EXPECT_EQ(primitives(p), "y = [$batch, $seq, 12, 64] @0 where @0 = x[i0, i1, 64*i2 + i3]\n");
}

TEST(Lowering, MergedHeadsDivideByTheirNumber) {
    const Program p =
        lower(model(graph({{"x", DType::F32, {"batch", "seq", 768}}}, {node("Reshape", {"x", "t"}, {"y"})}, {"y"},
                          {{"t", Tensor::of_i64({0, -1, 12, 64})}})));
    EXPECT_THAT(p.values[p.outputs[0]].shape, ElementsAre(symbol("batch"), symbol("seq"), Expr(12), Expr(64)));
}

TEST(Lowering, ExpandToTheInputsOwnShapeIsTheIdentity) {
    const Program p = lower(model(graph(
        {{"x", DType::F32, {"n", "m"}}},
        {node("Shape", {"x"}, {"s"}), node("ConstantOfShape", {"s"}, {"zeros"}), node("Add", {"x", "zeros"}, {"y"})},
        {"y"})));
    EXPECT_THAT(primitives(p), HasSubstr("y = [$n, $m] add(@0, @1) where @0 = x[i0, i1], @1 = zeros[i0, i1]\n"));
}

TEST(Lowering, SliceByTheLengthOfAnotherTensor) {
    // positions[:, :seq], as a transformer slices its position table
    const std::map<std::string, Tensor> constants = {
        {"p", Tensor(DType::F32, {512, 4})}, {"zero", Tensor::of_i64({0})}, {"one", Tensor::of_i64({1})}};
    const Program p = lower(model(graph({{"x", DType::F32, {"batch", "seq"}}},
                                        {node("Shape", {"x"}, {"s"}), node("Gather", {"s", "one"}, {"n"}),
                                         node("Slice", {"p", "zero", "n", "zero"}, {"y"})},
                                        {"y"}, constants)));
    EXPECT_THAT(p.values[p.outputs[0]].shape, ElementsAre(min(symbol("seq"), 512), Expr(4)));
    EXPECT_THAT(primitives(p), HasSubstr("@0 = p[i0, i1]"));
}

TEST(Lowering, DataDependentShapesAreReadAtRunTime) {
    const Program p = lower(model(
        graph({{"x", DType::F32, {4, "n"}}, {"t", DType::I64, {2}}}, {node("Reshape", {"x", "t"}, {"y"})}, {"y"})));
    EXPECT_THAT(verify(p), IsEmpty());
    const Tensor x(DType::F32, {4, 6});
    for (const auto& [wanted, shape] : {std::pair(std::vector<int64_t>{-1, 3}, Shape{8, 3}),
                                        {{0, 6}, {4, 6}},
                                        {{2, -1}, {2, 12}},
                                        {{12, 2}, {12, 2}}})
        EXPECT_EQ(interpret(p, {x, Tensor::of_i64(wanted)})[0].shape(), shape);
}

// --- rejected models

TEST(Lowering, UnknownOperatorsAreReportedWithDomainAndOpset) {
    Node n = node("Frobnicate", {"x"}, {"y"});
    n.domain = "com.example";
    EXPECT_EQ(
        refusal(model(graph({{"x", DType::F32, {2}}}, {n}, {"y"}))),
        "node 'Frobnicate0' (com.example.Frobnicate, opset 17): operator 'Frobnicate' of domain com.example is not "
        "supported");
    EXPECT_EQ(refusal(model(graph({{"x", DType::F32, {2}}}, {node("Mod", {"x", "x"}, {"y"})}, {"y"}), 9)),
              "node 'Mod0' (Mod, opset 9): operator 'Mod' of domain ai.onnx is supported from opset 10 on");
}

TEST(Lowering, FaultsNameTheNodeOnce) {
    EXPECT_EQ(refusal(model(
                  graph({{"x", DType::F32, {2, 3}}, {"y", DType::F32, {4}}}, {node("Add", {"x", "y"}, {"z"})}, {"z"}))),
              "node 'Add0' (Add, opset 17): shapes [2, 3] and [4] do not broadcast: 3 against 4");
}

TEST(Lowering, InputsNeedATypeAndARank) {
    Model m = model(graph({{"x", DType::F32, {2}}}, {node("Neg", {"x"}, {"y"})}, {"y"}));
    m.graph.inputs[0].type.shape.reset();
    EXPECT_EQ(refusal(m), "input 'x' declares no shape: its rank must be known");
}

TEST(Lowering, CollectsAllProblems) {
    Model m = model(graph({{"x", DType::F32, {2}}},
                          {node("Frob", {"x"}, {"a"}), node("Neg", {"a"}, {"b"}), node("Quux", {"x"}, {"c"}),
                           node("Transpose", {"c"}, {"d"}, {{"perm", ints({0, 0})}})},
                          {"b", "d"}));
    DeclaredType t;
    t.dtype = DType::F32;
    t.has_dtype = true;
    t.shape = {{int64_t{3}, std::string("k")}};
    m.graph.value_info["c"] = t;
    std::vector<Problem> problems;
    lower(m, {}, &problems);
    ASSERT_EQ(problems.size(), 3u);  // Neg depends on Frob's output, and is skipped
    EXPECT_EQ(problems[0].op, "Frob");
    EXPECT_EQ(problems[0].types, "f32[2]");
    EXPECT_TRUE(problems[0].unsupported);
    EXPECT_EQ(problems[1].op, "Quux");
    EXPECT_EQ(problems[2].op, "Transpose");
    EXPECT_EQ(problems[2].types, "f32[3, $k]");
    EXPECT_FALSE(problems[2].unsupported);
}

// --- bodies

std::shared_ptr<const Graph> subgraph(Graph g) { return std::make_shared<const Graph>(std::move(g)); }

TEST(LoweringControl, BranchesShareTheirCaptures) {
    const auto then_branch = subgraph(graph({}, {node("Add", {"x", "y"}, {"a"})}, {"a"}));
    const auto else_branch = subgraph(graph({}, {node("Neg", {"y"}, {"b"})}, {"b"}));
    const Program p = lower(
        model(graph({{"c", DType::Bool, {}}, {"x", DType::F32, {2}}, {"y", DType::F32, {2}}},
                    {node("If", {"c"}, {"z"}, {{"then_branch", then_branch}, {"else_branch", else_branch}})}, {"z"})));
    EXPECT_THAT(verify(p), IsEmpty());
    const auto& branch = std::get<If>(p.primitives[PrimitiveId(0)].kind);
    EXPECT_EQ(branch.captures.size(), 2u);
    EXPECT_EQ(branch.then_branch->inputs.size(), 2u);
    EXPECT_EQ(branch.else_branch->inputs.size(), 2u);
    const Tensor x = Tensor::of<float>(DType::F32, {2}, {1, 2}), y = Tensor::of<float>(DType::F32, {2}, {10, 20});
    EXPECT_THAT(numbers(interpret(p, {Tensor::of<int>(DType::Bool, {}, {1}), x, y})[0]), ElementsAre(11, 22));
    EXPECT_THAT(numbers(interpret(p, {Tensor::of<int>(DType::Bool, {}, {0}), x, y})[0]), ElementsAre(-10, -20));
}

TEST(LoweringControl, ABranchKnownToBeTakenIsInlined) {
    const auto then_branch = subgraph(graph({}, {node("Neg", {"x"}, {"a"})}, {"a"}));
    const auto else_branch = subgraph(graph({}, {node("Exp", {"x"}, {"b"})}, {"b"}));
    const Program p = lower(model(graph(
        {{"x", DType::F32, {"n", 3}}},
        {node("Shape", {"x"}, {"s"}), node("Gather", {"s", "one"}, {"d"}), node("Equal", {"d", "three"}, {"c"}),
         node("If", {"c"}, {"z"}, {{"then_branch", then_branch}, {"else_branch", else_branch}})},
        {"z"},
        {{"one", Tensor::of<int64_t>(DType::I64, {}, {1})}, {"three", Tensor::of<int64_t>(DType::I64, {}, {3})}})));
    EXPECT_EQ(primitives(p), "z = [$n, 3] neg(@0) where @0 = x[i0, i1]\n");
}

TEST(LoweringControl, BranchesOfDifferentLengthGiveAFreshSymbol) {
    const auto then_branch = subgraph(graph({}, {node("Concat", {"x", "x"}, {"a"}, {{"axis", int64_t{0}}})}, {"a"}));
    const auto else_branch = subgraph(graph({}, {node("Neg", {"x"}, {"b"})}, {"b"}));
    const Program p =
        lower(model(graph({{"c", DType::Bool, {}}, {"x", DType::F32, {2}}},
                          {node("If", {"c"}, {"z"}, {{"then_branch", then_branch}, {"else_branch", else_branch}}),
                           node("Neg", {"z"}, {"y"})},
                          {"y"})));
    const Tensor x = Tensor::of<float>(DType::F32, {2}, {1, 2});
    EXPECT_EQ(interpret(p, {Tensor::of<int>(DType::Bool, {}, {1}), x})[0].shape(), Shape{4});
    EXPECT_EQ(interpret(p, {Tensor::of<int>(DType::Bool, {}, {0}), x})[0].shape(), Shape{2});
}

/// for i in range(n): v = concat(v, [x]); scan x * i
Model growing_loop() {
    Graph g =
        graph({{"i", DType::I64, {}}, {"go", DType::Bool, {}}, {"v", DType::F32, {std::monostate{}}}},
              {node("Identity", {"go"}, {"go_out"}), node("Concat", {"v", "x"}, {"v_out"}, {{"axis", int64_t{0}}}),
               node("Cast", {"i"}, {"f"}, {{"to", int64_t{1}}}), node("Mul", {"x", "f"}, {"s"})},
              {"go_out", "v_out", "s"});
    return model(graph({{"n", DType::I64, {}}, {"x", DType::F32, {1}}},
                       {node("Loop", {"n", "", "x"}, {"final", "all"}, {{"body", subgraph(std::move(g))}})},
                       {"final", "all"}));
}

TEST(LoweringControl, ShapesThatIterationsChangeAreDynamic) {
    const Program p = lower(growing_loop());
    EXPECT_THAT(verify(p), IsEmpty());
    const Tensor x = Tensor::of<float>(DType::F32, {1}, {7});
    for (const int64_t n : {0, 1, 3}) {
        const std::vector<Tensor> out = interpret(p, {Tensor::of<int64_t>(DType::I64, {}, {n}), x});
        EXPECT_EQ(out[0].shape(), Shape{n + 1});
        EXPECT_EQ(out[1].shape(), (Shape{n, 1}));
        if (n == 3) {
            EXPECT_THAT(numbers(out[1]), ElementsAre(0, 7, 14));
        }
    }
}

TEST(LoweringControl, ALoopWhoseConditionStaysTrueOnlyCounts) {
    const Program p = lower(growing_loop());
    for (const Primitive& q : p.primitives)
        if (const auto* loop = std::get_if<Loop>(&q.kind)) {
            EXPECT_FALSE(loop->has_condition);
            EXPECT_TRUE(loop->trip_count.has_value());
        }
}

TEST(LoweringControl, ALoopStopsOnItsBodysCondition) {
    Graph g = graph({{"i", DType::I64, {}}, {"go", DType::Bool, {}}, {"v", DType::F32, {}}},
                    {node("Add", {"v", "v"}, {"w"}), node("Less", {"w", "limit"}, {"again"})}, {"again", "w"});
    const Program p = lower(
        model(graph({{"start", DType::F32, {}}, {"limit", DType::F32, {}}},
                    {node("Loop", {"", "", "start"}, {"final"}, {{"body", subgraph(std::move(g))}})}, {"final"})));
    EXPECT_THAT(verify(p), IsEmpty());
    const auto scalar_of = [](float v) { return Tensor::of<float>(DType::F32, {}, {v}); };
    EXPECT_THAT(numbers(interpret(p, {scalar_of(1), scalar_of(100)})[0]), ElementsAre(128));
}

TEST(LoweringControl, NestedBodiesCaptureFromOuterGraphs) {
    const auto inner_then = subgraph(graph({}, {node("Add", {"v", "x"}, {"t"})}, {"t"}));
    const auto inner_else = subgraph(graph({}, {node("Identity", {"v"}, {"e"})}, {"e"}));
    Graph g = graph({{"i", DType::I64, {}}, {"go", DType::Bool, {}}, {"v", DType::F32, {1}}},
                    {node("Identity", {"go"}, {"go_out"}),
                     node("If", {"c"}, {"w"}, {{"then_branch", inner_then}, {"else_branch", inner_else}})},
                    {"go_out", "w"});
    const Program p = lower(model(graph({{"c", DType::Bool, {}}, {"x", DType::F32, {1}}},
                                        {node("Loop", {"three", "", "x"}, {"y"}, {{"body", subgraph(std::move(g))}})},
                                        {"y"}, {{"three", Tensor::of<int64_t>(DType::I64, {}, {3})}})));
    EXPECT_THAT(verify(p), IsEmpty());
    const Tensor x = Tensor::of<float>(DType::F32, {1}, {2});
    EXPECT_THAT(numbers(interpret(p, {Tensor::of<int>(DType::Bool, {}, {1}), x})[0]), ElementsAre(8));
    EXPECT_THAT(numbers(interpret(p, {Tensor::of<int>(DType::Bool, {}, {0}), x})[0]), ElementsAre(2));
}

TEST(LoweringControl, ProblemsInsideABodyAreReportedOnce) {
    Graph g = graph({{"i", DType::I64, {}}, {"go", DType::Bool, {}}, {"v", DType::F32, {1}}},
                    {node("Frob", {"v"}, {"w"})}, {"go", "w"});
    std::vector<Problem> problems;
    lower(model(graph({{"x", DType::F32, {1}}},
                      {node("Loop", {"three", "", "x"}, {"y"}, {{"body", subgraph(std::move(g))}})}, {"y"},
                      {{"three", Tensor::of<int64_t>(DType::I64, {}, {3})}})),
          {}, &problems);
    ASSERT_EQ(problems.size(), 1u);
    EXPECT_EQ(problems[0].op, "Frob");
}

}  // namespace
}  // namespace tilewright
