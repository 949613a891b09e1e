#include "schedule/kernel_costs.h"

#include "base/error.h"
#include "cost/estimate.h"
#include "cost/gpu_estimate.h"

namespace tilewright {

TileProgram fastest(std::vector<TileProgram> candidates, const KernelCosts& costs) {
    const std::vector<double> seconds = costs.measure_schedules(candidates);
    size_t best = 0;
    for (size_t i = 1; i < candidates.size(); ++i)
        if (seconds[i] >= 0 && (seconds[best] < 0 || seconds[i] < seconds[best])) best = i;
    return std::move(candidates[best]);
}

double EstimatedCosts::estimate(const TileProgram& kernel) const {
    if (!target_) return 0;
    if (target_->gpu) return gpu_estimate(kernel, *target_->gpu).seconds;
    return estimate(kernel, stage_models(kernel.stages));
}

double EstimatedCosts::estimate(const TileProgram& kernel, const StageModels& models) const {
    if (models.empty()) return estimate(kernel);
    return corrected_seconds(kernel, *target_, models, {}, residual_.get());
}

StageModels EstimatedCosts::models_of(const Program& stages) const {
    return target_ && !target_->gpu ? stage_models(stages) : StageModels();
}

double EstimatedCosts::lower_bound(const Program& stages) const {
    if (!target_) return 0;
    return target_->gpu ? gpu_lower_bound(stages, *target_->gpu) : tilewright::lower_bound(stages, *target_, {}, true);
}

std::vector<double> EstimatedCosts::measure_schedules(const std::vector<TileProgram>&) const {
    throw InternalError("schedules are measured where there are only estimates");
}

std::optional<MeasuredKernel> EstimatedCosts::measure(const TileProgram&, const std::vector<bool>&) const {
    throw InternalError("a kernel is measured where there are only estimates");
}

std::optional<std::vector<double>> EstimatedCosts::measure_in_turns(
    const std::vector<AlternativeKernel>& alternatives) const {
    std::vector<double> seconds;
    for (const AlternativeKernel& r : alternatives) {
        const auto measured = measure(r.kernel, r.weights);
        if (!measured) return std::nullopt;
        seconds.push_back(measured->seconds);
    }
    return seconds;
}

std::optional<MeasuredKernel> EstimatedCosts::recall(const TileProgram&, const std::vector<bool>&) const {
    return std::nullopt;
}

}  // namespace tilewright
