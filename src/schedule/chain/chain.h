#pragma once
// Chains of compute-intensive stages as one kernel: MCFuser (§III, §IV) on a CPU.
//
// A chain is a kernel whose stages hand tiles to each other: E = (A B) D, softmax(Q K^T) V, MLPs with an activation in
// between. Axes that index maps identify are one axis of the kernel; every product is tiled over its axes, and what
// lies between the products is computed on the tile while it is in a cache.

#include <optional>
#include <vector>

#include "tile/tile.h"

namespace tilewright::chain {

/// The axes of a kernel: those of its stages, of which reads of one stage's result by another make some the same.
struct KernelAxes {
    std::vector<TileAxis> axes;                                ///< by first use
    IndexVector<PrimitiveId, std::vector<size_t>> stage_axes;  ///< as in TileProgram
};
/// Nothing where two axes of one stage are the same.
std::optional<KernelAxes> identify_axes(const Program& stages);

struct Chain : KernelAxes {
    Program stages;
    std::vector<int64_t> extents;       ///< of the kernel's axes; dynamic ones are assumed
    std::vector<bool> open;             ///< the extent is dynamic: such an axis is always split
    std::vector<PrimitiveId> products;  ///< the compute-intensive stages (is_link), in order
    std::vector<bool> batch;            ///< an axis of every product and of every result: one point of it at a time
    std::vector<bool> reduced;          ///< some stage sums along it
    /// The axes of tiling expressions, by first use: all that some product has, that are no batch and have more than a
    /// point.
    std::vector<size_t> tiled;
};

/// Whether a stage is compute-intensive: a sum of products in which either factor is used again along some axis.
bool is_product(const TensorExpr& e);
/// What a chain links: a product, or one of a batch of products with a vector, the single query of each head of an
/// attention. (A product with one vector alone is none: as a stage of a chain it would keep all threads but one idle.)
bool is_link(const TensorExpr& e);

/// The stages in the form in which the most of them can be tiled: a division of a whole row (or any factor that does
/// not move along the sum) is taken out of the sum behind it,
///     e[m,h] = sum_n (p[m,n] / s[m]) * v[n,h]    ->    e'[m,h] = sum_n p[m,n] * v[n,h];  e[m,h] = e'[m,h] / s[m]
/// so that the sum needs no finished s; heads that share keys become rows (groups.h).
Program factored(const Program& stages);

/// The kernel's stages, factored, as a chain. Nothing where there are fewer than two links (or, with one, no statistics
/// of the rows that it multiplies: a normalisation and a product), they are not all connected, or two axes of one stage
/// are the same.
std::optional<Chain> make_chain(const Program& stages);

}  // namespace tilewright::chain
