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

class Tuner {
  public:
    Tuner(const Program& stages, const Target& target, const TuneSettings& settings)
        : settings_(settings),
          stages_(with_sizes(stages, settings.sizes)),
          pool_(settings.threads, Pinning::on),
          operands_(stages_, kernel_inputs(stages_, 1),
                    {.warmth = settings.warmth, .weights = settings.weights, .cache_bytes = last_cache_bytes(target)}),
          checker_(stages, {.bindings = settings.sizes, .work = settings.check_work}) {}

    /// Gives each measurement, whose keys are set, its verdict.
    void measure_group(const std::vector<const TileProgram*>& group, const std::vector<Measurement*>& results) {
        std::vector<Runnable> runnables;
        std::vector<Measurement*> passed;
        for (size_t i = 0; i < group.size(); ++i) {
            const auto kernel = prepared(*group[i], *results[i]);
            if (!kernel) continue;
            runnables.push_back({group[i]->name, KernelRun(*kernel, settings_.sizes, operands_, pool_)});
            passed.push_back(results[i]);
        }
        const std::vector<Timing> timings = measure(runnables, settings_.measure);
        for (size_t i = 0; i < timings.size(); ++i) {
            passed[i]->verdict = Verdict::measured;
            passed[i]->seconds = timings[i].seconds;
        }
    }

  private:
    std::optional<cpu::CompiledKernel> prepared(const TileProgram& candidate, Measurement& result) {
        const auto refuse = [&](Verdict verdict, std::string reason) {
            result.verdict = verdict;
            result.reason = std::move(reason);
            return std::nullopt;
        };
        const std::vector<std::string> faults = verify(candidate);
        if (!faults.empty()) return refuse(Verdict::failed, "not legal: " + faults.front());
        std::optional<cpu::CompiledKernel> kernel;
        try {
            kernel = settings_.compile ? settings_.compile(candidate, settings_.codegen)
                                       : cpu::compile(candidate, settings_.codegen);
        } catch (const InternalError& e) {  // a schedule that the generator has no code for; others may do
            return refuse(Verdict::failed, fmt::format("no code: {}", e.what()));
        }
        const CheckResult check = checker_.check(*kernel, pool_);
        if (!check.ok) return refuse(Verdict::wrong, check.reason);
        return kernel;
    }

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
        if (!tuner) tuner.emplace(candidates[0].stages, target, settings);
        tuner->measure_group(group, results);
        if (db != nullptr)
            for (const Measurement* m : results) db->insert(*m);
    }
    for (const auto& [second, first] : same) tuned[second].measurement = tuned[first].measurement;
    return tuned;
}

}  // namespace tilewright
