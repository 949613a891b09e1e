#pragma once
// Which parts of a graph Tilewright takes.

#include <string>
#include <vector>

#include "provider/read_graph.h"
#include "provider/settings.h"

namespace tilewright::provider {

struct Capability {
    std::vector<Region> regions;
    size_t nodes = 0;                  ///< of the graph
    std::vector<std::string> refused;  ///< "node 'a' (NonMaxSuppression): reason"
};

/// The model's EPContext nodes, if there are any. Else regions of nodes that can be compiled, as few and as large as
/// partition() makes them, with tensors at their borders. What is not taken, and why, is in `refused`. Throws ApiError.
Capability capability_of(const Api& api, const OrtGraph* graph, const Settings& settings);

}  // namespace tilewright::provider
