#include "model/gpu_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "backend/cuda/library_offer.h"
#include "backend/cuda/machine_code.h"
#include "base/clock.h"
#include "base/error.h"
#include "cost/gpu_target_file.h"
#include "model/gpu_parts.h"
#include "schedule/gpu/gpu_schedule.h"
#include "tune/canonical.h"

namespace tilewright {

namespace {

bool has_known_sizes(const Program& stages) {
    return std::all_of(stages.values.begin(), stages.values.end(), [](const Value& v) {
        return std::all_of(v.shape.begin(), v.shape.end(), [](const Expr& d) { return d.is_constant(); });
    });
}

}  // namespace

/// Times that this process has measured, and those in the tuning database.
class GpuCosts::Memory {
  public:
    Memory(std::shared_ptr<TuningDatabase> database, std::function<void(const std::string&)> warn)
        : database_(std::move(database)), warn_(std::move(warn)) {}

    std::mutex mutex;  ///< one measurement at a time

    /// Seconds; negative: the kernel cannot be run.
    std::optional<double> find(const MeasurementKey& key) {
        if (const auto it = seconds_.find(text_of(key)); it != seconds_.end()) return it->second;
        if (!database_) return std::nullopt;
        const auto known = database_->find(key);
        if (!known || known->verdict == Verdict::failed) return std::nullopt;
        return seconds_[text_of(key)] = known->verdict == Verdict::measured ? known->seconds.value : -1;
    }
    void keep(const MeasurementKey& key, Verdict verdict, double seconds) {
        seconds_[text_of(key)] = seconds;
        // A kernel may also fail for want of memory, or since another one has stopped the device.
        if (!database_ || verdict == Verdict::failed) return;
        Measurement m;
        m.key = key;
        m.verdict = verdict;
        if (verdict == Verdict::measured) m.seconds = {seconds, 0, 1};
        if (verdict == Verdict::wrong) m.reason = "its results are others";
        try {
            database_->insert(m);
        } catch (const CannotKeep& e) {
            database_ = nullptr;
            if (warn_) warn_(fmt::format("measurements are not stored: {}", e.what()));
        }
    }

  private:
    static std::string text_of(const MeasurementKey& k) {
        return fmt::format("{}\n{}\n{}", k.stages, k.schedule, k.settings);
    }

    std::shared_ptr<TuningDatabase> database_;
    std::function<void(const std::string&)> warn_;
    std::map<std::string, double> seconds_;
};

/// What is to be measured for one kernel.
struct GpuCosts::Request {
    bool libraries = false;      ///< their kernels for the same stages as well
    std::vector<bool> constant;  ///< inputs, of which parts are computed once
    bool remembered = true;      ///< nothing has been run
    double library = -1;         ///< seconds of the fastest of them; negative: there is none

    struct New {
        size_t schedule;
        cuda::KernelText text;
        MeasurementKey key;
    };
    std::vector<New> schedules;                   ///< that are not known
    std::vector<GpuLibraryCandidate> candidates;  ///< the same of libraries
    std::optional<LibraryParts> parts;            ///< of which libraries have some
    std::optional<GpuPartCandidates> of_parts;    ///< for them
    KernelSet generated;                          ///< the others
    std::vector<cuda::KernelText> generated_texts;
    MeasurementKey library_key;

    bool asks_libraries() const { return !candidates.empty() || of_parts; }
};

GpuCosts::GpuCosts(cuda::Gpu gpu, const Target& target, Precision precision, GpuLibraries libraries, GpuMeasuring how)
    : EstimatedCosts(target),
      gpu_(std::move(gpu)),
      target_(target),
      precision_(precision),
      libraries_(std::move(libraries)),
      how_(std::move(how)),
      end_(now_ms() + 1e3 * how_.seconds),
      memory_(std::make_shared<Memory>(how_.database, how_.warn)) {}

bool GpuCosts::measures_schedules() const { return now_ms() < end_; }

std::vector<double> GpuCosts::measure_schedules(const std::vector<TileProgram>& schedules) const {
    Request request;
    if (schedules.empty() || has_known_sizes(schedules[0].stages)) return run(schedules, request);
    std::vector<double> estimates;
    for (const TileProgram& p : schedules) estimates.push_back(estimate(p));
    return estimates;
}

std::optional<MeasuredKernel> GpuCosts::measure(const TileProgram& kernel, const std::vector<bool>& weights) const {
    if (!has_known_sizes(kernel.stages)) return std::nullopt;
    MeasuredKernel out;
    Request request;
    request.libraries = true;
    request.constant = weights;
    out.seconds = run({kernel}, request)[0];
    out.remembered = request.remembered;
    if (request.library >= 0 && (out.seconds < 0 || request.library < out.seconds)) out.seconds = request.library;
    return out;
}

MeasurementKey GpuCosts::key_of(const Program& stages, std::string schedule, const std::string& code) const {
    return {canonical_text(stages), std::move(schedule), target_key(gpu_.target()),
            fmt::format("graph precision={} code={}", to_string(precision_), hash_digits(code))};
}

void GpuCosts::find_known(const std::vector<TileProgram>& schedules, Request& request, std::vector<double>& out) const {
    for (size_t k = 0; k < schedules.size(); ++k) try {
            cuda::KernelText text = cuda::alone(cuda::generate(schedules[k], *target_.gpu, "kernel"));
            const MeasurementKey key = key_of(schedules[k].stages, schedule_text(schedules[k]), text.text);
            if (const auto known = memory_->find(key))
                out[k] = *known;
            else
                request.schedules.push_back({k, std::move(text), key});
        } catch (const RuntimeError&) {  // its copies exceed shared memory
        }
    if (!request.libraries) return;
    const Program& stages = schedules[0].stages;
    const auto silent = [](const std::string&, const std::string&) {};
    request.candidates = library_candidates(stages, precision_, libraries_, silent);
    if (!libraries_.libraries.empty())
        request.parts =
            library_parts(stages, target_, precision_, cuda::library_refusal, request.generated, request.constant);
    if (request.parts) request.of_parts = part_candidates(*request.parts, {}, precision_, libraries_, silent);
    std::string names, code;
    const auto add = [&](const std::string& name) { names += fmt::format("{}{}", names.empty() ? "" : "; ", name); };
    for (const GpuLibraryCandidate& c : request.candidates) add(c.name);
    if (request.of_parts) {
        for (const auto& all : *request.of_parts)
            for (const GpuLibraryCandidate& c : all) add("part " + c.name);
        if (request.parts->kernels_once() > 0) add(fmt::format("{} parts once", request.parts->kernels_once()));
        for (const TileProgram& t : request.generated.kernels()) {
            request.generated_texts.push_back(cuda::alone(cuda::generate(t, *target_.gpu, "kernel")));
            code += request.generated_texts.back().text;
        }
    }
    request.library_key = key_of(stages, "the fastest of: " + names, code);
    if (!request.asks_libraries()) return;
    if (const auto known = memory_->find(request.library_key)) {
        request.library = *known;
        request.candidates.clear();
        request.of_parts.reset();
    }
}

std::vector<double> GpuCosts::run(const std::vector<TileProgram>& schedules, Request& request) const {
    std::vector<double> out(schedules.size(), -1);
    if (schedules.empty()) return out;
    const std::lock_guard lock(memory_->mutex);
    find_known(schedules, request, out);
    request.remembered = request.schedules.empty() && !request.asks_libraries();
    if (request.remembered) return out;
    try {
        measure_new(schedules[0].stages, request);
    } catch (const RuntimeError&) {  // the operands do not fit the device, or the reference fails
        return out;
    }
    for (const Request::New& n : request.schedules) out[n.schedule] = memory_->find(n.key).value_or(-1);
    return out;
}

void GpuCosts::measure_new(const Program& stages, Request& request) const {
    // The default schedule without rounding is what all others are compared with.
    const IndexVector<PrimitiveId, std::vector<size_t>> no_rows(stages.primitives.size());
    std::vector<cuda::KernelText> texts = {
        cuda::alone(cuda::generate(gpu_schedule(stages, no_rows, target_, Precision::F32), *target_.gpu, "kernel"))};
    for (const Request::New& n : request.schedules) texts.push_back(n.text);
    const size_t first_part = texts.size();
    if (request.of_parts) texts.insert(texts.end(), request.generated_texts.begin(), request.generated_texts.end());
    const std::vector<std::string> code =
        cuda::machine_code(texts, target_.gpu->capability(), *how_.cache, how_.compiler, how_.threads);
    GpuTrial trial(gpu_, stages);
    const auto time = libraries_.time ? libraries_.time : median_seconds;
    const auto reference = trial.launch(gpu_.load(code[0], texts[0]), texts[0]);
    const auto measured = [&](const auto& launch, const auto& difference) -> std::pair<Verdict, double> {
        try {
            const GpuTrial::OfLibrary work = launch();
            if (!(difference(work.whole) <= 1)) return {Verdict::wrong, -1};
            return {Verdict::measured, time(trial.stream, work.again)};
        } catch (const RuntimeError&) {  // it fails, or has no room
            trial.finish();
            return {Verdict::failed, -1};
        }
    };
    for (size_t k = 0; k < request.schedules.size(); ++k) {
        const Request::New& n = request.schedules[k];
        if (memory_->find(n.key)) continue;  // two of one text
        const auto work = trial.launch(gpu_.load(code[k + 1], n.text), n.text);
        const auto [verdict, seconds] = measured(
            [&] {
                return GpuTrial::OfLibrary{work, work};
            },
            [&](const auto& run) { return trial.difference(reference, run, precision_); });
        memory_->keep(n.key, verdict, seconds);
    }
    if (!request.asks_libraries()) return;
    Verdict all = Verdict::measured;
    const auto of_library = [&](const cuda::LibraryPlan& plan, const LibraryKernel* kernel) -> std::optional<double> {
        const auto [verdict, seconds] =
            measured([&] { return trial.launch(plan); },
                     [&](const auto& run) { return trial.difference(reference, run, kernel, precision_); });
        if (verdict == Verdict::failed) all = verdict;
        if (seconds < 0) return std::nullopt;
        if (request.library < 0 || seconds < request.library) request.library = seconds;
        return seconds;
    };
    for (const GpuLibraryCandidate& c : request.candidates) of_library(*c.plan, &c.kernel);
    if (request.of_parts) {
        std::vector<GpuGenerated> generated;
        for (size_t k = first_part; k < texts.size(); ++k)
            generated.push_back({gpu_.load(code[k], texts[k]), &texts[k]});
        fastest_parts(
            *request.parts, {}, *request.of_parts, [&](size_t part) { return generated[part]; },
            [&](const GpuChosenParts& made) { return of_library(*made.plan, nullptr); });
    }
    if (all == Verdict::measured && request.library < 0) all = Verdict::wrong;
    memory_->keep(request.library_key, all, request.library);
}

}  // namespace tilewright
