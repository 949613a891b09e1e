// The reference execution of tile programs: its results and its errors.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "program/random_program.h"
#include "tile/examples_test.h"
#include "tile/tile.h"

namespace tilewright {
namespace {

using testing::HasSubstr;

void agrees(const std::string& text) {
    const TileProgram t = parse_tile_program(text);
    ASSERT_EQ(verify(t), std::vector<std::string>());
    for (uint64_t seed = 0; seed < 4; ++seed) {
        const std::vector<Tensor> inputs = random_inputs(t.stages, seed);
        EXPECT_LE(largest_difference(interpret(t.stages, inputs), interpret(t, inputs, {})), 1e-6);
    }
}

/// The error message with which the interpreter stops.
std::string refusal(const std::string& text) {
    const TileProgram t = parse_tile_program(text);
    try {
        interpret(t, random_inputs(t.stages, 1), {});
    } catch (const InternalError& e) {
        return e.what();
    }
    return "";
}

TEST(InterpretTiles, a_product_in_tiles_that_do_not_divide_it) { agrees(kGemm); }
TEST(InterpretTiles, a_chain_of_products_in_one_kernel) { agrees(kChain); }
TEST(InterpretTiles, a_softmax_over_rows_only_the_run_counts) { agrees(kSoftmax); }
TEST(InterpretTiles, a_convolution_whose_loads_make_the_padding) { agrees(kConvolution); }

TEST(InterpretTiles, sums_are_rounded_when_they_end_and_not_between) {
    // 1 + 2^-24 four times: rounding after every step would leave 1.
    const std::string text = R"TW(tile sum {
stages {
program sum {
  input x: f32[5]
  y: f32[] = [] sum(i0 < 5) @0 where @0 = x[i0]  ; y ""
  output y
}
}
axes k="5"
stage 0 over [k]
for k by 1 {
  compute 0 padding partition
}
}
)TW";
    const double small = 0x1p-24;
    const Tensor x = Tensor::of<double>(DType::F32, {5}, {1, small, small, small, small});
    EXPECT_EQ(interpret(parse_tile_program(text), {x}, {})[0].get(0), 1 + 0x1p-22);
}

TEST(InterpretTiles, parts_of_a_sum_are_added_before_the_epilogue) {
    std::string text = changed(kGemm, "    for k by 2", "    parallel k by 4 {\n    for k by 2");
    text = changed(text, "buffer c layout \"reorder(1, 0)\"\n", "");
    agrees(changed(text, "store c padding local\n", "store c padding local\n    }\n"));
}

TEST(InterpretTiles, scalars_come_from_the_bindings) {
    const std::string text = R"TW(tile rows {
stages {
program rows {
  input x: f32[8]
  y: f32[?n] = [?n] @0 where @0 = x[i0]  ; y ""
  output y
}
}
axes i="?n"
stage 0 over [i]
compute 0 padding partition
}
)TW";
    const TileProgram t = parse_tile_program(text);
    const Tensor x = Tensor::of<double>(DType::F32, {8}, {1, 2, 3, 4, 5, 6, 7, 8});
    const Bindings three = {{variables(scalar("n"))[0], 3}};
    EXPECT_EQ(interpret(t, {x}, three)[0], Tensor::of<double>(DType::F32, {3}, {1, 2, 3}));
    EXPECT_THROW(interpret(t, {x}, {}), InternalError);
}

// --- errors: programs that `verify` rejects, or that are wrong for these shapes only

TEST(InterpretTiles, reading_before_writing_names_statement_and_element) {
    const std::string text = changed(changed(kSoftmax, "  compute 1 padding partition\n", ""), "  for c by 1 {\n",
                                     "  compute 1 padding partition\n  for c by 1 {\n");
    EXPECT_THAT(refusal(text), HasSubstr("compute 2 at [row=0, c=0]: "));
    EXPECT_THAT(refusal(text), HasSubstr("element [0, 0] of the buffer of 'e' is read before it is written"));
}

TEST(InterpretTiles, reading_an_unfinished_sum) {
    // The second product moves inside the loop over k.
    std::string text = changed(kChain, "      }\n      load 1", "      load 1");
    text = changed(text, "      compute 1 order [m h n] padding partition\n",
                   "      compute 1 order [m h n] padding partition\n      }\n");
    EXPECT_THAT(refusal(text), HasSubstr("is read before its reduction ends"));
}

TEST(InterpretTiles, adding_to_what_is_gone) {
    // C's buffer lives inside the loop over k: the second step finds no partial sum.
    std::string text = changed(kGemm, "    }\n    store c padding local\n", "    store c padding local\n    }\n");
    EXPECT_THAT(refusal(text), HasSubstr("is read before its reduction ends"));
}

TEST(InterpretTiles, computing_an_element_twice) {
    const std::string text = changed(kSoftmax, "  for c by 1 {\n    compute 3 padding partition\n  }\n",
                                     "  compute 3 padding partition\n  compute 3 padding partition\n");
    EXPECT_THAT(refusal(text), HasSubstr("compute 3 at [row=0, c=0]: "));
    EXPECT_THAT(refusal(text), HasSubstr("element [0, 0] of 'y' is written twice"));
}

TEST(InterpretTiles, leaving_an_output_unwritten) {
    EXPECT_THAT(refusal(changed(kGemm, "    store c padding local\n",
                                "    for k by 4 {\n      store c padding local\n    }\n")),
                HasSubstr("element [0, 0] of 'c' is written twice"));
    const std::string sums =
        changed(changed(kGemm, "    store c padding local\n", ""), "buffer c layout \"reorder(1, 0)\"\n", "");
    agrees(sums);
    const std::string nothing = sums.substr(0, sums.find("parallel")) + "}\n";
    EXPECT_THAT(refusal(nothing), HasSubstr("element [0, 0] of 'c' is never written"));
}

TEST(InterpretTiles, reading_what_another_task_writes) {
    // Every task would read an element of its neighbour.
    const std::string text = R"TW(tile steps {
stages {
program steps {
  input x: f32[4]
  y: f32[4] = [4] @0 where @0 = x[i0]  ; y ""
  z: f32[4] = [4] @0 where @0 = y[-i0 + 3]  ; z ""
  output y, z
}
}
axes i="4"
stage 0 over [i]
stage 1 over [i]
parallel i by 1 {
  compute 0 padding partition
  compute 1 padding partition
}
}
)TW";
    EXPECT_THAT(refusal(text), HasSubstr("element [3] of 'y' is read before it is written"));
    EXPECT_THAT(refusal(changed(text, "  compute 0 padding partition\n  compute 1 padding partition\n",
                                "  compute 1 padding partition\n  compute 0 padding partition\n")),
                HasSubstr("element [3] of 'y' is read before it is written"));
    EXPECT_THAT(refusal(changed(text, "y[-i0 + 3]", "y[0]")),
                HasSubstr("element [0] of 'y' is read by task 2, but task 1 wrote it"));
}

// --- the three paddings

/// y = 2 x over 6 elements in tiles of 4; x and the output may be longer.
std::string copies(int x, const std::string& load, const std::string& micro, const std::string& rest = "") {
    return fmt::format(R"TW(tile copy {{
stages {{
program copy {{
  input x: f32[{}]
  t: f32[6] = [6] @0 where @0 = x[i0]  ; t ""
  y: f32[6] = [6] mul(@0, 2.0) where @0 = t[i0]  ; y ""
  output y
}}
}}
axes i="6"
stage 0 over [i]
stage 1 over [i]
{}for i by 4 {{
  load 0 access 0 layout "" padding {}
  compute 0 registers [i=4] padding {}
  compute 1 padding partition
}}
}}
)TW",
                       x, rest, load, micro);
}

TEST(Padding, local_fills_what_the_tensor_lacks) {
    agrees(copies(6, "local", "local"));
    agrees(copies(6, "local", "partition"));
}

TEST(Padding, partition_fetches_the_rest_alone) {
    agrees(copies(6, "partition", "partition"));
    // Register tiles without tail code read elements of the copy that were not loaded: harmless, since the buffer has
    // room for them.
    agrees(copies(6, "partition", "global"));
}

TEST(Padding, global_needs_a_tensor_of_whole_tiles) {
    agrees(copies(8, "global", "local"));
    agrees(copies(8, "global", "global"));
    EXPECT_THAT(refusal(copies(6, "global", "local")), HasSubstr("load 0 access 0 at []: internal error"));
    EXPECT_THAT(
        refusal(copies(6, "global", "local")),
        HasSubstr("element [6] of 'x' is read without a bounds check: the tensor [6] is not padded to whole tiles"));
    EXPECT_THAT(refusal(copies(7, "global", "local")), HasSubstr("element [7] of 'x' is read without a bounds check"));
}

TEST(Padding, global_register_tiles_need_room_for_operands_and_results) {
    // Without the copy the register tile reads x itself; the buffer of t has room for 4 elements, not for 8.
    const std::string direct =
        changed(copies(6, "local", "global"), "  load 0 access 0 layout \"\" padding local\n", "");
    EXPECT_THAT(refusal(direct), HasSubstr("compute 0 at [i=6]: access @0: "));
    EXPECT_THAT(refusal(direct), HasSubstr("element [6] of 'x' lies outside"));
    agrees(changed(direct, "x: f32[6]", "x: f32[8]"));
    EXPECT_THAT(refusal(changed(copies(16, "global", "global"), "registers [i=4]", "registers [i=8]")),
                HasSubstr("its register tiles reach into the next tile of i"));
    EXPECT_THAT(refusal(changed(changed(copies(16, "local", "global"), "registers [i=4]", "registers [i=8]"),
                                "for i by 4", "for i by 6")),
                HasSubstr("lies outside"));
}

TEST(Padding, a_global_store_needs_a_tensor_of_whole_tiles) {
    const std::string text = changed(copies(6, "local", "local"), "  compute 1 padding partition\n",
                                     "  compute 1 padding partition\n  store y padding global\n");
    EXPECT_THAT(
        refusal(text),
        HasSubstr("element [6] of 'y' is written without a bounds check: the tensor [6] is not padded to whole tiles"));
    agrees(changed(text, "for i by 4", "for i by 3"));
    agrees(changed(text, "store y padding global", "store y padding local"));
}

TEST(Padding, a_condition_fills_under_local_and_partition) {
    for (const char* padding : {"local", "partition"})
        agrees(changed(changed(copies(6, padding, "local"), "@0 where @0 = x[i0]",
                               "@0 where @0 = x[i0 - 2] when i0 - 2 >= 0 else 7"),
                       "registers [i=4]", "registers [i=3]"));
}

}  // namespace
}  // namespace tilewright
