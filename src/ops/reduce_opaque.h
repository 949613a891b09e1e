#pragma once
// Reductions that are no tensor expression: along axes that only the run knows, and running sums and products.

#include "ops/lowering.h"

namespace tilewright {

enum class Reduction : uint8_t { Sum, Prod, Max, Min, Mean, L1, L2, SumSquare, LogSum, LogSumExp };

/// Input 0 reduced along the axes that input 1 holds when the model runs.
ValueId reduce_at_run_time(NodeContext& c, Reduction kind, bool keep_dims);

/// CumSum and CumProd: y[i] = x[0] + ... + x[i] along the axis that input 1 holds; attributes exclusive and reverse.
ValueId cumulate(NodeContext& c, bool product);

}  // namespace tilewright
