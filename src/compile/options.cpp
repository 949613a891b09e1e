#include "compile/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/private_folder.h"
#include "cost/target.h"
#include "orchestrate/options.h"
#include "runtime/thread_count.h"
#include "tune/operands.h"
#include "tune/tuner.h"

namespace tilewright {

namespace {

/// How kernels are run on this machine to be measured.
TuneSettings tune_settings(const ScheduleTarget& rule, const cpu::CodegenOptions& codegen) {
    TuneSettings settings;
    settings.threads = rule.threads;
    settings.codegen = codegen;
    settings.codegen.known = nullptr;  // most candidates are never seen again
    settings.measure.seconds = 0.02;
    settings.check_work = 1 << 21;  // a candidate a tenth of a second
    return settings;
}

/// Negative for what cannot be run.
double seconds_of(const Measurement& m) { return m.verdict == Verdict::measured ? m.seconds.value : -1; }

/// Choices between whole plans, known by a hash of what they were between: any of them computes the same.
RememberChoice memory_of_choices(const std::shared_ptr<TuningDatabase>& database, const Target& host,
                                 const TuneSettings& settings) {
    if (!database) return {};
    const std::string how = settings_text(settings.threads, settings.warmth, "");
    const auto key_of = [target = target_key(host), how](const std::string& of) {
        const Hash128 hash = structural_hash(of);
        return ChoiceKey{fmt::format("plans {:016x}{:016x}", hash.high, hash.low), target, "in model", how};
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
            if (settings.warn) settings.warn(fmt::format("measurements are not kept: {}", e.what()));
        }
    };
    return out;
}

/// Null where nothing can be kept, which is said. Throws RuntimeError where the file that the user named cannot be used
/// for another reason than that its disk is full.
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
    if (options.warn) options.warn(fmt::format("measurements are not kept: {}", problem));
    return nullptr;
}

/// Progress, for CompileOptions::watch: "measuring 8 candidates of a kernel of 3 stages".
std::function<void(const std::vector<TileProgram>&)> say_what_is_measured(const CompileOptions& options) {
    return [watch = options.watch, done = size_t{0},
            end = now_ms() + 1e3 * options.measure_seconds](const std::vector<TileProgram>& candidates) mutable {
        if (!watch) return;
        const size_t n = candidates.size(), stages = candidates[0].stages.primitives.size();
        OrchestrationProgress at;
        at.what = fmt::format("measuring {} candidate{} of a kernel of {} stage{}", n, n == 1 ? "" : "s", stages,
                              stages == 1 ? "" : "s");
        at.done = done;
        at.seconds_left = std::max(0.0, 1e-3 * (end - now_ms()));
        watch(at);
        done += n;
    };
}

/// What measurements are made with, and where their results are kept.
struct MeasuringSetup {
    const CompileOptions& options;
    const Target& host;
    const cpu::CodegenOptions& codegen;
    std::shared_ptr<TuningDatabase> database;  ///< null: results are not kept

    TuneSettings settings(const ScheduleTarget& rule) const {
        TuneSettings out = tune_settings(rule, codegen);
        out.warn = options.warn;
        return out;
    }
};

/// Candidate schedules of one kernel are run against each other.
void allow_measured_schedules(OrchestrateOptions& o, const MeasuringSetup& setup) {
    TuneSettings settings = setup.settings(o.target);
    // Most of many candidates are far from the best: they are worth few readings.
    settings.measure.give_up = 1.2;
    settings.measure.few = 3;
    settings.measure.seconds = 0.01;
    const auto tuner = std::make_shared<Tuner>(setup.host, settings, setup.database.get());
    Scheduling& s = o.scheduling;
    s.measure = [database = setup.database, tuner, out_of_time = s.out_of_time,
                 say = say_what_is_measured(setup.options)](const std::vector<TileProgram>& candidates) {
        const auto sizes = assumed_sizes(candidates.at(0).stages);
        if (!sizes || (out_of_time && out_of_time())) return std::vector<double>(candidates.size(), -1);
        say(candidates);
        std::vector<double> seconds;
        seconds.reserve(candidates.size());
        for (const TunedKernel& k : tuner->tune(candidates, *sizes)) seconds.push_back(seconds_of(k.measurement));
        return seconds;
    };
}

/// Times of single kernels under the conditions of a model's run: by generated code or by the provider, the faster.
class KernelTimer {
  public:
    KernelTimer(const MeasuringSetup& setup, TuneSettings settings, std::function<bool()> out_of_time)
        : host_(setup.host),
          settings_(std::move(settings)),
          database_(setup.database),
          provider_(setup.codegen.isa.cpu == cpu::Isa::host().cpu ? setup.options.provider : nullptr),
          out_of_time_(std::move(out_of_time)) {}

    /// Runs the kernel unless the database has its time; nothing once the time for measuring is over.
    std::optional<TunedKernel> measured(const TileProgram& kernel, const TuneSettings& how) const {
        if (out_of_time_ && out_of_time_()) return std::nullopt;
        return tune_schedules({kernel}, host_, how, database_.get())[0];
    }

    /// From the database alone.
    std::optional<TunedKernel> remembered(const TileProgram& kernel, const TuneSettings& how) const {
        if (!database_) return std::nullopt;
        auto known = remembered_schedule(kernel, host_, how, *database_);
        return known ? std::optional(TunedKernel{std::move(*known), true}) : std::nullopt;
    }

    /// `time`: measured or remembered.
    using Time = std::optional<TunedKernel> (KernelTimer::*)(const TileProgram&, const TuneSettings&) const;
    std::optional<MeasuredKernel> best(Time time, const TileProgram& kernel, const std::vector<bool>& weights) const {
        const auto sizes = assumed_sizes(kernel.stages);
        if (!sizes) return std::nullopt;
        TuneSettings how = settings_;
        how.weights = weights;
        how.sizes = *sizes;
        const auto generated = (this->*time)(kernel, how);
        if (!generated) return std::nullopt;
        MeasuredKernel best{seconds_of(generated->measurement), generated->remembered};
        if (!provider_) return best;
        best.library = provider_->name();
        if (auto reason = provider_->refusal(kernel.stages, weights)) {
            best.refused = std::move(*reason);
            return best;
        }
        how.provider = provider_;
        const auto provided = (this->*time)(kernel, how);
        if (!provided) return std::nullopt;
        best.remembered = best.remembered && provided->remembered;
        const double seconds = seconds_of(provided->measurement);
        if (seconds < 0) {
            const bool wrong = provided->measurement.verdict == Verdict::wrong;
            best.refused = wrong ? "its result is not right" : provided->measurement.reason;
            return best;
        }
        best.library_seconds = seconds;
        if (best.seconds >= 0 && best.seconds <= seconds) return best;
        best.generated_seconds = best.seconds;
        best.seconds = seconds;
        best.provider = best.library;
        return best;
    }

  private:
    Target host_;
    TuneSettings settings_;
    std::shared_ptr<TuningDatabase> database_;
    std::shared_ptr<const cpu::KernelProvider> provider_;
    std::function<bool()> out_of_time_;
};

/// Optimal orchestration measures single kernels, with constants as warm as in a run of the model.
void allow_measured_kernels(OrchestrateOptions& o, const MeasuringSetup& setup, int64_t weight_bytes) {
    TuneSettings settings = setup.settings(o.target);
    settings.warmth = warmth_in_model(setup.host, weight_bytes);
    o.remember = memory_of_choices(setup.database, setup.host, settings);
    const auto timer = std::make_shared<const KernelTimer>(setup, std::move(settings), o.scheduling.out_of_time);
    o.measure = [timer](const TileProgram& kernel, const std::vector<bool>& weights) {
        return timer->best(&KernelTimer::measured, kernel, weights);
    };
    o.recall = [timer](const TileProgram& kernel, const std::vector<bool>& weights) {
        return timer->best(&KernelTimer::remembered, kernel, weights);
    };
}

/// Sets the scheduler of `o`, and what may be measured on this machine.
void choose_scheduler(OrchestrateOptions& o, const CompileOptions& options, const Target& host,
                      const cpu::CodegenOptions& codegen, int64_t weight_bytes) {
    Scheduling& s = o.scheduling;
    s.kind = options.scheduler;
    s.trials = options.trials;
    s.gpu = options.gpu;
    if (s.gpu && options.orchestrator == Orchestrator::Optimal)
        throw RuntimeError("optimal orchestration knows costs of this CPU's kernels alone: compile greedily for a GPU");
    if (s.gpu) return;
    if (s.kind == SchedulerKind::Default && options.orchestrator == Orchestrator::Greedy) return;
    Target machine = host;
    machine.vector_bits = codegen.isa.vector_bits;
    machine.vector_registers = o.target.vector_registers;
    s.machine.emplace(machine, o.target.threads);
    if (options.measure) s.out_of_time = [end = now_ms() + 1e3 * options.measure_seconds] { return now_ms() >= end; };
    const bool for_schedules = options.measure || s.kind == SchedulerKind::Search;
    const bool for_kernels = options.orchestrator == Orchestrator::Optimal && options.optimal.profile != Profile::None;
    if (!for_schedules && !for_kernels) return;
    const MeasuringSetup setup{options, host, codegen, open_database(options)};
    o.remember = memory_of_choices(setup.database, host, setup.settings(o.target));
    if (for_schedules) allow_measured_schedules(o, setup);
    if (for_kernels) allow_measured_kernels(o, setup, weight_bytes);
}

/// The number of threads of schedules, and with it the order of sums, under Numerics::Strict.
constexpr int kStrictThreads = 8;

}  // namespace

Target planned_machine(const CompileOptions& options) { return options.machine ? *options.machine : current_target(); }

cpu::CodegenOptions codegen_options(const CompileOptions& options) {
    cpu::CodegenOptions codegen;
    codegen.isa = cpu::Isa::named(options.isa);
    codegen.cache_bytes = last_cache_bytes(planned_machine(options));
    if (!options.code_folder.empty())
        codegen.known = std::make_shared<CodeCache>(options.code_folder, CodeCache::kMostBytes, options.warn);
    return codegen;
}

std::string_view to_string(Numerics numerics) {
    constexpr std::array<std::string_view, 3> kNames = {"strict", "default", "fast"};
    return kNames[static_cast<size_t>(numerics)];
}

std::optional<Numerics> numerics_from_string(std::string_view text) {
    for (const Numerics n : {Numerics::Strict, Numerics::Default, Numerics::Fast})
        if (to_string(n) == text) return n;
    return std::nullopt;
}

ScheduleTarget schedule_target(const Target& machine, const cpu::Isa& isa, int threads) {
    ScheduleTarget rule;
    rule.lanes = isa.lanes_f32();
    rule.vector_registers = isa.vector_bits == 512 ? 32 : 16;
    rule.threads = threads;
    for (const CacheLevel& level : machine.caches)
        if (level.level == 2) rule.l2_bytes = level.usable_bytes();
    rule.cache_bytes = last_cache_bytes(machine);
    return rule;
}

OrchestrateOptions orchestrate_options(const CompileOptions& options, int64_t weight_bytes) {
    const cpu::CodegenOptions codegen = codegen_options(options);
    OrchestrateOptions o;
    static_cast<GroupingOptions&>(o) = options;
    o.layouts = options.layouts && !options.gpu;  // blocks of channels are for a CPU's vectors
    o.schedules = options.schedules;
    o.kept = codegen.known;
    int threads = options.threads > 0 ? options.threads : default_thread_count();
    if (options.numerics == Numerics::Strict) threads = kStrictThreads;
    const Target machine = planned_machine(options);
    o.target = schedule_target(machine, codegen.isa, threads);
    choose_scheduler(o, options, machine, codegen, weight_bytes);
    return o;
}

}  // namespace tilewright
