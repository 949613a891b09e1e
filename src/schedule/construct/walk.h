#pragma once
// Gensor's construction (§IV-C, algorithms 1 and 2): a Markov walk over the states of etir.h, and the two baselines of
// its Table VI in the same code.
//
// Where the paper leaves it open:
//  - Algorithm 2 draws one number per action; the text says roulette. It is a roulette: one number, actions in order.
//  - the cache action's factor rises with t while the temperature falls: t is the number of the step.
//  - a state is kept with probability 1 - 1 / (1 + exp(-0.5 (-log T - 10))), which falls with T; T is halved a step.
//    Start and threshold are not given; 2^100 to 1 makes the 100 steps that the evaluation speaks of.
//  - the walk returns its last state; the final ranking of the kept ones is left open. They are ranked by the cost
//    model, so that a wrong turn near the end costs nothing.
// Beyond the paper: the best few are moved on along the same edges, at any level, as long as the model's estimate
// improves; and states from elsewhere (WalkOptions::also) are ranked with those of the walks.

#include <cstdint>

#include "schedule/construct/etir.h"

namespace tilewright::construct {

struct WalkOptions {
    uint64_t seed = 1;
    int walks = 6;
    int steps = 100;  ///< halvings from the first temperature to the threshold
    bool virtual_threads = true;
    size_t top = 8;     ///< how many are returned
    bool climb = true;  ///< move the best on along single edges
    /// States that are ranked, and moved on, like those of the walks: the default schedule's. They come before states
    /// that the model prefers by less than its own error.
    std::vector<Etir> also;
};

struct Constructed {
    std::vector<Realised> top;  ///< best first, by the model; never empty
    size_t states = 0;          ///< different ones that were ranked
};

/// Deterministic in the seed.
Constructed construct(const Problem& problem, const WalkOptions& options = {});

/// One walk: the states it kept, in order, and its last one. For tests.
std::vector<Etir> walk(const Problem& problem, uint64_t seed, int steps, bool virtual_threads);

/// Construction along a tree, in the manner of Roller: from the outermost level in, the tile grows along the axis that
/// saves most traffic for the memory it takes, until the level is full; no way back, no virtual threads. Of the tiles
/// on the way the last few are handed to the same ranking (Roller measures its top ten).
Constructed construct_tree(const Problem& problem);

}  // namespace tilewright::construct
