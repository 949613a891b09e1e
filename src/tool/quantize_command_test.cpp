// quantize, as documented in its --help.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "driver/npz.h"
#include "graph/export.h"
#include "ops/rule_test.h"
#include "tool/tool_runner_test.h"

namespace tilewright::tool_test {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

Tensor random_tensor(Shape shape, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<float> number(-1, 1);
    Tensor t(DType::F32, std::move(shape));
    for (float& x : t.as_mutable<float>()) x = number(random);
    return t;
}

/// x [n, 16] -> MatMul -> Tanh -> MatMul -> y [n, 4]
class QuantizeTool : public testing::Test {
  protected:
    QuantizeTool() {
        const Model m =
            test::model(test::graph({{"x", DType::F32, {"n", 16}}},
                                    {test::node("MatMul", {"x", "w1"}, {"a"}), test::node("Tanh", {"a"}, {"b"}),
                                     test::node("MatMul", {"b", "w2"}, {"y"})},
                                    {"y"}, {{"w1", random_tensor({16, 64}, 1)}, {"w2", random_tensor({64, 4}, 2)}}));
        std::ofstream(place / "model.onnx", std::ios::binary) << model_to_bytes(m);
        std::filesystem::create_directory(place / "samples");
        for (int64_t n : {1, 3, 8})
            save_npz(place / fmt::format("samples/{}.npz", n),
                     {{"x", random_tensor({n, 16}, static_cast<uint64_t>(n))}});
    }
    Result quantize(const std::vector<std::string>& options) const {
        std::vector<std::string> arguments = {"quantize", "model.onnx", "-o", "int8.onnx"};
        arguments.insert(arguments.end(), options.begin(), options.end());
        return place.run(arguments);
    }
    Workplace place;
};

TEST_F(QuantizeTool, WritesAModelThatComputesOnEightBits) {
    const Result r = quantize({"--data", "samples", "--json", "report.json"});
    ASSERT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out, HasSubstr("2 of 2 products and 0 nodes between them on 8 bits"));
    EXPECT_THAT(r.out, HasSubstr("3 samples"));
    EXPECT_THAT(r.out, HasSubstr("output 'y': error 0.0"));
    const Json j = Json::parse(place.read("report.json"));
    EXPECT_EQ(j["tried"].size(), 3u);
    EXPECT_EQ(j["outputs"][0]["rows"], 12);
    EXPECT_TRUE(j["layers"][0]["error"].is_null());
    EXPECT_EQ(place.run({"verify", "int8.onnx", "--dim", "n=5"}).status, 0);
    // The weights, or the codes of a product that decodes them.
    EXPECT_THAT(place.run({"dump", "int8.onnx"}).out, HasSubstr(": i8[16, 64] = #"));
}

TEST_F(QuantizeTool, KeepsLayersInF32) {
    const Result all = quantize({"--data", "samples", "--sensitivity", "--json", "report.json"});
    ASSERT_EQ(all.status, 0) << all.err;
    const Json layers = Json::parse(place.read("report.json"))["layers"];
    const double first = layers[0]["error"], second = layers[1]["error"];
    const Result one =
        quantize({"--data", "samples", "--max-error", fmt::format("{}", 1.01 * std::max(first, second))});
    ASSERT_EQ(one.status, 0) << one.err;
    EXPECT_THAT(one.out, HasSubstr("1 of 2 products"));
    EXPECT_THAT(one.out, HasSubstr(fmt::format("{}, opset 17): stays in f32",
                                               first > second ? "'MatMul0' (MatMul" : "'MatMul2' (MatMul")));
    const Result named = quantize({"--data", "samples", "--exclude", "MatMul2", "--calibration", "entropy"});
    ASSERT_EQ(named.status, 0) << named.err;
    EXPECT_THAT(named.out, HasSubstr("1 of 2 products"));
    EXPECT_THAT(named.out, HasSubstr("ranges by entropy"));
}

TEST_F(QuantizeTool, RefusesWhatItCannotUse) {
    EXPECT_EQ(quantize({}).status, 2) << "no samples";
    EXPECT_EQ(quantize({"--data", "samples", "--calibration", "max"}).status, 2);
    EXPECT_EQ(quantize({"--data", "samples", "--percentile", "10"}).status, 2);
    const Result none = quantize({"--data", "."});
    EXPECT_EQ(none.status, 1);
    EXPECT_THAT(none.err, HasSubstr("has no samples of the model's inputs"));
    const Result unknown = quantize({"--data", "samples", "--exclude", "MatMul3"});
    EXPECT_EQ(unknown.status, 1);
    EXPECT_THAT(unknown.err, HasSubstr("no node 'MatMul3'"));
    EXPECT_FALSE(std::filesystem::exists(place / "int8.onnx"));
}

}  // namespace
}  // namespace tilewright::tool_test
