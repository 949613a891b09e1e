#pragma once
// The whole way from a model to an executable: one function, run_pipeline, whose passes are listed, skipped, timed,
// verified and printed by name (compile/pass.h). `tilewright passes` prints the list.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compile/options.h"
#include "compile/pass.h"
#include "graph/graph.h"
#include "model/session.h"
#include "orchestrate/kernel_group.h"
#include "orchestrate/options.h"
#include "orchestrate/plan.h"
#include "program/rewrite/search.h"

namespace tilewright {

struct PrecisionChoice;

/// All rules; transformed weights may take as much folding as they are worth.
RewriteSearch default_rewrites();

struct PipelineOptions {
    CompileOptions compile;
    PassOptions passes;
    /// Keep the contents of Compilation::program's constants, which interpret reads. Else they are freed as soon as the
    /// model does not need them any more.
    bool reference = true;
    bool keep_rewritten = false;  ///< Compilation::rewritten is wanted
    /// Search for a cheaper equivalent program, evaluated as it would be planned; none: the program stays as it is.
    /// Models for a GPU are rewritten by estimates, without Winograd's convolutions; this has not been measured on one.
    std::optional<RewriteSearch> rewrite = default_rewrites();
    /// Makes the model with Numerics::Strict (CompiledModel::Impl::make_fallback). None: it is compiled from the
    /// lowered program, whose constants stay in memory for it.
    std::function<std::shared_ptr<const CompiledModel>()> strict = {};
};

/// What the compiler made of a model. `program` is the reference: interpret(program) says what the outputs should be.
/// It is the program before it was rewritten; its constants have contents where PipelineOptions::reference is set.
struct Compilation {
    Program program;
    Program rewritten;  ///< where PipelineOptions::keep_rewritten is set: what was planned
    std::shared_ptr<const CompiledModel> model;
    std::vector<PassTime> passes;
    ModelInfo info;
    RewriteReport rewrites;  ///< where PipelineOptions::rewrite asked for them
    /// Which products are in f32, and why; where the precision is bf16 on a CPU.
    std::shared_ptr<const PrecisionChoice> precision;
    double load_ms = 0, compile_ms = 0;
    bool external_data = false;  ///< Model::external_data
    bool kept = false;           ///< the model was not compiled, but loaded from the code cache (compile/kept_models.h)
};

/// Throws ModelError, OptionError for passes that there are not, and RuntimeError where the machine does not suffice
/// (compile/limits.h).
Compilation compile_model(const Model& model, const PipelineOptions& options = {});
Compilation compile_model(const std::string& path, const PipelineOptions& options = {});
Compilation compile_model(const void* bytes, size_t size, const PipelineOptions& options = {});

/// Compiles a program from its kernels on, without the passes that rewrite it. Throws ModelError, RuntimeError.
/// Constants of the program that nothing else holds are freed as soon as the model has them in its own form.
std::shared_ptr<const CompiledModel> compile_program(Program program, const CompileOptions& options);

/// The passes up to `common_subexpressions` alone: operators as tensor expressions, what is known folded.
Program lower_model(const Model& model, const PipelineOptions& options);
/// The passes from there to `guard_winograd`: the program in a form that does not depend on spelling, and by cheaper
/// ways where the options ask for it.
Program rewrite_program(Program program, const PipelineOptions& options, RewriteReport* report = nullptr);
/// Both.
Program make_program(const Model& model, const PipelineOptions& options);
/// The passes from `outline` to `merge_kernels`: a plan, whose kernels are those of the set. Constants that nothing
/// else holds are freed as soon as packed copies take their place.
Plan plan_program(Program program, KernelSet& kernels, const OrchestrateOptions& options,
                  const PassOptions& passes = {});
/// The passes from `outline` to `split_k`: the kernels of a program, bodies of its control flow left out.
Grouped group_kernels(Program program, const OrchestrateOptions& options, Schedules& schedules);

/// Every pass, in the order in which they run. `on` is false for those that only some options ask for.
std::vector<PassInfo> pipeline_passes();
/// Throws OptionError where a name is no pass's, or one is to be skipped that cannot be.
void check_pass_names(const PassOptions& options, const std::vector<std::string>& skip);

}  // namespace tilewright
