#pragma once
// Costs of kernels on a GPU, measured on it.

#include "backend/cuda/nvrtc.h"
#include "base/code_cache.h"
#include "model/gpu_trial.h"
#include "schedule/kernel_costs.h"
#include "tune/database.h"

namespace tilewright {

/// How GpuCosts measures.
struct GpuMeasuring {
    std::shared_ptr<const CodeCache> cache = std::make_shared<const CodeCache>("");  ///< of machine code
    int threads = 1;                                                                 ///< that compile
    double seconds = 1e6;  ///< time limit for measurements, after which only estimates are used
    /// Times are recalled from there and kept there, by device, driver, kernel and code; null: in this process alone.
    std::shared_ptr<TuningDatabase> database = nullptr;
    std::function<void(const std::string&)> warn = {};  ///< called once where the database cannot be written
    /// Called where kernels are not in the cache.
    std::function<cuda::Nvrtc()> compiler = [] { return cuda::Nvrtc(); };
};

/// Compiles kernels (NVRTC), checks them against another schedule of the same stages, and times them in graphs. From
/// any thread.
class GpuCosts final : public EstimatedCosts {
  public:
    /// `target`: kernels are generated for its GPU.
    GpuCosts(cuda::Gpu gpu, const Target& target, Precision precision, GpuLibraries libraries, GpuMeasuring how);

    bool measures_schedules() const override;
    /// Estimates where sizes are unknown before the model runs.
    std::vector<double> measure_schedules(const std::vector<TileProgram>& schedules) const override;
    bool measures_kernels() const override { return measures_schedules(); }
    /// Of the generated kernel or a library's, whichever is faster: GpuModel makes that choice again where it is
    /// loaded.
    std::optional<MeasuredKernel> measure(const TileProgram& kernel, const std::vector<bool>& weights) const override;

  private:
    class Memory;
    struct Request;
    /// Seconds of each; negative: it cannot be run. `request`: receives what was asked of libraries.
    std::vector<double> run(const std::vector<TileProgram>& schedules, Request& request) const;
    MeasurementKey key_of(const Program& stages, std::string schedule, const std::string& code) const;
    void find_known(const std::vector<TileProgram>& schedules, Request& request, std::vector<double>& out) const;
    void measure_new(const Program& stages, Request& request) const;

    cuda::Gpu gpu_;
    Target target_;
    Precision precision_;
    GpuLibraries libraries_;
    GpuMeasuring how_;
    double end_;  ///< in milliseconds of now_ms
    std::shared_ptr<Memory> memory_;
};

}  // namespace tilewright
