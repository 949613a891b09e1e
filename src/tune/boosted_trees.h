#pragma once
// Gradient-boosted regression trees by XGBoost's C interface.

#include <span>

#include "cost/residual.h"

namespace tilewright {

struct BoostingOptions {
    int trees = 60, depth = 3;
    double rate = 0.1;
    uint64_t seed = 1;
};

/// Minimises the squared error of the ensemble's values on these rows, on one thread. Throws RuntimeError with the
/// package to install where the library cannot be loaded, or with the library's own error.
TreeEnsemble boosted_trees(std::span<const ResidualFeatures> features, std::span<const float> labels,
                           const BoostingOptions& options);

/// Whether the library can be loaded.
bool has_boosted_trees();

}  // namespace tilewright
