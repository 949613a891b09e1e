// Every candidate of a chain's space is a legal tile program that computes the chain, for all inputs.

#include "schedule/chain/realise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "cost/given_test.h"
#include "cost/target_with_test.h"
#include "program/random_program.h"
#include "schedule/chain/chains_test.h"
#include "tile/online_cases_test.h"

namespace tilewright::chain {
namespace {

using testing::HasSubstr;
using testing::Not;

Target target(int lanes = 4, int workers = 1, int64_t l2_bytes = 1 << 20) {
    return test::target_with({.lanes = lanes, .vector_registers = 16, .workers = workers, .l2_bytes = l2_bytes});
}

std::vector<std::string> names_of(const Chain& c) {
    std::vector<std::string> out;
    out.reserve(c.tiled.size());
    for (const size_t a : c.tiled) out.push_back(c.axes[a].name + " ");
    return out;
}

std::string text_of(const Chain& c, const Candidate& k) {
    std::string s = print(k.expression, names_of(c)) + " tiles";
    for (const int64_t t : k.tiles) s += fmt::format(" {}", t);
    return s;
}

/// Tiles of any size: small extents have many, and most do not divide the extent.
Candidate random_candidate(const Chain& c, const std::vector<TilingExpression>& expressions, std::mt19937_64& rng) {
    Candidate k{expressions[rng() % expressions.size()], {}};
    for (const size_t a : c.tiled) {
        const auto extent = static_cast<uint64_t>(c.extents[a]);
        k.tiles.push_back(static_cast<int64_t>(rng() % 3 == 0 ? extent : 1 + rng() % extent));
    }
    return k;
}

const TilingExpression& named(const Chain& c, const std::vector<TilingExpression>& all, const std::string& text) {
    for (const TilingExpression& e : all)
        if (print(e, {"m", "n", "k", "h"}) == text) return e;
    ADD_FAILURE() << "no expression " << text << " of " << c.stages.name;
    return all[0];
}

std::string tree(const Chain& c, const std::string& expression, const std::vector<int64_t>& tiles) {
    const auto t = realise(c, {named(c, make_space(c).expressions, expression), tiles}, target());
    return t ? tiling_expression(*t) : "nothing";
}

TEST(Realise, places_computes_in_the_innermost_loop_over_their_axes) {
    const Chain c = given(make_chain(two_products(9, 8, 5, 6)));
    // m (x0) and h (x3) are the grid; inside a block the deep tiling nk: C0 inside k, C1 outside of it.
    EXPECT_EQ(tree(c, "nk", {4, 3, 2, 4}), "x0x3x1(x2(C0),C1)");
    // The flat one: k and h in sequence.
    EXPECT_EQ(tree(c, "n(k,h)", {4, 3, 2, 4}), "x0x1(x2(C0),x3(C1))");
}

TEST(Realise, loops_of_one_step_are_dead) {
    const Chain c = given(make_chain(two_products(9, 8, 5, 6)));
    EXPECT_EQ(tree(c, "nk", {4, 3, 5, 6}), "x0x1(C0,C1)");
    EXPECT_EQ(tree(c, "nk", {4, 8, 2, 6}), "x0(x2(C0),C1)");
    EXPECT_EQ(tree(c, "nk", {9, 8, 5, 6}), "C0,C1");
    EXPECT_EQ(tree(c, "n(k,h)", {9, 8, 5, 6}), "C0,C1");
}

/// (A B) D with rows of A and B along k: B is packed for vectors along n.
Chain packed_chain() {
    return given(make_chain(parse_program(R"(program chain {
  input a: f32[9, 6]
  input b: f32[8, 6]
  input d: f32[8, 5]
  c: f32[9, 8] = [9, 8] sum(i2 < 6) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i1, i2]
  e: f32[9, 5] = [9, 5] sum(i2 < 8) mul(@0, @1) where @0 = c[i0, i2], @1 = d[i2, i1]
  output e
})")));
}

std::string packed_tree(const std::vector<int64_t>& tiles, Ablation without) {
    const Chain c = packed_chain();
    const auto t = realise(c, {named(c, make_space(c).expressions, "nk"), tiles}, target(), nullptr, without);
    return t ? tiling_expression(*t) : "nothing";
}

TEST(Realise, copies_are_hoisted_as_far_as_the_cache_holds_them) {
    // m, n, k, h are x0 to x3. The copy is over n and k.
    EXPECT_EQ(packed_tree({4, 4, 3, 5}, Ablation::None), "Lb,x0x1(x2(C0),C1)");
    EXPECT_EQ(packed_tree({4, 4, 3, 5}, Ablation::DeepOnly), "Lb,x0x1(x2(C0),C1)");
}

TEST(Realise, copies_without_hoisting_stay_in_the_grid_and_in_the_loops_of_their_axes) {
    EXPECT_EQ(packed_tree({4, 4, 3, 5}, Ablation::Unhoisted), "x0x1(x2(Lb,C0),C1)");
    EXPECT_EQ(packed_tree({4, 8, 3, 5}, Ablation::Unhoisted), "x0(x2(Lb,C0),C1)");
    EXPECT_EQ(packed_tree({4, 4, 6, 5}, Ablation::Unhoisted), "x0x1(Lb,C0,C1)");
    EXPECT_EQ(packed_tree({9, 8, 6, 5}, Ablation::Unhoisted), "Lb,C0,C1");
    EXPECT_EQ(packed_tree({9, 8, 6, 5}, Ablation::Chimera), "Lb,C0,C1");
}

TEST(Realise, columns_of_matrix_instructions_start_at_whole_vectors) {
    const Chain c = given(make_chain(parse_program(R"(program products {
  input a: bf16[64, 32]
  input b: bf16[16, 64, 2]
  input d: bf16[32, 96, 2]
  s: bf16[64, 64] = [64, 64] sum(i2 < 32) mul(@0, @1) where @0 = a[i0, i2], @1 = b[i2 // 2, i1, i2 % 2]
  y: f32[64, 96] = [64, 96] sum(i2 < 64) mul(@0, @1) where @0 = s[i0, i2], @1 = d[i2 // 2, i1, i2 % 2]
  output y
})")));
    Target tiles = generic_target(VectorIsa::avx512);
    tiles.native = true;
    tiles.features = {"amx-bf16", "amx-tile"};
    const auto products = [&](int64_t columns) {
        const std::string text = print(given(realise(c, {make_space(c).expressions[0], {32, 64, 32, columns}}, tiles)));
        size_t n = 0;
        for (size_t at = text.find("matrix bf16 tile"); at != std::string::npos;
             at = text.find("matrix bf16 tile", at + 1))
            ++n;
        return n;
    };
    EXPECT_EQ(products(48), 2u);
    EXPECT_EQ(products(42), 1u);
    EXPECT_EQ(products(96), 2u);
}

TEST(Realise, the_rows_of_one_thread_are_no_tasks_where_heads_are) {
    const Chain c = given(make_chain(attention(4, 6, 8, 3, 5)));
    const TilingExpression e = make_space(c).expressions[0];
    const auto parallel = [&](int threads) {
        const std::string text = print(given(realise(c, {e, {2, 8, 3, 5}}, target(4, threads))));
        size_t n = 0;
        for (size_t at = text.find("parallel "); at != std::string::npos; at = text.find("parallel ", at + 1)) ++n;
        return n;
    };
    EXPECT_EQ(parallel(2), 1u);  // four heads suffice for two threads
    EXPECT_EQ(parallel(3), 2u);
}

TEST(Realise, a_softmax_whose_columns_are_cut_goes_on_with_a_running_maximum) {
    const Chain c = given(make_chain(attention(1, 6, 8, 3, 5)));
    const auto text = [&](int64_t columns) {
        const auto t = realise(c, {make_space(c).expressions[0], {2, columns, 3, 5}}, target());
        return t ? print(*t) : std::string("nothing");
    };
    EXPECT_THAT(text(3), HasSubstr("compute 1 online"));
    EXPECT_THAT(text(8), Not(HasSubstr("online")));  // a tile holds the whole row
}

TEST(Realise, statistics_of_rows_stand_once_in_front_of_all_columns) {
    const Chain c = given(make_chain(norm_product("layer", "9", 12, 8)));
    // m n k are x0 x1 x2; flat: k(n)
    const auto expressions = make_space(c).expressions;
    const auto flat = std::find_if(expressions.begin(), expressions.end(),
                                   [](const TilingExpression& e) { return !e.groups.empty(); });
    ASSERT_NE(flat, expressions.end());
    std::vector<int64_t> tiles;
    for (const size_t a : c.tiled) tiles.push_back(c.reduced[a] ? c.extents[a] : 4);
    const auto t = realise(c, {*flat, tiles}, target());
    ASSERT_TRUE(t);
    EXPECT_THAT(tiling_expression(*t), testing::MatchesRegex("x.*\\(C0,C1,C2,x.*\\(C3\\)\\)")) << tiling_expression(*t);
}

TEST(Realise, is_nothing_where_a_row_is_needed_whole_and_is_not) {
    // LayerNorm: no factor rescales a partial mean to the mean.
    for (const Program& p : small_chains()) {
        if (p.name != "norm") continue;
        const Chain c = given(make_chain(p));
        ASSERT_EQ(c.extents[c.tiled[1]], 12);
        for (const TilingExpression& e : make_space(c).expressions) {
            EXPECT_FALSE(realise(c, {e, {6, 5, 8, 4}}, target()));
            EXPECT_TRUE(realise(c, {e, {3, 12, 8, 4}}, target()));
        }
    }
}

TEST(Realise, gives_trees_that_compute_their_chain) {
    int legal = 0, online = 0, flat = 0, copies = 0, several = 0;
    std::vector<Program> chains = small_chains();
    for (const Program& p : dynamic_chains()) chains.push_back(p);
    for (const Program& p : chains) {
        const Chain c = given(make_chain(p));
        const std::vector<TilingExpression> pruned = make_space(c).expressions;
        std::vector<TilingExpression> blocks;  // candidates pruned by rule 2 may be slow, but must be correct
        for (const TilingExpression& e : all_expressions(c)) blocks.push_back(block_expression(c, e));
        const std::vector<Tensor> inputs = random_inputs(p, 11);
        const std::vector<Tensor> expected = interpret(p, inputs);
        std::mt19937_64 rng(17);
        int found = 0;
        for (int k = 0; k < 40; ++k) {
            const Candidate candidate = random_candidate(c, k % 4 == 0 ? blocks : pruned, rng);
            const auto t = realise(
                c, candidate, target(k % 2 == 0 ? 4 : 8, 1 + static_cast<int>(rng() % 4), k % 3 == 0 ? 200 : 65536));
            if (!t) continue;
            ++found;
            ASSERT_EQ(verify(*t), std::vector<std::string>()) << text_of(c, candidate) << "\n" << print(*t);
            EXPECT_EQ(print(parse_tile_program(print(*t))), print(*t));
            ASSERT_LE(largest_difference(expected, interpret(*t, inputs, {})), 1e-5) << text_of(c, candidate) << "\n"
                                                                                     << print(*t);
            const std::string text = print(*t);
            online += text.find(" online") != std::string::npos ? 1 : 0;
            copies += text.find(" load ") != std::string::npos ? 1 : 0;
            flat += candidate.expression.groups.empty() ? 0 : 1;
            several += text.find("parallel") != std::string::npos ? 1 : 0;
        }
        EXPECT_GT(found, 10) << p.name;
        legal += found;
    }
    EXPECT_GT(legal, 400);
    EXPECT_GT(online, 40);
    EXPECT_GT(flat, 100);
    EXPECT_GT(copies, 50);
    EXPECT_GT(several, 200);
}

TEST(Realise, gives_the_same_trees_with_the_choices_for_earlier_candidates) {
    std::vector<Program> chains = small_chains();
    for (const Program& p : dynamic_chains()) chains.push_back(p);
    const Target cpu = target(8, 4, 65536);
    size_t choices = 0, computes = 0;
    for (const Program& p : chains) {
        const Chain c = given(make_chain(p));
        const std::vector<TilingExpression> expressions = make_space(c).expressions;
        std::mt19937_64 rng(29);
        StageChoices known;
        for (int k = 0; k < 60; ++k) {
            const Candidate candidate = random_candidate(c, expressions, rng);
            const auto alone = realise(c, candidate, cpu), with = realise(c, candidate, cpu, &known);
            ASSERT_EQ(alone ? print(*alone) : "nothing", with ? print(*with) : "nothing") << text_of(c, candidate);
            computes += p.primitives.size();
        }
        choices += known.size();
    }
    EXPECT_LT(choices, computes);
}

TEST(Realise, makes_something_of_every_candidate_of_the_pruned_space_of_products_and_attentions) {
    for (const Program& p : {two_products(48, 32, 20, 64), three_products(32, 16, 32, 33, 16),
                             attention(2, 32, 48, 16, 20), attention(1, 40, 32, 32, 16, "add(mul(acc, 0.5), @2)")}) {
        const Chain c = given(make_chain(p));
        const Space space = make_space(c);
        const std::vector<Tensor> inputs = random_inputs(p, 5);
        const std::vector<Tensor> expected = interpret(p, inputs);
        std::vector<size_t> at(c.tiled.size(), 0);
        int run = 0;
        for (bool more = true; more;) {
            for (const TilingExpression& e : space.expressions) {
                Candidate k{e, {}};
                for (size_t i = 0; i < at.size(); ++i) k.tiles.push_back(space.sizes[i][at[i]]);
                const TileProgram t = given(realise(c, k, target(8, 4)), text_of(c, k));
                ASSERT_EQ(verify(t), std::vector<std::string>()) << text_of(c, k);
                if (++run % 5 == 0) {
                    ASSERT_LE(largest_difference(expected, interpret(t, inputs, {})), 1e-5) << text_of(c, k);
                }
            }
            size_t i = 0;
            while (i < at.size() && ++at[i] == space.sizes[i].size()) at[i++] = 0;
            more = i < at.size();
        }
        EXPECT_GE(run, 8);
    }
}

TEST(Realise, gives_on_hard_rows_what_whole_rows_give) {
    // Rows: plain, all equal, +-1e4, -inf first, all tiles but the last masked, all masked; and a NaN or +inf.
    Program p = parse_tile_program(kAttention).stages;
    const Chain c = given(make_chain(p));
    const std::vector<TilingExpression> expressions = make_space(c).expressions;
    int run = 0, online = 0;
    for (const float poison : {0.25F, std::numeric_limits<float>::quiet_NaN(), kInf}) {
        const std::vector<Tensor> inputs = hard_inputs(poison);
        const Tensor want = interpret(p, inputs).at(0);
        std::mt19937_64 rng(23);
        for (int k = 0; k < 80; ++k) {
            const Candidate candidate = random_candidate(c, expressions, rng);
            const TileProgram t =
                given(realise(c, candidate, target(4, 1 + static_cast<int>(rng() % 4))), text_of(c, candidate));
            ++run;
            online += print(t).find(" online") != std::string::npos ? 1 : 0;
            const Tensor got = interpret(t, inputs, {}).at(0);
            for (int64_t i = 0; i < want.count(); ++i) {
                const double w = want.get(i), g = got.get(i);
                ASSERT_TRUE((std::isnan(w) && std::isnan(g)) || std::abs(w - g) <= 1e-5)
                    << text_of(c, candidate) << ": " << g << " for " << w << " at " << i;
            }
        }
    }
    EXPECT_EQ(run, 240);
    EXPECT_GT(online, 80);
}

/// grouped_attention with a mask for each head that is hard for a softmax: eight heads of `m` queries, groups of four.
Program masked_grouped_attention(int64_t m) {
    std::string text = print(grouped_attention(8, 4, m, 33, 5, 6));
    const auto put = [&](const std::string& before, const std::string& now) {
        const size_t at = text.find(before);
        ASSERT_NE(at, std::string::npos) << before;
        text.replace(at, before.size(), now);
    };
    put("mul(acc, 0.5)", "add(mul(acc, 0.5), @2)");
    put("@1 = k[i0 // 4, i2, i3]", "@1 = k[i0 // 4, i2, i3], @2 = mask[i0, i2]");
    put("  c: ", "  input mask: f32[8, 33]\n  c: ");
    return parse_program(text);
}

TEST(Realise, gives_on_hard_rows_of_heads_that_share_keys_what_whole_rows_give) {
    for (const int64_t m : {1, 3})
        for (const float poison : {0.25F, std::numeric_limits<float>::quiet_NaN(), kInf}) {
            const Program p = masked_grouped_attention(m);
            const Chain c = given(make_chain(p));
            const std::vector<TilingExpression> expressions = make_space(c).expressions;
            std::vector<Tensor> inputs = random_inputs(p, 5);
            Tensor& mask = inputs.back();
            for (int64_t n = 0; n < 33; ++n) {
                mask.set(n, 3);                                 // all equal before the scores are added
                mask.set(33 + n, n % 2 == 0 ? 1e4 : -1e4);      // huge range
                mask.set(2 * 33 + n, n < 32 ? -kInf : 0);       // all but the last masked
                mask.set(3 * 33 + n, -kInf);                    // all masked
                mask.set(4 * 33 + n, n < 16 ? -kInf : 0);       // a masked first tile
                mask.set(5 * 33 + n, n == 20 ? poison : 0);     // in the middle
                mask.set(6 * 33 + n, n > 0 ? -kInf : -1e4);     // all but the first masked
                mask.set(7 * 33 + n, n == 0 ? poison : -kInf);  // the same with a NaN or infinity
            }
            const Tensor want = interpret(p, inputs).at(0);
            std::mt19937_64 rng(31);
            int run = 0, online = 0;
            for (int k = 0; k < 60; ++k) {
                const Candidate candidate = random_candidate(c, expressions, rng);
                const auto t = realise(c, candidate, target(4, 1 + static_cast<int>(rng() % 4)));
                if (!t) continue;
                ++run;
                online += print(*t).find(" online") != std::string::npos ? 1 : 0;
                const Tensor got = interpret(*t, inputs, {}).at(0);
                for (int64_t i = 0; i < want.count(); ++i) {
                    const double w = want.get(i), g = got.get(i);
                    ASSERT_TRUE((std::isnan(w) && std::isnan(g)) || std::abs(w - g) <= 1e-5)
                        << text_of(c, candidate) << ": " << g << " for " << w << " at " << i;
                }
            }
            EXPECT_GT(run, 40);
            EXPECT_GT(online, 10);
        }
}

TEST(Realise, gives_on_hard_rows_of_every_candidate_of_the_space_what_whole_rows_give) {
    const Program p = attention(1, 16, 80, 16, 32, "add(mul(acc, 0.5), @2)");
    const Chain c = given(make_chain(p));
    const Space space = make_space(c);
    std::vector<Tensor> inputs = random_inputs(p, 5);
    Tensor& mask = inputs.back();
    ASSERT_EQ(p.values[p.inputs.back()].name, "mask");
    for (int64_t n = 0; n < 80; ++n) {
        mask.set(n, 3);                                    // row 0: all equal before the scores are added
        mask.set(80 + n, n % 2 == 0 ? 1e4 : -1e4);         // 1: huge range
        mask.set(2 * 80 + n, n < 79 ? -kInf : 0);          // 2: all but the last masked
        mask.set(3 * 80 + n, -kInf);                       // 3: all masked
        mask.set(4 * 80 + n, n < 16 ? -kInf : 0);          // 4: a masked first tile
        mask.set(5 * 80 + n, n < 64 ? 0 : -kInf);          // 5: a masked last tile
        mask.set(6 * 80 + n, n == 40 ? std::nan("") : 0);  // 6: a NaN in the middle
        mask.set(7 * 80 + n, n == 17 ? kInf : 0);          // 7: an infinity
    }
    const std::vector<Tensor> expected = interpret(p, inputs);
    int run = 0, online = 0;
    for (const TilingExpression& e : space.expressions)
        for (const int64_t m : space.sizes[0])
            for (const int64_t n : space.sizes[1])
                for (const int64_t k : space.sizes[2])
                    for (const int64_t h : space.sizes[3]) {
                        const Candidate candidate{e, {m, n, k, h}};
                        const TileProgram t = given(realise(c, candidate, target(8)), text_of(c, candidate));
                        ++run;
                        online += print(t).find(" online") != std::string::npos ? 1 : 0;
                        ASSERT_LE(largest_difference(expected, interpret(t, inputs, {})), 1e-5)
                            << text_of(c, candidate);
                    }
    EXPECT_GE(run, 8);
    EXPECT_GE(online, 4);
}

}  // namespace
}  // namespace tilewright::chain
