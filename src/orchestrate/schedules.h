#pragma once
// Schedules of a model's kernels, each made once: most kernels of a model occur many times.

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

#include "base/code_cache.h"
#include "orchestrate/kernel_group.h"
#include "orchestrate/options.h"

namespace tilewright {

/// What handing one more kernel to the pool costs, and its operands' way back from a farther cache.
constexpr double kKernelSeconds = 1e-6;
/// The share of its separate kernels' time that a chain must save by estimates alone: the error of the model, larger
/// where extents had to be assumed. Measured times need no margin.
double chain_gain(const Program& stages);

/// All that a schedule depends on which the model of a machine chooses, but the kernel and the build of the compiler;
/// `how` has a machine.
std::string scheduling_text(const Scheduling& how);

class Schedules {
  public:
    /// `kept`: a cache of schedules that took long to find by estimates, for this build of the compiler and this
    /// machine only; may be null.
    explicit Schedules(Scheduling how, std::shared_ptr<const CodeCache> kept = nullptr);

    struct Scheduled {
        TileProgram program;
        double seconds = 0;  ///< the model's estimate; 0 without a machine
    };
    /// For a kernel of one stage, or of several that share rows.
    const Scheduled& kernel(const KernelBody& body);
    /// For a kernel of several products; nothing where there is none.
    const std::optional<Scheduled>& chain(const KernelBody& body);
    /// The same by estimates, also where measuring is allowed.
    const std::optional<Scheduled>& estimated_chain(const KernelBody& body);

    /// Measured where measuring is allowed, else the estimate.
    double seconds_of(const Scheduled& s);
    /// KernelCosts::measure, noted for measured() and provided().
    std::optional<MeasuredKernel> measure(const TileProgram& program, const std::vector<bool>& weights);
    /// KernelCosts::recall, likewise.
    std::optional<MeasuredKernel> recall(const TileProgram& program, const std::vector<bool>& weights);
    /// The time that measure() found for this kernel, if it was measured and runs.
    std::optional<double> measured(const Scheduled& s) const;
    /// A kernel that a library was measured to compute faster than generated code does, and has not been refused.
    struct Provided {
        std::string provider;
        std::string kernel;  ///< identifies it
    };
    std::optional<Provided> provided(const Scheduled& s, const std::vector<bool>& weights) const;
    /// Generated code computes this kernel, whatever was measured.
    void refuse(const Provided& p) { refused_.insert(p.kernel); }
    /// Whether a library computes this kernel faster, by measurement, and has been refused.
    bool refused(const TileProgram& program, const std::vector<bool>& weights) const;
    /// Of all kernels whose library has been refused, in order.
    const std::set<std::string>& refused() const { return refused_; }
    /// What no schedule of the kernel undercuts; 0 without a machine.
    double at_least(const KernelBody& body) const;

    const Scheduling& how() const { return how_; }
    const KernelCosts& costs() const { return *costs_; }
    double spent_ms() const { return spent_ms_; }

  private:
    using ScheduledChains = std::unordered_map<std::string, std::optional<Scheduled>>;
    const std::optional<Scheduled>& chain(const KernelBody& body, const Scheduling& how, ScheduledChains& known);
    std::optional<Scheduled> kept_or(const std::string& what, const Scheduling& how,
                                     const std::function<std::optional<Scheduled>()>& make) const;
    void note(const TileProgram& program, const std::vector<bool>& weights, const MeasuredKernel& measured);

    Scheduling how_;
    Scheduling estimated_;  ///< how_ without measurements
    std::shared_ptr<const KernelCosts> costs_;
    std::shared_ptr<const CodeCache> kept_;
    std::string who_;  ///< schedules what is kept: all that a schedule depends on but the kernel
    std::unordered_map<std::string, Scheduled> kernels_;
    ScheduledChains chains_, estimated_chains_;
    std::unordered_map<std::string, double> measured_;    ///< by the text without the kernel's name
    std::unordered_map<std::string, Provided> provided_;  ///< by that and the weights
    std::set<std::string> refused_;
    double spent_ms_ = 0;
};

}  // namespace tilewright
