#include "schedule/default/product_tile.h"

#include <algorithm>

#include "cost/cache_sets.h"

namespace tilewright {

namespace {

constexpr int64_t kMostTileVectors = 4;  // along the vector axis
constexpr int64_t kMostTileRows = 14;    // more rows only add code

/// Cycles of one reduction step of a register tile of rows x columns vectors: the maximum of multiply-adds, loads,
/// latency that too few accumulators do not hide, and the panel's vectors at `panel_bytes_per_cycle`. By 16-bit pairs,
/// two multiplications and two additions take the place of a multiply-add, three instructions take an operand apart,
/// and twice as many of all these start in a cycle.
double product_step_cycles(const NominalRates& rates, bool words, int64_t rows, int64_t columns, double vector_bytes,
                           double panel_bytes_per_cycle) {
    const auto r = static_cast<double>(rows), c = static_cast<double>(columns);
    const double products =
        words ? std::max(2 * r * c, (4 * r * c + 3 * (r + c)) / 2) / rates.fmas : r * c / rates.fmas;
    return std::max({products, (r + c) / rates.loads, rates.fma_latency, c * vector_bytes / panel_bytes_per_cycle});
}

/// The cost of an extent in tiles: full ones and a tail.
template <typename Cost>
double over_tiles(int64_t extent, int64_t tile, const Cost& cost) {
    const int64_t full = extent / tile, tail = extent % tile;
    return (full > 0 ? static_cast<double>(full) * cost(tile) : 0.0) + (tail > 0 ? cost(tail) : 0.0);
}

/// Cycles of the whole product in such tiles.
double product_cycles(const NominalRates& rates, const ProductShape& shape, const ProductTile& tile,
                      double vector_bytes) {
    return over_tiles(shape.vectors, tile.columns, [&](int64_t columns) {
        // Every row tile reads the panel again. The first one reads it from beyond L2.
        const double panel = static_cast<double>(columns) * vector_bytes * shape.steps;
        const double again = panel <= rates.l1_panel_bytes ? rates.l1_bytes : rates.l2_bytes;
        const int64_t tile_rows = tile.rows * tile.outer_rows;
        const auto step = [&](int64_t rows, double bytes) {
            return product_step_cycles(rates, shape.words, rows, columns, vector_bytes, bytes);
        };
        const double first = step(tile_rows, rates.far_bytes) - step(tile_rows, again);
        return first * shape.steps + over_tiles(shape.outer_rows, tile.outer_rows, [&](int64_t outer_rows) {
                   return over_tiles(shape.rows, tile.rows, [&](int64_t inner_rows) {
                       const int64_t rows = inner_rows * outer_rows;
                       return step(rows, again) * shape.steps + static_cast<double>(rows * columns) + 8;
                   });
               });
    });
}

}  // namespace

ProductTile choose_product_tile(const ProductShape& shape, const Target& target) {
    NominalRates rates = target.nominal;
    if (shape.latency > 0) rates.fma_latency = shape.latency;
    ProductTile best;
    double best_cost = 1e300;
    const double vector_bytes = 4.0 * target.micro_lanes();
    const int64_t free_ways = l1_ways(target) - 2;  // the panel's vectors stream through the other two
    if (l1_ways(target) > kL1Ways) rates.l2_bytes = rates.wide_l2_bytes;
    if (shape.far_bytes > 0) rates.far_bytes = shape.far_bytes;
    // While a panel that is read once comes from memory, there is time to read rows from L2 again that L1 does not hold
    // (13 rows, 12 KiB apart, of 3072 terms: 1.16 ms in tiles of 6, 0.71 in one of 13; Intel Xeon 6/207).
    const auto waits_for_memory = [&](int64_t rows, int64_t columns) {
        return shape.far_bytes > 0 && rows == shape.rows * shape.outer_rows &&
               static_cast<double>(columns) * vector_bytes / shape.far_bytes >=
                   static_cast<double>(rows * columns) / rates.fmas;
    };
    const int64_t widest = std::min(kMostTileVectors, shape.vectors);
    const bool packed = shape.columns > 0 && shape.columns <= widest;
    for (int64_t c = packed ? shape.columns : 1; c <= (packed ? shape.columns : widest); ++c) {
        // The operand's vectors stay in registers beside the accumulators. The broadcast needs a register unless it is
        // a memory operand of the multiply-add. By 16-bit pairs both are taken apart, and a product and a mask are
        // held.
        const int64_t operands = shape.words ? 2 * c + 4 : c + (target.micro_registers() < 32 ? 1 : shape.spare);
        const int64_t spare = target.micro_registers() - operands;
        const int64_t most = std::min(spare / c, kMostTileRows);
        for (int64_t r = std::min(shape.rows, most); r >= 1; --r)
            for (int64_t q = std::min(shape.outer_rows, most / r); q >= 1; --q) {
                // Every row is a separate stream.
                if (points_in_fullest_set(q, shape.outer_stride * shape.element_bytes, r,
                                          shape.stride * shape.element_bytes) > free_ways &&
                    !waits_for_memory(r * q, c))
                    continue;
                const double cost = product_cycles(rates, shape, {c, q, r}, vector_bytes);
                const bool better =
                    cost < best_cost * 0.995 ||
                    (cost < best_cost * 1.005 && r * q * c > best.rows * best.outer_rows * best.columns);
                if (!better) continue;
                best = {c, q, r};
                best_cost = std::min(cost, best_cost);
            }
    }
    return best;
}

int64_t choose_rows(int64_t extent, int64_t limit) {
    if (extent <= limit) return std::max<int64_t>(1, extent);
    int64_t best = limit;
    double best_cost = 1e30;
    for (int64_t t = limit; t >= std::max<int64_t>(1, limit / 2); --t) {
        const int64_t full = extent / t, tail = extent % t;
        // A tile of t rows costs t plus a constant for the operand that the rows share.
        const double cost = static_cast<double>(full) * (static_cast<double>(t) + 1.0) +
                            (tail > 0 ? static_cast<double>(tail) + 1.5 : 0.0);
        if (cost < best_cost - 1e-9) {
            best_cost = cost;
            best = t;
        }
    }
    return best;
}

}  // namespace tilewright
