// Convolutions read contiguous channels, and products read packed weights.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cost/target_with_test.h"
#include "orchestrate/fuse.h"
#include "orchestrate/layouts.h"
#include "orchestrate/program_test.h"

namespace tilewright {
namespace {

using namespace test;
using testing::HasSubstr;

Target avx2(int64_t l2_bytes = 1 << 20, int lanes = 8) {
    return target_with({.lanes = lanes, .vector_registers = 16, .l2_bytes = l2_bytes});
}

/// Two 1 x 1 convolutions with an elementwise expression between them: [2, 16, 6, 6] -> `channels` -> 16.
Program convolutions(int channels) {
    return with_weights(fmt::format(R"(program convolutions {{
  input x: f32[2, 16, 6, 6]
  input w0: f32[{0}, 16]
  input w1: f32[16, {0}]
  c: f32[2, {0}, 6, 6] = [2, {0}, 6, 6] sum(i4 < 16) mul(@0, @1) where @0 = x[i0, i4, i2, i3], @1 = w0[i1, i4]
  r: f32[2, {0}, 6, 6] = [2, {0}, 6, 6] max(@0, 0.0) where @0 = c[i0, i1, i2, i3]
  y: f32[2, 16, 6, 6] = [2, 16, 6, 6] sum(i4 < {0}) mul(@0, @1) where @0 = r[i0, i4, i2, i3], @1 = w1[i1, i4]
  output y
}})",
                                    channels));
}

TEST(AssignLayouts, of_convolutions_put_channels_last) {
    const Program before = convolutions(24), after = assign_layouts(before, avx2());
    EXPECT_EQ(shape_of(after, "c"), "[2, 6, 6, 24]");
    EXPECT_EQ(shape_of(after, "r"), "[2, 6, 6, 24]");  // propagated through an expression that keeps the channels
    expect_same(before, after);
}

Target on_gpu() {
    Target t = avx2();
    t.gpu = h200();
    return t;
}
Program laid_out_on_gpu(const Program& program, Precision precision) {
    const ChosenLayouts chosen = choose_layouts(program, on_gpu());
    return lay_out(chosen.program, chosen.values, on_gpu(), {.precision = precision});
}

/// WGMMA reads tf32 along the sum alone, and cuDNN's fast convolutions channels last.
TEST(AssignLayouts, on_a_gpu_put_channels_last_in_one_block_and_weights_along_the_sum) {
    const Program before = convolutions(1024), after = laid_out_on_gpu(before, Precision::TF32);
    EXPECT_EQ(shape_of(after, "c"), "[2, 6, 6, 1024]");
    expect_same(before, after);
    const Program product = with_weights(R"(program product {
  input x: f32[64, 48]
  input w0: f32[48, 40]
  y: f32[64, 40] = [64, 40] sum(i2 < 48) mul(@0, @1) where @0 = x[i0, i2], @1 = w0[i2, i1]
  output y
})");
    const Program packed = laid_out_on_gpu(product, Precision::TF32);
    EXPECT_THAT(print(packed), HasSubstr("[i1, i2]"));
    expect_same(product, packed);
    EXPECT_THAT(print(laid_out_on_gpu(product, Precision::F32)), HasSubstr("w0[i2, i1]"));  // no matrix instructions
}

// --- store_at

Program stored_biases(const Program& program) {
    const ChosenLayouts chosen = choose_layouts(program, avx2());
    return lay_out(chosen.program, chosen.values, avx2(), {.store_biases = true});
}

size_t constants_of(const Program& program) { return program.constants.size(); }

/// w0[64, 40] and w1[40] -> [40 / 8, 64 + 1, 8]: ALT §4.1.2, example of store_at.
TEST(StoreBiases, a_bias_is_the_row_behind_each_panel_of_its_weights) {
    const Program before = with_weights(R"(program product {
  input x: f32[32, 64]
  input w0: f32[64, 40]
  input w1: f32[40]
  y: f32[32, 40] = [32, 40] sum(i2 < 64) mul(@0, @1) then max(add(acc, @2), 0.0) where @0 = x[i0, i2], @1 = w0[i2, i1], @2 = w1[i1]
  output y
})");
    const Program after = stored_biases(before);
    expect_same(before, after);
    EXPECT_EQ(constants_of(after), 1U) << print(after);
    EXPECT_THAT(print(after), HasSubstr("65, "));
    EXPECT_THAT(print(after), HasSubstr("64, i1 % "));
    EXPECT_EQ(constants_of(assign_layouts(before, avx2())), 2U) << "the heuristic leaves it where it is";
}

/// Windows have one row for all taps and channels.
TEST(StoreBiases, the_bias_of_a_convolution_is_behind_all_of_its_taps) {
    const Program before = with_weights(R"(program convolution {
  input x: f32[1, 16, 12, 12]
  input w0: f32[32, 16, 3, 3]
  input w1: f32[32]
  y: f32[1, 32, 10, 10] = [1, 32, 10, 10] sum(i4 < 16, i5 < 3, i6 < 3) mul(@0, @1) then add(acc, @2) where @0 = x[i0, i4, i2 + i5, i3 + i6], @1 = w0[i1, i4, i5, i6], @2 = w1[i1]
  output y
})");
    const Program after = stored_biases(before);
    expect_same(before, after);
    EXPECT_EQ(constants_of(after), 1U) << print(after);
    EXPECT_THAT(print(after), HasSubstr("145, ")) << "16 x 3 x 3 and one";
}

/// Panels of these weights are not numbered by their columns alone: [1, 40 / 8, 64, 8], and one for each of two
/// products.
TEST(StoreBiases, weights_with_further_dimensions_keep_their_bias_apart) {
    for (const int batch : {1, 2}) {
        const Program before = with_weights(fmt::format(R"(program product {{
  input x: f32[{0}, 32, 64]
  input w0: f32[{0}, 64, 40]
  input w1: f32[40]
  y: f32[{0}, 32, 40] = [{0}, 32, 40] sum(i3 < 64) mul(@0, @1) then add(acc, @2) where @0 = x[i0, i1, i3], @1 = w0[i0, i3, i2], @2 = w1[i2]
  output y
}})",
                                                        batch));
        const Program after = stored_biases(before);
        expect_same(before, after);
        EXPECT_EQ(constants_of(after), 2U) << print(after);
    }
}

TEST(StoreBiases, what_others_read_or_what_is_no_bias_stays) {
    const auto constants = [](const char* tail, const char* bias) {
        return constants_of(stored_biases(with_weights(fmt::format(R"(program product {{
  input x: f32[32, 64]
  input w0: f32[64, 40]
  input w1: f32[{1}]
  y: f32[32, 40] = [32, 40] sum(i2 < 64) mul(@0, @1) then add(acc, @2) where @0 = x[i0, i2], @1 = w0[i2, i1], @2 = w1[{2}]
{0}  output y
}})",
                                                                   tail, std::string(bias) == "i1" ? 40 : 32, bias))));
    };
    EXPECT_EQ(constants("", "i1"), 1U);
    EXPECT_EQ(constants("", "i0"), 2U) << "a number for each row";
    EXPECT_EQ(constants("  z: f32[32, 40] = [32, 40] sum(i2 < 64) mul(@0, @1) where @0 = x[i0, i2], @1 = w0[i2, i1]\n"
                        "  output z\n",
                        "i1"),
              2U)
        << "weights with two readers";
}

TEST(AssignLayouts, on_a_gpu_keep_planes_that_are_normalised_pixel_by_pixel) {
    const Program before = with_weights(R"(program normalised {
  input x: f32[1, 16, 40, 40]
  input w0: f32[24, 16]
  c: f32[1, 24, 40, 40] = [1, 24, 40, 40] sum(i4 < 16) mul(@0, @1) where @0 = x[i0, i4, i2, i3], @1 = w0[i1, i4]
  s: f32[1, 24, 1, 1] = [1, 24, 1, 1] sum(i4 < 40, i5 < 40) @0 where @0 = c[i0, i1, i4, i5]
  y: f32[1, 24, 40, 40] = [1, 24, 40, 40] sub(@0, @1) where @0 = c[i0, i1, i2, i3], @1 = s[i0, i1, 0, 0]
  output y
})");
    EXPECT_EQ(shape_of(laid_out_on_gpu(before, Precision::TF32), "c"), "[1, 24, 40, 40]");
    EXPECT_EQ(shape_of(assign_layouts(before, avx2()), "c"), "[1, 40, 40, 24]");
}

TEST(AssignLayouts, of_many_channels_are_blocks_of_512) {
    const Program before = convolutions(1024), after = assign_layouts(before, avx2());
    EXPECT_EQ(shape_of(after, "c"), "[2, 2, 6, 6, 512]");
    EXPECT_EQ(shape_of(after, "r"), "[2, 2, 6, 6, 512]");
    expect_same(before, after);
    EXPECT_EQ(shape_of(assign_layouts(convolutions(512), avx2()), "c"), "[2, 6, 6, 512]");
}

/// Winograd's last product, with a few numbers that are the same for all channels. Two of them are concatenated, as in
/// DenseNet, where no other primitive has a preferred layout.
TEST(AssignLayouts, channels_stay_together_where_the_weights_know_nothing_of_them) {
    const Program before = with_weights(R"(program winograd {
  input x: f32[16, 8, 3, 3]
  input w0: f32[24, 8]
  input w1: f32[2, 2, 16]
  m: f32[16, 24, 3, 3] = [16, 24, 3, 3] sum(i4 < 8) mul(@0, @1) where @0 = x[i0, i4, i2, i3], @1 = w0[i1, i4]
  y: f32[1, 24, 6, 6] = [1, 24, 6, 6] sum(i4 < 16) mul(@0, @1) where @0 = w1[i2 % 2, i3 % 2, i4], @1 = m[i4, i1, i2 // 2, i3 // 2]
  z: f32[1, 48, 6, 6] = [1, 48, 6, 6] select(lt(index(i1 - 24), 0), @0, @1) where @0 = y[i0, i1, i2, i3] when -i1 + 23 >= 0 else 0, @1 = y[i0, i1 - 24, i2, i3] when i1 - 24 >= 0 else 0
  output z
})");
    const Program after = assign_layouts(before, avx2());
    EXPECT_EQ(shape_of(after, "m"), "[16, 3, 3, 24]");
    EXPECT_EQ(shape_of(after, "y"), "[1, 6, 6, 24]");
    expect_same(before, after);
}

/// F(2, 3) along rows of 32 pixels, between input and output: 32 channels in 16 x 16 tiles. Half of the cache holds two
/// rows of tiles with their four transform rows.
TEST(AssignLayouts, of_tiles_have_the_rows_of_a_map_together_and_channels_last) {
    const Program before = with_weights(TiledConvolution().text());
    const Program small = assign_layouts(before, avx2(32 << 10));
    EXPECT_EQ(shape_of(small, "v"), "[8, 4, 2, 16, 32]");
    EXPECT_EQ(shape_of(small, "m"), "[8, 4, 2, 16, 24]");
    EXPECT_EQ(shape_of(small, "x/channels"), "[16, 34, 32]");
    EXPECT_EQ(shape_of(small, "y/channels"), "[16, 32, 24]");
    expect_same(before, small);
    const Program large = assign_layouts(before, avx2(4 << 20));
    EXPECT_EQ(shape_of(large, "v"), "[4, 16, 16, 32]");
    expect_same(before, large);
}

/// Many channels are split into blocks of 512 here as well.
TEST(AssignLayouts, of_tiles_have_blocks_of_channels) {
    TiledConvolution convolution;
    convolution.channels = 1024;
    convolution.results = 16;
    convolution.rows = convolution.tiles = 4;
    const Program before = with_weights(convolution.text());
    const Program after = assign_layouts(before, avx2(64 << 10));
    EXPECT_EQ(shape_of(after, "v"), "[4, 2, 4, 2, 2, 512]");
    expect_same(before, after);
}

/// Two convolutions of one image, multiplied as one: each reads back its part of the channels.
TEST(AssignLayouts, parts_of_channels_keep_them_together) {
    const Program before = with_weights(R"(program winograd {
  input x: f32[5, 8, 3]
  input w0: f32[48, 8]
  m: f32[5, 48, 3] = [5, 48, 3] sum(i3 < 8) mul(@0, @1) where @0 = x[i0, i3, i2], @1 = w0[i1, i3]
  y: f32[24, 12] = [24, 12] sum(i2 < 5) weigh(table{1, 1, 1, 1, 0, 0, 1, -1, 2, 0, 0, 1, 1, 4, 0, 0, 1, -1, 8, 1}(index(5*(i1 % 4) + i2)), @0) where @0 = m[i2, i0, i1 // 4]
  z: f32[24, 12] = [24, 12] sum(i2 < 5) weigh(table{1, 1, 1, 1, 0, 0, 1, -1, 2, 0, 0, 1, 1, 4, 0, 0, 1, -1, 8, 1}(index(5*(i1 % 4) + i2)), @0) where @0 = m[i2, i0 + 24, i1 // 4]
  out: f32[24, 12] = [24, 12] mul(@0, @1) where @0 = y[i0, i1], @1 = z[i0, i1]
  output out
})");
    const Program after = assign_layouts(before, avx2());
    EXPECT_EQ(shape_of(after, "m"), "[5, 3, 48]");
    EXPECT_EQ(shape_of(after, "y"), "[12, 24]");
    EXPECT_EQ(shape_of(after, "z"), "[12, 24]");
    expect_same(before, after);
}

/// A model of one 3 x 3 window over 24 channels of pixels x pixels.
Program one_window(const std::string& expression, int stride, int pixels = 20) {
    const int out = (pixels - 3) / stride + 1;
    return with_weights(fmt::format(R"(program t {{
  input x: f32[1, 24, {3}, {3}]
  input w0: f32[32, 24, 3, 3]
  y: f32[1, {1}, {2}, {2}] = [1, {1}, {2}, {2}] {0}
  output y
}})",
                                    fmt::format(fmt::runtime(expression), stride),
                                    expression.find("mul") == std::string::npos ? 24 : 32, out, pixels));
}
constexpr const char* kConvolution =
    "sum(i4 < 24, i5 < 3, i6 < 3) mul(@0, @1) where @0 = x[i0, i4, {0}*i2 + i5, {0}*i3 + i6], @1 = w0[i1, i4, i5, i6]";
constexpr const char* kPool = "max(i4 < 3, i5 < 3) @0 where @0 = x[i0, i1, {0}*i2 + i4, {0}*i3 + i5]";

TEST(AssignLayouts, give_a_convolution_between_input_and_output_copies_with_channels_last) {
    const Program before = one_window(kConvolution, 1), after = assign_layouts(before, avx2());
    EXPECT_EQ(after.primitives.size(), 3u);
    EXPECT_EQ(shape_of(after, "x/channels"), "[1, 20, 20, 24]");
    EXPECT_EQ(shape_of(after, "y/channels"), "[1, 18, 18, 32]");
    expect_same(before, after);
}

TEST(AssignLayouts, give_a_pool_copies_only_where_vectors_cannot_walk_along_its_rows) {
    const Program strided = one_window(kPool, 2), after = assign_layouts(strided, avx2());
    EXPECT_EQ(shape_of(after, "x/channels"), "[1, 20, 20, 24]");
    EXPECT_EQ(shape_of(after, "y/channels"), "[1, 9, 9, 24]");
    expect_same(strided, after);
    EXPECT_EQ(assign_layouts(one_window(kPool, 1), avx2()).primitives.size(), 1u);       // rows of 18: two vectors
    EXPECT_EQ(assign_layouts(one_window(kPool, 2, 40), avx2()).primitives.size(), 1u);   // rows of 19, lanes two apart
    EXPECT_EQ(assign_layouts(one_window(kPool, 5, 100), avx2()).primitives.size(), 3u);  // rows of 20, but gathered
}

TEST(AssignLayouts, leave_inputs_and_outputs_as_the_model_declares_them) {
    const Program after = assign_layouts(convolutions(24), avx2());
    EXPECT_EQ(shape_of(after, "x"), "[2, 16, 6, 6]");
    EXPECT_EQ(shape_of(after, "y"), "[2, 16, 6, 6]");
}

TEST(AssignLayouts, pack_weights_in_the_order_of_the_micro_kernel_and_keep_no_second_copy) {
    const Program before = with_weights(R"(program product {
  input x: f32[48, 40]
  input w: f32[64, 40]
  y: f32[48, 64] = [48, 64] sum(i2 < 40) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i1, i2]
  output y
})");
    const Program after = assign_layouts(before, avx2());
    ASSERT_EQ(after.constants.size(), 1u);
    const ValueId packed = after.constants.begin()->first;
    // [64 / 16, 40, 16]: a block of columns, the reduction, and the columns of two vectors.
    EXPECT_EQ(to_string(std::span<const Expr>(after.values[packed].shape)), "[4, 40, 16]");
    const Tensor &w = before.constants.begin()->second, &p = after.constants.begin()->second;
    for (int64_t n = 0; n < 64; ++n)
        for (int64_t k = 0; k < 40; ++k) ASSERT_EQ(p.get((n / 16 * 40 + k) * 16 + n % 16), w.get(n * 40 + k));
    expect_same(before, after);
}

TEST(AssignLayouts, pack_weights_that_two_products_share_once) {
    const Program before = with_weights(R"(program shared {
  input x: f32[48, 40]
  input z: f32[48, 40]
  input w: f32[64, 40]
  a: f32[48, 64] = [48, 64] sum(i2 < 40) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i1, i2]
  b: f32[48, 64] = [48, 64] sum(i2 < 40) mul(@0, @1) where @0 = z[i0, i2], @1 = w[i1, i2]
  output a
  output b
})");
    const Program after = assign_layouts(before, avx2());
    EXPECT_EQ(after.constants.size(), 1u) << print(after);
    expect_same(before, after);
}

TEST(AssignLayouts, of_projections_into_heads_keep_the_width_of_a_head_last) {
    // q[head, row, width] has two axes that index columns of the weights; the contiguous one is the last dimension
    // already.
    const Program before = with_weights(R"(program heads {
  input x: f32[10, 48]
  input w: f32[48, 48]
  q: f32[3, 10, 16] = [3, 10, 16] sum(i3 < 48) mul(@0, @1) where @0 = x[i1, i3], @1 = w[i3, 16*i0 + i2]
  y: f32[3, 10, 16] = [3, 10, 16] exp(@0) where @0 = q[i0, i1, i2]
  output y
})");
    const Program after = assign_layouts(before, avx2());
    EXPECT_EQ(shape_of(after, "q"), "[3, 10, 16]");
    expect_same(before, after);
}

/// Concatenated slices of an input, as before a detector's first convolution.
TEST(AssignLayouts, of_copies_keep_planes_where_channels_fill_no_vector) {
    const auto layout = [](int channels) {
        const Program before = with_weights(fmt::format(R"(program focus {{
  input x: f32[1, {0}, 10, 5]
  input w: f32[16, {1}]
  s: f32[1, {1}, 5, 5] = [1, {1}, 5, 5] select(lt(index(i1 - {0}), 0), @0, @1) where @0 = x[i0, i1, 2*i2, i3] when -i1 + {0} - 1 >= 0 else 0, @1 = x[i0, i1 - {0}, 2*i2 + 1, i3] when i1 - {0} >= 0 else 0
  y: f32[1, 16, 5, 5] = [1, 16, 5, 5] sum(i4 < {1}) mul(@0, @1) where @0 = s[i0, i4, i2, i3], @1 = w[i1, i4]
  z: f32[1, 16, 5, 5] = [1, 16, 5, 5] max(@0, 0.0) where @0 = y[i0, i1, i2, i3]
  output z
}})",
                                                        channels, 2 * channels));
        const Program after = assign_layouts(before, avx2());
        expect_same(before, after);
        return shape_of(after, "s");
    };
    EXPECT_EQ(layout(3), "[1, 6, 5, 5]");
    EXPECT_EQ(layout(4), "[1, 5, 5, 8]");
}

TEST(AssignLayouts, of_matrix_products_keep_rows) {
    const Program before = with_weights(R"(program mlp {
  input x: f32[10, 48]
  input w0: f32[48, 64]
  input w1: f32[64, 48]
  h: f32[10, 64] = [10, 64] sum(i2 < 48) mul(@0, @1) where @0 = x[i0, i2], @1 = w0[i2, i1]
  y: f32[10, 48] = [10, 48] sum(i2 < 64) mul(@0, @1) where @0 = h[i0, i2], @1 = w1[i2, i1]
  output y
})");
    const Program after = assign_layouts(before, avx2());
    EXPECT_EQ(shape_of(after, "h"), "[10, 64]");
    expect_same(before, after);
}

TEST(AssignLayouts, keep_what_random_programs_compute) {
    for (uint64_t seed = 0; seed < 300; ++seed) {
        const Program before = random_program(seed, 2 + static_cast<int>(seed % 8));
        const Target target = avx2(1 << 20, seed % 2 == 0 ? 4 : 8);
        expect_same(before, assign_layouts(before, target), seed);
        expect_same(before, assign_layouts(fuse_greedily(before), target), seed);
    }
}

}  // namespace
}  // namespace tilewright
