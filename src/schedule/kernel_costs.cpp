#include "schedule/kernel_costs.h"

#include "base/error.h"
#include "cost/gpu_estimate.h"

namespace tilewright {

double EstimatedCosts::estimate(const TileProgram& kernel) const {
    if (gpu_) return gpu_estimate(kernel, *gpu_).seconds;
    return cpu_ ? tilewright::estimate(kernel, *cpu_).seconds : 0;
}

double EstimatedCosts::lower_bound(const Program& stages) const {
    if (gpu_) return gpu_lower_bound(stages, *gpu_);
    return cpu_ ? tilewright::lower_bound(stages, *cpu_, {}, true) : 0;
}

std::vector<double> EstimatedCosts::measure_schedules(const std::vector<TileProgram>&) const {
    throw InternalError("schedules are measured where there are only estimates");
}

std::optional<MeasuredKernel> EstimatedCosts::measure(const TileProgram&, const std::vector<bool>&) const {
    throw InternalError("a kernel is measured where there are only estimates");
}

std::optional<MeasuredKernel> EstimatedCosts::recall(const TileProgram&, const std::vector<bool>&) const {
    return std::nullopt;
}

}  // namespace tilewright
