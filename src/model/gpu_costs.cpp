#include "model/gpu_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "backend/cuda/machine_code.h"
#include "base/clock.h"
#include "base/error.h"
#include "schedule/gpu/gpu_schedule.h"

namespace tilewright {

namespace {

bool has_known_sizes(const Program& stages) {
    return std::all_of(stages.values.begin(), stages.values.end(), [](const Value& v) {
        return std::all_of(v.shape.begin(), v.shape.end(), [](const Expr& d) { return d.is_constant(); });
    });
}

}  // namespace

/// Times by the text of the kernel, and of stages by libraries; one measurement at a time.
struct GpuCosts::Memory {
    std::mutex mutex;
    std::map<std::string, double> seconds, libraries;
};

GpuCosts::GpuCosts(cuda::Gpu gpu, const Target& target, Precision precision, GpuLibraries libraries,
                   std::shared_ptr<const CodeCache> cache, int threads, double seconds,
                   std::function<cuda::Nvrtc()> compiler)
    : EstimatedCosts(target),
      gpu_(std::move(gpu)),
      target_(target),
      precision_(precision),
      libraries_(std::move(libraries)),
      cache_(std::move(cache)),
      threads_(threads),
      end_(now_ms() + 1e3 * seconds),
      compiler_(std::move(compiler)),
      memory_(std::make_shared<Memory>()) {}

bool GpuCosts::measures_schedules() const { return now_ms() < end_; }

std::vector<double> GpuCosts::measure_schedules(const std::vector<TileProgram>& schedules) const {
    if (schedules.empty() || has_known_sizes(schedules[0].stages)) return run(schedules, nullptr);
    std::vector<double> estimates;
    for (const TileProgram& p : schedules) estimates.push_back(estimate(p));
    return estimates;
}

std::optional<MeasuredKernel> GpuCosts::measure(const TileProgram& kernel, const std::vector<bool>&) const {
    if (!has_known_sizes(kernel.stages)) return std::nullopt;
    MeasuredKernel out;
    double library = -1;
    out.seconds = run({kernel}, &library)[0];
    if (library >= 0 && (out.seconds < 0 || library < out.seconds)) out.seconds = library;
    return out;
}

/// `library`: receives the time of the fastest library kernel; negative: there is none. Null: libraries are not tried.
std::vector<double> GpuCosts::run(const std::vector<TileProgram>& schedules, double* library) const {
    std::vector<double> out(schedules.size(), -1);
    if (schedules.empty()) return out;
    const Program& stages = schedules[0].stages;
    std::vector<cuda::KernelText> texts;
    std::vector<size_t> of;  // the schedule of each text
    const auto add = [&](const TileProgram& p, size_t k) {
        try {
            texts.push_back(cuda::alone(cuda::generate(p, *target_.gpu, "kernel")));
            of.push_back(k);
        } catch (const RuntimeError&) {  // its copies exceed shared memory
        }
    };
    // The default schedule without rounding is what all others are compared with.
    const IndexVector<PrimitiveId, std::vector<size_t>> no_rows(stages.primitives.size());
    add(gpu_schedule(stages, no_rows, target_, Precision::F32), schedules.size());
    if (texts.empty()) return out;
    for (size_t k = 0; k < schedules.size(); ++k) add(schedules[k], k);
    const std::lock_guard lock(memory_->mutex);
    try {
        measure_new(stages, texts, library != nullptr);
    } catch (const RuntimeError&) {  // the operands do not fit the device, or the reference fails
        return out;
    }
    for (size_t t = 1; t < texts.size(); ++t) out[of[t]] = memory_->seconds.at(texts[t].text);
    if (library != nullptr) *library = memory_->libraries.at(texts[0].text);
    return out;
}

void GpuCosts::measure_new(const Program& stages, const std::vector<cuda::KernelText>& texts, bool libraries) const {
    const auto is_new = [&](const cuda::KernelText& t) { return memory_->seconds.count(t.text) == 0; };
    libraries = libraries && memory_->libraries.count(texts[0].text) == 0;
    if (!libraries && std::none_of(texts.begin() + 1, texts.end(), is_new)) return;
    const std::vector<std::string> code =
        cuda::machine_code(texts, target_.gpu->capability(), *cache_, compiler_, threads_);
    GpuTrial trial(gpu_, stages);
    const auto time = libraries_.time ? libraries_.time : median_seconds;
    const auto reference = trial.launch(gpu_.load(code[0], texts[0]), texts[0]);
    /// Negative: it fails, has no room, or gives other results.
    const auto seconds_of = [&](const GpuTrial::Work& work, const LibraryKernel* kernel) {
        try {
            const double apart = kernel != nullptr ? trial.difference(reference, work, *kernel, precision_)
                                                   : trial.difference(reference, work, precision_);
            return apart <= 1 ? time(trial.stream, work) : -1;
        } catch (const RuntimeError&) {
            trial.finish();
            return -1.0;
        }
    };
    for (size_t t = 1; t < texts.size(); ++t)
        if (is_new(texts[t]))
            memory_->seconds[texts[t].text] = seconds_of(trial.launch(gpu_.load(code[t], texts[t]), texts[t]), nullptr);
    if (!libraries) return;
    double best = -1;
    for (const GpuLibraryCandidate& c : library_candidates(stages, precision_, libraries_, [](auto&, auto&) {})) {
        const auto run = [&] {
            trial.reserve(c.plan->workspace_bytes());
            c.plan->run(trial.stream, trial.tensors, trial.workspace.get());
        };
        const double seconds = seconds_of(run, &c.kernel);
        if (seconds >= 0 && (best < 0 || seconds < best)) best = seconds;
    }
    memory_->libraries[texts[0].text] = best;
}

}  // namespace tilewright
