#pragma once
// The integer variables of a kernel on a GPU: loop counters, tiles of threads, register coordinates. Index expressions
// over them are Exprs, with each variable as an axis and the range that it runs through, so that a condition which can
// be proved needs no code, and a multiple of 4 is known to be one. The first 64 axes are left to the stages' own: an
// expression may mention both until a thread's point takes their place.

#include <cstddef>
#include <string_view>

#include "index/expr.h"

namespace tilewright::gpu {

/// The variable that the expression is. InternalError where it is none.
Var var_of(Expr variable);

class IndexVariables {
  public:
    static constexpr size_t kStageAxes = 64;

    virtual ~IndexVariables() = default;

    /// A new variable. `name`: for generated code.
    virtual Expr add(std::string_view name, Interval range);

    Expr simplified(Expr e) const { return simplify(e, ranges_); }
    bool nonnegative(Expr e) const { return prove_nonnegative(e, ranges_); }
    /// A number that divides it, the largest that its form shows; 0: it is 0.
    static int64_t multiple(Expr e);

  protected:
    Ranges ranges_{std::vector<Interval>(kStageAxes), {}};
};

/// The current range of one axis.
struct AxisRange {
    Expr lo, hi;  ///< over the kernel's variables, symbols, scalars
    Expr most;    ///< hi - lo is at most this, which is over symbols and scalars
    Expr total;   ///< the axis' whole extent
    bool whole = true;
    /// Where the loops over it begin and end: at 0 and `total`, but for parts of sums and for steps that are left out
    /// (tile/live_steps.h).
    Expr begin, end;

    static AxisRange of(Expr extent) { return {0, extent, extent, extent, true, 0, extent}; }
    /// A loop with that step over it has one step at most.
    bool covered_by(int64_t step) const { return most.is_constant() && most.constant() <= step; }
};
/// The range of step `counter` of a loop over `outer`.
AxisRange narrowed(const AxisRange& outer, Expr counter, int64_t step, const IndexVariables& variables);
/// That of a block's part of a sum (Walk::split): the block's loops begin and end where the part does.
AxisRange part_of_sum(AxisRange narrowed);

}  // namespace tilewright::gpu
