// What is learned from measurements holds for kernels that were not measured; without XGBoost these tests are skipped.

#include "tune/learn_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/temporary_folder_test.h"
#include "cost/target_with_test.h"
#include "tile/examples_test.h"
#include "tune/boosted_trees.h"
#include "tune/canonical.h"
#include "tune/measure.h"

namespace tilewright {
namespace {

using ::testing::HasSubstr;

/// Rows of kernels with random features and this residual, whose measurements are 5 % apart.
std::vector<LearningRow> planted(size_t kernels, const std::function<double(const ResidualFeatures&)>& residual) {
    std::mt19937_64 rng(7);
    std::uniform_real_distribution<float> any(0, 10);
    std::normal_distribution<double> noise(0, 0.05);
    std::vector<LearningRow> rows;
    for (size_t k = 0; k < kernels; ++k) {
        ResidualFeatures features;
        for (float& x : features) x = any(rng);
        for (int schedule = 0; schedule < 3; ++schedule)
            rows.push_back({std::to_string(k), features, residual(features) + noise(rng)});
    }
    return rows;
}

class LearnCosts : public testing::Test {
  protected:
    void SetUp() override {
        if (!has_boosted_trees()) GTEST_SKIP() << "no XGBoost (package libxgboost0)";
    }
};

TEST_F(LearnCosts, boosted_trees_find_the_threshold_of_a_step) {
    std::vector<ResidualFeatures> features(64);
    std::vector<float> labels;
    for (size_t i = 0; i < features.size(); ++i) {
        features[i].fill(1);
        features[i][5] = static_cast<float>(i);
        labels.push_back(i < 24 ? -1.0F : 0.5F);
    }
    const TreeEnsemble trees = boosted_trees(features, labels, {.trees = 100, .depth = 2, .rate = 0.3});
    ASSERT_EQ(trees.size(), 100u);
    for (size_t i = 0; i < features.size(); ++i) {
        float sum = 0;
        for (const RegressionTree& t : trees) sum += t.at(features[i]);
        EXPECT_NEAR(sum, labels[i], 0.1) << i;
    }
}

TEST_F(LearnCosts, finds_a_planted_residual_of_kernels_that_were_held_out) {
    const LearnedCosts learned = learn_costs(planted(80, [](const ResidualFeatures& x) {
        return x[7] > 4 ? 0.7 : x[2] > 5 ? -0.4 : 0;
    }));
    EXPECT_EQ(learned.kernels, 80u);
    EXPECT_GT(learned.error_before, 1.4);
    EXPECT_LT(learned.error_after, 1.15);
    EXPECT_TRUE(learned.helps());
    EXPECT_GT(learned.within_spread, 0.5);
    ResidualFeatures x;
    x.fill(1);
    EXPECT_NEAR(learned.model.at(x).log_ratio, 0, 0.15);
    x[7] = 9;
    EXPECT_NEAR(learned.model.at(x).log_ratio, 0.7, 0.15);
}

TEST_F(LearnCosts, says_that_nothing_is_gained_where_the_residual_is_noise) {
    const LearnedCosts learned = learn_costs(planted(60, [](const ResidualFeatures&) { return 0.0; }));
    EXPECT_LT(learned.error_after, 1.1);
    EXPECT_LT(learned.model.errors().noise, 0.1);
}

TEST_F(LearnCosts, learns_from_schedules_that_are_nearly_the_best_of_their_kernel) {
    auto rows = planted(40, [](const ResidualFeatures&) { return 0.2; });
    const size_t near = rows.size();
    for (size_t k = 0; k < 40; ++k) {
        rows.push_back(rows[3 * k]);
        rows.back().log_ratio += 2;  // a schedule that is seven times as slow
    }
    const LearnedCosts learned = learn_costs(rows);
    EXPECT_EQ(learned.model.measurements(), near);
    EXPECT_NEAR(learned.model.at(rows[0].features).log_ratio, 0.2, 0.05);
}

TEST_F(LearnCosts, gives_the_same_model_of_the_same_rows) {
    const auto rows = planted(40, [](const ResidualFeatures& x) { return 0.1 * x[0]; });
    EXPECT_EQ(learn_costs(rows).model.id(), learn_costs(rows).model.id());
}

TEST(LearnCostsOf, too_few_measurements_or_kernels_is_an_error) {
    auto rows = planted(40, [](const ResidualFeatures&) { return 0.0; });
    rows.resize(kLeastRows - 1);
    const auto refusal = [&]() -> std::string {
        try {
            learn_costs(rows);
        } catch (const RuntimeError& e) {
            return e.what();
        }
        return "";
    };
    EXPECT_THAT(refusal(), HasSubstr("49 measurements of this machine"));
    rows.resize(kLeastRows, rows[0]);
    for (LearningRow& r : rows) r = rows[0];
    EXPECT_THAT(refusal(), HasSubstr("measurements of 1 kernels"));
}

class LearningRowsOf : public testing::Test {
  protected:
    /// Inserts a measurement that took `ratio` times the estimate.
    void insert(double ratio, const std::function<void(Measurement&)>& change = {}) {
        Measurement m;
        m.key = {canonical_text(kernel_.stages), schedule_text(kernel_), target_key(target_),
                 settings_text(target_.workers, Warmth::warm, ""), kGeneratorVersion};
        m.seconds = {ratio * estimate(kernel_, target_).seconds, 0.01, 31};
        if (change) change(m);
        db_.insert(m);
    }

    TemporaryFolder folder_;
    TuningDatabase db_{folder_ / "tuning.db"};
    Target target_ = test::target_with({.lanes = 8, .vector_registers = 16});
    TileProgram kernel_ = parse_tile_program(kGemm);
};

TEST_F(LearningRowsOf, a_database_have_the_logarithm_of_measured_over_estimated) {
    insert(2);
    const LearningRows all = learning_rows(db_, target_);
    ASSERT_EQ(all.rows.size(), 1u);
    EXPECT_NEAR(all.rows[0].log_ratio, std::log(2), 1e-9);
    EXPECT_EQ(all.rows[0].stages, canonical_text(kernel_.stages));
}

TEST_F(LearningRowsOf, a_database_are_of_this_machine_threads_and_version) {
    insert(2, [](Measurement& m) { m.key.target = "0123456789abcdef"; });
    insert(2, [](Measurement& m) { m.key.generator = kGeneratorVersion - 1; });
    insert(2, [](Measurement& m) { m.key.settings = settings_text(8, Warmth::warm, ""); });
    insert(2, [](Measurement& m) {
        m.verdict = Verdict::failed;
        m.seconds = {};
    });
    const LearningRows all = learning_rows(db_, target_);
    EXPECT_TRUE(all.rows.empty());
    EXPECT_EQ(all.unreadable, 0u);
}

TEST_F(LearningRowsOf, a_database_leave_out_what_cannot_be_read) {
    insert(2, [](Measurement& m) { m.key.stages = "program k {"; });
    insert(2, [](Measurement& m) { m.key.schedule = "parallel"; });
    insert(2, [](Measurement& m) { m.key.settings = "threads"; });
    insert(2, [](Measurement& m) { m.key.settings = "threads=1 s0=x"; });
    const LearningRows all = learning_rows(db_, target_);
    EXPECT_TRUE(all.rows.empty());
    EXPECT_EQ(all.unreadable, 4u);
}

TEST_F(LearningRowsOf, a_database_have_weights_from_memory_where_they_were_cold) {
    const std::string how = settings_text(target_.workers, Warmth::cold_weights, "s0=64") + " weights=010";
    insert(2, [&](Measurement& m) { m.key.settings = how; });
    const LearningRows all = learning_rows(db_, target_);
    ASSERT_EQ(all.rows.size(), 1u);
    const auto names = residual_feature_names();
    const auto at = std::find(names.begin(), names.end(), "operands from memory") - names.begin();
    EXPECT_EQ(all.rows[0].features[static_cast<size_t>(at)], 1);
}

}  // namespace
}  // namespace tilewright
