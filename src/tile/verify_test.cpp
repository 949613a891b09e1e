// One invalid program for every invariant of tile programs.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tile/examples_test.h"
#include "tile/schedule_cases_test.h"
#include "tile/tile.h"

namespace tilewright {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

using Faults = std::vector<std::string>;

Faults faults(const std::string& text) { return verify(parse_tile_program(text)); }
/// The same for programs that have no text form.
template <class F>
Faults faults(const std::string& text, const F& change) {
    TileProgram t = parse_tile_program(text);
    change(t);
    return verify(t);
}

Compute& compute_of_gemm(TileProgram& t) {
    auto& m = std::get<TileLoop>(t.body[0].kind);
    auto& n = std::get<TileLoop>(m.body[0].kind);
    auto& k = std::get<TileLoop>(n.body[0].kind);
    return std::get<Compute>(k.body[1].kind);
}

TEST(VerifyTiles, accepts_the_examples) {
    for (const std::string& text : {kGemm, kChain, kSoftmax, kConvolution}) EXPECT_EQ(faults(text), Faults()) << text;
}

TEST(VerifyTiles, accepts_no_tree_at_all_but_computes) {
    EXPECT_EQ(faults(changed(kChain, kChain.substr(kChain.find("parallel")),
                             "compute 0 padding local\ncompute 1 padding local\n}\n")),
              Faults());
}

TEST(VerifyTiles, accepts_names_that_only_the_kernels_caller_knows) {
    std::string text = kSoftmax;
    for (size_t at; (at = text.find("$rows")) != std::string::npos;) text.replace(at, 5, "?k");
    EXPECT_EQ(faults(text), Faults());
}

// --- stages and axes

TEST(VerifyTiles, the_stages_are_a_valid_program) {
    EXPECT_THAT(faults(changed(kGemm, "a[i0, i2]", "a[i0, i2 + 1]")), Contains(HasSubstr("leaves dimension 1 of 'a'")));
}

TEST(VerifyTiles, a_kernel_holds_no_constants) {
    EXPECT_THAT(faults(changed(kGemm, "input bias: f32[8]", "const bias: f32[8] = {1, 2, 3, 4, 5, 6, 7, 8}")),
                ElementsAre("constants of a kernel must be inputs"));
}

TEST(VerifyTiles, axes_are_the_stages_axes) {
    EXPECT_THAT(faults(changed(kGemm, "m=\"10\"", "m=\"11\"")),
                ElementsAre("stage 0: axis m has extent 11, but the stage iterates over 10"));
    EXPECT_THAT(faults(kGemm, [](TileProgram& t) { t.stage_axes[PrimitiveId(0)][1] = 0; }),
                Contains("stage 0 has the axis m twice"));
    EXPECT_THAT(faults(kGemm, [](TileProgram& t) { t.axes[1].name = "m"; }), Contains("duplicate axis name m"));
    EXPECT_THAT(faults(kGemm, [](TileProgram& t) { t.stage_axes[PrimitiveId(0)].pop_back(); }),
                Contains("stage 0 has 3 axes, 2 are given"));
    EXPECT_THAT(faults(kGemm, [](TileProgram& t) { t.stage_axes[PrimitiveId(0)][2] = 7; }),
                Contains("stage 0: axis 7 of 3"));
    EXPECT_THAT(faults(kGemm, [](TileProgram& t) { t.stage_axes.resize(0); }),
                Contains("axes are given for 0 stages of 1"));
}

// --- loops

TEST(VerifyTiles, loops_have_steps_axes_and_bodies) {
    EXPECT_THAT(faults(changed(kGemm, "for k by 2", "for k by 0")), ElementsAre("the loop over k has step 0"));
    EXPECT_THAT(faults(kGemm, [](TileProgram& t) { std::get<TileLoop>(t.body[0].kind).axis = 9; }),
                Contains("a loop names axis 9 of 3"));
    EXPECT_THAT(faults(changed(kGemm, "    store c", "    for m by 1 {\n    }\n    store c")),
                ElementsAre("the loop over m is empty"));
}

/// kGemm in parts of `part` points of k, in steps of 2.
std::string split_gemm(int part) {
    std::string text = changed(kGemm, "    for k by 2", fmt::format("    parallel k by {} {{\n    for k by 2", part));
    text = changed(text, "buffer c layout \"reorder(1, 0)\"\n", "");
    return changed(text, "store c padding local\n", "store c padding local\n    }\n");
}

TEST(VerifyTiles, parts_of_a_sum_are_whole_steps_of_the_innermost_grid_loop) {
    EXPECT_THAT(faults(split_gemm(4)), IsEmpty());
    EXPECT_THAT(faults(split_gemm(3)),
                ElementsAre("the parallel loop over k cuts a reduction: parts of 3 are no whole steps of 2"));
    EXPECT_THAT(faults(changed(split_gemm(4), "parallel n by 3", "parallel k by 4")),
                Contains("the parallel loop over k cuts a reduction: it is not the innermost one"));
    EXPECT_THAT(faults(changed(kChain, "parallel h by 4", "parallel k by 2")),
                Contains("the parallel loop over k cuts a reduction: the kernel has 2 stages, not one"));
    // Between the steps of a block its sums stay in registers, which a layout in memory excludes.
    EXPECT_THAT(faults(changed(split_gemm(4), "parallel m by 4", "buffer c layout \"reorder(1, 0)\"\nparallel m by 4")),
                ElementsAre("the parts of a sum do not stay in registers through the loops of a block"));
    EXPECT_THAT(faults(changed(changed(split_gemm(4), "[10, 7]", "[$m, 7]"), "parallel m by 4 {", "for n by 8 {")),
                Not(IsEmpty()));
}

TEST(VerifyTiles, the_grid_is_outermost_and_spatial) {
    EXPECT_THAT(faults(changed(kChain, "for n by 3", "parallel n by 3")),
                Contains("parallel loops must be outermost and perfectly nested: n"));
    EXPECT_THAT(faults(changed(kGemm, "parallel m by 4", "for m by 4")),
                ElementsAre("parallel loops must be outermost and perfectly nested: n"));
    EXPECT_THAT(faults(changed(kGemm, "parallel n by 3", "parallel m by 2")),
                Contains("axis m is in the grid twice and some tasks would be empty"));
    // Five steps of 2 are no whole pairs; four steps of 3, the last of one point, are.
    const std::string together = changed(kGemm, "parallel m by 4", "parallel m by 6");
    EXPECT_THAT(faults(changed(together, "parallel n by 3", "parallel m by 3")), IsEmpty());
    EXPECT_THAT(faults(changed(together, "parallel n by 3", "parallel m by 4")),
                Contains("axis m is in the grid twice and some tasks would be empty"));
}

// --- statements

TEST(VerifyTiles, every_stage_is_computed_once) {
    EXPECT_THAT(faults(changed(kSoftmax, "  compute 1 padding partition\n", "")),
                Contains("stage 1 is computed by 0 statements, not one"));
    EXPECT_THAT(faults(changed(kSoftmax, "  compute 1 padding partition\n",
                               "  compute 1 padding partition\n  compute 1 padding partition\n")),
                Contains("stage 1 is computed by 2 statements, not one"));
}

TEST(VerifyTiles, a_load_copies_an_input_before_it_is_read) {
    const std::string load = "  load 0 access 0 layout \"\" padding local\n";
    EXPECT_THAT(faults(changed(changed(kSoftmax, load, ""), "  compute 1 padding", load + "  compute 1 padding")),
                ElementsAre("load 0 access 0 comes after the compute that reads it"));
    EXPECT_THAT(faults(changed(changed(kSoftmax, load, ""), "  for c by 4 {\n",
                               "  for c by 4 {\n" + load + "}\n  for c by 4 {\n")),
                ElementsAre("load 0 access 0 is nested deeper than the compute that reads it"));
    EXPECT_THAT(faults(changed(kSoftmax, load, load + load)),
                Contains("access 0 of stage 0 is loaded by two statements"));
    EXPECT_THAT(faults(changed(kSoftmax, "load 0 access 0", "load 1 access 1")),
                Contains("load 1 access 1: 'm' is computed in the kernel, but a load needs an input"));
    EXPECT_THAT(faults(changed(kSoftmax, "load 0 access 0", "load 0 access 1")),
                Contains("a load names access 1 of stage 0, which has 1"));
}

TEST(VerifyTiles, a_load_can_decide_the_conditions) {
    EXPECT_THAT(faults(changed(kConvolution, " else 0", " and i1 + i2 >= 0 else 0")),
                Contains("load 0 access 0: the condition i1 + i2 >= 0 does not depend on exactly one index"));
    EXPECT_THAT(faults(changed(kConvolution, "unfold(1, 3, 1)\" padding local", "\" padding global")),
                ElementsAre("load 0 access 0: global padding requires an access without conditions"));
    EXPECT_THAT(faults(changed(kGemm, "split(1, 2) reorder(1, 0, 2)", "store_at(a, 0, 1, 9)")),
                Contains("load 0 access 1: store_at is not allowed in a buffer layout"));
}

TEST(VerifyTiles, a_store_writes_an_output_once) {
    EXPECT_THAT(faults(changed(kChain, "store e", "store c")),
                Contains("store c: the value is not an output of the kernel"));
    EXPECT_THAT(faults(changed(kChain, "store e", "store a")),
                Contains("store a: the value is not an output of the kernel"));
    EXPECT_THAT(faults(changed(kGemm, "store c padding local\n", "store c padding local\nstore c padding local\n")),
                Contains("'c' is stored by two statements"));
    EXPECT_THAT(faults(changed(kGemm, "store c padding local\n", "for k by 1 {\nstore c padding local\n}\n")),
                ElementsAre("store c: the loop over k writes the same elements again"));
    EXPECT_THAT(faults(kGemm, [](TileProgram& t) { t.stages.outputs.push_back(t.stages.inputs[0]); }), Faults());
}

TEST(VerifyTiles, a_computed_buffer_has_one_place_for_an_element) {
    EXPECT_THAT(faults(changed(kSoftmax, "reorder(1, 0)", "unfold(1, 3, 2)")),
                Contains("layout unfold(1, 3, 2) of 'e' duplicates elements, which a computed value must not"));
    EXPECT_THAT(faults(changed(kSoftmax, "reorder(1, 0)", "store_at(m, 0, 1, 9)")),
                Contains("'e': store_at is not allowed in a buffer layout"));
    EXPECT_THAT(faults(changed(kSoftmax, "buffer e", "buffer y")), Contains("'y' has a buffer layout, but no buffer"));
    EXPECT_THAT(faults(changed(kSoftmax, "reorder(1, 0)", "reorder(2, 1, 0)")),
                Contains(HasSubstr("reorder does not fit")));
}

// --- micro-kernels

TEST(VerifyTiles, micro_kernels_fit_their_stage) {
    EXPECT_THAT(faults(changed(kGemm, "lanes 2", "lanes 3")),
                Contains("compute 0: lane count 3 is not a power of two"));
    EXPECT_THAT(faults(changed(kGemm, "lanes 2", "lanes 4")),
                ElementsAre("compute 0: the register tile 2 along n is not a multiple of 4 lanes"));
    EXPECT_THAT(faults(changed(kGemm, "registers [m=2", "registers [m=0")),
                Contains("compute 0: a register tile of 0 along m"));
    EXPECT_THAT(faults(changed(kGemm, "order [n m k]", "order [n m m]")),
                ElementsAre("compute 0: the loop order is not a permutation of its 3 axes"));
    EXPECT_THAT(faults(changed(kGemm, "order [n m k]", "order [n k m]")),
                ElementsAre("compute 0: in the loop order a reduction axis is outside a spatial axis"));
    EXPECT_THAT(faults(changed(kGemm, "vthreads [m=2]", "vthreads [m=3]")),
                ElementsAre("compute 0: 3 virtual threads do not divide the register tile 2 along m"));
    EXPECT_THAT(faults(changed(kGemm, "vthreads [m=2]", "vthreads [n=2]")),
                ElementsAre("compute 0: 2 virtual threads do not divide the register tile 2 along n"));
    EXPECT_THAT(faults(kGemm, [](TileProgram& t) { compute_of_gemm(t).micro.vector_axis = 5; }),
                Contains("compute 0: vector axis 5 of 3"));
    EXPECT_THAT(faults(kGemm, [](TileProgram& t) { compute_of_gemm(t).micro.vector_axis.reset(); }),
                Contains("compute 0: 2 lanes, but no vector axis"));
    EXPECT_THAT(faults(kGemm, [](TileProgram& t) { compute_of_gemm(t).micro.registers = {1}; }),
                Contains("compute 0: register tiles for 1 axes of 3"));
    EXPECT_THAT(faults(kGemm, [](TileProgram& t) { compute_of_gemm(t).micro.virtual_threads = {1}; }),
                Contains("compute 0: virtual threads for 1 axes of 3"));
}

// --- values

TEST(VerifyTiles, what_is_read_is_finished) {
    EXPECT_THAT(faults(changed(changed(kSoftmax, "  compute 1 padding partition\n", ""), "  for c by 1 {\n",
                               "  compute 1 padding partition\n  for c by 1 {\n")),
                ElementsAre("compute 2 reads 'e' before it is computed"));
    EXPECT_THAT(
        faults(changed(kSoftmax, "  }\n  compute 1 padding partition\n", "  compute 1 padding partition\n  }\n")),
        Contains("compute 1 reads 'm' while the loop over c still adds to it"));
    EXPECT_THAT(faults(changed(kGemm, "    }\n    store c padding local\n", "    store c padding local\n    }\n")),
                ElementsAre("store c: the loop over k writes the same elements again"));
}

TEST(VerifyTiles, what_is_read_was_computed_by_the_same_step) {
    const std::string text = R"TW(tile steps {
stages {
program steps {
  input x: f32[4, 4]
  y: f32[4, 4] = [4, 4] @0 where @0 = x[i0, i1]  ; y ""
  z: f32[4, 4] = [4, 4] @0 where @0 = y[i0, -i1 + 3]  ; z ""
  output y, z
}
}
axes i="4" j="4"
stage 0 over [i j]
stage 1 over [i j]
parallel i by 1 {
  for j by 2 {
    compute 0 padding partition
    compute 1 padding partition
  }
}
}
)TW";
    EXPECT_THAT(faults(text), ElementsAre("compute 1 reads 'y' outside the part that the loop over j computes"));
    EXPECT_EQ(faults(changed(text, "-i1 + 3", "i1")), Faults());
    EXPECT_EQ(faults(changed(text, "for j by 2", "for j by 4")), Faults());
    EXPECT_EQ(
        faults(changed(changed(text, "    compute 0 padding partition\n", "    compute 0 padding partition\n  }\n"),
                       "    compute 1 padding partition\n  }\n", "  compute 1 padding partition\n")),
        Faults());
}

TEST(VerifyTiles, loops_that_only_recompute_a_value_are_rejected) {
    // A chain computes C once per tile of h, which is legal; a memory tensor, however, is written once.
    EXPECT_THAT(faults(changed(kChain, "output e", "output e, c")),
                ElementsAre("compute 0: the loop over h recomputes 'c'"));
    EXPECT_THAT(faults(changed(kChain, "        compute 0 order [m n k] padding partition\n",
                               "        for h by 2 {\n        compute 0 order [m n k] padding partition\n        }\n")),
                ElementsAre("compute 0: the loop over h recomputes 'c'"));
}

TEST(VerifyTiles, every_computed_value_is_read_or_an_output) {
    EXPECT_THAT(faults(changed(kChain, "@0 = c[i0, i2]", "@0 = a[i0, 0]")),
                ElementsAre("'c' is neither read nor an output"));
}

TEST(VerifyTiles, partial_sums_are_kept_in_their_own_type) {
    // The result is f16 in memory; a buffer would hold the partial sums in their own type, f32.
    const std::string half = changed(kGemm, "c: f32[10, 8]", "c: f16[10, 8]");
    EXPECT_EQ(faults(half), Faults());
    const std::string memory =
        changed(changed(half, "    store c padding local\n", ""), "buffer c layout \"reorder(1, 0)\"\n", "");
    EXPECT_THAT(faults(memory),
                ElementsAre("compute 0: partial sums along k are stored as f16, but accumulated as f32"));
    EXPECT_EQ(faults(changed(memory, "for k by 2", "for k by 7")), Faults());
}

TEST(VerifyTiles, matrix_units_take_products_in_whole_tiles) {
    const std::string micro = "vector n lanes 2 registers [m=2 n=2] order [n m k] vthreads [m=2]";
    const auto with = [&](const std::string& text) { return faults(changed(kGemm, micro, text)); };
    EXPECT_EQ(with("matrix f16 [m n k] registers [m=16 n=8 k=16] order [n m k]"), Faults());
    EXPECT_EQ(with("matrix tf32 [n m k] registers [m=8 n=16 k=8]"), Faults());  // bias and rows may be exchanged
    EXPECT_THAT(with("matrix bf16 [m n k] registers [m=16 n=8 k=8]"),
                ElementsAre("compute 0: the tile along k is not a multiple of the matrix unit's 16"));
    EXPECT_THAT(with("matrix f16 [m k n] registers [m=16 n=16 k=16]"),
                ElementsAre(HasSubstr("a matrix unit takes a sum of products of floats")));
    EXPECT_EQ(with("matrix f16 group [m n k] registers [m=64 n=8 k=16]"), Faults());
    EXPECT_THAT(with("matrix f16 group [m n k] registers [m=16 n=8 k=16]"),
                testing::Contains(testing::HasSubstr("is not a multiple of the matrix unit's 64")));
    EXPECT_THAT(with("matrix f16 [m n k] registers [m=32 n=8 k=16] vthreads [m=2]"),
                ElementsAre("compute 0: virtual threads are not allowed with a matrix unit"));
    EXPECT_THAT(faults(changed(changed(kGemm, micro, "matrix f16 [m n k] registers [m=16 n=8 k=16]"),
                               "sum(i2 < 7) mul(@0, @1)", "sum(i2 < 7) add(@0, @1)")),
                ElementsAre(HasSubstr("a matrix unit takes a sum of products of floats")));
}

TEST(VerifyTiles, dot_products_take_pairs_along_an_even_sum) {
    const auto with = [](const std::string& compute, int k = 8, const std::string& pairs = "i2 // 2, i1 % 16, i2 % 2") {
        return verify(schedule_cases::kernel(fmt::format(R"TW(program product {{
  input a: bf16[6, {0}]
  input b: bf16[2, {1}, 16, 2]
  c: f32[6, 32] = [6, 32] sum(i2 < {0}) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i1 // 16, {2}]  ; c ""
  output c
}})TW",
                                                         k, (k + 1) / 2, pairs),
                                             fmt::format("axes m=\"6\" n=\"32\" k=\"{}\"\nstage 0 over [m n k]\n"
                                                         "compute 0 {} order [n m k] padding partition",
                                                         k, compute)));
    };
    const std::string right = "vector n lanes 16 matrix bf16 dot [m n k] registers [m=4 n=16 k=2]";
    EXPECT_EQ(with(right), Faults());
    EXPECT_THAT(with(right, 7), Contains(HasSubstr("the extent of k is not a multiple of 2")));
    EXPECT_THAT(with("vector n lanes 16 matrix bf16 dot [m n k] registers [m=4 n=16 k=4]"),
                ElementsAre("compute 0: dot products have steps of 2 along k, not 4"));
    EXPECT_THAT(with("vector n lanes 16 matrix bf16 dot [m n k] registers [m=4 n=16]"),
                Contains("compute 0: dot products have steps of 2 along k, not 1"));
    EXPECT_THAT(with("vector n lanes 16 matrix f16 dot [m n k] registers [m=4 n=16 k=8]"),
                ElementsAre("compute 0: the factors of dot products in f16 are stored in it"));
    EXPECT_THAT(with("vector n lanes 16 matrix f16 dot [m n k] registers [m=4 n=16 k=6]"),
                Contains("compute 0: the extent of k is not a multiple of 6"));
    EXPECT_THAT(with("vector n lanes 16 matrix f16 dot [m n k] registers [m=4 n=16 k=66]", 132),
                Contains("compute 0: dot products have steps of multiples of 2 up to 64 along k, not 66"));
    EXPECT_THAT(with(right, 8, "i2 // 2, i1 % 16, 1 - i2 % 2"),
                ElementsAre("compute 0: the right factor is not stored in pairs along the sum"));
    EXPECT_THAT(with("vector m lanes 4 matrix bf16 dot [m n k] registers [m=4 n=16 k=2]"),
                Contains("compute 0: the vector axis of dot products is their columns"));
}

TEST(VerifyTiles, pipelined_loops_begin_with_their_loads) {
    EXPECT_EQ(faults(changed(kGemm, "for k by 2", "for k by 2 stages 3")), Faults());
    const std::string fault = "stages: 1 to 16, of a loop that is not parallel and begins with all its loads";
    EXPECT_THAT(faults(changed(kGemm, "for k by 2", "for k by 2 stages 0")), ElementsAre(HasSubstr(fault)));
    EXPECT_THAT(faults(changed(kGemm, "parallel n by 3", "parallel n by 3 stages 2")), ElementsAre(HasSubstr(fault)));
    EXPECT_THAT(faults(changed(kChain, "for n by 3", "for n by 3 stages 2")), ElementsAre(HasSubstr(fault)));
}

TEST(VerifyTiles, buffers_have_constant_bounds) {
    EXPECT_THAT(faults(changed(changed(kSoftmax, "parallel row by 2 {\n", ""),
                               "    compute 3 padding partition\n  }\n}", "    compute 3 padding partition\n  }\n")),
                Contains(HasSubstr("has no constant bound ($rows)")));
}

}  // namespace
}  // namespace tilewright
