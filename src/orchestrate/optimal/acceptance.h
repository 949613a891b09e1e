#pragma once
// Acceptance of a plan by whole runs: kernels are kept if a run of the model is faster with them (orchestrate.h).

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "orchestrate/optimal/choice.h"
#include "orchestrate/optimal/emit.h"

namespace tilewright::optimal {

class Acceptance {
  public:
    Acceptance(PieceChoice& choice, const OrchestrateOptions& options, Schedules& schedules,
               OrchestrationReport& report, const RunGrouped& run)
        : choice_(choice), options_(options), schedules_(schedules), report_(report), run_(run) {}

    /// Compares the plan with greedy orchestration in whole runs. A piece keeps greedy kernels unless its own are
    /// faster.
    void compare();
    /// Compares the plan's library kernels with generated ones in whole runs, because a library has its own threads and
    /// leaves other data in the caches. A library kernel stays if it is faster there, decided once for all kernels of
    /// one text, and if the whole plan is faster with those that stay. The others are refused. Returns whether any was
    /// refused.
    bool refuses_libraries();

  private:
    using ProvidedKernels = std::map<std::string, Schedules::Provided>;

    Emitted tried() const;
    bool confirmed(const Grouped& plan, const Grouped& other, std::vector<GroupedTimes>& first) const;
    bool choose_in_runs(InModelReport& report);
    ProvidedKernels provided_kernels(const Grouped& grouped, std::string& what) const;
    void refuse(const ProvidedKernels& of, const std::string& chosen);
    std::optional<std::string> choose_libraries(const Grouped& with, const ProvidedKernels& of);

    PieceChoice& choice_;
    const OrchestrateOptions& options_;
    Schedules& schedules_;
    OrchestrationReport& report_;
    const RunGrouped& run_;
    size_t refused_before_ = schedules_.refused().size();  ///< kernels refused for other programs
};

}  // namespace tilewright::optimal
