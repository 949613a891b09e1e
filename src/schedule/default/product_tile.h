#pragma once
// The register tile of a product.

#include "schedule/default_schedule.h"

namespace tilewright {

/// Vectors along the vector axis, rows along one or two others.
struct ProductTile {
    int64_t columns = 1;
    int64_t outer_rows = 1, rows = 1;
};

/// A product as its register tile sees it.
struct ProductShape {
    int64_t vectors = 1;               ///< along the vector axis
    int64_t outer_rows = 1, rows = 1;  ///< extents of the axes that share the tile
    /// How far apart rows lie in the operand that is broadcast, in elements.
    int64_t outer_stride = 0, stride = 0;
    double steps = 1;  ///< points of the reduction
};

/// Of all tiles that fit the registers the one with the fewest cycles on the whole extents, tails included; of equals
/// the one with most accumulators.
///     16 registers of 8:  14 x 14 pixels: 2 x 3 pixels x 2 vectors, not 6 of a row (6 + 6 + 2)
///                         7 x 7 pixels: 2 x 7 pixels x 1 vector
ProductTile choose_product_tile(const ProductShape& shape, const Target& target);

/// The number of rows in [limit / 2, limit] that wastes least of `extent` in the tail, larger ones first; the extent
/// where it is smaller.
int64_t choose_rows(int64_t extent, int64_t limit);

}  // namespace tilewright
