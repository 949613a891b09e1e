#include "compile/unit.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/parallel.h"
#include "orchestrate/fuse_rows.h"
#include "orchestrate/gemm_chains.h"
#include "orchestrate/kernel_group.h"
#include "orchestrate/layouts.h"
#include "orchestrate/operators.h"
#include "orchestrate/options.h"
#include "orchestrate/split_k.h"
#include "program/analysis/contraction.h"
#include "program/transform/byte_tables.h"
#include "program/transform/merge_offsets.h"
#include "program/transform/merge_scales.h"
#include "program/transform/substitute.h"

namespace tilewright {

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

/// "$batch = 1, $seq = 128"
std::string sizes_text(const Program& program) {
    std::string text;
    for (const auto& [v, size] : program.assumed)
        text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", Expr::var(v).text(), size);
    return text;
}

std::vector<std::shared_ptr<const Program>> bodies_of(const Primitive& p) {
    if (const auto* branch = std::get_if<If>(&p.kind)) return {branch->then_branch, branch->else_branch};
    if (const auto* loop = std::get_if<Loop>(&p.kind)) return {loop->body};
    return {};
}

/// Checks that the inputs of every step are computed by earlier steps.
class Order {
  public:
    explicit Order(const Program& program)
        : p_(program), computed_(program.inputs.begin(), program.inputs.end()), producers_(program.producers()) {}

    void run(const std::vector<PrimitiveId>& members, const std::string& name) {
        for (const PrimitiveId member : members) {
            const Primitive& p = p_.primitives[member];
            computed_.insert(p.outputs.begin(), p.outputs.end());
            for (const ValueId v : p.inputs())
                TW_CHECK(!producers_[v] || computed_.count(v) != 0, "'{}' reads '{}' before it is computed", name,
                         p_.values[v].name);
        }
    }

  private:
    const Program& p_;
    std::set<ValueId> computed_;
    const IndexVector<ValueId, PrimitiveId> producers_;
};

}  // namespace

Unit make_unit(Program program, const GroupingOptions& options, bool bodies) {
    Unit unit;
    unit.grouped.program = std::move(program);
    unit.unfused = without_contents(unit.grouped.program);
    unit.selects = options.fuse && options.orchestrator == Orchestrator::Optimal;
    if (unit.selects) unit.source = unit.grouped.program;
    if (options.keep_refusals) unit.limits.refusals = std::make_shared<Refusals>();
    unit.limits.recompute = !options.without.no_redundancy;
    unit.limits.sizes_apart = options.sizes_apart;
    if (options.without.no_operator_fusion)
        unit.limits.may_share = [](const Primitive& a, const Primitive& b) { return a.origin.nodes == b.origin.nodes; };
    if (!bodies) return unit;
    for (const Primitive& p : unit.grouped.program.primitives)
        for (const auto& body : bodies_of(p))
            if (std::none_of(unit.bodies.begin(), unit.bodies.end(),
                             [&](const auto& b) { return b.first == body.get(); })) {
                Program inner = numbered(*body);
                inner.at_most = unit.grouped.program.at_most;
                inner.assumed = unit.grouped.program.assumed;
                unit.bodies.emplace_back(body.get(),
                                         std::make_shared<Unit>(make_unit(std::move(inner), options, true)));
            }
    return unit;
}

void fuse_operators(Unit& unit) {
    Program& p = unit.grouped.program;
    p = fuse_within_operators(p);
    if (unit.selects) unit.source = p;
    if (unit.limits.may_share) return;
    unit.limits.may_share = [units = OperatorUnits(p)](const Primitive& a, const Primitive& b) {
        return units.may_share(a, b);
    };
}

void merge_scales(Unit& unit) {
    Program& p = unit.grouped.program;
    p = tilewright::merge_scales(tabulate_bytes(merge_offsets(std::move(p))));
}

void assign_layouts_first(Unit& unit, const Target& target) {
    Program& p = unit.grouped.program;
    p = assign_layouts(p, target);
    if (unit.selects) unit.source = p;
}

void apply_layouts(Unit& unit, const OrchestrateOptions& planning) {
    Program& p = unit.grouped.program;
    if (unit.selects) unit.fused = without_contents(p);
    p = lay_out(std::move(p), unit.layouts, planning.scheduling.target, lay_out_options(planning, Contents::Moved));
}

void outline(Unit& unit) {
    if (!unit.fused) {
        unit.layouts.clear();
        if (unit.selects) unit.fused = without_contents(unit.grouped.program);
    }
    unit.grouped.groups = single_kernels(unit.grouped.program);
}

namespace {

/// The bound of a symbol in kernels for a sample of `size`: sizes some times larger take the same way, and buffers stay
/// small. A small declared range needs no other bound.
int64_t bound_for(int64_t size, std::optional<int64_t> declared, int64_t step) {
    constexpr int64_t kTimes = 4, kLeast = 64, kFew = 4096;
    if (declared && *declared <= kFew / step) return *declared;
    const int64_t most = std::max(kLeast / step, kTimes * size);
    return declared ? std::min(*declared, most) : most;
}

std::shared_ptr<Unit> way_for(const Unit& unit, const SizeSample& sample, bool bounded) {
    auto way = std::make_shared<Unit>();
    way->grouped = unit.grouped;
    way->limits = unit.limits;
    way->limits.refusals = nullptr;
    Program& p = way->grouped.program;
    for (const auto& [v, size] : sample.sizes) {
        p.assumed.insert_or_assign(v, size);
        const auto known = p.at_most.find(v);
        if (bounded)
            p.at_most.insert_or_assign(
                v, bound_for(size, known == p.at_most.end() ? std::nullopt : std::optional(known->second),
                             size_name(v).step));
    }
    return way;
}

}  // namespace

void sample_sizes(Unit& unit, const std::vector<SizeSample>& samples) {
    const std::set<Var> names = names_of(unit.grouped.program);
    const auto dynamic = [&](const SizeSample& s) {
        return std::any_of(s.sizes.begin(), s.sizes.end(),
                           [&](const auto& size) { return names.count(size.first) != 0; });
    };
    if (unit.selects || samples.empty() || !dynamic(samples[0])) return;
    unit.outlined = without_contents(unit.grouped.program);
    const SizeSample* largest = &samples[0];
    for (const SizeSample& s : samples) {
        unit.ways.push_back(way_for(unit, s, true));
        if (s.sizes > largest->sizes) largest = &s;
    }
    unit.ways.push_back(way_for(unit, *largest, false));
}

void merge_ways(Unit& unit, const dynamic::MergeOptions& options) {
    if (unit.ways.empty()) return;
    std::vector<dynamic::PlannedWay> ways;
    const auto add = [&](Unit& u) { ways.push_back({std::move(u.plan), std::move(u.programs), std::move(u.weights)}); };
    add(unit);
    for (const auto& way : unit.ways) add(*way);
    dynamic::PlannedWay merged = dynamic::merge_ways(unit.outlined, std::move(ways), options);
    unit.plan = std::move(merged.plan);
    unit.programs = std::move(merged.programs);
    unit.weights = std::move(merged.weights);
    unit.ways.clear();
    unit.outlined = {};
}

namespace {

/// Calls `f` for the unit, its ways and its bodies, at once unless the order is of consequence to the schedules.
template <class F>
void each_at_once(Unit& unit, const Schedules& schedules, const F& f) {
    if (!schedules.concurrent()) return unit.each(f);
    std::vector<Unit*> all;
    unit.each([&](Unit& u) { all.push_back(&u); });
    parallel_for(all.size(), [&](size_t k) { f(*all[k]); });
}

void schedule_one(Unit& unit, Schedules& schedules) {
    const Grouped given = std::move(unit.grouped);
    unit.grouped = {};
    unit.scheduled = true;
    Plan& plan = unit.plan;
    plan.program = given.program;
    // The step of a group takes the position of its last primitive.
    std::map<PrimitiveId, const KernelGroup*> ends;
    for (const KernelGroup& g : given.groups) ends[g.primitives.back()] = &g;
    Order order(plan.program);
    const KernelExtractor extracted(plan.program);
    for (const PrimitiveId id : plan.program.primitives.ids()) {
        const Primitive& primitive = plan.program.primitives[id];
        if (primitive.expr() == nullptr) {
            order.run({id}, primitive.name);
            plan.steps.push_back({id, {}});
            unit.programs.emplace_back();
            unit.weights.emplace_back();
            continue;
        }
        const auto it = ends.find(id);
        if (it == ends.end()) continue;
        const KernelGroup& group = *it->second;
        KernelBody body = extracted(group);
        KernelCall call;
        call.name = name_of(plan.program, group);
        call.tensors = body.tensors;
        call.results = body.stages.outputs.size();
        call.primitives = group.primitives;
        for (const PrimitiveId p : call.primitives) {
            const TensorExpr& e = *plan.program.primitives[p].expr();
            if (e.accesses.size() >= 2 && contraction(e)) call.products.push_back(e.extents);
        }
        order.run(call.primitives, call.name);
        body.stages.name = call.name;
        const Schedules::Scheduled& scheduled = schedules.planned(body, group.chain);
        const std::vector<bool>& weights = unit.weights.emplace_back(body.weights);
        if (const auto provided = schedules.provided(scheduled, weights)) {
            call.provided = provided->kernel;
            if (!given.generated_only) call.provider = provided->provider;
        }
        TileProgram& kernel = unit.programs.emplace_back(scheduled.program).value();
        kernel.name = kernel.stages.name = call.name;
        dynamic::drop_unneeded_bounds(kernel);
        call.estimated_seconds = scheduled.seconds;
        call.at_least_seconds = schedules.at_least(body);
        call.measured_seconds = schedules.measured(scheduled);
        call.chosen = group.chosen;
        plan.steps.push_back(Step{std::move(call), {}});
    }
}

}  // namespace

void fuse_gemm_chains(Unit& unit, Schedules& schedules) {
    if (!schedules.how().chains()) return;
    each_at_once(unit, schedules, [&](Unit& u) {
        Grouped& g = u.grouped;
        g.groups = fuse_gemm_chains(g.program, std::move(g.groups), schedules, u.limits);
    });
}

void split_k(Unit& unit, Schedules& schedules) {
    each_at_once(unit, schedules, [&](Unit& u) { split_k(u.grouped, schedules); });
}

void schedule_kernels(Unit& unit, Schedules& schedules) {
    each_at_once(unit, schedules, [&](Unit& u) { schedule_one(u, schedules); });
}

Plan merge_kernels(Unit& unit, KernelSet& kernels) {
    Plan plan = std::move(unit.plan);
    std::map<const Program*, std::shared_ptr<const Plan>> bodies;
    for (Step& step : plan.steps) {
        const auto* id = std::get_if<PrimitiveId>(&step.what);
        if (id == nullptr) continue;
        for (const auto& body : bodies_of(plan.program.primitives[*id])) {
            const auto [it, fresh] = bodies.try_emplace(body.get());
            if (fresh) it->second = std::make_shared<Plan>(merge_kernels(unit.body(body.get()), kernels));
            step.bodies.push_back(it->second);
        }
    }
    for (size_t s = 0; s < plan.steps.size(); ++s)
        if (auto* call = std::get_if<KernelCall>(&plan.steps[s].what))
            call->kernel = kernels.add(std::move(*unit.programs[s]), call->provider, unit.weights[s]);
    plan.refusals = unit.limits.refusals;
    plan.unfused = std::move(unit.unfused);
    return plan;
}

Unit& Unit::body(const Program* program) const {
    const auto it = std::find_if(bodies.begin(), bodies.end(), [&](const auto& b) { return b.first == program; });
    TW_CHECK(it != bodies.end(), "a control-flow body is not a unit");
    return *it->second;
}

Program Unit::whole_program() const {
    Program whole = program();
    const auto replace = [this](std::shared_ptr<const Program>& of) {
        of = std::make_shared<const Program>(body(of.get()).whole_program());
    };
    for (Primitive& p : whole.primitives) {
        if (auto* branch = std::get_if<If>(&p.kind)) {
            replace(branch->then_branch);
            replace(branch->else_branch);
        }
        if (auto* loop = std::get_if<Loop>(&p.kind)) replace(loop->body);
    }
    return whole;
}

std::string Unit::print() const {
    std::string text = tilewright::print(program());
    for (const auto& [v, layout] : layouts)
        text += fmt::format("layout {} \"{}\"\n", program().values[v].name, tilewright::print(layout));
    for (const KernelGroup& g : grouped.groups)
        text += fmt::format("kernel {}{}\n", g.chain ? "GEMM chain " : "", name_of(grouped.program, g));
    for (size_t s = 0; s < plan.steps.size(); ++s)
        if (programs[s]) text += tilewright::print(*programs[s]);
    for (const Region& r : plan.regions) text += fmt::format("region \"{}\": {}\n", r.name, r.dispatch.print());
    for (const Slices& x : plan.slices)
        text += fmt::format("steps {} to {} in {} slices\n", x.first, x.first + x.count - 1, x.slices);
    for (const auto& way : ways) text += fmt::format("way for {}:\n", sizes_text(way->program())) + way->print();
    for (const auto& [body, unit] : bodies) text += "body:\n" + unit->print();
    return text;
}

std::vector<std::string> Unit::faults() const {
    std::vector<std::string> out = verify(program());
    const auto add = [&](const std::vector<std::string>& more) { out.insert(out.end(), more.begin(), more.end()); };
    for (const auto& kernel : programs)
        if (kernel) add(verify(*kernel));
    for (const auto& way : ways) add(way->faults());
    for (const auto& [body, unit] : bodies) add(unit->faults());
    for (const Region& r : plan.regions) add(r.dispatch.faults());
    return out;
}

}  // namespace tilewright
