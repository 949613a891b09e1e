#pragma once
// Kernel costs that are set by a test.

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "schedule/scheduler.h"

namespace tilewright::test {

using MeasureSchedules = std::function<std::vector<double>(const std::vector<TileProgram>&)>;
using MeasureKernel = std::function<std::optional<MeasuredKernel>(const TileProgram&, const std::vector<bool>&)>;

/// Estimates of the model, and measurements by functions of the test. An empty function measures nothing.
class FakeCosts : public EstimatedCosts {
  public:
    explicit FakeCosts(EstimatedCosts model) : EstimatedCosts(std::move(model)) {}

    bool measures_schedules() const override { return schedules != nullptr; }
    std::vector<double> measure_schedules(const std::vector<TileProgram>& all) const override { return schedules(all); }
    bool measures_kernels() const override { return kernel != nullptr; }
    std::optional<MeasuredKernel> measure(const TileProgram& k, const std::vector<bool>& weights) const override {
        return kernel(k, weights);
    }
    std::optional<MeasuredKernel> recall(const TileProgram& k, const std::vector<bool>& weights) const override {
        return recalled ? recalled(k, weights) : std::nullopt;
    }

    MeasureSchedules schedules;
    MeasureKernel kernel, recalled;
};

/// Sets `how` to measure schedules by `measure`.
inline void measure_schedules_by(Scheduling& how, MeasureSchedules measure) {
    auto costs = std::make_shared<FakeCosts>(estimated_costs(how));
    costs->schedules = std::move(measure);
    how.costs = std::move(costs);
}

/// A measure_schedules() that returns the model's estimates.
inline MeasureSchedules by_model(const Scheduling& how) {
    return [model = estimated_costs(how)](const std::vector<TileProgram>& all) {
        std::vector<double> seconds;
        seconds.reserve(all.size());
        for (const TileProgram& t : all) seconds.push_back(model.estimate(t));
        return seconds;
    };
}

/// Sets `how` to measure kernels by `measure` and recall them by `recall`.
inline void measure_kernels_by(Scheduling& how, MeasureKernel measure, MeasureKernel recall = {}) {
    auto costs = std::make_shared<FakeCosts>(estimated_costs(how));
    costs->kernel = std::move(measure);
    costs->recalled = std::move(recall);
    how.costs = std::move(costs);
}

}  // namespace tilewright::test
