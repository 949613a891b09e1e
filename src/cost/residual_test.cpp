// A residual model adds up its trees, says how far its ensembles lie apart, and is read back as it was written.

#include "cost/residual.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "cost/target_with_test.h"

namespace tilewright {
namespace {

using ::testing::HasSubstr;

/// `below` where the feature is less than the threshold, else `above`.
RegressionTree split(int feature, float threshold, float below, float above) {
    return {{{feature, threshold, {1, 2}, 0}, {-1, 0, {}, below}, {-1, 0, {}, above}}};
}
RegressionTree constant(float value) { return {{{-1, 0, {}, value}}}; }

constexpr const char* kSum = R"(tile sum {
stages {
program sum {
  input a: f32[1024, 64]
  out: f32[1024] = [1024] -> [i0] sum(i1 < 64) @0 where @0 = a[i0, i1]  ; sum ""
  output out
}
}
axes m="1024" k="64"
stage 0 over [m k]
parallel m by 128 {
  compute 0 padding partition
}
}
)";

struct Kernel {
    TileProgram program = parse_tile_program(kSum);
    StageModels models = stage_models(program.stages);
    Target target = test::target_with({.lanes = 8, .vector_registers = 16});
    Estimate cost = estimate(program, target, models);
    ResidualFeatures features() const { return residual_features(program, models, cost, target); }
};

TEST(RegressionTree, goes_left_below_its_threshold) {
    const RegressionTree t = split(3, 1.5F, -1, 2);
    ResidualFeatures x{};
    x[3] = 1.4F;
    EXPECT_EQ(t.at(x), -1);
    x[3] = 1.5F;
    EXPECT_EQ(t.at(x), 2);
}

TEST(ResidualFeatures, are_as_many_as_their_names_and_finite) {
    EXPECT_EQ(residual_feature_names().size(), kResidualFeatures);
    for (const float x : Kernel().features()) EXPECT_TRUE(std::isfinite(x));
}

TEST(ResidualFeatures, describe_the_kernel) {
    const ResidualFeatures x = Kernel().features();
    const auto of = [&](std::string_view name) {
        const auto names = residual_feature_names();
        return x[static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin())];
    };
    EXPECT_EQ(of("stages"), 1);
    EXPECT_EQ(of("reductions"), 1);
    EXPECT_EQ(of("products"), 0);
    EXPECT_EQ(of("operands"), 2) << "and the result";
    EXPECT_EQ(of("log2 terms of the sum"), 6);
    EXPECT_EQ(of("loops"), 1);
}

TEST(ResidualModel, predicts_the_mean_of_its_ensembles_and_their_distance) {
    const ResidualModel m({{constant(0.5F), constant(0.5F)}, {constant(3)}}, {}, 100);
    const auto p = m.at(ResidualFeatures{});
    EXPECT_DOUBLE_EQ(p.log_ratio, 2);
    EXPECT_DOUBLE_EQ(p.spread, 1);
    EXPECT_DOUBLE_EQ(ResidualModel({{constant(2)}}, {1, 0.25}, 100).at(ResidualFeatures{}).spread, 0.25);
}

TEST(ResidualModel, corrects_an_estimate_within_four_times) {
    const Kernel k;
    const auto corrected = [&](float log_ratio) {
        return ResidualModel({{constant(log_ratio)}}, {}, 100).corrected(k.program, k.models, k.cost, k.target);
    };
    EXPECT_NEAR(corrected(std::log(1.5F)), 1.5 * k.cost.seconds, 1e-6 * k.cost.seconds);
    EXPECT_NEAR(corrected(9), 4 * k.cost.seconds, 1e-6 * k.cost.seconds);
    EXPECT_NEAR(corrected(-9), k.cost.seconds / 4, 1e-6 * k.cost.seconds);
}

TEST(Margin, keeps_the_probability_that_the_lower_estimate_is_right) {
    // phi(log(ratio) / (sqrt(2) s)) of 12 % and an error of 0.26 is that of 7.6 % and 0.16.
    const auto probability = [](double margin, double error) {
        return 0.5 * std::erfc(std::log(1 - margin) / (std::sqrt(2.0) * std::sqrt(2.0) * error));
    };
    const auto learned = [](double before, double noise) {
        return ResidualModel({{constant(0)}}, {before, noise}, 100);
    };
    const ResidualModel better = learned(0.26, 0.16);
    EXPECT_NEAR(margin(0.12, &better), 0.0756, 1e-3);
    for (const double usual : {0.02, 0.03, 0.1, 0.12})
        EXPECT_NEAR(probability(margin(usual, &better), 0.16), probability(usual, 0.26), 1e-12);
    EXPECT_EQ(margin(0.12, nullptr), 0.12);
    const ResidualModel worse = learned(0.1, 0.2), unknown = learned(0, 0);
    EXPECT_EQ(margin(0.12, &worse), 0.12) << "it never grows";
    EXPECT_EQ(margin(0.12, &unknown), 0.12);
}

TEST(ResidualModel, is_read_back_as_it_was_written) {
    const ResidualModel m({{split(0, 0.1F, 1.0F / 3, 7), constant(-2e-8F)}, {split(21, -3, 1, 2)}}, {0.5, 0.125}, 77);
    const ResidualModel again = ResidualModel::from_json(m.to_json());
    EXPECT_EQ(again.id(), m.id());
    EXPECT_EQ(again.measurements(), 77u);
    EXPECT_EQ(again.errors().before, 0.5);
    EXPECT_EQ(again.errors().noise, 0.125);
    EXPECT_EQ(again.to_json(), m.to_json());
    EXPECT_NE(ResidualModel({{split(0, 0.1F, 1.0F / 3, 8)}}, {0.5, 0.125}, 77).id(), m.id());
}

TEST(ResidualModel, refuses_a_damaged_file) {
    const auto refusal = [](const std::string& ensembles) -> std::string {
        try {
            ResidualModel::from_json(
                R"({"version":2,"measurements":60,"errors":{"before":0.2,"noise":0.1},"ensembles":)" + ensembles + "}");
        } catch (const RuntimeError& e) {
            return e.what();
        }
        return "";
    };
    EXPECT_EQ(refusal("[[[[0.5]]]]"), "");
    EXPECT_THAT(refusal("[]"), HasSubstr("no trees"));
    EXPECT_THAT(refusal("[[[]]]"), HasSubstr("an empty tree"));
    EXPECT_THAT(refusal("[[[[0,1.5,1,2],[1]]]]"), HasSubstr("wrong child"));
    EXPECT_THAT(refusal("[[[[0,1.5,0,1],[1],[2]]]]"), HasSubstr("wrong child")) << "it would never end";
    EXPECT_THAT(refusal("[[[[22,1.5,1,2],[1],[2]]]]"), HasSubstr("unknown feature"));
    EXPECT_THAT(refusal("[[[[1,2,3]]]]"), HasSubstr("neither a leaf nor a split"));
    EXPECT_THAT(refusal("[[[[\"x\"]]]]"), HasSubstr("no residual model"));
    EXPECT_THROW(ResidualModel::from_json("{"), RuntimeError);
    EXPECT_THROW(ResidualModel::from_json(R"({"version":1})"), RuntimeError);
}

}  // namespace
}  // namespace tilewright
