#pragma once
// The program of chosen kernels, and the report on them.

#include <cstddef>
#include <map>

#include "orchestrate/kernel_group.h"
#include "orchestrate/optimal/choice.h"

namespace tilewright::optimal {

struct Emitted {
    Grouped grouped;
    std::map<size_t, size_t> search_of;  ///< by KernelGroup::chosen: number of the search that chose it
};

/// The kernels that are taken now. Adds to the report's pieces and kernels.
Emitted emit(const PieceChoice& choice, const OrchestrateOptions& options, Schedules& schedules,
             OrchestrationReport& report);

}  // namespace tilewright::optimal
