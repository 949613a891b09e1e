// What cuBLASLt and cuDNN are offered of whole models for a GPU, of all products, convolutions and attentions of the
// program, and why not the others. A kernel is offered with its whole epilogue, so that fusion hides products whose
// epilogue no library has: most of MobileNetV2's. A kernel of several stages is no form of a library but for
// attentions.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compile/library_offers_test.h"
#include "driver/zoo/skeleton_test.h"

namespace tilewright {
namespace {

struct OfferedModel {
    std::string name;
    Precision precision;
    int all;                             ///< sums of products; two for each attention
    std::map<std::string, int> refused;  ///< of these, by the reason; the others are offered
    std::map<std::string, int64_t> dims = {};
};

std::ostream& operator<<(std::ostream& out, const OfferedModel& m) { return out << m.name; }

class LibraryOffers : public testing::TestWithParam<OfferedModel> {};

TEST_P(LibraryOffers, AreAllSumsOfProductsButForTheseReasons) {
    const OfferedModel& m = GetParam();
    const auto path = test::kSharedModels / "suite/skeletons" / (m.name + ".onnx");
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path;
    PipelineOptions o;
    o.compile.gpu = h200();
    o.compile.gpu_libraries = true;
    o.compile.precision = m.precision;
    o.compile.code = false;
    o.compile.dims = m.dims;
    o.rewrite.reset();  // (they take most of the time)
    const test::LibraryOffers found = test::count_offers(*compile_model(test::from_skeleton(path), o).model);
    EXPECT_EQ(found.all, m.all);
    EXPECT_EQ(found.refused, m.refused);
    int refused = 0;
    for (const auto& [reason, count] : m.refused) refused += count;
    EXPECT_EQ(found.offered, m.all - refused);
}

constexpr const char* kTypes = "operands of different types";
constexpr const char* kBiasType = "a bias of another type than the result";
constexpr const char* kActivation = "an activation other than relu and gelu by tanh";
constexpr const char* kEpilogue = "an epilogue operand other than one bias";
constexpr const char* kOther = "its epilogue is not a sum followed by a NaN-propagating activation";
constexpr const char* kBroadcast = "an operand that is broadcast over the batch";
constexpr const char* kStages = "several stages";

// kTypes: the model's input, which a product on matrix instructions rounds as it reads it. kBiasType: a bias of f32 and
// a result of 16 bits. kActivation: GELU by erf, tanh. kEpilogue: residuals, which no product of cuBLASLt adds here.
// kOther: Clip. kBroadcast: projections whose results are cut into heads. kStages: attentions in f32, of which cuDNN
// has none, and depthwise convolutions that share a kernel with what is in front.
INSTANTIATE_TEST_SUITE_P(
    All, LibraryOffers,
    testing::Values(
        OfferedModel{"resnet18", Precision::TF32, 21, {}}, OfferedModel{"resnet18", Precision::F16, 21, {{kTypes, 1}}},
        OfferedModel{"mobilenet_v2",
                     Precision::F16,
                     53,
                     {{kBiasType, 6}, {kEpilogue, 10}, {kOther, 34}, {kTypes, 1}, {kStages, 2}}},
        OfferedModel{
            "bert_small", Precision::F16, 33, {{kActivation, 4}, {kEpilogue, 8}, {kBroadcast, 12}, {kTypes, 1}}},
        OfferedModel{
            "bert_small", Precision::TF32, 33, {{kActivation, 5}, {kEpilogue, 8}, {kBroadcast, 12}, {kStages, 8}}},
        OfferedModel{
            "vit_b_16", Precision::F16, 74, {{kBiasType, 12}, {kActivation, 12}, {kEpilogue, 24}, {kTypes, 2}}},
        OfferedModel{"vit_b_16", Precision::TF32, 74, {{kActivation, 12}, {kEpilogue, 24}, {kStages, 24}}}),
    [](const auto& test) { return test.param.name + "_" + std::string(to_string(test.param.precision)); });

}  // namespace
}  // namespace tilewright
