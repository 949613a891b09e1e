#pragma once
// The two steps of recognising an operation: the roles of the axes, then the form.

#include "libraries/operand_walk.h"
#include "program/analysis/contraction.h"

namespace tilewright {

/// Fills `op` with a convolution's tensors, strides and padding: `x` is the access that windows slide over. Throws
/// Refusal.
void recognise_convolution(const Program& stages, const TensorExpr& e, const Access& x, const LibraryWalks& tensors,
                           const ContractionAxes& axes, LibraryOperation& op);

}  // namespace tilewright
