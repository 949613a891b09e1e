#pragma once
// What a user may ask of a compilation, and what planning and code generation take from it.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu/kernel.h"
#include "backend/cpu/provider.h"
#include "base/tensor.h"
#include "cost/target.h"
#include "model/compiled_model.h"
#include "orchestrate/options.h"
#include "schedule/scheduler.h"

namespace tilewright {

/// What rewrites may do to floating-point results.
enum class Numerics : uint8_t {
    Strict,   ///< an output depends on the inputs that its definition reads alone, and on no number of threads
    Default,  ///< Winograd's convolutions, as long as what they read is finite and no larger than kMostGuarded
    Fast,     ///< Winograd's convolutions, whatever they read
};
std::string_view to_string(Numerics numerics);
/// "strict", "default" or "fast"; nothing for another text.
std::optional<Numerics> numerics_from_string(std::string_view text);

struct CompileOptions : GroupingOptions {
    // What the target is (target_of): a machine, and what to use of it.
    std::optional<Target> machine;  ///< empty: current_target()
    int threads = 0;                ///< worker threads; 0: default_thread_count()
    std::string isa;                ///< one of selectable_isas(): "avx2", "avx512"; empty: the machine's
    std::optional<GpuTarget> gpu;   ///< kernels are for this GPU: CUDA C++ in place of machine code

    std::map<std::string, int64_t> dims;  ///< fixes symbolic dimensions
    SchedulerKind scheduler = SchedulerKind::Auto;
    /// Compare candidates on this machine where the scheduler has several; search always does. The plan that comes of
    /// it is kept only where whole runs on `inputs` are faster than those of the plan without measurements.
    bool measure = false;
    double measure_seconds = 60;  ///< for measuring kernels where `measure` is set; estimates decide the rest
    /// Inputs to run whole plans on, where `measure` is set or optimal orchestration measures: the latter then keeps
    /// what is faster there than the greedy rule's kernels. Empty, or where it gives nothing: no whole plan is run.
    std::function<std::vector<Tensor>(const std::vector<ModelIo>&)> inputs;
    /// Where optimal orchestration measures: the library whose kernels are candidates beside generated code. Null:
    /// none.
    std::shared_ptr<const cpu::KernelProvider> provider;
    std::string database;     ///< where measurements are kept; empty: TuningDatabase::default_path()
    int trials = 1000;        ///< of scheduler search, for each kernel
    std::string code_folder;  ///< where machine code is kept for the next time (base/code_cache.h); empty: nowhere
    /// Called, from any thread, with one line where what was to be kept for the next time cannot be: it says which
    /// folder, why and what to do. The same line may come several times. Empty: nothing is said.
    std::function<void(const std::string&)> warn;
    /// Kernels that were scheduled before, with these options (orchestrate_options): OrchestrateOptions::schedules.
    std::shared_ptr<Schedules> schedules;
    Precision precision = Precision::F32;  ///< of multiplications on a GPU
    /// The model's names of its outputs, which may be those of inputs as well; empty: those of the program's values.
    std::vector<std::string> output_names;
    Numerics numerics = Numerics::Default;
    /// The object files of kernels are wanted (CompiledKernel::object), to write the model to a file.
    bool keep_objects = false;
    /// False: plan only, without machine code. Such a model can be dumped, but not run.
    bool code = true;
    /// Every value that operators rely on is checked when the model runs, also where that takes time: indices, lengths,
    /// shapes (LowerOptions::check_values).
    bool check_values = false;
    /// Subnormal f32 and f64 numbers are computed with, not taken for 0 (runtime/float_mode.h).
    bool keep_subnormals = false;
};

/// The machine to compile for: `machine` with the options' threads, instruction set and GPU. Throws ModelError for an
/// instruction set that is not one of those listed there.
Target target_of(const CompileOptions& options);
/// The cache of machine code in CompileOptions::code_folder; null where there is none.
std::shared_ptr<const CodeCache> code_cache(const CompileOptions& options);
/// How compile_program plans. `weight_bytes`: of the constants, which says how warm they are where kernels are
/// measured.
OrchestrateOptions orchestrate_options(const CompileOptions& options, int64_t weight_bytes = 0);
}  // namespace tilewright
