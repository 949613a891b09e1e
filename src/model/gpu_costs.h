#pragma once
// Costs of kernels on a GPU, measured on it.

#include "backend/cuda/nvrtc.h"
#include "base/code_cache.h"
#include "model/gpu_trial.h"
#include "schedule/kernel_costs.h"

namespace tilewright {

/// Compiles kernels (NVRTC), checks them against another schedule of the same stages, and times them in graphs. From
/// any thread.
class GpuCosts final : public EstimatedCosts {
  public:
    /// `target`: its GPU is the device's description. `threads`: that compile. `seconds`: time limit for measurements,
    /// after which only estimates are used. `compiler`: called where kernels are not in the cache.
    GpuCosts(
        cuda::Gpu gpu, const Target& target, Precision precision, GpuLibraries libraries,
        std::shared_ptr<const CodeCache> cache, int threads, double seconds,
        std::function<cuda::Nvrtc()> compiler = [] { return cuda::Nvrtc(); });

    bool measures_schedules() const override;
    /// Estimates where sizes are unknown before the model runs.
    std::vector<double> measure_schedules(const std::vector<TileProgram>& schedules) const override;
    bool measures_kernels() const override { return measures_schedules(); }
    /// Of the generated kernel or a library's, whichever is faster: GpuModel makes that choice again where it is
    /// loaded.
    std::optional<MeasuredKernel> measure(const TileProgram& kernel, const std::vector<bool>& weights) const override;

  private:
    struct Memory;
    std::vector<double> run(const std::vector<TileProgram>& schedules, double* library) const;
    /// Of `texts`, after the reference, those that are not in memory, and of `libraries`, kernels for these stages.
    void measure_new(const Program& stages, const std::vector<cuda::KernelText>& texts, bool libraries) const;

    cuda::Gpu gpu_;
    Target target_;
    Precision precision_;
    GpuLibraries libraries_;
    std::shared_ptr<const CodeCache> cache_;
    int threads_;
    double end_;  ///< in milliseconds of now_ms
    std::function<cuda::Nvrtc()> compiler_;
    std::shared_ptr<Memory> memory_;
};

}  // namespace tilewright
