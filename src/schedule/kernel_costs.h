#pragma once
// The costs of kernels on one machine, for schedulers and orchestration: estimated, recalled or measured.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cost/residual.h"
#include "cost/stage_model.h"
#include "cost/target.h"
#include "tile/tile.h"

namespace tilewright {

/// The time of a kernel on this machine.
struct MeasuredKernel {
    double seconds = -1;       ///< negative: it cannot be run
    bool remembered = false;   ///< the time is recalled from the tuning database; nothing was run
    std::string library = {};  ///< the library that was compared; empty: none
    /// The fastest library kernel ("oneDNN 2.6.3, jit:avx2") if it is faster than generated code. `seconds` is then its
    /// time.
    std::string provider = {};
    /// The time of generated code if `provider` is set; negative: it cannot be run.
    std::optional<double> generated_seconds = std::nullopt;
    std::optional<double> library_seconds = std::nullopt;  ///< if the library computes the kernel correctly
    std::string refused = {};                              ///< the library's reason if it does not
};

class KernelCosts {
  public:
    virtual ~KernelCosts() = default;

    /// Estimated seconds; 0 without a model.
    virtual double estimate(const TileProgram& kernel) const = 0;
    /// The same of one of several schedules of the same stages, which share models_of() them.
    virtual double estimate(const TileProgram& kernel, const StageModels& models) const = 0;
    /// Empty where estimates need no such models.
    virtual StageModels models_of(const Program& stages) const = 0;
    /// A lower bound of the estimate of every schedule of these stages with warm operands; 0 without a model.
    virtual double lower_bound(const Program& stages) const = 0;

    /// Whether measure_schedules() runs kernels: not with estimates only, and not after the time limit.
    virtual bool measures_schedules() const = 0;
    /// Seconds of each schedule of one kernel, measured in turns or read from the tuning database. Negative: the
    /// schedule cannot be run. measures_schedules() must have been true before.
    virtual std::vector<double> measure_schedules(const std::vector<TileProgram>& schedules) const = 0;

    /// Whether measure() runs kernels.
    virtual bool measures_kernels() const = 0;
    /// The time of a kernel as part of a model: of generated code or of a library kernel, whichever is faster. Runs
    /// kernels that the tuning database does not have. `weights`: per input, whether it is a constant of the model.
    /// Nothing where only an estimate is available: after the time limit, and where sizes are unknown before the model
    /// runs.
    virtual std::optional<MeasuredKernel> measure(const TileProgram& kernel,
                                                  const std::vector<bool>& weights) const = 0;
    /// Seconds of generated kernels of different stages, measured in turns. Negative: the kernel cannot be run. Nothing
    /// where measure() gives nothing for one of them.
    struct AlternativeKernel {
        TileProgram kernel;
        std::vector<bool> weights;
    };
    virtual std::optional<std::vector<double>> measure_in_turns(
        const std::vector<AlternativeKernel>& alternatives) const = 0;
    /// measure() from the tuning database only. Nothing where the database does not have it.
    virtual std::optional<MeasuredKernel> recall(const TileProgram& kernel, const std::vector<bool>& weights) const = 0;
};

/// The fastest schedule by measure_schedules(), the first of equal ones. The first schedule if none can run.
TileProgram fastest(std::vector<TileProgram> candidates, const KernelCosts& costs);

/// Estimates only, by the model of the target, corrected by what was learned from measurements (null: nothing). Without
/// a target all are 0.
class EstimatedCosts : public KernelCosts {
  public:
    explicit EstimatedCosts(std::optional<Target> target, std::shared_ptr<const ResidualModel> residual = nullptr)
        : target_(std::move(target)), residual_(std::move(residual)) {}

    double estimate(const TileProgram& kernel) const final;
    double estimate(const TileProgram& kernel, const StageModels& models) const final;
    StageModels models_of(const Program& stages) const final;
    double lower_bound(const Program& stages) const final;
    bool measures_schedules() const override { return false; }
    std::vector<double> measure_schedules(const std::vector<TileProgram>& schedules) const override;
    bool measures_kernels() const override { return false; }
    std::optional<MeasuredKernel> measure(const TileProgram& kernel, const std::vector<bool>& weights) const override;
    std::optional<std::vector<double>> measure_in_turns(
        const std::vector<AlternativeKernel>& alternatives) const override;
    std::optional<MeasuredKernel> recall(const TileProgram& kernel, const std::vector<bool>& weights) const override;

  private:
    std::optional<Target> target_;
    std::shared_ptr<const ResidualModel> residual_;
};

}  // namespace tilewright
