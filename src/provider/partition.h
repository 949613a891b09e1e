#pragma once
// Which nodes of a graph become one node.

#include <cstddef>
#include <vector>

namespace tilewright::provider {

/// Groups of supported nodes, each in ascending order, such that the graph has no cycle once each group is one node:
/// no path leads from a group through another node back into it. Groups are as large as a greedy search in the order of
/// the nodes makes them; if all nodes are supported, there is one.
///     a -> b -> c, a -> c, b is not supported  ->  {a} {c}
/// `producers[i]`: the nodes whose values node i reads, all of them before i.
std::vector<std::vector<size_t>> partition(const std::vector<std::vector<size_t>>& producers,
                                           const std::vector<bool>& supported);

}  // namespace tilewright::provider
