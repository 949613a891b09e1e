#include "tune/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "runtime/memory_limit.h"
#include "tile/matrix.h"
#include "tune/canonical.h"
#include "tune/child_run.h"
#include "tune/operands.h"

namespace tilewright {
namespace {

constexpr size_t kGroup = 8;  // measured together; also the maximum that a killed run loses

std::string weights_text(const std::vector<bool>& weights) {
    std::string text = " weights=";
    for (const bool weight : weights) text += weight ? '1' : '0';
    return text;
}

/// The settings' text for code that does not use all of the host: " isa=x86-64-v4+avx512vnni/512".
std::string isa_text(const Target& target) {
    if (target.native) return "";
    const cpu::LlvmCpu cpu = cpu::llvm_cpu(target);
    return fmt::format(" isa={}{}/{}", cpu.name, cpu.features, target.vector_bits);
}

void refuse(Measurement& result, Verdict verdict, std::string reason) {
    result.verdict = verdict;
    result.reason = std::move(reason);
}

/// The operands and the reference of one kernel, for all of its schedules.
class Bench {
  public:
    Bench(const Program& stages, const Target& target, const TuneSettings& settings)
        : sizes_(settings.sizes),
          stages_(with_sizes(stages, settings.sizes)),
          how_{.warmth = settings.warmth, .weights = settings.weights, .cache_bytes = target.last_cache_bytes()},
          dynamic_stages_(stages),
          check_work_(settings.check_work) {}

    /// Why the kernel cannot be measured at all: empty if it can.
    std::string fault() const {
        constexpr double kMost = 0.25;  // of memory: the checker has copies of the operands
        double bytes = 0;
        for (const Value& v : stages_.values) {
            double of = static_cast<double>(byte_size(v.dtype));
            for (const Expr d : v.shape) of *= static_cast<double>(d.constant());
            bytes += of;
        }
        if (bytes <= kMost * static_cast<double>(usable_memory())) return {};
        return fmt::format("its operands have {:.0f} MB at the sizes that are assumed", bytes * 1e-6);
    }

    bool correct(const cpu::CompiledKernel& kernel, bool f16_sums, ThreadPool& pool, Measurement& result) {
        std::optional<KernelChecker>& checker = checkers_[f16_sums ? 1 : 0];
        if (!checker)
            checker.emplace(dynamic_stages_,
                            CheckOptions{.bindings = sizes_, .work = check_work_, .f16_sums = f16_sums});
        const CheckResult check = checker->check(kernel, pool);
        if (!check.ok) refuse(result, Verdict::wrong, check.reason);
        return check.ok;
    }

    KernelRun run_of(const cpu::CompiledKernel& kernel, ThreadPool& pool) {
        return {kernel, sizes_, operands(kernel), pool};
    }

    /// Operands are created again: constants may have another layout than for the kernel before.
    void reset_operands() { operands_.reset(); }

  private:
    /// Created when the first kernel needs them.
    Operands& operands(const cpu::CompiledKernel& kernel) {
        if (operands_) return *operands_;
        std::vector<Tensor> inputs = kernel_inputs(stages_, 1, Spread::Usual);
        if (!kernel.library) return operands_.emplace(stages_, inputs, how_);
        const PreparedInputs prepared = prepared_inputs(stages_, std::move(inputs), *kernel.library);
        return operands_.emplace(prepared.stages, prepared.inputs, how_);
    }

    const Bindings sizes_;
    Program stages_;
    OperandOptions how_;
    std::optional<Operands> operands_;
    const Program dynamic_stages_;
    const int64_t check_work_;
    /// Of kernels that add up in f32, and of others. Created for the first kernel: operands may be large.
    std::array<std::optional<KernelChecker>, 2> checkers_;
};

/// A schedule to measure, on the operands of its kernel. The key of the result is already set.
struct TimedCandidate {
    const TileProgram* kernel = nullptr;
    Bench* bench = nullptr;
    Measurement* result = nullptr;
};

/// Compiles, checks and measures schedules against each other.
class CandidateTimer {
  public:
    CandidateTimer(const Target& target, const TuneSettings& settings) : target_(target), settings_(settings) {}

    /// Sets the verdict of each measurement.
    void measure_group(const std::vector<TimedCandidate>& group) {
        auto kernels = compile_all(group);
        ThreadPool pool(target_.workers, Pinning::on);  // after compiling, whose threads would inherit the pinning
        reject_hanging(kernels, pool, group);
        std::vector<Runnable> runnables;
        std::vector<Measurement*> passed;
        for (size_t i = 0; i < group.size(); ++i) {
            const bool f16_sums = sums_in_f16(*group[i].kernel);
            if (!kernels[i] || !group[i].bench->correct(*kernels[i], f16_sums, pool, *group[i].result)) continue;
            runnables.push_back({group[i].kernel->name, group[i].bench->run_of(*kernels[i], pool)});
            passed.push_back(group[i].result);
        }
        time(runnables, passed);
    }

    /// The same for one kernel of a library, which may throw.
    void measure_library(const cpu::KernelProvider::Candidate& candidate, Bench& bench, Measurement& result) {
        if (std::string fault = bench.fault(); !fault.empty()) return refuse(result, Verdict::failed, std::move(fault));
        try {
            cpu::CompiledKernel kernel;
            kernel.library = candidate.make();
            ThreadPool pool(target_.workers, Pinning::on);
            if (!bench.correct(kernel, false, pool, result)) return;
            bench.reset_operands();
            KernelRun run = bench.run_of(kernel, pool);
            run();  // the first run starts the library's threads: else the kernel could be given up for it
            time({{candidate.kernel, run}}, {&result});
        } catch (const RuntimeError& e) {
            refuse(result, Verdict::failed, e.what());
        }
    }

  private:
    void time(const std::vector<Runnable>& runnables, const std::vector<Measurement*>& results) {
        MeasureOptions options = settings_.measure;
        options.known_best = best_;
        const std::vector<Timing> timings = measure(runnables, options);
        for (size_t i = 0; i < timings.size(); ++i) {
            results[i]->verdict = Verdict::measured;
            results[i]->seconds = timings[i].seconds;
            if (!timings[i].given_up) best_ = std::min(best_, timings[i].seconds.value);
        }
    }

    /// Runs each kernel once in a child process; those that do not finish there are rejected and reset.
    void reject_hanging(std::vector<std::optional<cpu::CompiledKernel>>& kernels, ThreadPool& pool,
                        const std::vector<TimedCandidate>& group) {
        std::vector<std::function<void()>> runs;
        std::vector<size_t> of;
        for (size_t i = 0; i < kernels.size(); ++i) {
            if (!kernels[i]) continue;
            runs.emplace_back(group[i].bench->run_of(*kernels[i], pool));
            of.push_back(i);
        }
        // The child has one thread, cold caches and copy-on-write memory.
        const double best = kMuchSlower * target_.workers * best_ + kStart;
        const std::vector<std::string> faults = run_in_child(runs, std::min(best, settings_.first_run_seconds));
        for (size_t k = 0; k < of.size(); ++k) {
            if (faults[k].empty()) continue;
            refuse(*group[of[k]].result, Verdict::failed, "its first run: " + faults[k]);
            kernels[of[k]].reset();
        }
    }

    static constexpr double kMuchSlower = 30;  ///< times the best: rejected, even after a cold first run
    static constexpr double kStart = 0.5;      ///< seconds

    std::vector<std::optional<cpu::CompiledKernel>> compile_all(const std::vector<TimedCandidate>& group) const {
        std::vector<std::optional<cpu::CompiledKernel>> kernels(group.size());
        std::vector<const TileProgram*> legal;
        std::vector<size_t> at;
        for (size_t i = 0; i < group.size(); ++i) {
            const std::vector<std::string> faults = verify(*group[i].kernel);
            const std::string fault = faults.empty() ? group[i].bench->fault() : "not legal: " + faults.front();
            if (!fault.empty()) {
                refuse(*group[i].result, Verdict::failed, fault);
                continue;
            }
            legal.push_back(group[i].kernel);
            at.push_back(i);
        }
        if (!settings_.compile) try {
                std::vector<cpu::CompiledKernel> all = cpu::compile(legal, target_);
                for (size_t k = 0; k < at.size(); ++k) kernels[at[k]] = std::move(all[k]);
                return kernels;
            } catch (const InternalError&) {  // one of them fails: compile each separately to find it
            }
        for (size_t k = 0; k < at.size(); ++k) try {
                kernels[at[k]] =
                    settings_.compile ? settings_.compile(*legal[k], target_) : cpu::compile(*legal[k], target_);
            } catch (const InternalError& e) {  // the generator does not support this schedule; others may work
                refuse(*group[at[k]].result, Verdict::failed, fmt::format("no code: {}", e.what()));
            }
        return kernels;
    }

    const Target target_;
    const TuneSettings settings_;
    double best_ = std::numeric_limits<double>::infinity();  ///< seconds, of all groups
};

}  // namespace

MeasurementKey measurement_key(const TileProgram& candidate, const Target& target, const TuneSettings& settings) {
    MeasurementKey key;
    key.stages = canonical_text(candidate.stages);
    key.schedule = schedule_text(candidate);
    key.target = target_key(target);
    key.settings = settings_text(target.workers, settings.warmth, canonical_sizes(candidate.stages, settings.sizes)) +
                   isa_text(target);
    if (settings.warmth == Warmth::cold_weights) key.settings += weights_text(settings.weights);
    return key;
}

namespace {

/// `name`: of a kernel; the library's name if it has none.
MeasurementKey library_key(const std::string& name, const TileProgram& kernel, const Target& target,
                           const TuneSettings& settings) {
    MeasurementKey key = measurement_key(kernel, target, settings);
    key.schedule = "provider " + name + "\n";
    if (settings.warmth != Warmth::cold_weights) key.settings += weights_text(settings.weights);
    return key;
}

/// The names of a library's kernels for some stages, one per line. With them the library is not called if all its
/// kernels have been measured.
ChoiceKey list_key(const cpu::KernelProvider& library, const TileProgram& kernel, const Target& target,
                   const TuneSettings& settings) {
    const MeasurementKey key = library_key(library.name(), kernel, target, settings);
    return {key.stages, key.target, "kernels of " + library.name(), key.settings};
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

using EqualKeys = std::vector<std::pair<size_t, size_t>>;  ///< the later result, the earlier one

/// Sets the results that the database has. Returns the positions to measure, and results with the key of one of them.
std::pair<std::vector<size_t>, EqualKeys> recall(std::vector<TunedKernel>& tuned, const TuningDatabase* db) {
    std::vector<size_t> unknown;
    EqualKeys same;
    for (size_t i = 0; i < tuned.size(); ++i) {
        const MeasurementKey& key = tuned[i].measurement.key;
        const auto equal =
            std::find_if(unknown.begin(), unknown.end(), [&](size_t k) { return tuned[k].measurement.key == key; });
        if (equal != unknown.end())
            same.emplace_back(i, *equal);
        else if (auto known = db != nullptr ? db->find(key) : std::nullopt)
            tuned[i] = {std::move(*known), true};
        else
            unknown.push_back(i);
    }
    return {std::move(unknown), std::move(same)};
}

void copy_equal(std::vector<TunedKernel>& tuned, const EqualKeys& same) {
    for (const auto& [second, first] : same) tuned[second].measurement = tuned[first].measurement;
}

/// Stores records until the database cannot, which is reported once.
class MeasurementLog {
  public:
    MeasurementLog(TuningDatabase* db, const std::function<void(const std::string&)>& warn) : db_(db), warn_(warn) {}

    template <typename Record>
    void operator()(const Record& record) {
        if (db_ == nullptr) return;
        try {
            db_->insert(record);
        } catch (const CannotKeep& e) {
            db_ = nullptr;
            if (warn_) warn_(fmt::format("measurements are not stored: {}", e.what()));
        }
    }

  private:
    TuningDatabase* db_;
    std::function<void(const std::string&)> warn_;
};

}  // namespace

class Tuner::Impl {
  public:
    Impl(Target target, TuneSettings settings, TuningDatabase* db)
        : target_(std::move(target)), settings_(std::move(settings)), db_(db), log_(db, settings_.warn) {}

    std::vector<TunedKernel> tune(const std::vector<TileProgram>& candidates, const Bindings& sizes) {
        TuneSettings settings = settings_;
        settings.sizes = sizes;
        std::vector<TunedKernel> tuned(candidates.size());
        for (size_t i = 0; i < candidates.size(); ++i) {
            MeasurementKey& key = tuned[i].measurement.key;
            key = measurement_key(candidates[i], target_, settings);
            TW_CHECK(key.stages == tuned[0].measurement.key.stages, "candidates of different stages");
        }
        const auto [unknown, same] = recall(tuned, db_);
        for (size_t begin = 0; begin < unknown.size(); begin += kGroup) {
            // Operands may be large: created only when something is measured, kept for the same kernel.
            const MeasurementKey& key = tuned[0].measurement.key;
            if (std::string what = key.stages + key.settings; !bench_ || what != bench_of_) {
                bench_.reset();
                bench_ = std::make_unique<Bench>(candidates[0].stages, target_, settings);
                timer_ = std::make_unique<CandidateTimer>(target_, settings);
                bench_of_ = std::move(what);
            }
            std::vector<TimedCandidate> group;
            for (size_t k = begin; k < std::min(begin + kGroup, unknown.size()); ++k)
                group.push_back({&candidates[unknown[k]], bench_.get(), &tuned[unknown[k]].measurement});
            timer_->measure_group(group);
            for (const TimedCandidate& c : group) log_(*c.result);
        }
        copy_equal(tuned, same);
        return tuned;
    }

    const TuneSettings& settings() const { return settings_; }

  private:
    const Target target_;
    const TuneSettings settings_;
    TuningDatabase* db_;
    MeasurementLog log_;
    std::unique_ptr<Bench> bench_;
    std::unique_ptr<CandidateTimer> timer_;
    std::string bench_of_;  ///< the kernel and sizes of both
};

Tuner::Tuner(Target target, TuneSettings settings, TuningDatabase* db)
    : impl_(std::make_unique<Impl>(std::move(target), std::move(settings), db)) {}
Tuner::~Tuner() = default;

std::vector<TunedKernel> Tuner::tune(const std::vector<TileProgram>& candidates) {
    return impl_->tune(candidates, impl_->settings().sizes);
}

std::vector<TunedKernel> Tuner::tune(const std::vector<TileProgram>& candidates, const Bindings& sizes) {
    return impl_->tune(candidates, sizes);
}

std::optional<Measurement> remembered_schedule(const TileProgram& candidate, const Target& target,
                                               const TuneSettings& settings, const TuningDatabase& db) {
    return db.find(measurement_key(candidate, target, settings));
}

std::vector<TunedLibraryKernel> tune_library(const cpu::KernelProvider& library, const TileProgram& kernel,
                                             const Target& target, const TuneSettings& settings, TuningDatabase* db) {
    if (db != nullptr)
        if (auto known = remembered_library(library, kernel, target, settings, *db)) return *std::move(known);
    std::vector<TunedLibraryKernel> out;
    MeasurementLog log(db, settings.warn);
    std::vector<cpu::KernelProvider::Candidate> candidates;
    try {
        candidates = library.candidates(with_sizes(kernel.stages, settings.sizes), settings.weights, target.workers,
                                        cpu::kMostLibraryKernels);
    } catch (const RuntimeError& e) {
        Measurement none;
        none.key = library_key(library.name(), kernel, target, settings);
        refuse(none, Verdict::failed, e.what());
        log(none);
        out.push_back({"", {std::move(none)}});
    }
    std::optional<Bench> bench;
    CandidateTimer timer(target, settings);
    Choice list;
    list.key = list_key(library, kernel, target, settings);
    for (const cpu::KernelProvider::Candidate& candidate : candidates) {
        TunedLibraryKernel& one = out.emplace_back();
        one.name = library.name_of(candidate.kernel);
        list.schedule += candidate.kernel + '\n';
        Measurement& m = one.tuned.measurement;
        m.key = library_key(one.name, kernel, target, settings);
        if (auto known = db != nullptr ? db->find(m.key) : std::nullopt) {
            one.tuned = {*std::move(known), true};
            continue;
        }
        if (!bench) bench.emplace(kernel.stages, target, settings);
        timer.measure_library(candidate, *bench, m);
        log(m);
    }
    log(list);
    return out;
}

std::optional<std::vector<TunedLibraryKernel>> remembered_library(const cpu::KernelProvider& library,
                                                                  const TileProgram& kernel, const Target& target,
                                                                  const TuneSettings& settings,
                                                                  const TuningDatabase& db) {
    const auto list = db.find(list_key(library, kernel, target, settings));
    if (!list) return std::nullopt;
    std::vector<std::string> names;
    for (const std::string& line : lines_of(list->schedule)) names.push_back(library.name_of(line));
    const bool none = names.empty();
    if (none) names.push_back(library.name());
    std::vector<TunedLibraryKernel> out;
    for (std::string& name : names) {
        auto known = db.find(library_key(name, kernel, target, settings));
        if (!known) return std::nullopt;
        out.push_back({none ? "" : std::move(name), {*std::move(known), true}});
    }
    return out;
}

std::vector<TunedKernel> tune_alternatives(const std::vector<AlternativeKernel>& alternatives, const Target& target,
                                           const TuneSettings& settings, TuningDatabase* db) {
    const auto settings_of = [&](const AlternativeKernel& r) {
        TuneSettings own = settings;
        own.weights = r.weights;
        own.sizes = r.sizes;
        return own;
    };
    std::vector<TunedKernel> tuned(alternatives.size());
    for (size_t i = 0; i < alternatives.size(); ++i)
        tuned[i].measurement.key = measurement_key(alternatives[i].kernel, target, settings_of(alternatives[i]));
    const auto [unknown, same] = recall(tuned, db);
    std::vector<std::unique_ptr<Bench>> benches;
    CandidateTimer timer(target, settings);
    MeasurementLog log(db, settings.warn);
    std::vector<TimedCandidate> group;
    group.reserve(unknown.size());
    for (const size_t i : unknown) {
        benches.push_back(std::make_unique<Bench>(alternatives[i].kernel.stages, target, settings_of(alternatives[i])));
        group.push_back({&alternatives[i].kernel, benches.back().get(), &tuned[i].measurement});
    }
    if (!group.empty()) timer.measure_group(group);
    for (const TimedCandidate& c : group) log(*c.result);
    copy_equal(tuned, same);
    return tuned;
}

std::vector<TunedKernel> tune_schedules(const std::vector<TileProgram>& candidates, const Target& target,
                                        const TuneSettings& settings, TuningDatabase* db) {
    return Tuner(target, settings, db).tune(candidates);
}

}  // namespace tilewright
