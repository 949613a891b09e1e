#include "schedule/dynamic/joint_schedules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

namespace tilewright::dynamic {

std::optional<TileProgram> JointSchedules::schedule(const Program& stages,
                                                    const IndexVector<PrimitiveId, std::vector<size_t>>& row_axes,
                                                    const Scheduling& how) {
    if (stages.primitives.size() != 1) return std::nullopt;
    const Bindings sizes = sizes_of_extents(stages, stages.assumed);
    if (sizes.empty()) return std::nullopt;
    Program key = stages;
    key.name.clear();
    for (const auto& [name, size] : sizes) {
        key.assumed.erase(name);
        key.at_most.erase(name);
    }
    const std::string text = fmt::format("{}{}", print(key), fmt::join(row_axes[PrimitiveId(0)], " "));
    const std::lock_guard lock(mutex_);
    auto it = known_.find(text);
    if (it == known_.end()) it = known_.emplace(text, search(stages, row_axes, how)).first;
    const auto found = it->second.find(sizes);
    return found == it->second.end() ? std::nullopt : found->second;
}

JointSchedules::Schedules JointSchedules::search(const Program& stages,
                                                 const IndexVector<PrimitiveId, std::vector<size_t>>& row_axes,
                                                 const Scheduling& how) const {
    const std::vector<Instance> instances = instances_of(stages, row_axes, samples_, how);
    if (instances.empty()) return {};
    JointOptions options = options_;
    options.trials = static_cast<size_t>(how.trials);
    options.seed = how.seed;
    const KernelCosts& costs = *how.costs;
    const EstimateAt estimate = [&](const TileProgram& program, const Instance& at) {
        return costs.estimate(program, at.models);
    };
    const MeasurePrograms measure = [&](const std::vector<TileProgram>& programs) {
        return costs.measures_schedules() ? costs.measure_schedules(programs) : std::vector<double>();
    };
    const std::unique_ptr<LocalModel> model = make_model_();
    JointResult result = joint_search(instances, how.target, options, *model, estimate, measure);
    if (report_) report_(stages.name.empty() ? stages.values[stages.outputs.at(0)].name : stages.name, result);
    Schedules out;
    for (size_t i = 0; i < instances.size(); ++i) {
        auto& chosen = result.chosen[i];
        out[sizes_of_extents(instances[i].stages, instances[i].stages.assumed)] =
            chosen.seconds < 0 ? std::nullopt : std::optional(std::move(chosen.program));
    }
    return out;
}

}  // namespace tilewright::dynamic
