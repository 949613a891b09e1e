#pragma once
// The micro-kernels of a model's kernels, each kernel searched once for all samples of its sizes
// (SchedulerKind::DietCode).

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "schedule/dynamic/joint_search.h"

namespace tilewright::dynamic {

class JointSchedules {
  public:
    using MakeModel = std::function<std::unique_ptr<LocalModel>()>;
    /// Called once for each kernel that is searched.
    using Report = std::function<void(const std::string& kernel, const JointResult&)>;

    JointSchedules(std::vector<SizeSample> samples, JointOptions options, MakeModel make_model, Report report)
        : samples_(std::move(samples)),
          options_(std::move(options)),
          make_model_(std::move(make_model)),
          report_(std::move(report)) {}

    /// The schedule that the joint search chose for the assumed sizes of `stages`, a kernel of one stage. Nothing for
    /// extents that do not depend on the samples' sizes, or sizes that are no sample, and where nothing could run.
    /// `how` measures schedules.
    std::optional<TileProgram> schedule(const Program& stages,
                                        const IndexVector<PrimitiveId, std::vector<size_t>>& row_axes,
                                        const Scheduling& how);

  private:
    /// By the sizes of the instances.
    using Schedules = std::map<Bindings, std::optional<TileProgram>>;
    Schedules search(const Program& stages, const IndexVector<PrimitiveId, std::vector<size_t>>& row_axes,
                     const Scheduling& how) const;

    const std::vector<SizeSample> samples_;
    const JointOptions options_;
    const MakeModel make_model_;
    const Report report_;
    std::mutex mutex_;
    std::map<std::string, Schedules> known_;  ///< by kernel, without its sizes
};

}  // namespace tilewright::dynamic
