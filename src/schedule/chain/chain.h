#pragma once
// GEMM chains, several compute-intensive stages in one kernel: MCFuser (§III, §IV) on a CPU.
//
// The stages of a chain pass tiles to each other: E = (A B) D, softmax(Q K^T) V, an MLP with its activation. Axes that
// index maps identify are one axis of the kernel. Every product is tiled over its axes, and stages between products are
// computed on a tile while it is in a cache.

#include <optional>
#include <vector>

#include "tile/tile.h"

namespace tilewright::chain {

/// The axes of a kernel. Axes of two stages are identified where one reads the result of the other along them.
struct KernelAxes {
    std::vector<TileAxis> axes;                                ///< by first use
    IndexVector<PrimitiveId, std::vector<size_t>> stage_axes;  ///< as in TileProgram
};
/// Nothing where two axes of one stage are identified.
std::optional<KernelAxes> identify_axes(const Program& stages);

struct Chain : KernelAxes {
    Program stages;
    std::vector<int64_t> extents;       ///< of the kernel's axes; dynamic ones are assumed
    std::vector<bool> open;             ///< the extent is dynamic; such an axis is always split
    std::vector<PrimitiveId> products;  ///< the compute-intensive stages (is_link), in order
    std::vector<bool> batch;            ///< an axis of every product and every result; tasks take one point of it
    std::vector<bool> reduced;          ///< the reduction axis of some stage
    /// The axes of tiling expressions, by first use: axes of products that are no batch and have more than one point.
    std::vector<size_t> tiled;
};

/// Whether a stage is compute-intensive: a sum of products in which both factors are reused along some axis.
bool is_product(const TensorExpr& e);
/// Whether a stage is a link of a chain: a product, or a batch of matrix-vector products (one query for each head of an
/// attention). A single matrix-vector product is none: in a chain it would leave all threads but one idle.
bool is_link(const TensorExpr& e);

/// Rewrites the stages so that as many as possible can be tiled. A division of a whole row, like any factor that does
/// not depend on the reduction axis, moves behind the sum that reads it,
///     e[m,h] = sum_n (p[m,n] / s[m]) * v[n,h]    ->    e'[m,h] = sum_n p[m,n] * v[n,h];  e[m,h] = e'[m,h] / s[m]
/// so that the sum does not depend on the complete s. Heads that share keys become rows (groups.h).
Program factored(const Program& stages);

/// The stages, of which values of 16 bits that no other kernel reads become f32: they stay on the chip, where rounding
/// saves nothing. A softmax whose division rounds,
///     q: f16 = p / s;  e = sum_n q v    ->    q: f32 = p / s;  e = sum_n q v
/// is then one that `factored` can split.
Program unrounded(Program stages);

/// The kernel's stages, factored, as a chain. Nothing where there are fewer than two links (one link is enough where
/// the chain has statistics of the rows that it multiplies, as a normalisation before a product), where the stages are
/// not all connected, or where two axes of one stage are identified.
std::optional<Chain> make_chain(const Program& stages);

}  // namespace tilewright::chain
