#include "schedule/scheduler.h"

#include <algorithm>
#include <random>
#include <set>

#include "cost/gpu_estimate.h"
#include "schedule/chain/search.h"
#include "schedule/construct/walk.h"

namespace tilewright {

namespace {

constexpr std::pair<SchedulerKind, std::string_view> kNames[] = {
    {SchedulerKind::Default, "default"}, {SchedulerKind::Tree, "tree"},     {SchedulerKind::Gensor, "gensor"},
    {SchedulerKind::Mcfuser, "mcfuser"}, {SchedulerKind::Search, "search"}, {SchedulerKind::Auto, "auto"},
};

/// Axes of a chain: with more (chains of convolutions) there are more orders of loops than a search should look at.
constexpr size_t kMostTiled = 6;

/// By how much the model must prefer a constructed schedule over the rule's: its own error.
constexpr double kConvinced = 0.93;

bool constructible(const Program& stages) {
    if (stages.primitives.size() != 1) return false;
    const TensorExpr& e = *stages.primitives[PrimitiveId(0)].expr();
    for (const Expr& x : e.extents)
        if (!x.is_constant() || x.constant() < 1) return false;
    return !e.extents.empty();
}

/// Many random states of the space, measured sixteen at a time.
TileProgram searched(const Program& stages, const construct::Problem& p, TileProgram best, const Scheduling& how) {
    std::mt19937_64 rng(how.seed);
    std::set<std::vector<std::vector<int64_t>>> seen;
    double seconds = how.measure({best})[0];
    std::vector<TileProgram> batch;
    const auto flush = [&] {
        if (batch.empty()) return;
        const std::vector<double> times = how.measure(batch);
        for (size_t i = 0; i < batch.size(); ++i)
            if (times[i] >= 0 && times[i] < seconds) {
                seconds = times[i];
                best = std::move(batch[i]);
            }
        batch.clear();
    };
    for (int k = 0; k < how.trials; ++k) {
        const auto r = construct::realise(p, construct::random_state(p, rng));
        if (!seen.insert(r.state.tiles).second) continue;
        batch.push_back(construct::to_tile_program(stages, p, r));
        if (batch.size() == 16) flush();
    }
    flush();
    return best;
}

}  // namespace

std::string_view to_string(SchedulerKind kind) {
    for (const auto& [k, name] : kNames)
        if (k == kind) return name;
    return "?";
}

std::optional<SchedulerKind> scheduler_from_string(std::string_view name) {
    for (const auto& [k, text] : kNames)
        if (text == name) return k;
    return std::nullopt;
}

double Scheduling::estimate_of(const TileProgram& program) const {
    if (gpu) return gpu_estimate(program, gpu->target).seconds;
    return machine ? estimate(program, *machine).seconds : 0;
}

double Scheduling::bound_of(const Program& stages) const {
    if (gpu) return gpu_lower_bound(stages, gpu->target);
    return machine ? lower_bound(stages, *machine, {}, true) : 0;
}

TileProgram make_schedule(Program stages, const IndexVector<PrimitiveId, std::vector<size_t>>& row_axes,
                          const Scheduling& how) {
    if (how.gpu) return gpu_schedule(std::move(stages), row_axes, *how.gpu);
    TileProgram rule = default_schedule(stages, row_axes, how.rule);
    if (!how.constructs() || how.kind == SchedulerKind::Mcfuser || !constructible(stages)) return rule;
    const construct::Problem p = construct::make_problem(stages, how.rule, *how.machine);
    if (!p.micro.vector_axis) return rule;
    if (how.kind == SchedulerKind::Search && how.measure) return searched(stages, p, std::move(rule), how);
    construct::WalkOptions options;
    options.seed = how.seed;
    const construct::Constructed found =
        how.kind == SchedulerKind::Tree ? construct::construct_tree(p) : construct::construct(p, options);
    if (how.kind == SchedulerKind::Auto && found.top[0].seconds > kConvinced * estimate(rule, *how.machine).seconds)
        return rule;
    return construct::to_tile_program(std::move(stages), p, found.top[0]);
}

std::optional<TileProgram> make_chain_schedule(const Program& stages, const Scheduling& how) {
    if (!how.machine && !how.gpu) return std::nullopt;
    const auto c = chain::make_chain(stages);
    if (!c || c->tiled.size() > kMostTiled) return std::nullopt;
    chain::SearchOptions options;
    options.seed = how.seed;
    options.measure = how.measure;
    if (how.gpu) return gpu_chain_schedule(*c, *how.gpu, options);
    chain::SearchResult found = chain::search(*c, *how.machine, how.rule, options);
    if (found.top.empty()) return std::nullopt;
    return std::move(found.top[0].program);
}

}  // namespace tilewright
