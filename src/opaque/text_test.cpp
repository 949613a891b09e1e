#include "opaque/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace tilewright {
namespace {

TEST(OpaqueText, GivesTheOperatorWhoseTextItIs) {
    for (const char* text :
         {"TopK(axis=1, largest=0)",
          "NonZero()",
          "Compress(axis=2)",
          "Unique(axis=0, sorted=1)",
          "NonMaxSuppression(center_point_box=1)",
          "Det()",
          "DFT(axis=-2, inverse=1, onesided=0)",
          "DFT(inverse=0, onesided=1)",
          "STFT(onesided=1)",
          "MelWeightMatrix()",
          "GridSample(mode=cubic, padding_mode=reflection, align_corners=1)",
          "RoiAlign(mode=max, output_height=3, output_width=5, sampling_ratio=2, spatial_scale=0.0625, half_pixel=0)",
          "DeformedColumns(kernel_shape=[3, 3], strides=[1, 2], dilations=[1, 1], pads=[0, 1, 0, 1], offset_group=2)",
          "Col2Im(strides=[1, 1], dilations=[1, 2], pads=[0, 0, 1, 1])",
          "Cast(to=f8e8m0, saturate=1, round_mode=nearest)",
          "Cast(to=f8e5m2, saturate=0)",
          "BitCast(to=i32)",
          "ScatterElements(axis=1, reduction=mul)",
          "ScatterND(reduction=none)",
          "Append()",
          "Reduce(kind=log_of_sum, keepdims=1, noop_with_empty_axes=0)",
          "CumSum(exclusive=1, reverse=0)",
          "CumProd(exclusive=0, reverse=1)",
          "ResizeTable(mode=2, coordinates=6, nearest=4, policy=1, a=-0.75, exclude_outside=1, antialias=0, "
          "by_sizes=1, "
          "position=3, weights=f32)",
          "MaxUnpool(rank=4)",
          "CheckedValues(node=\"node 'a, b' (Gather)\", what=index)",
          "RequireCondition(wanted=1, message=\"a \\\"branch\\\"\\nis missing, (really)\")"}) {
        const auto op = opaque_op(text);
        ASSERT_NE(op, nullptr) << text;
        EXPECT_EQ(op->print(), text);
    }
}

TEST(OpaqueText, OfAnotherNameHasNoOperator) { EXPECT_EQ(opaque_op("Kernel(a=1)"), nullptr); }

TEST(OpaqueText, WithWrongAttributesIsRefused) {
    for (const char* text :
         {"", "TopK", "TopK(", "TopK(axis=1", "TopK(axis=1)", "TopK(axis=1, largest=)", "TopK(axis=x, largest=1)",
          "TopK(axis=1, axis=1, largest=1)", "TopK(axis=1, largest=1) x", "ScatterND(reduction=divide)",
          "BitCast(to=f31)", "Col2Im(strides=[1, dilations=1, pads=1)",
          "ResizeTable(mode=3, coordinates=0, nearest=0, policy=0, a=1, exclude_outside=0, "
          "antialias=0, by_sizes=0, position=0, weights=f32)"})
        EXPECT_THROW(opaque_op(text), ModelError) << text;
}

}  // namespace
}  // namespace tilewright
