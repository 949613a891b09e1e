#pragma once
// Shared by the commands: common options, progress, results.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "compile/pipeline.h"
#include "driver/compare.h"
#include "driver/inputs.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tilewright {

/// Options of the kernel scheduler.
struct SchedulerOptions {
    std::string scheduler = std::string(to_string(CompileOptions().scheduler)), orchestrate = "greedy", profile,
                libraries, database;
    std::string layouts = "rule";
    std::optional<double> layout_seconds = {};  ///< of --layouts joint and ppo; none: theirs
    int layout_trials = 1000, layout_levels = 1;
    std::string layout_ablation, chain_ablation;  ///< empty: none
    bool all_chains = false;
    bool measure = false;
    double measure_seconds = CompileOptions().measure_seconds;
    bool tuned = false;
    size_t piece_nodes = OptimalOptions().piece_nodes, kernel_nodes = OptimalOptions().kernel_nodes,
           most_sets = OptimalOptions().most_sets, most_outputs = OptimalOptions().most_outputs;
    double blp_seconds = OptimalOptions().seconds;
    std::string blp = "strong";
    std::string joint_search = "relative";
    int trials = 1000;
    /// Throws CLI::ValidationError if --profile is given without a reason to measure, or --libraries without measuring;
    /// RuntimeError if a requested library is missing.
    void apply(CompileOptions& o) const;

  private:
    std::shared_ptr<const cpu::KernelProvider> provider(bool measured) const;
};
void add_scheduler_options(CLI::App& command, SchedulerOptions& o);
void add_orchestrate_option(CLI::App& command, std::string& orchestrate);
/// One line for each scheduler, for the help text.
std::string scheduler_help();

void add_ablation_options(CLI::App& command, Ablations& o);

/// Options of the rewrite search.
struct RewriteFlags {
    bool no_rewrites = false, no_winograd = false;
    void apply(PipelineOptions& o) const;
};
void add_rewrite_options(CLI::App& command, RewriteFlags& o);

/// Passes to skip, print, verify and time.
struct PassFlags {
    std::vector<std::string> skip, print_before, print_after;
    bool print_before_all = false, print_after_all = false, verify_each = false, time = false;
    void apply(PipelineOptions& o) const;
};
void add_pass_options(CLI::App& command, PassFlags& o);

/// Operators that the caller defines: paths.
struct OperatorOptions {
    std::vector<std::string> functions;  ///< ONNX files with functions
    std::vector<std::string> libraries;  ///< shared libraries
};
/// Adds --functions and --operators.
void add_operator_options(CLI::App& command, OperatorOptions& o);

struct ModelOptions {
    std::string model;
    OperatorOptions operators;
    SchedulerOptions scheduler;
    int threads = 0;
    std::string isa;
    bool no_fuse = false, no_layouts = false, no_code_cache = false, no_calibrate = false, progress = false,
         keep_subnormals = false, check_values = false, kv_cache = false, copy_weights = false;
    std::string numerics = "default";
    std::string target = "cpu", precision = "f32";
    bool gpu_libraries = false;  ///< also where none is installed
    std::vector<std::string> keep_f32;
    double max_error = 0;
    std::string target_file;
    Ablations without;
    RewriteFlags rewrite;
    PassFlags passes;
    /// Options of the command without effect on a file of `compile`. The command owns them.
    std::vector<const CLI::Option*> compiling;
};
void add_model_options(CLI::App& command, ModelOptions& o);
/// The files of --functions. Throws as read_function_library does.
std::vector<FunctionLibrary> function_libraries(const std::vector<std::string>& paths);
/// The operators of --operators; null where there are none. Throws as api::add_library does.
std::shared_ptr<const CustomOperators> shared_operators(const std::vector<std::string>& paths);
/// The model with functions of its libraries inlined. Throws as load_model does.
Model load_model(const ModelOptions& o);
/// Adds --kv-cache, for commands that run a model in sessions or write it.
void add_kv_cache_option(CLI::App& command, ModelOptions& o);
/// Adds --copy-weights, for commands that load files of `compile`.
void add_copy_weights_option(CLI::App& command, ModelOptions& o);
/// Adds --target: texts of gpu_of, or "cpu".
void add_target_option(CLI::App& command, std::string& target);
/// Adds --target and --precision, for commands that accept models for GPUs.
void add_target_options(CLI::App& command, ModelOptions& o);
/// Adds --precision, --keep-f32 and --max-error alone.
void add_precision_option(CLI::App& command, ModelOptions& o);
/// A warning on standard error; each text is printed once.
void warn_once(const std::string& text);
/// A note on standard error.
void print_note(const std::string& text);
PipelineOptions pipeline_options(const ModelOptions& o);
/// Loads and compiles; shows progress on a terminal after a second. While kernels are measured, an interrupt ends in a
/// RuntimeError that says which results are stored.
/// `reference`: PipelineOptions::reference.
Compilation compile(const ModelOptions& o, bool reference = true);
/// As above; whole plans are measured on these inputs. A file of `tilewright compile` is loaded; it has no program.
struct DataOptions;
Compilation compile(const ModelOptions& o, const DataOptions& data, bool reference = true);
class Progress;
/// As above, with the command's own pipeline options, of which `progress` and `watch` are set, and progress line.
Compilation compile(const ModelOptions& o, PipelineOptions p, Progress& progress);
/// A session for --target: on this CPU, or on this machine's GPU. Throws RuntimeError with a summary of the compilation
/// if there is no GPU.
Session session_of(const ModelOptions& o, const Compilation& c);

struct DataOptions {
    std::vector<std::string> dims;  ///< "batch=8", "seq=1..512"
    InputRequest request;
};
void add_data_options(CLI::App& command, DataOptions& o);
/// --dim of commands that run nothing: sizes and ranges for which the model is compiled (dim_settings).
void add_fixed_dim_option(CLI::App& command, std::vector<std::string>& dims);
/// True if --dim, --data or --input are given.
bool given(const DataOptions& o);
/// CompileOptions::inputs: those that inputs_of makes.
std::function<std::vector<Tensor>(const std::vector<ModelIo>&)> sample_inputs(const DataOptions& o);
/// Texts of --dim: sizes ("batch=8"), and ranges ("seq=1..512:8,64,128@3"). A dimension may have both: a size of inputs
/// within a range for which the model is compiled.
struct DimSettings {
    std::map<std::string, int64_t> sizes;
    std::map<std::string, DimRange> ranges;
};
/// Throws CLI::ValidationError for malformed texts, OptionError for malformed ranges.
DimSettings dim_settings(const std::vector<std::string>& texts);
/// The sizes that --dim gives to named dimensions. Throws CLI::ValidationError for invalid sizes.
std::map<std::string, int64_t> dims_of(const DataOptions& o);
/// The inputs, checked against the model's declarations and the machine's memory. Throws CLI::ValidationError if --dim
/// is malformed. `assumed`: see make_inputs.
std::vector<Tensor> inputs_of(const Compilation& c, const DataOptions& o,
                              std::map<std::string, int64_t>* assumed = nullptr);

/// --rtol, --atol and --max-relative. Options that are not given keep their value; --rtol and --atol disable
/// max_relative.
struct ToleranceOptions {
    Tolerance tolerance;
    CLI::Option *rtol = nullptr, *atol = nullptr, *max_relative = nullptr;
    Tolerance get() const;
    bool given() const;  ///< true if any of the options is given
};
void add_tolerance_options(CLI::App& command, ToleranceOptions& o);
/// The default tolerance of outputs, relative to their largest magnitude: about twenty roundings to the precision of
/// matrix instructions (2^-11 for tf32 and f16, 2^-8 for bf16 and auto) or of the model's own types, plus the error of
/// f32.
double default_tolerance(const std::string& precision, const Program& program);

/// During its lifetime the first interrupt is recorded, and the second one ends the process.
class Interrupts {
  public:
    Interrupts();
    ~Interrupts();
    Interrupts(const Interrupts&) = delete;
    Interrupts& operator=(const Interrupts&) = delete;
    static bool seen();

  private:
    struct Before;
    std::unique_ptr<Before> before_;
};

/// --json; empty: not requested.
void add_json_option(CLI::App& command, std::string& path);
/// Writes `text` and a line end, if a path is given.
void write_json(const std::string& path, const std::string& text);

/// A name=integer of the command line. Throws CLI::ValidationError with the option.
std::pair<std::string, int64_t> parse_setting(const std::string& option, const std::string& text);

/// A progress line on standard error for work that takes longer than a second; only on a terminal unless `always`.
/// Erased by the destructor. With `always`, a stream that is not a terminal gets one line per change, at most one per
/// second.
class Progress {
  public:
    explicit Progress(std::string what, bool always = false);
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    void step(const std::string& name);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;  ///< null: nothing is displayed
};

}  // namespace tilewright
