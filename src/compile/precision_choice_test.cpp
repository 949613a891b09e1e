// Products in f32 by name, by time and by a budget of errors. The machine has tile registers, which are emulated where
// this one has none.

#include "compile/precision_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/option_error.h"
#include "compile/pipeline.h"
#include "compile/precision_switches.h"
#include "compile/random_inputs.h"
#include "cost/target_with_test.h"
#include "model/session.h"
#include "ops/rule_test.h"
#include "orchestrate/kernel_group.h"

namespace tilewright {
namespace {

using test::graph;
using test::model;
using test::node;
using test::target_with_tiles;
using testing::ElementsAre;
using testing::HasSubstr;

Tensor numbers(const Shape& shape, double scale) {
    Tensor t(DType::F32, shape);
    for (int64_t i = 0; i < t.count(); ++i) t.set(i, scale * std::sin(static_cast<double>(i) * 1.7));
    return t;
}

/// y = relu(x a) b + x c: three products with weights. Those of `b` are small, so that most of y, and of its error, is
/// of the third product.
Model three_products() {
    Node first = node("MatMul", {"x", "a"}, {"h"}), second = node("MatMul", {"r", "b"}, {"u"}),
         third = node("MatMul", {"x", "c"}, {"v"});
    first.name = "first";
    second.name = "second";
    third.name = "third";
    return model(graph({{"x", DType::F32, {32, 64}}},
                       {first, node("Relu", {"h"}, {"r"}), second, third, node("Add", {"u", "v"}, {"y"})}, {"y"},
                       {{"a", numbers({64, 64}, 0.1)}, {"b", numbers({64, 48}, 0.05)}, {"c", numbers({64, 48}, 0.5)}}));
}

PipelineOptions in_bf16() {
    PipelineOptions o;
    o.compile.threads = 1;
    o.compile.machine = target_with_tiles(VectorIsa::avx2);
    o.compile.precision = Precision::BF16;
    o.passes.verify_each = true;
    return o;
}

/// The largest error of the only output, relative to its largest magnitude, against the interpreter.
double error_of(const Compilation& c) {
    const std::vector<Tensor> inputs = random_inputs(c.model->inputs());
    const Tensor expected = interpret(c.program, inputs).at(0), y = Session(c.model, 1).run(inputs).at(0);
    double magnitude = 0, difference = 0;
    for (int64_t i = 0; i < y.count(); ++i) {
        magnitude = std::max(magnitude, std::fabs(expected.get(i)));
        difference = std::max(difference, std::fabs(expected.get(i) - y.get(i)));
    }
    return difference / magnitude;
}

std::vector<std::string> nodes_in_f32(const PrecisionChoice& choice, PrecisionReason reason) {
    std::vector<std::string> out;
    for (const PrecisionChoice::Product& p : choice.products)
        if (p.reason == reason)
            for (const std::string& node : p.nodes)
                if (node.find("MatMul") != std::string::npos) out.push_back(node);
    return out;
}

TEST(PrecisionChoice, RunsCodeForTileRegistersOnAnyMachine) {
    const Compilation c = compile_model(three_products(), in_bf16());
    ASSERT_NE(c.precision, nullptr);
    EXPECT_TRUE(c.precision->available);
    EXPECT_EQ(c.precision->rounded(), 3U);
    EXPECT_THAT(c.model->dump("tiles"), HasSubstr("matrix")) << "the plan is for tile registers";
    const double error = error_of(c);
    EXPECT_GT(error, 1e-5);
    EXPECT_LT(error, 0.1);
}

TEST(PrecisionChoice, KeepsProductsByName) {
    PipelineOptions o = in_bf16();
    o.compile.keep_f32 = {"second*", "c"};
    const Compilation c = compile_model(three_products(), o);
    EXPECT_EQ(c.precision->rounded(), 1U);
    EXPECT_THAT(nodes_in_f32(*c.precision, PrecisionReason::Named),
                testing::UnorderedElementsAre("second2 (MatMul)", "third3 (MatMul)"));
    EXPECT_LT(error_of(c), error_of(compile_model(three_products(), in_bf16())));
    o.compile.keep_f32 = {"*"};
    EXPECT_LT(error_of(compile_model(three_products(), o)), 1e-5);
    o.compile.keep_f32 = {"fourth"};
    EXPECT_THROW(compile_model(three_products(), o), OptionError);
}

TEST(PrecisionChoice, KeepsTheMostSensitiveProductsUntilTheErrorIsWithinItsBudget) {
    const double all = error_of(compile_model(three_products(), in_bf16()));
    for (const double share : {2.0, 0.5, 1e-3}) {
        PipelineOptions o = in_bf16();
        o.compile.max_error = share * all;
        const Compilation c = compile_model(three_products(), o);
        const PrecisionChoice& choice = *c.precision;
        ASSERT_TRUE(choice.error && choice.error_of_all);
        EXPECT_NEAR(*choice.error_of_all, all, 0.01 * all) << "as the interpreter finds it";
        EXPECT_LE(*choice.error, o.compile.max_error);
        EXPECT_LE(error_of(c), o.compile.max_error + 1e-5);
        const size_t kept = nodes_in_f32(choice, PrecisionReason::Error).size();
        EXPECT_EQ(kept, share > 1 ? 0U : share == 0.5 ? 1U : 3U);
        EXPECT_EQ(choice.rounded(), 3 - kept);
        double least_kept = 1, most_rounded = 0;
        for (const PrecisionChoice::Product& p : choice.products) {
            EXPECT_EQ(p.alone.has_value(), share < 1);
            if (!p.alone) continue;
            if (p.reason == PrecisionReason::Error) least_kept = std::min(least_kept, *p.alone);
            if (p.reason == PrecisionReason::Rounded) most_rounded = std::max(most_rounded, *p.alone);
        }
        EXPECT_GE(least_kept, most_rounded);
        if (share == 0.5) {
            EXPECT_THAT(nodes_in_f32(choice, PrecisionReason::Error), ElementsAre("third3 (MatMul)"));
        }
    }
}

/// On a machine with multiply-adds of f16, which are emulated where this one has none.
PipelineOptions in_f16() {
    PipelineOptions o = in_bf16();
    o.compile.machine = test::target_with_f16();
    o.compile.precision = Precision::F16;
    return o;
}

TEST(PrecisionChoice, OfF16HasTheOptionsOfBf16) {
    const Compilation c = compile_model(three_products(), in_f16());
    EXPECT_EQ(c.precision->precision, Precision::F16);
    EXPECT_EQ(c.precision->rounded(), 3U);
    const double all = error_of(c);
    EXPECT_GT(all, 1e-5);
    EXPECT_LT(all, error_of(compile_model(three_products(), in_bf16())));
    EXPECT_THAT(c.model->dump("tiles"), testing::HasSubstr("matrix f16 dot"));
    PipelineOptions o = in_f16();
    o.compile.keep_f32 = {"*"};
    EXPECT_LT(error_of(compile_model(three_products(), o)), 1e-5);
    o = in_f16();
    o.compile.max_error = all / 2;
    const Compilation some = compile_model(three_products(), o);
    ASSERT_TRUE(some.precision->error_of_all);
    EXPECT_NEAR(*some.precision->error_of_all, all, 0.01 * all) << "with the sums in f16";
    EXPECT_LT(some.precision->rounded(), 3U);
    EXPECT_LE(error_of(some), o.compile.max_error + 1e-5);
}

TEST(PrecisionChoice, OfOptimalOrchestrationIsThatOfGreedy) {
    for (const PipelineOptions& greedy : {in_bf16(), in_f16()}) {
        PipelineOptions o = greedy;
        o.compile.orchestrator = Orchestrator::Optimal;
        const Compilation c = compile_model(three_products(), o);
        EXPECT_EQ(c.precision->rounded(), 3U);
        EXPECT_THAT(c.model->dump("tiles"), HasSubstr(o.compile.precision == Precision::F16 ? "matrix f16" : "matrix"));
        const double all = error_of(c);
        EXPECT_GT(all, 1e-5);
        EXPECT_LT(all, 1.5 * error_of(compile_model(three_products(), greedy)));
        o.compile.keep_f32 = {"second*", "c"};
        const Compilation named = compile_model(three_products(), o);
        EXPECT_EQ(named.precision->rounded(), 1U);
        EXPECT_THAT(nodes_in_f32(*named.precision, PrecisionReason::Named),
                    testing::UnorderedElementsAre("second2 (MatMul)", "third3 (MatMul)"));
        o.compile.keep_f32.clear();
        o.compile.max_error = all / 2;
        const Compilation some = compile_model(three_products(), o);
        EXPECT_LT(some.precision->rounded(), 3U);
        EXPECT_LE(error_of(some), o.compile.max_error + 1e-5);
        o.compile.keep_f32 = {"*"};
        EXPECT_LT(error_of(compile_model(three_products(), o)), 1e-5);
    }
}

TEST(PrecisionChoice, OfF16LeavesWinogradsConvolutionsInF32) {
    Node conv = node("Conv", {"x", "w"}, {"y"}, {{"pads", std::vector<int64_t>{1, 1, 1, 1}}});
    const Model m =
        model(graph({{"x", DType::F32, {1, 64, 56, 56}}}, {conv}, {"y"}, {{"w", numbers({64, 64, 3, 3}, 0.1)}}));
    PipelineOptions o = in_f16();
    const Compilation c = compile_model(m, o);
    EXPECT_EQ(c.precision->rounded(), 0U) << "a product for each place in a tile";
    EXPECT_LT(error_of(c), 2e-5);
    o.rewrite.reset();
    const Compilation direct = compile_model(m, o);
    EXPECT_EQ(direct.precision->rounded(), 1U);
    EXPECT_GT(error_of(direct), 1e-4);
}

TEST(PrecisionChoice, OfF16IsF32WithoutItsInstructions) {
    PipelineOptions o = in_f16();
    o.compile.machine = target_with_tiles(VectorIsa::avx2);
    const Compilation c = compile_model(three_products(), o);
    EXPECT_FALSE(c.precision->available) << "bf16 is coarser";
    EXPECT_LT(error_of(c), 1e-5);
}

TEST(PrecisionChoice, OfALoopStaysInF32UnderABudget) {
    PipelineOptions o = in_bf16();
    o.compile.max_error = 0.5;
    const Compilation c = compile_model(
        model(graph({{"x", DType::F32, {5, 2, 64}}}, {node("LSTM", {"x", "w", "r"}, {"y"}, {{"hidden_size", 32}})},
                    {"y"}, {{"w", numbers({1, 128, 64}, 0.2)}, {"r", numbers({1, 128, 32}, 0.2)}})),
        o);
    EXPECT_LE(*c.precision->error, 0.5);
    EXPECT_LE(error_of(c), 0.5);
    EXPECT_GE(c.precision->rounded(), 1U) << "the product of all inputs, before the loop";
}

TEST(PrecisionChoice, RefusesWhatItCannotMeasure) {
    PipelineOptions o = in_bf16();
    o.compile.max_error = -1;
    EXPECT_THROW(compile_model(three_products(), o), OptionError);
    o.compile.max_error = 0.1;
    o.compile.kv_cache = true;
    EXPECT_THROW(compile_model(three_products(), o), OptionError);
    o = in_bf16();
    o.compile.gpu = h200();
    o.compile.keep_f32 = {"first"};
    EXPECT_THROW(compile_model(three_products(), o), OptionError);
}

TEST(PrecisionChoice, WhereFasterTakesTheTypeThatIsEstimatedToBeFaster) {
    PipelineOptions o = in_bf16();
    choose_precision_automatically(o.compile);
    EXPECT_EQ(o.compile.max_error, kAutoMaxError);
    o.compile.max_error = 1;
    const Compilation c = compile_model(three_products(), o);
    ASSERT_TRUE(c.precision->seconds && c.precision->f32_seconds);
    if (c.precision->note.empty())
        EXPECT_LE(*c.precision->seconds, *c.precision->f32_seconds);
    else
        EXPECT_EQ(c.precision->rounded(), 0U);
    // A small product takes less time than the copy of its operand.
    const Compilation small =
        compile_model(model(graph({{"x", DType::F32, {2, 32}}}, {node("MatMul", {"x", "w"}, {"y"})}, {"y"},
                                  {{"w", numbers({32, 16}, 0.5)}})),
                      o);
    EXPECT_EQ(small.precision->rounded(), 0U);
    EXPECT_THAT(nodes_in_f32(*small.precision, PrecisionReason::Slower), ElementsAre(HasSubstr("MatMul")));
    EXPECT_THAT(small.precision->note, HasSubstr("bf16"));
    EXPECT_LT(error_of(small), 1e-5);
}

TEST(PrecisionChoice, WhereFasterIsF16WhereItsProductsAreTheFasterOnes) {
    const Model m = model(graph({{"x", DType::F32, {64, 512}}}, {node("MatMul", {"x", "w"}, {"y"})}, {"y"},
                                {{"w", numbers({512, 512}, 0.5)}}));
    for (const Orchestrator how : {Orchestrator::Greedy, Orchestrator::Optimal}) {
        PipelineOptions o = in_f16();
        o.compile.orchestrator = how;
        choose_precision_automatically(o.compile);
        const Compilation c = compile_model(m, o);
        EXPECT_EQ(c.precision->precision, Precision::F16);
        EXPECT_EQ(c.precision->rounded(), 1U) << c.precision->note;
        EXPECT_LE(*c.precision->seconds, *c.precision->f32_seconds);
        EXPECT_THAT(c.model->dump("tiles"), HasSubstr("matrix f16 dot"));
        EXPECT_LE(error_of(c), kAutoMaxError);
        o.compile.max_error = 1e-9;
        const Compilation exact = compile_model(m, o);
        EXPECT_EQ(exact.precision->rounded(), 0U);
        EXPECT_THAT(exact.precision->note, HasSubstr("no product is left in f16"));
        EXPECT_LT(error_of(exact), 1e-5);
    }
}

TEST(PrecisionChoice, FasterPrecisionsBeginWithTileRegisters) {
    Target t = target_with_tiles(VectorIsa::avx512);
    EXPECT_THAT(faster_precisions(t), ElementsAre(Precision::BF16));
    t.features.push_back("avx512fp16");
    assume_unit_rates(t);
    EXPECT_THAT(faster_precisions(t), ElementsAre(Precision::BF16, Precision::F16));
    EXPECT_THAT(faster_precisions(*in_f16().compile.machine), ElementsAre(Precision::F16));
    EXPECT_THAT(faster_precisions(generic_target(VectorIsa::avx2)), ElementsAre());
}

TEST(PrecisionChoice, WhereFasterIsF32WithoutProductsOfBf16) {
    PipelineOptions o = in_bf16();
    o.compile.machine = generic_target(VectorIsa::avx2);
    choose_precision_automatically(o.compile);
    const Compilation c = compile_model(three_products(), o);
    EXPECT_FALSE(c.precision->available);
    EXPECT_EQ(c.precision->rounded(), 0U);
    EXPECT_LT(error_of(c), 1e-5);
}

/// The program of three_products() before its operands are narrowed.
Program fused() {
    std::optional<Program> program;
    PipelineOptions o = in_bf16();
    o.passes.after = [&](const std::string& pass, const PassResult& result) {
        if (pass == "merge_scales") program = result.unit->grouped.program;
    };
    compile_model(three_products(), o);
    return numbered(*program);
}

TEST(PrecisionSwitches, GiveTheResultsOfEveryChoice) {
    const Program p = fused();
    const Target target = target_with_tiles(VectorIsa::avx2);
    NarrowedOperands all;
    narrow_operands(p, target, Precision::BF16, &all);
    ASSERT_EQ(all.rounded.size(), 3U);
    const Program switched = with_switches(p, all.rounded, DType::BF16);
    EXPECT_EQ(verify(switched), std::vector<std::string>());
    const Tensor x = numbers({32, 64}, 1);
    for (int choice = 0; choice < 8; ++choice) {
        F32Products keep;
        Tensor on(DType::Bool, {3});
        for (int k = 0; k < 3; ++k) {
            on.set(k, int64_t{choice >> k & 1});
            if ((choice >> k & 1) == 0) keep.results.insert(all.rounded[static_cast<size_t>(k)].result);
        }
        const Tensor expected = interpret(narrow_operands(p, target, Precision::BF16, nullptr, keep), {x}).at(0);
        const Tensor found = interpret(switched, {x, on}).at(0);
        double difference = 0;
        for (int64_t i = 0; i < found.count(); ++i)
            difference = std::max(difference, std::fabs(found.get(i) - expected.get(i)));
        EXPECT_LT(difference, 1e-5) << "products " << choice;
    }
}

/// A product on a machine whose tile registers are 16 times as fast as its multiply-adds.
Compilation in_f32(const std::function<void(CompileOptions&)>& change) {
    PipelineOptions o;
    o.compile.threads = 1;
    o.compile.machine = target_with_tiles(VectorIsa::avx2);
    o.passes.verify_each = true;
    change(o.compile);
    return compile_model(model(graph({{"x", DType::F32, {64, 512}}}, {node("MatMul", {"x", "a"}, {"y"})}, {"y"},
                                     {{"a", numbers({512, 64}, 0.1)}})),
                         o);
}

bool has_terms(const Compilation& c) {
    const auto& steps = c.model->plan().steps;
    return std::any_of(steps.begin(), steps.end(), [&](const Step& s) {
        const auto* call = std::get_if<KernelCall>(&s.what);
        return call != nullptr && call->name.find("terms") != std::string::npos;
    });
}

TEST(F32Products, AreSumsOfTermsWhereThatIsFasterAndNotLessExact) {
    const Compilation exact = in_f32([](CompileOptions&o) { o.numerics = Numerics::Strict; }),
                      terms = in_f32([](CompileOptions&) {}),
                      fast = in_f32([](CompileOptions&o) { o.fast_f32 = true; });
    EXPECT_FALSE(has_terms(exact));
    EXPECT_TRUE(has_terms(terms));
    EXPECT_TRUE(has_terms(fast));
    EXPECT_LE(error_of(terms), 1.5 * error_of(exact));
    EXPECT_LT(error_of(fast), 0x1p-14);
    EXPECT_GT(error_of(fast), 3 * error_of(exact));
}

TEST(F32Products, StayMultiplyAddsWhereTermsWouldLoseNumbers) {
    EXPECT_FALSE(has_terms(in_f32([](CompileOptions& o) { o.keep_subnormals = true; })));
    EXPECT_FALSE(has_terms(in_f32([](CompileOptions& o) { o.orchestrator = Orchestrator::Optimal; })));
    EXPECT_FALSE(has_terms(in_f32([](CompileOptions& o) { o.skip = {"narrow_operands"}; })));
}

}  // namespace
}  // namespace tilewright
