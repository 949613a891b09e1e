// The text of tile programs.

#include <gtest/gtest.h>

#include "base/error.h"
#include "tile/examples_test.h"
#include "tile/tile.h"

namespace tilewright {
namespace {

std::string error(const std::string& text) {
    try {
        parse_tile_program(text);
    } catch (const ModelError& e) {
        return e.what();
    }
    return "";
}

TEST(TileText, reads_back_what_it_prints) {
    for (const std::string& text : {kGemm, kChain, kSoftmax, kConvolution}) {
        const std::string once = print(parse_tile_program(text));
        EXPECT_EQ(print(parse_tile_program(once)), once);
    }
    const TileProgram gemm = parse_tile_program(kGemm);
    EXPECT_EQ(print(gemm), kGemm);
    EXPECT_EQ(gemm.axes[1].name, "n");
    EXPECT_TRUE(std::get<TileLoop>(gemm.body[0].kind).parallel);
    EXPECT_EQ(std::get<TileLoop>(gemm.body[0].kind).step, 4);
}

TEST(TileText, without_names_is_equal_where_only_names_differ) {
    const TileProgram gemm = parse_tile_program(kGemm);
    TileProgram renamed = gemm;
    renamed.name = "another";
    renamed.stages.name = "its stages";
    EXPECT_NE(print(renamed), print(gemm));
    EXPECT_EQ(print_without_names(renamed), print_without_names(gemm));
    EXPECT_EQ(renamed.name, "another");
    EXPECT_EQ(print(parse_tile_program(print_without_names(gemm))), print_without_names(gemm));
    const TileProgram other = parse_tile_program(changed(kGemm, "registers [m=2 n=2]", "registers [m=1 n=2]"));
    EXPECT_NE(print_without_names(other), print_without_names(gemm));
}

TEST(TileText, matrix_units_and_stages) {
    const std::string text = changed(changed(kGemm, "vector n lanes 2 registers [m=2 n=2] order [n m k] vthreads [m=2]",
                                             "matrix bf16 [m n k] registers [m=32 n=8 k=16] order [n m k]"),
                                     "for k by 2 {", "for k by 2 stages 3 {");
    const TileProgram gemm = parse_tile_program(text);
    EXPECT_EQ(print(gemm), text);
    EXPECT_NE(text, kGemm);
    EXPECT_THROW(parse_tile_program(changed(text, "matrix bf16", "matrix f64")), ModelError);
}

TEST(TileText, values_that_lie_in_a_cache) {
    const std::string text = changed(kGemm, "parallel m", "near a\nparallel m");
    const TileProgram gemm = parse_tile_program(text);
    EXPECT_EQ(print(gemm), text);
    EXPECT_EQ(gemm.near.size(), 1u);
    EXPECT_TRUE(verify(gemm).empty());
    TileProgram wrong = gemm;
    wrong.near = {ValueId(99)};
    EXPECT_FALSE(verify(wrong).empty());
}

TEST(TileText, names_of_any_spelling) {
    TileProgram t = parse_tile_program(kGemm);
    t.name = "conv1 + \"relu\" {";
    t.stages.name = "}";
    t.axes[0].name = "m of 2";
    for (Value& v : t.stages.values)
        if (v.name == "c") v.name = "the result}";
    const TileProgram back = parse_tile_program(print(t));
    EXPECT_EQ(print(back), print(t));
    EXPECT_EQ(back.name, t.name);
    EXPECT_EQ(back.axes[0].name, t.axes[0].name);
}

TEST(TileText, comments_are_skipped) {
    EXPECT_EQ(print(parse_tile_program(changed(kGemm, "axes m", "# as large as it gets\naxes m"))), kGemm);
}

TEST(TileText, errors_name_the_line) {
    EXPECT_EQ(error(changed(kGemm, "for k by 2", "for q by 2")),
              "tile program text, line 16, column 9: there is no axis q");
    EXPECT_EQ(error(changed(kGemm, "order [n m k]", "order [n m x]")),
              "tile program text, line 18, column 65: there is no axis x");
    EXPECT_EQ(error(changed(kChain, "order [m n k]", "order [m n h]")),
              "tile program text, line 21, column 30: stage 0 has no axis h");
    EXPECT_EQ(error(changed(kGemm, "store c", "store d")),
              "tile program text, line 20, column 11: there is no value 'd'");
    EXPECT_EQ(error(changed(kGemm, "compute 0", "compute 4")),
              "tile program text, line 18, column 16: there is no stage 4");
    EXPECT_EQ(error(changed(kGemm, "padding local", "padding lavish")),
              "tile program text, line 17, column 69: expected local, partition or global, found 'lavish'");
    EXPECT_EQ(error(changed(kGemm, "split(1, 2) ", "spilt(1, 2) ")).substr(0, 26), "tile program text, line 17");
    EXPECT_EQ(error(changed(kGemm, "m=\"10\"", "m=\"10 +\"")).substr(0, 26), "tile program text, line 11");
    EXPECT_EQ(error(changed(kGemm, "n=\"8\"", "m=\"8\"")).substr(0, 26), "tile program text, line 11");
    EXPECT_EQ(error(changed(kGemm, "stage 0 over [m n k]", "stage 0 over [m n]")),
              "tile program text, line 12, column 19: stage 0 has 3 axes");
    EXPECT_EQ(error(kGemm + "}").substr(0, 26), "tile program text, line 24");
}

TEST(TileText, errors_in_the_stages_name_the_line_of_the_whole_text) {
    EXPECT_EQ(error(changed(kGemm, "@1 = b[i2", "@1 = q[i2")).substr(0, 21), "program text, line 7,");
}

TEST(TileText, every_beginning_of_a_text_is_refused) {
    for (size_t n = 0; n + 2 < kGemm.size(); ++n) EXPECT_NE(error(kGemm.substr(0, n)), "") << kGemm.substr(0, n);
}

TEST(TileText, tiling_expressions_are_the_papers) {
    EXPECT_EQ(tiling_expression(parse_tile_program(kChain)), "mh(n(k(La,Lb,C0),Ld,C1),Se)");
    EXPECT_EQ(tiling_expression(parse_tile_program(kGemm)), "mn(k(Lb,C0),Sc)");
    EXPECT_EQ(tiling_expression(parse_tile_program(kSoftmax)), "row(Lx,c(C0),C1,c(C2),c(C3))");
}

}  // namespace
}  // namespace tilewright
