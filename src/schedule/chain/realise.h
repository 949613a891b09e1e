#pragma once
// A candidate of the chain's space as a tile program.
//
// CPU: a thread block is a task of the thread pool, shared memory the second-level cache of its core. A Compute stands
// in the innermost loop that cuts one of its axes (§III-B); loops of one step are dead and leave no trace, so that
// whatever they held moves outward. A Load is a copy only where the operand must be packed for the vectors: it stands
// as far out as a third of the second-level cache holds what it copies. Everything else a cache loads by itself, and
// the estimate counts it.

#include <optional>

#include "schedule/chain/expression.h"
#include "schedule/default_schedule.h"

namespace tilewright::chain {

struct Candidate {
    TilingExpression expression;  ///< of a block (Space::expressions)
    std::vector<int64_t> tiles;   ///< of each of Chain::tiled
    friend auto operator<=>(const Candidate&, const Candidate&) = default;
};

/// Nothing where the tree would not compute the stages: a softmax whose sum over a tiled axis cannot go on while its
/// maximum changes, a value that must be whole and is not.
std::optional<TileProgram> realise(const Chain& chain, const Candidate& candidate, const Target& target);

}  // namespace tilewright::chain
