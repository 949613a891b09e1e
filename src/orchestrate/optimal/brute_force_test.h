#pragma once
// The cheapest plan by exhaustive search, and random choices for tests.

#include <limits>
#include <map>
#include <queue>

#include "base/random.h"
#include "orchestrate/optimal/candidates.h"
#include "orchestrate/optimal/kernels.h"
#include "orchestrate/optimal/random_dag_test.h"
#include "orchestrate/optimal/states.h"

namespace tilewright::optimal::test {

/// The cost of the cheapest plan, by uniform-cost search over the sets of available tensors, and of executed nodes
/// where nodes must not repeat; infinity if a needed tensor cannot be computed. It uses no binary program, bounds,
/// domination or loop rows.
inline double cheapest(const Choice& choice) {
    const auto bits = [](const std::vector<TensorId>& tensors) {
        uint64_t out = 0;
        for (const TensorId t : tensors) out |= uint64_t{1} << t.index();
        return out;
    };
    const uint64_t needed = bits(choice.needed);
    using State = std::pair<uint64_t, uint64_t>;  // tensors, nodes
    const State begin{bits(choice.given), 0};
    std::map<State, double> best{{begin, 0}};
    using Entry = std::pair<double, State>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
    queue.emplace(0, begin);
    while (!queue.empty()) {
        const auto [cost, state] = queue.top();
        queue.pop();
        if (cost > best.at(state)) continue;
        const auto [there, executed] = state;
        if ((needed & ~there) == 0) return cost;
        for (const Candidate& c : choice.candidates) {
            const uint64_t reads = bits(c.inputs), makes = bits(c.outputs);
            if ((reads & ~there) != 0 || (makes & ~there) == 0) continue;
            uint64_t covers = 0;
            if (choice.once)
                for (const NodeId n : c.covers) covers |= uint64_t{1} << n.index();
            if ((covers & executed) != 0) continue;
            const auto [it, fresh] =
                best.try_emplace(State(there | makes, executed | covers), std::numeric_limits<double>::infinity());
            if (cost + c.cost >= it->second) continue;
            it->second = cost + c.cost;
            queue.emplace(it->second, it->first);
        }
    }
    return std::numeric_limits<double>::infinity();
}

/// A cost like that of a kernel: a launch, a cost per node, and the tensors read and written; then noise.
inline double kernel_cost(const Dag& dag, const Candidate& c, std::mt19937_64& rng) {
    double cost = 3;
    for (const NodeId n : c.covers) cost += 0.25 * static_cast<double>(1 + n.index() % 5);
    for (const auto* list : {&c.inputs, &c.outputs})
        for (const TensorId t : *list) cost += 0.5 * dag.tensors[t].weight;
    return cost * (0.5 + uniform(rng));
}

/// Every connected convex set of a graph with up to `outputs` output sets each; some are dropped at random.
inline Choice random_choice(const Dag& dag, uint64_t seed, size_t most_nodes = SIZE_MAX, size_t outputs = 4) {
    std::mt19937_64 rng(seed);
    Choice choice = choice_of(dag);
    ConvexOptions options;
    options.most_nodes = most_nodes;
    for (const NodeSet& set : convex_sets(dag, Paths(dag), options).sets) {
        if (set.size() > 1 && rng() % 8 == 0) continue;
        for (std::vector<TensorId>& out : output_sets(dag, set, outputs)) {
            Candidate c{dag.inputs(set), std::move(out), set.nodes(), 0};
            c.cost = kernel_cost(dag, c, rng);
            choice.candidates.push_back(std::move(c));
        }
    }
    return choice;
}

/// A choice without a graph: each candidate makes random tensors from random others.
inline Choice random_system(uint64_t seed, size_t tensors, size_t candidates) {
    std::mt19937_64 rng(seed);
    Choice choice;
    choice.tensors = tensors;
    choice.given = {TensorId(0)};
    choice.needed = {TensorId(tensors - 1)};
    if (rng() % 2 == 0) choice.needed.emplace_back(tensors - 2);
    for (size_t k = 0; k < candidates; ++k) {
        Candidate c;
        std::vector<size_t> order(tensors);
        for (size_t t = 0; t < tensors; ++t) order[t] = t;
        for (size_t t = tensors; t > 1; --t) std::swap(order[t - 1], order[rng() % t]);
        const size_t reads = 1 + rng() % 2, makes = 1 + rng() % 3;
        for (size_t i = 0; i < reads; ++i) c.inputs.emplace_back(order[i]);
        for (size_t i = reads; i < std::min(reads + makes, tensors); ++i) c.outputs.emplace_back(order[i]);
        c.cost = static_cast<double>(rng() % 20);
        choice.candidates.push_back(std::move(c));
    }
    return choice;
}

}  // namespace tilewright::optimal::test
