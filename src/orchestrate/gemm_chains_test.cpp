// Which products of a model become one kernel.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "compile/pipeline.h"
#include "cost/given_test.h"
#include "orchestrate/fuse_rows.h"
#include "orchestrate/gemm_chains.h"
#include "orchestrate/kernel_group.h"
#include "orchestrate/options.h"
#include "orchestrate/program_test.h"
#include "orchestrate/refusal_test.h"
#include "orchestrate/run_plan_test.h"
#include "orchestrate/schedules.h"
#include "orchestrate/scheduling_test.h"
#include "schedule/chain/chain.h"
#include "schedule/chain/chains_test.h"
#include "schedule/kernel_costs_test.h"

namespace tilewright {
namespace {

using namespace test;
using testing::ElementsAre;

std::vector<std::string> names(const Program& p, const std::vector<KernelGroup>& groups) {
    std::vector<std::string> out;
    for (const KernelGroup& g : groups) {
        out.emplace_back(g.chain ? "chain:" : "");
        for (const PrimitiveId id : g.primitives)
            out.back() += (out.back().empty() ? "" : " ") + p.values[p.primitives[id].outputs[0]].name;
    }
    return out;
}

/// The results of each group's primitives: {"chain: c e"}.
std::vector<std::string> groups(const Program& p) {
    Schedules schedules(avx2_scheduling());
    return names(p, fuse_gemm_chains(p, fuse_rows(p), schedules));
}

Program attention() { return chain::attention(8, 128, 128, 32, 32); }

Program with(const Program& p, const std::string& line, const std::string& output) {
    std::string text = print(p);
    const size_t at = text.find("  output ");
    text.insert(at, line.empty() ? "" : "  " + line + "\n");
    text.insert(text.rfind('}'), "  output " + output + "\n");
    return parse_program(text);
}

TEST(GemmChains, an_attention_is_one_kernel) {
    ASSERT_EQ(names(attention(), fuse_rows(attention())), (std::vector<std::string>{"c", "r p s w", "e"}));
    EXPECT_THAT(groups(attention()), ElementsAre("chain: c r p s w e"));
}

TEST(GemmChains, what_feeds_the_first_product_stays_outside) {
    const Program p = parse_program(R"(program t {
  input x: f32[65536, 8]
  input b: f32[8, 64]
  input d: f32[64, 8]
  n: f32[65536, 8] = [65536, 8] tanh(@0) where @0 = x[i0, i1]
  c: f32[65536, 64] = [65536, 64] sum(i2 < 8) mul(@0, @1) then max(acc, 0.0) where @0 = n[i0, i2], @1 = b[i2, i1]
  e: f32[65536, 8] = [65536, 8] sum(i2 < 64) mul(@0, @1) where @0 = c[i0, i2], @1 = d[i2, i1]
  output e
})");
    EXPECT_THAT(groups(p), ElementsAre("n", "chain: c e"));
}

/// Whether every group reads only results of itself or of earlier groups.
bool can_run(const Program& p, const std::vector<KernelGroup>& all) {
    std::set<ValueId> there(p.inputs.begin(), p.inputs.end());
    for (const KernelGroup& g : all) {
        for (const PrimitiveId id : g.primitives) there.insert(p.primitives[id].outputs[0]);
        for (const PrimitiveId id : g.primitives)
            for (const ValueId v : p.primitives[id].inputs())
                if (there.count(v) == 0) return false;
    }
    return true;
}

TEST(GemmChains, a_product_joins_those_behind_it_only_with_all_that_it_feeds_on_the_way) {
    // A residual block: a feeds the last product's sum and, through c and m, the last product.
    const Program p = parse_program(R"(program t {
  input x: f32[256, 16]
  input w: f32[16, 16]
  input b: f32[16, 64]
  input d: f32[64, 16]
  input u: f32[3, 64]
  a: f32[256, 16] = [256, 16] sum(i2 < 16) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]
  c: f32[256, 64] = [256, 64] sum(i2 < 16) mul(@0, @1) then max(acc, 0.0) where @0 = a[i0, i2], @1 = b[i2, i1]
  m: f32[256, 64] = [256, 64] sum(i2 < 3) mul(@0, @1) where @0 = c[i0 + i2 - 1, i1] when i0 + i2 - 1 >= 0 and -i0 - i2 + 256 >= 0 else 0, @1 = u[i2, i1]
  e: f32[256, 16] = [256, 16] sum(i2 < 64) mul(@0, @1) then add(acc, @2) where @0 = m[i0, i2], @1 = d[i2, i1], @2 = a[i0, i1]
  output e
})");
    // Kernels with two results are fast in this test, as a and e without c would be; no other one gains.
    Scheduling how = avx2_scheduling();
    test::measure_schedules_by(how, [](const std::vector<TileProgram>& all) {
        std::vector<double> seconds;
        for (const TileProgram& t : all)
            seconds.push_back(t.stages.outputs.size() == 2 ? 1e-6 : static_cast<double>(t.stages.primitives.size()));
        return seconds;
    });
    Schedules schedules(how);
    const std::vector<KernelGroup> all = fuse_gemm_chains(p, fuse_rows(p), schedules);
    EXPECT_TRUE(can_run(p, all)) << testing::PrintToString(names(p, all));
}

TEST(GemmChains, transforms_by_known_numbers_stay_outside) {
    // Sums and differences of pairs of rows between two products, as a constant-coefficient transform or as plain sums.
    const auto grouped = [](const std::string& pairs) {
        const Program p = parse_program(R"(program transformed {
  input x: f32[2, 65536, 8]
  input b: f32[8, 64]
  input d: f32[64, 8]
  c: f32[2, 65536, 64] = [2, 65536, 64] sum(i3 < 8) mul(@0, @1) where @0 = x[i0, i1, i3], @1 = b[i3, i2]
  t: f32[2, 65536, 64] = [2, 65536, 64] sum(i3 < 2) )" +
                                        pairs + R"( where @0 = c[i3, i1, i2]
  e: f32[2, 65536, 8] = [2, 65536, 8] sum(i3 < 64) mul(@0, @1) where @0 = t[i0, i1, i3], @1 = d[i3, i2]
  output e
})");
        Scheduling how = avx2_scheduling();
        test::measure_schedules_by(how,
                                   [](const std::vector<TileProgram>& all) {  // every merged kernel is fast
                                       std::vector<double> seconds;
                                       for (const TileProgram& t : all)
                                           seconds.push_back(t.stages.primitives.size() == 1 ? 1 : 0.1);
                                       return seconds;
                                   });
        Schedules schedules(how);
        return names(p, fuse_gemm_chains(p, fuse_rows(p), schedules));
    };
    EXPECT_THAT(grouped("@0"), ElementsAre("chain: c t e"));
    EXPECT_THAT(grouped("weigh(table{1, 1, 1, -1}(index(2*i0 + i3)), @0)"), ElementsAre("c", "t", "e"));
}

TEST(GemmChains, a_value_in_between_that_is_an_output_keeps_kernels_apart) {
    const Program p = with(attention(), "", "w");
    EXPECT_EQ(groups(p), names(p, fuse_rows(p)));
}

TEST(GemmChains, a_value_in_between_with_another_reader_keeps_kernels_apart) {
    const Program p = with(attention(), "z: f32[8, 128, 128] = [8, 128, 128] neg(@0) where @0 = c[i0, i1, i2]", "z");
    const std::vector<std::string> all = groups(p);
    EXPECT_NE(std::find(all.begin(), all.end(), "c"), all.end()) << testing::PrintToString(all);
}

TEST(GemmChains, a_softmax_joins_the_product_behind_it_where_the_scores_cannot) {
    const Program p = with(attention(), "z: f32[8, 128, 128] = [8, 128, 128] neg(@0) where @0 = c[i0, i1, i2]", "z");
    const std::vector<std::string> all = groups(p);
    EXPECT_NE(std::find(all.begin(), all.end(), "chain: r p s w e"), all.end()) << testing::PrintToString(all);
}

/// A machine on which kernels of `fast` stages are fast, single-stage kernels take their estimate, and all others are
/// slow.
Scheduling where_only_stages(size_t fast) {
    Scheduling how = avx2_scheduling();
    test::measure_schedules_by(how, [fast](const std::vector<TileProgram>& all) {
        std::vector<double> seconds;
        for (const TileProgram& t : all) {
            const size_t n = t.stages.primitives.size();
            seconds.push_back(n == fast ? 1 : n == 1 ? 100 : 1000);
        }
        return seconds;
    });
    return how;
}

TEST(GemmChains, two_products_their_gate_and_a_third_are_one_kernel) {
    // silu(x Wg) * (x Wu), times Wd. The first product feeds the second, not the third, so no pair alone ends a chain.
    const Program p = parse_program(R"(program gated {
  input x: f32[2048, 16]
  input wg: f32[16, 64]
  input wu: f32[16, 64]
  input wd: f32[64, 16]
  g: f32[2048, 64] = [2048, 64] sum(i2 < 16) mul(@0, @1) then div(acc, add(exp(neg(acc)), 1.0)) where @0 = x[i0, i2], @1 = wg[i2, i1]
  u: f32[2048, 64] = [2048, 64] sum(i2 < 16) mul(@0, @1) then mul(acc, @2) where @0 = x[i0, i2], @1 = wu[i2, i1], @2 = g[i0, i1]
  y: f32[2048, 16] = [2048, 16] sum(i2 < 64) mul(@0, @1) where @0 = u[i0, i2], @1 = wd[i2, i1]
  output y
})");
    // For two products, each pair is slower than two kernels; all three are faster than three kernels.
    Schedules schedules(where_only_stages(3));
    EXPECT_THAT(names(p, fuse_gemm_chains(p, fuse_rows(p), schedules)), ElementsAre("chain: g u y"));
}

TEST(GemmChains, a_normalisation_joins_its_product_where_that_gains) {
    const Program p = chain::norm_product("layer", "64", 16, 16);
    Schedules gains(where_only_stages(4)), loses(where_only_stages(3));
    EXPECT_THAT(names(p, fuse_gemm_chains(p, fuse_rows(p), gains)), ElementsAre("chain: m v n y"));
    EXPECT_THAT(names(p, fuse_gemm_chains(p, fuse_rows(p), loses)), ElementsAre("m v n", "y"));
}

TEST(GemmChains, rows_that_only_the_run_counts_are_chained) {
    const Program p = parse_program(R"(program t {
  input x: f32[$rows, 16]
  input b: f32[16, 64]
  input d: f32[64, 16]
  c: f32[$rows, 64] = [$rows, 64] sum(i2 < 16) mul(@0, @1) then max(acc, 0.0) where @0 = x[i0, i2], @1 = b[i2, i1]
  e: f32[$rows, 16] = [$rows, 16] sum(i2 < 64) mul(@0, @1) where @0 = c[i0, i2], @1 = d[i2, i1]
  output e
})");
    EXPECT_THAT(groups(p), ElementsAre("chain: c e"));
}

/// The estimated time of all groups, with a microsecond of dispatch each.
double seconds_of(const Program& p, const std::vector<KernelGroup>& all, Schedules& schedules) {
    double sum = 0;
    for (const KernelGroup& g : all) {
        const KernelBody body = extract(p, g);
        sum += (g.chain ? given(schedules.chain(body)) : schedules.kernel(body)).seconds + 1e-6;
    }
    return sum;
}

/// EfficientViT's linear attention over n positions, 16 wide, as exported: v has a column of ones.
Program linear_attention(const std::string& n) {
    std::string text = R"(program linear_attention {
  input x: f32[4, 48, N]
  fq: f32[4, N, 16] = [4, N, 16] max(@0, 0.0) where @0 = x[i0, i2, i1]
  fk: f32[4, 16, N] = [4, 16, N] max(@0, 0.0) where @0 = x[i0, i1 + 16, i2]
  ones: f32[4, N, 17] = [4, N, 17] @0 where @0 = x[i0, i2 + 32, i1] when 15 - i2 >= 0 else 1
  kv: f32[4, 16, 17] = [4, 16, 17] sum(i3 < N) mul(@0, @1) where @0 = fk[i0, i1, i3], @1 = ones[i0, i3, i2]
  qkv: f32[4, N, 17] = [4, N, 17] sum(i3 < 16) mul(@0, @1) where @0 = fq[i0, i1, i3], @1 = kv[i0, i3, i2]
  quot: f32[4, N, 16] = [4, N, 16] div(@0, add(@1, 1e-15)) where @0 = qkv[i0, i1, i2], @1 = qkv[i0, i1, 16]
  y: f32[4, 16, N] = [4, 16, N] @0 where @0 = quot[i0, i2, i1]
  output y
})";
    for (size_t at = text.find('N'); at != std::string::npos; at = text.find('N', at + n.size()))
        text.replace(at, 1, n);
    return parse_program(text);
}

/// Kernels with dynamic extents are made for samples of the sizes. The dispatch among them must hold between and beyond
/// the samples: at sizes of models (EfficientViT's 64 to 16,384), the dynamic plan is not much slower than the plan for
/// that size.
TEST(GemmChains, over_open_extents_hold_at_the_sizes_that_models_have) {
    OrchestrateOptions options;
    options.scheduling.kind = SchedulerKind::Auto;
    options.scheduling.target = target_with();
    options.scheduling.estimates = true;
    const auto seconds = [&](const Program& p, int64_t n) {
        KernelSet set;
        const Plan plan = plan_program(p, set, options);
        double sum = 0;
        const Bindings sizes{{*symbol("n").as_var(), n}};
        for (const Step& step : plan.steps) {
            const auto& call = std::get<KernelCall>(step.what);
            if (!test::runs_at(plan, call, sizes)) continue;
            sum += kKernelSeconds + estimate(set.kernels()[call.kernel], options.scheduling.target, sizes).seconds;
        }
        return sum;
    };
    for (const int64_t n : {64, 256, 1024, 4096, 16384})
        EXPECT_LT(seconds(linear_attention("$n"), n),
                  (n > 4096 ? 1.6 : 1.15) * seconds(linear_attention(std::to_string(n)), n))
            << n;
}

TEST(GemmChains, fuses_only_where_the_model_says_that_it_gains) {
    int fused = 0, apart = 0;
    for (const int64_t n : {16, 64, 192, 1024})
        for (const int64_t h : {16, 128, 1024})
            for (const Program& p : {chain::two_products(n, h, 64, h), chain::three_products(n, h, 64, h, 32),
                                     chain::three_products(h, n, n, h, n)}) {
                Schedules schedules(avx2_scheduling());
                const std::vector<KernelGroup> before = fuse_rows(p), after = fuse_gemm_chains(p, before, schedules);
                EXPECT_LE(seconds_of(p, after, schedules), seconds_of(p, before, schedules)) << print(p);
                (after.size() < before.size() ? fused : apart) += 1;
            }
    EXPECT_GT(fused, 0);
    EXPECT_GT(apart, 0);
}

TEST(GemmChains, a_chain_takes_one_more_product_only_where_it_gains_over_the_shorter_chain) {
    const int64_t sizes[] = {16, 64, 256, 512};
    int longer = 0, shorter = 0;
    for (uint64_t seed = 0; seed < 60; ++seed) {
        std::mt19937_64 rng(seed);
        const auto pick = [&] { return sizes[rng() % std::size(sizes)]; };
        const Program p = chain::three_products(pick(), pick(), pick(), pick(), pick());
        Schedules schedules(avx2_scheduling());
        const std::vector<KernelGroup> found = fuse_gemm_chains(p, fuse_rows(p), schedules);
        shorter += found.size() == 2 ? 1 : 0;
        if (found.size() != 1) continue;
        ++longer;
        const std::vector<KernelGroup> cut = {{{PrimitiveId(0), PrimitiveId(1)}, {{}, {}}, true},
                                              {{PrimitiveId(2)}, {{}}}};
        EXPECT_LE(seconds_of(p, found, schedules), seconds_of(p, cut, schedules)) << print(p);
    }
    EXPECT_GT(longer, 5);
    EXPECT_GT(shorter, 5);
}

TEST(GemmChains, plans_with_chains_compute_their_programs) {
    int chains = 0;
    std::vector<Program> programs = chain::small_chains();
    for (const Program& p : chain::dynamic_chains()) programs.push_back(p);
    for (const Program& p : programs)
        for (const SchedulerKind kind : {SchedulerKind::Mcfuser, SchedulerKind::Auto})
            for (const int threads : {1, 4}) {
                OrchestrateOptions options;
                options.scheduling = avx2_scheduling(kind, threads);
                KernelSet kernels;
                const Plan plan = plan_program(p, kernels, options);
                for (const TileProgram& kernel : kernels.kernels()) {
                    ASSERT_EQ(verify(kernel), std::vector<std::string>()) << print(kernel);
                    size_t products = 0;
                    for (const Primitive& s : kernel.stages.primitives)
                        products += chain::is_product(*s.expr()) ? 1 : 0;
                    chains += products > 1 ? 1 : 0;
                }
                const std::vector<Tensor> inputs = random_inputs(p, 4);
                ASSERT_LE(largest_difference(interpret(p, inputs), run_by_tiles(plan, kernels, inputs)), 1e-5)
                    << plan.print();
            }
    EXPECT_GT(chains, 20);
}

TEST(GemmChains, are_one_kernel_without_a_gain_where_all_are_wanted) {
    // Two products whose intermediate result fits the cache: fusing them saves next to nothing.
    const Program p = chain::two_products(512, 256, 64, 64);
    const auto plan_of = [&](bool all) {
        OrchestrateOptions options;
        options.scheduling = avx2_scheduling(SchedulerKind::Mcfuser);
        options.scheduling.all_chains = all;
        KernelSet kernels;
        const Plan plan = plan_program(p, kernels, options);
        for (const TileProgram& kernel : kernels.kernels()) EXPECT_EQ(verify(kernel), std::vector<std::string>());
        const std::vector<Tensor> inputs = random_inputs(p, 4);
        EXPECT_LE(largest_difference(interpret(p, inputs), run_by_tiles(plan, kernels, inputs)), 1e-4);
        return plan.steps.size();
    };
    EXPECT_EQ(plan_of(false), 2u);
    EXPECT_EQ(plan_of(true), 1u);
}

TEST(GemmChains, schedulers_that_know_no_chains_make_none) {
    for (const SchedulerKind kind : {SchedulerKind::Default, SchedulerKind::Tree, SchedulerKind::Gensor}) {
        OrchestrateOptions options;
        options.scheduling = avx2_scheduling(kind);
        KernelSet kernels;
        EXPECT_EQ(plan_program(attention(), kernels, options).steps.size(), 3u) << to_string(kind);
    }
    OrchestrateOptions options;
    options.scheduling = avx2_scheduling();
    KernelSet kernels;
    const Plan plan = plan_program(attention(), kernels, options);
    ASSERT_EQ(plan.steps.size(), 1u);
    EXPECT_EQ(std::get<KernelCall>(plan.steps[0].what).primitives.size(), 6u);
}

std::string chain_refusal(const Program& p, const Scheduling& how, const std::string& producer,
                          const std::string& reader, const FusionLimits& limits = {}) {
    return refusal(
        p, producer, reader,
        [&how](const Program& q, const FusionLimits& l) {
            Schedules schedules(how);
            fuse_gemm_chains(q, fuse_rows(q), schedules, l);
        },
        limits);
}

TEST(GemmChains, say_why_kernels_stay_apart) {
    const Program p = chain::norm_product("layer", "64", 16, 16);
    const std::string last = p.values[p.outputs[0]].name;
    EXPECT_EQ(chain_refusal(p, where_only_stages(3), "n", last), "a GEMM chain would not gain enough");
    EXPECT_EQ(chain_refusal(attention(), avx2_scheduling(), "w", "e", nothing_shared()),
              "an option forbids fusing the two");
    EXPECT_EQ(chain_refusal(with(attention(), "", "w"), avx2_scheduling(), "w", "e"),
              "its operand has other readers or is an output of the program");
    // Two products with nothing to save between them.
    EXPECT_EQ(chain_refusal(chain::two_products(4096, 256, 256, 256), avx2_scheduling(), "c", "e"),
              "a GEMM chain would save nothing even at its lower bound");
}

}  // namespace
}  // namespace tilewright
