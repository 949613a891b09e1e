#pragma once
// What scalar operators cost: fusion, rewrites and estimates use the table's column (program/scalar_ops.def).

#include <vector>

#include "program/program.h"

namespace tilewright {

/// Vector instructions of one evaluation; an addition is 1, a read or a conversion 0 (a fused multiply-add does both of
/// its operations in one: what sums of products cost is decided where they are estimated).
double operation_cost(ScalarOp op);

/// Of one evaluation of a body. `share`: by node, how often it is needed in the mean; null: once each.
double body_operations(const ScalarBody& body, const std::vector<double>* share = nullptr);

}  // namespace tilewright
