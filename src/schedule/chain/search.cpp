#include "schedule/chain/search.h"

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>

#include "base/parallel.h"
#include "base/random.h"

namespace tilewright::chain {

namespace {

constexpr int64_t kFewRows = 16;
constexpr double kEveryOne = 20;  // a space of up to so many times the sample is enumerated
constexpr size_t kTries = 50;     // draws per wanted candidate in a larger space
constexpr size_t kLook = 16;
constexpr double kHopeless = 2;

class Search {
  public:
    Search(const Chain& c, const Ways& ways, const SearchOptions& options)
        : ways_(ways),
          o_(options),
          measures_(ways.costs->measures_schedules()),
          rng_(options.seed),
          models_(ways.costs->models_of(c.stages)),
          space_(make_space(c)),
          bytes_(c) {
        if (!flat(options.without))
            std::erase_if(space_.expressions, [](const TilingExpression& e) { return !e.groups.empty(); });
        for (size_t i = 0; i < c.tiled.size(); ++i) {
            if (c.reduced[c.tiled[i]]) continue;
            // A few parts of a sum, or batch items that share an operand: each may be a task.
            if (!c.open[c.tiled[i]] && c.extents[c.tiled[i]] <= kFewRows) space_.sizes[i].push_back(1);
            if (ways.row_unit == 0) {
                tidy(space_.sizes[i]);
                continue;
            }
            for (const int64_t tiles : {1, 2, 3, 4, 6, 8})
                if (c.open[c.tiled[i]] || tiles * ways.row_unit < c.extents[c.tiled[i]])
                    space_.sizes[i].push_back(tiles * ways.row_unit);
            // Sizes that give every thread equally many rows, up to a tail of less than a register tile.
            for (const int64_t tasks : {1, 2, 4}) {
                const int64_t share = c.extents[c.tiled[i]] / (tasks * ways.threads);
                for (const int64_t rows : {share / ways.row_unit, share / ways.row_unit + 1})
                    if (!c.open[c.tiled[i]] && ways.threads > 1 && rows > 0 &&
                        rows * ways.row_unit < c.extents[c.tiled[i]])
                        space_.sizes[i].push_back(rows * ways.row_unit);
            }
            tidy(space_.sizes[i]);
        }
        for (size_t i = 0; i < c.tiled.size(); ++i) {
            for (const int64_t n : ways.also)
                if (c.open[c.tiled[i]] || n < c.extents[c.tiled[i]]) space_.sizes[i].push_back(n);
            if (ways.halves != 0 && !c.open[c.tiled[i]])
                space_.sizes[i].push_back((c.extents[c.tiled[i]] / 2 + ways.halves - 1) / ways.halves * ways.halves);
            tidy(space_.sizes[i]);
        }
    }

    SearchResult run() {
        SearchResult out;
        if (space_.expressions.empty()) return out;
        std::vector<Candidate> population = first();
        if (hopeless(population)) return out;
        out.generations = evolve(population, false);
        if (measures_) out.generations = evolve(population, true);
        std::vector<const Entry*> all;
        for (const auto& [k, e] : seen_)
            if (e.legal && (e.measured || !measures_)) all.push_back(&e);
        std::stable_sort(all.begin(), all.end(),
                         [](const Entry* a, const Entry* b) { return a->found.seconds < b->found.seconds; });
        for (const Entry* e : all)
            if (out.top.size() < o_.top) out.top.push_back(e->found);
        for (const auto& [k, e] : seen_) {
            ++out.estimated;
            if (e.measured) ++out.measured;
        }
        return out;
    }

    std::vector<Found> sample(size_t most) {
        double all = static_cast<double>(space_.expressions.size());
        for (const auto& sizes : space_.sizes) all *= static_cast<double>(sizes.size());
        std::vector<const Entry*> found;
        const auto look = [&](const Candidate& k) {
            if (!fits(k)) return;
            const size_t known = by_text_.size();
            const Entry* e = estimate_of(k);
            if (e != nullptr && by_text_.size() > known) found.push_back(e);
        };
        if (all <= kEveryOne * static_cast<double>(most)) {
            for (const TilingExpression& e : space_.expressions) each_choice(e, look);
            std::shuffle(found.begin(), found.end(), rng_);
        } else {
            for (size_t tries = 0; found.size() < most && tries < kTries * most; ++tries) look(drawn());
        }
        if (found.size() > most) found.resize(most);
        std::stable_sort(found.begin(), found.end(),
                         [](const Entry* a, const Entry* b) { return a->found.estimate < b->found.estimate; });
        std::vector<Found> out;
        out.reserve(found.size());
        for (const Entry* e : found) out.push_back(e->found);
        return out;
    }

  private:
    static void tidy(std::vector<int64_t>& sizes) {
        std::sort(sizes.begin(), sizes.end());
        sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    }

    void each_choice(const TilingExpression& e, const std::function<void(const Candidate&)>& f) const {
        std::vector<size_t> at(space_.sizes.size(), 0);
        for (bool more = true; more;) {
            Candidate k{e, {}};
            for (size_t i = 0; i < at.size(); ++i) k.tiles.push_back(space_.sizes[i][at[i]]);
            f(k);
            size_t i = 0;
            while (i < at.size() && ++at[i] == space_.sizes[i].size()) at[i++] = 0;
            more = i < at.size();
        }
    }

    Candidate drawn() {
        Candidate k{space_.expressions[rng_() % space_.expressions.size()], {}};
        for (const auto& sizes : space_.sizes) k.tiles.push_back(sizes[rng_() % sizes.size()]);
        return k;
    }

    struct Entry {
        Found found;
        bool legal = false, measured = false;
        const Entry* same = nullptr;  ///< the first candidate with the same program
    };

    bool hopeless(const std::vector<Candidate>& population) {
        double best = std::numeric_limits<double>::infinity();
        if (o_.replaces < best) look_at({population.data(), std::min(population.size(), kLook)});
        for (size_t k = 0; k < population.size() && k < kLook && best > kHopeless * o_.replaces; ++k)
            if (const Entry* e = estimate_of(population[k])) best = std::min(best, e->found.estimate);
        return best > kHopeless * o_.replaces;
    }

    /// Runs generations until the best is within epsilon of the previous best. Returns their number.
    int evolve(std::vector<Candidate>& population, bool measured) {
        const int most = measured ? o_.measured_generations : o_.generations;
        double best = 1e300;
        int generation = 0;
        while (generation++ < most) {
            std::vector<const Entry*> ranked;
            look_at(population);
            for (const Candidate& k : population)
                if (const Entry* e = estimate_of(k)) ranked.push_back(e);
            std::stable_sort(ranked.begin(), ranked.end(),
                             [](const Entry* a, const Entry* b) { return a->found.estimate < b->found.estimate; });
            ranked.erase(std::unique(ranked.begin(), ranked.end()), ranked.end());
            if (ranked.empty()) {
                population = first();
                continue;
            }
            double now = ranked[0]->found.estimate;
            if (measured)
                now = measure(
                    {ranked.begin(), ranked.begin() + static_cast<std::ptrdiff_t>(std::min(o_.top, ranked.size()))});
            if (best < 1e300 && now > best * (1 - o_.epsilon)) return generation - 1;
            best = std::min(best, now);
            population = mutated(ranked);
        }
        return most;
    }

    std::vector<Candidate> first() {
        std::vector<Candidate> out;
        // The largest tiles that fit are always in the first population.
        for (const TilingExpression& e : space_.expressions) {
            Candidate k{e, {}};
            for (const auto& sizes : space_.sizes) k.tiles.push_back(sizes.back());
            for (size_t i = 0; i < k.tiles.size(); ++i) shrink_to_fit(k, i);
            out.push_back(k);
        }
        for (size_t tries = 0; out.size() < o_.population && tries < 50 * o_.population; ++tries) {
            Candidate k = drawn();
            if (fits(k)) out.push_back(std::move(k));
        }
        return out;
    }

    bool fits(const Candidate& k) const {
        return (ways_.bytes ? ways_.bytes(k) : bytes_(k.tiles)) <= 1.2 * ways_.capacity;
    }

    void shrink_to_fit(Candidate& k, size_t i) const {
        while (!fits(k)) {
            const auto& sizes = space_.sizes[i];
            const auto at = std::lower_bound(sizes.begin(), sizes.end(), k.tiles[i]);
            if (at == sizes.begin()) return;
            k.tiles[i] = *std::prev(at);
        }
    }

    /// Realises and estimates the candidates that are new, on all processors.
    void look_at(std::span<const Candidate> candidates) {
        std::vector<std::pair<const Candidate, Entry>*> fresh;
        for (const Candidate& k : candidates)
            if (const auto [it, is_new] = seen_.try_emplace(k); is_new) fresh.push_back(&*it);
        if (fresh.empty()) return;
        std::vector<std::optional<TileProgram>> programs(fresh.size());
        std::vector<std::string> texts(fresh.size());
        parallel_for(fresh.size(), [&](size_t i) {
            programs[i] = ways_.realise(fresh[i]->first);
            if (programs[i]) texts[i] = print_schedule(*programs[i]);
        });
        std::vector<size_t> different;
        for (size_t i = 0; i < fresh.size(); ++i) {
            if (!programs[i]) continue;
            // Loops of one step are removed: mn(k,h) with the whole of h is mnhk.
            Entry& e = fresh[i]->second;
            e.same = by_text_.try_emplace(std::move(texts[i]), &e).first->second;
            if (e.same == &e) different.push_back(i);
        }
        parallel_for(different.size(), [&](size_t j) {
            auto& [k, e] = *fresh[different[j]];
            TileProgram& program = *programs[different[j]];
            e.legal = true;
            e.found.seconds = e.found.estimate = ways_.costs->estimate(program, models_);
            e.found.program = std::move(program);
            e.found.candidate = k;
        });
    }

    const Entry* estimate_of(const Candidate& k) {
        look_at({&k, 1});
        const Entry* same = seen_.at(k).same;
        return same != nullptr && same->legal ? same : nullptr;
    }

    /// The minimum time of these candidates.
    double measure(const std::vector<const Entry*>& top) {
        double best = 1e300;
        std::vector<TileProgram> programs;
        std::vector<Entry*> todo;
        for (const Entry* e : top) {
            Entry& entry = seen_.at(e->found.candidate);
            if (measures_ && !entry.measured) {
                programs.push_back(entry.found.program);
                todo.push_back(&entry);
            }
        }
        if (!programs.empty()) {
            const std::vector<double> times = ways_.costs->measure_schedules(programs);
            for (size_t i = 0; i < todo.size(); ++i) {
                todo[i]->measured = true;
                if (times[i] < 0)
                    todo[i]->legal = false;
                else
                    todo[i]->found.seconds = times[i];
            }
        }
        for (const Entry* e : top)
            if (e->legal) best = std::min(best, e->found.seconds);
        return best;
    }

    std::vector<Candidate> mutated(const std::vector<const Entry*>& ranked) {
        std::vector<Candidate> out;
        for (size_t tries = 0; out.size() < o_.population && tries < 20 * o_.population; ++tries) {
            const size_t from = roulette(rng_, ranked, [](const Entry* e) { return 1 / e->found.estimate; });
            Candidate k = ranked[from]->found.candidate;
            const size_t what = rng_() % (k.tiles.size() + 1);
            if (what == k.tiles.size()) {
                k.expression = space_.expressions[rng_() % space_.expressions.size()];
            } else {
                const auto& sizes = space_.sizes[what];
                k.tiles[what] = sizes[rng_() % sizes.size()];
            }
            if (fits(k)) out.push_back(std::move(k));
        }
        for (size_t i = 0; i < ranked.size() && i < o_.top; ++i) out.push_back(ranked[i]->found.candidate);
        return out;
    }

    const Ways& ways_;
    const SearchOptions& o_;
    const bool measures_;
    std::mt19937_64 rng_;
    const StageModels models_;
    Space space_;
    TileBytes bytes_;
    std::map<Candidate, Entry> seen_;
    std::unordered_map<std::string, const Entry*> by_text_;
};

}  // namespace

SearchResult search(const Chain& chain, const Ways& ways, const SearchOptions& options) {
    return Search(chain, ways, options).run();
}

namespace {

Ways ways_on(const Chain& chain, const Target& target, const KernelCosts& costs, Ablation without) {
    Ways ways;
    const CycleRates rates(target);
    ways.capacity = rates.caches[std::min<size_t>(1, rates.caches.size() - 1)].bytes;
    // A CPU computes the tail of a tile separately, without padding. Row sizes therefore include whole register tiles:
    // two vectors a row, and as many rows as leave four registers for operands (14 of 32, 6 of 16).
    ways.threads = rates.workers;
    ways.row_unit = std::max(1, (target.micro_registers() - 4) / 2);
    ways.realise = [&chain, &target, without, known = std::make_shared<StageChoices>()](const Candidate& k) {
        return realise(chain, k, target, known.get(), without);
    };
    ways.costs = &costs;
    return ways;
}

}  // namespace

SearchResult search(const Chain& chain, const Target& target, const SearchOptions& options) {
    const EstimatedCosts estimates(target);
    const KernelCosts& costs = options.costs != nullptr ? *options.costs : estimates;
    return search(chain, ways_on(chain, target, costs, options.without), options);
}

std::vector<Found> sample(const Chain& chain, const Target& target, size_t most, uint64_t seed, Ablation without) {
    SearchOptions options;
    options.seed = seed;
    options.without = without;
    const EstimatedCosts estimates(target);
    const Ways ways = ways_on(chain, target, estimates, without);
    return Search(chain, ways, options).sample(most);
}

}  // namespace tilewright::chain
