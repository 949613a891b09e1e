#pragma once
// `tilewright bench --estimates`: the cost model beside measured times.

#include <string>
#include <vector>

#include "driver/commands/common.h"

namespace tilewright {

/// Compiles and runs the models, and prints by kind of kernel how far estimates are from measured times. `json`: the
/// same, and every kernel. Returns the exit status.
int bench_estimates(ModelOptions o, const DataOptions& data, const std::vector<std::string>& models,
                    const std::string& json);

}  // namespace tilewright
