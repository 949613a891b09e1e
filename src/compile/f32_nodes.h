#pragma once
// Nodes of a model by patterns of names: products that stay in f32 (--keep-f32).

#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace tilewright {

/// The names of the nodes, those of subgraphs included, of which a pattern matches the name or that of a tensor that
/// the node reads or computes. In a pattern * is any text, ? any character and [abc] one of these; \\ before one of
/// them is the character. Throws OptionError for a pattern that matches none, with the closest names.
std::set<std::string> f32_nodes(const Graph& graph, const std::vector<std::string>& patterns);
/// Whether f32_nodes finds a node for the pattern.
bool has_f32_node(const Graph& graph, const std::string& pattern);

}  // namespace tilewright
