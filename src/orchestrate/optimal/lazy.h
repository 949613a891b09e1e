#pragma once
// Lazy profiling: solve with optimistic costs, measure the kernels of the solution only, put the measured costs in,
// solve again. (Korch measures every candidate first, which takes 2.8 to 12.2 hours a model.)

#include <functional>
#include <string_view>
#include <vector>

#include "orchestrate/optimal/blp.h"

namespace tilewright::optimal {

enum class Profile : uint8_t {
    None,  ///< nothing is measured: the costs given are what counts
    Lazy,  ///< the kernels of each solution, until some plan is known to be the best
    Full   ///< every candidate, then one solution
};
std::string_view to_string(Profile p);

/// Costs of these candidates, one each: at least 0, infinity for what turns out not to run.
using MeasureCandidates = std::function<std::vector<double>(const std::vector<size_t>&)>;

struct LazyResult {
    BlpResult blp;         ///< `chosen`, `objective`, `bound`, `status` and what all solutions took together
    size_t measured = 0;   ///< candidates
    size_t solutions = 0;  ///< programs solved
    /// Measured candidates that cost less than they were said to at least.
    size_t undercut = 0;
};

/// Ends when a plan all of whose kernels are measured costs no more than the last program's bound.
///
/// If no candidate costs less than `choice` says, this is the optimum of measuring everything: every program's costs
/// are at most the true ones, so its optimum, and its bound, are at most the true cost of any plan; the plan found
/// costs what the bound is, truly. It ends, as every round measures a kernel or finds nothing unmeasured in its
/// solution, which is then that plan.
///
/// If the costs given are estimates that may be too high (`undercut` counts those seen), what is guaranteed is less:
/// the plan costs no more than any plan does by the measurement of what was measured and the estimate of the rest. A
/// kernel that nobody measured, because its estimate kept it out, may be better than that.
///
/// A solution that runs out of time counts with what it found; the status is then Feasible, and the bound what the
/// programs proved.
LazyResult solve_lazily(const Choice& choice, Profile profile, const MeasureCandidates& measure,
                        const BlpOptions& options = {});

}  // namespace tilewright::optimal
