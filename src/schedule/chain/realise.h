#pragma once
// Realisation of a candidate of the chain's space as a tile program.
//
// On a CPU, a thread block is a task of the thread pool, and shared memory is the L2 of its core. A Compute stands in
// the innermost loop that cuts one of its axes (§III-B). Loops of one step are removed, so their statements move
// outward. A Load is a copy only where the operand must be packed for the vectors. It stands in the outermost loop at
// which the copy fits a third of L2. Other operands are read through the caches, which the estimate includes.

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "schedule/chain/ablation.h"
#include "schedule/chain/expression.h"
#include "schedule/default_schedule.h"

namespace tilewright::chain {

struct Candidate {
    TilingExpression expression;  ///< inside a block (Space::expressions)
    std::vector<int64_t> tiles;   ///< of each of Chain::tiled
    friend auto operator<=>(const Candidate&, const Candidate&) = default;
};

/// The micro-kernels of stages, by what decides about them: the stage, its extents in a tile, and the sizes of buffers
/// that it reads or writes. Candidates of one chain agree in most of them. May be used by several threads.
class StageChoices {
  public:
    /// The choice of this key: `choose()` the first time.
    StageChoice of(const std::vector<int64_t>& key, const std::function<StageChoice()>& choose);
    size_t size() const;

  private:
    mutable std::mutex mutex_;
    std::map<std::vector<int64_t>, StageChoice> known_;
};

/// Nothing where the tree would not compute the stages: a sum over a tiled axis that cannot be rescaled when its online
/// maximum changes, or a value that is read whole before it is complete. `known`: the choices for earlier candidates of
/// the same chain and target, and takes this one's.
std::optional<TileProgram> realise(const Chain& chain, const Candidate& candidate, const Target& target,
                                   StageChoices* known = nullptr, Ablation without = Ablation::None);

}  // namespace tilewright::chain
