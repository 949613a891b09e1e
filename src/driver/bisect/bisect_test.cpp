// A fault of each kind is planted in a compilation, and found.

#include "driver/bisect/bisect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error.h"
#include "base/temporary_folder_test.h"
#include "driver/bisect/plant_test.h"
#include "driver/bisect/report.h"
#include "driver/data.h"
#include "driver/npy.h"
#include "ops/rule_test.h"

namespace tilewright::bisect {
namespace {

using testing::AnyOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

Tensor random_tensor(Shape shape, uint64_t seed, double low = -1, double high = 1) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> number(low, high);
    Tensor t(DType::F32, std::move(shape));
    for (int64_t i = 0; i < t.count(); ++i) t.set(i, number(random));
    return t;
}

/// x -> Conv -> a -> Relu -> b -> Conv -> c -> Relu -> d -> GlobalAveragePool -> e -> Flatten -> f -> Gemm -> y; 3x3
/// taps.
Model classifier() {
    const std::map<std::string, Attribute> padded = {{"pads", std::vector<int64_t>{1, 1, 1, 1}}};
    return test::model(test::graph({{"x", DType::F32, {1, 16, 14, 14}}},
                                   {test::node("Conv", {"x", "w1"}, {"a"}, padded), test::node("Relu", {"a"}, {"b"}),
                                    test::node("Conv", {"b", "w2"}, {"c"}, padded), test::node("Relu", {"c"}, {"d"}),
                                    test::node("GlobalAveragePool", {"d"}, {"e"}), test::node("Flatten", {"e"}, {"f"}),
                                    test::node("Gemm", {"f", "w3"}, {"y"})},
                                   {"y"},
                                   {{"w1", random_tensor({32, 16, 3, 3}, 1)},
                                    {"w2", random_tensor({16, 32, 3, 3}, 2)},
                                    {"w3", random_tensor({16, 10}, 3)}}));
}

Options options_for(Model model) {
    Options o;
    o.model = std::move(model);
    o.pipeline.compile.threads = 2;
    o.tolerance.max_relative = 1e-4;
    o.inputs = [](const std::vector<ModelIo>& declared) {
        std::vector<Tensor> inputs;
        for (const ModelIo& io : declared) inputs.push_back(random_tensor(evaluate(io.shape, Bindings{}), 7, 0, 1));
        return inputs;
    };
    return o;
}

std::vector<std::string> names_of(const std::vector<PartedTensor>& tensors) {
    std::vector<std::string> names;
    for (const PartedTensor& t : tensors) names.push_back(t.name);
    return names;
}

TEST(Bisect, FindsNothingInARightCompilation) {
    const Finding f = find(options_for(classifier()));
    EXPECT_EQ(f.fault, Fault::None) << text_of(f, options_for(classifier()));
    ASSERT_EQ(f.outputs.size(), 1u);
    EXPECT_TRUE(f.outputs[0].comparison.ok);
}

TEST(Bisect, FindsAWrongRewrite) {
    Options o = options_for(classifier());
    o.pipeline.passes.after = [](const std::string& pass, const PassResult& r) {
        if (pass == "rewrite") break_sum(*r.program, SIZE_MAX);
    };
    const Finding f = find(o);
    EXPECT_EQ(f.fault, Fault::Pass);
    EXPECT_EQ(f.wrong_after, "rewrite");
    EXPECT_EQ(f.right_after, "scales_behind_products");
    EXPECT_THAT(names_of(f.first), ElementsAre("y"));
    ASSERT_FALSE(f.first.empty());
    EXPECT_THAT(f.first[0].expression, HasSubstr("max("));
    EXPECT_THAT(f.first[0].nodes, Contains(HasSubstr("(Gemm)")));
}

TEST(Bisect, NamesTheFirstTensorThatAWrongRewriteChanges) {
    Options o = options_for(classifier());
    o.pipeline.rewrite.reset();
    o.pipeline.passes.after = [](const std::string& pass, const PassResult& r) {
        if (pass == "scales_behind_products") break_sum(*r.program, 1);
    };
    const Finding f = find(o);
    EXPECT_EQ(f.fault, Fault::Pass);
    EXPECT_EQ(f.wrong_after, "scales_behind_products");
    EXPECT_THAT(names_of(f.first), ElementsAre("c"));
    EXPECT_THAT(f.first.at(0).nodes, ElementsAre("Conv2 (Conv)"));
}

TEST(Bisect, FindsAWrongLayout) {
    Options o = options_for(classifier());
    o.pipeline.rewrite.reset();
    bool planted = false;
    o.pipeline.passes.after = [&](const std::string& pass, const PassResult& r) {
        if (pass == "apply_layouts") planted = mirror_last_index(*r.unit) || planted;
    };
    const Finding f = find(o);
    ASSERT_TRUE(planted) << "nothing is laid out here: the test shows nothing";
    EXPECT_EQ(f.fault, Fault::Pass);
    EXPECT_EQ(f.wrong_after, "apply_layouts");
    ASSERT_THAT(f.first, SizeIs(1));
    EXPECT_THAT(f.first[0].name, AnyOf("b", "d")) << "a convolution reads the tensor";
}

TEST(Bisect, FindsAWrongTileProgram) {
    Options o = options_for(classifier());
    std::string planted;
    o.pipeline.passes.after = [&](const std::string& pass, const PassResult& r) {
        if (pass != "schedule") return;
        for (auto& kernel : r.unit->programs)
            if (kernel && scale_result(*kernel)) {
                if (planted.empty()) planted = kernel->name;
                return;
            }
    };
    const Finding f = find(o);
    ASSERT_FALSE(planted.empty());
    EXPECT_EQ(f.fault, Fault::Kernel);
    ASSERT_TRUE(f.kernel);
    EXPECT_EQ(f.kernel->at.call->name, planted);
    EXPECT_THAT(f.kernel->where, StartsWith("the tile program"));
    EXPECT_THAT(f.kernel->reason, HasSubstr("within"));
    EXPECT_THAT(f.tiling, Not(IsEmpty()));
}

/// Kernel `k` of every compilation is generated from a program that `edit` has changed.
Options with_wrong_code(const std::function<bool(TileProgram&)>& edit, std::string* name) {
    Options o = options_for(classifier());
    o.compile = [=](const Model& m, const PipelineOptions& p) {
        Compilation c = compile_model(m, p);
        for (size_t k = 0; k < c.model->kernels().size(); ++k) {
            TileProgram other = c.model->kernels()[k];
            if (!edit(other)) continue;
            if (name->empty()) *name = other.name;
            return with_code_of(c, k, other);
        }
        return c;
    };
    return o;
}

TEST(Bisect, FindsWrongMachineCode) {
    std::string planted;
    const Options o = with_wrong_code(scale_result, &planted);
    const Finding f = find(o);
    EXPECT_EQ(f.fault, Fault::Kernel);
    ASSERT_TRUE(f.kernel) << text_of(f, o);
    EXPECT_EQ(f.kernel->at.call->name, planted);
    EXPECT_THAT(f.kernel->where, HasSubstr("machine code"));
    EXPECT_THAT(f.kernel_nodes, Not(IsEmpty()));
}

TEST(Bisect, FindsAKernelOfTooLittlePrecision) {
    std::string planted;
    const Options o = with_wrong_code(round_to_bf16, &planted);
    const Finding f = find(o);
    EXPECT_EQ(f.fault, Fault::Kernel);
    ASSERT_TRUE(f.kernel) << text_of(f, o);
    EXPECT_EQ(f.kernel->at.call->name, planted);
    EXPECT_GT(f.kernel->error, 1e-3);
    EXPECT_LT(f.kernel->error, 1e-2);
    EXPECT_LT(f.kernel->allowed, 1e-4);
    EXPECT_THAT(text_of(f, o), HasSubstr("bits are right"));
}

TEST(Bisect, TellsRoundingErrorsFromAWrongRewrite) {
    // One large pixel: Winograd's transforms spread its rounding errors over outputs that do not read it.
    Options o = options_for(classifier());
    o.pipeline.compile.numerics = Numerics::Fast;
    o.tolerance = {.relative = 1e-3, .absolute = 1e-3};
    o.inputs = [](const std::vector<ModelIo>&) {
        Tensor x = random_tensor({1, 64, 28, 28}, 7, 0, 1);
        x.set(5 * 28 + 5, 1e8);
        return std::vector<Tensor>{x};
    };
    const Model model =
        test::model(test::graph({{"x", DType::F32, {1, 64, 28, 28}}},
                                {test::node("Conv", {"x", "w1"}, {"y"}, {{"pads", std::vector<int64_t>{1, 1, 1, 1}}})},
                                {"y"}, {{"w1", random_tensor({64, 64, 3, 3}, 1)}}));
    o.model = model;
    const Finding f = find(o);
    EXPECT_EQ(f.fault, Fault::Numerics) << text_of(f, o);
    EXPECT_THAT(f.wrong_after, AnyOf("rewrite", "fold_rewritten"));
    EXPECT_THAT(f.first, Not(IsEmpty()));
    // The default checks such inputs, and computes them by the strict code.
    o.pipeline.compile.numerics = Numerics::Default;
    EXPECT_EQ(find(o).fault, Fault::None);
}

TEST(Bisect, FindsAnOperatorThatTheReferenceComputesOtherwise) {
    Options o = options_for(classifier());
    o.reference_name = "a file";
    o.reference = [](const std::vector<ModelIo>&, const std::vector<Tensor>& inputs) {
        // As if Conv2 added 1 to its result.
        const Program p = lower(classifier());
        std::vector<NamedTensor> out;
        const Evaluation e = evaluate(p, inputs, Precision::Exact, [](const std::string&) { return true; });
        for (const auto& [v, tensor] : e.values) {
            const std::string& name = p.values[v].name;
            if (name == "a" || name == "b") out.push_back({name, tensor});
            if (name != "c" && name != "y") continue;
            Tensor other(DType::F32, tensor.shape());
            for (int64_t i = 0; i < other.count(); ++i) other.set(i, tensor.get(i) + 1);
            out.push_back({name, other});
        }
        return out;
    };
    const Finding f = find(o);
    EXPECT_EQ(f.fault, Fault::Operator);
    EXPECT_THAT(names_of(f.first), ElementsAre("c"));
    ASSERT_TRUE(f.evidence.onnx);
    EXPECT_TRUE(f.evidence.onnx->shows);
    ASSERT_THAT(f.evidence.onnx->model.graph.nodes, SizeIs(1));
    EXPECT_EQ(f.evidence.onnx->model.graph.nodes[0].op, "Conv");
}

TEST(Bisect, NeedsAReferenceWithAnOutput) {
    Options o = options_for(classifier());
    o.reference = [](const auto&, const auto&) { return std::vector<NamedTensor>{{"other", Tensor(DType::F32, {1})}}; };
    EXPECT_THROW(find(o), ModelError);
}

TEST(Bisect, FindsAFaultOfTheSession) {
    Options o = options_for(classifier());
    o.run = [](const Compilation& c, const std::vector<Tensor>& inputs) {
        std::vector<Tensor> outputs = Session(c.model, 2).run(inputs);
        Tensor wrong(DType::F32, outputs[0].shape());
        return std::vector<Tensor>{wrong};
    };
    const Finding f = find(o);
    EXPECT_EQ(f.fault, Fault::Session);
    EXPECT_THAT(f.notes, Contains(HasSubstr("with one thread the outputs agree")));
}

TEST(Bisect, FindsAKernelOfDynamicSize) {
    Options o = options_for(test::model(test::graph(
        {{"x", DType::F32, {"n", 24}}}, {test::node("MatMul", {"x", "w"}, {"p"}), test::node("Softmax", {"p"}, {"y"})},
        {"y"}, {{"w", random_tensor({24, 16}, 3)}})));
    o.inputs = [](const std::vector<ModelIo>&) { return std::vector<Tensor>{random_tensor({5, 24}, 4)}; };
    o.pipeline.passes.after = [](const std::string& pass, const PassResult& r) {
        if (pass != "schedule") return;
        for (auto& kernel : r.unit->programs)
            if (kernel) break_sum(kernel->stages, 0);
    };
    const Finding f = find(o);
    EXPECT_EQ(f.fault, Fault::Kernel) << text_of(f, o);
    ASSERT_TRUE(f.kernel);
    ASSERT_TRUE(f.evidence.onnx);
    EXPECT_TRUE(f.evidence.onnx->shows);
}

TEST(Bisect, FindsAKernelInTheBodyOfALoop) {
    Options o = options_for(test::model(test::graph(
        {{"x", DType::F32, {5, 2, 16}}}, {test::node("LSTM", {"x", "w", "r"}, {"y"}, {{"hidden_size", int64_t{8}}})},
        {"y"}, {{"w", random_tensor({1, 32, 16}, 1)}, {"r", random_tensor({1, 32, 8}, 2)}})));
    bool planted = false;
    o.pipeline.passes.after = [&](const std::string& pass, const PassResult& r) {
        if (pass != "schedule") return;
        for (const auto& [body, unit] : r.unit->bodies)
            for (auto& kernel : unit->programs) planted = (kernel && scale_result(*kernel)) || planted;
    };
    const Finding f = find(o);
    ASSERT_TRUE(planted);
    EXPECT_EQ(f.fault, Fault::Kernel) << text_of(f, o);
    ASSERT_TRUE(f.kernel);
    EXPECT_NE(f.kernel->at.plan, &f.snapshots->plan());
}

TEST(Bisect, WritesAFolderThatShowsAWrongPass) {
    Options o = options_for(classifier());
    o.pipeline.rewrite.reset();
    o.pipeline.passes.after = [](const std::string& pass, const PassResult& r) {
        if (pass == "scales_behind_products") break_sum(*r.program, 0);
    };
    const TemporaryFolder folder;
    const Finding f = find(o);
    write_folder(f, o, folder.path());
    EXPECT_THAT(read_whole(folder / "README.txt"), HasSubstr("wrong after `scales_behind_products`"));
    EXPECT_THAT(read_whole(folder / "report.json"), HasSubstr("\"wrong_after\": \"scales_behind_products\""));
    std::vector<Tensor> results;
    for (const std::string side : {"before", "after"}) {
        const Program p = parse_program(read_whole(folder / (side + ".txt")));
        std::vector<Tensor> inputs;
        for (size_t k = 0; k < p.inputs.size(); ++k)
            inputs.push_back(load_npy(folder / fmt::format("{}/input_{}.npy", side, k)));
        results.push_back(interpret(p, inputs).at(0));
        EXPECT_TRUE(compare(results.back(), load_npy(folder / (side + "/result.npy")), {}, side).ok);
    }
    EXPECT_FALSE(compare(results[1], results[0], {}, "after").ok);
    // The model's first convolution, with the inputs and the expected outputs of the run.
    const Model part = load_model(folder / "model.onnx");
    ASSERT_THAT(part.graph.nodes, SizeIs(1));
    const std::vector<Tensor> inputs = load_numbered(folder / "test_data_set_0", "input"),
                              expected = load_numbered(folder / "test_data_set_0", "output");
    EXPECT_TRUE(compare(interpret(lower(part), inputs).at(0), expected.at(0), {}, "part").ok);
}

TEST(Bisect, WritesAFolderThatShowsAWrongKernel) {
    std::string planted;
    const Options o = with_wrong_code(scale_result, &planted);
    const TemporaryFolder folder;
    write_folder(find(o), o, folder.path());
    const TileProgram kernel = parse_tile_program(read_whole(folder / "kernel.txt"));
    std::vector<Tensor> inputs;
    for (size_t k = 0; k < kernel.stages.inputs.size(); ++k) {
        const Tensor numbers = load_npy(folder / fmt::format("input_{}.npy", k));  // of bf16: as f32
        inputs.emplace_back(kernel.stages.values[kernel.stages.inputs[k]].dtype, numbers.shape());
        for (int64_t i = 0; i < numbers.count(); ++i) inputs.back().set(i, numbers.get(i));
    }
    const Tensor expected = load_npy(folder / "expected_0.npy"), found = load_npy(folder / "found_0.npy");
    const Tensor right = interpret(kernel, inputs, {}).at(0).reshaped(expected.shape());
    const Tolerance close{.relative = 1e-3, .absolute = 0, .max_relative = 1e-5};
    const Comparison interpreted = compare(right, expected, close, "kernel");
    EXPECT_TRUE(interpreted.ok) << interpreted.reason << "\n" << print(kernel);
    EXPECT_FALSE(compare(found, expected, close, "kernel").ok);
    EXPECT_EQ(load_npy(folder / "bound_0.npy").shape(), expected.shape());
}

}  // namespace
}  // namespace tilewright::bisect
