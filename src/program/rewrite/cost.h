#pragma once
// What a program roughly costs, without knowing the machine: the search's own idea of "better".

#include "program/rewrite/rewrite.h"

namespace tilewright {

/// Of one core, about. Only their ratios matter.
struct RoughRates {
    double operations = 1e11;  ///< a second: a multiply-add counts as two, exp as twelve
    double bandwidth = 2e10;   ///< bytes a second, between caches
    double kernel = 1e-6;      ///< seconds to begin one
};

/// Seconds. Primitives form kernels as fusion would have it: views cost nothing, a map that one other map or reduction
/// reads is part of that, a map that alone reads a reduction's result is its epilogue; but what a product reads has to
/// lie in memory. A kernel takes as long as its operations or its bytes, whichever take longer, and a tenth of the
/// other. What constants decide costs nothing.
double analytic_cost(const RewriteContext& context, const RoughRates& model = {});

/// Rough operations of a whole expression, where moving an element counts as well.
double rough_operations(const TensorExpr& e);

}  // namespace tilewright
