// Attentions as models write them, on a GPU with warpgroup instructions: whatever the mask, the operator and the type,
// both products are in one kernel, on warpgroups, and the stages of that kernel are an attention to the libraries.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compile/attention_count_test.h"
#include "compile/attention_models_test.h"

namespace tilewright {
namespace {

using test::Form;
using test::Mask;
using test::Written;

struct Attention {
    Written written;
    bool offered = true;  ///< libraries have a form for it
};

const Attention kAttentions[] = {
    {{"no mask", Form::Decomposed, Mask::None}},
    {{"padding", Form::Decomposed, Mask::Padding}},
    {{"relative positions", Form::Decomposed, Mask::Added}},
    {{"selected", Form::Decomposed, Mask::Selected}},
    {{"a triangle that is added", Form::Decomposed, Mask::Constant}},
    {{"a triangle", Form::Decomposed, Mask::Causal}},
    {{"projections, padding", Form::Decomposed, Mask::Padding, true}},
    {{"projections, a triangle", Form::Decomposed, Mask::Causal, true}},
    {{"197 tokens", Form::Decomposed, Mask::None, false, {1, 12, 197, 197, 64}}},
    {{"77 tokens", Form::Decomposed, Mask::Padding, false, {2, 8, 77, 77, 64}}},
    {{"77 tokens, projections", Form::Decomposed, Mask::Padding, true, {2, 8, 77, 77, 64}}},
    {{"80 channels", Form::Decomposed, Mask::None, false, {1, 16, 256, 256, 80}}},
    {{"shared heads", Form::Decomposed, Mask::Padding, false, {1, 8, 256, 256, 64, 4}}},
    {{"shared heads, projections", Form::Decomposed, Mask::Causal, true, {1, 9, 128, 128, 64, 3}}},
    {{"operator", Form::Operator, Mask::None}},
    // (Rows of which a mask leaves nothing are 0 by the operator.)
    {{"operator, a mask of numbers", Form::Operator, Mask::Added}, false},
    {{"operator, a mask of booleans", Form::Operator, Mask::Selected}, false},
    {{"operator, causal", Form::Operator, Mask::Causal}},
    {{"operator, 80 channels", Form::Operator, Mask::None, false, {1, 16, 256, 256, 80}}},
    {{"operator, softcap", Form::Operator, Mask::Causal, false, {}, 30}, false},
    {{"operator, shared heads", Form::Operator, Mask::None, false, {1, 8, 256, 256, 64, 4}}},
    {{"operator, shared heads, causal", Form::Operator, Mask::Causal, false, {1, 8, 256, 256, 64, 2}}},
    {{"operator, shared heads, booleans", Form::Operator, Mask::Selected, false, {1, 8, 256, 256, 64, 4}}, false},
    {{"packed", Form::Packed, Mask::None}},
    {{"packed, causal", Form::Packed, Mask::Causal}},
    {{"packed, shared heads, booleans", Form::Packed, Mask::Selected, false, {1, 9, 128, 128, 64, 3}}, false},
    {{"packed, shared heads, projections", Form::Packed, Mask::Causal, true, {1, 9, 128, 128, 64, 3}}},
};

struct Typed {
    DType stored;
    Precision precision;
};
const Typed kTyped[] = {{DType::F32, Precision::F16},  {DType::F32, Precision::BF16}, {DType::F32, Precision::TF32},
                        {DType::F16, Precision::F32},  {DType::BF16, Precision::F32}, {DType::F16, Precision::F16},
                        {DType::BF16, Precision::BF16}};

TEST(GpuAttention, IsOneKernelOnWarpgroupsThatLibrariesHaveAFormFor) {
    for (const auto& [w, offered] : kAttentions)
        for (const Typed& t : kTyped) {
            SCOPED_TRACE(fmt::format("{}: {} by {}", w.name, to_string(t.stored), to_string(t.precision)));
            PipelineOptions o;
            o.compile.gpu = h200();
            o.compile.precision = t.precision;
            o.compile.code = false;
            o.rewrite.reset();  // (they double the time of this test)
            const Compilation c = compile_model(test::Exporter(w, t.stored).run(), o);
            const test::AttentionCount found = test::count_attentions(*c.model);
            EXPECT_EQ(found.kernels, 1) << found.why;
            EXPECT_EQ(found.warpgroups, 1) << found.why;
            // Attentions of libraries have operands and results of one type of 16 bits. (In f32 this plan is row-major:
            // the keys of a projection lie along the tokens, which is none of cuDNN's.)
            const bool narrow = t.stored != DType::F32 && !(w.projected && t.precision == Precision::F32);
            if (narrow) {
                EXPECT_EQ(found.offered, offered ? 1 : 0) << found.why;
            }
        }
}

}  // namespace
}  // namespace tilewright
