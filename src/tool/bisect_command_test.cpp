// bisect, as documented in its --help.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "driver/npy.h"
#include "driver/npz.h"
#include "graph/export.h"
#include "ops/rule_test.h"
#include "tool/tool_runner_test.h"

namespace tilewright::tool_test {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

/// x [2, 3] -> MatMul, w all ones -> "product" -> Relu -> "positive" -> Neg -> y [2, 4]
Model layers() {
    return test::model(
        test::graph({{"x", DType::F32, {2, 3}}},
                    {test::node("MatMul", {"x", "w"}, {"product"}), test::node("Relu", {"product"}, {"positive"}),
                     test::node("Neg", {"positive"}, {"y"})},
                    {"y"}, {{"w", test::floats({3, 4}, std::vector<float>(12, 1))}}));
}

class BisectTool : public testing::Test {
  protected:
    BisectTool() {
        std::ofstream(place / "model.onnx", std::ios::binary) << model_to_bytes(layers());
        save_npy(place / "x.npy", Tensor::of<float>(DType::F32, {2, 3}, {1, 2, 3, 4, 5, 6}));
    }
    /// Tensors of the model for x.npy; `relu`: what relu gives for its second row, which is 15.
    std::vector<NamedTensor> tensors(float relu = 15) const {
        const auto rows = [](float first, float second) {
            return Tensor::of<float>(DType::F32, {2, 4}, {first, first, first, first, second, second, second, second});
        };
        return {{"product", rows(6, 15)}, {"positive", rows(6, relu)}, {"y", rows(-6, -relu)}};
    }
    Result bisect(const std::vector<std::string>& options) const {
        std::vector<std::string> arguments = {"bisect", "model.onnx", "--input", "x=x.npy"};
        arguments.insert(arguments.end(), options.begin(), options.end());
        return place.run(arguments);
    }
    /// A program in place of Python.
    std::string python(const std::string& script) const {
        std::ofstream(place / "python") << "#!/bin/sh\n" << script << "\n";
        ::chmod((place / "python").c_str(), 0700);
        return place / "python";
    }
    Workplace place;
};

TEST_F(BisectTool, ComparesWithTheInterpreterByDefault) {
    const Result r = bisect({"--json", "report.json"});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_THAT(r.out, HasSubstr("output 'y' agrees: largest difference 0"));
    EXPECT_THAT(r.out, HasSubstr("the outputs agree with the interpreter"));
    EXPECT_EQ(Json::parse(place.read("report.json"))["fault"], "none");
    EXPECT_EQ(place.run({"bisect", "model.onnx"}).status, 0) << "random inputs";
}

TEST_F(BisectTool, ComparesWithTensorsOfAFile) {
    save_npz(place / "right.npz", tensors());
    EXPECT_EQ(bisect({"--against", "right.npz"}).status, 0);
    save_npz(place / "other.npz", tensors(16));
    const Result r = bisect({"--against", "other.npz", "--output-dir", "case", "--json", "report.json"});
    EXPECT_EQ(r.status, 1);
    EXPECT_EQ(r.err, "");
    EXPECT_THAT(r.out,
                HasSubstr("operator: the definitions of the operators part from other.npz before any pass runs"));
    EXPECT_THAT(r.out, HasSubstr("element [1, 0] is 15, expected 16"));
    const Json j = Json::parse(place.read("report.json"));
    EXPECT_EQ(j["fault"], "operator");
    ASSERT_EQ(j["first"].size(), 1u);
    EXPECT_EQ(j["first"][0]["name"], "positive");
    EXPECT_EQ(j["first"][0]["nodes"][0], "Relu1 (Relu)");
    EXPECT_THAT(place.read("case/README.txt"), HasSubstr("model.onnx"));
    const Result shown = place.run({"verify", "case/model.onnx", "--data", "case/test_data_set_0"});
    EXPECT_EQ(shown.status, 1);
    EXPECT_THAT(shown.out, HasSubstr("MISMATCH"));
}

TEST_F(BisectTool, ComparesWithATestDataSet) {
    std::filesystem::create_directory(place / "set");
    save_tensor_pb(place / "set/input_0.pb", {"x", load_npy(place / "x.npy")});
    save_tensor_pb(place / "set/output_0.pb", {"y", tensors()[2].value});
    EXPECT_EQ(place.run({"bisect", "model.onnx", "--against", "set"}).status, 0);
    save_tensor_pb(place / "set/output_0.pb", {"y", tensors(16)[2].value});
    EXPECT_THAT(place.run({"bisect", "model.onnx", "--against", "set"}).out, HasSubstr("operator:"));
}

TEST_F(BisectTool, RunsOnnxruntimeInPython) {
    for (const float relu : {15.0f, 16.0f}) {
        std::vector<NamedTensor> given = tensors(relu);
        for (size_t k = 0; k < given.size(); ++k) given[k].name = std::to_string(k);
        save_npz(place / "ort.npz", given);
        const std::string fake = python(
            R"(test -f "$1" && test -f "$2" && test -f "$3/inputs.npz" && grep -q '"x"' "$3/inputs.json" &&
cp ort.npz "$3/outputs.npz" && echo '["product", "positive", "y"]' > "$3/outputs.json")");
        const Result r = bisect({"--against", "onnxruntime", "--python", fake});
        EXPECT_EQ(r.status, relu == 15 ? 0 : 1) << r.out << r.err;
        EXPECT_THAT(r.out, HasSubstr("ONNX Runtime"));
    }
}

TEST_F(BisectTool, SaysWhyOnnxruntimeGivesNothing) {
    const Result r =
        bisect({"--against", "onnxruntime", "--python", python("echo 'python lacks onnxruntime' >&2; exit 1")});
    EXPECT_TRUE(refused(r));
    EXPECT_THAT(r.err, HasSubstr("python lacks onnxruntime"));
    EXPECT_THAT(r.err, HasSubstr("--python"));
    const Result none = bisect({"--against", "onnxruntime", "--python", "no-such-python"});
    EXPECT_TRUE(refused(none));
    EXPECT_THAT(none.err, HasSubstr("cannot run 'no-such-python'"));
}

TEST_F(BisectTool, ComparesWithOnnxruntimeWhereItIs) {
    if (std::system("python3 -c 'import onnxruntime' 2> /dev/null") != 0) GTEST_SKIP() << "python3 has no onnxruntime";
    const Result r = bisect({"--against", "onnxruntime"});
    EXPECT_EQ(r.status, 0) << r.out << r.err;
}

TEST_F(BisectTool, RefusesReferencesThatItCannotCompareWith) {
    save_npz(place / "none.npz", {{"unknown", Tensor(DType::F32, {1})}});
    const Result r = bisect({"--against", "none.npz"});
    EXPECT_TRUE(refused(r));
    EXPECT_THAT(r.err, HasSubstr("none.npz has none of the model's outputs"));
    EXPECT_EQ(place.run({"bisect", "model.onnx", "--against", "none.npz"}).status, 2) << "for which inputs?";
    EXPECT_EQ(bisect({"--against", "oracle"}).status, 2);
    EXPECT_EQ(bisect({"--lockstep"}).status, 2);
}

TEST_F(BisectTool, RunsKernelsForAGpuInLockstep) {
    const Result r = bisect({"--target", "cuda:sm_80", "--lockstep"});
    EXPECT_EQ(r.status, 0) << r.out << r.err;
}

}  // namespace
}  // namespace tilewright::tool_test
