// Compiled models in files run bit for bit as the models that they were made of: the zoo's and, where they are at hand,
// real ones.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "artifact/model_file.h"
#include "base/temporary_folder_test.h"
#include "compile/pipeline.h"
#include "compile/random_inputs.h"
#include "driver/data.h"
#include "driver/zoo/zoo.h"
#include "graph/import.h"

namespace tilewright {
namespace {

std::string bytes_of_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

PipelineOptions for_file(const std::string& code_folder) {
    PipelineOptions o;
    o.compile.code_folder = code_folder;
    o.reference = false;
    o.compile.keep_objects = true;
    return o;
}

/// Two compilations, the second with kept machine code and schedules, give one file, which runs as they do.
void expect_same_from_file(const Model& model, const std::vector<Tensor>& given) {
    const TemporaryFolder folder;
    const PipelineOptions options = for_file(folder / "code");
    const auto first = compile_model(model, options).model;
    artifact::write_model_file({first}, {}, folder / "a.so");
    artifact::write_model_file({compile_model(model, options).model}, {}, folder / "b.so");
    EXPECT_EQ(bytes_of_file(folder / "a.so"), bytes_of_file(folder / "b.so"));
    const auto loaded = artifact::load_model_file(folder / "a.so").model;
    const std::vector<Tensor> inputs = given.empty() ? random_inputs(first->inputs()) : given;
    Session a(first, 2), b(loaded, 2);
    EXPECT_EQ(a.run(inputs), b.run(inputs));
    EXPECT_EQ(a.run(inputs), b.run(inputs));
    EXPECT_EQ(a.last_flops(), b.last_flops());
}

struct ZooCase {
    const char* name;
    ZooSettings settings;
};
void PrintTo(const ZooCase& c, std::ostream* to) { *to << c.name; }

class ZooFile : public testing::TestWithParam<ZooCase> {};

TEST_P(ZooFile, RunsAsTheModel) {
    const ZooModel model = build_zoo_model(GetParam().name, 0, GetParam().settings);
    expect_same_from_file(load_model_from_bytes(model.bytes.data(), model.bytes.size()), {});
}

INSTANTIATE_TEST_SUITE_P(
    All, ZooFile,
    testing::Values(ZooCase{"mlp", {}}, ZooCase{"attention", {{"heads", 2}, {"m", 9}, {"n", 12}}},
                    ZooCase{"resnet18", {{"size", 64}}}, ZooCase{"mobilenet_v2", {{"size", 32}}},
                    ZooCase{"gpt2_tiny", {}}, ZooCase{"bert_tiny_dyn", {}}, ZooCase{"vit_tiny_16", {{"size", 32}}},
                    ZooCase{"efficientvit_b1", {{"size", 32}}}, ZooCase{"segformer_b0", {{"size", 64}}},
                    ZooCase{"lstm_tagger", {{"embedding", 16}, {"hidden", 16}}},
                    ZooCase{"gru_tagger", {{"embedding", 16}, {"hidden", 16}}}, ZooCase{"wavenet", {{"samples", 16}}},
                    ZooCase{"c3d_small", {{"size", 16}, {"frames", 8}}}),
    [](const auto& test) { return std::string(test.param.name); });

/// All with TILEWRIGHT_LONG_TESTS, else the small ones.
std::vector<std::string> real_models() {
    const uintmax_t largest = std::getenv("TILEWRIGHT_LONG_TESTS") != nullptr ? UINTMAX_MAX : 600'000;
    const std::filesystem::path folder = std::filesystem::path(TW_SOURCE_DIR) / "../shared/models/real";
    std::vector<std::string> out;
    if (!std::filesystem::exists(folder)) return out;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
        if (const auto model = entry.path() / "model.onnx";
            std::filesystem::exists(model) && std::filesystem::file_size(model) <= largest)
            out.push_back(entry.path());
    std::sort(out.begin(), out.end());
    return out;
}

class RealModelFile : public testing::TestWithParam<std::string> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RealModelFile);

TEST_P(RealModelFile, RunsAsTheModel) {
    const std::vector<Tensor> inputs = load_numbered(GetParam() + "/test_data_set_0", "input");
    expect_same_from_file(load_model(GetParam() + "/model.onnx"), inputs);
}

INSTANTIATE_TEST_SUITE_P(All, RealModelFile, testing::ValuesIn(real_models()),
                         [](const auto& test) { return std::filesystem::path(test.param).filename().string(); });

}  // namespace
}  // namespace tilewright
