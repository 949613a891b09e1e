#pragma once
// Acceptance of a plan by whole runs: kernels are kept where a run of the model is faster with them (orchestrate.h).

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

    /// Each piece keeps the greedy rule's kernels unless its own take less in whole runs.
    void compare();
    /// A library's kernels between generated ones: its threads are others, and what it leaves in the caches. Those of
    /// the plan stay that are faster there, all kernels of one text together, if the whole is faster with them. The
    /// others are refused; true where there are such.
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
    size_t refused_before_ = schedules_.refused().size();  ///< kernels, for other programs
};

}  // namespace tilewright::optimal
