#pragma once
// The candidates of one kernel, their measurement, and what came of it.

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compile/options.h"
#include "orchestrate/kernel_group.h"
#include "orchestrate/tuned_schedules.h"
#include "schedule/candidate_search.h"
#include "tune/allocation.h"
#include "tune/database.h"
#include "tune/tuner.h"

namespace tilewright {

/// The result of a candidate.
struct Trial {
    Verdict verdict = Verdict::measured;
    double seconds = 0;     ///< if measured
    bool recalled = false;  ///< from the tuning database, not run
};
/// Checks and measures schedules of one kernel in turns. `weights`: KernelBody::weights. Nothing where its sizes are
/// unknown before the model runs.
using MeasureTrials = std::function<std::optional<std::vector<Trial>>(const std::vector<TileProgram>& candidates,
                                                                      const std::vector<bool>& weights)>;
/// The same with all that the tuning database keeps of a measurement.
using TuneCandidates = std::function<std::optional<std::vector<TunedKernel>>(const std::vector<TileProgram>& candidates,
                                                                             const std::vector<bool>& weights)>;
/// On this machine, with the results in `database` (null: not kept). `weight_bytes`: of the model.
TuneCandidates candidates_on_host(const CompileOptions& options, const Target& target, int64_t weight_bytes,
                                  std::shared_ptr<TuningDatabase> database);
MeasureTrials trials_on_host(const CompileOptions& options, const Target& target, int64_t weight_bytes,
                             std::shared_ptr<TuningDatabase> database);

/// How a schedule was found.
enum class ScheduleSource : uint8_t {
    Default,       ///< by estimates, without tuning
    Construction,  ///< a state of Gensor's space
    Chain,         ///< a program of MCFuser's space
    Annotations    ///< the best one so far with another annotation
};
std::string_view to_string(ScheduleSource source);
std::optional<ScheduleSource> schedule_source_from_string(std::string_view name);

/// A kernel that is tuned.
class KernelTuning {
  public:
    /// `initial`: the schedule without tuning, with its estimate. `how`: the model's scheduling.
    KernelTuning(KernelBody body, bool chain, TileProgram initial, double estimate, double limit,
                 const Scheduling& how);

    /// Measures at most `most` further candidates, in the first round the initial schedule among them. Returns how
    /// many.
    size_t round(const MeasureTrials& measure, size_t most);

    KernelProgress progress;

    const std::string& name() const { return name_; }
    void set_name(const std::string& name) { name_ = name; }
    bool chain() const { return chain_; }
    double estimate() const { return estimate_; }  ///< of the initial schedule
    /// Measured seconds of the initial schedule; nothing before the first round, and if it cannot be run.
    std::optional<double> initial_seconds() const { return initial_seconds_; }
    /// Of the fastest schedule; nothing if none could be run.
    std::optional<double> seconds() const { return seconds_; }
    /// Whether the fastest schedule is faster than the initial one by a margin.
    bool gains() const;
    /// Of these, with its seconds; and the initial one. Requires initial_seconds().
    TunedSchedule tuned_schedule() const;
    TunedSchedule initial_schedule() const;
    ScheduleSource source() const { return gains() ? source_ : ScheduleSource::Default; }
    size_t measured = 0, failed = 0, wrong = 0;  ///< candidates, by verdict
    size_t recalled = 0;                         ///< of all of them, without a run
    size_t tried() const { return measured + failed + wrong; }

  private:
    struct Candidate {
        TileProgram program;
        ScheduleSource source = ScheduleSource::Default;
    };
    std::vector<Candidate> candidates(size_t most);
    void add_neighbours(std::vector<Candidate>& to, size_t most);
    void add_searched(std::vector<Candidate>& to, size_t most);
    void add(std::vector<Candidate>& to, TileProgram program, ScheduleSource source);
    void note(const Candidate& candidate, const Trial& trial);

    const KernelBody body_;
    std::string name_;
    const bool chain_;
    const TileProgram initial_;
    const double estimate_;
    Scheduling how_;
    std::unique_ptr<CandidateSearch> search_;
    bool searches_ = true;                 ///< search_ may have further candidates, or is not made yet
    std::vector<std::string> searched_;    ///< texts of its candidates of this round
    std::vector<TileProgram> neighbours_;  ///< of best_, by annotations, not tried so far
    bool best_is_new_ = false;             ///< neighbours_ are those of an earlier best_
    std::map<std::string, double> known_;  ///< seconds by text, of candidates tried or of this round; negative: none
    TileProgram best_;
    ScheduleSource source_ = ScheduleSource::Default;
    std::optional<double> initial_seconds_, seconds_;
};

}  // namespace tilewright
