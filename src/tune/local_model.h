#pragma once
// f_local of DietCode's micro-kernels, learned by gradient-boosted trees (schedule/dynamic/local_model.h).

#include <memory>

#include "schedule/dynamic/local_model.h"

namespace tilewright {

/// Ensembles of trees, each on another draw of the measurements: their mean, and as spread the error at measurements
/// that an ensemble was not given. Where XGBoost cannot be loaded: dynamic::MeanModel.
std::unique_ptr<dynamic::LocalModel> make_local_model();

}  // namespace tilewright
