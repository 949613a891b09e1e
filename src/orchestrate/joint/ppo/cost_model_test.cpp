#include "orchestrate/joint/ppo/cost_model.h"

#include <gtest/gtest.h>

#include "tune/boosted_trees.h"

namespace tilewright::joint::ppo {
namespace {

ResidualFeatures features(float tile) {
    ResidualFeatures f{};
    f[17] = tile;
    return f;
}

TEST(OnlineCostModel, IsTheEstimateBeforeItHasMeasurements) {
    OnlineCostModel model;
    for (int k = 0; k < 15; ++k) model.add(features(static_cast<float>(k)), 1e-3);
    model.train();
    EXPECT_EQ(model.seconds(features(3), 7e-6), 7e-6);
}

TEST(OnlineCostModel, PredictsWhatItWasTrainedWith) {
    if (!has_boosted_trees()) GTEST_SKIP() << "XGBoost is not installed";
    OnlineCostModel model;
    for (int k = 0; k < 64; ++k) model.add(features(static_cast<float>(k)), k < 32 ? 1e-3 : 4e-3);
    model.train();
    EXPECT_NEAR(model.seconds(features(5), 1), 1e-3, 2e-4);
    EXPECT_NEAR(model.seconds(features(60), 1), 4e-3, 8e-4);
}

}  // namespace
}  // namespace tilewright::joint::ppo
