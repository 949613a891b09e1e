#pragma once
// The program of the chosen kernels, and their report.

#include <cstddef>
#include <map>

#include "orchestrate/kernel_group.h"
#include "orchestrate/optimal/choice.h"

namespace tilewright::optimal {

struct Emitted {
    Grouped grouped;
    std::map<size_t, size_t> search_of;  ///< by KernelGroup::chosen: the search that selected the kernel
};

/// The program of the currently selected kernels. Adds their pieces and kernels to the report.
Emitted emit(const PieceChoice& choice, const OrchestrateOptions& options, Schedules& schedules,
             OrchestrationReport& report);

}  // namespace tilewright::optimal
