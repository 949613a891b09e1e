// A process that compiles what another one has compiled loads the result, and runs it bit for bit the same.

#include "compile/kept_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "base/temporary_folder_test.h"
#include "compile/random_inputs.h"
#include "driver/zoo/zoo.h"
#include "graph/import.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;

class KeptModels : public testing::Test {
  protected:
    KeptModels() {
        options_.compile.code_folder = folder_ / "code";
        options_.compile.warn = [this](const std::string& text) { warnings_.push_back(text); };
        options_.reference = false;
    }
    std::string write(const std::string& name, const ZooSettings& settings = {}) const {
        const ZooModel model = build_zoo_model(name, 0, settings);
        const std::string path = folder_ / (name + ".onnx");
        std::ofstream(path, std::ios::binary)
            .write(model.bytes.data(), static_cast<std::streamsize>(model.bytes.size()));
        return path;
    }
    std::vector<fs::path> kept_files() const {
        std::vector<fs::path> out;
        for (const auto& file : fs::directory_iterator(folder_ / "code"))
            if (file.path().extension() == ".model") out.push_back(file.path());
        return out;
    }
    /// Compiled, loaded, and loaded by a third compilation: equal outputs.
    void expect_same(const std::string& path) {
        const Compilation first = compile_or_load(path, options_), second = compile_or_load(path, options_);
        EXPECT_FALSE(first.kept);
        ASSERT_TRUE(second.kept) << path;
        EXPECT_EQ(second.info.graph_name, first.info.graph_name);
        EXPECT_EQ(second.model->stats().kernels, first.model->stats().kernels);
        EXPECT_EQ(second.model->stats().weight_bytes, first.model->stats().weight_bytes);
        const std::vector<Tensor> inputs = random_inputs(first.model->inputs());
        Session a(first.model, 2), b(second.model, 2), c(compile_or_load(path, options_).model, 2);
        const std::vector<Tensor> expected = a.run(inputs);
        EXPECT_EQ(b.run(inputs), expected);
        EXPECT_EQ(c.run(inputs), expected);
        EXPECT_EQ(b.last_flops(), a.last_flops());
    }
    TemporaryFolder folder_;
    PipelineOptions options_;
    std::vector<std::string> warnings_;
};

TEST_F(KeptModels, RunAsCompiledOnes) {
    for (const auto& [name, settings] : std::vector<std::pair<std::string, ZooSettings>>{
             {"mlp", {}}, {"resnet18", {{"size", 64}}}, {"bert_tiny_dyn", {}}, {"lstm_tagger", {{"hidden", 16}}}})
        expect_same(write(name, settings));
    EXPECT_THAT(warnings_, testing::IsEmpty());
}

TEST_F(KeptModels, AreFoundByTheirBytesAsWell) {
    const std::string path = write("mlp");
    EXPECT_FALSE(compile_or_load(path, options_).kept);
    const std::string bytes = read_whole(path);
    EXPECT_TRUE(compile_or_load(bytes.data(), bytes.size(), options_).kept);
}

TEST_F(KeptModels, AreFoundByTheirNodesAndTensors) {
    const Model model = load_model(write("resnet18", {{"size", 32}}));
    const Compilation first = compile_or_load(model, options_);
    EXPECT_FALSE(first.kept);
    const Compilation second = compile_or_load(model, options_);
    ASSERT_TRUE(second.kept);
    const std::vector<Tensor> inputs = random_inputs(first.model->inputs());
    EXPECT_EQ(Session(second.model, 1).run(inputs), Session(first.model, 1).run(inputs));

    Model other = model;
    Tensor& weights = std::max_element(other.graph.initializers.begin(), other.graph.initializers.end(),
                                       [](const auto& a, const auto& b) { return a.second.count() < b.second.count(); })
                          ->second;
    Tensor changed(weights.dtype(), weights.shape());
    for (int64_t i = 0; i < changed.count(); ++i) changed.set(i, weights.get(i));
    changed.set(changed.count() - 1, weights.get(0) + 1);
    weights = changed;
    EXPECT_FALSE(compile_or_load(other, options_).kept);
    other = model;
    other.graph.nodes.back().name += '_';
    EXPECT_FALSE(compile_or_load(other, options_).kept);
}

TEST_F(KeptModels, AreNotThoseOfOtherModelsAndOptions) {
    const std::string path = write("mlp");
    EXPECT_FALSE(compile_or_load(path, options_).kept);
    const auto kept = [&](const auto& change) {
        PipelineOptions o = options_;
        change(o);
        return compile_or_load(path, o).kept;
    };
    EXPECT_TRUE(kept([](PipelineOptions&) {}));
    EXPECT_FALSE(kept([](PipelineOptions& o) { o.compile.threads = 7; }));
    EXPECT_FALSE(kept([](PipelineOptions& o) { o.compile.isa = "avx2"; }));
    EXPECT_FALSE(kept([](PipelineOptions& o) { o.compile.numerics = Numerics::Fast; }));
    EXPECT_FALSE(kept([](PipelineOptions& o) { o.compile.precision = Precision::BF16; }));
    EXPECT_FALSE(kept([](PipelineOptions& o) { o.compile.fast_f32 = true; }));
    EXPECT_FALSE(kept([](PipelineOptions& o) { o.compile.keep_f32 = {"*"}; }));
    EXPECT_FALSE(kept([](PipelineOptions& o) {
        o.compile.precision = Precision::BF16;
        o.compile.max_error = 0.01;
    }));
    EXPECT_FALSE(kept([](PipelineOptions& o) { choose_precision_automatically(o.compile); }));
    EXPECT_FALSE(kept([](PipelineOptions& o) { o.compile.keep_subnormals = true; }));
    EXPECT_FALSE(kept([](PipelineOptions& o) { o.compile.check_values = true; }));
    EXPECT_FALSE(kept([](PipelineOptions& o) { o.compile.fuse = false; }));
    EXPECT_FALSE(kept([](PipelineOptions& o) { o.compile.skip = {"split_k"}; }));
    EXPECT_FALSE(kept([](PipelineOptions& o) { o.compile.scheduler = SchedulerKind::Default; }));
    EXPECT_FALSE(kept([](PipelineOptions& o) { o.compile.all_chains = true; }));
    EXPECT_FALSE(kept([](PipelineOptions& o) { o.compile.chains_without = chain::Ablation::Chimera; }));
    EXPECT_FALSE(kept([](PipelineOptions& o) { o.rewrite.reset(); }));
    EXPECT_FALSE(kept([](PipelineOptions& o) { o.rewrite->rules.winograd = false; }));
    write("mlp", {{"hidden", 48}});
    EXPECT_FALSE(kept([](PipelineOptions&) {}));
}

/// The descriptor of a file that was closed is used for the next file, while the first file is loaded under its name.
TEST_F(KeptModels, AreNotThoseThatHadTheSameDescriptor) {
    const std::string path = write("mlp");
    const std::string mlp = read_whole(path);
    compile_or_load(path, options_);
    write("mlp", {{"hidden", 48}});
    const std::string other = read_whole(path);
    compile_or_load(path, options_);
    const auto load = [&](const std::string& bytes) { return compile_or_load(bytes.data(), bytes.size(), options_); };
    const Compilation expected = compile_model(other.data(), other.size(), options_);
    Compilation first = load(mlp);
    const Compilation second = load(mlp);
    ASSERT_TRUE(first.kept && second.kept);
    first = {};
    const Compilation third = load(other);
    ASSERT_TRUE(third.kept);
    const std::vector<Tensor> inputs = random_inputs(expected.model->inputs());
    EXPECT_EQ(Session(third.model).run(inputs), Session(expected.model).run(inputs));
}

TEST_F(KeptModels, AreNotUsedWhereMoreIsWanted) {
    const std::string path = write("mlp");
    for (int k = 0; k < 2; ++k) {
        PipelineOptions o = options_;
        o.reference = true;
        EXPECT_FALSE(compile_or_load(path, o).kept);
        o = options_;
        o.compile.keep_objects = true;
        EXPECT_FALSE(compile_or_load(path, o).kept);
        o = options_;
        o.compile.code_folder.clear();
        EXPECT_FALSE(compile_or_load(path, o).kept);
    }
    EXPECT_EQ(kept_files().size(), 0u);
}

TEST_F(KeptModels, ThatAreDamagedAreCompiledAgain) {
    const std::string path = write("mlp");
    const Compilation first = compile_or_load(path, options_);
    const std::vector<Tensor> inputs = random_inputs(first.model->inputs());
    const std::vector<Tensor> expected = Session(first.model, 1).run(inputs);
    ASSERT_EQ(kept_files().size(), 1u);
    const fs::path file = kept_files()[0];
    const std::string whole = read_whole(file);
    for (const size_t at : {size_t{0}, size_t{70}, whole.size() / 3, whole.size() / 2, whole.size() - 1}) {
        std::string wrong = whole;
        wrong[at] = static_cast<char>(wrong[at] ^ 4);
        for (const std::string& content : {wrong, whole.substr(0, at)}) {
            std::ofstream(file, std::ios::binary) << content;
            const Compilation again = compile_or_load(path, options_);
            EXPECT_FALSE(again.kept) << at;
            EXPECT_EQ(Session(again.model, 1).run(inputs), expected);
            EXPECT_TRUE(compile_or_load(path, options_).kept) << at;
        }
    }
}

/// Winograd's convolutions are inexact for such inputs: the strict model is compiled then.
TEST_F(KeptModels, HaveTheStrictModelOfTheirSource) {
    const std::string path = write("resnet18", {{"size", 64}});
    const Compilation first = compile_or_load(path, options_);
    ASSERT_NE(first.model->impl().make_fallback, nullptr);
    const std::string bytes = read_whole(path);
    const Compilation second = compile_or_load(path, options_);
    const Compilation third = compile_or_load(bytes.data(), bytes.size(), options_);
    ASSERT_TRUE(second.kept && third.kept);
    std::vector<Tensor> inputs = random_inputs(first.model->inputs());
    inputs[0].set(5, std::numeric_limits<float>::max());
    const std::vector<Tensor> expected = Session(first.model, 1).run(inputs);
    EXPECT_EQ(Session(second.model, 1).run(inputs), expected);
    EXPECT_EQ(Session(third.model, 1).run(inputs), expected);

    // A file that is removed is still read, one that is written again is not the model's.
    const Compilation fourth = compile_or_load(path, options_);
    ASSERT_TRUE(fourth.kept);
    fs::remove(path);
    EXPECT_EQ(Session(fourth.model, 1).run(inputs), expected);
    write("resnet18", {{"size", 64}});
    const Compilation fifth = compile_or_load(path, options_);
    ASSERT_TRUE(fifth.kept);
    write("resnet18", {{"size", 32}});
    Session session(fifth.model, 1);
    EXPECT_THROW(session.run(inputs), RuntimeError);
}

/// The weights are not kept in memory for the strict model.
TEST_F(KeptModels, AreCompiledFromFilesAgainForStrictCode) {
    const std::string path = write("resnet18", {{"size", 64}});
    const Compilation compiled = compile_or_load(path, options_);
    ASSERT_FALSE(compiled.kept);
    std::vector<Tensor> inputs = random_inputs(compiled.model->inputs());
    inputs[0].set(5, std::numeric_limits<float>::max());
    write("resnet18", {{"size", 32}});
    Session session(compiled.model, 1);
    EXPECT_THROW(session.run(inputs), RuntimeError);
    write("resnet18", {{"size", 64}});
    EXPECT_EQ(session.run(inputs).size(), 1u);
}

TEST_F(KeptModels, ThatCannotBeWrittenAreAWarning) {
    const std::string path = write("mlp");
    fs::create_directory(folder_ / "code");
    fs::permissions(folder_ / "code", fs::perms::all);
    EXPECT_FALSE(compile_or_load(path, options_).kept);
    EXPECT_FALSE(compile_or_load(path, options_).kept);
    EXPECT_THAT(warnings_, testing::Contains(testing::HasSubstr("can be written by others")));
}

}  // namespace
}  // namespace tilewright
