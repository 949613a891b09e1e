// Index expressions as C++: conditions, types, names.

#include "backend/cuda/variables.h"

#include <gtest/gtest.h>

namespace tilewright::cuda {
namespace {

struct Three {
    Variables v;
    Expr block, tile, r;
    Three()
        : block(v.add("block", {Expr(0), Expr(11)})),
          tile(v.add("tile", {Expr(0), Expr(15)})),
          r(v.add("r", {Expr(0), Expr(3)})) {}
};

TEST(CudaNames, AreNoWordsOfTheLanguage) {
    EXPECT_EQ(identifier("conv1/products"), "conv1_products");
    EXPECT_EQ(identifier("3x3"), "n3x3");
    EXPECT_EQ(identifier("case"), "ncase");
    EXPECT_EQ(identifier("double"), "ndouble");
    Names names;
    EXPECT_EQ(names.fresh("new"), "nnew");
    EXPECT_EQ(names.fresh("new"), "nnew_2");
}

TEST(Variables, PrintSumsAndDivisionsOfWhatIsNotNegative) {
    Three t;
    EXPECT_EQ(t.v.text(t.block * 64 + t.tile * 4 + t.r), "block * 64 + tile * 4 + r");
    EXPECT_EQ(t.v.text(t.r - t.tile * 2 - 7), "-tile * 2 + r - 7");
    EXPECT_EQ(t.v.operand(t.tile + 1), "(tile + 1)");
    EXPECT_EQ(t.v.text(floor_div(t.tile, 4) * 3 + mod(t.tile, 4)), "(tile % 4) + (tile / 4) * 3");
    EXPECT_EQ(t.v.text(floor_div(t.r - t.tile, 4)), "tw::floor_div(-tile + r, 4)");  // may be negative
    EXPECT_EQ(t.v.text(mod(t.r - t.tile, 5)), "tw::floor_rest(-tile + r, 5)");
    EXPECT_EQ(t.v.text(min(t.tile + 1, 9)), "tw::lesser(9, tile + 1)");
}

TEST(Variables, ConditionsHaveNoDifferences) {
    Three t;
    EXPECT_EQ(t.v.condition(Expr(6) - t.tile * 2 - t.r), "tile * 2 + r <= 6");
    EXPECT_EQ(t.v.condition(t.tile - 3), "3 <= tile");
    EXPECT_EQ(t.v.condition(t.tile - t.r), "r <= tile");
}

TEST(Variables, AreWideWhereASumMayNotFit) {
    Three t;
    EXPECT_EQ(t.v.text(t.block * 100000000), "block * 100000000");
    EXPECT_EQ(t.v.text(t.block * 1000000000), "i64(block) * 1000000000");
    // Every part counts, not only what comes out.
    EXPECT_EQ(t.v.text(t.block * 150000000 + t.tile * 100000000), "i64(block) * 150000000 + i64(tile) * 100000000");
    EXPECT_EQ(t.v.type(t.block), "int");
    const Expr n = symbol("n");
    t.v.name(*n.as_var(), "n_n");
    EXPECT_EQ(t.v.text(t.block * n), "n_n * i64(block)");
    EXPECT_EQ(t.v.declaration(t.v.add("row", {Expr(0), n - 1})), "const i64 row");
}

TEST(Variables, KnowWhatDividesThem) {
    Three t;
    EXPECT_EQ(Variables::multiple(t.block * 64 + t.tile * 12), 4);
    EXPECT_EQ(Variables::multiple(t.block * 64 + t.tile * 12 + 2), 2);
    EXPECT_EQ(Variables::multiple(min(t.block * 8 + 8, 24)), 8);
    EXPECT_EQ(Variables::multiple(t.block), 1);
    EXPECT_EQ(Variables::multiple(0), 0);
}

TEST(Variables, CallPartsByName) {
    Three t;
    Writer w;
    const Expr end = min(t.block * 64 + 64, 500);
    t.v.call(end, "end_m", w);
    EXPECT_EQ(w.text(), "const int end_m = tw::lesser(500, block * 64 + 64);\n");
    EXPECT_EQ(t.v.text(end - t.tile), "-tile + end_m");
    t.v.forget(end);
    EXPECT_EQ(t.v.text(end), "tw::lesser(500, block * 64 + 64)");
}

TEST(Names, AreIdentifiersAndNobodyElses) {
    Names names;
    EXPECT_EQ(names.fresh("conv1/products"), "conv1_products");
    EXPECT_EQ(names.fresh("conv1.products"), "conv1_products_2");
    EXPECT_EQ(names.fresh("7up"), "n7up");
    EXPECT_EQ(names.fresh(""), "n");
}

}  // namespace
}  // namespace tilewright::cuda
