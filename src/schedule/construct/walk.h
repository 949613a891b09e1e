#pragma once
// Gensor's construction (§IV-C, algorithms 1 and 2): a Markov walk over the states of etir.h, and the two baselines of
// the paper's Table VI.
//
// Choices that the paper does not specify:
//  - Algorithm 2 draws one number per action, the text says roulette. It is a roulette: one number, actions in order.
//  - The factor of the cache action rises with t while the temperature falls: t is the number of the step.
//  - A state is kept with probability 1 - 1 / (1 + exp(-0.5 (-log T - 10))), which falls with T; T is halved a step.
//    Start and threshold are not given; 2^100 to 1 gives the 100 steps that the evaluation mentions.
//  - The walk returns its last state, and the ranking of kept states is not specified. Here they are ranked by the cost
//    model, so that a bad action near the end has no effect.
// Beyond the paper, the best states are improved along the same edges, at any level, as long as the estimate improves,
// and states from elsewhere (WalkOptions::also) are ranked with those of the walks.

#include <cstdint>

#include "schedule/construct/etir.h"

namespace tilewright::construct {

struct WalkOptions {
    uint64_t seed = 1;
    int walks = 6;
    int steps = 100;  ///< halvings from the first temperature to the threshold
    bool virtual_threads = true;
    size_t top = 8;     ///< the number of returned states
    bool climb = true;  ///< improve the best states along single edges
    /// Further states that are ranked and improved like those of the walks: that of the default schedule. They rank
    /// before states whose estimate is better by less than the error of the model.
    std::vector<Etir> also;
};

struct Constructed {
    std::vector<Realised> top;  ///< best first, by estimate; never empty
    size_t states = 0;          ///< distinct states that were ranked
};

/// Runs the construction. It is deterministic in the seed.
Constructed construct(const Problem& problem, const WalkOptions& options = {});

/// The states that one walk keeps, in order, and its last state. Exposed for tests.
std::vector<Etir> walk(const Problem& problem, uint64_t seed, int steps, bool virtual_threads);

/// Construction along a tree, as in Roller. From the outermost level inward, the tile grows along the axis that saves
/// most traffic per byte of memory until the level is full. There are no inverse actions and no virtual threads. The
/// last few tiles are ranked as above (Roller measures its top ten).
Constructed construct_tree(const Problem& problem);

}  // namespace tilewright::construct
