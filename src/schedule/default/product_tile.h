#pragma once
// The register tile of a product.

#include "schedule/default_schedule.h"

namespace tilewright {

/// Vectors along the vector axis, rows along one or two others.
struct ProductTile {
    int64_t columns = 1;
    int64_t outer_rows = 1, rows = 1;
};

/// The extents and strides of a product that its register tile depends on.
struct ProductShape {
    int64_t vectors = 1;               ///< along the vector axis
    int64_t columns = 0;               ///< vectors of a panel, if it is packed: the tile has as many; 0: any number
    int64_t outer_rows = 1, rows = 1;  ///< extents of the axes that share the tile
    /// Distances between rows of the broadcast operand, in elements.
    int64_t outer_stride = 0, stride = 0;
    int64_t element_bytes = 4;  ///< of the broadcast operand
    int64_t spare = 0;          ///< registers beside sums and panel, where the broadcast operand cannot be in memory
    double latency = 0;         ///< cycles between additions to one sum; 0: a multiply-add's
    double steps = 1;           ///< of the reduction: points, or pairs of them
    double far_bytes = 0;       ///< of a panel that come in a cycle where it is read first; 0: NominalRates::far_bytes
    /// Dot products of bytes by 16-bit pairs: four instructions, whose operands are taken apart into two vectors each.
    bool words = false;
};

/// The tile with the fewest cycles over the whole extents, tails included, among those that fit the registers. Of equal
/// ones, the tile with the most accumulators.
///     16 registers of 8:  14 x 14 pixels: 2 x 3 pixels x 2 vectors, not 6 of a row (6 + 6 + 2)
///                         7 x 7 pixels: 2 x 7 pixels x 1 vector
ProductTile choose_product_tile(const ProductShape& shape, const Target& target);

/// The number of rows in [limit / 2, limit] with the smallest tail of `extent`; of equal ones, the largest. The extent
/// itself if it is smaller.
int64_t choose_rows(int64_t extent, int64_t limit);

}  // namespace tilewright
