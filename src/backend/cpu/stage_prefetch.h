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
    /// The register tiles that share a panel of the access.
    struct TilesOfPanel {
        llvm::Value *number = nullptr, *count = nullptr;  ///< of this tile among them, and of all; null: there is one
        std::optional<int64_t> known = 1;                 ///< their count, if it is known at compile time
    };
    TilesOfPanel tiles_of_panel(size_t slot);
    /// A step of a reduction in a panel.
    struct PanelStep {
        llvm::Value* line = nullptr;  ///< what the step reads of it
        llvm::Value* step = nullptr;  ///< its number, of `steps`
        int64_t steps = 0;
        int64_t bytes = 0;  ///< from the panel to the next one
        int64_t width = 0;  ///< bytes that a step reads
    };
    /// Prefetches this step's share of the next panel. Where the number of tiles is dynamic, the first two or four of
    /// them share it, and a single one prefetches its own panel.
    void prefetch_shares(const PanelStep& s, const TilesOfPanel& tiles);
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
