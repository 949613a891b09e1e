#include "compile/pipeline.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/clock.h"
#include "base/error.h"
#include "base/suggest.h"
#include "compile/executable.h"
#include "compile/f32_nodes.h"
#include "compile/limits.h"
#include "compile/measured_costs.h"
#include "compile/option_error.h"
#include "compile/planned_cost.h"
#include "compile/precision_choice.h"
#include "compile/random_inputs.h"
#include "compile/tune_plan.h"
#include "compile/tuned_plan.h"
#include "compile/unit.h"
#include "compile/whole_runs.h"
#include "cost/annotate_options.h"
#include "cost/residual.h"
#include "graph/import.h"
#include "model/model_sources.h"
#include "ops/lowering.h"
#include "orchestrate/append_in_place.h"
#include "orchestrate/fuse.h"
#include "orchestrate/fuse_rows.h"
#include "orchestrate/joint/tune_layouts.h"
#include "orchestrate/kernel_group.h"
#include "orchestrate/layouts.h"
#include "orchestrate/operators.h"
#include "orchestrate/optimal/orchestrate.h"
#include "orchestrate/options.h"
#include "orchestrate/slices.h"
#include "orchestrate/window_runs.h"
#include "program/rewrite/guards.h"
#include "program/transform/canonical.h"
#include "program/transform/common_subexpressions.h"
#include "program/transform/dead_code.h"
#include "program/transform/fold.h"
#include "program/transform/index_masks.h"
#include "program/transform/integer_products.h"
#include "program/transform/quantised_weights.h"
#include "program/transform/widen_storage.h"

namespace tilewright {

namespace {

/// Without inputs, outputs and plan.
std::unique_ptr<CompiledModel::Impl> new_model() {
    auto out = std::make_unique<CompiledModel::Impl>();
    out->sources = std::make_shared<ModelSources>();
    return out;
}

/// Combinations of dynamic sizes that kernels are made for.
constexpr size_t kMostSamples = 6;

/// What the passes read and write.
struct State {
    std::optional<Model> model;
    Program program;                   ///< as the passes have left it, until `isolate_bodies`
    std::optional<Program> quantised;  ///< as lowered, for `reference`, if `integer_products` changed it
    Program lowered;                   ///< before it was rewritten
    Program reference;                 ///< likewise, for Compilation::program
    Program rewritten;                 ///< for Compilation::rewritten
    Program unplanned;                 ///< what is planned again to confirm measurements, and to tune
    ChoiceKey tuned_key;               ///< of `unplanned`, for tuned plans
    std::optional<TunedPlan> tuned;    ///< whose schedules are used
    bool lays_out = false;             ///< `compare_layouts` has found layouts to pay
    RewriteReport rewrites;
    OrchestrateOptions planning;           ///< from `isolate_bodies` on
    std::shared_ptr<Schedules> schedules;  ///< likewise
    std::optional<Unit> unit;              ///< likewise, until `merge_kernels`
    bool planned = false;                  ///< `merge_kernels` has run: out->plan replaces the program
    double scheduled_before_ms = 0;        ///< of the schedules
    OrchestrationReport selection;
    joint::Report tuned_layouts;
    PrecisionChoice precision;
    std::vector<SizeSample> samples;  ///< of dynamic sizes, from `isolate_bodies` on
    std::unique_ptr<CompiledModel::Impl> out = new_model();

    Passes::Subject subject();
};

Passes::Subject State::subject() {
    const auto text = [this] {
        if (unit) return unit->print();
        if (!planned) return print(program);
        std::string s = out->plan.steps.empty() ? print(out->plan.program) : out->plan.print();
        for (const TileProgram& k : out->sources->kernels.kernels()) s += print(k);
        return s;
    };
    const auto faults = [this] {
        if (unit) return unit->faults();
        return verify(planned ? out->plan.program : program);
    };
    const auto result = [this]() -> PassResult {
        if (unit) return {nullptr, &*unit, nullptr};
        if (planned) return {nullptr, nullptr, &out->plan};
        return {&program, nullptr, nullptr};
    };
    return {text, faults, result};
}

LowerOptions lowering_options(const CompileOptions& options) {
    LowerOptions o;
    o.dims = options.dims;
    o.ranges = options.ranges;
    o.check_values = options.check_values;
    o.operators = options.operators;
    o.assume_all = o.check_inputs = !options.gpu;  // one plan for all sizes; a step of the host would cut its graph
    return o;
}

bool falls_back(const Program& program) {
    return std::any_of(program.requirements.begin(), program.requirements.end(),
                       [](const Requirement& r) { return r.when == Requirement::Check::Fallback; });
}

/// The model without what its checks are about.
std::function<std::shared_ptr<const CompiledModel>()> strict_model(Program lowered, PipelineOptions options) {
    options.compile.numerics = Numerics::Strict;
    options.compile.schedules = nullptr;
    options.compile.joint.reset();
    options.compile.kv_cache = options.compile.tuned = false;
    options.compile.tune = nullptr;
    options.passes.progress = nullptr;
    options.passes.after = nullptr;
    options.passes.print = nullptr;
    options.passes.print_before = options.passes.print_after = {};
    options.passes.print_before_all = options.passes.print_after_all = false;
    return [lowered = std::move(lowered), options] {
        return compile_program(rewrite_program(lowered, options), options.compile);
    };
}

/// Whether the plan is compared with the one by estimates.
bool confirms(const CompileOptions& c) {
    return (c.measure || c.tuned || (c.layouts && c.joint && c.joint->measure)) && !c.gpu;
}

/// Plans with tuned schedules if the tuning database has them.
void use_tuned_schedules(State& s, const CompileOptions& c) {
    s.tuned = confirmed_plan(c, s.tuned_key);
    if (s.tuned && !s.tuned->layouts.empty()) use_tuned_layouts(s.planning, s.tuned->layouts);
    if (s.tuned)
        s.planning.schedules =
            std::make_shared<Schedules>(s.planning.scheduling, s.planning.kept,
                                        std::make_shared<const TunedSchedules>(std::move(s.tuned->schedules)));
}

/// Planning of `unplanned` once more, without tuned schedules.
OrchestrateOptions planning_again(const State& s, const CompileOptions& c) {
    OrchestrateOptions planning = s.planning;
    planning.layouts = c.layouts;
    planning.schedules = nullptr;
    if (planning.joint) planning.joint->decided = nullptr;
    return planning;
}

/// Of tuned plans, only the one is used that whole runs have confirmed.
void check_tuned_plan(State& s, const CompileOptions& c) {
    KernelSet& kernels = s.out->sources->kernels;
    if (!s.tuned || plan_hash(s.out->plan, kernels) == s.tuned->hash) return;
    if (c.warn)
        c.warn("the tuned plan is not used: this compiler makes another one of it; run `tilewright tune` again");
    kernels = {};
    s.out->plan = plan_program(std::move(s.unplanned), kernels, planning_again(s, c));
}

void tune(State& s, const CompileOptions& c) { c.tune({*s.out, s.unplanned, planning_again(s, c), s.tuned_key, c}); }

void confirm_measurements(State& s, const CompileOptions& c) {
    if (c.tuned)
        check_tuned_plan(s, c);
    else
        keep_faster_plan(*s.out, std::move(s.unplanned), c, s.planning.remember);
}

/// From here on the program is a unit, and so is each body of its control flow.
void isolate_bodies(State& s, const PipelineOptions& options, const OrchestrateOptions* planning) {
    const CompileOptions& c = options.compile;
    describe_interface(*s.out, s.program, c);
    if (planning == nullptr) {  // rewrites may have made another program
        if (!s.lowered.values.empty()) {
            s.program.at_most = s.lowered.at_most;
            s.program.assumed = s.lowered.assumed;
        }
        s.program.constants_at = constants_at(s.program, target_of(c));
    }
    s.lowered = {};
    const auto& ranges = planning != nullptr ? planning->ranges : c.ranges;
    const std::optional<AppendedRows> rows =
        s.out->appends.empty() ? std::nullopt : appended_rows(s.program, s.out->appends);
    s.samples = rows ? decoding_samples(s.program, ranges, rows->before, rows->added, kMostSamples)
                     : size_samples(s.program, ranges, kMostSamples);
    if (options.keep_rewritten) s.rewritten = s.program;
    if (planning != nullptr) {
        s.planning = *planning;
    } else {
        s.planning = orchestrate_options(c, bytes_of_constants(s.program));
        s.planning.layouts |= s.lays_out;
        if (c.inputs && kernel_costs(s.planning.scheduling)->measures_kernels())
            s.planning.run = plan_runner(*s.out, c);
        if (confirms(c) || c.tune) s.unplanned = s.program;
        if (!c.gpu && (c.tuned || c.tune)) s.tuned_key = tuned_plan_key(s.program, s.planning);
        if (!c.gpu && c.tuned) use_tuned_schedules(s, c);
    }
    if (s.planning.without.layouts_first) s.planning.layouts = false;  // `assign_layouts` applies them
    search_jointly(s.planning.scheduling, s.samples, c);
    s.schedules = schedules_of(s.planning);
    s.scheduled_before_ms = s.schedules->spent_ms();
    // Bodies stay as they are from here on: passes that remove dead code find none in them.
    s.unit = make_unit(numbered(eliminate_dead_code(std::move(s.program))), s.planning, true);
    s.program = {};
}

/// Ways are compared by estimates.
void merge_ways(State& s) {
    const Scheduling& how = s.planning.scheduling;
    dynamic::MergeOptions options;
    options.samples = s.samples;
    options.seconds = [&](const TileProgram& kernel, const Bindings& sizes) {
        const StageModels models = stage_models(kernel.stages, sizes);
        return corrected_seconds(kernel, how.target, models, sizes, how.residual.get()) + kKernelSeconds;
    };
    s.unit->each_with_ways([&](Unit& u) { merge_ways(u, options); });
}

void tune_layouts(State& s, Unit& u, const joint::Options& options) {
    ChosenLayouts tuned = joint::tune_layouts({std::move(u.grouped.program), std::move(u.layouts)}, *s.schedules,
                                              options, s.tuned_layouts);
    u.grouped.program = std::move(tuned.program);
    u.layouts = std::move(tuned.values);
}

void integer_products(State& s, bool reference) {
    IntegerProducts report;
    Program before = s.program;
    s.program = tilewright::integer_products(std::move(s.program), &report);
    if (reference && report.products > 0) s.quantised = std::move(before);
}

void quantised_weights(State& s, bool reference) {
    QuantisedWeights report;
    Program before = s.program;
    s.program = tilewright::quantised_weights(std::move(s.program), &report);
    if (reference && report.products > 0 && !s.quantised) s.quantised = std::move(before);
}

/// What results are compared with.
Program reference_of(State& s) {
    if (!s.quantised) return s.program;
    Program p = merge_common_subexpressions(fold_constants(std::move(*s.quantised)));
    s.quantised.reset();
    return eliminate_dead_code(std::move(p));
}

/// What results are compared with, and what rewrites begin with.
void keep_lowered(State& s, const PipelineOptions& o) {
    check_limits(s.program);
    s.reference = o.reference ? reference_of(s) : without_contents(s.program);
    s.lowered = o.strict ? read_by_guards(s.program) : s.program;  // contents of constants are shared
}

void guard_winograd(State& s, const PipelineOptions& options) {
    s.program = tilewright::guard_winograd(std::move(s.program), s.lowered);
    if (!falls_back(s.program)) return;
    s.out->make_fallback = options.strict;
    if (!options.strict) s.out->make_fallback = strict_model(std::move(s.lowered), options);
}

/// Tensors of bf16 are read as they are by matrix instructions, and of f16 where products may be sums of f16.
std::set<DType> widened_types(const Target& target) {
    if (target.bf16_products()) return {DType::F16};
    return target.f16_sums() ? std::set{DType::BF16} : std::set{DType::F16, DType::BF16};
}

void gather_window_runs(Unit& u) {
    u.grouped.program = tilewright::gather_window_runs(std::move(u.grouped.program), MatrixType::I8);
}

void choose_layouts(Unit& u, const Target& target) {
    ChosenLayouts chosen = tilewright::choose_layouts(u.grouped.program, target);
    u.grouped.program = std::move(chosen.program);
    u.layouts = std::move(chosen.values);
}

void annotate(Unit& u, const Target& target) {
    for (std::optional<TileProgram>& kernel : u.programs)
        if (kernel) kernel = tilewright::annotate(std::move(*kernel), annotate_options(target));
}

void append_in_place(State& s) {
    s.out->appends = tilewright::append_in_place(s.program);
    if (s.out->appends.empty())
        throw OptionError(
            "the model has no input that an output extends: nothing for a KV cache",
            "compile it without a KV cache; an output extends an input where it is Concat(input, ...), and "
            "the input's dimension there is dynamic, without steps");
}

RunGrouped group_runner(const OrchestrateOptions& options, const std::shared_ptr<Schedules>& schedules);

/// The pipeline. `planning`: in place of what the options say of planning; may be null.
void run_pipeline(State& s, const PipelineOptions& o, Passes& pass, const OrchestrateOptions* planning = nullptr) {
    const CompileOptions& c = o.compile;
    const GroupingOptions& how = planning != nullptr ? static_cast<const GroupingOptions&>(*planning) : c;
    const bool gpu = planning != nullptr ? planning->scheduling.target.gpu.has_value() : c.gpu.has_value();
    const Precision precision = planning != nullptr ? planning->scheduling.precision : c.precision;
    const bool rewrites = o.rewrite.has_value();
    const bool bytes = !gpu && (planning != nullptr ? planning->scheduling.target : target_of(c)).byte_dots();
    const bool select = how.fuse && how.orchestrator == Orchestrator::Optimal;
    const auto each = [&s](const auto& f) { return [&s, f] { s.unit->each(f); }; };

    // Operators to tensor expressions.
    pass({"lower", "operators become tensor expressions (operator fission)", true, true}, [&] {
        s.program = lower(*s.model, lowering_options(c));
        s.model.reset();
    });
    pass({"dead_code", "expressions that no output needs are removed"},
         [&] { s.program = eliminate_dead_code(std::move(s.program)); });
    pass({"integer_products", "quantised products become sums of bytes", bytes},
         [&] { integer_products(s, o.reference); });
    pass({"quantised_weights", "products decode quantised weights", !gpu}, [&] { quantised_weights(s, o.reference); });
    pass({"fold_constants", "expressions of constants are computed"}, [&] { s.program = fold_constants(s.program); });
    pass({"common_subexpressions", "equal expressions become one"},
         [&] { s.program = eliminate_dead_code(merge_common_subexpressions(std::move(s.program))); });
    pass({"check_limits", "inputs, outputs and constants must fit in memory", true, true}, [&] { keep_lowered(s, o); });
    pass({"append_in_place", "outputs that extend inputs share their memory (--kv-cache)", c.kv_cache && !gpu},
         [&] { append_in_place(s); });

    // Tensor expressions to cheaper ones.
    pass({"widen_storage", "computed tensors of 16 bits become f32", !gpu && c.numerics != Numerics::Strict},
         [&] { s.program = widen_storage(std::move(s.program), widened_types(target_of(c))); });
    pass({"scales_behind_products", "constant factors move from a product's operands to its result"},
         [&] { s.program = scales_behind_products(s.program); });
    pass({"rewrite", "the program becomes the cheapest equivalent one that is found (TASO, Korch)", rewrites},
         [&] { s.program = rewrite(s.program, rewrite_search(o, s.program), &s.rewrites); });
    pass({"fold_rewritten", "expressions of constants are computed, equal ones become one", rewrites}, [&] {
        s.program = merge_common_subexpressions(fold_constants(std::move(s.program), o.rewrite->rules.folding));
        check_limits(s.program);
    });
    pass({"index_masks", "constant triangles become comparisons", gpu}, [&] { s.program = index_masks(s.program); });
    pass({"guard_winograd", "inputs for which Winograd's convolutions are inexact run the program without them",
          rewrites && c.numerics == Numerics::Default},
         [&] { guard_winograd(s, o); });

    // Tensor expressions to kernels.
    pass({"compare_layouts", "ordinary cores of a GPU get layouts if the plan costs less with them",
          compares_layouts(c) && planning == nullptr},
         [&] { s.lays_out = layouts_pay(s.program, c); });
    pass({"isolate_bodies", "bodies of loops and branches become programs of their own", true, true},
         [&] { isolate_bodies(s, o, planning); });
    const bool layouts = s.planning.layouts && !how.without.layouts_first;
    pass({"fuse_operators", "expressions of one operator are fused first (--no-fission)",
          how.fuse && how.without.no_fission},
         each([](Unit& u) { fuse_operators(u); }));
    pass({"assign_layouts", "layouts are applied before expressions are fused (--layouts-first)",
          how.layouts && how.without.layouts_first && !gpu},
         each([&s](Unit& u) { assign_layouts_first(u, s.planning.scheduling.target); }));
    pass({"fuse", "elementwise expressions join reductions before them, and their readers", how.fuse},
         each([](Unit& u) { u.grouped.program = fuse_greedily(u.grouped.program, u.limits); }));
    pass({"merge_scales", "scales between sums and quantisations become one, functions of a byte tables", how.fuse},
         each([](Unit& u) { merge_scales(u); }));
    pass({"window_runs", "windows of few channels become contiguous for sums of bytes", bytes},
         each([](Unit& u) { gather_window_runs(u); }));
    pass({"choose_precision", "products stay in f32 for their error or time (--max-error, --precision auto)",
          planning == nullptr && !gpu && is_narrow(precision) && (c.max_error > 0 || c.where_faster)},
         [&] { choose_precision(*s.unit, c, s.planning, s.precision); });
    pass({"narrow_operands", "products on matrix units get operands of 16 bits, rounded or as sums of terms",
          narrows(c, planning)},
         each([&s](Unit& u) { narrow_operands(u, s.planning, &s.precision); }));
    pass({"choose_layouts", "values of convolutions and products get blocked layouts", layouts},
         each([&s](Unit& u) { choose_layouts(u, s.planning.scheduling.target); }));
    pass({"tune_layouts", "layouts are chosen with loops (ALT; --layouts joint)", layouts && how.joint && !gpu},
         each([&s](Unit& u) { tune_layouts(s, u, *s.planning.joint); }));
    pass({"apply_layouts", "index maps follow the layouts, and weights are packed", layouts},
         each([&s](Unit& u) { apply_layouts(u, s.planning); }));
    pass({"outline", "every expression becomes a kernel of its own", true, true}, each([](Unit& u) { outline(u); }));
    pass({"sample_sizes", "dynamic sizes are planned for sample by sample (DietCode)",
          how.fuse && !gpu && !select && !s.samples.empty()},
         [&] { s.unit->each_with_ways([&](Unit& u) { sample_sizes(u, s.samples); }); });
    pass({"fuse_rows", "kernels that share rows become one", how.fuse},
         each([](Unit& u) { u.grouped.groups = fuse_rows(u.grouped.program, u.limits); }));
    pass({"fuse_gemm_chains", "products that feed each other become one kernel (MCFuser)", how.fuse},
         [&] { fuse_gemm_chains(*s.unit, *s.schedules); });
    pass({"single_outputs", "a kernel of several results becomes several (--single-output)", how.without.single_output},
         each([](Unit& u) { u.grouped.groups = with_single_outputs(u.grouped.program, u.grouped.groups); }));
    pass({"select", "the cheapest set of kernels, by a binary program (Korch; --orchestrate optimal)", select},
         each([&s](Unit& u) {
             const bool whole = &u == &*s.unit && u.bodies.empty() && s.planning.run;
             u.grouped = optimal::group_optimally(u.source, {{*u.fused, u.layouts}, u.grouped}, s.planning,
                                                  *s.schedules, u.limits, s.selection,
                                                  whole ? group_runner(s.planning, s.schedules) : RunGrouped());
         }));
    pass({"split_k", "long sums of few results become several kernels", how.fuse},
         [&] { split_k(*s.unit, *s.schedules); });
    pass({"schedule", "each kernel becomes a tile program (Gensor)", true, true},
         [&] { schedule_kernels(*s.unit, *s.schedules); });
    pass({"slice", "kernels run slice by slice where what they pass on then stays in cache", how.fuse && !gpu},
         each([&s](Unit& u) { u.plan.slices = slice(u.plan, u.programs, s.planning.scheduling.target); }));
    pass({"annotate",
          "tile programs say how their code is generated: accumulators, prefetches, tails; vectors on a GPU", true},
         each([&s](Unit& u) { annotate(u, s.planning.scheduling.target); }));
    pass({"merge_ways", "plans for samples become one that chooses kernels by size (DietCode)", true, true},
         [&] { merge_ways(s); });
    pass({"merge_kernels", "kernels of equal text become one", true, true}, [&] {
        s.out->plan = merge_kernels(*s.unit, s.out->sources->kernels);
        s.out->plan.schedule_ms = s.schedules->spent_ms() - s.scheduled_before_ms;
        if (!s.tuned_layouts.contractions.empty() && c.note) c.note("layouts: " + s.tuned_layouts.print());
        if (select) s.out->plan.optimal = std::make_shared<OrchestrationReport>(std::move(s.selection));
        s.unit.reset();
        s.planned = true;
    });
    pass({"confirm_measurements", "the plan by measurements must be faster than the one by estimates", confirms(c)},
         [&] { confirm_measurements(s, c); });
    pass({"tune", "schedules are measured within a budget (`tilewright tune`)", c.tune && !c.gpu}, [&] { tune(s, c); });

    // Kernels to code.
    pass({"generate_code", "tile programs become machine code, or CUDA C++", true, true},
         [&] { generate_code(*s.out, c); });
    pass({"place_constants", "smaller constants move into one block of huge pages", c.code},
         [&] { gather_constants(s.out->plan); });
}

/// Kernels of a program in groups, as they would be run.
RunGrouped group_runner(const OrchestrateOptions& options, const std::shared_ptr<Schedules>& schedules) {
    return [&options, schedules](const std::vector<Grouped>& all) {
        KernelSet kernels;
        std::vector<Plan> plans;
        for (const Grouped& grouped : all) {
            State s;
            s.planning = options;
            s.schedules = schedules;
            s.unit.emplace();
            s.unit->grouped = grouped;
            s.out->sources->kernels = std::move(kernels);
            Passes pass({}, options.skip, s.subject(), {"split_k", "merge_kernels"});
            run_pipeline(s, {}, pass, &options);
            plans.push_back(std::move(s.out->plan));
            kernels = std::move(s.out->sources->kernels);
        }
        return run_grouped(std::move(plans), kernels, options.run);
    };
}

/// Resolves the names of products that stay in f32.
void complete_precision(CompileOptions& c, const Model& model) {
    c.f32_products.nodes.merge(f32_nodes(model.graph, c.keep_f32));
    const bool chooses = c.max_error > 0 || c.where_faster || !c.keep_f32.empty();
    if (chooses && c.gpu)
        throw OptionError("products of a GPU are not chosen for f32 one by one",
                          "give --keep-f32, --max-error and --precision auto for a CPU only");
    if (!(c.max_error >= 0))
        throw OptionError(fmt::format("{} is no largest error", c.max_error), "give a number of at least 0");
    if (c.kv_cache && (c.max_error > 0 || c.where_faster))
        throw OptionError("the errors of a model with a KV cache are not measured",
                          "measure it without the cache (verify --max-error), then give those products (--keep-f32)");
}

/// Options of one compilation: the machine is read once, and kernels that are scheduled to evaluate rewrites are the
/// plan's as well.
PipelineOptions completed(PipelineOptions options, const Model& model) {
    check_pass_names(options.passes, options.compile.skip);
    for (const auto& [name, size] : options.compile.dims)
        require_dimension(name, fmt::format("dimension {} = {}", quoted_name(name), size), dimension_names(model));
    for (const auto& [name, range] : options.compile.ranges) {
        const std::string setting = fmt::format("dimension {} = {}", quoted_name(name), to_string(range));
        require_dimension(name, setting, dimension_names(model));
        if (options.compile.dims.count(name) != 0)
            throw OptionError(fmt::format("{}: it is {} already", setting, options.compile.dims.at(name)),
                              "give a dimension one size or one range");
    }
    complete_machine(options.compile);
    complete_precision(options.compile, model);
    if (model.external_data) options.strict = nullptr;  // its weights' files may change
    if (options.compile.kv_cache && options.compile.gpu)
        throw OptionError("sessions on a GPU have no KV cache", "compile for a GPU without a KV cache");
    if (options.rewrite && evaluated_as_planned(options.compile)) {
        const OrchestrateOptions evaluation = evaluation_options(options.compile);
        options.compile.schedules = std::make_shared<Schedules>(evaluation.scheduling, evaluation.kept);
    }
    for (const GraphInput& o : model.graph.outputs) options.compile.output_names.push_back(o.name);
    if (!options.compile.inputs)
        options.compile.inputs = [measure = options.compile.measure](const std::vector<ModelIo>& declared) {
            // Sizes of dynamic dimensions are unknown: whole runs only with --measure.
            const bool dynamic = std::any_of(declared.begin(), declared.end(), [](const ModelIo& io) {
                return std::any_of(io.shape.begin(), io.shape.end(), [](Expr d) { return !d.is_constant(); });
            });
            return dynamic && !measure ? std::vector<Tensor>() : random_inputs(declared);
        };
    return options;
}

/// A model that nothing else holds: its weights are freed as soon as its program does not need them any more.
Compilation compile_once(Model model, const PipelineOptions& given, double start) {
    const double loaded = now_ms();
    const PipelineOptions options = completed(given, model);
    Compilation c;
    c.info = std::move(model.info);
    c.external_data = model.external_data;
    State s;
    s.model = std::move(model);
    Passes pass(options.passes, options.compile.skip, s.subject());
    run_pipeline(s, options, pass);
    c.program = std::move(s.reference);
    c.rewritten = std::move(s.rewritten);
    c.rewrites = std::move(s.rewrites);
    s.precision.f32_products = s.planning.f32_products;
    if (is_narrow(options.compile.precision) && !options.compile.gpu)
        c.precision = std::make_shared<const PrecisionChoice>(std::move(s.precision));
    c.passes = pass.times();
    c.model = finished(std::move(s.out), c.passes);
    c.load_ms = loaded - start;
    c.compile_ms = now_ms() - loaded;
    return c;
}

/// Products of 16 bits where they are faster.
Compilation compile_where_faster(Model model, PipelineOptions options, double start) {
    complete_machine(options.compile);
    PipelineOptions exact = options;
    exact.compile.precision = Precision::F32;
    exact.compile.where_faster = false;
    PipelineOptions plan = exact;  // with rewrites for f32, such as Winograd's convolutions
    plan.compile.code = plan.reference = false;
    plan.compile.skip.emplace_back("sample_sizes");
    std::optional<double> seconds;
    PrecisionChoice choice;
    choice.available = false;
    for (const Precision precision : faster_precisions(target_of(options.compile))) {
        options.compile.precision = precision;
        Compilation c = compile_once(model, options, start);
        PrecisionChoice found = *c.precision;
        if (!seconds) seconds = estimated_seconds(compile_once(model, plan, start).model->plan());
        found.f32_seconds = seconds;
        if (found.rounded() > 0 && found.seconds <= found.f32_seconds) {
            c.precision = std::make_shared<const PrecisionChoice>(std::move(found));
            return c;
        }
        found.note = found.rounded() == 0 ? fmt::format("no product is left in {}", to_string(precision))
                                          : "f32 is estimated to be faster";
        for (PrecisionChoice::Product& p : found.products)
            if (p.reason == PrecisionReason::Rounded) p.reason = PrecisionReason::Slower;
        if (!choice.available) choice = std::move(found);
    }
    Compilation c = compile_once(std::move(model), exact, start);
    c.precision = std::make_shared<const PrecisionChoice>(std::move(choice));
    return c;
}

Compilation compile_loaded(Model model, const PipelineOptions& options, double start) {
    const CompileOptions& c = options.compile;
    if (c.where_faster && is_narrow(c.precision) && !c.gpu)
        return compile_where_faster(std::move(model), options, start);
    return compile_once(std::move(model), options, start);
}

}  // namespace

RewriteSearch default_rewrites() {
    RewriteSearch search;
    search.rules.winograd = true;
    search.rules.folding.work = int64_t{1} << 29;
    search.rules.folding.total_work = int64_t{1} << 33;
    return search;
}

Compilation compile_model(const Model& model, const PipelineOptions& options) {
    return compile_loaded(model, options, now_ms());
}

Compilation compile_model(const std::string& path, const PipelineOptions& options) {
    const double start = now_ms();
    return compile_loaded(load_model(path, {}, options.compile.functions), options, start);
}

Compilation compile_model(const void* bytes, size_t size, const PipelineOptions& options) {
    const double start = now_ms();
    return compile_loaded(load_model_from_bytes(bytes, size, {}, {}, options.compile.functions), options, start);
}

std::shared_ptr<const CompiledModel> compile_program(Program program, const CompileOptions& options) {
    State s;
    s.program = std::move(program);
    PipelineOptions o;
    o.compile = options;
    Passes pass({}, options.skip, s.subject(), {"compare_layouts", {}});
    run_pipeline(s, o, pass);
    return finished(std::move(s.out), pass.times());
}

Program lower_model(const Model& model, const PipelineOptions& options) {
    State s;
    s.model = model;
    Passes pass(options.passes, options.compile.skip, s.subject(), {{}, "common_subexpressions"});
    run_pipeline(s, options, pass);
    return std::move(s.program);
}

Program rewrite_program(Program program, const PipelineOptions& options, RewriteReport* report) {
    State s;
    s.lowered = program;
    s.program = std::move(program);
    Passes pass(options.passes, options.compile.skip, s.subject(), {"scales_behind_products", "guard_winograd"});
    run_pipeline(s, options, pass);
    if (report != nullptr) *report = std::move(s.rewrites);
    return std::move(s.program);
}

Program make_program(const Model& model, const PipelineOptions& options) {
    return rewrite_program(lower_model(model, options), options);
}

Plan plan_program(Program program, KernelSet& kernels, const OrchestrateOptions& options, const PassOptions& passes) {
    State s;
    s.program = std::move(program);
    s.out->sources->kernels = std::move(kernels);
    Passes pass(passes, options.skip, s.subject(), {"isolate_bodies", "merge_kernels"});
    run_pipeline(s, {}, pass, &options);
    kernels = std::move(s.out->sources->kernels);
    return std::move(s.out->plan);
}

Grouped group_kernels(Program program, const OrchestrateOptions& options, Schedules& schedules) {
    State s;
    s.planning = options;
    s.schedules = std::shared_ptr<Schedules>(&schedules, [](Schedules*) {});
    s.unit = make_unit(std::move(program), options, false);
    Passes pass({}, options.skip, s.subject(), {"fuse_operators", "split_k"});
    run_pipeline(s, {}, pass, &options);
    return std::move(s.unit->grouped);
}

std::vector<PassInfo> pipeline_passes() {
    State s;
    Passes pass;
    run_pipeline(s, {}, pass);
    return pass.infos();
}

void check_pass_names(const PassOptions& options, const std::vector<std::string>& skip) {
    const std::vector<PassInfo> passes = pipeline_passes();
    std::vector<std::string> names;
    for (const PassInfo& p : passes) names.emplace_back(p.name);
    const auto check = [&](const std::string& name, bool skips) {
        const auto it = std::find(names.begin(), names.end(), name);
        if (it == names.end()) {
            const std::vector<std::string> near = closest_names(name, names);
            throw OptionError(fmt::format("there is no pass '{}'", name),
                              near.empty() ? "`tilewright passes` lists them"
                                           : fmt::format("did you mean {}?", fmt::join(near, " or ")));
        }
        if (skips && passes[static_cast<size_t>(it - names.begin())].required)
            throw OptionError(fmt::format("pass '{}' cannot be skipped", name),
                              "`tilewright passes` lists those that can");
    };
    for (const std::string& name : skip) check(name, true);
    for (const std::string& name : options.print_before) check(name, false);
    for (const std::string& name : options.print_after) check(name, false);
}

}  // namespace tilewright
