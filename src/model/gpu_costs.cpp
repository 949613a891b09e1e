#include "model/gpu_costs.h"

#include <fmt/format.h>

#include <map>
#include <mutex>

#include "backend/cuda/machine_code.h"
#include "base/clock.h"
#include "base/error.h"
#include "schedule/gpu/gpu_schedule.h"

namespace tilewright {

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

size_t GpuCosts::measured() const {
    const std::lock_guard lock(memory_->mutex);
    return memory_->seconds.size();
}

std::vector<double> GpuCosts::measure_schedules(const std::vector<TileProgram>& schedules) const {
    return run(schedules, nullptr);
}

std::optional<MeasuredKernel> GpuCosts::measure(const TileProgram& kernel, const std::vector<bool>&) const {
    for (const Value& v : kernel.stages.values)
        for (const Expr& d : v.shape)
            if (!d.is_constant()) return std::nullopt;
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
    const auto known = [&](size_t t) { return memory_->seconds.find(texts[t].text); };
    bool all_known = library == nullptr || memory_->libraries.count(texts[0].text) != 0;
    for (size_t t = 1; t < texts.size(); ++t) all_known = all_known && known(t) != memory_->seconds.end();
    if (!all_known) try {
            const std::vector<std::string> code =
                cuda::machine_code(texts, target_.gpu->capability(), *cache_, compiler_, threads_);
            GpuTrial trial(gpu_, stages);
            const auto time = libraries_.time ? libraries_.time : median_seconds;
            const auto reference = trial.launch(gpu_.load(code[0], texts[0]), texts[0]);
            const auto checked = [&](const GpuTrial::Work& work, const LibraryKernel* kernel) {
                try {
                    const double apart = kernel != nullptr ? trial.difference(reference, work, *kernel, precision_)
                                                           : trial.difference(reference, work, precision_);
                    return apart <= 1 ? time(trial.stream, work) : -1;
                } catch (const RuntimeError&) {  // it fails, or there is no room for it: others may run
                    trial.finish();
                    return -1.0;
                }
            };
            for (size_t t = 1; t < texts.size(); ++t)
                if (known(t) == memory_->seconds.end())
                    memory_->seconds[texts[t].text] =
                        checked(trial.launch(gpu_.load(code[t], texts[t]), texts[t]), nullptr);
            if (library != nullptr && memory_->libraries.count(texts[0].text) == 0) {
                double best = -1;
                for (const GpuLibraryCandidate& c :
                     library_candidates(stages, precision_, libraries_, [](auto&, auto&) {}))
                    try {
                        trial.reserve(c.plan->workspace_bytes());
                        const double seconds = checked(
                            [&] { c.plan->run(trial.stream, trial.tensors, trial.workspace.get()); }, &c.kernel);
                        if (seconds >= 0 && (best < 0 || seconds < best)) best = seconds;
                    } catch (const RuntimeError&) {  // no room
                        trial.finish();
                    }
                memory_->libraries[texts[0].text] = best;
            }
        } catch (const RuntimeError&) {  // the operands do not fit the device, or the reference fails
            return out;
        }
    for (size_t t = 1; t < texts.size(); ++t) out[of[t]] = known(t)->second;
    if (library != nullptr) *library = memory_->libraries.at(texts[0].text);
    return out;
}

}  // namespace tilewright
