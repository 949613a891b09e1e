#pragma once
// A compiled model and its execution.

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
#include "backend/cuda/kernel.h"
#include "base/tensor.h"
#include "cost/target.h"
#include "orchestrate/ablations.h"
#include "orchestrate/optimal/options.h"
#include "program/program.h"
#include "schedule/scheduler.h"

namespace tilewright {

class CompiledModel;
class GpuModel;
struct Plan;
struct OrchestrateOptions;

class Schedules;

struct ModelIo;

/// What rewrites may do to floating-point results.
enum class Numerics : uint8_t {
    Strict,   ///< an output depends on the inputs that its definition reads alone, and on no number of threads
    Default,  ///< Winograd's convolutions, as long as what they read is finite and no larger than kMostGuarded
    Fast,     ///< Winograd's convolutions, whatever they read
};
std::string_view to_string(Numerics numerics);
/// "strict", "default" or "fast"; nothing for another text.
std::optional<Numerics> numerics_from_string(std::string_view text);

struct CompileOptions {
    int threads = 0;                      ///< what schedules aim at; 0: default_thread_count()
    std::optional<Target> machine;        ///< whose caches and rates plans go by; empty: current_target()
    std::map<std::string, int64_t> dims;  ///< fixes symbolic dimensions
    std::string isa;                      ///< "" (host), "avx2", "avx512"
    bool fuse = true;                     ///< false: one kernel a primitive
    bool layouts = true;                  ///< false: everything row-major
    SchedulerKind scheduler = SchedulerKind::Auto;
    Orchestrator orchestrator = Orchestrator::Greedy;
    OptimalOptions optimal;    ///< where the orchestrator is Optimal; its `profile` says what is measured for it
    WatchOrchestration watch;  ///< likewise; called as it goes on
    Ablations without;
    /// Compare candidates on this machine where the scheduler has several; search always does. The plan that comes of
    /// it is kept only where whole runs on `inputs` are faster than those of the plan without measurements.
    bool measure = false;
    double measure_seconds = 60;  ///< for measuring kernels where `measure` is set; estimates decide the rest
    /// Inputs to run whole plans on, where `measure` is set or optimal orchestration measures: the latter then keeps
    /// what is faster there than the greedy rule's kernels. Empty, or where it gives nothing: no whole plan is run.
    std::function<std::vector<Tensor>(const std::vector<ModelIo>&)> inputs;
    /// Where optimal orchestration measures: whose kernels are candidates beside generated code. Null: nobody's.
    std::shared_ptr<const cpu::KernelProvider> provider;
    std::string database;     ///< where measurements are kept; empty: TuningDatabase::default_path()
    int trials = 1000;        ///< of scheduler search, for each kernel
    std::string code_folder;  ///< where machine code is kept for the next time (base/code_cache.h); empty: nowhere
    /// Called, from any thread, with one line where what was to be kept for the next time cannot be: it says which
    /// folder, why and what to do. The same line may come several times. Empty: nothing is said.
    std::function<void(const std::string&)> warn;
    /// Kernels that were scheduled before, with these options (orchestrate_options): OrchestrateOptions::schedules.
    std::shared_ptr<Schedules> schedules;
    std::optional<GpuScheduling> gpu;  ///< kernels are for this GPU: CUDA C++ in place of machine code
    /// The model's names of its outputs, which may be those of inputs as well; empty: those of the program's values.
    std::vector<std::string> output_names;
    Numerics numerics = Numerics::Default;
    /// False: plan only, without machine code. Such a model can be dumped, but not run.
    bool code = true;
    /// Every value that operators rely on is checked when the model runs, also where that takes time: indices, lengths,
    /// shapes (LowerOptions::check_values).
    bool check_values = false;
    /// The model to run instead where a requirement of Check::Fallback does not hold; called once, when that happens
    /// first, from any thread. Empty: such a run throws NeedsFallback.
    std::function<std::shared_ptr<const CompiledModel>()> fallback;
    /// Subnormal f32 and f64 numbers are computed with, not taken for 0 (runtime/float_mode.h).
    bool keep_subnormals = false;
};

struct ModelIo {
    std::string name;
    DType dtype = DType::F32;
    std::vector<Expr> shape;
};

struct CompileStats {
    double load_ms = 0, lower_ms = 0, plan_ms = 0, codegen_ms = 0, compile_ms = 0;
    double schedule_ms = 0;  ///< of plan_ms: constructing the kernels' schedules
    int kernels = 0;         ///< different ones
    int steps = 0;           ///< launched in one run (bodies of control flow counted once)
    int64_t weight_bytes = 0;
};

/// One step of a run, for profiles.
struct StepTime {
    std::string name;
    double start_us = 0, duration_us = 0;
    double flops = 0;  ///< of products and convolutions, 2 a multiply-add
    int kernel = -1;   ///< number of the kernel in dumps; -1: no generated kernel
    double bytes = 0;  ///< of a kernel's inputs and outputs, each once and whole
};

/// Immutable; any number of sessions in any number of threads may share one.
class CompiledModel {
  public:
    struct Impl;
    explicit CompiledModel(std::unique_ptr<Impl> impl);
    ~CompiledModel();
    const std::vector<ModelIo>& inputs() const;
    const std::vector<ModelIo>& outputs() const;
    const CompileStats& stats() const;
    const Plan& plan() const;
    /// The different kernels, by KernelCall::kernel.
    const std::vector<TileProgram>& kernels() const;
    /// For a GPU: the text of each of them; else empty.
    const std::vector<cuda::KernelText>& gpu_kernels() const;
    const cpu::CodegenOptions& codegen() const;
    const std::optional<GpuTarget>& gpu_target() const;  ///< of one for a GPU
    /// stage: "plan", "tiles"; "llvm", "asm" of a model for a CPU; "cuda" of one for a GPU.
    std::string dump(const std::string& stage) const;
    const Impl& impl() const { return *impl_; }

  private:
    std::unique_ptr<Impl> impl_;
};

/// CompileOptions::machine, or current_target().
Target planned_machine(const CompileOptions& options);
/// This machine as the default rule takes it: sizes of caches as they were measured, vectors of `isa`.
ScheduleTarget schedule_target(const Target& machine, const cpu::Isa& isa, int threads);
/// How compile_program generates machine code.
cpu::CodegenOptions codegen_options(const CompileOptions& options);
/// How compile_program plans. `weight_bytes`: of the constants, which says how warm they are where kernels are
/// measured.
OrchestrateOptions orchestrate_options(const CompileOptions& options, int64_t weight_bytes = 0);
/// Compiles an optimised program (src/driver/pipeline.h does everything before). Throws ModelError, RuntimeError.
/// Constants of the program that nothing else holds are freed as soon as the model has them in its own form.
std::shared_ptr<const CompiledModel> compile_program(Program program, const CompileOptions& options);

/// The buffers of one run after another. One thread at a time; sessions are independent of each other, and results do
/// not depend on how many run, nor on the number of threads.
class Session {
  public:
    /// threads: 0: default_thread_count(). Sessions with equal thread counts share one pool.
    /// Throws RuntimeError for a model whose kernels are for a GPU.
    /// memory: bytes that the model's weights and this session's buffers may take together; 0: usable_memory().
    explicit Session(std::shared_ptr<const CompiledModel> model, int threads = 0, uint64_t memory = 0);
    /// On a GPU (model/gpu_model.h); several sessions may share one. `memory`: bytes of the host.
    explicit Session(std::shared_ptr<const GpuModel> model, uint64_t memory = 0);
    ~Session();
    /// Inputs by position. Throws ModelError naming the input whose type or shape is not what the model declares, and
    /// RuntimeError where the buffers for these shapes, or what a loop collects, pass the memory.
    std::vector<Tensor> run(const std::vector<Tensor>& inputs);
    /// The same without copies: the views are valid until the next run. Once shapes repeat, nothing is allocated.
    const std::vector<Tensor>& run_in_place(const std::vector<Tensor>& inputs);
    /// Floating-point operations of the last run's products and convolutions (2 per multiply-add).
    double last_flops() const;
    int64_t arena_bytes() const;  ///< of the GPU's memory too, where it runs there
    /// When not null, every step of later runs is timed into it.
    void set_profile(std::vector<StepTime>* profile);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright
