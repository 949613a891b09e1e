#pragma once
// Compiles, checks and measures schedules of a kernel; results are kept in the tuning database.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/cpu/kernel.h"
#include "tune/check.h"
#include "tune/database.h"
#include "tune/measure.h"

namespace tilewright {

/// How kernels are run. All of it is part of a measurement's key, except `measure`, `first_run_seconds`, `check_work`,
/// `compile` and `warn`.
struct TuneSettings {
    Warmth warmth = Warmth::warm;  ///< see warmth_in_model
    std::vector<bool> weights;     ///< per input of the stages: whether it is a constant of the model
    Bindings sizes;                ///< of the kernel's symbols and scalars
    MeasureOptions measure;
    /// A candidate whose first run takes longer, or many times the best so far, is stopped (run_in_child).
    double first_run_seconds = 10;
    int64_t check_work = CheckOptions().work;
    /// Compiles a candidate. By default cpu::compile; replaced by tests.
    std::function<cpu::CompiledKernel(const TileProgram&, const Target&)> compile;
    /// Called with one line when results can no longer be stored; tuning continues.
    std::function<void(const std::string&)> warn;
};

struct TunedKernel {
    Measurement measurement;
    bool remembered = false;  ///< recalled from the database, not run
};

/// The database key of a schedule on `target`, which says the threads and the instruction set too.
MeasurementKey measurement_key(const TileProgram& candidate, const Target& target, const TuneSettings& settings);

/// Measures schedules. Caches the operands and the reference of the most recent kernel.
class Tuner {
  public:
    /// `target` is this machine; its workers are pinned, one per CPU. `db` (null: none) must outlive the tuner.
    Tuner(Target target, TuneSettings settings, TuningDatabase* db);
    ~Tuner();

    /// Measures the candidates: different schedules of the same stages, in their order. Results in the database are
    /// reused. All others are verified, compiled and checked against their stages. Those that pass are measured against
    /// each other, up to 8 at a time, and every result is stored in the database before the next group begins,
    /// including illegal, failing and wrong candidates with the reason. Candidates that are clearly slower than the
    /// best measured for the same stages, by this call or the ones just before, are given up after a few readings.
    /// Kernels run on the calling thread and threads created for it.
    std::vector<TunedKernel> tune(const std::vector<TileProgram>& candidates);
    /// As above, with other values for the kernel's symbols than the settings'.
    std::vector<TunedKernel> tune(const std::vector<TileProgram>& candidates, const Bindings& sizes);

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

/// The database's measurement of a schedule; nothing if it has not been measured.
std::optional<Measurement> remembered_schedule(const TileProgram& candidate, const Target& target,
                                               const TuneSettings& settings, const TuningDatabase& db);

/// A kernel of a library.
struct TunedLibraryKernel {
    std::string name;  ///< KernelProvider::name_of; empty if the library has no kernel (`measurement` has the reason)
    TunedKernel tuned;
};

/// Measures kernels of a library for the stages of a kernel, in the library's order, at most kMostLibraryKernels.
/// Results in the database are reused, and so is the library's list. A kernel that fails or computes a wrong result has
/// a reason. Returns at least one.
std::vector<TunedLibraryKernel> tune_library(const cpu::KernelProvider& library, const TileProgram& kernel,
                                             const Target& target, const TuneSettings& settings, TuningDatabase* db);

/// The same from the database only; nothing unless all have been measured.
std::optional<std::vector<TunedLibraryKernel>> remembered_library(const cpu::KernelProvider& library,
                                                                  const TileProgram& kernel, const Target& target,
                                                                  const TuneSettings& settings,
                                                                  const TuningDatabase& db);

/// A kernel that competes with kernels of other stages: an operator in one of several layouts.
struct AlternativeKernel {
    TileProgram kernel;
    std::vector<bool> weights;  ///< TuneSettings::weights
    Bindings sizes;             ///< TuneSettings::sizes
};

/// Measures kernels in turns, all in one group, as Tuner::tune does with schedules of the same stages.
std::vector<TunedKernel> tune_alternatives(const std::vector<AlternativeKernel>& alternatives, const Target& target,
                                           const TuneSettings& settings, TuningDatabase* db);

/// Measures the schedules once.
std::vector<TunedKernel> tune_schedules(const std::vector<TileProgram>& candidates, const Target& target,
                                        const TuneSettings& settings, TuningDatabase* db);

}  // namespace tilewright
