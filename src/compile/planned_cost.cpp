#include "compile/planned_cost.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "compile/pipeline.h"
#include "compile/precision_choice.h"
#include "cost/residual.h"
#include "model/compiled_model.h"
#include "orchestrate/kernel_group.h"
#include "orchestrate/options.h"

namespace tilewright {

namespace {

/// Returns the folded program without contents of constants: plans depend on their shapes alone.
Program prepared(const Program& program, FoldOptions folding, Residence constants) {
    folding.contents = false;
    Program out = fold_constants(numbered(program), folding);
    for (const auto& [v, tensor] : out.constants) out.unread.emplace(v, v.value);
    out.constants_at = constants;
    return out;
}

}  // namespace

OrchestrateOptions evaluation_options(CompileOptions options) {
    if (options.measure || searches(options.scheduler)) options.scheduler = SchedulerKind::Auto;
    options.measure = options.keep_refusals = false;
    options.joint.reset();
    OrchestrateOptions o = orchestrate_options(options);
    o.scheduling.estimates = true;
    return o;
}

bool evaluated_as_planned(const CompileOptions& options) {
    const bool profiles = options.orchestrator == Orchestrator::Optimal && options.optimal.profile != Profile::None;
    return !options.measure && !options.joint && !profiles && !searches(options.scheduler) &&
           orchestrate_options(options).scheduling.estimates;
}

RewriteSearch rewrite_search(const PipelineOptions& options, const Program& program) {
    RewriteSearch search = *options.rewrite;
    // The tiles of Winograd's transforms lose too much in fewer bits; matrix instructions outrun them.
    const bool bf16 = options.compile.precision == Precision::BF16 && target_of(options.compile).bf16_products();
    if (options.compile.numerics == Numerics::Strict || options.compile.gpu || bf16) search.rules.winograd = false;
    if (search.evaluator) return search;
    const OrchestrateOptions evaluation = evaluation_options(options.compile);
    search.margin = margin(search.margin, evaluation.scheduling.residual.get());
    const Residence constants = constants_at(program, target_of(options.compile));
    search.evaluator = planned_cost(evaluation, search.rules.folding, constants);
    search.evaluator_key = planned_cost_text(evaluation) + fmt::format(" constants {}", static_cast<int>(constants));
    search.kept = evaluation.kept;
    return search;
}

bool layouts_pay(const Program& program, const CompileOptions& options) {
    OrchestrateOptions how = evaluation_options(options);
    how.orchestrator = Orchestrator::Greedy;
    how.schedules = schedules_of(how);
    how.skip.emplace_back("annotate");  // of no consequence to the estimate
    const Program shapes = prepared(program, {}, constants_at(program, target_of(options)));
    const auto seconds = [&](bool layouts) {
        how.layouts = layouts;
        KernelSet kernels;
        return estimated_seconds(plan_program(shapes, kernels, how));
    };
    return seconds(true) < seconds(false);
}

RewriteEvaluator planned_cost(OrchestrateOptions options, FoldOptions folding, Residence constants) {
    options.orchestrator = Orchestrator::Greedy;
    options.joint.reset();
    std::shared_ptr<Schedules> schedules = schedules_of(options);
    TW_CHECK(schedules->how().estimates, "estimates need a machine");
    TW_CHECK(!schedules->how().measures(), "the evaluation of rewrites does not measure");
    return [options = std::move(options), schedules = std::move(schedules), folding,
            constants](const Program& program) {
        // Layout conversions at the program's ends belong to no primitive: they count in the total only.
        const Grouped grouped = group_kernels(prepared(program, folding, constants), options, *schedules);
        const Program& planned = grouped.program;
        PlannedCost cost;
        cost.of.resize(program.primitives.size());
        const KernelExtractor extracted(planned);
        for (const KernelGroup& g : grouped.groups) {
            const KernelBody body = extracted(g);
            const double its =
                kKernelSeconds + (g.chain ? schedules->chain(body)->seconds : schedules->kernel(body).seconds);
            cost.total += its;
            Origin made_of;
            for (const PrimitiveId id : g.primitives) made_of.add(planned.primitives[id].origin);
            std::vector<double> work;
            double all = 0;
            for (const uint32_t part : made_of.parts)
                all +=
                    work.emplace_back(rough_operations(*program.primitives[PrimitiveId(part)].expr(), program.assumed));
            for (size_t k = 0; k < work.size(); ++k) cost.of[PrimitiveId(made_of.parts[k])] += its * work[k] / all;
        }
        return cost;
    };
}

Residence constants_at(const Program& program, const Target& target) {
    if (target.gpu) return Residence::Near;
    const int64_t bytes = bytes_of_constants(program);
    if (bytes > target.last_cache_bytes()) return Residence::Memory;
    return bytes > target.l2_bytes() ? Residence::LastCache : Residence::Near;
}

std::string planned_cost_text(const OrchestrateOptions& options) {
    const Ablations& w = options.without;
    std::string joint;
    if (const auto& j = options.joint)
        joint = fmt::format(" joint {} {} {} {} {} {} {:a}", j->search.most_points, j->search.constructed,
                            j->search.levels, j->store_biases, j->most_layouts, j->most_combinations, j->solve_seconds);
    if (options.joint && options.joint->ppo)
        joint += fmt::format(" ppo {} {} {}", options.joint->ppo->joint, options.joint->ppo->loops,
                             options.joint->ppo->seed);
    if (options.joint && options.joint->without != joint::Ablation::None)
        joint += fmt::format(" without {}", static_cast<int>(options.joint->without));
    return fmt::format("plans fuse {} layouts {}{} skip {} f32 {} {} without {} {} {} {} {} apart {} {}", options.fuse,
                       options.layouts, joint, fmt::join(options.skip, " "), fmt::join(options.f32_products.nodes, " "),
                       fmt::join(options.f32_products.results, " "), w.no_fission, w.no_operator_fusion,
                       w.no_redundancy, w.single_output, w.layouts_first, options.sizes_apart,
                       scheduling_text(options.scheduling));
}

}  // namespace tilewright
