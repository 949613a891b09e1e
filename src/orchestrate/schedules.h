#pragma once
// Schedules of a model's kernels, each made once: most kernels of a model occur many times.

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

#include "base/code_cache.h"
#include "orchestrate/plan.h"

namespace tilewright {

/// What handing one more kernel to the pool costs, and its operands' way back from a farther cache.
constexpr double kKernelSeconds = 1e-6;
/// Of what its kernels take apart a chain must save this share by the model alone, whose error is of that size, more
/// where the model had to assume extents. Measured times need no margin.
double chain_gain(const Program& stages);

/// All that a schedule depends on which the model of a machine chooses, but the kernel and the build of the compiler;
/// `how` has a machine.
std::string scheduling_text(const Scheduling& how);

class Schedules {
  public:
    /// `measure`, `recall`: what measure() and recall() ask; may be empty. `kept`: where what took long to find by the
    /// model's word is looked for and kept, for this build of the compiler and this machine alone; may be null.
    explicit Schedules(Scheduling how, MeasureKernel measure = {}, std::shared_ptr<const CodeCache> kept = nullptr,
                       MeasureKernel recall = {});

    struct Scheduled {
        TileProgram program;
        double seconds = 0;  ///< the model's estimate; 0 without a machine
    };
    /// For a kernel of one stage, or of several that share rows.
    const Scheduled& kernel(const KernelBody& body);
    /// For a kernel of several products; nothing where there is none.
    const std::optional<Scheduled>& chain(const KernelBody& body);
    /// The same by the model's word, also where measuring is allowed.
    const std::optional<Scheduled>& estimated_chain(const KernelBody& body);

    /// Measured where measuring is allowed, else the estimate.
    double seconds_of(const Scheduled& s);
    bool measures() const { return ask_ != nullptr; }
    /// Runs it, or remembers (MeasureKernel).
    std::optional<MeasuredKernel> measure(const TileProgram& program, const std::vector<bool>& weights);
    /// What measure() would remember of it; nothing where it would have to run it.
    std::optional<MeasuredKernel> recall(const TileProgram& program, const std::vector<bool>& weights);
    /// What measure() found of this kernel, where somebody asked for that and it runs.
    std::optional<double> measured(const Scheduled& s) const;
    /// A kernel that a library was measured to compute faster than generated code does, and has not been refused.
    struct Provided {
        std::string provider;
        std::string kernel;  ///< tells it from others
    };
    std::optional<Provided> provided(const Scheduled& s, const std::vector<bool>& weights) const;
    /// Whatever it measured: generated code computes this one.
    void refuse(const Provided& p) { refused_.insert(p.kernel); }
    /// Whether a library computes this kernel faster, by measurement, and has been refused.
    bool refused(const TileProgram& program, const std::vector<bool>& weights) const;
    /// Of all kernels whose library has been refused, in order.
    const std::set<std::string>& refused() const { return refused_; }
    /// What no schedule of the kernel undercuts; 0 without a machine.
    double at_least(const KernelBody& body) const;

    const Scheduling& how() const { return how_; }
    double spent_ms() const { return spent_ms_; }

  private:
    using ScheduledChains = std::unordered_map<std::string, std::optional<Scheduled>>;
    const std::optional<Scheduled>& chain(const KernelBody& body, const Scheduling& how, ScheduledChains& known);
    std::optional<Scheduled> kept_or(const std::string& what, const Scheduling& how,
                                     const std::function<std::optional<Scheduled>()>& make) const;

    Scheduling how_;
    MeasureKernel ask_, recall_;
    std::shared_ptr<const CodeCache> kept_;
    std::string who_;  ///< schedules what is kept: all that a schedule depends on but the kernel
    std::unordered_map<std::string, Scheduled> kernels_;
    ScheduledChains chains_, estimated_chains_;
    void note(const TileProgram& program, const std::vector<bool>& weights, const MeasuredKernel& measured);

    std::unordered_map<std::string, double> measured_;    ///< by the text without the kernel's name
    std::unordered_map<std::string, Provided> provided_;  ///< by that and the weights
    std::set<std::string> refused_;
    double spent_ms_ = 0;
};

/// Groups that are one kernel as a chain of products, where the model says that this costs less than they do.
///
/// Greedy: products in order; to the group of each come those that feed it and nobody else, back to the next products,
/// of which one, all or none come along, or those that feed them too.
std::vector<KernelGroup> group_chains(const Program& program, std::vector<KernelGroup> groups, Schedules& schedules,
                                      const FusionLimits& limits = {});

/// A kernel as several: parts of its sums as tasks, then what adds them up (schedule/chain/split.h).
struct InParts {
    struct Part {
        Program stages;  ///< values are connected by their names, with those of the kernel's body too
        std::vector<KernelGroup> groups;
    };
    std::vector<Part> parts;
    double seconds = 0;  ///< of all of them
};
/// Nothing where all threads (a GPU's multiprocessors) have a task as it is, nothing can be cut, or it does not gain.
std::optional<InParts> in_parts(const KernelBody& body, const Schedules::Scheduled& whole, Schedules& schedules);

/// Kernels that would leave threads, or a GPU's multiprocessors, without a task, few results of long sums each, become
/// two where that is estimated (or measured) to gain. Nothing with one thread.
void split_sums(Grouped& grouped, Schedules& schedules);

}  // namespace tilewright
