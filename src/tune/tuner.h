#pragma once
// What would this kernel take, scheduled like this? Compiled, checked, measured; asked once, remembered for ever.

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "backend/cpu/kernel.h"
#include "tune/check.h"
#include "tune/database.h"
#include "tune/measure.h"

namespace tilewright {

/// How kernels are run, and by whom. All of it is part of what a measurement is known by, but for `measure`,
/// `first_run_seconds`, `check_work`, `compile` and `warn`.
struct TuneSettings {
    int threads = 1;               ///< pinned, one a CPU
    Warmth warmth = Warmth::warm;  ///< warmth_in_model says which
    std::vector<bool> weights;     ///< per input of the stages: whether the model has it as a constant
    Bindings sizes;                ///< of the kernel's symbols and scalars
    MeasureOptions measure;
    /// A candidate whose first run takes longer, or many times the best so far, is stopped (run_in_child).
    double first_run_seconds = 10;
    int64_t check_work = CheckOptions().work;
    cpu::CodegenOptions codegen;
    /// Who computes the kernel in place of generated code; null: nobody. There is one candidate then, whatever its
    /// tree.
    std::shared_ptr<const cpu::KernelProvider> provider;
    /// Makes the code. By default cpu::compile; another for tests.
    std::function<cpu::CompiledKernel(const TileProgram&, const cpu::CodegenOptions&)> compile;
    /// Called with one line where results cannot be kept any more; tuning goes on without.
    std::function<void(const std::string&)> warn;
};

struct TunedKernel {
    Measurement measurement;
    bool remembered = false;  ///< it was in the database, and nothing was run
};

/// The database's key of a schedule on `target`.
MeasurementKey measurement_key(const TileProgram& candidate, const Target& target, const TuneSettings& settings);

/// Answers what schedules take. Keeps the operands and the reference of the kernel it was last asked about.
class Tuner {
  public:
    /// `target` is this machine. `db` (null: none) must outlive the tuner.
    Tuner(Target target, TuneSettings settings, TuningDatabase* db);
    ~Tuner();

    /// What each candidate takes: other schedules of the same stages, in their order. What the database knows is taken
    /// from there. Of the rest each is verified, compiled and checked against its stages; those that pass are measured
    /// against each other, up to 8 at a time, and every result is in the database before the next group begins,
    /// illegal, failing and wrong candidates with the reason. Those clearly slower than the best that was measured for
    /// the same stages, by this call or the ones just before, are given up after a few readings. Kernels run on the
    /// calling thread and threads made for it.
    std::vector<TunedKernel> tune(const std::vector<TileProgram>& candidates);
    /// The same with other numbers for the kernel's symbols than the settings'.
    std::vector<TunedKernel> tune(const std::vector<TileProgram>& candidates, const Bindings& sizes);

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

/// What the database knows of a schedule; nothing where it would have to be run.
std::optional<Measurement> remembered_schedule(const TileProgram& candidate, const Target& target,
                                               const TuneSettings& settings, const TuningDatabase& db);

/// Once.
std::vector<TunedKernel> tune_schedules(const std::vector<TileProgram>& candidates, const Target& target,
                                        const TuneSettings& settings, TuningDatabase* db);

}  // namespace tilewright
