#pragma once
// Options of a compilation, and the options of planning and code generation that follow from them.

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
#include "cost/residual.h"
#include "cost/target.h"
#include "graph/import.h"
#include "model/compiled_model.h"
#include "orchestrate/options.h"
#include "program/sizes.h"
#include "schedule/dynamic/joint_search.h"
#include "schedule/scheduler.h"

namespace tilewright {

class CustomOperators;

/// CompileOptions::max_error of --precision auto, unless another one is given.
constexpr double kAutoMaxError = 0.02;

/// How rewrites may change floating-point results.
enum class Numerics : uint8_t {
    Strict,   ///< an output depends only on the inputs that its definition reads, not on the number of threads
    Default,  ///< Winograd convolutions if their inputs are finite and no larger than kMostGuarded
    Fast,     ///< Winograd convolutions for all inputs
};
std::string_view to_string(Numerics numerics);
/// Parses "strict", "default" or "fast"; returns nothing for another text.
std::optional<Numerics> numerics_from_string(std::string_view text);

struct PlanToTune;

struct CompileOptions : GroupingOptions {
    // The target (target_of): a machine, and the part of it that is used.
    std::optional<Target> machine;  ///< empty: current_target(), or as `calibrate` says
    /// Without `machine` and `gpu`: the first compilation on this machine measures its rates briefly and keeps them
    /// (cost/first_calibration.h). Otherwise unknown rates are assumed.
    bool calibrate = false;
    int threads = 0;               ///< worker threads; 0: default_thread_count()
    std::string isa;               ///< one of selectable_isas(): "avx2", "avx512-bf16"; empty: the machine's
    std::optional<GpuTarget> gpu;  ///< generate CUDA C++ for this GPU instead of machine code
    bool gpu_libraries = false;    ///< Scheduling::gpu_libraries

    std::vector<FunctionLibrary> functions;            ///< load_model's `libraries`
    std::shared_ptr<const CustomOperators> operators;  ///< LowerOptions::operators
    std::map<std::string, int64_t> dims;               ///< fixes symbolic dimensions
    SchedulerKind scheduler = SchedulerKind::Auto;
    /// Measure candidates on this machine where the scheduler has several; schedule search always does. The resulting
    /// plan is kept only if whole runs on `inputs` are faster than those of the plan without measurements.
    bool measure = false;
    double measure_seconds = 60;  ///< time limit for measuring kernels if `measure`; then estimates decide
    /// Use the plan that `tilewright tune` has found and confirmed for this model with these options on this machine,
    /// if there is one (compile/tuned_plan.h). Nothing is measured.
    bool tuned = false;
    /// Corrects the estimates (`tilewright db learn`). Set by complete_machine where `calibrate` is, on this machine's
    /// own instructions. Tuned plans do without, so that what is learned later does not change them.
    std::shared_ptr<const ResidualModel> residual;
    /// The pass `tune`, which may replace the finished plan of a CPU by another one (compile/tune_plan.h). Empty: the
    /// plan stays.
    std::function<void(const PlanToTune&)> tune;
    /// Inputs for whole runs of plans, if `measure` is set or optimal orchestration measures; the latter keeps its
    /// kernels if they are faster there than those of greedy orchestration. Empty, or an empty result: no full plan is
    /// run.
    std::function<std::vector<Tensor>(const std::vector<ModelIo>&)> inputs;
    /// If optimal orchestration measures: the library whose kernels are candidates beside generated code. Null: none.
    std::shared_ptr<const cpu::KernelProvider> provider;
    std::string database;  ///< path of the tuning database; empty: TuningDatabase::default_path()
    int trials = 1000;     ///< of schedule search, per kernel
    chain::Ablation chains_without = chain::Ablation::None;  ///< Scheduling::chains_without
    bool all_chains = false;                                 ///< Scheduling::all_chains
    dynamic::JointOptions joint_search =
        {};                   ///< of SchedulerKind::DietCode; `trials` and the seed of Scheduling replace its own
    std::string code_folder;  ///< cache of machine code (base/code_cache.h); empty: none
    /// Called, from any thread, with one line when a result cannot be cached: the folder, the reason and a remedy. The
    /// same line may be repeated. Empty: no warnings.
    std::function<void(const std::string&)> warn;
    /// Called with one line about work that takes time and is not repeated: the first calibration.
    std::function<void(const std::string&)> note;
    /// Kernels scheduled earlier with the same options (orchestrate_options): OrchestrateOptions::schedules.
    std::shared_ptr<Schedules> schedules;
    Precision precision = Precision::F32;  ///< of multiplications on matrix instructions
    /// With Precision::F32 on a CPU: operands of products on tile registers are sums of two bf16 numbers, in place of
    /// three, which have 16 bits of f32's 24 (orchestrate/bf16_terms.h).
    bool fast_f32 = false;
    /// With Precision::BF16 or F16 on a CPU: products of nodes that match one of these patterns (compile/f32_nodes.h)
    /// stay in f32; they become GroupingOptions::f32_products.
    std::vector<std::string> keep_f32;
    /// With Precision::BF16 or F16 on a CPU, if > 0: the largest error of an output, relative to its largest magnitude,
    /// on `inputs` (random_inputs where there are none). Products stay in f32 until it is met
    /// (compile/precision_choice.h).
    double max_error = 0;
    /// With Precision::BF16 on a CPU: products stay in f32 also where bf16 is estimated to be slower, and all of them
    /// where this CPU has no products of bf16.
    bool where_faster = false;
    /// The model's names of its outputs, which may equal names of inputs; empty: the names of the program's values.
    std::vector<std::string> output_names;
    Numerics numerics = Numerics::Default;
    /// Inputs that outputs extend are kept by the session's caller in a KvCache, where there are any (the pass
    /// append_in_place). Runs without one rearrange them.
    bool kv_cache = false;
    /// Keep the object files of kernels (CompiledKernel::object), to write the model to a file.
    bool keep_objects = false;
    /// False: plan only, without machine code. Such a model can be dumped, but not run.
    bool code = true;
    /// Check every value that operators rely on at run time, even where this is slow: indices, lengths, shapes
    /// (LowerOptions::check_values).
    bool check_values = false;
    /// Keep subnormal f32 and f64 numbers instead of flushing them to 0 (runtime/float_mode.h).
    bool keep_subnormals = false;
};

/// GroupingOptions::bf16_terms for these options: none with Numerics::Strict, subnormal numbers or optimal
/// orchestration.
int bf16_terms_of(const CompileOptions& options);
/// Whether the plan with layouts is compared with the row-major one by estimates (layouts_pay, planned_cost.h): for a
/// GPU in f32. Layouts serve matrix instructions; ordinary cores read either.
bool compares_layouts(const CompileOptions& options);
/// --precision auto: Precision::BF16 or F16 where_faster, whichever has faster products on the target, within max_error
/// or kAutoMaxError.
void choose_precision_automatically(CompileOptions& options);
/// Returns the machine to compile for: `machine` with the options' threads, instruction set and GPU. Throws ModelError
/// for an unknown instruction set.
Target target_of(const CompileOptions& options);
/// Sets `machine` if it is absent: to this machine, calibrated as `calibrate` says.
void complete_machine(CompileOptions& options);
/// Returns the cache of machine code in CompileOptions::code_folder, or null without one.
std::shared_ptr<const CodeCache> code_cache(const CompileOptions& options);
/// Returns the planning options of compile_program, row-major if it compares layouts. `weight_bytes`: size of the
/// constants, which determines how warm they are while kernels are measured.
OrchestrateOptions orchestrate_options(const CompileOptions& options, int64_t weight_bytes = 0);
/// SchedulerKind::DietCode searches schedules for these sizes together; nothing for others and on GPUs.
/// CompileOptions::note gets a line for each kernel.
void search_jointly(Scheduling& how, const std::vector<SizeSample>& samples, const CompileOptions& options);
}  // namespace tilewright
