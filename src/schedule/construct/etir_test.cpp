// Gensor's states and actions: formulas 1 to 3 on numbers worked out by hand, the available transitions, and the
// legality of every state as a schedule.

#include "schedule/construct/etir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cost/given_test.h"
#include "program/random_program.h"
#include "schedule/construct/problems_test.h"

namespace tilewright::construct {
namespace {

using testing::ElementsAre;
using Kind = Action::Kind;

/// 32 x 64 x 48 with uncut reductions and vectors along n.
struct Product {
    explicit Product(const Target& target = narrow_target()) : p(problem_of(product(32, 64, 48), target)) {}
    Problem p;
    Etir e = initial(p);
};

TEST(Etir, begins_with_the_smallest_tiles_at_the_outermost_level) {
    const Product x;
    ASSERT_EQ(x.p.micro.vector_axis, kN);
    EXPECT_EQ(x.e.level, 2u);
    EXPECT_THAT(x.e.tiles, ElementsAre(ElementsAre(1, 8, 1), ElementsAre(1, 8, 48), ElementsAre(1, 8, 48)));
    EXPECT_THAT(x.e.virtual_threads, ElementsAre(1, 1, 1));
}

TEST(Footprint, is_the_lines_of_all_tiles_and_the_registers_at_the_core) {
    const Product x;
    // A 48 floats: 192 bytes; B 48 rows of 8: a line each; C one line.
    EXPECT_EQ(footprint(x.p, x.e, 2), 192 + 48 * 64 + 64);
    // One result, one vector of B, one broadcast of A: three registers of 32 bytes.
    EXPECT_EQ(footprint(x.p, x.e, 0), 3 * 32);
}

TEST(Traffic, is_the_footprint_of_every_tile_with_the_result_once) {
    const Product x;
    // 32 x 8 tiles.
    EXPECT_EQ(traffic(x.p, x.e, 2), 256 * (192 + 48 * 64 + 64));
    // Into registers: 48 times a broadcast of 4 bytes and a vector of 32, and the result's vector.
    EXPECT_EQ(traffic(x.p, x.e, 0), 256 * (48 * (4 + 32) + 32));
}

TEST(Formula1, weighs_traffic_saved_with_what_is_filled) {
    const Product x;
    // T = 1 x 8, T' = 2 x 8. F = 3328, F' = 384 + 3072 + 128 = 3584; Q = 256 F, Q' = 128 F':
    // Q F' / (Q' F) = 256 / 128.
    EXPECT_DOUBLE_EQ(benefit(x.p, x.e, {Kind::Tile, kM}, 0), 2);
    // The inverse action from T'.
    const Etir larger = given(apply(x.p, x.e, {Kind::Tile, kM}));
    EXPECT_DOUBLE_EQ(benefit(x.p, larger, {Kind::InverseTile, kM}, 0), 0.5);
}

TEST(Formula1, counts_registers_at_the_core) {
    Product x;
    x.e.level = 0;
    x.e.tiles[1] = x.e.tiles[2] = {32, 64, 48};
    // T = 1 x 8: Q = 256 (48 (4 + 32) + 32) = 450560, F = 3 registers.
    // T' = 2 x 8: Q' = 128 (48 (8 + 32) + 64) = 253952, F' = 2 results, a vector, a broadcast.
    EXPECT_DOUBLE_EQ(benefit(x.p, x.e, {Kind::Tile, kM}, 0), 450560.0 * 4 / (253952.0 * 3));
}

TEST(Formula2, compares_how_long_the_tile_takes_from_either_level) {
    Product x;
    // S = 3328 bytes, from the third level (50 cycles, 16 bytes a cycle) and from the second (14, 32). At t = 10 the
    // factor is half of its limit 3.
    const double size = 3328;
    const double gain = (50 + size / 16) / (14 + size / 32);
    EXPECT_DOUBLE_EQ(benefit(x.p, x.e, {Kind::Cache, 0}, 10), 1.5 * gain);
    // One level further in: second against first (4 cycles, 64 bytes a cycle).
    x.e.level = 1;
    EXPECT_DOUBLE_EQ(benefit(x.p, x.e, {Kind::Cache, 0}, 10), 1.5 * (14 + size / 32) / (4 + size / 64));
}

TEST(Formula2, is_annealed_by_the_number_of_the_step) {
    const Product x;
    const auto factor = [&](int t) {
        return benefit(x.p, x.e, {Kind::Cache, 0}, t) / benefit(x.p, x.e, {Kind::Cache, 0}, 10) * 1.5;
    };
    // 3 / (1 + exp(-ln 5 / 10 (t - 10))): exp(ln 5) = 5 at 0, exp(-4 ln 5) = 1 / 625 at 50.
    EXPECT_NEAR(factor(0), 3.0 / 6, 1e-12);
    EXPECT_NEAR(factor(10), 1.5, 1e-12);
    EXPECT_NEAR(factor(50), 3 * 625.0 / 626, 1e-12);
}

/// A register tile of so many rows.
Etir register_tile(const Problem& p, int64_t rows) {
    Etir e = initial(p);
    e.level = 0;
    e.tiles[0] = {rows, 8, 1};
    for (size_t l = 1; l < p.levels(); ++l) e.tiles[l] = {32, 64, p.stage.extents[kK]};
    return e;
}

TEST(Formula3, is_the_conflicts_that_interleaving_avoids) {
    // Rows 512 floats apart: every second row maps to the same set, W = 2.
    const Problem two = problem_of(product(32, 64, 512));
    // 4 rows: ceil(4 / 2) in one set; with two virtual threads ceil(4 / (2 * 2)).
    EXPECT_EQ(benefit(two, register_tile(two, 4), {Kind::SetVThread, kM}, 0), 2);
    // 2 rows: no conflict to avoid.
    EXPECT_EQ(benefit(two, register_tile(two, 2), {Kind::SetVThread, kM}, 0), 1);
    // 6 rows: ceil(6 / 2) against ceil(6 / 4).
    EXPECT_EQ(benefit(two, register_tile(two, 6), {Kind::SetVThread, kM}, 0), 1.5);
    // Rows 1024 floats apart: all in one set. Four virtual threads after two: 4 against 1.
    const Problem one = problem_of(product(32, 64, 1024));
    Etir e = register_tile(one, 4);
    EXPECT_EQ(benefit(one, e, {Kind::SetVThread, kM}, 0), 2);
    e.virtual_threads[kM] = 2;
    EXPECT_EQ(benefit(one, e, {Kind::SetVThread, kM}, 0), 4);
}

TEST(VirtualThreads, are_interleaved_only_where_they_divide_the_register_tile) {
    const Problem p = problem_of(product(32, 64, 512));
    EXPECT_EQ(benefit(p, register_tile(p, 3), {Kind::SetVThread, kM}, 0), 0);
    EXPECT_FALSE(apply(p, register_tile(p, 3), {Kind::SetVThread, kM}));
    const Etir both = given(apply(p, register_tile(p, 2), {Kind::SetVThread, kM}));
    EXPECT_THAT(both.virtual_threads, ElementsAre(2, 1, 1));
    // A single vector along n cannot be split; neither reductions nor outer levels have virtual threads.
    EXPECT_FALSE(apply(p, register_tile(p, 2), {Kind::SetVThread, kN}));
    EXPECT_FALSE(apply(p, register_tile(p, 2), {Kind::SetVThread, kK}));
    EXPECT_FALSE(apply(p, initial(p), {Kind::SetVThread, kM}));
    // A tile that they do not divide has no virtual threads.
    const Etir three = given(apply(p, both, {Kind::Tile, kM}));
    EXPECT_EQ(three.tiles[0][kM], 3);
    EXPECT_EQ(three.virtual_threads[kM], 1);
}

TEST(Transitions, that_would_not_fit_have_no_benefit) {
    Target target = narrow_target();
    set_cache(target, 1, 4000, 32, 14);
    const Product x(target);
    // 1 x 8: 3328 bytes; 2 x 8: 3584; 4 x 8: 768 + 3072 + 256 = 4096.
    const Etir two = given(apply(x.p, x.e, {Kind::Tile, kM}));
    EXPECT_GT(benefit(x.p, x.e, {Kind::Tile, kM}, 0), 0);
    ASSERT_EQ(given(apply(x.p, two, {Kind::Tile, kM})).tiles[2][kM], 4);
    EXPECT_EQ(benefit(x.p, two, {Kind::Tile, kM}, 0), 0);
    for (const Weighted& w : transitions(x.p, two, 0, true)) EXPECT_TRUE(fits(x.p, w.next, 2));
}

TEST(Transitions, of_a_level_in_which_not_even_the_smallest_tile_fits_are_not_held_back) {
    Target target = narrow_target();
    set_cache(target, 1, 3000, 32, 14);
    const Product x(target);
    EXPECT_GT(benefit(x.p, x.e, {Kind::Tile, kM}, 0), 0);
}

/// Calls `f` with states along random walks over the edges, regardless of capacity.
void wander(const Problem& p, uint64_t seed, const std::function<void(const Etir&, const Etir&, Action)>& f) {
    std::mt19937_64 rng(seed);
    Etir e = initial(p);
    for (int t = 0; t < 60; ++t) {
        const auto edges = transitions(p, e, t, true);
        if (edges.empty()) return;
        const Weighted& w = edges[rng() % edges.size()];
        f(e, w.next, w.action);
        e = w.next;
    }
}

TEST(Transitions, the_level_moves_towards_the_core_and_never_back) {
    int inward = 0;
    for (const Program& stages : small_kernels()) {
        const Problem p = problem_of(stages);
        for (uint64_t seed = 0; seed < 5; ++seed)
            wander(p, seed, [&](const Etir& from, const Etir& to, Action a) {
                EXPECT_EQ(to.level, a.kind == Kind::Cache ? from.level - 1 : from.level);
                inward += a.kind == Kind::Cache ? 1 : 0;
                for (size_t l = 0; l < p.levels(); ++l)
                    if (l != from.level) {
                        EXPECT_EQ(to.tiles[l], from.tiles[l]);  // levels that are already scheduled do not change
                    }
            });
    }
    EXPECT_GT(inward, 50);
    Product x;
    x.e.level = 0;
    EXPECT_FALSE(apply(x.p, x.e, {Kind::Cache, 0}));
}

TEST(Transitions, inverse_tile_undoes_tile_and_tile_inverse_tile) {
    int undone = 0;
    for (const Program& stages : small_kernels()) {
        const Problem p = problem_of(stages);
        for (uint64_t seed = 0; seed < 6; ++seed)
            wander(p, seed, [&](const Etir& from, const Etir& to, Action a) {
                if (from.virtual_threads != to.virtual_threads) return;
                if (a.kind != Kind::Tile && a.kind != Kind::InverseTile) return;
                const Kind back = a.kind == Kind::Tile ? Kind::InverseTile : Kind::Tile;
                EXPECT_EQ(apply(p, to, {back, a.axis}), from);
                ++undone;
            });
    }
    EXPECT_GT(undone, 500);
}

TEST(RandomState, is_at_the_core_and_fits) {
    for (const Program& stages : small_kernels()) {
        const Problem p = problem_of(stages);
        std::mt19937_64 rng(5);
        for (int k = 0; k < 20; ++k) {
            const Etir e = random_state(p, rng);
            EXPECT_EQ(e.level, 0u);
            for (size_t l = 0; l < p.levels(); ++l) EXPECT_TRUE(fits(p, e, l));
        }
    }
}

TEST(RandomState, has_virtual_threads_half_of_the_time_where_tiles_divide) {
    const Problem p = problem_of(product(96, 128, 64));
    std::mt19937_64 rng(9);
    int with = 0, without = 0;
    for (int k = 0; k < 200; ++k) {
        const Etir e = random_state(p, rng);
        const bool any =
            std::any_of(e.virtual_threads.begin(), e.virtual_threads.end(), [](int64_t v) { return v > 1; });
        (any ? with : without) += 1;
    }
    EXPECT_GT(with, 20);
    EXPECT_GT(without, 80);
}

TEST(Realise, makes_of_every_state_a_schedule_that_computes_its_stage) {
    int cut_sums = 0, interleaved = 0, tasks = 0, copies = 0;
    for (const Program& stages : small_kernels()) {
        const std::vector<Tensor> inputs = random_inputs(stages, 3);
        const std::vector<Tensor> expected = interpret(stages, inputs);
        for (const int threads : {1, 4}) {
            const Problem p = problem_of(stages, narrow_target(threads));
            std::mt19937_64 rng(static_cast<uint64_t>(threads));
            for (int k = 0; k < 12; ++k) {
                Etir e = k == 0 ? initial(p) : random_state(p, rng);
                e.level = 0;
                for (size_t a = 0; a < p.stage.spatial; ++a)
                    if (rng() % 2 == 0) e = apply(p, e, {Kind::SetVThread, a}).value_or(e);
                const Realised r = realise(p, e);
                const TileProgram t = to_tile_program(stages, p, r);
                ASSERT_EQ(verify(t), std::vector<std::string>()) << print(t);
                ASSERT_LE(largest_difference(expected, interpret(t, inputs, {})), stages.name == "half" ? 2e-3 : 1e-5)
                    << print(t);
                EXPECT_GT(r.seconds, 0);
                EXPECT_LE(r.parallel, r.loops.size());
                for (size_t i = 0; i < r.loops.size(); ++i) cut_sums += r.loops[i].axis >= p.stage.spatial ? 1 : 0;
                for (size_t a = 0; a < p.stage.spatial; ++a) {
                    const int64_t v = r.micro.virtual_threads[a];
                    interleaved += v > 1 ? 1 : 0;
                    EXPECT_EQ(r.micro.registers[a] % v, 0);
                    EXPECT_TRUE(v == 1 || r.state.tiles[1][a] % r.micro.registers[a] == 0);
                }
                tasks += r.parallel > 0 ? 1 : 0;
                copies += p.loads.empty() ? 0 : 1;
            }
        }
    }
    EXPECT_GT(cut_sums, 10);
    EXPECT_GT(interleaved, 20);
    EXPECT_GT(tasks, 100);
    EXPECT_GT(copies, 20);
}

TEST(Realise, costs_what_the_tree_that_it_makes_costs) {
    for (const Program& stages : small_kernels()) {
        const Problem p = problem_of(stages);
        if (!p.loads.empty()) continue;  // the state does not contain the place of copies
        std::mt19937_64 rng(7);
        for (int k = 0; k < 10; ++k) {
            const Realised r = realise(p, random_state(p, rng));
            EXPECT_NEAR(estimate(to_tile_program(stages, p, r), narrow_target()).seconds / r.seconds, 1, 1e-9)
                << stages.name;
        }
    }
}

TEST(Realise, rounds_tiles_to_whole_tiles_of_the_level_inside) {
    const Problem p = problem_of(product(30, 64, 48));
    Etir e = initial(p);
    e.level = 0;
    e.tiles = {{4, 16, 1}, {6, 32, 48}, {15, 64, 48}};
    const Realised r = realise(p, e);
    // 6 rows are two register tiles of 4; 15 rows two tiles of 8.
    EXPECT_THAT(r.state.tiles, ElementsAre(ElementsAre(4, 16, 1), ElementsAre(8, 32, 48), ElementsAre(16, 64, 48)));
    EXPECT_EQ(r.parallel, 1u);  // tasks cut only m
}

}  // namespace
}  // namespace tilewright::construct
