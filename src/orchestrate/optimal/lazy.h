#pragma once
// Lazy profiling: solve with optimistic costs, measure only the kernels of the solution, replace their costs, and solve
// again. (Korch measures every candidate first, which takes 2.8 to 12.2 hours per model.)

#include <vector>

#include "orchestrate/optimal/blp.h"
#include "orchestrate/optimal/options.h"

namespace tilewright::optimal {

struct LazyResult {
    /// `chosen`, `objective`, `bound` and `status`; times and counts are sums over all solutions
    BlpResult blp;
    size_t measured = 0;   ///< candidates
    size_t solutions = 0;  ///< programs solved
    /// Measured candidates that cost less than their assumed lower bound.
    size_t undercut = 0;
};

/// The search of one choice, which requests costs step by step.
///
///     for (auto which = search.next(); !which.empty(); which = search.next()) search.tell(which, costs of these);
///
/// Of a solution's unmeasured kernels, the most expensive ones are requested first, up to half of their total assumed
/// cost. If one of them turns out slow, the solution is no longer optimal, and the others need not be measured. The
/// search ends when a plan of measured kernels costs no more than the last program's bound.
///
/// If no candidate costs less than its cost in `choice`, the result is the optimum of measuring everything. The costs
/// of every program are lower bounds of the true ones, so its optimum and bound are at most the true cost of any plan,
/// and the true cost of the result equals the bound. The search terminates: every round measures a kernel or finds a
/// solution without unmeasured kernels, which is the result.
///
/// If the given costs are estimates that may be too high (`undercut` counts those found), the guarantee is weaker: the
/// plan costs no more than any other by measured costs where known and estimates elsewhere. An unmeasured kernel that
/// its estimate excluded may be better.
///
/// If a solution reaches the time limit, its best plan is used. The status is then Feasible, and the bound is the one
/// that the programs proved.
class LazySearch {
  public:
    /// `known`: candidates whose cost is a true one already. The costs of others may be too low.
    LazySearch(Choice choice, std::vector<bool> known, BlpOptions options);

    /// The candidates to measure next; empty: the plan is final.
    std::vector<size_t> next();
    /// Sets the costs of these candidates, one each, at least 0; infinity: the candidate cannot run.
    void tell(const std::vector<size_t>& which, const std::vector<double>& costs);
    /// Ends the search without further costs. The plan is the best of known candidates, with the bound proven so far.
    /// If known candidates make no plan, it is the best one by the assumed costs.
    void stop();

    const LazyResult& result() const { return result_; }
    /// The cost of candidates, by what is known of them now.
    double cost(const std::vector<size_t>& candidates) const { return now_.cost(candidates); }

  private:
    void solve_now();
    std::vector<size_t> most_expensive_unknown() const;

    Choice said_, now_;  ///< `now_`: `said_` with known costs replaced
    std::vector<bool> known_;
    BlpOptions options_;
    LazyResult result_;
    std::vector<size_t> requested_;  ///< requested by the last next(), without tell() so far
    size_t undercut_before_ = 0;
    bool done_ = false;
    double spent_ = 0;
    size_t rounds_ = 0, loop_rows_ = 0;
};

}  // namespace tilewright::optimal
