#include "schedule/scheduler.h"

#include <algorithm>
#include <random>
#include <set>

#include "cost/annotate_options.h"
#include "cost/residual.h"
#include "program/analysis/contraction.h"
#include "program/analysis/dynamic.h"
#include "program/constant_transform.h"
#include "schedule/candidate_search.h"
#include "schedule/chain/search.h"
#include "schedule/construct/walk.h"
#include "schedule/default/decoded_panels.h"
#include "schedule/dynamic/joint_schedules.h"
#include "schedule/search_annotations.h"
#include "schedule/spaces.h"
#include "tile/walk.h"

namespace tilewright {

namespace {

constexpr std::pair<SchedulerKind, std::string_view> kNames[] = {
    {SchedulerKind::Default, "default"},
    {SchedulerKind::Tree, "tree"},
    {SchedulerKind::Gensor, "gensor"},
    {SchedulerKind::GensorPlain, "gensor-plain"},
    {SchedulerKind::GensorPublished, "gensor-published"},
    {SchedulerKind::GensorPublishedPlain, "gensor-published-plain"},
    {SchedulerKind::Mcfuser, "mcfuser"},
    {SchedulerKind::Search, "search"},
    {SchedulerKind::DietCode, "dietcode"},
    {SchedulerKind::Auto, "auto"},
};

/// Maximum number of a chain's axes: with more (chains of convolutions) there are too many loop orders to search.
constexpr size_t kMostTiled = 6;

/// A constructed schedule replaces the default one only if its estimate is lower by this margin, which is the error of
/// the model.
constexpr double kConstructedMargin = 0.12;

bool constructible(const Program& stages) {
    if (stages.primitives.size() != 1) return false;
    const TensorExpr& e = *stages.primitives[PrimitiveId(0)].expr();
    for (const Expr& x : e.extents)
        if (x.is_constant() ? x.constant() < 1 : !sizes_assumed(stages, x)) return false;
    // Copies and elementwise stages have no reuse, so tiles do not help. The tile of a constant-coefficient linear
    // transform is the whole matrix.
    return !e.extents.empty() && e.reducer != Reducer::None && !constant_transform(e);
}

/// Searches annotations as well for SchedulerKind::Search, if schedules can be measured.
TileProgram with_annotations(TileProgram program, const Scheduling& how) {
    if (how.kind != SchedulerKind::Search || !how.measures()) return program;
    return search_annotations(std::move(program), *how.costs, annotate_options(how.target));
}

/// The states of one space.
class StateSearch final : public CandidateSearch {
  public:
    StateSearch(Program stages, construct::Problem problem, uint64_t seed)
        : stages_(std::move(stages)), problem_(std::move(problem)), rng_(seed) {
        construct::WalkOptions options;
        options.seed = seed;
        for (const construct::Realised& r : construct::construct(problem_, options).top) walked_.push_back(r);
    }

    std::vector<TileProgram> next(size_t most) override {
        batch_.clear();
        std::vector<TileProgram> programs;
        const auto add = [&](const construct::Realised& r) {
            if (!seen_.insert(r.key()).second) return;
            batch_.push_back(r.state);
            programs.push_back(construct::to_tile_program(stages_, problem_, r));
        };
        for (; at_ < walked_.size() && programs.size() < most; ++at_) add(walked_[at_]);
        for (size_t tries = 0; tries < kTries * most && programs.size() < most; ++tries) {
            const bool random = best_.empty() || rng_() % 2 == 0;
            add(construct::realise(problem_,
                                   random ? construct::random_state(problem_, rng_)
                                          : construct::mutated(problem_, best_[rng_() % best_.size()].second, rng_)));
        }
        return programs;
    }

    void tell(const std::vector<double>& seconds) override {
        for (size_t i = 0; i < batch_.size(); ++i)
            if (seconds[i] >= 0) best_.emplace_back(seconds[i], std::move(batch_[i]));
        std::stable_sort(best_.begin(), best_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
        if (best_.size() > kParents) best_.resize(kParents);
        batch_.clear();
    }

  private:
    static constexpr size_t kParents = 8;
    static constexpr size_t kTries = 10;  ///< in a small space, few tries give a new state

    const Program stages_;
    const construct::Problem problem_;
    std::mt19937_64 rng_;
    std::vector<construct::Realised> walked_;
    size_t at_ = 0;  ///< of these, the next one
    std::set<construct::Realised::Key> seen_;
    std::vector<construct::Etir> batch_;                    ///< of the last next()
    std::vector<std::pair<double, construct::Etir>> best_;  ///< seconds, ascending
};

/// The fastest of many measured states, measured sixteen at a time.
TileProgram searched(const Program& stages, const construct::Problem& p, TileProgram initial, const Scheduling& how) {
    constexpr size_t kBatch = 16;
    StateSearch search(stages, p, how.seed);
    double best = how.costs->measure_schedules({initial})[0];
    for (size_t left = static_cast<size_t>(how.trials); left > 0;) {
        std::vector<TileProgram> batch = search.next(std::min(kBatch, left));
        if (batch.empty()) break;
        left -= batch.size();
        const std::vector<double> seconds = how.costs->measure_schedules(batch);
        search.tell(seconds);
        for (size_t i = 0; i < batch.size(); ++i)
            if (seconds[i] >= 0 && (best < 0 || seconds[i] < best)) {
                best = seconds[i];
                initial = std::move(batch[i]);
            }
    }
    return initial;
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

EstimatedCosts estimated_costs(const Scheduling& how) {
    return EstimatedCosts(how.estimated() ? std::optional(how.target) : std::nullopt, how.residual);
}

std::shared_ptr<const KernelCosts> kernel_costs(const Scheduling& how) {
    return how.costs ? how.costs : std::make_shared<const EstimatedCosts>(estimated_costs(how));
}

namespace {

constexpr size_t kMeasuredProducts = 8;  ///< schedules of a product on a GPU, of the default heuristic's list

bool uses_warpgroups(const TileProgram& p) {
    const Walk tree = walk(p);
    return std::any_of(tree.computes.begin(), tree.computes.end(),
                       [](const auto& c) { return c.second->micro.matrix && c.second->micro.matrix->group(); });
}

/// Whether a stage runs on a CPU's matrix instructions, for which the default heuristic enumerates the register tiles.
bool uses_matrix_instructions(const TileProgram& p) {
    const Walk tree = walk(p);
    return std::any_of(tree.computes.begin(), tree.computes.end(), [](const auto& c) {
        const auto& unit = c.second->micro.matrix;
        return unit && (unit->tile() || unit->dot());
    });
}

/// The search spaces of a kernel. On a GPU with WGMMA, warpgroup instructions have a space of their own.
std::vector<construct::Problem> problems(const Program& stages, const Scheduling& how) {
    std::vector<construct::Problem> out;
    if (!how.target.gpu) {
        out.push_back(construct::make_problem(stages, how.target));
        return out;
    }
    for (const bool group : {false, true})
        if (auto p = construct::make_gpu_problem(stages, how.target, how.precision, group))
            out.push_back(std::move(*p));
    return out;
}

/// Whether blocks of factors that are computed at run time are packed. Estimates did not see what that saves, rows of
/// the right factor that share few sets of the caches, when these were measured:
///     [256, 768] x [768, 2304]: packed 9.9 ms and estimated 10.3, 14.7 and 8.9 without
bool packs_blocks(const TileProgram& p) {
    const Walk w = walk(p);
    return !w.loads.empty() && w.has_partial_sums(p, PrimitiveId(0));
}

}  // namespace

Spaces spaces_of(Program stages, const IndexVector<PrimitiveId, std::vector<size_t>>& row_axes, const Scheduling& how) {
    if (auto panels = decoded_panels(stages, how.target)) return {std::move(*panels), {}};
    Spaces out;
    out.initial = how.target.gpu ? gpu_schedule(std::move(stages), row_axes, how.target, how.precision)
                                 : default_schedule(std::move(stages), row_axes, how.target);
    const TileProgram& initial = out.initial;
    if (!how.constructs() || how.kind == SchedulerKind::Mcfuser || !constructible(initial.stages) ||
        uses_matrix_instructions(initial) ||
        (how.kind == SchedulerKind::Auto && !how.target.gpu && packs_blocks(initial)))
        return out;
    // Pruned if even the lower bound exceeds the margin.
    const std::shared_ptr<const KernelCosts> costs = kernel_costs(how);
    if (how.kind == SchedulerKind::Auto &&
        costs->lower_bound(initial.stages) >=
            (1 - margin(kConstructedMargin, how.residual.get())) * costs->estimate(initial))
        return out;
    out.all = problems(initial.stages, how);
    // A copy along an axis without a bound has no buffer where a constructed tree places it.
    const std::vector<Expr>& extents = initial.stages.primitives[PrimitiveId(0)].expr()->extents;
    if (std::any_of(extents.begin(), extents.end(), [&](Expr x) { return !most_value(x, initial.stages.at_most); }))
        std::erase_if(out.all, [](const construct::Problem& p) { return !p.loads.empty(); });
    if (!out.all.empty() && !(out.all[0].micro.vector_axis || out.all[0].micro.matrix)) out.all.clear();
    return out;
}

namespace {

/// Whether the walk is the paper's, without what walk.h adds to it.
bool as_published(SchedulerKind kind) {
    return kind == SchedulerKind::GensorPublished || kind == SchedulerKind::GensorPublishedPlain;
}

TileProgram make_tiles(Program given, const IndexVector<PrimitiveId, std::vector<size_t>>& row_axes,
                       const Scheduling& how) {
    auto [initial, all] = spaces_of(std::move(given), row_axes, how);
    if (all.empty()) return std::move(initial);
    const std::shared_ptr<const KernelCosts> costs = kernel_costs(how);
    const double enough = (1 - margin(kConstructedMargin, how.residual.get())) * costs->estimate(initial);
    Program stages = initial.stages;
    const bool measures = costs->measures_schedules();
    if (how.kind == SchedulerKind::Search && measures) {
        for (const construct::Problem& p : all) initial = searched(stages, p, std::move(initial), how);
        return std::move(initial);
    }
    construct::WalkOptions options;
    options.seed = how.seed;
    const bool plain = how.kind == SchedulerKind::GensorPlain || how.kind == SchedulerKind::GensorPublishedPlain;
    options.virtual_threads = !plain;
    options.climb = !as_published(how.kind);
    std::vector<std::pair<const construct::Problem*, construct::Realised>> top;
    for (const construct::Problem& p : all) {
        options.also.clear();
        const bool group = p.micro.matrix && p.micro.matrix->group();
        if (group == uses_warpgroups(initial) && !as_published(how.kind))
            options.also.push_back(construct::state_of(p, initial));
        const construct::Constructed found =
            how.kind == SchedulerKind::Tree ? construct::construct_tree(p) : construct::construct(p, options);
        for (const construct::Realised& r : found.top) top.emplace_back(&p, r);
    }
    std::stable_sort(top.begin(), top.end(),
                     [](const auto& a, const auto& b) { return a.second.seconds < b.second.seconds; });
    if (measures) {
        std::vector<TileProgram> candidates;
        if (how.kind == SchedulerKind::Auto) candidates.push_back(std::move(initial));
        if (how.kind == SchedulerKind::Auto && how.target.gpu)
            for (TileProgram& t : gpu_product_schedules(stages, how.target, how.precision, kMeasuredProducts))
                candidates.push_back(std::move(t));
        for (const auto& [p, r] : top) candidates.push_back(construct::to_tile_program(stages, *p, r));
        return fastest(std::move(candidates), *costs);
    }
    if (how.kind == SchedulerKind::Auto && top[0].second.seconds > enough) return std::move(initial);
    return construct::to_tile_program(std::move(stages), *top[0].first, top[0].second);
}

}  // namespace

TileProgram make_schedule(Program stages, const IndexVector<PrimitiveId, std::vector<size_t>>& row_axes,
                          const Scheduling& how) {
    if (how.kind == SchedulerKind::DietCode) {
        if (how.joint && how.measures())
            if (auto found = how.joint->schedule(stages, row_axes, how)) return *std::move(found);
        Scheduling searching = how;
        searching.kind = SchedulerKind::Search;
        return make_schedule(std::move(stages), row_axes, searching);
    }
    return with_annotations(make_tiles(std::move(stages), row_axes, how), how);
}

namespace {

/// Whether a product of the stages, alone in a kernel, runs on matrix instructions. The schedules of chains do not use
/// them.
bool has_matrix_product(const Program& stages, const Target& target) {
    if (!(target.bf16_products() || target.byte_dots()) || target.gpu) return false;
    return std::any_of(stages.primitives.begin(), stages.primitives.end(), [&](const Primitive& p) {
        return p.expr() != nullptr &&
               choose_micro(stages, *p.expr(), stages.values[p.outputs[0]].dtype, target).micro.matrix.has_value();
    });
}

/// The precision of a chain's products: where all of their operands are stored in one type of 16 bits, they are
/// multiplied in that type, wherever in the kernel an operand is rounded to it.
Precision precision_of(const Program& stages, const Scheduling& how) {
    if (how.precision != Precision::F32) return how.precision;
    std::set<DType> types;
    for (const Primitive& p : stages.primitives) {
        const TensorExpr* e = p.expr();
        const auto product = e != nullptr && chain::is_link(*e) ? contraction(*e) : std::nullopt;
        if (!product) continue;
        for (const Contraction::Factor& f : product->factors)
            types.insert(stages.values[e->accesses[*f.slot].value].dtype);
    }
    if (types == std::set<DType>{DType::F16}) return Precision::F16;
    if (types == std::set<DType>{DType::BF16}) return Precision::BF16;
    return Precision::F32;
}

}  // namespace

namespace {

/// The chain that the stages are; nothing if they are none, or one that is not searched.
std::optional<chain::Chain> searchable_chain(const Program& stages, const Scheduling& how) {
    if (!how.estimated() || has_matrix_product(stages, how.target)) return std::nullopt;
    auto c = chain::make_chain(how.target.gpu ? chain::unrounded(stages) : stages);
    if (!c || c->tiled.size() > kMostTiled) return std::nullopt;
    return c;
}

/// Programs in a given order.
class ListedSearch final : public CandidateSearch {
  public:
    explicit ListedSearch(std::vector<TileProgram> all) : all_(std::move(all)) {}

    std::vector<TileProgram> next(size_t most) override {
        std::vector<TileProgram> out;
        for (; at_ < all_.size() && out.size() < most; ++at_) out.push_back(std::move(all_[at_]));
        return out;
    }
    void tell(const std::vector<double>&) override {}

  private:
    std::vector<TileProgram> all_;
    size_t at_ = 0;
};

}  // namespace

std::unique_ptr<CandidateSearch> search_states(Program stages,
                                               const IndexVector<PrimitiveId, std::vector<size_t>>& row_axes,
                                               const Scheduling& how) {
    Spaces spaces = spaces_of(std::move(stages), row_axes, how);
    if (spaces.all.empty()) return nullptr;
    return std::make_unique<StateSearch>(std::move(spaces.initial.stages), std::move(spaces.all[0]), how.seed);
}

std::unique_ptr<CandidateSearch> search_chain(const Program& stages, const Scheduling& how, size_t most) {
    const auto c = searchable_chain(stages, how);
    if (!c || how.target.gpu) return nullptr;
    std::vector<TileProgram> all;
    for (chain::Found& f : chain::sample(*c, how.target, most, how.seed, how.chains_without))
        all.push_back(std::move(f.program));
    return std::make_unique<ListedSearch>(std::move(all));
}

std::optional<TileProgram> make_chain_schedule(const Program& stages, const Scheduling& how, double replaces) {
    const auto c = searchable_chain(stages, how);
    if (!c) return std::nullopt;
    if (how.kind == SchedulerKind::Search && how.measures() && how.estimates) {
        std::vector<TileProgram> all;
        const auto trials = static_cast<size_t>(how.trials);
        for (chain::Found& f : chain::sample(*c, how.target, trials, how.seed, how.chains_without))
            all.push_back(std::move(f.program));
        if (all.empty()) return std::nullopt;
        return with_annotations(fastest(std::move(all), *how.costs), how);
    }
    chain::SearchOptions options;
    options.seed = how.seed;
    options.costs = how.costs.get();
    options.replaces = replaces;
    options.without = how.chains_without;
    if (how.target.gpu) return gpu_chain_schedule(*c, how.target, precision_of(stages, how), options);
    chain::SearchResult found = chain::search(*c, how.target, options);
    if (found.top.empty()) return std::nullopt;
    return std::move(found.top[0].program);
}

}  // namespace tilewright
