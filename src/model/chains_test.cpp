// Machine code of chains as one kernel: every kind of chain, many trees, and the rows that are hard for a softmax.

#include <gtest/gtest.h>

#include <random>

#include "backend/cpu/run_kernel_test.h"
#include "cost/given_test.h"
#include "schedule/chain/chains_test.h"
#include "schedule/chain/realise.h"
#include "tile/online_cases_test.h"

namespace tilewright::chain {
namespace {

using cpu::test::disagreement;

using cpu::test::avx2;
using cpu::test::host;

Target with_workers(Target target, int workers) {
    target.workers = workers;
    return target;
}

/// Vectors of 128 bits: short rows have some then.
void narrow(Target& target) { target.vector_bits = 128; }

/// Tiles of any size; often the whole, so that vectors find something to run along.
Candidate random_candidate(const Chain& c, const std::vector<TilingExpression>& expressions, std::mt19937_64& rng) {
    Candidate k{expressions[rng() % expressions.size()], {}};
    for (const size_t a : c.tiled) {
        const auto extent = static_cast<uint64_t>(c.open[a] ? 6 : c.extents[a]);  // of what comes, or longer
        k.tiles.push_back(static_cast<int64_t>(rng() % 2 == 0 ? extent : 1 + rng() % extent));
    }
    return k;
}

TEST(ChainCode, computes_its_chain) {
    std::vector<Program> chains = small_chains();
    chains.push_back(two_products(40, 48, 33, 56));
    chains.push_back(attention(2, 33, 48, 16, 24, "add(mul(acc, 0.25), @2)"));
    int run = 0;
    for (const Program& p : chains) {
        const Chain c = given(make_chain(p));
        const std::vector<TilingExpression> expressions = make_space(c).expressions;
        const std::vector<Tensor> inputs = random_inputs(p, 11);
        std::mt19937_64 rng(29);
        for (int k = 0; k < 6; ++k) {
            const Target& isa = k % 2 == 0 ? host() : avx2();
            if (!cpu::test::runs_here(isa)) continue;
            const Candidate candidate = random_candidate(c, expressions, rng);
            const auto t = realise(c, candidate, with_workers(isa, 1 + static_cast<int>(rng() % 4)));
            if (!t) continue;
            ++run;
            ASSERT_EQ(disagreement(*t, inputs, 1e-4, isa), "") << print(*t);
        }
    }
    EXPECT_GT(run, 50);
}

TEST(ChainCode, computes_chains_of_open_extents) {
    for (const Program& p : dynamic_chains()) {
        const Chain c = given(make_chain(p));
        const std::vector<TilingExpression> expressions = make_space(c).expressions;
        std::mt19937_64 rng(37);
        int run = 0;
        for (int tries = 0; run < 8 && tries < 200; ++tries) {
            const Target& isa = run % 2 == 0 ? host() : avx2();
            if (!cpu::test::runs_here(isa)) continue;
            Target target = with_workers(isa, 1 + static_cast<int>(rng() % 4));
            if (tries % 4 < 2) narrow(target);
            const auto t = realise(c, random_candidate(c, expressions, rng), target);
            if (!t) continue;
            ++run;
            const cpu::CompiledKernel code = cpu::compile(*t, isa);
            for (uint64_t sizes = 0; sizes < 3; ++sizes)
                ASSERT_EQ(disagreement(code, *t, random_inputs(p, rng()), 1e-4), "") << print(*t);
        }
        EXPECT_EQ(run, 8) << p.name;
    }
}

TEST(ChainCode, gives_on_hard_rows_what_whole_rows_give) {
    const Program p = parse_tile_program(kAttention).stages;
    const Chain c = given(make_chain(p));
    const std::vector<TilingExpression> expressions = make_space(c).expressions;
    std::mt19937_64 rng(31);
    int online = 0;
    for (int k = 0; k < 16; ++k) {
        const Target& isa = k % 2 == 0 ? host() : avx2();
        if (!cpu::test::runs_here(isa)) continue;
        Target target = with_workers(isa, 1 + k % 3);
        if (k % 4 < 2) narrow(target);
        const TileProgram t = given(realise(c, random_candidate(c, expressions, rng), target));
        online += print(t).find(" online") != std::string::npos ? 1 : 0;
        const cpu::CompiledKernel code = cpu::compile(t, isa);
        for (const float poison : {0.25F, std::numeric_limits<float>::quiet_NaN(), kInf})
            ASSERT_EQ(disagreement(code, t, hard_inputs(poison), 1e-5), "") << poison << "\n" << print(t);
    }
    EXPECT_GT(online, 3);
}

}  // namespace
}  // namespace tilewright::chain
