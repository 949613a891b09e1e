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
        : dag_(dag), ask_(ask), options_(options), choice_(choice_of(dag)) {}

    PiecePlan run(const std::vector<Candidate>& start) {
        enumerate();
        const std::vector<size_t> begin = add(start);
        BlpOptions blp;
        blp.seconds = options_.seconds;
        plan_.started = begin.size() == start.size() && execute(choice_, begin).complete;
        if (plan_.started) {
            blp.start = begin;
            for (const size_t k : begin) plan_.start_seconds += seconds_[k];
        }
        const auto measure = [&](const std::vector<size_t>& which) {
            std::vector<Candidate> candidates;
            candidates.reserve(which.size());
            for (const size_t k : which) candidates.push_back(choice_.candidates[k]);
            return options_.measure(candidates);
        };
        plan_.solution = solve_lazily(choice_, options_.profile, measure, blp);
        TW_CHECK(plan_.solution.blp.status != BlpStatus::Infeasible, "a piece of {} nodes has no plan",
                 dag_.nodes.size());
        for (const size_t k : plan_.solution.blp.chosen) plan_.kernels.push_back(choice_.candidates[k]);
        return std::move(plan_);
    }

  private:
    bool modelled() const { return options_.profile == Profile::None; }

    /// Nothing where there is no such kernel.
    std::optional<Candidate> made(const NodeSet& set, std::vector<TensorId> outputs, double& seconds) {
        const KernelAnswer answer = ask_(set, outputs);
        seconds = answer.seconds;
        if (std::isinf(answer.seconds)) {
            ++plan_.refused[answer.reason];
            return std::nullopt;
        }
        return Candidate{dag_.inputs(set), std::move(outputs), set.nodes(),
                         modelled() ? answer.seconds : answer.at_least};
    }

    void enumerate() {
        const Paths paths(dag_);
        const ConvexSets convex = convex_sets(dag_, paths, options_.convex);
        plan_.sets = convex.sets.size();
        plan_.capped = convex.capped;
        std::vector<double> whole;
        std::vector<std::vector<std::pair<Candidate, double>>> of_set;
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
                double seconds = 0;
                auto candidate = made(set, std::move(outputs), seconds);
                if (candidate) of_set.back().emplace_back(std::move(*candidate), seconds);
                // What cannot write all of its values is one kernel with fewer of them in rare cases only.
                if (!candidate && first) break;
                if (first) whole.back() = seconds;
                first = false;
            }
        }
        // The model's costs are the costs where nothing is measured; else they bound nothing from above.
        const std::vector<KnownCost> known = known_costs(dag_, paths, convex.sets, whole);
        for (size_t i = 0; i < of_set.size(); ++i)
            for (auto& [candidate, seconds] : of_set[i]) {
                ++plan_.candidates;
                if (modelled() && candidate.cost >= known[i].without)
                    ++plan_.dropped;
                else
                    push(std::move(candidate), seconds);
            }
    }

    size_t push(Candidate c, double seconds) {
        position_.emplace(std::pair(c.covers, c.outputs), choice_.candidates.size());
        choice_.candidates.push_back(std::move(c));
        seconds_.push_back(seconds);
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
            double seconds = 0;
            if (auto candidate = made(dag_.set(c.covers), c.outputs, seconds)) {
                ++plan_.candidates;
                out.push_back(push(std::move(*candidate), seconds));
            }
        }
        return out;
    }

    const Dag& dag_;
    const AskKernel& ask_;
    const PieceOptions& options_;
    Choice choice_;
    std::vector<double> seconds_;  ///< of each candidate, by the model
    std::map<std::pair<std::vector<NodeId>, std::vector<TensorId>>, size_t> position_;
    PiecePlan plan_;
};

}  // namespace

PiecePlan plan_piece(const Dag& piece, const std::vector<Candidate>& start, const AskKernel& ask,
                     const PieceOptions& options) {
    return Search(piece, ask, options).run(start);
}

}  // namespace tilewright::optimal
