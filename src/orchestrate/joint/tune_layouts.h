#pragma once
// Layouts of a whole program, chosen together with loops (ALT §5 and §4.2, and beyond it).
//
//     search     each contraction proposes layouts of its tensors (search.h); propagation offers them to its neighbours
//     choice     every tensor has at most four layouts: the default heuristic's, row-major, and the best proposals. A
//                kernel in one combination of its tensors' layouts is a candidate, and so is each conversion. The
//                binary program of orchestration (optimal/blp.h) selects among them
//     costs      estimates; where kernels can be measured, the kernels of each solution are (optimal/lazy.h)
//
// ALT decides greedily, in topological order, and never lets a layout replace that of another tuned operator (its third
// constraint). Here the binary program decides, and the default heuristic's layouts are its initial plan, so that no
// selected plan costs more by the costs of the choice.

#include <cstddef>
#include <string>
#include <vector>

#include "orchestrate/joint/search.h"
#include "orchestrate/layouts.h"
#include "orchestrate/schedules.h"

namespace tilewright::joint {

struct Report {
    std::vector<SearchResult> contractions;  ///< distinct ones
    size_t candidates = 0, conversions = 0;  ///< of the choice
    size_t measured = 0;                     ///< kernels, in searches and choice
    double rule_seconds = 0, seconds = 0;    ///< costs of the default heuristic's plan and of the selected one
    bool optimal = false;                    ///< proven
    size_t changed = 0;                      ///< values that kernels write in other layouts than the rule's
    size_t converted = 0;                    ///< conversions in the plan
    size_t programs = 0;                     ///< tuned so far
    double ms = 0;
    /// One line.
    std::string print() const;
};

/// Improves the layouts of the default heuristic. Schedules of the plan are constructed with `schedules`.
ChosenLayouts tune_layouts(const ChosenLayouts& rule, Schedules& schedules, const Options& options, Report& report);

}  // namespace tilewright::joint
