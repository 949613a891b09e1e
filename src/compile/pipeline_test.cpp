// Every pass of the pipeline by name: skipped, printed, timed, verified.

#include "compile/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/option_error.h"
#include "base/temporary_folder_test.h"
#include "compile/precision_choice.h"
#include "compile/unit.h"
#include "cost/target_with_test.h"
#include "model/plan_program.h"
#include "ops/rule_test.h"
#include "orchestrate/layouts.h"
#include "program/random_program.h"

namespace tilewright {
namespace {

using test::graph;
using test::model;
using test::node;
using testing::HasSubstr;
using testing::IsSubsetOf;

/// Weights between -0.5 and 0.5.
Tensor values(const Shape& shape) {
    Tensor t(DType::F32, shape);
    for (int64_t i = 0; i < t.count(); ++i) t.set(i, static_cast<double>(i * 37 % 101) / 100 - 0.5);
    return t;
}

/// A convolution that suits Winograd's algorithm, a bias, an activation; then a classifier with a softmax. Contains
/// constant and common subexpressions.
Model convolution() {
    const Tensor w = values({16, 8, 3, 3}), b = values({16}), half = values({1});
    return model(graph(
        {{"x", DType::F32, {2, 8, 16, 16}}},
        {node("Add", {"b", "b"}, {"twice"}), node("Conv", {"x", "w", "twice"}, {"c"}), node("Relu", {"c"}, {"r"}),
         node("Relu", {"c"}, {"again"}), node("Add", {"r", "again"}, {"s"}), node("GlobalAveragePool", {"s"}, {"p"}),
         node("Mul", {"p", "half"}, {"h"}), node("Softmax", {"h"}, {"y"})},
        {"y"}, {{"w", w}, {"b", b}, {"half", half}}));
}

/// softmax(q k) v over enough rows that it becomes one kernel.
Model attention() {
    return model(graph(
        {{"q", DType::F32, {1, 256, 64}}, {"k", DType::F32, {1, 64, 256}}, {"v", DType::F32, {1, 256, 64}}},
        {node("MatMul", {"q", "k"}, {"s"}), node("Softmax", {"s"}, {"p"}), node("MatMul", {"p", "v"}, {"y"})}, {"y"}));
}

/// Recurrences: a loop, whose body has kernels.
Model recurrence() {
    return model(graph({{"x", DType::F32, {5, 2, 16}}}, {node("LSTM", {"x", "w", "r"}, {"y"}, {{"hidden_size", 8}})},
                       {"y"}, {{"w", values({1, 32, 16})}, {"r", values({1, 32, 8})}}));
}

/// Numbers that fill the type.
Tensor bytes(DType t, const Shape& shape) {
    Tensor out(t, shape);
    for (int64_t i = 0; i < out.count(); ++i) out.set(i, i * 37 % 251 - (t == DType::I8 ? 128 : 0));
    return out;
}

/// Weights of 4 bits in blocks of 32, then of 8 bits with a scale for each column.
Model quantised(const DeclaredDim& rows) {
    Node packed = node("MatMulNBits", {"x", "q", "s"}, {"h"}, {{"K", 96}, {"N", 64}, {"bits", 4}, {"block_size", 32}});
    packed.domain = "com.microsoft";
    Tensor scales = values({64 * 3});
    for (int64_t i = 0; i < scales.count(); ++i) scales.set(i, 0.02 * scales.get(i));
    return model(graph({{"x", DType::F32, {rows, 96}}},
                       {packed, node("Relu", {"h"}, {"r"}), node("DequantizeLinear", {"b", "t"}, {"w"}, {{"axis", 1}}),
                        node("MatMul", {"r", "w"}, {"y"})},
                       {"y"},
                       {{"q", bytes(DType::U8, {64, 3, 16})},
                        {"s", scales},
                        {"b", bytes(DType::I8, {64, 40})},
                        {"t", Tensor::of(DType::F32, {40}, std::vector<float>(40, 0.01F))}}));
}
Model quantised_weights() { return quantised("m"); }

struct Named {
    const char* name;
    Model (*model)();
};
const Named kModels[] = {{"convolution", convolution},
                         {"attention", attention},
                         {"recurrence", recurrence},
                         {"quantised_weights", quantised_weights}};

std::vector<Tensor> inputs_of(const Compilation& c) { return random_inputs(c.program, 3); }

double error_of(const Compilation& c) {
    const std::vector<Tensor> inputs = inputs_of(c);
    Session session(c.model, 2);
    return largest_difference(interpret(c.program, inputs), session.run(inputs));
}

PipelineOptions on_two_threads() {
    PipelineOptions o;
    o.compile.threads = 2;
    o.passes.verify_each = true;
    return o;
}

std::vector<std::string> names() {
    std::vector<std::string> out;
    for (const PassInfo& p : pipeline_passes()) out.emplace_back(p.name);
    return out;
}

std::vector<std::string> ran(const Compilation& c) {
    std::vector<std::string> out;
    for (const PassTime& p : c.passes) out.push_back(p.name);
    return out;
}

TEST(Pipeline, NamesEachPassOnce) {
    const std::vector<std::string> all = names();
    EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), all.size());
    for (const PassInfo& p : pipeline_passes()) EXPECT_FALSE(p.what.empty()) << p.name;
}

TEST(Pipeline, ComputesTheSameWithEachPassSkipped) {
    const TemporaryFolder folder;
    for (const Named& m : kModels)
        for (const Orchestrator how : {Orchestrator::Greedy, Orchestrator::Optimal}) {
            PipelineOptions whole = on_two_threads();
            whole.compile.orchestrator = how;
            whole.compile.code_folder = folder / "code";  // most kernels are the same
            const std::vector<std::string> passes = ran(compile_model(m.model(), whole));
            for (const PassInfo& p : pipeline_passes()) {
                if (p.required || std::ranges::count(passes, p.name) == 0) continue;
                PipelineOptions o = whole;
                o.compile.skip = {std::string(p.name)};
                SCOPED_TRACE(p.name);
                const Compilation c = compile_model(m.model(), o);
                EXPECT_EQ(std::ranges::count(ran(c), p.name), 0);
                EXPECT_LE(error_of(c), 1e-4) << m.name << " without " << p.name;
            }
        }
}

TEST(Pipeline, ComputesTheSameWithAllPassesSkippedThatCanBe) {
    for (const Named& m : kModels) {
        PipelineOptions o = on_two_threads();
        for (const PassInfo& p : pipeline_passes())
            if (!p.required) o.compile.skip.emplace_back(p.name);
        const Compilation c = compile_model(m.model(), o);
        for (const PassInfo& p : pipeline_passes())
            EXPECT_EQ(std::ranges::count(ran(c), p.name), p.required ? 1 : 0) << p.name;
        EXPECT_LE(error_of(c), 1e-4) << m.name;
    }
}

TEST(Pipeline, DecodesQuantisedWeightsForOneRowAndForMany) {
    for (const DeclaredDim& rows : {DeclaredDim(1), DeclaredDim(5), DeclaredDim(20), DeclaredDim("m")})
        for (const char* isa : {"", "avx2"})
            for (const Precision precision : {Precision::F32, Precision::BF16}) {
                PipelineOptions o = on_two_threads();
                o.compile.isa = isa;
                o.compile.precision = precision;
                const Compilation c = compile_model(quantised(rows), o);
                for (const auto& [v, t] : c.model->plan().program.constants)
                    EXPECT_TRUE(t.dtype() != DType::F32 || t.count() <= 256) << "no weights of f32";
                for (const int64_t m : {1, 3, 17, 70}) {
                    if (c.program.values[c.program.inputs[0]].shape[0].is_constant() &&
                        !c.program.values[c.program.inputs[0]].shape[0].is_constant(m))
                        continue;
                    const std::vector<Tensor> inputs = {values({m, 96})};
                    Session session(c.model, 2);
                    EXPECT_LE(largest_difference(interpret(c.program, inputs), session.run(inputs)),
                              precision == Precision::F32 ? 1e-5 : 0.05)
                        << m << " rows, " << isa;
                }
            }
}

/// What the plan's kernels for a GPU compute, by the tile interpreter.
double error_by_tiles(const Compilation& c) {
    const std::vector<Tensor> inputs = inputs_of(c);
    const std::vector<TileProgram>& kernels = c.model->kernels();
    const Program plan = program_of(
        c.model->plan(), kernels, [&](const CallSite& at, const std::vector<Tensor>& operands, const Bindings& names) {
            return interpret(kernels[at.call->kernel], operands, names);
        });
    return largest_difference(interpret(c.program, inputs), interpret(plan, inputs));
}

TEST(Pipeline, HasItsOptionsForGpusAsForCpus) {
    for (const Named& m : {kModels[0], kModels[1]})
        for (const Precision precision : {Precision::F32, Precision::TF32, Precision::F16, Precision::BF16})
            for (const Orchestrator how : {Orchestrator::Greedy, Orchestrator::Optimal}) {
                const bool narrow = precision == Precision::F16 || precision == Precision::BF16;
                SCOPED_TRACE(fmt::format("{} {}", m.name, to_string(precision)));
                PipelineOptions o;
                o.passes.verify_each = true;
                o.compile.gpu = h200();
                o.compile.precision = precision;
                o.compile.orchestrator = how;
                o.compile.optimal.profile = Profile::None;
                o.compile.code = false;
                o.rewrite = default_rewrites();
                const Compilation c = compile_model(m.model(), o);
                const std::vector<std::string> passes = ran(c);
                const auto runs = [&](const char* name) { return std::ranges::count(passes, name) == 1; };
                EXPECT_TRUE(runs("rewrite"));
                EXPECT_EQ(runs("narrow_operands"), narrow);
                EXPECT_TRUE(precision == Precision::F32 || runs("choose_layouts"));
                EXPECT_EQ(runs("compare_layouts"), precision == Precision::F32);
                EXPECT_EQ(runs("select"), how == Orchestrator::Optimal);
                EXPECT_EQ(c.model->plan().optimal != nullptr, how == Orchestrator::Optimal);
                // The scores are large; bf16 has three bits less than f16.
                EXPECT_LE(error_by_tiles(c), precision == Precision::BF16 ? 0.24 : narrow ? 3e-2 : 1e-4);
            }
}

/// Two convolutions with 3 x 3 windows of `channels` channels, of images of `rows` x `columns`.
Model two_convolutions(int64_t channels, int64_t rows, int64_t columns) {
    return model(
        graph({{"x", DType::F32, {1, channels, rows, columns}}},
              {node("Conv", {"x", "v"}, {"c"}, {{"pads", test::ints({1, 1, 1, 1})}}), node("Relu", {"c"}, {"r"}),
               node("Conv", {"r", "w"}, {"y"}, {{"pads", test::ints({1, 1, 1, 1})}})},
              {"y"}, {{"v", values({channels, channels, 3, 3})}, {"w", values({channels, channels, 3, 3})}}));
}

TEST(Pipeline, GivesOrdinaryCoresOfAGpuLayoutsThatLowerTheEstimate) {
    // Rows of 5 pixels are few for a block of threads, 64 channels side by side are not. Rows of 30 pixels are as good.
    for (const bool narrow : {true, false}) {
        SCOPED_TRACE(narrow ? "5 columns" : "30 columns");
        const auto compiled = [&](bool layouts) {
            PipelineOptions o;
            o.passes.verify_each = true;
            o.compile.gpu = h200();
            o.compile.precision = Precision::F32;
            o.compile.layouts = layouts;
            return compile_model(two_convolutions(64, 40, narrow ? 5 : 30), o);
        };
        const Compilation chosen = compiled(true), row_major = compiled(false);
        const std::vector<std::string> passes = ran(chosen);
        EXPECT_EQ(std::ranges::count(passes, "compare_layouts"), 1);
        EXPECT_EQ(std::ranges::count(passes, "apply_layouts"), narrow ? 1 : 0);
        EXPECT_EQ(std::ranges::count(ran(row_major), "compare_layouts"), 0);
        const double seconds = estimated_seconds(chosen.model->plan()),
                     before = estimated_seconds(row_major.model->plan());
        EXPECT_TRUE(narrow ? seconds < before : seconds == before) << seconds << " " << before;
        if (narrow) {
            EXPECT_LE(error_by_tiles(chosen), 1e-3);
        }
    }
}

/// On machines with such products, which are emulated where this one has none.
TEST(Pipeline, SelectsKernelsOfACpuInAnyPrecision) {
    for (const Named& m : {kModels[0], kModels[1]})
        for (const Precision precision : {Precision::F16, Precision::BF16}) {
            SCOPED_TRACE(fmt::format("{} {}", m.name, to_string(precision)));
            PipelineOptions o = on_two_threads();
            o.passes.verify_each = true;
            o.compile.machine =
                precision == Precision::F16 ? test::target_with_f16() : test::target_with_tiles(VectorIsa::avx2);
            o.compile.precision = precision;
            o.compile.optimal.profile = Profile::None;
            const auto error = [&](const Compilation& c) {
                const std::vector<Tensor> inputs = inputs_of(c);
                return largest_difference(interpret(c.program, inputs), Session(c.model, 2).run(inputs));
            };
            const Compilation greedy = compile_model(m.model(), o);
            o.compile.orchestrator = Orchestrator::Optimal;
            const Compilation optimal = compile_model(m.model(), o);
            EXPECT_NE(optimal.model->plan().optimal, nullptr);
            EXPECT_EQ(std::ranges::count(ran(optimal), "narrow_operands"), 1);
            EXPECT_EQ(optimal.precision->rounded(), greedy.precision->rounded());
            EXPECT_LE(error(optimal), 1.5 * error(greedy) + 1e-5);
        }
}

TEST(Pipeline, SkippingAPassLeavesOutWhatItDoes) {
    const auto steps = [](const Model& m, const char* pass) {
        PipelineOptions o = on_two_threads();
        if (pass != nullptr) o.compile.skip = {pass};
        return compile_model(m, o).model->stats().steps;
    };
    const Model softmax = model(graph({{"x", DType::F32, {64, 96}}}, {node("Softmax", {"x"}, {"y"})}, {"y"}));
    EXPECT_EQ(steps(softmax, nullptr), 1);
    EXPECT_GT(steps(softmax, "fuse_rows"), 1);
    EXPECT_GT(steps(convolution(), "fuse"), steps(convolution(), nullptr));
    EXPECT_GE(steps(attention(), "fuse_gemm_chains"), steps(attention(), nullptr));
}

/// Bodies of loops are printed too, and every printed text is the result of its pass.
TEST(Pipeline, PrintsWhatEachPassLeaves) {
    PipelineOptions o = on_two_threads();
    o.passes.print_after = names();
    std::map<std::string, std::string> text;
    o.passes.print = [&](const std::string& when, const std::string& what) { text[when] = what; };
    const Compilation c = compile_model(recurrence(), o);
    for (const std::string& name : ran(c)) EXPECT_NE(text["after " + name], "") << name;
    EXPECT_EQ(text.size(), ran(c).size());
    EXPECT_THAT(text["after lower"], HasSubstr("program"));
    EXPECT_THAT(text["after isolate_bodies"], HasSubstr("body:"));
    EXPECT_THAT(text["after outline"], HasSubstr("kernel "));
    EXPECT_THAT(text["after schedule"], HasSubstr("compute 0"));
    EXPECT_THAT(text["after merge_kernels"], HasSubstr("kernel 0"));
}

TEST(Pipeline, PrintsAPlanWithoutKernels) {
    PipelineOptions o = on_two_threads();
    o.passes.print_after = {"merge_kernels"};
    std::string text;
    o.passes.print = [&](const std::string&, const std::string& what) { text = what; };
    const Compilation c = compile_model(model(graph({}, {}, {"w"}, {{"w", values({3})}})), o);
    EXPECT_TRUE(c.model->plan().steps.empty());
    EXPECT_THAT(text, HasSubstr("output w"));
}

TEST(Pipeline, TimesEachPassThatRuns) {
    const Compilation c = compile_model(attention(), on_two_threads());
    EXPECT_THAT(ran(c), IsSubsetOf(names()));
    double sum = 0;
    for (const PassTime& p : c.passes) sum += p.ms;
    EXPECT_LE(sum, c.compile_ms);
    EXPECT_GE(sum, 0.5 * c.compile_ms) << "something takes time outside of all passes";
}

TEST(Pipeline, KeepsTheRewrittenProgramWhereItIsWanted) {
    PipelineOptions o = on_two_threads();
    EXPECT_TRUE(compile_model(convolution(), o).rewritten.primitives.empty());
    o.keep_rewritten = true;
    const Compilation c = compile_model(convolution(), o);
    const std::vector<Tensor> inputs = inputs_of(c);
    EXPECT_LE(largest_difference(interpret(c.program, inputs), interpret(c.rewritten, inputs)), 1e-4);
}

TEST(Pipeline, LeavesAProgramOfTheModelAfterEachPass) {
    for (Model (*const make)() : {&convolution, &recurrence}) {
        const std::vector<Tensor> inputs = {make == &recurrence ? values({5, 2, 16}) : values({2, 8, 16, 16})};
        const Tensor expected = interpret(lower_model(make(), {}), inputs)[0];
        PipelineOptions options;
        std::vector<std::string> seen;
        options.passes.after = [&](const std::string& pass, const PassResult& r) {
            EXPECT_EQ((r.program != nullptr) + (r.unit != nullptr) + (r.plan != nullptr), 1) << pass;
            if (r.plan != nullptr) return;
            const Program p = r.unit != nullptr ? r.unit->whole_program() : *r.program;
            EXPECT_LT(largest_difference({expected}, interpret(p, inputs)), 1e-5) << pass;
            seen.push_back(pass);
        };
        compile_model(make(), options);
        EXPECT_THAT((std::vector<std::string>{"lower", "rewrite", "apply_layouts", "schedule"}), IsSubsetOf(seen));
    }
}

}  // namespace
}  // namespace tilewright
