#pragma once
// Schedules of a model's kernels. Each is made once, since most kernels of a model occur many times.

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <unordered_map>

#include "base/code_cache.h"
#include "orchestrate/kernel_group.h"
#include "orchestrate/options.h"
#include "orchestrate/tuned_schedules.h"

namespace tilewright {

/// The cost of one more kernel: dispatch to the thread pool, and operands that moved to a farther cache.
constexpr double kKernelSeconds = 1e-6;
/// The share of its separate kernels' time that a chain must save by estimates alone. It is the error of the model, and
/// larger where extents are assumed. Measured times need no margin.
double chain_gain(const Program& stages, const Scheduling& how);

/// All that a schedule chosen by estimates depends on, except the kernel and the build of the compiler. `how` must have
/// a target.
std::string scheduling_text(const Scheduling& how);

/// Several threads may call it at once, if it neither measures nor is watched (`concurrent`).
class Schedules {
  public:
    struct Scheduled {
        TileProgram program;
        double seconds = 0;                             ///< estimate, without tuning; 0 without a machine
        std::optional<double> measured = std::nullopt;  ///< of a tuned schedule
    };
    /// A kernel whose schedule was made, for a plan or to compare groups of primitives.
    struct Made {
        std::string key;  ///< of the kernel in TunedSchedules
        const KernelBody& body;
        bool chain = false;
        const Scheduled& schedule;
        bool planned = false;  ///< by planned(): a plan calls it. Otherwise the first time that it is made
    };
    using Watch = std::function<void(const Made&)>;

    /// `kept`: a cache of schedules that took long to find by estimates, for this build of the compiler and this
    /// machine only; may be null. `tuned`: schedules that replace those of their kernels; may be null. `watch` may be
    /// empty.
    explicit Schedules(Scheduling how, std::shared_ptr<const CodeCache> kept = nullptr,
                       std::shared_ptr<const TunedSchedules> tuned = nullptr, Watch watch = {});

    /// The schedule of a kernel of one stage, or of several that share rows.
    const Scheduled& kernel(const KernelBody& body);
    /// `schedule` becomes that of the kernel, unless one was adopted before. Schedules of it that were returned before
    /// stay as they are. `measured`: seconds.
    void adopt(const KernelBody& body, TileProgram schedule, std::optional<double> measured);
    /// The schedule of a GEMM chain; nothing if there is none.
    const std::optional<Scheduled>& chain(const KernelBody& body);
    /// The same by estimates, even where measurement is allowed or the chain is tuned.
    const std::optional<Scheduled>& estimated_chain(const KernelBody& body);
    /// The same, or nothing where it is unlikely to be faster than kernels that take `replaces` seconds.
    const std::optional<Scheduled>& estimated_chain(const KernelBody& body, double replaces);
    /// kernel(), or chain() of a chain that has a schedule, for a call of a plan.
    const Scheduled& planned(const KernelBody& body, bool chain);

    /// Measured seconds if measurement is allowed, else the estimate.
    double seconds_of(const Scheduled& s);
    /// KernelCosts::measure; records the result for measured() and provided().
    std::optional<MeasuredKernel> measure(const TileProgram& program, const std::vector<bool>& weights);
    /// KernelCosts::recall; records the result likewise.
    std::optional<MeasuredKernel> recall(const TileProgram& program, const std::vector<bool>& weights);
    /// The time that measure() returned for this kernel, if it was measured and can run.
    std::optional<double> measured(const Scheduled& s) const;
    /// A kernel for which a library measured faster than generated code and has not been refused.
    struct Provided {
        std::string provider;
        std::string kernel;  ///< identifies it
    };
    std::optional<Provided> provided(const Scheduled& s, const std::vector<bool>& weights) const;
    /// Refuses the library kernel: generated code computes this kernel, whatever was measured.
    void refuse(const Provided& p) { refused_.insert(p.kernel); }
    /// Whether a library measured faster for this kernel, but has been refused.
    bool refused(const TileProgram& program, const std::vector<bool>& weights) const;
    /// All kernels whose library kernel has been refused, in order.
    const std::set<std::string>& refused() const { return refused_; }
    /// A lower bound of the time of every schedule of the kernel in seconds; 0 without a machine.
    double at_least(const KernelBody& body) const;

    bool concurrent() const { return !how_.measures() && !watch_; }
    const Scheduling& how() const { return how_; }
    const KernelCosts& costs() const { return *costs_; }
    double spent_ms() const { return spent_ms_; }

  private:
    using ScheduledChains = std::unordered_map<std::string, std::optional<Scheduled>>;
    const std::optional<Scheduled>& chain(const KernelBody& body, const Scheduling& how, ScheduledChains& known,
                                          double replaces);
    /// Entries stay where they are, and are never changed.
    template <class Entry>
    const Entry* found(const std::unordered_map<std::string, Entry>& map, const std::string& key) {
        const std::lock_guard lock(mutex_);
        const auto it = map.find(key);
        return it == map.end() ? nullptr : &it->second;
    }
    /// The entry of the first thread that added one.
    template <class Entry>
    const Entry& added(std::unordered_map<std::string, Entry>& map, std::string key,
                       std::type_identity_t<Entry> entry) {
        const std::lock_guard lock(mutex_);
        return map.emplace(std::move(key), std::move(entry)).first->second;
    }
    /// `stages`: of the kernel, whose assumed sizes no text has.
    std::optional<Scheduled> kept_or(const std::string& what, const Program& stages, const Scheduling& how,
                                     const std::function<std::optional<Scheduled>()>& make) const;
    /// The tuned schedule of a kernel; nothing if there is none.
    std::optional<Scheduled> tuned(const std::string& key, const Program& stages) const;
    void note(const TileProgram& program, const std::vector<bool>& weights, const MeasuredKernel& measured);

    Scheduling how_;
    Scheduling estimated_;  ///< how_ without measurements
    std::shared_ptr<const KernelCosts> costs_;
    std::shared_ptr<const CodeCache> kept_;
    std::shared_ptr<const TunedSchedules> tuned_;
    Watch watch_;
    std::string key_prefix_;  ///< key prefix of kept schedules: all that a schedule depends on except the kernel
    std::unordered_map<std::string, Scheduled> kernels_;
    std::unordered_map<std::string, Scheduled> adopted_;  ///< in place of those of kernels_
    ScheduledChains chains_, estimated_chains_, tuned_chains_;
    std::unordered_map<std::string, double> hopeless_;    ///< chains that do not replace kernels of so many seconds
    std::unordered_map<std::string, double> measured_;    ///< by the text without the kernel's name
    std::unordered_map<std::string, Provided> provided_;  ///< by that text and the weights
    std::set<std::string> refused_;
    double spent_ms_ = 0;  ///< of all threads
    std::mutex mutex_;     ///< of the maps and spent_ms_. Schedules are made without it
};

}  // namespace tilewright
