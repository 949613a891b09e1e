// Attentions of whole models on a GPU: how many become one kernel, and of which instructions. Models of the zoo, and
// those of ../shared where it is: skeletons of exported models (fill_weights.py in their folder says how they are
// completed) and models with trained weights.

#include <gtest/gtest.h>

#include <map>

#include "compile/attention_count_test.h"
#include "driver/zoo/skeleton_test.h"
#include "driver/zoo/zoo.h"
#include "graph/import.h"

namespace tilewright {
namespace {

/// A model, and what becomes of its attentions in f16, bf16 and tf32.
struct AttentionModel {
    std::string name;
    int attentions;                            ///< each is one kernel on matrix instructions
    int warpgroups;                            ///< of these, on warpgroup instructions, at least
    std::map<std::string, int64_t> dims = {};  ///< of dynamic dimensions
};

std::ostream& operator<<(std::ostream& out, const AttentionModel& m) { return out << m.name; }

void expect_fused(const Model& model, const AttentionModel& of) {
    for (const Precision precision : {Precision::F16, Precision::BF16, Precision::TF32}) {
        SCOPED_TRACE(to_string(precision));
        PipelineOptions o;
        o.compile.gpu = h200();
        o.compile.precision = precision;
        o.compile.code = false;
        o.compile.dims = of.dims;
        o.rewrite.reset();  // (they take most of the time)
        const test::AttentionCount found = test::count_attentions(*compile_model(model, o).model);
        EXPECT_EQ(found.fused, of.attentions) << found.why;
        EXPECT_GE(found.warpgroups, of.warpgroups) << found.why;
    }
}

class SuiteAttentions : public testing::TestWithParam<AttentionModel> {};

TEST_P(SuiteAttentions, AreOneKernelEach) {
    const auto path = test::kSharedModels / "suite/skeletons" / (GetParam().name + ".onnx");
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path;
    expect_fused(test::from_skeleton(path), GetParam());
}

std::string name_of(const testing::TestParamInfo<AttentionModel>& test) {
    return test.param.name + (test.param.dims.empty() ? "" : "_of_known_size");
}

// (Heads of bert_tiny are 26 numbers wide: no whole units of 16 bytes. Windows of swin_t have 49 rows, of 64 that a
// warpgroup takes. The values of gpt2_small_dyn are rows of all examples in one dimension, which a warpgroup's copies
// would read beyond the end of an example.)
INSTANTIATE_TEST_SUITE_P(All, SuiteAttentions,
                         testing::Values(AttentionModel{"bert_tiny", 4, 0}, AttentionModel{"bert_small", 4, 4},
                                         AttentionModel{"bert_small_dyn", 4, 4, {{"batch", 1}, {"seq", 128}}},
                                         AttentionModel{"bert_tiny_dyn", 4, 0}, AttentionModel{"bert_small_dyn", 4, 4},
                                         AttentionModel{"vit_b_16", 12, 12},
                                         AttentionModel{"gpt2_small_dyn", 12, 12, {{"batch", 1}, {"seq", 128}}},
                                         AttentionModel{"swin_t", 12, 0}, AttentionModel{"gpt2_small_dyn", 12, 0},
                                         AttentionModel{"segformer_b0", 8, 8}),
                         name_of);

class RealAttentions : public testing::TestWithParam<AttentionModel> {};

TEST_P(RealAttentions, AreOneKernelEach) {
    const auto path = test::kSharedModels / "real" / GetParam().name / "model.onnx";
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path;
    expect_fused(load_model(path), GetParam());
}

// (The positions of tashkeel are products of their own, in front of its attentions.)
INSTANTIATE_TEST_SUITE_P(All, RealAttentions,
                         testing::Values(AttentionModel{"vittrack", 3, 3}, AttentionModel{"tashkeel", 6, 0},
                                         AttentionModel{"tashkeel", 6, 0, {{"batch", 1}, {"seq", 48}}}),
                         name_of);

class ZooAttentions : public testing::TestWithParam<AttentionModel> {};

TEST_P(ZooAttentions, AreOneKernelEach) {
    const ZooModel model = build_zoo_model(GetParam().name, 0, {});
    expect_fused(load_model_from_bytes(model.bytes.data(), model.bytes.size()), GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, ZooAttentions,
                         testing::Values(AttentionModel{"bert_small", 4, 4}, AttentionModel{"vit_tiny_16", 12, 0}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tilewright
