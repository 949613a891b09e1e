// The search finds the best of a small space, and stops without further gain.

#include "schedule/chain/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "cost/given_test.h"
#include "schedule/chain/chains_test.h"
#include "schedule/kernel_costs_test.h"

namespace tilewright::chain {
namespace {

struct Setting {
    Chain chain;
    Target target = generic_target(VectorIsa::avx2);

    explicit Setting(const Program& p) : chain(given(make_chain(p))) {}
    test::FakeCosts costs() const { return test::FakeCosts(EstimatedCosts(target)); }
    SearchResult run(const SearchOptions& options = {}) const { return search(chain, target, options); }
    double capacity() const { return CycleRates(target).caches[1].bytes; }
};

std::vector<Candidate> candidates(const std::vector<Found>& found) {
    std::vector<Candidate> out;
    out.reserve(found.size());
    for (const Found& f : found) out.push_back(f.candidate);
    return out;
}

TEST(Search, is_decided_by_its_seed_where_nothing_is_measured) {
    const Setting s(attention(8, 256, 256, 64, 64));
    SearchOptions one, other;
    one.population = other.population = 8;
    other.seed = 2;
    EXPECT_EQ(candidates(s.run(one).top), candidates(s.run(one).top));
    EXPECT_NE(candidates(s.run(one).top), candidates(s.run(other).top));
}

TEST(Search, gives_the_best_first_by_the_estimate) {
    const Setting s(two_products(256, 256, 64, 64));
    const SearchResult r = s.run();
    ASSERT_EQ(r.top.size(), 8u);
    for (size_t i = 0; i < r.top.size(); ++i) {
        EXPECT_EQ(r.top[i].seconds, r.top[i].estimate);
        EXPECT_DOUBLE_EQ(r.top[i].estimate, estimate(r.top[i].program, s.target).seconds);
        EXPECT_EQ(verify(r.top[i].program), std::vector<std::string>());
        EXPECT_LE(TileBytes(s.chain)(r.top[i].candidate.tiles), 1.2 * s.capacity());
        EXPECT_GE(r.top[i].seconds, r.top[i > 0 ? i - 1 : 0].seconds);
    }
    EXPECT_EQ(r.measured, 0u);
    EXPECT_GE(r.estimated, 64u);
}

TEST(Search, of_a_space_smaller_than_its_population_finds_its_best) {
    const Setting s(two_products(48, 32, 32, 20));
    const Space space = make_space(s.chain);
    double best = 1e300;
    for (const TilingExpression& e : space.expressions)
        for (const int64_t m : space.sizes[0])
            for (const int64_t n : space.sizes[1])
                for (const int64_t k : space.sizes[2])
                    for (const int64_t h : space.sizes[3])
                        if (const auto t = realise(s.chain, {e, {m, n, k, h}}, s.target))
                            best = std::min(best, estimate(*t, s.target).seconds);
    EXPECT_DOUBLE_EQ(s.run().top.at(0).seconds, best);
}

TEST(Search, without_flat_expressions_or_hoisting_finds_what_is_left) {
    // G3 of the paper, where flat tiling pays.
    const Setting s(two_products(512, 256, 64, 256));
    const auto run = [&](Ablation without) {
        SearchOptions o;
        o.without = without;
        return s.run(o);
    };
    for (const Ablation without : {Ablation::DeepOnly, Ablation::Chimera}) {
        const SearchResult r = run(without);
        ASSERT_FALSE(r.top.empty());
        for (const Found& f : r.top) EXPECT_TRUE(f.candidate.expression.groups.empty());
        EXPECT_GE(r.top[0].seconds, 0.98 * run(Ablation::None).top.at(0).seconds);
    }
    for (const Found& f : sample(s.chain, s.target, 50, 1, Ablation::Chimera))
        EXPECT_TRUE(f.candidate.expression.groups.empty());
    const Setting keys(attention(8, 512, 512, 64, 64));
    SearchOptions unhoisted;
    unhoisted.without = Ablation::Unhoisted;
    EXPECT_GE(keys.run(unhoisted).top.at(0).seconds, 0.98 * keys.run().top.at(0).seconds);
}

TEST(Search, ends_early_where_no_candidate_is_nearly_as_fast_as_what_it_replaces) {
    const Setting s(attention(8, 512, 512, 64, 64));
    const SearchResult whole = s.run();
    SearchOptions o;
    o.replaces = whole.top.at(0).seconds;
    const SearchResult same = s.run(o);
    EXPECT_EQ(candidates(same.top), candidates(whole.top));
    EXPECT_EQ(same.estimated, whole.estimated);
    o.replaces = whole.top[0].seconds / 3;
    const SearchResult hopeless = s.run(o);
    EXPECT_TRUE(hopeless.top.empty());
}

TEST(Search, stops_when_a_generation_gains_less_than_epsilon) {
    const Setting s(two_products(256, 256, 64, 64));
    SearchOptions o;
    test::FakeCosts costs = s.costs();
    o.costs = &costs;
    costs.schedules = [](const std::vector<TileProgram>& programs) {
        return std::vector<double>(programs.size(), 1.0);
    };
    EXPECT_EQ(s.run(o).generations, 1);  // the second generation found nothing better
    const Setting large(attention(8, 512, 512, 64, 64));
    double time = 1;
    o.population = 8;  // other candidates in every generation
    costs.schedules = [&](const std::vector<TileProgram>& programs) {
        std::vector<double> out(programs.size());
        for (double& t : out) t = time *= 0.9;
        return out;
    };
    EXPECT_GT(large.run(o).generations, 1);
}

TEST(Search, measures_no_more_generations_than_allowed) {
    const Setting s(attention(8, 512, 512, 64, 64));
    SearchOptions o;
    test::FakeCosts costs = s.costs();
    o.costs = &costs;
    double next = 1;
    // Every time is better: only the limit ends the search.
    costs.schedules = [&](const std::vector<TileProgram>& programs) {
        std::vector<double> times;
        for (size_t i = 0; i < programs.size(); ++i) times.push_back(next /= 2);
        return times;
    };
    o.measured_generations = 1;
    const SearchResult r = s.run(o);
    EXPECT_EQ(r.generations, 1);
    EXPECT_EQ(r.measured, o.top);
}

TEST(Search, measures_the_best_of_every_generation_once_and_believes_it) {
    const Setting s(two_products(256, 256, 64, 64));
    std::set<std::string> seen;
    double fastest = 1e300;
    std::string winner;
    SearchOptions o;
    test::FakeCosts costs = s.costs();
    o.costs = &costs;
    costs.schedules = [&](const std::vector<TileProgram>& programs) {
        EXPECT_LE(programs.size(), o.top);
        std::vector<double> out;
        for (const TileProgram& t : programs) {
            const std::string text = print(t);
            EXPECT_TRUE(seen.insert(text).second) << "measured twice:\n" << text;
            // The fake machine is fast where the estimate is slow.
            out.push_back(1e-6 / estimate(t, s.target).seconds);
            if (out.back() < fastest) {
                fastest = out.back();
                winner = text;
            }
        }
        return out;
    };
    const SearchResult r = s.run(o);
    EXPECT_EQ(r.measured, seen.size());
    ASSERT_FALSE(r.top.empty());
    EXPECT_EQ(r.top[0].seconds, fastest);
    EXPECT_EQ(print(r.top[0].program), winner);
    EXPECT_NE(r.top[0].seconds, r.top[0].estimate);
}

TEST(Search, drops_what_cannot_be_run) {
    const Setting s(two_products(64, 64, 64, 64));
    SearchOptions o;
    test::FakeCosts costs = s.costs();
    o.costs = &costs;
    costs.schedules = [](const std::vector<TileProgram>& programs) {
        return std::vector<double>(programs.size(), -1.0);
    };
    EXPECT_TRUE(s.run(o).top.empty());
    bool first = true;
    costs.schedules = [&](const std::vector<TileProgram>& programs) {
        std::vector<double> out(programs.size(), 1.0);
        if (first) out[0] = -1;
        first = false;
        return out;
    };
    const SearchResult r = s.run(o);
    ASSERT_FALSE(r.top.empty());
    for (const Found& f : r.top) EXPECT_EQ(f.seconds, 1.0);
}

TEST(Sample, is_of_different_legal_programs_in_the_model_s_order) {
    const Setting s(attention(8, 256, 256, 64, 64));
    const std::vector<Found> all = sample(s.chain, s.target, 40);
    ASSERT_EQ(all.size(), 40u);
    std::set<std::string> texts;
    for (size_t i = 0; i < all.size(); ++i) {
        EXPECT_TRUE(texts.insert(print(all[i].program)).second);
        EXPECT_EQ(verify(all[i].program), std::vector<std::string>());
        EXPECT_GE(all[i].estimate, all[i > 0 ? i - 1 : 0].estimate);
        EXPECT_LE(TileBytes(s.chain)(all[i].candidate.tiles), 1.2 * s.capacity());
    }
    const std::vector<Found> other = sample(s.chain, s.target, 40, 2);
    EXPECT_NE(candidates(all), candidates(other));
}

TEST(Sample, of_a_small_space_is_all_of_it) {
    const Setting s(two_products(48, 32, 32, 20));
    const std::vector<Found> all = sample(s.chain, s.target, 10000);
    const SearchResult searched = s.run();
    ASSERT_FALSE(all.empty());
    EXPECT_DOUBLE_EQ(all[0].estimate, searched.top.at(0).estimate);
    EXPECT_LT(all.size(), 10000u);
    EXPECT_LE(searched.top.size(), all.size());
}

TEST(Sample, has_rows_that_threads_share_evenly) {
    Setting s(two_products(197, 32, 32, 20));
    const auto rows = [&] {
        std::set<int64_t> out;
        for (const Found& f : sample(s.chain, s.target, 100000)) out.insert(f.candidate.tiles.at(0));
        return out;
    };
    // With register tiles of six rows, 16 or 17 of them are half of the rows for each thread.
    EXPECT_EQ(rows().count(102), 0u);
    s.target.workers = 2;
    EXPECT_EQ(rows().count(96) + rows().count(102), 2u);
}

}  // namespace
}  // namespace tilewright::chain
