#include "tune/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "tune/canonical.h"
#include "tune/operands.h"

namespace tilewright {
namespace {

constexpr size_t kGroup = 8;  // measured together; also what a killed run may lose

/// Code for another CPU than the host, as the settings' text says it: " isa=x86-64-v3".
std::string isa_text(const cpu::Isa& isa) {
    const cpu::Isa host = cpu::Isa::host();
    if (isa.cpu == host.cpu && isa.features == host.features && isa.vector_bits == host.vector_bits) return "";
    return fmt::format(" isa={}{}/{}", isa.cpu, isa.features, isa.vector_bits);
}

void refuse(Measurement& result, Verdict verdict, std::string reason) {
    result.verdict = verdict;
    result.reason = std::move(reason);
}

using Code = std::vector<std::optional<cpu::CompiledKernel>>;

/// Code of those that are legal, all at once, on as many threads as there are CPUs. The others get their verdict.
Code compile_group(const std::vector<const TileProgram*>& group, const std::vector<Measurement*>& results,
                   const TuneSettings& settings) {
    Code code(group.size());
    std::vector<size_t> legal;
    std::vector<const TileProgram*> programs;
    for (size_t i = 0; i < group.size(); ++i) {
        const std::vector<std::string> faults = verify(*group[i]);
        if (!faults.empty()) {
            refuse(*results[i], Verdict::failed, "not legal: " + faults.front());
            continue;
        }
        legal.push_back(i);
        programs.push_back(group[i]);
    }
    if (!settings.compile && programs.size() > 1) try {
            std::vector<cpu::CompiledKernel> kernels = cpu::compile(programs, settings.codegen);
            for (size_t k = 0; k < legal.size(); ++k) code[legal[k]] = std::move(kernels[k]);
            return code;
        } catch (const InternalError&) {  // of one of them; which one, each for itself says
        }
    for (const size_t i : legal) try {
            code[i] = settings.compile ? settings.compile(*group[i], settings.codegen)
                                       : cpu::compile(*group[i], settings.codegen);
        } catch (const InternalError& e) {  // a schedule that the generator has no code for; others may do
            refuse(*results[i], Verdict::failed, fmt::format("no code: {}", e.what()));
        }
    return code;
}

class Tuner {
  public:
    Tuner(const Program& stages, const Target& target, const TuneSettings& settings)
        : settings_(settings),
          stages_(with_sizes(stages, settings.sizes)),
          pool_(settings.threads, Pinning::on),
          operands_(stages_, kernel_inputs(stages_, 1),
                    {.warmth = settings.warmth, .weights = settings.weights, .cache_bytes = last_cache_bytes(target)}),
          checker_(stages, {.bindings = settings.sizes, .work = settings.check_work}) {}

    /// Gives each measurement whose candidate has code its verdict.
    void measure_group(const std::vector<const TileProgram*>& group, const Code& code,
                       const std::vector<Measurement*>& results) {
        std::vector<Runnable> runnables;
        std::vector<Measurement*> passed;
        for (size_t i = 0; i < group.size(); ++i) {
            if (!code[i]) continue;
            const CheckResult check = checker_.check(*code[i], pool_);
            if (!check.ok) {
                refuse(*results[i], Verdict::wrong, check.reason);
                continue;
            }
            runnables.push_back({group[i]->name, KernelRun(*code[i], settings_.sizes, operands_, pool_)});
            passed.push_back(results[i]);
        }
        const std::vector<Timing> timings = measure(runnables, settings_.measure);
        for (size_t i = 0; i < timings.size(); ++i) {
            passed[i]->verdict = Verdict::measured;
            passed[i]->seconds = timings[i].seconds;
        }
    }

  private:
    const TuneSettings& settings_;
    Program stages_;
    ThreadPool pool_;
    Operands operands_;
    KernelChecker checker_;
};

}  // namespace

MeasurementKey measurement_key(const TileProgram& candidate, const Target& target, const TuneSettings& settings) {
    MeasurementKey key;
    key.stages = canonical_text(candidate.stages);
    key.schedule = schedule_text(candidate);
    key.target = target_key(target);
    key.settings = settings_text(settings.threads, settings.warmth, canonical_sizes(candidate.stages, settings.sizes)) +
                   isa_text(settings.codegen.isa);
    if (settings.warmth == Warmth::cold_weights) {
        key.settings += " weights=";
        for (const bool weight : settings.weights) key.settings += weight ? '1' : '0';
    }
    return key;
}

std::vector<TunedKernel> tune_schedules(const std::vector<TileProgram>& candidates, const Target& target,
                                        const TuneSettings& settings, TuningDatabase* db) {
    std::vector<TunedKernel> tuned(candidates.size());
    std::vector<size_t> unknown;
    std::vector<std::pair<size_t, size_t>> same;  // of two equal candidates the second, and the first
    for (size_t i = 0; i < candidates.size(); ++i) {
        Measurement& m = tuned[i].measurement;
        m.key = measurement_key(candidates[i], target, settings);
        TW_CHECK(m.key.stages == tuned[0].measurement.key.stages, "candidates of different stages");
        const auto equal =
            std::find_if(unknown.begin(), unknown.end(), [&](size_t k) { return tuned[k].measurement.key == m.key; });
        if (equal != unknown.end()) {
            same.emplace_back(i, *equal);
        } else if (auto known = db != nullptr ? db->find(m.key) : std::nullopt) {
            tuned[i] = {std::move(*known), true};
        } else {
            unknown.push_back(i);
        }
    }
    std::optional<Tuner> tuner;  // its operands may be large: only where something is to be measured
    for (size_t begin = 0; begin < unknown.size(); begin += kGroup) {
        std::vector<const TileProgram*> group;
        std::vector<Measurement*> results;
        for (size_t k = begin; k < std::min(begin + kGroup, unknown.size()); ++k) {
            group.push_back(&candidates[unknown[k]]);
            results.push_back(&tuned[unknown[k]].measurement);
        }
        const Code code = compile_group(group, results, settings);  // before the tuner's pool pins this thread
        if (!tuner) tuner.emplace(candidates[0].stages, target, settings);
        tuner->measure_group(group, code, results);
        if (db != nullptr)
            for (const Measurement* m : results) db->insert(*m);
    }
    for (const auto& [second, first] : same) tuned[second].measurement = tuned[first].measurement;
    return tuned;
}

}  // namespace tilewright
