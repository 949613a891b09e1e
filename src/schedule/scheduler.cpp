#include "schedule/scheduler.h"

#include <algorithm>
#include <random>
#include <set>

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

/// The fastest of what it is given, measured sixteen at a time.
class Fastest {
  public:
    Fastest(TileProgram first, const Scheduling& how) : how_(how), best_(std::move(first)) {
        const double seconds = how.measure({best_})[0];
        if (seconds >= 0) seconds_ = seconds;
    }
    void add(TileProgram t) {
        batch_.push_back(std::move(t));
        if (batch_.size() == 16) flush();
    }
    TileProgram result() {
        flush();
        return std::move(best_);
    }

  private:
    void flush() {
        if (batch_.empty()) return;
        const std::vector<double> times = how_.measure(batch_);
        for (size_t i = 0; i < batch_.size(); ++i)
            if (times[i] >= 0 && times[i] < seconds_) {
                seconds_ = times[i];
                best_ = std::move(batch_[i]);
            }
        batch_.clear();
    }

    const Scheduling& how_;
    TileProgram best_;
    double seconds_ = 1e300;
    std::vector<TileProgram> batch_;
};

/// Many random states of the space.
TileProgram searched(const Program& stages, const construct::Problem& p, TileProgram rule, const Scheduling& how) {
    std::mt19937_64 rng(how.seed);
    std::set<construct::Etir> seen;
    Fastest fastest(std::move(rule), how);
    for (int k = 0; k < how.trials; ++k) {
        const auto r = construct::realise(p, construct::random_state(p, rng));
        if (seen.insert(r.state).second) fastest.add(construct::to_tile_program(stages, p, r));
    }
    return fastest.result();
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

TileProgram make_schedule(Program stages, const IndexVector<PrimitiveId, std::vector<size_t>>& row_axes,
                          const Scheduling& how) {
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
    if (!how.machine) return std::nullopt;
    const auto c = chain::make_chain(stages);
    if (!c || c->tiled.size() > kMostTiled) return std::nullopt;
    if (how.kind == SchedulerKind::Search && how.measure) {
        std::vector<chain::Found> all =
            chain::sample(*c, *how.machine, how.rule, static_cast<size_t>(how.trials), how.seed);
        if (all.empty()) return std::nullopt;
        Fastest fastest(std::move(all[0].program), how);
        for (size_t k = 1; k < all.size(); ++k) fastest.add(std::move(all[k].program));
        return fastest.result();
    }
    chain::SearchOptions options;
    options.seed = how.seed;
    options.measure = how.measure;
    chain::SearchResult found = chain::search(*c, *how.machine, how.rule, options);
    if (found.top.empty()) return std::nullopt;
    return std::move(found.top[0].program);
}

}  // namespace tilewright
