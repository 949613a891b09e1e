#include "orchestrate/optimal/blp.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>
#include <set>
#include <utility>

#include "base/error.h"
#include "orchestrate/optimal/milp.h"
#include "orchestrate/optimal/options.h"

namespace tilewright::optimal {

std::string_view to_string(BlpStatus s) {
    switch (s) {
        case BlpStatus::Optimal:
            return "optimal";
        case BlpStatus::Feasible:
            return "feasible";
        case BlpStatus::Infeasible:
            return "infeasible";
    }
    return "";
}

std::vector<std::vector<TensorId>> loops(const Choice& choice, const std::vector<size_t>& chosen) {
    const Execution run = execute(choice, chosen);
    std::vector<bool> there(choice.tensors);
    for (const TensorId t : choice.given) there[t.index()] = true;
    for (const size_t k : run.order)
        for (const TensorId t : choice.candidates[k].outputs) there[t.index()] = true;
    // Per missing tensor, the missing tensors that its stuck makers wait for, and transitively theirs.
    std::set<TensorId> missing;
    for (const size_t k : run.stuck)
        for (const TensorId t : choice.candidates[k].outputs)
            if (!there[t.index()]) missing.insert(t);
    const auto behind = [&](TensorId of) {
        std::set<TensorId> seen;
        std::vector<TensorId> open{of};
        while (!open.empty()) {
            const TensorId t = open.back();
            open.pop_back();
            for (const size_t k : run.stuck) {
                const Candidate& c = choice.candidates[k];
                if (std::find(c.outputs.begin(), c.outputs.end(), t) == c.outputs.end()) continue;
                for (const TensorId s : c.inputs)
                    if (missing.count(s) != 0 && seen.insert(s).second) open.push_back(s);
            }
        }
        return seen;
    };
    std::set<std::vector<TensorId>> out;
    for (const TensorId t : missing) {
        const std::set<TensorId> loop = behind(t);
        // A loop that waits for no other: every tensor behind it is in it.
        if (loop.count(t) == 0) continue;
        if (std::all_of(loop.begin(), loop.end(), [&](TensorId s) { return behind(s) == loop; }))
            out.emplace(loop.begin(), loop.end());
    }
    return {out.begin(), out.end()};
}

namespace {

constexpr double kScaled = 1e4;  // scaled cost of the initial plan
constexpr double kSome = 1e-5;   // exceeds the zero tolerance of the solver

class Formulation {
  public:
    Formulation(const Choice& choice, const BlpOptions& options)
        : choice_(choice), strong_(options.form == BlpForm::Strong) {
        const size_t n = choice.candidates.size();
        if (options.reduce && !choice.once) {  // a dominating candidate may cover more nodes
            instead_ = dominating(choice);
        } else {
            instead_.assign(n, SIZE_MAX);
            for (size_t k = 0; k < n; ++k)
                if (choice.candidates[k].cost < kInfinity) instead_[k] = k;
        }
        for (size_t k = 0; k < n; ++k)
            if (instead_[k] == k) kept_.push_back(k);
        given_.assign(choice.tensors, false);
        for (const TensorId t : choice.given) given_[t.index()] = true;
        makers_.resize(choice.tensors);
        for (size_t i = 0; i < kept_.size(); ++i)
            for (const TensorId t : candidate(i).outputs)
                if (!given_[t.index()]) makers_[t.index()].push_back(i);
    }

    size_t size() const { return kept_.size(); }
    const Milp& milp() const { return milp_; }

    /// Builds the program without rows against loops. Costs are multiplied by `scale`.
    void build(double scale) {
        for (size_t i = 0; i < kept_.size(); ++i) milp_.columns.push_back({candidate(i).cost * scale, 0, true});
        strong_ ? strong() : published();
        if (choice_.once) once();
    }

    /// The solution for a plan, with its candidates replaced by those that dominate them.
    std::vector<double> values_of(const std::vector<size_t>& plan) const {
        std::vector<double> x(milp_.columns.size());
        std::vector<bool> there = given_;
        std::set<size_t> kept;
        for (const size_t k : plan) kept.insert(instead_[k]);
        const Execution run = execute(choice_, {kept.begin(), kept.end()});
        for (const size_t k : without_idle(choice_, run.order)) {
            const auto i = static_cast<size_t>(std::lower_bound(kept_.begin(), kept_.end(), k) - kept_.begin());
            x[i] = 1;
            for (const TensorId t : candidate(i).outputs) {
                if (there[t.index()]) continue;
                there[t.index()] = true;
                if (!strong_) continue;
                x[y_[t.index()]] = 1;
                x[w(i, t)] = 1;
            }
        }
        return x;
    }

    /// Candidates that provide a tensor; their inputs are provided as well.
    std::vector<size_t> chosen(const std::vector<double>& x) const {
        std::vector<size_t> out;
        for (size_t i = 0; i < kept_.size(); ++i) {
            const auto& outputs = candidate(i).outputs;
            const bool provides = !strong_ || std::any_of(outputs.begin(), outputs.end(), [&](TensorId t) {
                return !given_[t.index()] && x[w(i, t)] > kSome;
            });
            if (x[i] > 0.5 && provides) out.push_back(kept_[i]);
        }
        return out;
    }

    /// Adds rows against these loops and returns their number.
    size_t forbid(const std::vector<std::vector<TensorId>>& loops) {
        const size_t before = milp_.rows.size();
        for (const std::vector<TensorId>& loop : loops) {
            const std::set<TensorId> in(loop.begin(), loop.end());
            std::set<size_t> from_outside, from_inside;  // columns
            for (const TensorId t : loop)
                for (const size_t i : makers_[t.index()]) {
                    const auto& reads = candidate(i).inputs;
                    const bool inside =
                        std::any_of(reads.begin(), reads.end(), [&](TensorId s) { return in.count(s) != 0; });
                    (inside ? from_inside : from_outside).insert(strong_ ? w(i, t) : i);
                }
            Milp::Row row{{}, 0, kInfinity};
            for (const size_t column : from_outside) row.terms.emplace_back(column, 1);
            row.terms.emplace_back();
            const auto add = [&](size_t column) {
                row.terms.back() = {column, -1};
                milp_.rows.push_back(row);
            };
            if (strong_)
                for (const TensorId t : loop) add(y_[t.index()]);
            else
                for (const size_t column : from_inside) add(column);
        }
        return milp_.rows.size() - before;
    }

  private:
    const Candidate& candidate(size_t i) const { return choice_.candidates[kept_[i]]; }

    /// The column for: candidate i provides t.
    size_t w(size_t i, TensorId t) const {
        const auto& outputs = candidate(i).outputs;
        if (outputs.size() == 1) return i;
        return w_[i] + static_cast<size_t>(std::find(outputs.begin(), outputs.end(), t) - outputs.begin());
    }

    /// Per node, the candidates that cover it.
    std::vector<std::vector<size_t>> covering() const {
        std::vector<std::vector<size_t>> out(choice_.nodes);
        for (size_t i = 0; i < kept_.size(); ++i)
            for (const NodeId n : candidate(i).covers) out[n.index()].push_back(i);
        return out;
    }

    void once() {
        for (const std::vector<size_t>& by : covering()) {
            if (by.size() < 2) continue;
            Milp::Row row{{}, -kInfinity, 1};
            for (const size_t i : by) row.terms.emplace_back(i, 1);
            milp_.rows.push_back(std::move(row));
        }
    }

    void published() {
        for (const TensorId t : choice_.needed) {
            if (given_[t.index()]) continue;
            Milp::Row row{{}, 1, kInfinity};
            for (const size_t i : makers_[t.index()]) row.terms.emplace_back(i, 1);
            milp_.rows.push_back(std::move(row));
        }
        for (size_t j = 0; j < kept_.size(); ++j)
            for (const TensorId t : candidate(j).inputs) {
                if (given_[t.index()]) continue;
                Milp::Row row{{}, 0, kInfinity};
                for (const size_t i : makers_[t.index()]) row.terms.emplace_back(i, 1);
                row.terms.emplace_back(j, -1);
                milp_.rows.push_back(std::move(row));
            }
    }

    void strong() {
        y_.assign(choice_.tensors, SIZE_MAX);
        for (size_t t = 0; t < choice_.tensors; ++t) {
            if (given_[t]) continue;
            y_[t] = milp_.columns.size();
            milp_.columns.push_back({0, 0, true});
        }
        for (const TensorId t : choice_.needed)
            if (!given_[t.index()]) milp_.columns[y_[t.index()]].lower = 1;
        w_.assign(kept_.size(), SIZE_MAX);
        for (size_t i = 0; i < kept_.size(); ++i) {
            const auto& outputs = candidate(i).outputs;
            if (outputs.size() == 1) continue;
            w_[i] = milp_.columns.size();
            for (const TensorId t : outputs) {
                milp_.rows.push_back({{{milp_.columns.size(), 1}, {i, -1}}, -kInfinity, 0});
                milp_.columns.push_back({0, 0, false});
                if (given_[t.index()]) milp_.rows.push_back({{{milp_.columns.size() - 1, 1}}, 0, 0});
            }
        }
        for (size_t t = 0; t < choice_.tensors; ++t) {
            if (given_[t]) continue;
            Milp::Row makers{{{y_[t], -1}}, 0, 0};
            std::map<TensorId, std::vector<size_t>> reading;
            for (const size_t i : makers_[t]) {
                makers.terms.emplace_back(w(i, TensorId(t)), 1);
                for (const TensorId s : candidate(i).inputs)
                    if (!given_[s.index()]) reading[s].push_back(i);
            }
            milp_.rows.push_back(std::move(makers));
            for (const auto& [s, by] : reading) {
                Milp::Row row{{{y_[s.index()], -1}}, -kInfinity, 0};
                for (const size_t i : by) row.terms.emplace_back(w(i, TensorId(t)), 1);
                milp_.rows.push_back(std::move(row));
            }
        }
        const std::vector<std::vector<size_t>> covers = covering();
        std::set<std::vector<size_t>> known;
        for (const NodeId n : choice_.unavoidable) {
            if (!known.insert(covers[n.index()]).second) continue;
            Milp::Row row{{}, 1, kInfinity};
            for (const size_t i : covers[n.index()]) row.terms.emplace_back(i, 1);
            milp_.rows.push_back(std::move(row));
        }
    }

    const Choice& choice_;
    bool strong_;
    std::vector<size_t> instead_;  ///< per candidate: the one that replaces it
    std::vector<size_t> kept_;     ///< candidates, ascending
    std::vector<bool> given_;
    std::vector<std::vector<size_t>> makers_;  ///< per tensor: positions in kept_
    std::vector<size_t> y_, w_;                ///< columns: of a tensor; the first of a candidate with several outputs
    Milp milp_;
};

double processor_seconds() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

}  // namespace

Relaxation relaxation(const Choice& choice, BlpForm form) {
    const double begin = processor_seconds();
    BlpOptions options;
    options.form = form;
    const double cost = choice.cost(cheap_plan(choice));
    const double scale = cost > 0 ? kScaled / cost : 1;
    Formulation program(choice, options);
    program.build(scale);
    Relaxation result;
    result.root = relaxed(program.milp()) / scale;
    result.seconds = processor_seconds() - begin;
    return result;
}

BlpResult solve(const Choice& choice, const BlpOptions& options) {
    const double begin = processor_seconds();
    const auto spent = [&] { return processor_seconds() - begin; };
    BlpResult result;
    std::vector<size_t> best;  // in order, without idle candidates
    double best_cost = kInfinity;
    const auto offer = [&](const std::vector<size_t>& plan) {
        const Execution run = execute(choice, plan);
        if (!run.complete) return false;
        std::vector<size_t> order = without_idle(choice, run.order);
        if (!compatible(choice, order)) return true;
        const double cost = choice.cost(order);
        if (cost < best_cost) {
            best = std::move(order);
            best_cost = cost;
        }
        return true;
    };
    std::vector<size_t> can;
    for (size_t k = 0; k < choice.candidates.size(); ++k)
        if (choice.candidates[k].cost < kInfinity) can.push_back(k);
    const bool possible = execute(choice, can).complete;
    if (!options.start.empty()) TW_CHECK(offer(options.start), "the initial plan cannot run");
    if (!possible) {
        result.seconds = spent();
        return result;
    }
    TW_CHECK(offer(cheap_plan(choice)), "the cheap plan cannot run");

    // Without an initial plan (nodes must not repeat), any plan that can run gives the magnitude of costs.
    const double start_cost = best_cost < kInfinity ? best_cost : choice.cost(cheap_plan(choice));
    const double scale = start_cost > 0 ? kScaled / start_cost : 1;
    Formulation program(choice, options);
    program.build(scale);
    result.candidates = program.size();
    result.status = BlpStatus::Feasible;
    while (result.status == BlpStatus::Feasible) {
        const double left = options.seconds - spent();
        if (result.rounds > 0 && left <= 0) break;
        const std::vector<double> begin_with = best_cost < kInfinity ? program.values_of(best) : std::vector<double>();
        const MilpResult found = solve(program.milp(), begin_with, left);
        if (found.infeasible && choice.once) break;
        TW_CHECK(!found.infeasible, "a choice with a plan of cost {} has no solution", start_cost);
        if (result.rounds++ == 0) result.root = found.root / scale;
        result.bound = std::max(result.bound, found.bound / scale);
        if (!found.solution) break;
        const std::vector<size_t> chosen = program.chosen(*found.solution);
        if (!offer(chosen)) {
            const size_t rows = program.forbid(loops(choice, chosen));
            TW_CHECK(rows > 0, "a solution that cannot run contains no cycle");
            result.loop_rows += rows;
        } else if (found.optimal) {
            result.status = BlpStatus::Optimal;
        } else {
            break;
        }
    }
    result.rows = program.milp().rows.size();
    result.columns = program.milp().columns.size();
    if (best_cost == kInfinity) {
        result.status = BlpStatus::Infeasible;
        result.seconds = spent();
        return result;
    }
    result.chosen = std::move(best);
    result.objective = best_cost;
    result.bound = result.status == BlpStatus::Optimal ? result.objective : std::min(result.bound, result.objective);
    result.seconds = spent();
    return result;
}

}  // namespace tilewright::optimal
