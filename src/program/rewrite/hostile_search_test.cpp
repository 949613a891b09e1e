// Adversarial programs for the search: it must terminate and be deterministic. A hang is a failure.

#include <gtest/gtest.h>

#include <cmath>

#include "program/rewrite/algebra.h"
#include "program/rewrite/match_cache.h"
#include "program/rewrite/rewrite_test.h"
#include "program/rewrite/search.h"
#include "program/transform/inline.h"

namespace tilewright {
namespace {

RewriteSearch all_rules() {
    RewriteSearch search;
    search.rules.winograd = true;
    return search;
}

/// The search stays within the budget, is deterministic, and preserves results.
void expect_bounded(const Program& p, const RewriteSearch& options = all_rules(), double rounding = 1e-9) {
    RewriteReport report;
    const Program q = rewrite(p, options, &report);
    EXPECT_LE(report.costed, options.programs + report.distinct);
    EXPECT_EQ(verify(q), std::vector<std::string>());
    EXPECT_EQ(print(q), print(rewrite(p, options)));
    const std::vector<Tensor> inputs = random_inputs(p, 1);
    EXPECT_LT(largest_difference(interpret(p, inputs, {.exact = true}), interpret(q, inputs, {.exact = true})),
              rounding);
}

/// step(x, k) of step(x, k - 1) of ... the input.
template <class F>
Program row(int steps, Dims shape, F&& step) {
    PatternWriter w(1);
    ValueId x = w.input(std::move(shape));
    for (int k = 0; k < steps; ++k) x = step(w, x, k);
    w.outputs = {x};
    return w.take();
}

// Expanded to a tree, the last of these has 2^600 leaves.
TEST(HostileSearch, a_value_added_to_itself) {
    expect_bounded(row(600, {4}, [](PatternWriter& w, ValueId x, int k) {
        return k % 8 == 7 ? w.mul(x, w.weights({4})) : w.b.binary(ScalarOp::Mul, w.add(x, x), 0.5);
    }));
}

TEST(HostileSearch, a_value_multiplied_and_divided_by_itself) {
    expect_bounded(row(300, {4}, [](PatternWriter& w, ValueId x, int k) {
        return k % 2 == 0 ? w.mul(x, x) : w.div(x, w.add(x, w.tanh(x)));
    }));
}

TEST(HostileSearch, products_with_themselves) {
    expect_bounded(row(200, {4, 4}, [](PatternWriter& w, ValueId x, int) { return w.tanh(w.b.matmul(x, x)); }));
}

TEST(HostileSearch, transpositions_between_additions) {
    expect_bounded(row(400, {4, 4}, [](PatternWriter& w, ValueId x, int k) {
        const ValueId t = w.b.transpose(x, {1, 0});
        return w.tanh(k % 3 == 0 ? w.add(t, x) : k % 3 == 1 ? w.b.matmul(t, x) : t);
    }));
}

TEST(HostileSearch, hundreds_of_products_that_share_an_operand) {
    PatternWriter w(2);
    const ValueId x = w.input({4, 8});
    for (int k = 0; k < 400; ++k) w.outputs.push_back(w.b.matmul(x, w.weights({8, 2 + k % 7})));
    expect_bounded(w.take());
}

TEST(HostileSearch, a_concatenation_of_hundreds_of_parts) {
    PatternWriter w(3);
    const ValueId x = w.input({4, 4});
    std::vector<ValueId> parts;
    for (int k = 0; k < 300; ++k) parts.push_back(k % 2 == 0 ? w.tanh(x) : w.b.matmul(x, x));
    w.outputs = {w.b.concat(parts, 0)};
    expect_bounded(w.take());
}

TEST(HostileSearch, thousands_of_different_layers) {
    const Program p = row(700, {3, 8}, [](PatternWriter& w, ValueId x, int k) {
        const Expr n = 2 + (k * 7) % 29;
        const ValueId scaled = w.mul(w.tanh(x), w.weights({8}));
        return w.b.matmul(w.b.matmul(scaled, w.weights({8, n})), w.weights({n, 8}));
    });
    EXPECT_GT(p.primitives.size(), 2500u);
    RewriteSearch options = all_rules();
    options.programs = 300;
    expect_bounded(p, options, 1e-5);
}

TEST(HostileSearch, pieces_beyond_the_budget_are_unchanged) {
    const Program p = row(40, {3, 8}, [](PatternWriter& w, ValueId x, int) {
        return w.b.matmul(x, w.weights({8, 8}));
    });
    RewriteSearch options = all_rules();
    options.programs = 0;
    EXPECT_EQ(print(rewrite(p, options)), print(p));
}

// Algebraic analyses on bodies that are DAGs.
TEST(HostileAlgebra, x_plus_x_sixty_times_is_two_to_the_sixtieth_x) {
    TensorExpr e;
    e.extents = {4};
    e.spatial = 1;
    e.accesses = {{ValueId(size_t{0}), {axis(0)}, {}, 0}};
    ScalarId x = e.body.access(0, DType::F64);
    for (int k = 0; k < 60; ++k) x = e.body.binary(ScalarOp::Add, x, x);
    e.body.set_root(x);
    const auto affine = affine_in(e, 0);
    ASSERT_TRUE(affine && affine->scales && affine->shift.empty());
    EXPECT_EQ(affine->scale[affine->scale.root()].value, std::ldexp(1.0, 60));
    EXPECT_EQ(axes_below(e, x), std::set<uint32_t>{0});
    EXPECT_EQ(slots_below(e.body, x), std::set<uint32_t>{0});
}

TEST(HostileAlgebra, the_number_of_factors_is_bounded) {
    ScalarBody b;
    ScalarId x = b.access(0, DType::F32);
    EXPECT_EQ(factors(b, b.binary(ScalarOp::Mul, x, x)).size(), 2u);
    for (int k = 0; k < 60; ++k) x = b.binary(ScalarOp::Mul, x, x);
    EXPECT_LE(factors(b, x).size(), 100u);
}

// A match is reused without running the rule while the properties that it read are unchanged.
TEST(MatchCache, are_what_rules_find) {
    const std::vector<const RewriteRule*> rules = rewrite_rules({.winograd = true});
    size_t reused = 0, steps = 0;
    for (uint64_t seed = 0; seed < 80 && !testing::Test::HasFailure(); ++seed) {
        Program p = random_program(seed, 12);
        MatchCache cache(rules);
        for (size_t step = 0; step < 6; ++step) {
            const RewriteContext context(p);
            std::vector<std::string> expected, actual;
            std::optional<Program> next;
            for (const RewriteRule* rule : rules)
                for (const Patch& patch : find_all(context, *rule))
                    expected.push_back(std::string(rule->name) + print(apply(p, patch)));
            const size_t before = cache.rule_runs();
            const std::vector<RuleMatch>& found = cache.find(context);
            for (const RuleMatch& f : found) {
                auto program = apply_later(p, *f.patch, f.known);
                ASSERT_TRUE(program);
                actual.push_back(std::string(f.rule->name) + print(with_unique_names(*program)));
            }
            ASSERT_EQ(actual, expected) << print(p);
            const size_t all = rules.size() * p.primitives.size();
            reused += all - (cache.rule_runs() - before);
            steps += all;
            if (found.empty()) break;
            const RuleMatch& taken = found[(seed + step * 5) % found.size()];
            p = *apply_later(p, *taken.patch, taken.known);
        }
    }
    EXPECT_GT(reused, steps / 2) << reused << " of " << steps;
}

// Forms with equal hashes are compared, and numbers are compared by their bits.
TEST(MatchCache, compare_forms_whose_hashes_are_equal) {
    const Program p = parse_program(R"(program t {
  input x: f32[4]
  a: f32[4] = [4] mul(@0, 2.0) where @0 = x[i0]
  b: f32[4] = [4] mul(@0, 3.0) where @0 = x[i0]
  output a
  output b
})");
    const auto form = [&](size_t k) {
        ValueForm f;
        f.name = "v";
        f.maker = ValueForm::Maker::Expression;
        f.expression = p.primitives[PrimitiveId(k)].expr();
        return f;
    };
    ValueForms forms;
    const uint32_t a = forms.number(7, form(0)), b = forms.number(7, form(1));
    EXPECT_NE(a, b);
    EXPECT_EQ(forms.number(7, form(0)), a);
    EXPECT_EQ(forms.number(7, form(1)), b);
    ValueForm zero, minus, renamed;
    zero.fill = 0.0;
    minus.fill = -0.0;
    renamed.fill = 0.0;
    renamed.name = "w";
    EXPECT_NE(forms.number(7, zero), forms.number(7, minus));
    EXPECT_NE(forms.number(7, zero), forms.number(7, renamed));
    ValueForm nan = zero, again = zero;
    nan.fill = again.fill = std::nan("");
    EXPECT_EQ(forms.number(7, nan), forms.number(7, again));
}

}  // namespace
}  // namespace tilewright
