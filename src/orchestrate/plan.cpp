#include "orchestrate/plan.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "base/error.h"
#include "orchestrate/operators.h"
#include "orchestrate/optimal/orchestrate.h"
#include "orchestrate/slices.h"

namespace tilewright {

size_t KernelSet::add(TileProgram kernel, const std::string& provider, const std::vector<bool>& weights) {
    std::string text = print_without_names(kernel);
    if (!provider.empty()) {
        text += provider + ' ';
        for (const bool weight : weights) text += weight ? 'c' : 'v';
    }
    const auto [it, fresh] = by_text_.try_emplace(std::move(text), kernels_.size());
    if (fresh) {
        kernels_.push_back(std::move(kernel));
        provided_.push_back({provider, provider.empty() ? std::vector<bool>() : weights});
    }
    return it->second;
}

KernelBody extract(const Program& program, const KernelGroup& group) {
    KernelBody body;
    Program& p = body.stages;
    const std::set<PrimitiveId> inside(group.primitives.begin(), group.primitives.end());
    std::map<ValueId, ValueId> local;
    std::set<ValueId> made;
    for (const PrimitiveId id : group.primitives) made.insert(program.primitives[id].outputs[0]);
    const auto add = [&](ValueId v, const char* kind, size_t number) {
        Value value = program.values[v];
        value.name = fmt::format("{}{}", kind, number);
        return local[v] = p.values.push_back(std::move(value));
    };
    // Inputs in order of first use.
    for (const PrimitiveId id : group.primitives)
        for (const ValueId v : program.primitives[id].inputs())
            if (made.count(v) == 0 && local.count(v) == 0) {
                p.inputs.push_back(add(v, "in", p.inputs.size()));
                body.tensors.push_back(v);
            }
    const auto consumers = program.consumers();
    const std::set<ValueId> results(program.outputs.begin(), program.outputs.end());
    std::vector<ValueId> outputs;
    for (const PrimitiveId id : group.primitives) {
        const Primitive& original = program.primitives[id];
        const ValueId out = original.outputs[0];
        const bool leaves = results.count(out) != 0 || std::any_of(consumers[out].begin(), consumers[out].end(),
                                                                   [&](PrimitiveId c) { return inside.count(c) == 0; });
        const ValueId mine = leaves ? add(out, "out", outputs.size()) : add(out, "local", p.values.size());
        if (leaves) {
            p.outputs.push_back(mine);
            outputs.push_back(out);
        }
        Primitive copy = original;
        copy.name = fmt::format("stage{}", p.primitives.size());
        copy.source.clear();
        copy.origin = {};
        copy.outputs = {mine};
        for (Access& a : copy.expr()->accesses) a.value = local.at(a.value);
        p.primitives.push_back(std::move(copy));
    }
    body.tensors.insert(body.tensors.end(), outputs.begin(), outputs.end());
    for (const std::vector<size_t>& rows : group.row_axes) body.row_axes.push_back(rows);
    return body;
}

namespace {

std::string name_of(const Program& program, const KernelGroup& group) {
    std::string name;
    for (const PrimitiveId id : group.primitives) {
        if (!name.empty()) name += " + ";
        name += program.primitives[id].name;
        if (name.size() > 120) return name + " ...";
    }
    return name;
}

}  // namespace

namespace {

/// Each kernel that gives several values as one kernel for each of its stages.
std::vector<KernelGroup> with_single_outputs(const Program& program, const std::vector<KernelGroup>& groups) {
    std::vector<KernelGroup> out;
    for (const KernelGroup& g : groups) {
        if (extract(program, g).stages.outputs.size() == 1)
            out.push_back(g);
        else
            for (const PrimitiveId id : g.primitives) out.push_back({{id}, {{}}, false});
    }
    return out;
}

}  // namespace

namespace {

ChosenLayouts choose_greedily(Program program, const OrchestrateOptions& options, const FusionLimits& limits) {
    ChosenLayouts chosen;
    chosen.program = options.fuse ? fuse_greedily(program, limits) : program;
    program = {};
    if (options.layouts) chosen = choose_layouts(chosen.program, options.target);
    return chosen;
}

/// Kernels of a program that is laid out.
Grouped kernels_of(Program laid, const OrchestrateOptions& options, Schedules& schedules, const FusionLimits& limits) {
    Grouped out;
    out.groups = group_rows(laid, options.fuse, limits);
    if (options.fuse && schedules.how().chains())
        out.groups = group_chains(laid, std::move(out.groups), schedules, limits);
    if (options.without.single_output) out.groups = with_single_outputs(laid, out.groups);
    out.program = std::move(laid);
    return out;
}

}  // namespace

GreedyGroups group_greedily(const Program& program, const OrchestrateOptions& options, Schedules& schedules,
                            const FusionLimits& limits) {
    GreedyGroups out;
    out.chosen = choose_greedily(program, options, limits);
    out.grouped = kernels_of(
        options.layouts ? lay_out(out.chosen.program, out.chosen.values, options.target) : out.chosen.program, options,
        schedules, limits);
    return out;
}

Program without_contents(Program program) {
    for (auto& [v, tensor] : program.constants) tensor = Tensor();
    return program;
}

namespace {

Grouped group(Program program, OrchestrateOptions options, Schedules& schedules, OrchestrationReport& report,
              const RunGrouped& run) {
    const Ablations& without = options.without;
    FusionLimits limits;
    limits.recompute = !without.no_redundancy;
    std::optional<OperatorUnits> units;
    if (without.no_fission && options.fuse) {
        program = fuse_within_operators(program);
        units.emplace(program);
        limits.may_share = [&](const Primitive& a, const Primitive& b) { return units->may_share(a, b); };
    }
    if (without.no_operator_fusion)
        limits.may_share = [](const Primitive& a, const Primitive& b) { return a.origin.nodes == b.origin.nodes; };
    if (without.layouts_first && options.layouts) {
        program = assign_layouts(program, options.target);
        options.layouts = false;
    }
    if (options.fuse && options.orchestrator == Orchestrator::Optimal)
        return optimal::group_optimally(program, options, schedules, limits, report, run);
    ChosenLayouts chosen = choose_greedily(std::move(program), options, limits);
    if (options.layouts) chosen.program = lay_out(std::move(chosen.program), chosen.values, options.target);
    return kernels_of(std::move(chosen.program), options, schedules, limits);
}

}  // namespace

Program numbered(Program program) {
    for (const PrimitiveId id : program.primitives.ids()) program.primitives[id].origin.parts = {id.value};
    return program;
}

Grouped group_kernels(Program program, const OrchestrateOptions& options, Schedules& schedules,
                      OrchestrationReport* report, const RunGrouped& run) {
    OrchestrationReport unwanted;
    Grouped out = group(std::move(program), options, schedules, report != nullptr ? *report : unwanted, run);
    if (options.fuse) split_sums(out, schedules);
    return out;
}

namespace {

Plan orchestrate(Program program, KernelSet& kernels, const OrchestrateOptions& options, Schedules& schedules,
                 OrchestrationReport& report);

/// Bodies of control flow are orchestrated by themselves.
Plan plan_of(Grouped given, KernelSet& kernels, OrchestrateOptions options, Schedules& schedules,
             OrchestrationReport& report) {
    options.run = {};
    auto& [grouped, groups, ours] = given;
    Plan plan;
    plan.program = std::move(grouped);
    // Position of every primitive's step: a group runs where its last primitive stands.
    std::map<PrimitiveId, const KernelGroup*> ends;
    for (const KernelGroup& g : groups) ends[g.primitives.back()] = &g;
    // Two groups that each need something of the other (none may be made) would read what is not there yet.
    std::set<ValueId> there(plan.program.inputs.begin(), plan.program.inputs.end());
    const IndexVector<ValueId, PrimitiveId> producers = plan.program.producers();
    const auto must_run = [&](const std::vector<PrimitiveId>& members, const std::string& name) {
        for (const PrimitiveId member : members) {
            const Primitive& p = plan.program.primitives[member];
            there.insert(p.outputs.begin(), p.outputs.end());
            for (const ValueId v : p.inputs())
                TW_CHECK(!producers[v] || there.count(v) != 0, "'{}' reads '{}' before it is computed", name,
                         plan.program.values[v].name);
        }
    };
    std::vector<std::optional<TileProgram>> programs;  // per step
    std::vector<std::vector<bool>> weights;            // likewise: which inputs are constants
    for (const PrimitiveId id : plan.program.primitives.ids()) {
        const Primitive& primitive = plan.program.primitives[id];
        if (primitive.expr() == nullptr) {
            must_run({id}, primitive.name);
            Step step;
            step.what = id;
            if (const auto* branch = std::get_if<If>(&primitive.kind))
                for (const auto& body : {branch->then_branch, branch->else_branch})
                    step.bodies.push_back(
                        std::make_shared<Plan>(orchestrate(*body, kernels, options, schedules, report)));
            if (const auto* loop = std::get_if<Loop>(&primitive.kind))
                step.bodies.push_back(
                    std::make_shared<Plan>(orchestrate(*loop->body, kernels, options, schedules, report)));
            plan.steps.push_back(std::move(step));
            programs.emplace_back();
            weights.emplace_back();
            continue;
        }
        const auto it = ends.find(id);
        if (it == ends.end()) continue;
        KernelBody body = extract(plan.program, *it->second);
        KernelCall call;
        call.name = name_of(plan.program, *it->second);
        call.tensors = body.tensors;
        call.primitives = it->second->primitives;
        must_run(call.primitives, call.name);
        body.stages.name = call.name;
        const Schedules::Scheduled& scheduled = it->second->chain ? *schedules.chain(body) : schedules.kernel(body);
        TileProgram kernel = scheduled.program;
        kernel.name = call.name;
        kernel.stages.name = call.name;
        weights.emplace_back();
        for (size_t i = 0; i < body.stages.inputs.size(); ++i)
            weights.back().push_back(plan.program.is_constant(body.tensors[i]));
        if (const auto provided = schedules.provided(scheduled, weights.back())) {
            call.provided = provided->kernel;
            if (!ours) call.provider = provided->provider;
        }
        programs.emplace_back(std::move(kernel));
        call.estimated_seconds = scheduled.seconds;
        call.at_least_seconds = schedules.at_least(body);
        call.measured_seconds = schedules.measured(scheduled);
        call.chosen = it->second->chosen;
        plan.steps.push_back(Step{std::move(call), {}});
    }
    if (options.fuse && !schedules.how().gpu) plan.slices = take_in_slices(plan, programs, options.target);
    for (size_t s = 0; s < plan.steps.size(); ++s)
        if (auto* call = std::get_if<KernelCall>(&plan.steps[s].what))
            call->kernel = kernels.add(std::move(*programs[s]), call->provider, weights[s]);
    return plan;
}

std::vector<GroupedTimes> run_grouped(const std::vector<Grouped>& all, const OrchestrateOptions& options,
                                      Schedules& schedules) {
    KernelSet kernels;
    std::vector<Plan> plans;
    std::vector<std::vector<std::optional<size_t>>> chosen;  // per step
    std::vector<std::vector<std::string>> provided;          // likewise
    OrchestrationReport unwanted;
    for (Grouped grouped : all) {
        split_sums(grouped, schedules);
        plans.push_back(plan_of(std::move(grouped), kernels, options, schedules, unwanted));
        chosen.emplace_back();
        provided.emplace_back();
        for (const Step& step : plans.back().steps) {
            const auto* call = std::get_if<KernelCall>(&step.what);
            chosen.back().push_back(call == nullptr ? std::nullopt : call->chosen);
            provided.back().push_back(call == nullptr ? "" : call->provided);
        }
    }
    const std::vector<PlanTimes> times = options.run(std::move(plans), kernels);
    if (times.size() != all.size()) return {};
    std::vector<GroupedTimes> out;
    for (size_t k = 0; k < times.size(); ++k) {
        out.push_back({times[k].seconds, {}, {}});
        for (size_t i = 0; i < chosen[k].size(); ++i) {
            if (chosen[k][i]) out.back().chosen[*chosen[k][i]] += times[k].steps.at(i);
            if (!provided[k][i].empty()) out.back().provided[provided[k][i]] += times[k].steps.at(i);
        }
    }
    return out;
}

Plan orchestrate(Program program, KernelSet& kernels, const OrchestrateOptions& options, Schedules& schedules,
                 OrchestrationReport& report) {
    program = numbered(std::move(program));
    Program unfused = without_contents(program);
    RunGrouped run;
    // The time of a body's kernels is in the step that it is part of.
    const bool straight = std::all_of(program.primitives.begin(), program.primitives.end(), [](const Primitive& p) {
        return !std::holds_alternative<If>(p.kind) && !std::holds_alternative<Loop>(p.kind);
    });
    if (options.run && straight)
        run = [&](const std::vector<Grouped>& all) { return run_grouped(all, options, schedules); };
    Plan plan = plan_of(group_kernels(std::move(program), options, schedules, &report, run), kernels, options,
                        schedules, report);
    plan.unfused = std::move(unfused);
    return plan;
}

}  // namespace

Scheduling scheduling(const OrchestrateOptions& options) {
    Scheduling how = options.scheduling;
    how.rule = options.target;
    return how;
}

Plan orchestrate(Program program, KernelSet& kernels, const OrchestrateOptions& options) {
    std::shared_ptr<Schedules> schedules = options.schedules;
    if (!schedules)
        schedules = std::make_shared<Schedules>(scheduling(options), options.measure, options.kept, options.recall);
    OrchestrationReport report;
    const double spent = schedules->spent_ms();
    Plan plan = orchestrate(std::move(program), kernels, options, *schedules, report);
    plan.schedule_ms = schedules->spent_ms() - spent;
    if (options.fuse && options.orchestrator == Orchestrator::Optimal) plan.optimal = std::move(report);
    return plan;
}

std::string Plan::print() const {
    std::string s;
    for (size_t i = 0; i < steps.size(); ++i) {
        if (const auto* call = std::get_if<KernelCall>(&steps[i].what)) {
            s += fmt::format("{:4} kernel {} \"{}\" (", i, call->kernel, call->name);
            for (size_t k = 0; k < call->tensors.size(); ++k)
                s += fmt::format("{}{}: {}{}", k > 0 ? ", " : "", program.values[call->tensors[k]].name,
                                 tilewright::to_string(program.values[call->tensors[k]].dtype),
                                 tilewright::to_string(std::span<const Expr>(program.values[call->tensors[k]].shape)));
            s += ")\n";
        } else {
            s += fmt::format("{:4} {}\n", i, program.primitives[std::get<PrimitiveId>(steps[i].what)].name);
        }
        for (const auto& body : steps[i].bodies) s += "  body:\n" + body->print();
    }
    for (const Slices& x : slices)
        s += fmt::format("steps {} to {} in {} slices\n", x.first, x.first + x.count - 1, x.slices);
    if (optimal) s += "optimal: " + optimal->print() + "\n";
    return s;
}

}  // namespace tilewright
