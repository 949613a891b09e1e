#pragma once
// The optimisation problem of orchestration: select the candidate kernels that compute the needed tensors at minimum
// cost (Korch §4.2, equation 2).
//
// A tensor is only a name of what a kernel reads or writes. Where layouts are chosen as well, each (tensor, layout)
// pair is a tensor, and a conversion is a kernel that covers no node.

#include <string>
#include <vector>

#include "orchestrate/optimal/dag.h"

namespace tilewright::optimal {

struct Candidate {
    std::vector<TensorId> inputs, outputs;  ///< each once, none in both
    /// Nodes that the candidate executes. They must include a producer of each output, and for each covered node the
    /// producers of its operands unless these are inputs (`verify` cannot check that).
    std::vector<NodeId> covers;
    double cost = 0;  ///< at least 0; infinity: it cannot be made
};

struct Choice {
    size_t tensors = 0, nodes = 0;
    std::vector<TensorId> given, needed;
    /// Nodes that every plan executes, because a needed tensor depends on them. May be empty, which only weakens the
    /// bound on the cost.
    std::vector<NodeId> unavoidable;
    bool once = false;  ///< no two kernels may cover the same node
    std::vector<Candidate> candidates;

    double cost(const std::vector<size_t>& chosen) const;
    std::vector<std::string> verify() const;
};

/// The given and needed tensors and unavoidable nodes of a graph, without candidates.
Choice choice_of(const Dag& dag);

/// Runs chosen candidates, each as soon as its inputs are available, and otherwise in the given order.
struct Execution {
    std::vector<size_t> order;  ///< those that can run
    std::vector<size_t> stuck;  ///< those that wait for each other, or for a tensor without a producer
    bool complete = false;      ///< all needed tensors are available
};
Execution execute(const Choice& choice, const std::vector<size_t>& chosen);

/// The plan without idle candidates: those that are not the first producer of a tensor that is needed, or read by a
/// remaining candidate. `order` must be one that can run.
std::vector<size_t> without_idle(const Choice& choice, const std::vector<size_t>& order);

/// Whether the chosen candidates may be combined: where Choice::once is set, no two cover the same node.
bool compatible(const Choice& choice, const std::vector<size_t>& chosen);

/// A plan in an order that can run. Each tensor comes from the candidate with the cheapest inputs (Knuth's
/// generalisation of Dijkstra's algorithm, which counts a shared input once per read). Candidates that the others do
/// not need are then dropped, the most expensive first. Empty if there is no plan for a needed tensor.
std::vector<size_t> cheap_plan(const Choice& choice);

/// For each candidate, the one that replaces it: itself, unless another has at least the same outputs, at most the same
/// inputs and at most the same cost (of equal ones, the first). That one can take its place in any plan, since all
/// readers can still run. SIZE_MAX for candidates that can never run or have infinite cost.
std::vector<size_t> dominating(const Choice& choice);

}  // namespace tilewright::optimal
