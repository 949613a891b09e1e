#include "compile/tune_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "compile/measured_costs.h"
#include "cost/annotate_options.h"
#include "schedule/search_annotations.h"
#include "tune/canonical.h"
#include "tune/operands.h"
#include "tune/tuner.h"

namespace tilewright {

namespace {

/// The share of its seconds that a schedule must save to replace the initial one. It is about what two measurements of
/// one kernel differ by.
constexpr double kGain = 0.02;

constexpr size_t kMostOfChain = 256;  ///< programs of a chain's space

/// Measures candidates with a tuner for each constellation of weights; that of the last kernel is kept.
class HostTrials {
  public:
    HostTrials(TuneSettings settings, Target target, std::shared_ptr<TuningDatabase> database)
        : settings_(std::move(settings)), target_(std::move(target)), database_(std::move(database)) {}

    std::optional<std::vector<TunedKernel>> operator()(const std::vector<TileProgram>& candidates,
                                                       const std::vector<bool>& weights) {
        const auto sizes = assumed_sizes(candidates.at(0).stages);
        if (!sizes) return std::nullopt;
        if (!tuner_ || settings_.weights != weights) {
            settings_.weights = weights;
            tuner_ = std::make_unique<Tuner>(target_, settings_, database_.get());
        }
        std::vector<TunedKernel> out(candidates.size());
        std::vector<bool> done(candidates.size(), false);
        try {
            for (size_t k = 0; k < candidates.size(); ++k) {  // a tuner takes schedules of the same stages together
                std::vector<size_t> equal;
                std::vector<TileProgram> programs;
                const std::string stages = done[k] ? "" : canonical_text(candidates[k].stages);
                for (size_t i = k; i < candidates.size() && !done[k]; ++i)
                    if (!done[i] && canonical_text(candidates[i].stages) == stages) equal.push_back(i);
                for (const size_t i : equal) {
                    programs.push_back(candidates[i]);
                    done[i] = true;
                }
                if (programs.empty()) continue;
                std::vector<TunedKernel> tuned = tuner_->tune(programs, *sizes);
                for (size_t i = 0; i < equal.size(); ++i) out[equal[i]] = std::move(tuned[i]);
            }
        } catch (const std::exception& e) {  // it has no reference, or its operands do not fit in memory
            if (settings_.warn)
                settings_.warn(fmt::format("a kernel is not tuned, as it cannot be checked: {}", e.what()));
            return std::nullopt;
        }
        return out;
    }

  private:
    TuneSettings settings_;
    const Target target_;
    std::shared_ptr<TuningDatabase> database_;
    std::unique_ptr<Tuner> tuner_;
};

}  // namespace

TuneCandidates candidates_on_host(const CompileOptions& options, const Target& target, int64_t weight_bytes,
                                  std::shared_ptr<TuningDatabase> database) {
    return [trials = std::make_shared<HostTrials>(schedule_settings_in_model(options, target, weight_bytes), target,
                                                  std::move(database))](const std::vector<TileProgram>& candidates,
                                                                        const std::vector<bool>& weights) {
        return (*trials)(candidates, weights);
    };
}

MeasureTrials trials_on_host(const CompileOptions& options, const Target& target, int64_t weight_bytes,
                             std::shared_ptr<TuningDatabase> database) {
    return [tune = candidates_on_host(options, target, weight_bytes, std::move(database))](
               const std::vector<TileProgram>& candidates,
               const std::vector<bool>& weights) -> std::optional<std::vector<Trial>> {
        const auto tuned = tune(candidates, weights);
        if (!tuned) return std::nullopt;
        std::vector<Trial> out;
        out.reserve(tuned->size());
        for (const TunedKernel& k : *tuned)
            out.push_back({k.measurement.verdict, k.measurement.seconds.value, k.remembered});
        return out;
    };
}

std::string_view to_string(ScheduleSource source) {
    constexpr std::array<std::string_view, 4> kNames = {"default", "construction", "chain", "annotations"};
    return kNames[static_cast<size_t>(source)];
}

std::optional<ScheduleSource> schedule_source_from_string(std::string_view name) {
    for (const ScheduleSource s :
         {ScheduleSource::Default, ScheduleSource::Construction, ScheduleSource::Chain, ScheduleSource::Annotations})
        if (to_string(s) == name) return s;
    return std::nullopt;
}

KernelTuning::KernelTuning(KernelBody body, bool chain, TileProgram initial, double estimate, double limit,
                           const Scheduling& how)
    : body_(std::move(body)),
      name_(body_.stages.name),
      chain_(chain),
      initial_(std::move(initial)),
      estimate_(estimate),
      how_(how),
      best_(initial_) {
    how_.kind = SchedulerKind::Search;
    how_.estimates = true;
    how_.costs = nullptr;
    progress.best = estimate;
    progress.limit = limit;
}

bool KernelTuning::gains() const { return seconds_ && initial_seconds_ && *seconds_ < (1 - kGain) * *initial_seconds_; }

TunedSchedule KernelTuning::tuned_schedule() const {
    return gains() ? TunedSchedule{best_, *seconds_, std::string(to_string(source_))} : initial_schedule();
}

TunedSchedule KernelTuning::initial_schedule() const {
    return {initial_, initial_seconds_.value(), std::string(to_string(ScheduleSource::Default))};
}

size_t KernelTuning::round(const MeasureTrials& measure, size_t most) {
    const std::vector<Candidate> batch = candidates(most);
    std::vector<TileProgram> programs;
    programs.reserve(batch.size());
    for (const Candidate& c : batch) programs.push_back(c.program);
    const auto trials = programs.empty() ? std::nullopt : measure(programs, body_.weights);
    if (!trials) {
        progress.exhausted = true;
        return 0;
    }
    std::optional<double> best;
    for (size_t i = 0; i < batch.size(); ++i) {
        note(batch[i], (*trials)[i]);
        const Trial& t = (*trials)[i];
        if (t.verdict == Verdict::measured && (!best || t.seconds < *best)) best = t.seconds;
    }
    if (search_ && !searched_.empty()) {
        std::vector<double> seconds;
        for (const std::string& text : searched_) seconds.push_back(known_.at(text));
        search_->tell(seconds);
        searched_.clear();
    }
    progress.add_round(best);
    if (!initial_seconds_) progress.exhausted = true;  // nothing can be compared with it
    return batch.size();
}

void KernelTuning::note(const Candidate& candidate, const Trial& trial) {
    recalled += trial.recalled ? 1 : 0;
    ++(trial.verdict == Verdict::measured ? measured : trial.verdict == Verdict::failed ? failed : wrong);
    if (trial.verdict != Verdict::measured) return;
    known_[print(candidate.program)] = trial.seconds;
    if (candidate.source == ScheduleSource::Default) initial_seconds_ = trial.seconds;
    if (seconds_ && trial.seconds >= *seconds_) return;
    seconds_ = trial.seconds;
    best_ = candidate.program;
    source_ = candidate.source;
    best_is_new_ = true;
}

void KernelTuning::add(std::vector<Candidate>& to, TileProgram program, ScheduleSource source) {
    if (known_.try_emplace(print(program), -1).second) to.push_back({std::move(program), source});
}

void KernelTuning::add_searched(std::vector<Candidate>& to, size_t most) {
    if (!searches_ || to.size() >= most) return;
    if (!search_) {
        search_ =
            chain_ ? search_chain(body_.stages, how_, kMostOfChain) : search_states(body_.stages, body_.row_axes, how_);
        searches_ = search_ != nullptr;
        if (!searches_) return;
    }
    std::vector<TileProgram> next = search_->next(most - to.size());
    searches_ = !next.empty();
    for (TileProgram& p : next) {
        p.stages.name = p.name = initial_.name;  // names are no part of a schedule
        searched_.push_back(print(p));
        add(to, std::move(p), chain_ ? ScheduleSource::Chain : ScheduleSource::Construction);
    }
}

void KernelTuning::add_neighbours(std::vector<Candidate>& to, size_t most) {
    if (best_is_new_) {
        neighbours_.clear();
        for (auto& of_compute : annotation_neighbours(best_, annotate_options(how_.target)))
            for (TileProgram& p : of_compute) neighbours_.push_back(std::move(p));
        std::reverse(neighbours_.begin(), neighbours_.end());  // taken from the end
        best_is_new_ = false;
    }
    for (; to.size() < most && !neighbours_.empty(); neighbours_.pop_back())
        add(to, std::move(neighbours_.back()), ScheduleSource::Annotations);
}

std::vector<KernelTuning::Candidate> KernelTuning::candidates(size_t most) {
    std::vector<Candidate> out;
    if (progress.rounds == 0) {
        add(out, initial_, ScheduleSource::Default);
    } else {
        add_neighbours(out, most / 2);
    }
    add_searched(out, most);
    if (progress.rounds > 0) add_neighbours(out, most);
    return out;
}

}  // namespace tilewright
