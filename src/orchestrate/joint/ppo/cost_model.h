#pragma once
// The cost model that ALT trains while it searches: boosted trees over the features of measured kernels (§5.2.3).

#include <vector>

#include "cost/residual.h"

namespace tilewright::joint::ppo {

class OnlineCostModel {
  public:
    /// Measured seconds of a kernel.
    void add(const ResidualFeatures& features, double seconds);
    /// Trains anew with all that was added. Throws RuntimeError without XGBoost.
    void train();
    /// Predicted seconds; `estimate` before there are enough measurements.
    double seconds(const ResidualFeatures& features, double estimate) const;

  private:
    static constexpr size_t kLeastRows = 16;
    std::vector<ResidualFeatures> features_;
    std::vector<float> labels_;  ///< logarithms of seconds
    double mean_ = 0;            ///< of the labels trained with
    TreeEnsemble trees_;
};

}  // namespace tilewright::joint::ppo
