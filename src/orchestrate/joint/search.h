#pragma once
// The joint stage of ALT (§5.2) for one contraction, with a cost model first: layouts of its template are compared by
// the schedule of the default heuristic, the best of them by constructed schedules, and the best of those by
// measurements. A layout counts with its loops: its cost is that of the best schedule found for it.

#include <cstddef>
#include <vector>

#include "orchestrate/joint/evaluation.h"
#include "orchestrate/joint/options.h"
#include "orchestrate/joint/point_layouts.h"
#include "orchestrate/joint/single_kernel.h"

namespace tilewright::joint {

struct SearchResult {
    LayoutCandidate rule;               ///< the layouts of the default heuristic
    std::vector<LayoutCandidate> best;  ///< at most `measured`, without the rule's, ascending
    double template_size = 0;           ///< points of the template
    size_t points = 0, constructed = 0, measured = 0;
};

/// Compares layouts of a contraction's template. `rule`: per tensor, the layout of the default heuristic. Without a
/// template only the rule's layouts are evaluated.
SearchResult search_layouts(const SinglePrimitive& contraction, const std::vector<Layout>& rule, Evaluation& evaluation,
                            const SearchOptions& options);

}  // namespace tilewright::joint
