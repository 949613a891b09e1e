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

    /// Seconds of schedules of one kernel with these weights, measured in turns; infinity: it cannot run. Estimates
    /// where no kernel is measured. Nothing where the time is over.
    std::optional<std::vector<double>> schedules(const std::vector<TileProgram>& all, const std::vector<bool>& weights);
    /// The schedule of the kernel from now on (Schedules::adopt), with the `seconds` that schedules() gave for it.
    void adopt(const Placement& p, TileProgram schedule, double seconds);

    const Scheduling& scheduling() const { return schedules_.how(); }
    bool measures() const { return measures_; }
    void stop() { measures_ = false; }
    size_t measurements() const { return measurements_; }  ///< of kernels and schedules

  private:
    using Known = std::map<std::string, double>;
    double estimate(const Placement& p, Schedules& by, Known& known) const;

    Schedules& schedules_;
    Schedules rule_;  ///< with SchedulerKind::Default
    bool measures_;
    Known by_rule_, constructed_, measured_;
    size_t measurements_ = 0;
};

}  // namespace tilewright::joint
