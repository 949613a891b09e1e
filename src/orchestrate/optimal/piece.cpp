#include "orchestrate/optimal/piece.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "base/error.h"
#include "orchestrate/optimal/candidates.h"

namespace tilewright::optimal {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class Search {
  public:
    Search(const Dag& dag, const AskKernel& ask, const PieceOptions& options)
        : dag_(dag), ask_(ask), options_(options), choice_(choice_of(dag)) {
        choice_.once = options.once;
    }

    PiecePlan run(const std::vector<Candidate>& start) {
        enumerate();
        const std::vector<size_t> begin = add(start);
        BlpOptions blp;
        blp.seconds = options_.seconds;
        plan_.started = begin.size() == start.size() && execute(choice_, begin).complete && compatible(choice_, begin);
        if (plan_.started) blp.start = begin;
        if (options_.compare_forms) plan_.published = relaxation(choice_, BlpForm::Published);
        std::map<size_t, double> measured;
        const auto measure = [&](const std::vector<size_t>& which) {
            std::vector<Candidate> candidates;
            candidates.reserve(which.size());
            for (const size_t k : which) candidates.push_back(choice_.candidates[k]);
            std::vector<double> costs = options_.measure(candidates);
            for (size_t i = 0; i < which.size(); ++i) measured[which[i]] = costs[i];
            return costs;
        };
        plan_.solution = solve_lazily(choice_, options_.profile, measure, blp);
        TW_CHECK(plan_.solution.blp.status != BlpStatus::Infeasible, "a piece of {} nodes has no plan",
                 dag_.nodes.size());
        const auto as_measured = [&](size_t k) {
            const auto it = measured.find(k);
            return it != measured.end() ? std::optional(it->second) : std::nullopt;
        };
        for (const size_t k : plan_.solution.blp.chosen)
            plan_.kernels.push_back({choice_.candidates[k], seconds_[k], at_least_[k], as_measured(k)});
        if (plan_.started)
            for (const size_t k : begin) plan_.start_seconds += as_measured(k).value_or(seconds_[k]);
        return std::move(plan_);
    }

  private:
    bool modelled() const { return options_.profile == Profile::None; }

    struct Made {
        Candidate candidate;
        double seconds = 0, at_least = 0;
    };

    /// Nothing where there is no such kernel.
    std::optional<Made> made(const NodeSet& set, std::vector<TensorId> outputs) {
        const KernelAnswer answer = ask_(set, outputs);
        if (std::isinf(answer.seconds)) {
            ++plan_.refused[answer.reason];
            return std::nullopt;
        }
        return Made{{dag_.inputs(set), std::move(outputs), set.nodes(), modelled() ? answer.seconds : answer.at_least},
                    answer.seconds,
                    answer.at_least};
    }

    void enumerate() {
        const Paths paths(dag_);
        const ConvexSets convex = convex_sets(dag_, paths, options_.convex);
        plan_.sets = convex.sets.size();
        plan_.capped = convex.capped;
        std::vector<double> whole;
        std::vector<std::vector<Made>> of_set;
        for (const NodeSet& set : convex.sets) {
            of_set.emplace_back();
            whole.push_back(kInfinity);
            bool first = true;
            for (std::vector<TensorId>& outputs : output_sets(dag_, set, options_.most_output_sets)) {
                if (options_.single_output && outputs.size() > 1) {
                    ++plan_.refused["several outputs"];
                    first = false;
                    continue;
                }
                auto kernel = made(set, std::move(outputs));
                // What cannot write all of its values is one kernel with fewer of them in rare cases only.
                if (!kernel && first) break;
                if (first) whole.back() = kernel->seconds;
                if (kernel) of_set.back().push_back(std::move(*kernel));
                first = false;
            }
        }
        // The model's costs are the costs where nothing is measured; else they bound nothing from above.
        const std::vector<KnownCost> known = known_costs(dag_, paths, convex.sets, whole);
        for (size_t i = 0; i < of_set.size(); ++i)
            for (Made& kernel : of_set[i]) {
                ++plan_.candidates;
                if (modelled() && kernel.seconds >= known[i].without)
                    ++plan_.dropped;
                else
                    push(std::move(kernel));
            }
    }

    size_t push(Made kernel) {
        Candidate& c = kernel.candidate;
        position_.emplace(std::pair(c.covers, c.outputs), choice_.candidates.size());
        choice_.candidates.push_back(std::move(c));
        seconds_.push_back(kernel.seconds);
        at_least_.push_back(kernel.at_least);
        return choice_.candidates.size() - 1;
    }

    /// Positions of those that can be made.
    std::vector<size_t> add(const std::vector<Candidate>& start) {
        std::vector<size_t> out;
        for (const Candidate& c : start) {
            const auto it = position_.find(std::pair(c.covers, c.outputs));
            if (it != position_.end()) {
                out.push_back(it->second);
                continue;
            }
            if (options_.single_output && c.outputs.size() > 1) continue;
            if (auto kernel = made(dag_.set(c.covers), c.outputs)) {
                ++plan_.candidates;
                out.push_back(push(std::move(*kernel)));
            }
        }
        return out;
    }

    const Dag& dag_;
    const AskKernel& ask_;
    const PieceOptions& options_;
    Choice choice_;
    std::vector<double> seconds_, at_least_;  ///< of each candidate, by the model
    std::map<std::pair<std::vector<NodeId>, std::vector<TensorId>>, size_t> position_;
    PiecePlan plan_;
};

}  // namespace

PiecePlan plan_piece(const Dag& piece, const std::vector<Candidate>& start, const AskKernel& ask,
                     const PieceOptions& options) {
    return Search(piece, ask, options).run(start);
}

}  // namespace tilewright::optimal
