// Index expressions against brute force: the results of constructors, simplify, bounds and provers must hold at every
// point.

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "index/facts.h"
#include "index/random_test.h"

namespace tilewright {
namespace {

using testing::Choice;
using testing::for_all_points;
using testing::names;
using testing::random_tree;
using testing::Tree;
using testing::Vocabulary;

constexpr int kCases = 2000;

/// Runs a property on many seeds; a failure names the seed.
void check_seeds(const std::function<void(Choice&)>& property) {
    EXPECT_TRUE(rc::check([&] {
        const auto seed = *rc::gen::arbitrary<uint64_t>();
        for (uint64_t k = 0; k < kCases / 100; ++k) {
            Choice choose(seed + k);
            property(choose);
        }
    }));
}

struct Space {
    std::vector<int64_t> extents;
    Ranges ranges;
};

Space random_space(Choice& choose) {
    Space s;
    std::vector<Expr> e;
    for (int k = 0; k < 3; ++k) {
        s.extents.push_back(choose.between(1, 5));
        e.push_back(s.extents.back());
    }
    s.ranges = Ranges::of_extents(e);
    return s;
}

/// True when f holds at every point of the space for several values of the symbols (>= 1) and the scalar (any).
template <class F>
bool everywhere(const Space& space, const F& f) {
    for (const auto& [n, m, s] :
         {std::tuple(1, 1, 0), std::tuple(1, 4, -3), std::tuple(2, 3, 1), std::tuple(5, 2, 7)}) {
        const auto values = names(n, m, s);
        const bool all = for_all_points(space.extents, [&](const std::vector<int64_t>& point) {
            Env env;
            env.axes = point;
            env.names = &values;
            return f(env);
        });
        if (!all) return false;
    }
    return true;
}

TEST(ExprProperty, ConstructionKeepsTheValueAtEveryPoint) {
    check_seeds([](Choice& choose) {
        const auto tree = random_tree(choose, {}, 4);
        const Expr e = tree->expr();
        RC_LOG() << e.text() << '\n';
        const Space space = random_space(choose);
        RC_ASSERT(everywhere(space, [&](const Env& env) { return evaluate(e, env) == tree->value(env); }));
    });
}

TEST(ExprProperty, ConstructionKeepsTheValueForAnyDivisor) {
    check_seeds([](Choice& choose) {
        Vocabulary words;
        words.scalars = true;
        words.any_divisor = true;
        const auto tree = random_tree(choose, words, 4);
        const Expr e = tree->expr();
        RC_LOG() << e.text() << '\n';
        const Space space = random_space(choose);
        RC_ASSERT(everywhere(space, [&](const Env& env) {
            return tree->divides_by_empty_dimension(env) || evaluate(e, env) == tree->value(env);
        }));
    });
}

TEST(ExprProperty, TextReadsBackAsTheSameExpression) {
    check_seeds([](Choice& choose) {
        Vocabulary words;
        words.scalars = true;
        words.any_divisor = true;
        const Expr e = random_tree(choose, words, 5)->expr();
        RC_LOG() << e.text() << '\n';
        RC_ASSERT(parse_expr(e.text()).text() == e.text());
    });
}

TEST(ExprProperty, SimplifyKeepsTheValueInsideTheRanges) {
    check_seeds([](Choice& choose) {
        Vocabulary words;
        words.scalars = true;
        const auto tree = random_tree(choose, words, 4);
        const Space space = random_space(choose);
        const Expr e = simplify(tree->expr(), space.ranges);
        RC_LOG() << tree->expr().text() << " -> " << e.text() << '\n';
        RC_ASSERT(everywhere(space, [&](const Env& env) { return evaluate(e, env) == tree->value(env); }));
    });
}

TEST(ExprProperty, BoundsHoldAtEveryPoint) {
    check_seeds([](Choice& choose) {
        Vocabulary words;
        words.scalars = true;
        const auto tree = random_tree(choose, words, 4);
        const Space space = random_space(choose);
        const Interval b = bounds(tree->expr(), space.ranges);
        RC_LOG() << tree->expr().text() << " in [" << (b.lo ? b.lo->text() : "?") << ", " << (b.hi ? b.hi->text() : "?")
                 << "]\n";
        RC_ASSERT(everywhere(space, [&](const Env& env) {
            const int64_t v = tree->value(env);
            return (!b.lo || evaluate(*b.lo, env) <= v) && (!b.hi || v <= evaluate(*b.hi, env));
        }));
    });
}

TEST(ExprProperty, ProofsAreSound) {
    int proved = 0;
    check_seeds([&](Choice& choose) {
        Vocabulary words;
        words.scalars = true;
        const auto tree = random_tree(choose, words, 3);
        const Space space = random_space(choose);
        const Expr e = tree->expr();
        if (!prove_nonnegative(e, space.ranges)) return;
        ++proved;
        RC_LOG() << e.text() << " >= 0\n";
        RC_ASSERT(everywhere(space, [&](const Env& env) { return tree->value(env) >= 0; }));
    });
    EXPECT_GT(proved, kCases / 10);
}

TEST(ExprProperty, ProofsFromFactsAreSound) {
    int proved = 0;
    check_seeds([&](Choice& choose) {
        const auto tree = random_tree(choose, {}, 3);
        const Space space = random_space(choose);
        std::vector<std::shared_ptr<const Tree>> trees;
        std::vector<Expr> facts;
        for (int k = 0; k < 2; ++k) {
            trees.push_back(random_tree(choose, {}, 2));
            facts.push_back(trees.back()->expr());
        }
        const Expr e = tree->expr();
        if (prove_nonnegative(e, space.ranges) || !prove_nonnegative(e, space.ranges, facts)) return;
        ++proved;
        RC_LOG() << e.text() << " >= 0 given " << to_string(facts) << '\n';
        RC_ASSERT(everywhere(space, [&](const Env& env) {
            const bool given =
                std::all_of(trees.begin(), trees.end(), [&](const auto& f) { return f->value(env) >= 0; });
            return !given || tree->value(env) >= 0;
        }));
    });
    EXPECT_GT(proved, 0);
}

TEST(ExprProperty, SumsOfFactsAndNonnegativeTermsAreProved) {
    check_seeds([](Choice& choose) {
        const Space space = random_space(choose);
        std::vector<Expr> facts;
        Expr e = choose.between(0, 3) + axis(0) * choose.between(0, 2);
        for (int k = 0; k < 2; ++k) {
            facts.push_back(axis(1) * choose.between(-3, 3) + axis(2) * choose.between(1, 3) + choose.between(-9, 9));
            e += facts.back();
        }
        RC_LOG() << e.text() << " >= 0 given " << to_string(facts) << '\n';
        RC_ASSERT(prove_nonnegative(e, space.ranges, facts));
    });
}

TEST(ExprProperty, SubstitutionIsEvaluationOfTheReplacement) {
    check_seeds([](Choice& choose) {
        const auto outer = random_tree(choose, {}, 3);
        std::vector<std::shared_ptr<const Tree>> inner;
        std::vector<Expr> replacements;
        for (int k = 0; k < 3; ++k) {
            inner.push_back(random_tree(choose, {}, 2));
            replacements.push_back(inner.back()->expr());
        }
        const Expr e = substitute_axes(outer->expr(), replacements);
        const Space space = random_space(choose);
        RC_ASSERT(everywhere(space, [&](const Env& env) {
            std::vector<int64_t> moved;
            for (const auto& t : inner) moved.push_back(t->value(env));
            Env there = env;
            there.axes = moved;
            return evaluate(e, env) == outer->value(there);
        }));
    });
}

TEST(ExprProperty, LinearPartsAddUpToTheWhole) {
    check_seeds([](Choice& choose) {
        const auto tree = random_tree(choose, {}, 4);
        const Var v{VarKind::Axis, 1};
        const auto parts = linear_in(tree->expr(), v);
        if (!parts) return;
        RC_ASSERT(!uses(parts->coefficient, v));
        RC_ASSERT(!uses(parts->rest, v));
        RC_ASSERT(parts->coefficient * Expr::var(v) + parts->rest == tree->expr());
    });
}

TEST(ExprProperty, CoefficientsOfAxesAreThoseOfLinearParts) {
    check_seeds([](Choice& choose) {
        const Expr e = random_tree(choose, {}, 4)->expr();
        const auto coefficients = axis_coefficients(e, 4);
        for (uint32_t a = 0; a < 4; ++a) {
            const auto parts = linear_in(e, {VarKind::Axis, a});
            RC_ASSERT(parts.has_value() == coefficients[a].has_value());
            if (parts) RC_ASSERT(parts->coefficient == *coefficients[a]);
        }
    });
}

TEST(ExprProperty, DivisionAndRemainderOfNumbersBelongTogether) {
    EXPECT_TRUE(rc::check([](int64_t a, int64_t b) {
        RC_PRE(b != 0 && a != INT64_MIN);
        const int64_t q = floor_div(a, b), r = floor_mod(a, b);
        // Modulo 2^64: q * b may overflow where adding r brings it back.
        RC_ASSERT(static_cast<uint64_t>(q) * static_cast<uint64_t>(b) + static_cast<uint64_t>(r) ==
                  static_cast<uint64_t>(a));
        RC_ASSERT((b > 0 ? (0 <= r && r < b) : (b < r && r <= 0)));
    }));
}

}  // namespace
}  // namespace tilewright
