#pragma once
// The choice that orchestration makes: of candidate kernels those that together compute what is needed, at the least
// cost (Korch §4.2, equation 2).
//
// Tensors are names for what a kernel reads and writes, no more: where layouts are chosen as well, a (tensor, layout)
// pair is one name, and a conversion is a kernel that covers no node.

#include <string>
#include <vector>

#include "orchestrate/optimal/dag.h"

namespace tilewright::optimal {

struct Candidate {
    std::vector<TensorId> inputs, outputs;  ///< each once, none in both
    /// Nodes that it executes. An honest candidate covers a node that makes each of its outputs, and for each node that
    /// it covers it covers or reads the makers of what that node reads (`verify` cannot see whether it does).
    std::vector<NodeId> covers;
    double cost = 0;  ///< at least 0; infinity: it cannot be made
};

struct Choice {
    size_t tensors = 0, nodes = 0;
    std::vector<TensorId> given, needed;
    /// Nodes that every plan has to execute: those that a needed tensor depends on. May be empty: only the bound on the
    /// cost is weaker for it.
    std::vector<NodeId> unavoidable;
    bool once = false;  ///< no node may be in two kernels
    std::vector<Candidate> candidates;

    double cost(const std::vector<size_t>& chosen) const;
    std::vector<std::string> verify() const;
};

/// Given, needed and unavoidable of a graph, without candidates.
Choice choice_of(const Dag& dag);

/// Runs chosen candidates, each as soon as its inputs are there, and in the order given as far as that says.
struct Execution {
    std::vector<size_t> order;  ///< those that can run
    std::vector<size_t> stuck;  ///< those that wait for each other, or for what no candidate makes
    bool complete = false;      ///< everything needed is there
};
Execution execute(const Choice& choice, const std::vector<size_t>& chosen);

/// The same plan without idle candidates: those that are not the first to make a tensor that is needed, or read by a
/// candidate that stays. `order` must be one that runs.
std::vector<size_t> without_idle(const Choice& choice, const std::vector<size_t>& order);

/// Whether the chosen candidates may stand together: none executes what another does where that is forbidden.
bool compatible(const Choice& choice, const std::vector<size_t>& chosen);

/// A plan, in order: every tensor by the candidate for which what it reads costs least (Knuth's generalisation of
/// Dijkstra's algorithm, which counts shared inputs as often as they are read), then without every candidate that the
/// others can do without, the most expensive first. Empty where there is no plan and something is needed.
std::vector<size_t> cheap_plan(const Choice& choice);

/// For each candidate the one that stands for it: itself, unless another gives at least the same outputs from at most
/// the same inputs for at most the same cost (of equals the first stays). That one can take its place in any plan,
/// where it stands: readers of its outputs still can. SIZE_MAX for what can never run, or costs infinity.
std::vector<size_t> dominating(const Choice& choice);

}  // namespace tilewright::optimal
