#pragma once
// Recurrences that a rule writes itself: a loop over the slices of some tensors.

#include <functional>
#include <string>
#include <vector>

#include "ops/lowering.h"

namespace tilewright {

struct StepLoop {
    std::string name;  ///< of the primitive and, behind the node's, of the body
    Expr length;       ///< slices of every scanned tensor
    std::vector<ValueId> carried;
    std::vector<Loop::ScanInput> scanned;
    std::vector<ValueId> shared;            ///< what every step reads whole
    std::vector<Loop::ScanOutput> stacked;  ///< how the outputs of the steps are put together
};

/// One step, written through the builder given: the values carried, one slice of each scanned tensor (its axis
/// removed), the shared values   ->   the values to carry on (types and shapes as before), then one slice for each of
/// `stacked`.
using Step =
    std::function<std::vector<ValueId>(Builder&, const std::vector<ValueId>& carried,
                                       const std::vector<ValueId>& slices, const std::vector<ValueId>& shared)>;

/// The values carried after the last step, then the stacked outputs. A loop of one step is written out.
std::vector<ValueId> run_steps(NodeContext& c, StepLoop loop, const Step& step);

/// Entry `k` of dimension `axis`, which disappears.
ValueId take(Builder& b, ValueId v, int64_t axis, int64_t k);

}  // namespace tilewright
