#pragma once
// Small random graphs, for the tests of this folder.

#include "base/random.h"
#include "orchestrate/optimal/dag.h"

namespace tilewright::optimal::test {

/// A random graph. Every node reads up to two earlier tensors, preferably late ones, or the given one. The share
/// `two_outputs` of the nodes writes two tensors.
inline Dag random_dag(uint64_t seed, size_t nodes, double two_outputs = 0) {
    std::mt19937_64 rng(seed);
    Dag dag;
    std::vector<TensorId> made{dag.add_given("x")};
    for (size_t n = 0; n < nodes; ++n) {
        std::vector<TensorId> reads;
        for (size_t k = 0; k < 1 + rng() % 2; ++k)
            reads.push_back(made[made.size() - 1 - std::min<size_t>(made.size() - 1, rng() % 4)]);
        const NodeId id = dag.add_node("n" + std::to_string(n), reads, 1 + static_cast<double>(rng() % 8));
        if (uniform(rng) < two_outputs) dag.add_output(id, "m" + std::to_string(n), 2);
        for (const TensorId t : dag.nodes[id].writes) made.push_back(t);
    }
    for (Dag::Tensor& t : dag.tensors) t.needed = t.producer && (t.readers.empty() || rng() % 8 == 0);
    return dag;
}

inline std::vector<NodeId> ids(std::initializer_list<size_t> nodes) {
    std::vector<NodeId> out;
    for (const size_t n : nodes) out.emplace_back(n);
    return out;
}

}  // namespace tilewright::optimal::test
