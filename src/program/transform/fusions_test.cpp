// A cached result equals a newly computed one.

#include "program/transform/fusions.h"

#include <gtest/gtest.h>

#include "program/transform/tidy.h"

namespace tilewright {
namespace {

Program sums(const std::string& values, const std::string& added) {
    return parse_program("program p {\n" + values + R"(
  s: f32[8] = [8] sum(i1 < 4) @0 where @0 = a[i0, i1]
  t: f32[8] = [8] add(@0, )" +
                         added + R"() where @0 = s[i0]
  output t
})");
}

const TensorExpr& expr(const Program& p, size_t k) { return *p.primitives[PrimitiveId(k)].expr(); }

std::string text(const Program& p, const TensorExpr& e) {
    Program out = p;
    out.primitives[PrimitiveId(1)].kind = e;
    return print(out);
}

std::string fused(Fusions& fusions, const Program& p) {
    const auto e = fusions.epilogue(expr(p, 0), expr(p, 1), 0, p.values[p.primitives[PrimitiveId(0)].outputs[0]]);
    EXPECT_TRUE(e.has_value());
    return text(p, *e);
}

/// The same request over other values: the result is over those.
TEST(Fusions, results_use_the_values_of_the_request) {
    const Program first = sums("  input a: f32[8, 4]", "1.0");
    const Program second = sums("  input other: f32[3]\n  input a: f32[8, 4]", "1.0");
    Fusions fusions;
    Fusions fresh;
    fused(fusions, first);
    EXPECT_EQ(fused(fusions, second), fused(fresh, second));
    EXPECT_NE(fused(fusions, second).find("a[i0, i1]"), std::string::npos);
}

/// 0.0 and -0.0 compare equal but are different constants.
TEST(Fusions, zeros_of_different_sign_are_different_requests) {
    Fusions fusions;
    const std::string plus = fused(fusions, sums("  input a: f32[8, 4]", "0.0"));
    const std::string minus = fused(fusions, sums("  input a: f32[8, 4]", "-0.0"));
    EXPECT_NE(plus, minus);
}

TEST(Fusions, failed_fusions_are_cached) {
    const Program p = parse_program(R"(program p {
  input a: f32[8, 4]
  s: f32[8] = [8] sum(i1 < 4) @0 where @0 = a[i0, i1]
  t: f32[8] = [8] max(i1 < 8) @0 where @0 = s[i1]
  output t
})");
    Fusions fusions;
    for (int i = 0; i < 2; ++i)
        EXPECT_FALSE(fusions.inlined(expr(p, 1), 0, expr(p, 0), p.values[ValueId(1)]).has_value());
}

TEST(Fusions, simplified_expressions_equal_tidy) {
    const Program p = parse_program(R"(program p {
  input a: f32[8]
  t: f32[8] = [8] @0 where @0 = a[i0] when i0 >= 0 else 0
  output t
})");
    Fusions fusions;
    for (int i = 0; i < 2; ++i) {
        const TensorExpr e = fusions.clean(expr(p, 0));
        EXPECT_TRUE(e.accesses[0].valid.empty());
        EXPECT_EQ(e.accesses[0], tidy(expr(p, 0)).accesses[0]);
    }
}

}  // namespace
}  // namespace tilewright
