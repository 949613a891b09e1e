#pragma once
// The order of a graph's nodes.

#include <cstddef>
#include <vector>

namespace tilewright::provider {

/// Positions of nodes in topological order; of those that can be next, the one with the smallest id is. Without those
/// on a cycle.
///     ids {5, 3, 4}, node 1 reads node 0  ->  {2, 0, 1}
/// `producers[i]`: the nodes whose values node i reads, possibly several times.
std::vector<size_t> topological_order(const std::vector<std::vector<size_t>>& producers,
                                      const std::vector<size_t>& ids);

}  // namespace tilewright::provider
