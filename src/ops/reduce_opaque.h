#pragma once
// Opaque reductions: along axes unknown at compile time, and running sums and products.

#include "opaque/operators.h"
#include "ops/lowering.h"

namespace tilewright {

using opaque::Reduction;

/// Input 0 reduced along the axes in input 1, read at run time.
ValueId reduce_at_run_time(NodeContext& c, Reduction kind, bool keep_dims);

/// CumSum and CumProd: y[i] = x[0] + ... + x[i] along the axis in input 1; attributes exclusive and reverse.
ValueId cumulate(NodeContext& c, bool product);

}  // namespace tilewright
