#pragma once
// Lazy profiling: solve with optimistic costs, measure the kernels of the solution only, put the measured costs in,
// solve again. (Korch measures every candidate first, which takes 2.8 to 12.2 hours a model.)

#include <vector>

#include "orchestrate/optimal/blp.h"
#include "orchestrate/optimal/options.h"

namespace tilewright::optimal {

struct LazyResult {
    BlpResult blp;         ///< `chosen`, `objective`, `bound`, `status` and what all solutions took together
    size_t measured = 0;   ///< candidates
    size_t solutions = 0;  ///< programs solved
    /// Measured candidates that cost less than they were said to at least.
    size_t undercut = 0;
};

/// One choice, asking for costs as it goes.
///
///     for (auto which = search.next(); !which.empty(); which = search.next()) search.tell(which, costs of these);
///
/// Of a solution's unknown kernels the most expensive come first, half of what the unknown ones cost at least: where
/// one of them turns out slow the solution is none any more, and the others need not be known. Ends when a plan all of
/// whose kernels are known costs no more than the last program's bound.
///
/// If no candidate costs less than `choice` says, this is the optimum of measuring everything: every program's costs
/// are at most the true ones, so its optimum, and its bound, are at most the true cost of any plan; the plan found
/// costs what the bound is, truly. It ends, as every round measures a kernel or finds nothing unmeasured in its
/// solution, which is then that plan.
///
/// If the costs given are estimates that may be too high (`undercut` counts those seen), what is guaranteed is less:
/// the plan costs no more than any plan does by the measurement of what was measured and the estimate of the rest. A
/// kernel that was not measured, because its estimate kept it out, may be better than that.
///
/// A solution that runs out of time counts with what it found; the status is then Feasible, and the bound what the
/// programs proved.
class LazySearch {
  public:
    /// `known`: candidates whose cost is the true one already; the others' may be too low.
    LazySearch(Choice choice, std::vector<bool> known, BlpOptions options);

    /// Candidates whose true costs decide; none: the plan stands.
    std::vector<size_t> next();
    /// Costs of these candidates, one each: at least 0, infinity for what turns out not to run.
    void tell(const std::vector<size_t>& which, const std::vector<double>& costs);
    /// Nothing more will be told: the plan is the best of known candidates alone, no better proven than before; where
    /// those make none, the best by what was said.
    void stop();

    const LazyResult& result() const { return result_; }

  private:
    void solve_now();
    std::vector<size_t> dearest_unknown() const;

    Choice said_, now_;  ///< `now_`: with what is known in place of what was said
    std::vector<bool> known_;
    BlpOptions options_;
    LazyResult result_;
    std::vector<size_t> asked_;  ///< by the last next(), not told yet
    size_t undercut_before_ = 0;
    bool done_ = false;
    double spent_ = 0;
    size_t rounds_ = 0, loop_rows_ = 0;
};

}  // namespace tilewright::optimal
