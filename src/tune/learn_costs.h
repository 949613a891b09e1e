#pragma once
// Learns the residual of the cost model (cost/residual.h) from the tuning database, with XGBoost (Debian: libxgboost0),
// which is loaded when first used.

#include <string>
#include <vector>

#include "cost/residual.h"
#include "tune/boosted_trees.h"
#include "tune/database.h"

namespace tilewright {

/// A measured kernel.
struct LearningRow {
    std::string stages;  ///< canonical_text: rows of one kernel are trained on or held out together
    ResidualFeatures features{};
    double log_ratio = 0;  ///< log(measured / estimate)
};

struct LearningRows {
    std::vector<LearningRow> rows;
    size_t unreadable = 0;  ///< left out: this version cannot read the record
};

/// The measurements of `target` with Target::workers threads and all of its instructions, by this version of the code
/// generator.
LearningRows learning_rows(const TuningDatabase& database, const Target& target);

/// Learned from are schedules that take at most so many times the fastest of their kernel: planning chooses among such.
/// With all that a search has tried, plans became slower (MobileNetV2 7.8 to 8.5 ms, one thread of Zen 2), with these
/// not (7.6).
inline constexpr double kNearBest = 1.35;

/// Fewer kernels teach nothing that holds for others.
inline constexpr size_t kLeastRows = 50;

struct LearningOptions {
    size_t ensembles = 5;  ///< each trained on a bootstrap sample
    BoostingOptions boosting;
    size_t folds = 5;  ///< of the cross-validation
    uint64_t seed = 1;
};

/// What cross-validation finds, of the rows within kNearBest: every one is predicted by a model that has not seen its
/// kernel.
struct LearnedCosts {
    ResidualModel model;  ///< trained on all of these rows
    size_t kernels = 0;   ///< different ones
    /// Geometric errors exp(mean |log(measured / estimate)|) of held-out kernels, without and with the correction.
    double error_before = 1, error_after = 1;
    double correlation_before = 0, correlation_after = 0;  ///< of the logarithms
    double within_spread = 0;  ///< share of held-out rows within one Prediction::spread; 0.68 if errors are normal

    bool helps() const { return error_after < error_before; }
};

/// Throws RuntimeError: fewer than kLeastRows rows, fewer kernels than folds, or no XGBoost.
LearnedCosts learn_costs(const std::vector<LearningRow>& rows, const LearningOptions& options = {});

}  // namespace tilewright
