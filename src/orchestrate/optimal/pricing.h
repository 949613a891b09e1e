#pragma once
// Candidates' costs by measurement: which are measured, how often, and what stands for the rest until then.

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "orchestrate/optimal/kernel_maker.h"
#include "orchestrate/optimal/piece.h"
#include "orchestrate/options.h"

namespace tilewright::optimal {

/// Per kernel that can be made: the number of the first one of equal text and weights. Such kernels are one kernel
/// under several names: one measurement holds for all, and the report counts them once.
std::map<size_t, size_t> equal_kernels(const KernelMaker& maker);
/// How many different kernels those are.
size_t count_distinct(const std::map<size_t, size_t>& equal);

/// The share of the estimate that an unmeasured kernel is assumed to take at least, from `ratios` of measured over
/// estimated seconds: of kernels of its kind, and of all kernels. The lower quartile of its kind, or of all where there
/// are none of its kind, and at most 1: a few slow kernels say nothing about the others. Above 1 only where at least
/// kTellingKernels of its kind were measured and every one took longer than estimated; then the least of their ratios.
constexpr size_t kTellingKernels = 16;
double low_ratio(std::vector<double> kind, std::vector<double> all);

/// Brings all searches to their ends, with measured costs.
///
/// First the kernels of the plans to begin with are measured: the plan found is then no slower than the greedy rule's,
/// by measurement. They also say how the model errs: low_ratio of each kind of kernel. An estimate times that (and at
/// least the machine's limit) is the assumed lower bound of an unmeasured kernel, as lazy profiling needs it (lazy.h):
/// exact as far as no kernel undercuts that, and OrchestrationReport::undercut counts those that do.
///
/// What the database remembers of the others counts as measured before the first solution, so that a compile goes on
/// from where one before it was, and on a full database one or two solutions do.
///
/// Then every search solves and lists the kernels whose costs decide. These are measured, once for equal kernels of all
/// pieces, the most expensive ones first where not all of them may be; and again, until no search lists any or
/// OptimalOptions::most_measured of the distinct kernels are measured. On a full database nothing is run.
class Pricing {
  public:
    /// `equal`: equal_kernels of `maker`.
    Pricing(std::vector<PieceSearch*> searches, std::map<size_t, size_t> equal, const KernelMaker& maker,
            Schedules& schedules, const OrchestrateOptions& options, OrchestrationReport& report);
    ~Pricing();
    Pricing(const Pricing&) = delete;
    Pricing& operator=(const Pricing&) = delete;

    void solve();
    /// After Schedules::refuse: kernels that a library was to compute cost what generated code takes, and the searches
    /// are solved again, with as many measurements as are left. False where no cost changes, and nothing is solved.
    bool solve_without_refused();

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright::optimal
