#include "driver/pipeline.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "driver/inputs.h"
#include "driver/limits.h"
#include "graph/import.h"
#include "orchestrate/plan.h"
#include "orchestrate/planned_cost.h"
#include "orchestrate/schedules.h"
#include "program/rewrite/guards.h"
#include "program/transform/canonical.h"
#include "program/transform/common_subexpressions.h"
#include "program/transform/dead_code.h"
#include "program/transform/fold.h"

namespace tilewright {

namespace {

/// Runs one pass: skipped by name, timed, verified, dumped.
class Passes {
  public:
    Passes(const PipelineOptions& options, std::vector<PassTime>* times) : options_(options), times_(times) {}

    template <class F>
    Program operator()(const std::string& name, Program program, F&& pass) {
        if (std::find(options_.skip.begin(), options_.skip.end(), name) != options_.skip.end()) return program;
        if (options_.progress) options_.progress(name);
        const double start = now_ms();
        program = pass(std::move(program));
        if (times_ != nullptr) times_->push_back({name, now_ms() - start});
        if (options_.verify) {
            const std::vector<std::string> problems = verify(program);
            TW_CHECK(problems.empty(), "after {}: {}", name, problems[0]);
        }
        if (options_.dump) options_.dump(name, program);
        return program;
    }

  private:
    const PipelineOptions& options_;
    std::vector<PassTime>* times_;
};

}  // namespace

namespace {

/// How kernels are scheduled while rewrites are judged: as in the plan, but that nothing is measured, and everything
/// estimated.
OrchestrateOptions judging_options(CompileOptions options) {
    if (options.measure || options.scheduler == SchedulerKind::Search) options.scheduler = SchedulerKind::Auto;
    options.measure = false;
    OrchestrateOptions o = orchestrate_options(options);
    if (!o.scheduling.machine) o.scheduling.machine.emplace(planned_machine(options), o.target.threads);
    return o;
}

/// Whether kernels that are scheduled for judging are those of the plan.
bool judged_as_planned(const CompileOptions& options) {
    const bool profiles = options.orchestrator == Orchestrator::Optimal && options.optimal.profile != Profile::None;
    return !options.measure && !profiles && options.scheduler != SchedulerKind::Search &&
           orchestrate_options(options).scheduling.machine.has_value();
}

/// Open dimensions have the sizes that a run without any has.
std::vector<Tensor> random_inputs(const std::vector<ModelIo>& declared) { return make_inputs(declared, {}); }

/// Nothing where a dimension is open: of which size the model is used, nobody has said.
std::vector<Tensor> random_inputs_of_known_sizes(const std::vector<ModelIo>& declared) {
    for (const ModelIo& io : declared)
        for (const Expr d : io.shape)
            if (!d.is_constant()) return {};
    return random_inputs(declared);
}

}  // namespace

RewriteSearch default_rewrites() {
    RewriteSearch search;
    search.rules.winograd = true;
    search.rules.folding.work = int64_t{1} << 29;
    search.rules.folding.total_work = int64_t{1} << 33;
    return search;
}

Program lower_model(const Model& model, const PipelineOptions& options, std::vector<PassTime>* times) {
    for (const auto& [name, size] : options.compile.dims)
        require_dimension(name, fmt::format("dimension {} = {}", quoted_name(name), size), dimension_names(model));
    Passes pass(options, times);
    LowerOptions lowering;
    lowering.dims = options.compile.dims;
    lowering.check_values = options.compile.check_values;
    lowering.check_inputs = !options.compile.gpu;  // a step of the host would keep the rest from being one graph
    Program program = pass("fission", Program(), [&](Program) { return lower(model, lowering); });
    program = pass("dead_code", std::move(program), [](Program p) { return eliminate_dead_code(std::move(p)); });
    program = pass("fold_constants", std::move(program), [](const Program& p) { return fold_constants(p); });
    program = pass("common_subexpressions", std::move(program),
                   [](Program p) { return merge_common_subexpressions(std::move(p)); });
    program = pass("dead_code", std::move(program), [](Program p) { return eliminate_dead_code(std::move(p)); });
    return program;
}

Program rewrite_program(Program program, const PipelineOptions& options, std::vector<PassTime>* times,
                        RewriteReport* report) {
    Passes pass(options, times);
    const Program original = program;  // contents of constants are shared
    program =
        pass("scales_behind_products", std::move(program), [](const Program& p) { return scales_behind_products(p); });
    if (!options.rewrite) return program;
    RewriteSearch search = *options.rewrite;
    if (options.compile.numerics == Numerics::Strict) search.rules.winograd = false;
    if (!search.judge) {
        const OrchestrateOptions judging = judging_options(options.compile);
        search.judge = planned_cost(judging, search.rules.folding);
        search.judged_by = planned_cost_text(judging);
        search.kept = judging.kept;
    }
    program = pass("rewrite", std::move(program), [&](const Program& p) { return rewrite(p, search, report); });
    program = pass("fold_rewritten", std::move(program),
                   [&](const Program& p) { return fold_constants(p, search.rules.folding); });
    program = pass("common_subexpressions", std::move(program),
                   [](Program p) { return merge_common_subexpressions(std::move(p)); });
    if (options.compile.numerics == Numerics::Default)
        program = pass("guard_winograd", std::move(program),
                       [&](Program p) { return guard_winograd(std::move(p), original); });
    return program;
}

namespace {

/// The model without what its checks are about.
std::function<std::shared_ptr<const CompiledModel>()> strict_model(Program lowered, PipelineOptions options) {
    options.compile.numerics = Numerics::Strict;
    options.compile.schedules = nullptr;
    options.progress = nullptr;
    options.dump = nullptr;
    return [lowered = std::move(lowered), options] {
        return compile_program(rewrite_program(lowered, options), options.compile);
    };
}

PipelineOptions on_machine(PipelineOptions options, const Target& machine) {
    options.compile.machine = machine;
    return options;
}

/// Options of one compilation: the machine is read once, and kernels that are scheduled to evaluate rewrites are the
/// plan's as well.
PipelineOptions completed(PipelineOptions options, const Model& model) {
    options.compile.machine = planned_machine(options.compile);
    if (options.rewrite && judged_as_planned(options.compile)) {
        const OrchestrateOptions judging = judging_options(options.compile);
        options.compile.schedules = std::make_shared<Schedules>(scheduling(judging), MeasureKernel(), judging.kept);
    }
    for (const GraphInput& o : model.graph.outputs) options.compile.output_names.push_back(o.name);
    if (!options.compile.inputs)
        options.compile.inputs = options.compile.measure ? random_inputs : random_inputs_of_known_sizes;
    return options;
}

/// Everything after lower_model. `given`: the options as they were.
void compile_lowered(Program lowered, PipelineOptions options, const PipelineOptions& given, Compilation& c) {
    c.program = options.reference ? lowered : without_contents(lowered);
    check_limits(c.program);
    Program rewritten = rewrite_program(lowered, options, &c.passes, &c.rewrites);
    if (options.rewrite) check_limits(rewritten);
    if (options.progress) options.progress("orchestrate and generate code");
    const auto falls_back = [](const Requirement& r) { return r.when == Requirement::Check::Fallback; };
    if (std::any_of(rewritten.requirements.begin(), rewritten.requirements.end(), falls_back))
        options.compile.fallback = strict_model(std::move(lowered), on_machine(given, *options.compile.machine));
    lowered = {};
    c.model = compile_program(std::move(rewritten), options.compile);
    c.passes.push_back({"orchestrate", c.model->stats().plan_ms});
    c.passes.push_back({"codegen", c.model->stats().codegen_ms});
}

}  // namespace

Program make_program(const Model& model, const PipelineOptions& options, std::vector<PassTime>* times) {
    return rewrite_program(lower_model(model, options, times), options, times);
}

namespace {

/// A model that nothing else holds: its weights are freed as soon as its program does not need them any more.
Compilation compile_loaded(Model model, const PipelineOptions& given, double start) {
    const double loaded = now_ms();
    Compilation c;
    PipelineOptions options = completed(given, model);
    Program lowered = lower_model(model, options, &c.passes);
    model = {};
    compile_lowered(std::move(lowered), std::move(options), given, c);
    c.load_ms = loaded - start;
    c.compile_ms = now_ms() - loaded;
    return c;
}

}  // namespace

Compilation compile_model(const Model& model, const PipelineOptions& options) {
    return compile_loaded(model, options, now_ms());
}

Compilation compile_model(const std::string& path, const PipelineOptions& options) {
    const double start = now_ms();
    return compile_loaded(load_model(path), options, start);
}

Compilation compile_model(const void* bytes, size_t size, const PipelineOptions& options) {
    const double start = now_ms();
    return compile_loaded(load_model_from_bytes(bytes, size), options, start);
}

}  // namespace tilewright
