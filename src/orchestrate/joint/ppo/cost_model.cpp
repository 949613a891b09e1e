#include "orchestrate/joint/ppo/cost_model.h"

#include <cmath>
#include <numeric>

#include "tune/boosted_trees.h"

namespace tilewright::joint::ppo {

void OnlineCostModel::add(const ResidualFeatures& features, double seconds) {
    features_.push_back(features);
    labels_.push_back(static_cast<float>(std::log(seconds)));
}

void OnlineCostModel::train() {
    if (labels_.size() < kLeastRows) return;
    mean_ = std::accumulate(labels_.begin(), labels_.end(), 0.0) / static_cast<double>(labels_.size());
    std::vector<float> centred;
    for (const float x : labels_) centred.push_back(x - static_cast<float>(mean_));
    BoostingOptions options;
    options.depth = 6;
    options.rate = 0.3;
    trees_ = boosted_trees(features_, centred, options);
}

double OnlineCostModel::seconds(const ResidualFeatures& features, double estimate) const {
    if (trees_.empty()) return estimate;
    double sum = mean_;
    for (const RegressionTree& t : trees_) sum += t.at(features);
    return std::exp(sum);
}

}  // namespace tilewright::joint::ppo
