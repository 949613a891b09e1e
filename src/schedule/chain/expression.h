#pragma once
// MCFuser's search space (§III): tiling expressions times tile sizes, pruned by four rules.

#include <cstdint>
#include <string>
#include <vector>

#include "cost/estimate.h"
#include "schedule/chain/chain.h"

namespace tilewright::chain {

/// The order of the tile loops. Deep: all loops nested, "mhnk". Flat: shared loops nested, then the own loops of each
/// product in sequence, "mn(k,h)". Loops are positions in Chain::tiled.
struct TilingExpression {
    std::vector<size_t> nested;               ///< outermost first
    std::vector<std::vector<size_t>> groups;  ///< in sequence inside the nested ones; empty: deep
    friend auto operator<=>(const TilingExpression&, const TilingExpression&) = default;
};
/// `names`: one letter or word for each of Chain::tiled.
std::string print(const TilingExpression& e, const std::vector<std::string>& names);

/// All deep expressions (every order), then all flat ones (every order of the axes shared by products, and of each
/// product's own axes). For E = (A B) D over m, n, k, h: 24 and 2. For one product after statistics of its rows, flat
/// is mk(n): the statistics are computed once for all columns.
std::vector<TilingExpression> all_expressions(const Chain& chain);

/// The expression inside a block of the grid: nested axes that no stage reduces are bound to the grid (rule 1).
TilingExpression block_expression(const Chain& chain, const TilingExpression& e);

/// Whether a reduction loop stands outside a loop over the result that a later product reads (rule 2). Several tiles of
/// partial results would then be live.
bool keeps_many_tiles(const Chain& chain, const TilingExpression& e);

/// Rule 3 for one axis: tiles divide an extent that is a power of two, and waste less than 5 % of any other. The whole
/// extent is always a candidate. Multiples of `unit`, ascending.
std::vector<int64_t> tile_sizes(int64_t extent, int64_t unit = 16);
/// The same for a dynamic extent: powers of two from `unit` on, never the whole extent.
std::vector<int64_t> open_tile_sizes(int64_t unit = 16);

/// Equation 1: bytes of all tiles, each counted once. Rule 4 compares it with 1.2 times the capacity of a block, on a
/// CPU a core's L2.
class TileBytes {
  public:
    explicit TileBytes(const Chain& chain);
    double operator()(const std::vector<int64_t>& tiles) const;

  private:
    struct Value {
        double element_bytes = 4;
        std::vector<IndexReach> reach;  ///< per dimension, over the axes of the stage that reads or computes it
        std::vector<size_t> axes;
    };
    std::vector<int64_t> extents_;
    std::vector<bool> open_, batch_;
    std::vector<size_t> tiled_;
    std::vector<Value> values_;
};

/// The number of candidates after each rule.
struct SpaceCounts {
    size_t expressions = 0, after_rule_1 = 0, after_rule_2 = 0;
    double all = 0, rule_1 = 0, rule_2 = 0, rule_3 = 0, rule_4 = 0;  ///< expressions times tile sizes
};

/// The pruned space: expressions of a block, and tile sizes for each of Chain::tiled.
struct Space {
    std::vector<TilingExpression> expressions;
    std::vector<std::vector<int64_t>> sizes;
};
Space make_space(const Chain& chain);
/// `capacity`: bytes for rule 4. If there are more than twenty thousand choices of tiles, that many are counted at even
/// distances and the counts are scaled.
SpaceCounts count_space(const Chain& chain, double capacity);

}  // namespace tilewright::chain
