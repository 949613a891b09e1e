// Every rule preserves results, on programs that contain its pattern and on random programs.

#include "program/rewrite/rewrite_test.h"

#include <gtest/gtest.h>

#include <set>

#include "program/rewrite/rewrite.h"

namespace tilewright {
namespace {

/// Applies and compares each patch separately; returns their number. Clears `right` if a result is wrong.
size_t check_rule(const Program& p, const RewriteRule& rule, uint64_t seed, double rounding, bool& right) {
    const RewriteContext context(p);
    const std::vector<Patch> found = find_all(context, rule);
    if (found.empty()) return 0;
    const std::vector<Tensor> inputs = random_inputs(p, seed);
    const std::vector<Tensor> expected = interpret(p, inputs, {.exact = true});
    for (const Patch& patch : found) {
        const Program q = apply(p, patch);
        const std::vector<std::string> faults = verify(q);
        double difference = 0;
        if (faults.empty()) difference = largest_difference(expected, interpret(q, inputs, {.exact = true}));
        right = right && faults.empty() && difference < rounding && print(p) != print(q);
        EXPECT_EQ(faults, std::vector<std::string>());
        EXPECT_LT(difference, rounding);
        EXPECT_TRUE(right) << rule.name << " seed " << seed << "\n" << print(p) << "became\n" << print(q);
        if (!right) break;
    }
    return found.size();
}

TEST(Rules, each_preserves_the_results_of_its_pattern) {
    for (const RulePattern& pattern : rule_patterns()) {
        const RewriteRule* rule = rewrite_rule(pattern.rule);
        ASSERT_NE(rule, nullptr) << pattern.rule;
        size_t applied = 0, programs = 0;
        constexpr uint64_t kPrograms = 40;
        bool right = true;
        for (uint64_t seed = 0; seed < kPrograms && right; ++seed) {
            PatternWriter w(seed);
            pattern.write(w);
            const Program p = w.take();
            ASSERT_EQ(verify(p), std::vector<std::string>()) << pattern.rule << "\n" << print(p);
            const size_t n = check_rule(p, *rule, seed, pattern.rounding, right);
            applied += n;
            programs += n > 0 ? 1 : 0;
        }
        RecordProperty(std::string(pattern.rule), static_cast<int>(applied));
        printf("%-20s applied %3zu times, in %2zu of %zu programs\n", std::string(pattern.rule).c_str(), applied,
               programs, static_cast<size_t>(kPrograms));
        EXPECT_TRUE(!right || programs > kPrograms / 2) << pattern.rule << " hardly ever applies to its own pattern";
    }
}

TEST(Rules, keep_phases_of_constant_weights_packable) {
    // Every second row has every second column of the product, as in the interleaved phases of a transposed
    // convolution.
    const auto found = [](bool constant) {
        PatternWriter w(1);
        const ValueId x = w.input({6, 5}), weights = constant ? w.weights({5, 8}) : w.input({5, 8});
        w.outputs = {
            w.b.view(w.b.matmul(x, weights), {12, 4}, {floor_div(axis(0), 2), 2 * axis(1) + mod(axis(0), 2)}, "weave")};
        const Program p = w.take();
        const RewriteContext context(p);
        std::vector<Patch> patches;
        for (const PrimitiveId id : p.primitives.ids()) rewrite_rule("sum_into_view")->find(context, id, patches);
        return patches.size();
    };
    EXPECT_EQ(found(true), 0u);
    EXPECT_EQ(found(false), 1u);
}

TEST(Rules, each_has_a_pattern_and_a_law) {
    std::set<std::string_view> with_pattern;
    for (const RulePattern& p : rule_patterns()) with_pattern.insert(p.rule);
    for (const RewriteRule* r : rewrite_rules({.winograd = true})) {
        EXPECT_EQ(with_pattern.count(r->name), 1u) << r->name;
        EXPECT_NE(r->law.find('='), std::string_view::npos) << r->name;
    }
    EXPECT_EQ(rewrite_rules().size() + 1, rewrite_rules({.winograd = true}).size());
}

TEST(Rules, preserve_the_results_of_random_programs) {
    size_t applied = 0;
    bool right = true;
    for (uint64_t seed = 0; seed < 150 && right; ++seed) {
        const Program p = random_program(seed, 12);
        for (const RewriteRule* r : rewrite_rules({.winograd = true}))
            applied += check_rule(p, *r, seed, r->name == "winograd" ? 1e-4 : 1e-11, right);
    }
    EXPECT_GT(applied, 300u);
}

}  // namespace
}  // namespace tilewright
