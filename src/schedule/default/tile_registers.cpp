// The micro-kernel of a product on tile registers.

#include <algorithm>
#include <cmath>

#include "program/analysis/contraction.h"
#include "schedule/default/steps.h"
#include "tile/matrix.h"

namespace tilewright {

namespace {

/// The axes of a product on tile registers.
struct TileAxes {
    MatrixUnit unit{MatrixType::BF16, 0, 0, 0, false, true};
    TileSlots slots;
    std::optional<size_t> outer_rows;  ///< shares the register tile with the rows
    int64_t step = 0;
};

bool is_bf16(const OperandWalks& w, uint32_t slot) {
    return w.stages.values[w.e.accesses[slot].value].dtype == DType::BF16;
}

/// Columns: the innermost axis along which the result is contiguous and one factor does not move.
std::optional<size_t> columns_of(const OperandWalks& w, const Contraction& c) {
    for (size_t a = w.e.spatial; a-- > 0;) {
        if (!w.result().unit(a) || !w.fixed(a) || w.extent(a) < kTileColumns) continue;
        const bool first = w.walks[*c.factors[0].slot].depends(a), second = w.walks[*c.factors[1].slot].depends(a);
        if (first != second) return a;
    }
    return std::nullopt;
}

std::optional<TileAxes> tile_axes(const OperandWalks& w) {
    const auto c = contraction(w.e);
    if (!c || !w.product || c->type != DType::F32) return std::nullopt;
    if (!is_bf16(w, *c->factors[0].slot) || !is_bf16(w, *c->factors[1].slot)) return std::nullopt;
    const auto columns = columns_of(w, *c);
    if (!columns) return std::nullopt;
    TileAxes t;
    t.unit.columns = *columns;
    const bool second = w.walks[*c->factors[1].slot].depends(*columns);
    t.slots = {*c->factors[second ? 0 : 1].slot, *c->factors[second ? 1 : 0].slot};
    const OperandWalk &left = w.walks[t.slots.left], &right = w.walks[t.slots.right];
    std::vector<size_t> rows;
    for (size_t a = w.e.spatial; a-- > 0;)
        if (a != *columns && left.depends(a) && !right.depends(a) && left.strides[a] && w.extent(a) > 1)
            rows.push_back(a);
    if (rows.empty()) return std::nullopt;
    t.unit.rows = rows[0];
    if (rows.size() > 1 && w.fixed(rows[0]) && w.fixed(rows[1])) t.outer_rows = rows[1];
    for (size_t r = w.axes(); r-- > w.e.spatial && t.step == 0;)
        if (w.fixed(r) && left.depends(r) && right.depends(r)) {
            t.unit.sum = r;
            t.step = tile_step(w.extent(r));
            if (t.step != 0 && !runs_along_sum(w.stages, w.e, t.slots.left, t.unit, t.step)) t.step = 0;
        }
    if (t.step == 0) return std::nullopt;
    const bool constant = w.stages.is_constant(w.e.accesses[t.slots.right].value);
    if (!constant && !pairs_along_sum(w.stages, w.e, t.slots.right, t.unit)) return std::nullopt;
    return t;
}

// Measured on one core with AMX at 3.3 GHz: a product of r rows takes max(r, 9) cycles, a tile of 16 lines 8 cycles
// from L1, a new configuration 180.
constexpr double kLeastProduct = 9, kLinesPerCycle = 2, kConfiguration = 360, kStoreTile = 14, kEpilogueVector = 4;
// Lines from L2 come at 40 bytes a cycle. A panel that exceeds half of L1 is read from there for every tile of rows.
constexpr double kL2LinesPerCycle = 40.0 / 64, kL1PanelBytes = 24 * 1024;

struct TileShapes {
    int64_t rows = 1, outer = 1, columns = 1;  ///< columns in tiles
};

/// Cycles of a register tile with `rows` rows.
double tile_cost(int64_t rows, int64_t outer, int64_t columns, double steps, int64_t step) {
    const int64_t tiles = (rows + kTileRows - 1) / kTileRows, height = (rows + tiles - 1) / tiles;
    double products = 0;
    for (int64_t t = 0; t < tiles; ++t)
        products += std::max(kLeastProduct, static_cast<double>(std::min(height, rows - t * height)));
    const auto q = static_cast<double>(outer), c = static_cast<double>(columns);
    const double lines = q * static_cast<double>(rows) + c * static_cast<double>(step / 2);
    const double accumulators = q * static_cast<double>(tiles) * c;
    const double panel = c * static_cast<double>(step / 2) * steps * static_cast<double>(kTileRowBytes);
    const double far = panel > kL1PanelBytes ? c * static_cast<double>(step / 2) / kL2LinesPerCycle : 0;
    return steps * std::max({q * c * products, lines / kLinesPerCycle, far}) + accumulators * kStoreTile +
           q * static_cast<double>(rows) * c * kEpilogueVector + 40;
}

TileShapes choose_shapes(const OperandWalks& w, const TileAxes& t) {
    const double steps = w.sum_points() / static_cast<double>(t.step);
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
                                    [&](int64_t rs) { return tile_cost(rs, qs, cs, steps, t.step); });
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
    if (!w.target.bf16_tiles() || w.target.gpu) return false;
    const auto axes = tile_axes(w);
    if (!axes) return false;
    Micro& micro = choice.micro;
    const TileShapes shapes = choose_shapes(w, *axes);
    micro.matrix = axes->unit;
    micro.vector_axis = axes->unit.columns;
    micro.lanes = static_cast<int64_t>(kTileColumns);
    micro.registers[axes->unit.columns] = shapes.columns * kTileColumns;
    micro.registers[axes->unit.rows] = shapes.rows;
    if (axes->outer_rows) micro.registers[*axes->outer_rows] = shapes.outer;
    micro.registers[axes->unit.sum] = axes->step;
    choice.contraction = true;
    choose_loop_order(w, choice);
    // The reduction in tiles is innermost: a step of it is a run of the left factor.
    std::stable_partition(micro.order.begin(), micro.order.end(), [&](size_t a) { return a != axes->unit.sum; });
    if (!w.e.accesses[axes->slots.left].valid.empty()) choice.loads.push_back(axes->slots.left);
    return true;
}

}  // namespace tilewright
