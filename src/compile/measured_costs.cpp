#include "compile/measured_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/private_folder.h"
#include "tune/operands.h"

namespace tilewright {

namespace {

/// Settings for running kernels on this machine.
TuneSettings tune_settings(const CompileOptions& options) {
    TuneSettings settings;
    settings.warn = options.warn;
    settings.measure.seconds = 0.02;
    settings.check_work = 1 << 21;  // a tenth of a second per candidate
    return settings;
}

/// Schedules are compared only with each other: a few readings each, with warm operands.
TuneSettings schedule_settings(const CompileOptions& options) {
    TuneSettings settings = tune_settings(options);
    // Most candidates are far from the best and need few readings.
    settings.measure.give_up = 1.2;
    settings.measure.few = 3;
    settings.measure.seconds = 0.01;
    return settings;
}

/// Single kernels are measured with constants as warm as in a run of the model.
TuneSettings kernel_settings(const MeasuringOptions& what, const CompileOptions& options) {
    TuneSettings settings = tune_settings(options);
    settings.warmth = warmth_in_model(what.target, what.weight_bytes);
    return settings;
}

/// As single kernels, but only the fastest of them matter.
TuneSettings alternative_settings(const MeasuringOptions& what, const CompileOptions& options) {
    TuneSettings settings = schedule_settings_in_model(options, what.target, what.weight_bytes);
    settings.check_work = 1 << 18;  // some ten milliseconds: each is checked on operands of its own
    return settings;
}

/// Negative if the kernel cannot be run.
double seconds_of(const Measurement& m) { return m.verdict == Verdict::measured ? m.seconds.value : -1; }

/// Choices between full plans, keyed by a hash of the alternatives: all of them compute the same.
RememberChoice memory_of_choices(const std::shared_ptr<TuningDatabase>& database, const Target& target,
                                 const TuneSettings& settings) {
    if (!database) return {};
    const std::string how = settings_text(target.workers, settings.warmth, "");
    const auto key_of = [key = target_key(target), how](const std::string& of) {
        return ChoiceKey{"plans " + hash_digits(of), key, "in model", how};
    };
    RememberChoice out;
    out.find = [=](const std::string& of) -> std::optional<std::string> {
        const auto known = database->find(key_of(of));
        return known ? std::optional(known->schedule) : std::nullopt;
    };
    out.keep = [=](const std::string& of, const std::string& chosen) {
        Choice choice;
        choice.key = key_of(of);
        choice.schedule = chosen;
        try {
            database->insert(choice);
        } catch (const CannotKeep& e) {
            if (settings.warn) settings.warn(fmt::format("measurements are not stored: {}", e.what()));
        }
    };
    return out;
}

class MeasuredCosts final : public EstimatedCosts {
  public:
    MeasuredCosts(const MeasuringOptions& what, const CompileOptions& options, EstimatedCosts estimates,
                  std::shared_ptr<TuningDatabase> database)
        : EstimatedCosts(std::move(estimates)),
          what_(what),
          settings_(kernel_settings(what, options)),
          alternative_settings_(alternative_settings(what, options)),
          database_(std::move(database)),
          tuner_(what.target, schedule_settings(options), database_.get()),
          library_(what.target.native ? options.provider : nullptr),
          watch_(options.watch),
          end_(now_ms() + 1e3 * what.seconds.value_or(options.measure_seconds)) {}

    bool measures_schedules() const override { return what_.schedules && !out_of_time(); }

    std::vector<double> measure_schedules(const std::vector<TileProgram>& candidates) const override {
        const auto sizes = assumed_sizes(candidates.at(0).stages);
        if (!sizes || out_of_time()) return std::vector<double>(candidates.size(), -1);
        report_progress(candidates);
        std::vector<double> seconds;
        seconds.reserve(candidates.size());
        for (const TunedKernel& k : tuner_.tune(candidates, *sizes)) seconds.push_back(seconds_of(k.measurement));
        return seconds;
    }

    bool measures_kernels() const override { return what_.kernels; }

    std::optional<MeasuredKernel> measure(const TileProgram& kernel, const std::vector<bool>& weights) const override {
        if (out_of_time()) return std::nullopt;
        const auto how = conditions(kernel, weights);
        if (!how) return std::nullopt;
        const TunedKernel generated = tune_schedules({kernel}, what_.target, *how, database_.get())[0];
        if (!library_) return faster(generated, {});
        if (auto reason = library_->refusal(kernel.stages, weights)) return refused(generated, std::move(*reason));
        if (out_of_time()) return std::nullopt;
        return faster(generated, tune_library(*library_, kernel, what_.target, *how, database_.get()));
    }

    std::optional<std::vector<double>> measure_in_turns(
        const std::vector<AlternativeKernel>& alternatives) const override {
        std::vector<tilewright::AlternativeKernel> all;
        for (const AlternativeKernel& r : alternatives) {
            const auto sizes = assumed_sizes(r.kernel.stages);
            if (!sizes || out_of_time()) return std::nullopt;
            all.push_back({r.kernel, r.weights, *sizes});
        }
        std::vector<double> seconds;
        for (const TunedKernel& k : tune_alternatives(all, what_.target, alternative_settings_, database_.get()))
            seconds.push_back(seconds_of(k.measurement));
        return seconds;
    }

    std::optional<MeasuredKernel> recall(const TileProgram& kernel, const std::vector<bool>& weights) const override {
        if (!what_.kernels || !database_) return std::nullopt;
        const auto how = conditions(kernel, weights);
        if (!how) return std::nullopt;
        auto known = remembered_schedule(kernel, what_.target, *how, *database_);
        if (!known) return std::nullopt;
        const TunedKernel generated{std::move(*known), true};
        if (!library_) return faster(generated, {});
        if (auto reason = library_->refusal(kernel.stages, weights)) return refused(generated, std::move(*reason));
        const auto of_library = remembered_library(*library_, kernel, what_.target, *how, *database_);
        return of_library ? std::optional(faster(generated, *of_library)) : std::nullopt;
    }

  private:
    bool out_of_time() const { return what_.seconds && now_ms() >= end_; }

    std::optional<TuneSettings> conditions(const TileProgram& kernel, const std::vector<bool>& weights) const {
        const auto sizes = assumed_sizes(kernel.stages);
        if (!sizes) return std::nullopt;
        TuneSettings how = settings_;
        how.weights = weights;
        how.sizes = *sizes;
        return how;
    }

    MeasuredKernel refused(const TunedKernel& generated, std::string reason) const {
        MeasuredKernel out = faster(generated, {});
        out.refused = std::move(reason);
        return out;
    }

    /// Returns the generated code, or the fastest correct library kernel.
    MeasuredKernel faster(const TunedKernel& generated, const std::vector<TunedLibraryKernel>& of_library) const {
        MeasuredKernel out{seconds_of(generated.measurement), generated.remembered};
        if (library_) out.library = library_->name();
        const TunedLibraryKernel* best = nullptr;
        for (const TunedLibraryKernel& k : of_library) {
            out.remembered = out.remembered && k.tuned.remembered;
            const double seconds = seconds_of(k.tuned.measurement);
            if (seconds >= 0 && (best == nullptr || seconds < out.library_seconds)) {
                best = &k;
                out.library_seconds = seconds;
            }
        }
        if (best == nullptr) {
            if (of_library.empty()) return out;
            const Measurement& first = of_library.front().tuned.measurement;
            out.refused = first.verdict == Verdict::wrong ? "its result is wrong" : first.reason;
            return out;
        }
        if (out.seconds >= 0 && out.seconds <= *out.library_seconds) return out;
        out.generated_seconds = out.seconds;
        out.seconds = *out.library_seconds;
        out.provider = best->name;
        return out;
    }

    /// "measuring 8 candidates of a kernel of 3 stages"
    void report_progress(const std::vector<TileProgram>& candidates) const {
        if (!watch_) return;
        const size_t n = candidates.size(), stages = candidates[0].stages.primitives.size();
        OrchestrationProgress at;
        at.what = fmt::format("measuring {} candidate{} of a kernel of {} stage{}", n, n == 1 ? "" : "s", stages,
                              stages == 1 ? "" : "s");
        at.done = reported_;
        at.seconds_left = std::max(0.0, 1e-3 * (end_ - now_ms()));
        watch_(at);
        reported_ += n;
    }

    const MeasuringOptions what_;
    const TuneSettings settings_;               ///< of single kernels
    const TuneSettings alternative_settings_;   ///< of kernels that are compared with each other
    std::shared_ptr<TuningDatabase> database_;  ///< null: results are not kept
    mutable Tuner tuner_;                       ///< of schedules
    std::shared_ptr<const cpu::KernelProvider> library_;
    WatchOrchestration watch_;
    double end_;  ///< deadline for measuring, in milliseconds
    mutable size_t reported_ = 0;
};

}  // namespace

TuneSettings schedule_settings_in_model(const CompileOptions& options, const Target& target, int64_t weight_bytes) {
    TuneSettings settings = schedule_settings(options);
    settings.warmth = warmth_in_model(target, weight_bytes);
    return settings;
}

std::shared_ptr<TuningDatabase> open_database(const CompileOptions& options) {
    std::string problem;
    try {
        if (!options.database.empty()) return std::make_shared<TuningDatabase>(options.database);
        const std::string path = TuningDatabase::default_path();
        const std::string folder = std::filesystem::path(path).parent_path().string();
        try {
            make_private_folders(folder);
            require_kept_entries(folder);
        } catch (const RuntimeError& e) {
            throw CannotKeep(e.what(), false);
        }
        return std::make_shared<TuningDatabase>(path);
    } catch (const CannotKeep& e) {
        if (!e.full() && !options.database.empty()) throw;
        problem = e.what();
    }
    if (options.warn) options.warn(fmt::format("measurements are not stored: {}", problem));
    return nullptr;
}

Measuring measure_on_host(const MeasuringOptions& what, const CompileOptions& options, EstimatedCosts estimates) {
    std::shared_ptr<TuningDatabase> database = open_database(options);
    Measuring out;
    out.remember = memory_of_choices(database, what.target,
                                     what.kernels ? kernel_settings(what, options) : tune_settings(options));
    out.costs = std::make_shared<const MeasuredCosts>(what, options, std::move(estimates), std::move(database));
    return out;
}

}  // namespace tilewright
