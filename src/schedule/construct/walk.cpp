#include "schedule/construct/walk.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/random.h"

namespace tilewright::construct {

namespace {

/// A state of WalkOptions::also stays first unless another state's estimate is below this share of its time: smaller
/// differences are noise of the model.
constexpr double kSeedMargin = 0.98;

/// Ranks distinct states by estimate.
class Ranking {
  public:
    explicit Ranking(const Problem& problem) : p_(problem) {}

    const Realised& add(Etir e) {
        e.level = 0;
        const auto it = all_.lower_bound(e);
        if (it != all_.end() && it->first == e) return it->second;
        Realised realised = realise(p_, e);
        return all_.emplace_hint(it, std::move(e), std::move(realised))->second;
    }

    std::vector<Realised> best(size_t n) const {
        std::vector<const Realised*> order;
        for (const auto& [e, r] : all_) order.push_back(&r);
        std::stable_sort(order.begin(), order.end(),
                         [](const Realised* a, const Realised* b) { return a->seconds < b->seconds; });
        std::vector<Realised> out;
        std::set<std::vector<std::vector<int64_t>>> tiles;  // several states may round to one program
        for (const Realised* r : order) {
            if (out.size() == n) break;
            if (tiles.insert(r->state.tiles).second) out.push_back(*r);
        }
        return out;
    }
    size_t size() const { return all_.size(); }

  private:
    const Problem& p_;
    std::map<Etir, Realised> all_;
};

/// Hill climbing along single edges, at any level.
void climb(const Problem& p, Ranking& ranking, const Realised& from, bool virtual_threads) {
    Etir at = from.state, e;
    round_to_sizes(p, at);
    double best = from.seconds;
    for (int round = 0; round < 12; ++round) {
        std::optional<Etir> next;
        for (size_t l = 0; l < p.levels(); ++l) {
            at.level = l;
            for (size_t a = 0; a < p.stage.extents.size(); ++a)
                for (const auto kind : {Action::Kind::Tile, Action::Kind::InverseTile, Action::Kind::SetVThread}) {
                    if (kind == Action::Kind::SetVThread && !virtual_threads) continue;
                    e = at;
                    if (!advance(p, e, {kind, a}, false) || !fits(p, e, 0)) continue;  // tiles may exceed a cache
                    const Realised& r = ranking.add(e);
                    if (r.seconds >= best * 0.999) continue;
                    best = r.seconds;
                    next = e;
                }
        }
        if (!next) return;
        at = *next;
    }
}

}  // namespace

std::vector<Etir> walk(const Problem& p, uint64_t seed, int steps, bool virtual_threads) {
    std::mt19937_64 rng(seed);
    std::vector<Etir> kept;
    Etir e = initial(p);
    double log_t = steps * std::log(2.0);
    for (int t = 0; t < steps; ++t, log_t -= std::log(2.0)) {
        const std::vector<Weighted> edges = transitions(p, e, t, virtual_threads);
        if (edges.empty()) break;
        e = edges[roulette(rng, edges, [](const Weighted& w) { return w.weight; })].next;
        if (uniform(rng) < 1 - 1 / (1 + std::exp(-0.5 * (-log_t - 10)))) kept.push_back(e);
    }
    kept.push_back(e);
    return kept;
}

Constructed construct(const Problem& p, const WalkOptions& options) {
    Ranking ranking(p);
    for (int w = 0; w < options.walks; ++w)
        for (const Etir& e : walk(p, options.seed * 0x9E3779B97F4A7C15ULL + static_cast<uint64_t>(w), options.steps,
                                  options.virtual_threads))
            if (e.level == 0) ranking.add(e);
    if (ranking.size() == 0) ranking.add(initial(p));
    if (options.climb)
        for (const Realised& r : ranking.best(3)) {
            climb(p, ranking, r, options.virtual_threads);
            // Uncut reductions are not reachable by climbing alone: they are streamed through the first level instead
            // of staying in it.
            Etir uncut = r.state;
            for (size_t l = 1; l < p.levels(); ++l)
                for (size_t a = p.stage.spatial; a < p.stage.extents.size(); ++a)
                    uncut.tiles[l][a] = p.stage.extents[a];
            climb(p, ranking, ranking.add(uncut), options.virtual_threads);
        }
    for (const Etir& e : options.also)
        if (const Realised& r = ranking.add(e); options.climb) climb(p, ranking, r, options.virtual_threads);
    Constructed out{ranking.best(options.top), ranking.size()};
    for (const Etir& e : options.also) {
        const Realised& r = ranking.add(e);
        if (kSeedMargin * r.seconds > out.top[0].seconds) continue;
        std::erase_if(out.top, [&](const Realised& other) { return other.key() == r.key(); });
        out.top.insert(out.top.begin(), r);
    }
    return out;
}

Constructed construct_tree(const Problem& p) {
    Ranking ranking(p);
    Etir e = initial(p);
    std::vector<Etir> path;
    while (true) {
        std::optional<Etir> next;
        double best = 0;
        for (size_t a = 0; a < p.stage.extents.size(); ++a) {
            const auto larger = apply(p, e, {Action::Kind::Tile, a});
            if (!larger || !fits(p, *larger, e.level)) continue;
            const double saved = traffic(p, e, e.level) - traffic(p, *larger, e.level);
            const double taken = footprint(p, *larger, e.level) - footprint(p, e, e.level);
            const double gain = saved / std::max(1.0, taken);
            if (saved > 0 && gain > best) {
                best = gain;
                next = larger;
            }
        }
        if (next) {
            e = *next;
            if (e.level == 0) path.push_back(e);
            continue;
        }
        if (e.level == 0) break;
        --e.level;
        if (e.level == 0) path.push_back(e);
    }
    for (size_t k = path.size() > 10 ? path.size() - 10 : 0; k < path.size(); ++k) ranking.add(path[k]);
    return {ranking.best(8), ranking.size()};
}

}  // namespace tilewright::construct
