#pragma once
// Costs of kernels in layouts. Each kernel is scheduled and measured once.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "orchestrate/joint/single_kernel.h"
#include "orchestrate/schedules.h"

namespace tilewright::joint {

/// A primitive in one layout per tensor.
struct Placement {
    const SinglePrimitive* single = nullptr;
    std::vector<Layout> layouts;
};

class Evaluation {
  public:
    /// Schedules are those of `schedules`, with its options. `measures`: its costs measure kernels
    /// (KernelCosts::measure_in_turns), until stop().
    Evaluation(Schedules& schedules, bool measures);

    const Target& target() const { return schedules_.how().target; }
    /// Estimated seconds of the default heuristic's schedule; infinity where there is no such kernel.
    double by_rule(const Placement& p);
    /// The same of the plan's schedule.
    double constructed(const Placement& p);
    /// Seconds of the plan's schedules, measured in turns; infinity: the kernel cannot run. Nothing where kernels are
    /// not measured, or the time is over.
    std::optional<std::vector<double>> measured(const std::vector<Placement>& all);

    bool measures() const { return measures_; }
    void stop() { measures_ = false; }
    size_t kernels_measured() const { return measured_.size(); }

  private:
    using Known = std::map<std::string, double>;
    double estimate(const Placement& p, Schedules& by, Known& known) const;

    Schedules& schedules_;
    Schedules rule_;  ///< with SchedulerKind::Default
    bool measures_;
    Known by_rule_, constructed_, measured_;
};

}  // namespace tilewright::joint
