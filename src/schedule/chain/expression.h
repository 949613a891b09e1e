#pragma once
// MCFuser's search space (§III): tiling expressions times tile sizes, and the four rules that prune it.

#include <cstdint>
#include <string>
#include <vector>

#include "cost/estimate.h"
#include "schedule/chain/chain.h"

namespace tilewright::chain {

/// The order of loops over tiles. Deep: all of them nested, "mhnk". Flat: shared ones nested, then each product's own
/// ones behind each other, "mn(k,h)". Positions in Chain::tiled.
struct TilingExpression {
    std::vector<size_t> nested;               ///< outermost first
    std::vector<std::vector<size_t>> groups;  ///< behind each other, inside them; empty: deep
    friend auto operator<=>(const TilingExpression&, const TilingExpression&) = default;
};
/// `names`: one letter or word for each of Chain::tiled.
std::string print(const TilingExpression& e, const std::vector<std::string>& names);

/// All deep expressions (every order), then all flat ones (every order of the axes that more than one product has, and
/// of each product's own). For E = (A B) D over m, n, k, h: 24 and 2. Of one product behind statistics of its rows,
/// flat is mk(n): the statistics once for all columns.
std::vector<TilingExpression> all_expressions(const Chain& chain);

/// What a block of the grid is left with: axes that no stage sums along are bound to the grid where they stand among
/// the nested ones (rule 1).
TilingExpression block_expression(const Chain& chain, const TilingExpression& e);

/// Whether a sum's loop stands outside a loop over the result that the sum makes for a later product (rule 2): then
/// several tiles of partial results would be kept.
bool keeps_many_tiles(const Chain& chain, const TilingExpression& e);

/// Rule 3 for one axis: tiles divide an extent that is a power of two, waste less than 5 % of any other. The whole
/// extent is always a tile. Multiples of `unit`, ascending.
std::vector<int64_t> tile_sizes(int64_t extent, int64_t unit = 16);
/// The same of a dynamic extent: powers of two from `unit` on, and never all of it.
std::vector<int64_t> open_tile_sizes(int64_t unit = 16);

/// Equation 1: bytes of all tiles, each once. Rule 4 compares it with 1.2 times what a block may have. On a CPU that is
/// the second-level cache of a core.
class TileBytes {
  public:
    explicit TileBytes(const Chain& chain);
    double operator()(const std::vector<int64_t>& tiles) const;

  private:
    struct Value {
        double element_bytes = 4;
        std::vector<IndexReach> reach;  ///< per dimension, over the axes of the stage that reads or makes it
        std::vector<size_t> axes;
    };
    std::vector<int64_t> extents_;
    std::vector<bool> open_, batch_;
    std::vector<size_t> tiled_;
    std::vector<Value> values_;
};

/// How many candidates are left after each rule.
struct SpaceCounts {
    size_t expressions = 0, after_rule_1 = 0, after_rule_2 = 0;
    double all = 0, rule_1 = 0, rule_2 = 0, rule_3 = 0, rule_4 = 0;  ///< expressions times tile sizes
};

/// What is left: expressions of a block, and tile sizes of each of Chain::tiled.
struct Space {
    std::vector<TilingExpression> expressions;
    std::vector<std::vector<int64_t>> sizes;
    SpaceCounts counts;
};
/// `capacity`: bytes for rule 4. Of more than twenty thousand choices of tiles so many are counted, evenly spread, and
/// scaled up.
Space make_space(const Chain& chain, double capacity);

}  // namespace tilewright::chain
