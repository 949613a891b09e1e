#pragma once
// A machine-independent cost estimate of a program: the default cost of the rewrite search.

#include "program/rewrite/rewrite.h"

namespace tilewright {

/// Approximate rates of one core. Only their ratios matter.
struct RoughRates {
    double operations = 1e11;  ///< per second: a multiply-add counts as two, exp as twelve
    double bandwidth = 2e10;   ///< bytes per second, between caches
    double memory = 1e10;      ///< bytes per second of constants: a run of a model has replaced them in the caches
    double kernel = 1e-6;      ///< seconds per kernel launch
};

/// Seconds. Primitives form kernels as fusion would form them: views are free, a map read by one other map or
/// reduction joins that kernel, and a map that is the only reader of a reduction is its epilogue. Operands of a product
/// must be in memory. A kernel costs the larger of its compute and memory times, plus a tenth of the smaller, plus the
/// time to read its constants. Primitives that depend only on constants are free. Symbols have the sizes of
/// Program::assumed.
double analytic_cost(const RewriteContext& context, const RoughRates& model = {});

/// Approximate operations of a whole expression; moving an element also counts. `sizes`: those that symbols are assumed
/// to have.
double rough_operations(const TensorExpr& e, const Bindings& sizes);

}  // namespace tilewright
