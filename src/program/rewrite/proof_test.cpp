// Proves every rule with Z3 on programs that contain its pattern: for the given shapes, and all inputs and weights. The
// assumptions about division and functions are in prover_test.h.

#include <gtest/gtest.h>

#include "program/rewrite/prover_test.h"
#include "program/rewrite/rewrite.h"
#include "program/rewrite/rewrite_test.h"
#include "program/rewrite/winograd.h"
#include "program/transform/substitute.h"

namespace tilewright {
namespace {

TEST(Proofs, every_rule_holds_for_all_reals) {
    for (const RulePattern& pattern : rule_patterns()) {
        if (pattern.rule.starts_with("winograd")) continue;  // below, on one tile
        size_t proofs = 0;
        for (uint64_t seed = 0; seed < 4; ++seed) {
            PatternWriter w(seed);
            pattern.write(w);
            const Program p = substitute_names(w.take(), {{*symbol("n").as_var(), Expr(2)}});
            for (const Patch& patch : find_all(RewriteContext(p), *rewrite_rule(pattern.rule))) {
                const Program q = apply(p, patch);
                EXPECT_EQ(prove_equal(p, q, {.elements = 6}), Verdict::Proven) << pattern.rule << "\n"
                                                                               << print(p) << "became\n"
                                                                               << print(q);
                ++proofs;
            }
        }
        EXPECT_GE(proofs, 2u) << pattern.rule;
    }
}

/// As many outputs, from `step` times as many inputs and a zero border; taps `spacing` apart.
Program one_tile(const Dims& outputs, int64_t taps_each = 3, int64_t step = 1, int64_t spacing = 1) {
    PatternWriter w(1);
    Dims x = {1, 1}, taps = {1, 1};
    for (const Expr d : outputs) {
        x.push_back(d * step);
        taps.emplace_back(taps_each);
    }
    w.outputs = {w.convolution(w.input(x), w.weights(taps), taps_each / 2 * spacing, step, spacing)};
    return w.take();
}

TEST(Proofs, winograd_holds_for_all_reals) {
    // All forms that save multiplications for that many outputs: for 2 only F(2), for 4 also F(4).
    struct Tiles {
        Dims outputs;
        size_t forms, elements;
        int64_t taps = 3, step = 1, spacing = 1;
    };
    const std::vector<Tiles> cases = {{{2}, 1, 4},         {{4}, 2, 4},       {{2, 2}, 3, 4},    {{4, 4}, 8, 3},
                                      {{2, 2, 2}, 7, 2},   {{1, 2, 4}, 5, 2}, {{4}, 2, 4, 3, 2}, {{2, 2}, 3, 4, 3, 2},
                                      {{4}, 1, 4, 5},      {{4}, 2, 4, 5, 2}, {{2}, 1, 2, 7, 2}, {{4}, 1, 4, 3, 1, 2},
                                      {{3}, 1, 6, 2, 1, 3}};
    for (const auto& [outputs, forms, elements, taps, step, spacing] : cases) {
        const Program p = one_tile(outputs, taps, step, spacing);
        const auto found = find_all(RewriteContext(p), *rewrite_rule("winograd"));
        ASSERT_EQ(found.size(), forms);
        for (const Patch& patch : found)
            EXPECT_EQ(prove_equal(p, apply(p, patch), {.elements = elements}), Verdict::Proven) << print(p);
    }
}

TEST(Proofs, winograd_holds_for_filters_with_different_offsets) {
    const Program p = parse_program(R"(program phases {
  input x: f32[3]
  input w: f32[2, 2]
  y: f32[2, 2] = [2, 2] sum(i2 < 2, i3 < 1) mul(@0, @1) where @0 = x[i0 + i1 + i2 + i3 - 1] when i0 + i1 + i2 + i3 - 1 >= 0 and -i0 - i1 - i2 - i3 + 3 >= 0 else 0, @1 = w[i0, i2 + i3]
  output y
})");
    EXPECT_TRUE(find_all(RewriteContext(p), *rewrite_rule("winograd")).empty()) << "two axes of taps in one dimension";
    const Program q = parse_program(R"(program phases {
  input x: f32[1, 3]
  input w: f32[2, 1, 2]
  y: f32[2, 2] = [2, 2] sum(i2 < 1, i3 < 2) mul(@0, @1) where @0 = x[i2, i0 + i1 + i3 - 1] when i0 + i1 + i3 - 1 >= 0 and -i0 - i1 - i3 + 3 >= 0 else 0, @1 = w[i0, i2, i3]
  output y
})");
    const auto found = find_all(RewriteContext(q), *rewrite_rule("winograd"));
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(prove_equal(q, apply(q, found[0]), {.elements = 4}), Verdict::Proven);
}

/// Changes one entry of a constant that the rewrite introduced.
Program with_a_wrong_number(Program p, size_t given) {
    for (auto& [v, tensor] : p.constants) {
        if (v.index() < given) continue;
        Tensor changed(tensor.dtype(), tensor.shape());
        for (int64_t i = 0; i < tensor.count(); ++i) changed.set(i, tensor.get(i));
        changed.set(4, changed.get(4) + 0.25);  // G[1, 1]
        tensor = changed;
        break;
    }
    return p;
}

TEST(Proofs, a_wrong_constant_in_winograd_is_refuted) {
    const Program p = one_tile({2, 2});
    const auto found = find_all(RewriteContext(p), *rewrite_rule("winograd"));
    ASSERT_EQ(found.size(), 3u);
    EXPECT_EQ(prove_equal(p, with_a_wrong_number(apply(p, found[2]), p.values.size())), Verdict::Refuted);
}

/// x, y, z: f32[3, 3], and an output o.
Program of_matrices(std::string_view statements) {
    const Program p = parse_program("program p {\n input x: f32[3, 3]\n input y: f32[3, 3]\n input z: f32[3, 3]\n" +
                                    std::string(statements) + "\n output o\n}");
    EXPECT_EQ(verify(p), std::vector<std::string>());
    return p;
}

struct WrongRule {
    std::string_view name, left, right;
};

TEST(Proofs, wrong_rules_are_refuted) {
    const std::vector<WrongRule> wrong = {
        {"a factor that moves along the sum",
         "t: f32[3, 3] = [3, 3] mul(@0, @1) where @0 = x[i0, i1], @1 = z[0, i1]\n"
         "o: f32[3, 3] = [3, 3] sum(i2 < 3) mul(@0, @1) where @0 = t[i0, i2], @1 = y[i2, i1]",
         "t: f32[3, 3] = [3, 3] sum(i2 < 3) mul(@0, @1) where @0 = x[i0, i2], @1 = y[i2, i1]\n"
         "o: f32[3, 3] = [3, 3] mul(@0, @1) where @0 = t[i0, i1], @1 = z[0, i1]"},
        {"products commute", "o: f32[3, 3] = [3, 3] sum(i2 < 3) mul(@0, @1) where @0 = x[i0, i2], @1 = y[i2, i1]",
         "o: f32[3, 3] = [3, 3] sum(i2 < 3) mul(@0, @1) where @0 = y[i0, i2], @1 = x[i2, i1]"},
        {"relu is linear", "o: f32[3, 3] = [3, 3] max(add(@0, @1), 0.0) where @0 = x[i0, i1], @1 = y[i0, i1]",
         "o: f32[3, 3] = [3, 3] add(max(@0, 0.0), max(@1, 0.0)) where @0 = x[i0, i1], @1 = y[i0, i1]"},
        {"exp is linear", "o: f32[3, 3] = [3, 3] exp(add(@0, @1)) where @0 = x[i0, i1], @1 = y[i0, i1]",
         "o: f32[3, 3] = [3, 3] add(exp(@0), exp(@1)) where @0 = x[i0, i1], @1 = y[i0, i1]"},
        {"division distributes over the divisor",
         "o: f32[3, 3] = [3, 3] div(@0, add(@1, @2)) where @0 = x[i0, i1], @1 = y[i0, i1], @2 = z[i0, i1]",
         "o: f32[3, 3] = [3, 3] add(div(@0, @1), div(@0, @2)) where @0 = x[i0, i1], @1 = y[i0, i1], @2 = z[i0, i1]"},
        {"a transposed product keeps its order",
         "t: f32[3, 3] = [3, 3] sum(i2 < 3) mul(@0, @1) where @0 = x[i0, i2], @1 = y[i2, i1]\n"
         "o: f32[3, 3] = [3, 3] @0 where @0 = t[i1, i0]",
         "o: f32[3, 3] = [3, 3] sum(i2 < 3) mul(@0, @1) where @0 = x[i2, i0], @1 = y[i1, i2]"},
    };
    for (const WrongRule& r : wrong)
        EXPECT_EQ(prove_equal(of_matrices(r.left), of_matrices(r.right)), Verdict::Refuted) << r.name;
}

TEST(Proofs, assumptions_about_functions) {
    const auto equal = [](std::string_view a, std::string_view b) {
        const auto body = [](std::string_view t) {
            return of_matrices("o: f32[3, 3] = [3, 3] " + std::string(t) + " where @0 = x[i0, i1], @1 = y[i0, i1]");
        };
        return prove_equal(body(a), body(b));
    };
    EXPECT_EQ(equal("exp(add(@0, @1))", "mul(exp(@0), exp(@1))"), Verdict::Proven);
    EXPECT_EQ(equal("div(@0, div(@0, @1))", "mul(@0, div(@1, @0))"), Verdict::Proven);
    EXPECT_EQ(equal("max(@0, @1)", "max(@1, @0)"), Verdict::Proven);
    EXPECT_EQ(equal("mul(tanh(@0), @1)", "mul(@1, tanh(@0))"), Verdict::Proven);
    EXPECT_EQ(equal("mul(div(@0, 6.0), @1)", "mul(mul(@1, 0.16666667), @0)"), Verdict::Proven);
}

}  // namespace
}  // namespace tilewright
