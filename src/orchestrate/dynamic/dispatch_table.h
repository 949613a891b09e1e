#pragma once
// The dispatch table of a region: the fastest of the kept ways over a grid of sizes.

#include <functional>
#include <map>
#include <vector>

#include "program/dispatch.h"
#include "program/sizes.h"

namespace tilewright::dynamic {

/// Sizes of one symbol at which ways are compared.
struct GridAxis {
    Var symbol;
    std::vector<int64_t> sizes;  ///< ascending
    /// Per size: ways are compared there in any case; at the others only where those around differ. Among them the
    /// first and the last size. Empty: all.
    std::vector<bool> coarse = {};
};

/// The sizes of the samples of `symbols`, and more between them and up to `most` where `most` has the symbol: up to two
/// in each power of two for one symbol, and fewer for several, so that the grid has a few hundred points: of more than
/// ten symbols, the last have one size. The sizes of the samples are coarse, and every second one of the others.
std::vector<GridAxis> dispatch_grid(const std::vector<Var>& symbols, const std::vector<SizeSample>& samples,
                                    const std::map<Var, int64_t>& most);

/// Compares the ways at the points of the grid: at those of coarse sizes first, and at the others where the points of
/// coarse sizes around them do not agree. `seconds(way, sizes)`: infinite where the way is illegal, called by
/// several threads. Between two neighbours with different ways the cut is where the faster one changes (one symbol), or
/// their geometric mean. `needs` and `otherwise`: those of the result.
Dispatch dispatch_table(const std::vector<GridAxis>& grid, std::vector<std::vector<Expr>> needs, uint32_t otherwise,
                        const std::function<double(uint32_t way, const Bindings& sizes)>& seconds);

}  // namespace tilewright::dynamic
