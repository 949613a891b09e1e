// Measuring only the kernels of solutions finds the optimum of measuring all kernels.

#include "orchestrate/optimal/lazy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "orchestrate/optimal/brute_force_test.h"

namespace tilewright::optimal {
namespace {

struct Case {
    Choice truth, said;
};

/// A random choice. Assumed costs are a share of the true ones, between `least` and `most`.
Case random_case(uint64_t seed, double least, double most) {
    Case c;
    c.truth = test::random_choice(test::random_dag(seed, 3 + seed % 7, 0.1), seed, SIZE_MAX, 3);
    c.said = c.truth;
    std::mt19937_64 rng(seed);
    for (Candidate& k : c.said.candidates) k.cost *= least + (most - least) * uniform(rng);
    return c;
}

struct Measurer {
    const Choice& truth;
    std::vector<int> asked;
    explicit Measurer(const Choice& t) : truth(t), asked(t.candidates.size()) {}
    std::vector<double> operator()(const std::vector<size_t>& which) {
        std::vector<double> out;
        for (const size_t k : which) {
            ++asked[k];
            out.push_back(truth.candidates[k].cost);
        }
        return out;
    }
};

/// Runs a search with the costs that it requests. With Profile::Full all costs are known before the first solution.
LazyResult solve_lazily(const Choice& choice, Profile profile, Measurer& measurer) {
    LazySearch search(choice, std::vector<bool>(choice.candidates.size(), profile == Profile::None), {});
    if (profile == Profile::Full) {
        std::vector<size_t> all;
        for (size_t k = 0; k < choice.candidates.size(); ++k)
            if (!std::isinf(choice.candidates[k].cost)) all.push_back(k);
        search.tell(all, measurer(all));
    }
    for (std::vector<size_t> which = search.next(); !which.empty(); which = search.next())
        search.tell(which, measurer(which));
    return search.result();
}

TEST(LazyProfiling, finds_the_optimum_of_full_profiling_where_nothing_costs_less_than_said) {
    size_t lazily = 0, fully = 0;
    for (uint64_t seed = 0; seed < 150; ++seed) {
        const Case c = random_case(seed, 0.5, 1);
        Measurer some(c.truth), all(c.truth);
        const LazyResult lazy = solve_lazily(c.said, Profile::Lazy, some);
        const LazyResult full = solve_lazily(c.said, Profile::Full, all);
        ASSERT_EQ(lazy.blp.status, BlpStatus::Optimal);
        EXPECT_NEAR(lazy.blp.objective, full.blp.objective, 1e-6 * full.blp.objective) << "seed " << seed;
        EXPECT_NEAR(lazy.blp.objective, test::cheapest(c.truth), 1e-6 * full.blp.objective) << "seed " << seed;
        EXPECT_NEAR(c.truth.cost(lazy.blp.chosen), lazy.blp.objective, 1e-9 * full.blp.objective);
        EXPECT_EQ(lazy.undercut, 0u);
        EXPECT_EQ(full.measured, c.said.candidates.size());
        EXPECT_EQ(full.solutions, 1u);
        for (const int n : some.asked) EXPECT_LE(n, 1) << "measured twice";
        for (const size_t k : lazy.blp.chosen) EXPECT_EQ(some.asked[k], 1);
        EXPECT_EQ(lazy.measured, static_cast<size_t>(std::count(some.asked.begin(), some.asked.end(), 1)));
        lazily += lazy.measured;
        fully += full.measured;
    }
    EXPECT_LT(lazily * 2, fully);
}

TEST(LazyProfiling, ends_at_once_where_the_bounds_are_the_costs) {
    const Case c = random_case(5, 1, 1);
    Measurer measurer(c.truth);
    const LazyResult lazy = solve_lazily(c.said, Profile::Lazy, measurer);
    EXPECT_EQ(lazy.solutions, 1u);
    EXPECT_EQ(lazy.measured, lazy.blp.chosen.size());
}

/// The number of measurements if all unmeasured kernels of a solution are measured at once, for comparison.
size_t measured_all_at_once(const Case& c) {
    LazySearch search(c.said, std::vector<bool>(c.said.candidates.size(), false), {});
    std::vector<bool> known(c.said.candidates.size());
    size_t measured = 0;
    while (!search.next().empty()) {
        std::vector<size_t> which;
        std::vector<double> costs;
        for (const size_t k : search.result().blp.chosen)
            if (!known[k]) {
                known[k] = true;
                which.push_back(k);
                costs.push_back(c.truth.candidates[k].cost);
            }
        measured += which.size();
        search.tell(which, costs);
    }
    return measured;
}

TEST(LazyProfiling, asks_for_the_dearest_of_a_solution_first_which_takes_fewer_measurements) {
    size_t at_once = 0, dearest_first = 0;
    for (uint64_t seed = 0; seed < 150; ++seed) {
        const Case c = random_case(seed, 0.6, 1);
        LazySearch search(c.said, std::vector<bool>(c.said.candidates.size(), false), {});
        const std::vector<size_t> first = search.next();
        const std::vector<size_t>& chosen = search.result().blp.chosen;
        double asked = 0, all = 0, cheapest_asked = kInfinity, dearest_left = 0;
        for (const size_t k : chosen) {
            const double cost = c.said.candidates[k].cost;
            all += cost;
            if (std::find(first.begin(), first.end(), k) != first.end()) {
                asked += cost;
                cheapest_asked = std::min(cheapest_asked, cost);
            } else {
                dearest_left = std::max(dearest_left, cost);
            }
        }
        EXPECT_GE(asked, 0.5 * all);
        EXPECT_GE(cheapest_asked, dearest_left);
        EXPECT_LT(asked - cheapest_asked, 0.5 * all) << "no more than needed";
        Measurer measurer(c.truth);
        dearest_first += solve_lazily(c.said, Profile::Lazy, measurer).measured;
        at_once += measured_all_at_once(c);
    }
    EXPECT_LT(static_cast<double>(dearest_first), 0.95 * static_cast<double>(at_once));
}

/// If estimates may be too high, a better kernel may never be measured, but no plan is better by the known costs.
TEST(LazyProfiling, with_estimates_is_best_by_what_is_known) {
    size_t undercut = 0;
    for (uint64_t seed = 0; seed < 60; ++seed) {
        const Case c = random_case(seed, 0.6, 1.5);
        Measurer measurer(c.truth);
        const LazyResult lazy = solve_lazily(c.said, Profile::Lazy, measurer);
        Choice known = c.said;
        for (size_t k = 0; k < known.candidates.size(); ++k)
            if (measurer.asked[k] != 0) known.candidates[k].cost = c.truth.candidates[k].cost;
        EXPECT_NEAR(c.truth.cost(lazy.blp.chosen), test::cheapest(known), 1e-6 * lazy.blp.objective);
        undercut += lazy.undercut;
    }
    EXPECT_GT(undercut, 50u);
}

TEST(LazyProfiling, none_measures_nothing) {
    const Case c = random_case(5, 0.5, 1);
    Measurer measurer(c.truth);
    const LazyResult none = solve_lazily(c.said, Profile::None, measurer);
    EXPECT_EQ(none.measured, 0u);
    EXPECT_NEAR(none.blp.objective, test::cheapest(c.said), 1e-6 * none.blp.objective);
}

TEST(LazyProfiling, what_turns_out_not_to_run_is_avoided) {
    for (uint64_t seed = 0; seed < 60; ++seed) {
        Case c = random_case(seed, 0.5, 1);
        for (size_t k = 0; k < c.truth.candidates.size(); ++k)
            if (c.truth.candidates[k].covers.size() > 1 && k % 2 == 0)
                c.truth.candidates[k].cost = std::numeric_limits<double>::infinity();
        Measurer measurer(c.truth);
        const LazyResult lazy = solve_lazily(c.said, Profile::Lazy, measurer);
        ASSERT_EQ(lazy.blp.status, BlpStatus::Optimal);
        Choice possible = c.truth;
        std::erase_if(possible.candidates, [](const Candidate& k) { return std::isinf(k.cost); });
        EXPECT_NEAR(lazy.blp.objective, test::cheapest(possible), 1e-6 * lazy.blp.objective);
    }
}

}  // namespace
}  // namespace tilewright::optimal
