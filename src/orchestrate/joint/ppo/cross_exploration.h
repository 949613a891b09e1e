#pragma once
// ALT's own search for one contraction (§5.2, Figure 8), the baseline of search.h. A joint stage repeats: the layout
// actor selects the tiles of the template, one dimension after another; actors of loops walk in the space of that
// layout; the best time found is the reward of the layout. A stage with loops only follows, in the best layout. Of
// every batch of sampled points and of every episode of steps, the points that the cost model likes best are measured,
// and the cost model is trained with them.
//
// Choices that the paper does not specify:
//  - R in formula 2 (F = R(D a)) is the nearest factor that the template offers. Parameters of constant operands alone
//    are left out, since constants are packed for the micro-kernel.
//  - The batch of sampled points is measured once a layout, then one episode of loops. Episodes start at the fastest
//    point measured so far; in the stage with loops only, a batch is sampled when an episode finds nothing new.
//  - An actor of loops belongs to a level and to the role of an axis (the vector's, of the result, of the sum), not to
//    one axis, so that it acts in every layout. In a step all of them move.
//  - U in the reward U - l is 1, and l is relative to the time of the default heuristic's layouts, 10 at most.
//  - The cost model predicts the logarithm of the seconds, from the features of cost/residual.h. Before the first 16
//    measurements the estimate stands in for it.
//  - Actors, critic and cost model are made anew for each contraction.

#include "orchestrate/joint/search.h"

namespace tilewright::joint::ppo {

/// As joint::search_layouts. Schedules that were found for the layouts of the result are those of the evaluation
/// (Evaluation::adopt). Throws RuntimeError where XGBoost is not installed.
SearchResult search_layouts(const SinglePrimitive& contraction, const std::vector<Layout>& rule, Evaluation& evaluation,
                            const PpoOptions& options, int levels);

}  // namespace tilewright::joint::ppo
