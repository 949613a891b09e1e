// Gensor's walk: determinism, completeness on a small space, and its baselines.

#include "schedule/construct/walk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "cost/target_with_test.h"
#include "schedule/construct/problems_test.h"

namespace tilewright::construct {
namespace {

std::vector<std::vector<std::vector<int64_t>>> tiles_of(const Constructed& c) {
    std::vector<std::vector<std::vector<int64_t>>> out;
    out.reserve(c.top.size());
    for (const Realised& r : c.top) out.push_back(r.state.tiles);
    return out;
}

TEST(Walk, is_decided_by_its_seed) {
    const Problem p = problem_of(product(96, 128, 256));
    EXPECT_EQ(walk(p, 3, 100, true), walk(p, 3, 100, true));
    EXPECT_NE(walk(p, 3, 100, true), walk(p, 4, 100, true));
    WalkOptions options;
    EXPECT_EQ(tiles_of(construct(p, options)), tiles_of(construct(p, options)));
}

TEST(Walk, follows_the_edges_from_the_first_state_on) {
    const Problem p = problem_of(product(96, 128, 256));
    int arrived = 0;
    for (uint64_t seed = 0; seed < 10; ++seed) {
        size_t level = p.levels() - 1;
        for (const Etir& e : walk(p, seed, 100, true)) {
            EXPECT_LE(e.level, level);
            level = e.level;
            EXPECT_TRUE(fits(p, e, e.level));
        }
        arrived += level == 0 ? 1 : 0;
    }
    EXPECT_EQ(arrived, 10);  // a hundred steps suffice to reach the core
}

TEST(Walk, has_no_virtual_threads_where_they_are_switched_off) {
    const Problem p = problem_of(product(96, 128, 1024));
    const auto interleaved = [&](bool allowed) {
        size_t n = 0;
        for (uint64_t seed = 0; seed < 4; ++seed)
            for (const Etir& e : walk(p, seed, 100, allowed))
                for (const int64_t v : e.virtual_threads) n += v > 1 ? 1 : 0;
        return n;
    };
    EXPECT_GT(interleaved(true), 0u);
    EXPECT_EQ(interleaved(false), 0u);
}

TEST(Construct, ranks_what_it_found_best_first) {
    for (const Program& stages : small_kernels()) {
        const Constructed c = construct(problem_of(stages));
        ASSERT_FALSE(c.top.empty());
        EXPECT_GE(c.states, c.top.size());
        for (size_t i = 1; i < c.top.size(); ++i) EXPECT_LE(c.top[i - 1].seconds, c.top[i].seconds);
    }
}

TEST(Construct, climbing_never_loses) {
    for (const Program& stages : small_kernels()) {
        const Problem p = problem_of(stages);
        WalkOptions climbing, walking;
        walking.climb = false;
        EXPECT_LE(construct(p, climbing).top[0].seconds, construct(p, walking).top[0].seconds);
    }
}

// §IV-D: the walk converges to the state with the maximum payoff.
//
// The payoff of an action is the ratio of the worth of the states after and before it. Payoffs along a path are
// multiplied: a path i -> j -> ... -> z has (w_j / w_i) (w_k / w_j) ... = w_z / w_i, the ratio of its ends. The Bellman
// equation V(i) = max_a payoff(a) V(j), in which stopping has payoff 1, is in units of w (with W(i) = w_i V(i))
//     W_{k+1}(i) = max(w_i, max_a W_k(j)).
// Its fixed point at the first state is the worth of the best reachable state. Here w is 1 / seconds, and 0 for states
// that have not reached the core and are no schedules yet.
struct ValueIteration {
    explicit ValueIteration(const Problem& p) {
        std::vector<Etir> todo{initial(p)};
        number.emplace(todo[0], 0);
        for (size_t i = 0; i < todo.size(); ++i) {
            const Etir e = todo[i];
            Etir key = e;
            key.level = 0;
            worth.push_back(e.level == 0 ? 1 / realise(p, key).seconds : 0);
            edges.emplace_back();
            for (const Weighted& w : transitions(p, e, 0, true)) {
                const auto [it, fresh] = number.emplace(w.next, todo.size());
                if (fresh) todo.push_back(w.next);
                edges.back().push_back(it->second);
            }
        }
        value = worth;
        for (bool changed = true; changed; ++iterations) {
            changed = false;
            std::vector<double> next = worth;
            for (size_t i = 0; i < next.size(); ++i) {
                for (const size_t j : edges[i]) next[i] = std::max(next[i], value[j]);
                changed = changed || next[i] != value[i];
                EXPECT_GE(next[i], value[i]);  // "the monotonic non-decreasing nature of the benefits"
            }
            value = next;
        }
    }

    std::map<Etir, size_t> number;
    std::vector<double> worth, value;
    std::vector<std::vector<size_t>> edges;
    int iterations = 0;
};

/// 8 x 32 x 16 with a few candidate sizes.
Problem small_space() {
    Problem p = problem_of(product(8, 32, 16));
    p.tile_sizes = {{{1, 2, 4}, {8, 16}, {1}}, {{1, 4, 8}, {8, 32}, {16}}, {{1, 8}, {8, 16, 32}, {16}}};
    measure_smallest(p);
    return p;
}

/// 1024 x 1024 x 1024 on a GPU: blocks of 16 to 64 rows and columns, steps of 8 or 16.
Problem small_gpu_space() {
    Problem p = *make_gpu_problem(product(1024, 1024, 1024), test::on_gpu(a100()), Precision::F32);
    p.tile_sizes = {{{1, 2, 4}, {4, 8}, {1}}, {{16, 32, 64}, {16, 32, 64}, {8, 16}}};
    measure_smallest(p);
    return p;
}

TEST(ValueIteration, the_walk_finds_the_state_of_the_highest_value) {
    for (const Problem& p : {small_space(), small_gpu_space()}) {
        const ValueIteration v(p);
        EXPECT_GT(v.number.size(), 100u);
        EXPECT_LT(v.iterations, 100);  // "convergence can generally be achieved after about 100 iterations"
        EXPECT_DOUBLE_EQ(v.value[0], *std::max_element(v.worth.begin(), v.worth.end()));
        EXPECT_GT(v.value[0], 1.5 * v.worth[v.number.at([&] {
            Etir e = initial(p);
            e.level = 0;
            return e;
        }())]);  // the space has better states than the first

        WalkOptions options;
        options.walks = 200;
        options.climb = false;
        EXPECT_DOUBLE_EQ(1 / construct(p, options).top[0].seconds, v.value[0]);
        options.climb = true;
        EXPECT_DOUBLE_EQ(1 / construct(p, options).top[0].seconds, v.value[0]);
    }
}

TEST(ValueIteration, states_inside_a_level_reach_each_other) {
    // Irreducibility holds within a level: every state of the outermost level reaches every other one.
    for (const Problem& p : {small_space(), small_gpu_space()}) {
        const ValueIteration v(p);
        size_t outermost = 0;
        for (const auto& [e, i] : v.number) outermost += e.level == p.levels() - 1 ? 1 : 0;
        for (const auto& [from, first] : v.number) {
            if (from.level != p.levels() - 1) continue;
            std::vector<size_t> todo{first};
            std::set<size_t> seen{first};
            while (!todo.empty()) {
                const size_t i = todo.back();
                todo.pop_back();
                for (const size_t j : v.edges[i])
                    if (seen.insert(j).second) todo.push_back(j);
            }
            size_t reached = 0;
            for (const auto& [e, i] : v.number) reached += e.level == p.levels() - 1 && seen.count(i) != 0 ? 1 : 0;
            EXPECT_EQ(reached, outermost);
        }
    }
}

TEST(Tree, grows_tiles_without_a_way_back_and_knows_no_virtual_threads) {
    for (const Program& stages : small_kernels()) {
        const Problem p = problem_of(stages);
        const Constructed c = construct_tree(p);
        ASSERT_FALSE(c.top.empty());
        EXPECT_EQ(tiles_of(c), tiles_of(construct_tree(p)));
        // Register tiles are steps of one path: of any two, one contains the other.
        std::vector<std::vector<int64_t>> steps;
        for (const Realised& r : c.top) {
            steps.push_back(r.state.tiles[0]);
            for (const int64_t v : r.micro.virtual_threads) EXPECT_EQ(v, 1);
        }
        std::sort(steps.begin(), steps.end(), [](const auto& a, const auto& b) {
            return std::accumulate(a.begin(), a.end(), int64_t{0}) < std::accumulate(b.begin(), b.end(), int64_t{0});
        });
        for (size_t i = 1; i < steps.size(); ++i)
            for (size_t a = 0; a < steps[i].size(); ++a) EXPECT_GE(steps[i][a], steps[i - 1][a]);
    }
}

TEST(Tree, is_never_better_than_what_the_walk_and_its_climb_find) {
    for (const Program& stages : {product(96, 128, 256), product(64, 512, 64), product(300, 100, 200)}) {
        const Problem p = problem_of(stages);
        EXPECT_LE(construct(p).top[0].seconds, construct_tree(p).top[0].seconds * 1.01);
    }
}

}  // namespace
}  // namespace tilewright::construct
