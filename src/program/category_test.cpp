// Korch's categories, derived from a primitive's form.

#include <gtest/gtest.h>

#include "program/program.h"
#include "program/statements_test.h"

namespace tilewright {
namespace {

using test::program;

std::string category_of(std::string_view declared, std::string_view text) {
    const Program p =
        program("input x: f32[8, 8]\n input w: f32[8, 8]\n input t: i64[8]\n y: " + std::string(declared) + " = " +
                std::string(text) + "\n output y");
    EXPECT_EQ(verify(p), std::vector<std::string>{}) << text;
    return std::string(to_string(category(p, p.primitives[PrimitiveId(size_t{0})])));
}

TEST(Category, FollowsFromTheForm) {
    EXPECT_EQ(category_of("f32[8, 8]", "[8, 8] exp(@0) where @0 = x[i0, i1]"), "elementwise");
    EXPECT_EQ(category_of("f32[8, 8]", "[8, 8] add(@0, @1) where @0 = x[i0, i1], @1 = w[0, i1]"), "elementwise");
    EXPECT_EQ(category_of("f64[8, 8]", "[8, 8] f64(@0) where @0 = x[i0, i1]"), "elementwise");
    EXPECT_EQ(category_of("f32[8]", "[8] 1.0"), "elementwise");
    EXPECT_EQ(category_of("f32[8, 8]", "[8, 8] @0 where @0 = x[i1, i0]"), "layout");
    EXPECT_EQ(category_of("f32[64]", "[64] @0 where @0 = x[i0 // 8, i0 % 8]"), "layout");
    EXPECT_EQ(category_of("f32[10, 8]", "[10, 8] @0 where @0 = x[i0 - 1, i1] when i0 - 1 >= 0 and 8 - i0 >= 0 else 0"),
              "layout");
    EXPECT_EQ(category_of("f32[16, 8]",
                          "[16, 8] select(lt(index(i0 - 8), 0), @0, @1) where"
                          " @0 = x[i0, i1] when 7 - i0 >= 0 else 0, @1 = w[i0 - 8, i1] when i0 - 8 >= 0 "
                          "else 0"),
              "layout");  // Concat
    EXPECT_EQ(category_of("f32[8, 8]", "[8, 8] @1 where @0 = t[i0], @1 = x[@0, i1]"), "layout");
    EXPECT_EQ(category_of("f32[4, 8, 8]", "[4, 8, 8] @0 where @0 = x[i1, i2]"), "broadcast");
    EXPECT_EQ(category_of("f32[16, 8]", "[16, 8] @0 where @0 = x[i0 // 2, i1]"), "broadcast");
    EXPECT_EQ(category_of("f32[8]", "[8] max(i1 < 8) @0 where @0 = x[i0, i1]"), "reduce");
    EXPECT_EQ(category_of("f32[8]", "[8] sum(i1 < 8) mul(@0, @0) where @0 = x[i0, i1]"), "reduce");
    EXPECT_EQ(category_of("f32[8]", "[8] sum(i1 < 8) mul(@0, @1) where @0 = x[i0, i1], @1 = x[i0, i1]"), "reduce");
    EXPECT_EQ(category_of("f32[8]", "[8] sum(i1 < 8) mul(@0, 0.5) where @0 = x[i0, i1]"), "reduce");
    EXPECT_EQ(category_of("f32[8]", "[8] sum(i1 < 8) mul(@0, @1) where @0 = x[i0, i1], @1 = w[i0, 0]"), "reduce");
    EXPECT_EQ(category_of("f32[8, 8]", "[8, 8] sum(i2 < 8) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]"),
              "linear");
    EXPECT_EQ(category_of("f32[8, 8]", "[8, 8] sum(i2 < 8) mul(@0, @1) where @0 = x[i0, i2], @1 = x[i1, i2]"),
              "linear");
    EXPECT_EQ(category_of("f32[8, 8]",
                          "[8, 8] sum(i2 < 8) mul(sub(@0, @2), @1) where @0 = x[i0, i2], @1 = w[i2, i1], @2 "
                          "= x[i0, 0]"),
              "linear");
}

TEST(Category, OpaqueAndControl) {
    const Program p = program(
        "input c: bool[]\n y: f32[2] = opaque \"TopK()\"(c)\n z: f32[2] = if c(y)\n then t { input "
        "a: f32[2]\n output a }\n else e { input a: f32[2]\n output a }");
    EXPECT_EQ(category(p, p.primitives[PrimitiveId(size_t{0})]), Category::Opaque);
    EXPECT_EQ(category(p, p.primitives[PrimitiveId(size_t{1})]), Category::Control);
}

}  // namespace
}  // namespace tilewright
