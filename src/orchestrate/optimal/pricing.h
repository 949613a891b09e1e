#pragma once
// Measured costs of candidates: the order and number of measurements, and assumed costs of unmeasured kernels.

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "orchestrate/optimal/kernel_maker.h"
#include "orchestrate/optimal/piece.h"
#include "orchestrate/options.h"

namespace tilewright::optimal {

/// Per possible kernel, the number of the first one of equal text and weights. Such kernels share one measurement, and
/// the report counts them once.
std::map<size_t, size_t> equal_kernels(const KernelMaker& maker);
/// The number of distinct kernels.
size_t count_distinct(const std::map<size_t, size_t>& equal);

/// The factor by which the estimate of an unmeasured kernel is multiplied for its assumed lower bound, from ratios of
/// measured to estimated seconds of kernels of its kind, and of all kernels. It is the lower quartile of its kind, or
/// of all if its kind has none, and at most 1: a few slow kernels do not imply that others are slow. It exceeds 1 only
/// if at least kTellingKernels of its kind were measured and all were slower than estimated; it is then the least
/// ratio.
constexpr size_t kTellingKernels = 16;
double low_ratio(std::vector<double> kind, std::vector<double> all);

/// Runs all searches to completion with measured costs.
///
/// The kernels of the initial plans are measured first, so the result is at least as fast as the greedy plan, by
/// measurement. They also give the error of the model: low_ratio of each kind of kernel. An estimate times that ratio
/// (and at least the machine's limit) is the assumed lower bound of an unmeasured kernel, which lazy profiling requires
/// (lazy.h). The bound is exact as far as no kernel undercuts it; OrchestrationReport::undercut counts those that do.
///
/// Times of other kernels that the tuning database has count as measured before the first solution. A compilation thus
/// continues where an earlier one ended, and with a complete database it needs one or two solutions.
///
/// Every search then solves its program and lists the kernels to measure. Equal kernels of all pieces are measured
/// once, and the most expensive ones first if the limit does not allow all. This repeats until no search lists kernels
/// or OptimalOptions::most_measured of the distinct kernels are measured. With a complete database nothing is run.
class Pricing {
  public:
    /// `equal`: equal_kernels of `maker`.
    Pricing(std::vector<PieceSearch*> searches, std::map<size_t, size_t> equal, const KernelMaker& maker,
            Schedules& schedules, const OrchestrateOptions& options, OrchestrationReport& report);
    ~Pricing();
    Pricing(const Pricing&) = delete;
    Pricing& operator=(const Pricing&) = delete;

    void solve();
    /// After Schedules::refuse: kernels of refused libraries get the cost of generated code, and the searches are
    /// solved again with the remaining number of measurements. False if no cost changes; then nothing is solved.
    bool solve_without_refused();

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright::optimal
