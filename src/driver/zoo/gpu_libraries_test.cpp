// What cuBLASLt and cuDNN are offered of whole models for a GPU, of all products, convolutions and attentions of the
// program: kernels as they are, or sums of them, with generated kernels for the rest; and why not the others.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compile/library_offers_test.h"
#include "driver/zoo/skeleton_test.h"

namespace tilewright {
namespace {

struct OfferedModel {
    std::string name;
    Precision precision;
    int all;                                  ///< sums of products; two for each attention
    int whole;                                ///< of these, in kernels that are offered as they are
    int graphs;                               ///< products that cuDNN is offered as a graph with what follows
    std::map<std::string, int> refused = {};  ///< by the reason; the others are offered as parts
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
    EXPECT_EQ(found.whole, m.whole);
    EXPECT_EQ(found.graphs, m.graphs);
    EXPECT_EQ(found.refused, m.refused);
    int refused = 0;
    for (const auto& [reason, count] : m.refused) refused += count;
    EXPECT_EQ(found.parts, m.all - m.whole - refused);
}

INSTANTIATE_TEST_SUITE_P(
    All, LibraryOffers,
    testing::Values(
        OfferedModel{"resnet18", Precision::TF32, 21, 21, 4}, OfferedModel{"resnet18", Precision::F16, 21, 20, 3},
        OfferedModel{"resnet18", Precision::BF16, 21, 20, 3}, OfferedModel{"mobilenet_v2", Precision::TF32, 53, 34, 34},
        OfferedModel{"mobilenet_v2", Precision::F16, 53, 16, 30},
        OfferedModel{"mobilenet_v2", Precision::BF16, 53, 16, 30},
        OfferedModel{"bert_small", Precision::TF32, 33, 8, 25}, OfferedModel{"bert_small", Precision::F16, 33, 8, 24},
        OfferedModel{"bert_small", Precision::BF16, 33, 8, 24}, OfferedModel{"vit_b_16", Precision::TF32, 74, 38, 49},
        OfferedModel{"vit_b_16", Precision::F16, 74, 48, 48}, OfferedModel{"vit_b_16", Precision::BF16, 74, 48, 48},
        // Attentions of windows, clips and gates; transposed convolutions.
        OfferedModel{"swin_t", Precision::TF32, 77, 19, 32},
        OfferedModel{"efficientnet_b0", Precision::F16, 82, 18, 62},
        OfferedModel{"dcgan_generator", Precision::F16, 5, 1, 0},
        OfferedModel{"dcgan_generator", Precision::TF32, 5, 1, 0},
        OfferedModel{"efficientvit_b1", Precision::TF32, 90, 38, 31},
        // Dynamic sizes are those that are assumed.
        OfferedModel{"bert_small_dyn", Precision::TF32, 33, 8, 13},
        OfferedModel{"bert_small_dyn", Precision::F16, 33, 8, 13},
        OfferedModel{"gpt2_small_dyn", Precision::TF32, 73, 49, 49},
        OfferedModel{"gpt2_small_dyn", Precision::F16, 73, 25, 49}),
    [](const auto& test) { return test.param.name + "_" + std::string(to_string(test.param.precision)); });

}  // namespace
}  // namespace tilewright
