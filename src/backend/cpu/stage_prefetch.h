#pragma once
// The software prefetches of one stage, as annotated. Internal to the stage emitter. Prefetches that accompany reads
// are emitted with the reads.

#include <optional>
#include <utility>
#include <vector>

#include "backend/cpu/stage_tiles.h"
#include "program/constant_transform.h"

namespace tilewright::cpu {

class StagePrefetch : public StageTiles {
  public:
    using StageTiles::StageTiles;

  protected:
    /// PrefetchKind::Map
    void prefetch_map(const ConstantTransform& map);
    /// PrefetchKind::Rows: each step of the reduction prefetches its share of the next register tile's rows.
    void prefetch_rows();
    /// PrefetchKind::Next of vectors: each step of the reduction prefetches its share of the next panel.
    void prefetch_panels();
    /// The number of the register tile among those that share a panel of the access, and how many these are; (null, 1):
    /// one.
    std::pair<llvm::Value*, int64_t> tile_number(size_t slot);
    /// The number of this step among those of the reduction, and how many these are; (null, 0): a number is dynamic, or
    /// a step has several points.
    std::pair<llvm::Value*, int64_t> reduction_step();
    /// PrefetchKind::Epilogue
    void prefetch_epilogue();
    /// PrefetchKind::Window
    ///     2 x 4 windows of 3 x 3: of their 4 x 6 pixels the last two rows of the last four columns
    void prefetch_windows();

    std::vector<Coords> tile_points_;  ///< of the register tile being emitted

  private:
    Expr element_number(size_t slot) const;
    /// Returns the position in the tile's pixels of window element p if no earlier tile has read it.
    std::optional<std::vector<int64_t>> first_read(const Access& access, const Coords& p) const;
};

}  // namespace tilewright::cpu
