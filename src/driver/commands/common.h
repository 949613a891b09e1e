#pragma once
// What the commands share: options that mean the same in every one that takes them, progress, results.

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

/// Who schedules kernels.
struct SchedulerOptions {
    std::string scheduler = std::string(to_string(CompileOptions().scheduler)), orchestrate = "greedy", profile,
                libraries, database;
    bool measure = false;
    double measure_seconds = CompileOptions().measure_seconds;
    size_t piece_nodes = OptimalOptions().piece_nodes, kernel_nodes = OptimalOptions().kernel_nodes,
           most_sets = OptimalOptions().most_sets, most_outputs = OptimalOptions().most_outputs;
    double blp_seconds = OptimalOptions().seconds;
    std::string blp = "strong";
    int trials = 1000;
    /// Throws CLI::ValidationError where --profile is given and nothing can be measured for it, or --libraries is and
    /// nothing is measured; RuntimeError where a library that was asked for is not there.
    void apply(CompileOptions& o) const;

  private:
    std::shared_ptr<const cpu::KernelProvider> provider(bool measured) const;
};
void add_scheduler_options(CLI::App& command, SchedulerOptions& o);
void add_orchestrate_option(CLI::App& command, std::string& orchestrate);
/// One line for each scheduler, for footers.
std::string scheduler_help();

void add_ablation_options(CLI::App& command, Ablations& o);

/// Whether programs are rewritten.
struct RewriteFlags {
    bool no_rewrites = false, no_winograd = false;
    void apply(PipelineOptions& o) const;
};
void add_rewrite_options(CLI::App& command, RewriteFlags& o);

/// Passes that are left out, printed, verified and timed.
struct PassFlags {
    std::vector<std::string> skip, print_before, print_after;
    bool print_before_all = false, print_after_all = false, verify_each = false, time = false;
    void apply(PipelineOptions& o) const;
};
void add_pass_options(CLI::App& command, PassFlags& o);

struct ModelOptions {
    std::string model;
    SchedulerOptions scheduler;
    int threads = 0;
    std::string isa;
    bool no_fuse = false, no_layouts = false, no_code_cache = false, progress = false, keep_subnormals = false,
         check_values = false;
    std::string numerics = "default";
    std::string target = "cpu", precision = "f32";
    std::string target_file;
    Ablations without;
    RewriteFlags rewrite;
    PassFlags passes;
};
void add_model_options(CLI::App& command, ModelOptions& o);
/// --target and --precision, of commands that take models for GPUs.
void add_target_options(CLI::App& command, ModelOptions& o);
/// A warning on standard error, each text once.
void warn_once(const std::string& text);
PipelineOptions pipeline_options(const ModelOptions& o);
/// Loads and compiles; what takes longer than a second shows a line on a terminal. Where kernels are measured, an
/// interrupt ends in RuntimeError, which says what is kept.
/// `reference`: PipelineOptions::reference.
Compilation compile(const ModelOptions& o, bool reference = true);
/// The same; where kernels are measured, whole plans are compared on these inputs.
struct DataOptions;
Compilation compile(const ModelOptions& o, const DataOptions& data, bool reference = true);
class Progress;
/// The same with pipeline options of the command's own, of which `progress` and `watch` are set, and its own line.
Compilation compile(const ModelOptions& o, PipelineOptions p, Progress& progress);
/// Where --target says: on this CPU, or on this machine's GPU. Throws RuntimeError that says what was compiled where
/// there is none.
Session session_of(const ModelOptions& o, const Compilation& c);

struct DataOptions {
    std::vector<std::string> dims;  ///< "batch=8"
    InputRequest request;
};
void add_data_options(CLI::App& command, DataOptions& o);
/// Whether --dim, --data or --input say anything of the sizes of open dimensions.
bool given(const DataOptions& o);
/// Sizes that --dim gives named dimensions. Throws CLI::ValidationError for what is no size.
std::map<std::string, int64_t> dims_of(const DataOptions& o);
/// The inputs, checked against the model's declarations and the machine's memory. Throws CLI::ValidationError where
/// --dim is malformed. `assumed`: as make_inputs has it.
std::vector<Tensor> inputs_of(const Compilation& c, const DataOptions& o,
                              std::map<std::string, int64_t>* assumed = nullptr);
/// "batch = 1, seq = 8"
std::string sizes_text(const std::map<std::string, int64_t>& sizes);

/// --rtol, --atol and --max-relative. What is not given keeps its value; --rtol and --atol put max_relative out of
/// force.
struct ToleranceOptions {
    Tolerance tolerance;
    CLI::Option *rtol = nullptr, *atol = nullptr, *max_relative = nullptr;
    Tolerance get() const;
    bool given() const;  ///< whether the user said anything
};
void add_tolerance_options(CLI::App& command, ToleranceOptions& o);

/// --json; empty: none wanted.
void add_json_option(CLI::App& command, std::string& path);
/// Writes `text` and a line end, if a path was given.
void write_json(const std::string& path, const std::string& text);

/// A name=integer of the command line. Throws CLI::ValidationError naming the option.
std::pair<std::string, int64_t> parse_setting(const std::string& option, const std::string& text);

/// A line on standard error about work that takes longer than a second; nothing unless that is a terminal. Gone when
/// the object is. Where it is wanted `always`, what is no terminal gets a line of its own for each change, at most one
/// a second.
class Progress {
  public:
    explicit Progress(std::string what, bool always = false);
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    void step(const std::string& name);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;  ///< null: nobody would see it
};

}  // namespace tilewright
