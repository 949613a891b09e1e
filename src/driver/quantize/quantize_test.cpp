// Whole models, quantised with random samples.

#include "driver/quantize/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error.h"
#include "base/temporary_folder_test.h"
#include "driver/npz.h"
#include "driver/quantize/samples.h"
#include "graph/export.h"
#include "ops/rule_test.h"

namespace tilewright::quantize {
namespace {

using test::node;
using testing::HasSubstr;
using testing::SizeIs;

Tensor random_tensor(Shape shape, uint64_t seed, float scale = 1) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> number(0, scale);
    Tensor t(DType::F32, std::move(shape));
    for (float& x : t.as_mutable<float>()) x = number(random);
    return t;
}

/// Three products; the second one's weights have a row that is 100 times the others where `uneven`.
Model classifier(bool uneven = false) {
    Tensor middle = random_tensor({32, 32}, 2, 0.2F);
    if (uneven)
        for (int64_t k = 0; k < 32; ++k) middle.set(k, 300 * middle.get(k));
    const std::map<std::string, Attribute> padded = {{"pads", std::vector<int64_t>{1, 1, 1, 1}}};
    return test::model(
        test::graph({{"x", DType::F32, {1, 4, 6, 6}}},
                    {node("Conv", {"x", "w1", "b1"}, {"a"}, padded), node("Relu", {"a"}, {"b"}),
                     node("GlobalAveragePool", {"b"}, {"c"}), node("Flatten", {"c"}, {"d"}),
                     node("MatMul", {"d", "w2"}, {"e"}), node("Tanh", {"e"}, {"f"}), node("Gemm", {"f", "w3"}, {"y"})},
                    {"y"},
                    {{"w1", random_tensor({32, 4, 3, 3}, 1, 0.3F)},
                     {"b1", random_tensor({32}, 4, 0.1F)},
                     {"w2", middle},
                     {"w3", random_tensor({32, 10}, 3, 0.2F)}}));
}

Options options_for(Model model) {
    Options o;
    o.model = std::move(model);
    o.pipeline.compile.threads = 1;
    o.threads = 1;
    o.samples = [](const std::vector<ModelIo>& declared) {
        std::vector<std::vector<Tensor>> samples;
        for (uint64_t s = 0; s < 12; ++s) {
            samples.emplace_back();
            for (const ModelIo& io : declared)
                samples.back().push_back(random_tensor(evaluate(io.shape, Bindings{}), 100 + s));
        }
        return samples;
    };
    return o;
}

TEST(Quantize, KeepsTheOutputsNearTheOriginals) {
    const Result r = quantize(options_for(classifier()));
    EXPECT_LT(r.error, 0.1);
    EXPECT_GT(r.error, 0) << "nothing was quantised";
    EXPECT_THAT(r.tried, SizeIs(3));
    for (const auto& [calibration, error] : r.tried) EXPECT_LE(r.error, error) << to_string(calibration);
    ASSERT_THAT(r.outputs, SizeIs(1));
    EXPECT_EQ(r.outputs[0].rows, 12u);
    for (const LayerReport& layer : r.layers) EXPECT_TRUE(layer.quantised) << layer.node;
    EXPECT_EQ(r.model.graph.initializers.at("w2_quantized").dtype(), DType::I8);
}

TEST(Quantize, KeepsTheMostSensitiveLayersInF32) {
    Options o = options_for(classifier());
    const double all = quantize(o).error;
    o.max_error = all / 2;
    const Result r = quantize(o);
    EXPECT_LE(r.error, all / 2);
    ASSERT_TRUE(r.sensitivity);
    double kept = HUGE_VAL, quantised = 0;
    for (const LayerReport& layer : r.layers)
        if (layer.quantised)
            quantised = std::max(quantised, layer.error);
        else
            kept = std::min(kept, layer.error);
    EXPECT_GT(quantised, 0) << "no layer is left";
    EXPECT_GE(kept, quantised);
    EXPECT_LT(kept, HUGE_VAL) << "no layer was kept";
}

TEST(Quantize, SaysWhenNoLayerMeetsTheError) {
    Options o = options_for(classifier());
    o.max_error = 1e-9;
    try {
        quantize(o);
        FAIL() << "an error of 1e-9 was met";
    } catch (const ModelError& e) {
        EXPECT_THAT(e.what(), HasSubstr("passes an error of 1e-09"));
        EXPECT_THAT(e.hint(), HasSubstr("--max-error"));
    }
}

TEST(Quantize, ScalesOfChannelsBeatOneScaleWhereChannelsDiffer) {
    Options o = options_for(classifier(true));
    o.max_error = HUGE_VAL;
    const double channels = quantize(o).error;
    o.per_channel = false;
    EXPECT_GT(quantize(o).error, channels);
}

TEST(Quantize, TakesSymmetricActivations) {
    Options o = options_for(classifier());
    o.type = ActivationType::S8;
    const Result r = quantize(o);
    EXPECT_LT(r.error, 0.1);
    EXPECT_EQ(r.model.graph.initializers.at("x_zero_point").dtype(), DType::I8);
}

TEST(Quantize, RefusesModelsWithoutConstantProducts) {
    Options o = options_for(test::model(test::graph({{"x", DType::F32, {2, 2}}}, {node("Relu", {"x"}, {"y"})}, {"y"})));
    EXPECT_THROW(quantize(o), ModelError);
}

TEST(Quantize, UsesOperatorsOfComMicrosoftInOldOperatorSets) {
    Options o = options_for(classifier());
    o.model.opsets[""] = 9;
    for (Node& n : o.model.graph.nodes) n.opset = 9;
    o.sensitivity = true;
    const Result r = quantize(o);
    EXPECT_LT(r.error, 0.1);
    ASSERT_THAT(r.notes, SizeIs(1));
    EXPECT_THAT(r.notes[0], HasSubstr("operator set 9"));
    const std::string bytes = model_to_bytes(r.model);
    EXPECT_EQ(load_model_from_bytes(bytes.data(), bytes.size()).opsets.at("com.microsoft"), 1);
}

TEST(Quantize, NotesElementsThatAreNotFinite) {
    Options o = options_for(classifier());
    const auto samples = o.samples;
    o.samples = [samples](const std::vector<ModelIo>& declared) {
        auto all = samples(declared);
        all[0][0].set(0, HUGE_VAL);
        return all;
    };
    const Result r = quantize(o);
    ASSERT_FALSE(r.notes.empty());
    EXPECT_THAT(r.notes[0], HasSubstr("NaN or infinite"));
}

TEST(Samples, ComeFromArchivesByName) {
    const TemporaryFolder folder;
    const std::vector<ModelIo> declared = {{"x", DType::F32, {Expr(2)}}, {"y", DType::F32, {Expr(1)}}};
    const Tensor x = random_tensor({2}, 1), y = random_tensor({1}, 2);
    save_npz(folder.path() + "/b.npz", {{"y", y}, {"x", x}});
    save_npz(folder.path() + "/a.npz", {{"x", random_tensor({2}, 3)}, {"y", y}});
    const auto samples = load_samples(declared, folder.path(), 10);
    ASSERT_THAT(samples, SizeIs(2));
    EXPECT_EQ(samples[1][0], x);
    EXPECT_EQ(samples[1][1], y);
    EXPECT_THAT(load_samples(declared, folder.path(), 1), SizeIs(1));
    save_npz(folder.path() + "/c.npz", {{"x", x}});
    try {
        load_samples(declared, folder.path(), 10);
        FAIL() << "an archive without an input was accepted";
    } catch (const ModelError& e) {
        EXPECT_THAT(e.what(), HasSubstr("c.npz' has no array 'y'"));
    }
}

TEST(Samples, ComeFromTestDataSets) {
    const TemporaryFolder folder;
    const std::vector<ModelIo> declared = {{"x", DType::F32, {Expr(2)}}};
    EXPECT_THROW(load_samples(declared, folder.path(), 10), ModelError);
    EXPECT_THROW(load_samples(declared, folder.path() + "/none", 10), ModelError);
    for (const char* name : {"test_data_set_0", "test_data_set_1"}) {
        std::filesystem::create_directory(folder.path() + "/" + name);
        save_tensor_pb(fmt::format("{}/{}/input_0.pb", folder.path(), name), {"x", random_tensor({2}, 1)});
    }
    EXPECT_THAT(load_samples(declared, folder.path(), 10), SizeIs(2));
    EXPECT_THAT(load_samples(declared, folder.path() + "/test_data_set_1", 10), SizeIs(1));
}

}  // namespace
}  // namespace tilewright::quantize
