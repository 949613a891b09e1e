// The micro-kernel of a product on tile registers.

#include <algorithm>
#include <cmath>

#include "schedule/default/matrix_axes.h"
#include "schedule/default/steps.h"
#include "tile/matrix.h"

namespace tilewright {

namespace {

// Measured on one core with AMX at 3.3 GHz: a product of r rows takes max(r, 9) cycles, a tile of 16 lines 8 cycles
// from L1, a new configuration 180.
constexpr double kLeastProduct = 9, kLinesPerCycle = 2, kConfiguration = 360, kStoreTile = 14, kEpilogueVector = 4;
// Lines from L2 come at 40 bytes a cycle. A panel that exceeds half of L1 is read from there for every tile of rows.
constexpr double kL2LinesPerCycle = 40.0 / 64, kL1PanelBytes = 24 * 1024;

struct TileShapes {
    int64_t rows = 1, outer = 1, columns = 1;  ///< columns in tiles
};

/// Cycles of a register tile with `rows` rows.
///
/// `groups`: lines of a step of the right operand, for each tile of columns.
double tile_cost(int64_t rows, int64_t outer, int64_t columns, double steps, int64_t groups) {
    const int64_t tiles = (rows + kTileRows - 1) / kTileRows, height = (rows + tiles - 1) / tiles;
    double products = 0;
    for (int64_t t = 0; t < tiles; ++t)
        products += std::max(kLeastProduct, static_cast<double>(std::min(height, rows - t * height)));
    const auto q = static_cast<double>(outer), c = static_cast<double>(columns);
    const double lines = q * static_cast<double>(rows) + c * static_cast<double>(groups);
    const double accumulators = q * static_cast<double>(tiles) * c;
    const double panel = c * static_cast<double>(groups) * steps * static_cast<double>(kTileRowBytes);
    const double far = panel > kL1PanelBytes ? c * static_cast<double>(groups) / kL2LinesPerCycle : 0;
    return steps * std::max({q * c * products, lines / kLinesPerCycle, far}) + accumulators * kStoreTile +
           q * static_cast<double>(rows) * c * kEpilogueVector + 40;
}

TileShapes choose_shapes(const OperandWalks& w, const MatrixAxes& t) {
    const double steps = w.sum_points() / static_cast<double>(t.step);
    const int64_t groups = t.step / dot_step(t.unit.type);
    const int64_t rows = w.extent(t.unit.rows), outer = t.outer_rows ? w.extent(*t.outer_rows) : 1;
    const int64_t columns = (w.extent(t.unit.columns) + kTileColumns - 1) / kTileColumns;
    const auto over = [](int64_t extent, int64_t tile, double tail_cost, const auto& cost) {
        const int64_t full = extent / tile, tail = extent % tile;
        return static_cast<double>(full) * cost(tile) + (tail > 0 ? cost(tail) + tail_cost : 0.0);
    };
    TileShapes best;
    double least = 1e300;
    for (int64_t q = 1; q <= std::min<int64_t>(3, outer); ++q)
        for (int64_t r = std::min<int64_t>(3 * kTileRows, rows); r >= 1; --r)
            for (int64_t c = 1; c <= std::min<int64_t>(kTileRegisters - 2, columns); ++c) {
                const int64_t row_tiles = q * ((r + kTileRows - 1) / kTileRows);
                if (!TileGrid{row_tiles, c, 1}.fits()) continue;
                const double cost = over(columns, c, kConfiguration, [&](int64_t cs) {
                    return over(outer, q, kConfiguration, [&](int64_t qs) {
                        return over(rows, r, kConfiguration,
                                    [&](int64_t rs) { return tile_cost(rs, qs, cs, steps, groups); });
                    });
                });
                if (cost < least * 0.999) {
                    least = cost;
                    best = {r, q, c};
                }
            }
    return best;
}

}  // namespace

bool choose_tile_micro(const OperandWalks& w, StageChoice& choice) {
    if (w.target.gpu || (!w.target.bf16_tiles() && !w.target.byte_tiles())) return false;
    const auto axes = matrix_axes(w, MatrixForm::Tile);
    if (!axes || !(axes->unit.type == MatrixType::I8 ? w.target.byte_tiles() : w.target.bf16_tiles())) return false;
    Micro& micro = choice.micro;
    const TileShapes shapes = choose_shapes(w, *axes);
    micro.registers[axes->unit.columns] = shapes.columns * kTileColumns;
    micro.registers[axes->unit.rows] = shapes.rows;
    if (axes->outer_rows) micro.registers[*axes->outer_rows] = shapes.outer;
    finish_matrix_micro(w, *axes, choice);
    return true;
}

}  // namespace tilewright
