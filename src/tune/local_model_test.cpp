#include "tune/local_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tune/boosted_trees.h"

namespace tilewright {
namespace {

using dynamic::MicroKernelFeatures;

/// Register tiles (feature 3) of 1 to 14 rows: those of four and fewer take twice as long as estimated.
struct Measurements {
    std::vector<MicroKernelFeatures> features;
    std::vector<float> labels;
};
Measurements measurements(size_t count) {
    Measurements out;
    std::mt19937_64 rng(3);
    for (size_t k = 0; k < count; ++k) {
        MicroKernelFeatures f{};
        f[0] = static_cast<float>(rng() % 100);
        f[3] = static_cast<float>(1 + rng() % 14);
        out.features.push_back(f);
        out.labels.push_back(std::log(f[3] <= 4 ? 2.0f : 1.0f));
    }
    return out;
}

MicroKernelFeatures with_rows(float rows) {
    MicroKernelFeatures f{};
    f[0] = 50;
    f[3] = rows;
    return f;
}

TEST(LocalModel, says_nothing_before_it_has_learned) {
    const auto model = make_local_model();
    EXPECT_EQ(model->at(with_rows(2)).log_ratio, 0);
}

TEST(LocalModel, learns_what_the_tiles_change) {
    if (!has_boosted_trees()) GTEST_SKIP() << "XGBoost is not installed";
    const auto model = make_local_model();
    const Measurements m = measurements(200);
    model->learn(m.features, m.labels);
    EXPECT_NEAR(model->at(with_rows(2)).log_ratio, std::log(2), 0.1);
    EXPECT_NEAR(model->at(with_rows(9)).log_ratio, 0, 0.1);
    EXPECT_LT(model->at(with_rows(9)).spread, 0.15);
}

TEST(LocalModel, is_the_mean_of_few_measurements) {
    const auto model = make_local_model();
    const Measurements m = measurements(5);
    model->learn(m.features, m.labels);
    float sum = 0;
    for (const float x : m.labels) sum += x;
    EXPECT_NEAR(model->at(with_rows(2)).log_ratio, sum / 5, 1e-6);
    EXPECT_EQ(model->at(with_rows(2)).log_ratio, model->at(with_rows(9)).log_ratio);
}

}  // namespace
}  // namespace tilewright
