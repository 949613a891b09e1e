#include "schedule/dynamic/joint_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "base/parallel.h"
#include "base/random.h"
#include "schedule/construct/walk.h"

namespace tilewright::dynamic {

namespace {

using construct::Etir;
using construct::Problem;
using construct::Realised;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLeastSpread = 0.03;   ///< of a prediction: what two measurements of one kernel differ by
constexpr double kUnknownSpread = 0.1;  ///< of a micro-kernel's ratio between instances, before any was measured at two
constexpr double kPointSeconds =
    1e-9;                        ///< assumed of instances that were not measured, to weigh them against each other
constexpr size_t kPatience = 3;  ///< batches without a change of the cover, after which the search ends

/// A state of one of the spaces.
struct Individual {
    size_t space = 0;
    Etir state;
    friend auto operator<=>(const Individual&, const Individual&) = default;
};

struct Scored {
    Realised tiles;
    MicroKernel kernel;
};

/// A micro-kernel with its schedule and its measurements.
struct Known {
    std::optional<Individual> state;  ///< nothing: the default heuristic's
    TileProgram program;
    MicroKernel kernel;
    std::map<size_t, double> seconds;    ///< by instance; negative: it cannot run
    std::map<size_t, double> predicted;  ///< by instance: before anything was learned, for the label
    LocalModel::Prediction prediction;   ///< of the ratio to `predicted`; of a measured one, its own

    bool runs() const {
        return std::none_of(seconds.begin(), seconds.end(), [](const auto& s) { return s.second < 0; });
    }
};

struct Pair {
    size_t kernel = 0, instance = 0;
    double gain = 0;  ///< expected, of the instance's time, weighted
};

class JointSearch {
  public:
    JointSearch(const std::vector<Instance>& instances, const Target& target, const JointOptions& options,
                LocalModel& model, const EstimateAt& estimate, const MeasurePrograms& measure)
        : all_(instances),
          target_(target),
          o_(options),
          model_(model),
          estimate_(estimate),
          measure_(measure),
          spaces_(constructing(instances)),
          rng_(options.seed),
          best_(instances.size(), kInfinity) {}

    JointResult run() {
        if (run_batch(first_batch())) rounds();
        finish();
        return std::move(out_);
    }

  private:
    void rounds() {
        size_t unchanged = 0;
        std::vector<size_t> ways;
        while (out_.pairs < o_.trials) {
            const std::vector<Pair> batch = next_batch();
            if (batch.empty()) {
                out_.ended = "no further micro-kernel can change the choice";
                return;
            }
            if (!run_batch(batch)) {
                out_.ended = "the time for measurements is over";
                return;
            }
            std::vector<size_t> now = choose().ways;
            unchanged = now == ways ? unchanged + 1 : 0;
            ways = std::move(now);
            if (unchanged >= kPatience && !o_.published) {
                out_.ended = "the choice did not change";
                return;
            }
        }
        out_.ended = "all trials were made";
    }

    // ---- predictions ----

    /// What f_local's label is relative to: seconds by the estimate, or for an f_local of 1.
    double unlearned(const Known& k, size_t i) const {
        if (o_.published) return seconds_at(k.kernel, all_[i], target_);
        return estimate_(with_stages(k.program, all_[i].stages), all_[i]);
    }
    double predicted(Known& k, size_t i) const {
        const auto it = k.predicted.find(i);
        const double base =
            it != k.predicted.end() ? it->second : k.predicted.emplace(i, unlearned(k, i)).first->second;
        return base * std::exp(k.prediction.log_ratio);
    }

    /// The score of a state: its throughput, or by how much it is faster than the fastest known, at its best instance.
    double score(const Scored& s) const {
        const double ratio = std::exp(model_.at(s.kernel.features).log_ratio);
        double most = 0;
        for (size_t i = 0; i < all_.size(); ++i) {
            const double seconds = seconds_at(s.kernel, all_[i], target_) * ratio;
            const double of = o_.published ? all_[i].points() : best_[i] < kInfinity ? best_[i] : 1;
            most = std::max(most, of / seconds);
        }
        return most;
    }

    // ---- evolution ----

    Individual random_individual() {
        const size_t space = spaces_[rng_() % spaces_.size()];
        return {space, construct::random_state(*all_[space].problem, rng_)};
    }

    /// A mutation for one instance, drawn by its share of the weighted time: tiles along dynamic axes are no larger
    /// than its extents need.
    Individual mutated(const Individual& from) {
        const Problem& p = *all_[from.space].problem;
        std::vector<size_t> numbers(all_.size());
        std::iota(numbers.begin(), numbers.end(), size_t{0});
        const size_t i = roulette(rng_, numbers, [&](size_t k) {
            return all_[k].weight * (best_[k] < kInfinity ? best_[k] : all_[k].points() * kPointSeconds);
        });
        Individual out{from.space, construct::mutated(p, from.state, rng_)};
        for (size_t l = 1; l < p.levels(); ++l)
            for (size_t a = 0; a < p.stage.spatial; ++a) {
                if (!p.dynamic[a]) continue;
                const auto& sizes = p.tile_sizes[l][a];
                const auto enough = std::lower_bound(sizes.begin(), sizes.end(), all_[i].problem->stage.extents[a]);
                if (enough != sizes.end()) out.state.tiles[l][a] = std::min(out.state.tiles[l][a], *enough);
            }
        return out;
    }

    /// Adds the individuals that are new to scored_.
    void realise_all(const std::vector<Individual>& population) {
        std::vector<const Individual*> fresh;
        for (const Individual& one : population)
            if (const auto [it, added] = scored_.try_emplace(one); added) fresh.push_back(&it->first);
        std::vector<Scored*> targets;
        for (const Individual* one : fresh) targets.push_back(&scored_.at(*one));
        parallel_for(fresh.size(), [&](size_t k) {
            const Instance& space = all_[fresh[k]->space];
            targets[k]->tiles = construct::realise(*space.problem, fresh[k]->state);
            targets[k]->kernel = micro_kernel(space, targets[k]->tiles, target_);
            if (o_.published) targets[k]->kernel.points_per_second = 1;
        });
    }

    std::vector<Individual> first_generation() {
        std::vector<Individual> out;
        std::vector<const Known*> measured;
        for (const Known& k : known_)
            if (k.state && !k.seconds.empty() && k.runs()) measured.push_back(&k);
        std::stable_sort(measured.begin(), measured.end(),
                         [&](const Known* a, const Known* b) { return relative(*a) < relative(*b); });
        const auto most = static_cast<size_t>(o_.from_measured * static_cast<double>(o_.population));
        for (size_t k = 0; k < std::min(most, measured.size()); ++k) out.push_back(*measured[k]->state);
        if (!o_.published && known_.size() <= all_.size())
            for (const size_t s : spaces_)
                for (const Realised& r : construct::construct(*all_[s].problem, {}).top) out.push_back({s, r.state});
        for (size_t k = 0; k < o_.initial; ++k) out.push_back(random_individual());
        return out;
    }

    /// The measured seconds over those of the fastest, at the best instance.
    double relative(const Known& k) const {
        double least = kInfinity;
        for (const auto& [i, s] : k.seconds) least = std::min(least, s / best_[i]);
        return least;
    }

    /// The states of the last generations in the order of their scores.
    std::vector<Individual> evolve() {
        std::vector<Individual> population = first_generation();
        std::map<Individual, double> scores;
        const double power = std::ceil(static_cast<double>(out_.pairs) / 100) + 1;
        for (int g = 0; g <= o_.generations; ++g) {
            for (Individual& one : population) one.state.level = 0;
            realise_all(population);
            std::vector<double> sums;
            double most = 0, sum = 0;
            for (const Individual& one : population) {
                const auto [it, added] = scores.try_emplace(one, 0);
                if (added) it->second = score(scored_.at(one));
                most = std::max(most, it->second);
            }
            for (const Individual& one : population) sums.push_back(sum += std::pow(scores.at(one) / most, power));
            if (g == o_.generations) break;
            std::vector<Individual> next;
            while (next.size() < o_.population) {
                const auto at = std::lower_bound(sums.begin(), sums.end(), uniform(rng_) * sum) - sums.begin();
                const Individual& parent = population[std::min<size_t>(static_cast<size_t>(at), sums.size() - 1)];
                next.push_back(uniform(rng_) < o_.mutation ? mutated(parent) : parent);
            }
            population = std::move(next);
        }
        std::vector<std::pair<double, const Individual*>> order;
        for (const auto& [one, s] : scores) order.emplace_back(-s, &one);
        std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
        std::vector<Individual> out;
        for (const auto& [s, one] : order) out.push_back(*one);
        return out;
    }

    // ---- batches ----

    /// The number of the micro-kernel with this schedule.
    size_t add(std::optional<Individual> state, TileProgram program, MicroKernel kernel) {
        const auto [it, fresh] = numbers_.try_emplace(print_schedule(program), known_.size());
        if (fresh) known_.push_back({std::move(state), std::move(program), std::move(kernel), {}, {}, {}});
        return it->second;
    }
    size_t add(const Individual& state) {
        const Scored& s = scored_.at(state);
        const Instance& space = all_[state.space];
        const size_t n = add(state, construct::to_tile_program(space.stages, *space.problem, s.tiles), s.kernel);
        if (known_[n].seconds.empty()) known_[n].prediction = model_.at(known_[n].kernel.features);
        return n;
    }

    /// The default heuristic's schedules, each at its instance; or a random batch.
    std::vector<Pair> first_batch() {
        std::vector<Pair> out;
        if (o_.published) return next_batch();
        for (size_t i = 0; i < all_.size(); ++i) {
            const Problem& p = *all_[i].problem;
            const Individual state{i, construct::state_of(p, all_[i].rule)};
            out.push_back(
                {add(std::nullopt, all_[i].rule, micro_kernel(all_[i], construct::realise(p, state.state), target_)),
                 i});
        }
        return out;
    }

    std::vector<Pair> next_batch() {
        const size_t most = std::min(o_.batch, o_.trials - out_.pairs);
        const std::vector<Individual> order = evolve();
        const auto random = static_cast<size_t>(std::ceil(o_.random * static_cast<double>(most)));
        std::vector<size_t> shortlist;
        const auto consider = [&](const Individual& one) {
            const size_t before = known_.size(), n = add(one);
            if (n == before) shortlist.push_back(n);
        };
        for (size_t k = 0; k < order.size() && shortlist.size() + random < most; ++k) consider(order[k]);
        for (size_t k = 0; k < random; ++k) {
            const Individual one = random_individual();
            realise_all({one});
            consider(one);
        }
        std::vector<Pair> out = o_.published ? pairs_as_published(shortlist) : pairs_that_matter(shortlist);
        if (out.size() > most) out.resize(most);
        return out;
    }

    std::vector<Pair> pairs_as_published(const std::vector<size_t>& kernels) {
        std::vector<Pair> out;
        for (const size_t n : kernels) {
            std::pair<double, size_t> best{-1, 0};
            for (size_t i = 0; i < all_.size(); ++i)
                best = std::max(best, {adaption(known_[n].kernel, all_[i], target_).share(), i});
            out.push_back({n, best.second});
        }
        return out;
    }

    /// Of these and of the measured micro-kernels, the largest expected gain first.
    std::vector<Pair> pairs_that_matter(std::vector<size_t> kernels) {
        for (size_t n = 0; n < known_.size(); ++n)
            if (!known_[n].seconds.empty() && known_[n].runs()) kernels.push_back(n);
        double weights = 0;
        for (const Instance& i : all_) weights += i.weight;
        std::vector<Pair> out;
        for (const size_t n : kernels) {
            Known& k = known_[n];
            Pair best{n};
            for (size_t i = 0; i < all_.size(); ++i) {
                if (k.seconds.count(i) != 0) continue;
                const double seconds = predicted(k, i), spread = std::max(k.prediction.spread, kLeastSpread);
                if (seconds * std::exp(-2 * spread) >= best_[i]) {
                    left_out_.emplace(n, i);
                    continue;
                }
                const double gain = all_[i].weight / weights * (1 - seconds * std::exp(-2 * spread) / best_[i]);
                if (gain > best.gain) best = {n, i, gain};
            }
            if (best.gain > 0) out.push_back(best);
        }
        std::stable_sort(out.begin(), out.end(), [](const Pair& a, const Pair& b) { return a.gain > b.gain; });
        return out;
    }

    /// False once no more is measured.
    bool run_batch(const std::vector<Pair>& batch) {
        const bool first = out_.pairs == 0;
        std::vector<double> errors;
        for (size_t i = 0; i < all_.size(); ++i) {  // operands are made once for each instance
            std::vector<size_t> numbers;
            std::vector<TileProgram> programs;
            for (const Pair& p : batch)
                if (p.instance == i) {
                    numbers.push_back(p.kernel);
                    programs.push_back(with_stages(known_[p.kernel].program, all_[i].stages));
                }
            if (programs.empty()) continue;
            const std::vector<double> seconds = measure_(programs);
            if (seconds.size() != programs.size()) return false;
            for (size_t k = 0; k < numbers.size(); ++k) {
                Known& known = known_[numbers[k]];
                out_.kernels += known.seconds.empty() ? 1 : 0;
                ++out_.pairs;
                if (seconds[k] >= 0 && !first) errors.push_back(std::log(seconds[k] / predicted(known, i)));
                known.seconds[i] = seconds[k];
                if (seconds[k] >= 0) best_[i] = std::min(best_[i], seconds[k]);
            }
        }
        for (const double e : errors) squares_ += e * e;
        predictions_ += errors.size();
        learn();
        return true;
    }

    /// f_local of measured micro-kernels, then that of all others.
    void learn() {
        std::vector<MicroKernelFeatures> features;
        std::vector<float> labels;
        double squares = 0, degrees = 0;
        for (Known& k : known_) {
            if (k.seconds.empty() || !k.runs()) continue;
            double sum = 0;
            std::vector<double> own;
            for (const auto& [i, s] : k.seconds) {
                if (k.predicted.count(i) == 0) k.predicted[i] = unlearned(k, i);
                own.push_back(std::log(s / k.predicted[i]));
                sum += own.back();
                features.push_back(k.kernel.features);
                labels.push_back(static_cast<float>(own.back()));
            }
            const double mean = sum / static_cast<double>(own.size());
            for (const double x : own) squares += (x - mean) * (x - mean);
            degrees += static_cast<double>(own.size() - 1);
            k.prediction.log_ratio = mean;
        }
        if (features.empty()) return;
        model_.learn(features, labels);
        // Of one micro-kernel at several instances: what f_local, measured at one, says of another.
        const double spread = degrees > 0 ? std::sqrt(squares / degrees) : kUnknownSpread;
        for (Known& k : known_) {
            if (k.seconds.empty())
                k.prediction = model_.at(k.kernel.features);
            else
                k.prediction.spread = spread;
        }
    }

    // ---- the choice ----

    /// Seconds of all micro-kernels that were measured, by instance.
    std::vector<std::vector<double>> table(std::vector<size_t>& numbers) {
        std::vector<std::vector<double>> out;
        numbers.clear();
        for (size_t n = 0; n < known_.size(); ++n) {
            Known& k = known_[n];
            if (k.seconds.empty() || !k.runs()) continue;
            numbers.push_back(n);
            std::vector<double>& row = out.emplace_back();
            for (size_t i = 0; i < all_.size(); ++i) {
                const auto it = k.seconds.find(i);
                // Predictions count with their spread, so that a measured one is preferred to one that may be as fast.
                row.push_back(it != k.seconds.end()
                                  ? it->second
                                  : predicted(k, i) *
                                        (o_.published ? 1 : std::exp(std::max(k.prediction.spread, kLeastSpread))));
            }
        }
        return out;
    }

    std::vector<double> weights() const {
        std::vector<double> out;
        for (const Instance& i : all_) out.push_back(i.weight);
        return out;
    }

    /// With numbers of known_.
    Cover choose() {
        std::vector<size_t> numbers;
        const auto seconds = table(numbers);
        if (seconds.empty()) return {};
        Cover out = cover_samples(seconds, weights(), std::vector<double>(seconds.size(), 1), o_.limits);
        for (size_t& w : out.ways) w = numbers[w];
        return out;
    }

    void finish() {
        for (const auto& [n, i] : left_out_) out_.skipped += known_[n].seconds.count(i) == 0 ? 1 : 0;
        out_.error = predictions_ == 0 ? 1 : std::exp(std::sqrt(squares_ / static_cast<double>(predictions_)));
        out_.cover = choose();
        for (size_t i = 0; i < all_.size(); ++i) {
            JointResult::Chosen chosen{all_[i].rule, -1};
            for (const size_t n : out_.cover.ways) {
                Known& k = known_[n];
                const auto it = k.seconds.find(i);
                const double seconds = it != k.seconds.end() ? it->second : predicted(k, i);
                if (chosen.seconds >= 0 && seconds >= chosen.seconds) continue;
                chosen = {with_stages(k.program, all_[i].stages), seconds};
            }
            out_.chosen.push_back(std::move(chosen));
        }
    }

    const std::vector<Instance>& all_;
    const Target& target_;
    const JointOptions& o_;
    LocalModel& model_;
    const EstimateAt& estimate_;
    const MeasurePrograms& measure_;
    const std::vector<size_t> spaces_;
    std::mt19937_64 rng_;
    std::map<Individual, Scored> scored_;
    std::vector<Known> known_;
    std::map<std::string, size_t> numbers_;         ///< of known_, by schedule
    std::vector<double> best_;                      ///< measured seconds, by instance
    std::set<std::pair<size_t, size_t>> left_out_;  ///< pairs, at the time they were considered
    double squares_ = 0;                            ///< of the logarithms of predictions' errors
    size_t predictions_ = 0;
    JointResult out_;
};

}  // namespace

JointResult joint_search(const std::vector<Instance>& instances, const Target& target, const JointOptions& options,
                         LocalModel& model, const EstimateAt& estimate, const MeasurePrograms& measure) {
    return JointSearch(instances, target, options, model, estimate, measure).run();
}

}  // namespace tilewright::dynamic
