#pragma once
// Kernel costs measured on this machine and kept in the tuning database.

#include <memory>
#include <optional>

#include "backend/cpu/kernel.h"
#include "compile/options.h"
#include "cost/target.h"
#include "schedule/kernel_costs.h"
#include "tune/database.h"
#include "tune/tuner.h"

namespace tilewright {

struct MeasuringOptions {
    bool schedules = false;         ///< KernelCosts::measure_schedules() runs kernels
    bool kernels = false;           ///< KernelCosts::measure() runs kernels
    std::optional<double> seconds;  ///< time limit for measurements; none: no limit
    int64_t weight_bytes = 0;       ///< of the model's constants
    Target target;
};

struct Measuring {
    std::shared_ptr<const KernelCosts> costs;
    RememberChoice remember;  ///< caches choices between full plans
};

/// The tuning database of the options. Null, with a warning, if nothing can be stored. Throws RuntimeError if the file
/// that the user named is unusable for any reason except a full disk.
std::shared_ptr<TuningDatabase> open_database(const CompileOptions& options);

/// How schedules of a kernel are compared with each other, with constants as warm as in a run of a model with so many
/// bytes of weights. Sizes and weights are not set.
TuneSettings schedule_settings_in_model(const CompileOptions& options, const Target& target, int64_t weight_bytes);

/// `options`: the tuning database, the library whose kernels are candidates, and the callbacks.
Measuring measure_on_host(const MeasuringOptions& what, const CompileOptions& options, EstimatedCosts estimates);

}  // namespace tilewright
