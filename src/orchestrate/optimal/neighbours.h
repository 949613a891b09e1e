#pragma once
// The reasons why neighbouring kernels of a selection are not one kernel.

#include <cstddef>

#include "orchestrate/optimal/choice.h"

namespace tilewright::optimal {

/// Fills OrchestrationReport::not_fused for the kernels emitted for `choice`; the first of them has the number `first`.
/// The reason is the refusal of the two as one kernel ("its stages share no rows"), or their costs: "estimated 12.0 us
/// together, 10.5 us apart".
void explain_neighbours(PieceChoice& choice, const OrchestrateOptions& options, size_t first,
                        OrchestrationReport& report);

}  // namespace tilewright::optimal
