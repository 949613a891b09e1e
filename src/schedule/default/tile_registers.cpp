// The micro-kernel of a product on tile registers.

#include <algorithm>
#include <cmath>
#include <map>

#include "schedule/default/matrix_axes.h"
#include "schedule/default/steps.h"
#include "tile/matrix.h"

namespace tilewright {

namespace {

// Measured on one core with AMX at 3.3 GHz: a product of r rows takes max(r, 9) cycles, a tile of 16 lines 8 cycles
// from L1, a new configuration 180.
constexpr double kLeastProduct = 9, kLinesPerCycle = 2, kConfiguration = 360, kStoreTile = 14, kLoadTile = 8,
                 kEpilogueVector = 4;
// Lines from L2 come at 40 bytes a cycle. A panel that exceeds half of L1 is read from there for every tile of rows,
// unless the reduction is blocked.
constexpr double kL2LinesPerCycle = 40.0 / 64;
constexpr int64_t kL1PanelBytes = 24 * 1024, kL1LeftBytes = 16 * 1024;

using SumBlocks = std::vector<StageChoice::SumBlock>;

struct TileShapes {
    int64_t rows = 1, outer = 1, columns = 1;  ///< columns in tiles
    SumBlocks blocks;
    bool keeps_left = false;
};

/// Chooses the shapes of a product's register tiles by estimated cycles.
class TileChoice {
  public:
    TileChoice(const OperandWalks& w, const MatrixAxes& t)
        : w_(w),
          t_(t),
          steps_(w.sum_points() / static_cast<double>(t.step)),
          groups_(t.step / dot_step(t.unit.type)),
          rows_(w.extent(t.unit.rows)),
          outer_(t.outer_rows ? w.extent(*t.outer_rows) : 1),
          columns_((w.extent(t.unit.columns) + kTileColumns - 1) / kTileColumns) {
        double left = static_cast<double>(matrix_bytes(t.unit.type)) * w.sum_points();
        for (size_t a = 0; a < w.e.spatial; ++a)
            if (w.walks[t.slots.left].depends(a)) left *= static_cast<double>(w.extent(a));
        far_left_ = left > static_cast<double>(kL1LeftBytes);
        left_bytes_ = w.elements(t.slots.left) * static_cast<double>(matrix_bytes(t.unit.type));
        double points = 1;
        for (size_t a = 0; a < w.axes(); ++a)
            if (w.walks[t.slots.right].depends(a)) points *= static_cast<double>(w.extent(a));
        right_share_ = std::min(1.0, w.elements(t.slots.right) / points);
    }

    TileShapes run() const {
        TileShapes best;
        double least = 1e300;
        const auto consider = [&](const TileShapes& s, double block_count) {
            const double cost = cycles(s, block_count);
            if (cost >= least * 0.995) return false;
            least = cost;
            best = s;
            return true;
        };
        for (int64_t c = 1; c <= std::min<int64_t>(kTileRegisters - 2, columns_); ++c) {
            const SumBlocks blocks = blocks_of(c);
            double block_count = 1;
            for (const auto& [axis, points] : blocks)
                block_count *= std::ceil(static_cast<double>(w_.extent(axis)) / static_cast<double>(points));
            for (int64_t q = 1; q <= std::min<int64_t>(3, outer_); ++q)
                for (int64_t r = std::min<int64_t>(3 * kTileRows, rows_); r >= 1; --r) {
                    if (!TileGrid{q * ((r + kTileRows - 1) / kTileRows), c, 1}.fits()) continue;
                    consider({r, q, c, {}}, 1);
                    // Pairs of terms share tiles, so L2 delivers what they need: partial sums cost more than they gain
                    // (128 x 1024 sums of 4096 terms, two of them: 3.3 ms with blocks, 2.4 without).
                    if (right_share_ == 1 && block_count > 1 && users_of({r, q, c, {}}) > 1 &&
                        consider({r, q, c, {}}, block_count))
                        best.blocks = blocks;
                }
        }
        if (best.blocks.empty()) {
            best.blocks = blocks_of_left();
            best.keeps_left = !best.blocks.empty();
        }
        return best;
    }

  private:
    /// Blocks of the reduction whose share of kKeptRows rows of the left factor fits three eighths of L2, where half of
    /// it does not.
    SumBlocks blocks_of_left() const {
        const auto most = static_cast<double>(w_.target.l2_bytes()) * 3 / 8;
        if (left_bytes_ <= static_cast<double>(w_.target.l2_bytes()) / 2 || columns_ < 8) return {};
        const size_t a = w_.e.spatial;
        if (a == t_.unit.sum || !w_.fixed(a)) return {};
        const double rows = static_cast<double>(rows_ * outer_);
        const double row = left_bytes_ / rows * std::min<double>(rows, kKeptRows);
        int64_t points = 1;
        for (int64_t n = 1; n < w_.extent(a); ++n)
            if (w_.extent(a) % n == 0 && row / static_cast<double>(w_.extent(a)) * static_cast<double>(n) <= most)
                points = n;
        return {{a, points}};
    }

    /// Tiles of rows of one task that use a panel of the right operand. Threads split the rows of a left operand that
    /// is copied, otherwise the columns, as long as there are enough of them (schedule/tasks.cpp).
    double users_of(const TileShapes& s) const {
        const double tiles = std::ceil(static_cast<double>(outer_) / static_cast<double>(s.outer)) *
                             std::ceil(static_cast<double>(rows_) / static_cast<double>(s.rows));
        const int threads = w_.target.tasks_at_a_time();
        const bool copied = !w_.e.accesses[t_.slots.left].valid.empty();
        const double panels = std::ceil(static_cast<double>(columns_) / static_cast<double>(s.columns));
        const double split = threads == 1 ? 1 : copied ? 4 * threads : std::ceil(4 * threads / panels);
        return std::max(1.0, std::floor(tiles / split));
    }

    /// Of the whole product.
    double cycles(const TileShapes& s, double block_count) const {
        const auto over = [](int64_t extent, int64_t tile, double tail_cost, const auto& cost) {
            const int64_t full = extent / tile, tail = extent % tile;
            return static_cast<double>(full) * cost(tile) + (tail > 0 ? cost(tail) + tail_cost : 0.0);
        };
        const double users = users_of(s);
        return over(columns_, s.columns, kConfiguration, [&](int64_t c) {
            return over(outer_, s.outer, kConfiguration * block_count, [&](int64_t q) {
                return over(rows_, s.rows, kConfiguration * block_count, [&](int64_t r) {
                    return tile_cycles({r, q, c, {}}, users, block_count);
                });
            });
        });
    }

    /// Of a register tile. `users`: tiles of rows that use a panel of the right operand, which the first of them reads
    /// from L2. `block_count` blocks of the reduction, whose panels
    /// L1 keeps; 1: it is not blocked.
    double tile_cycles(const TileShapes& s, double users, double block_count) const {
        const int64_t tiles = (s.rows + kTileRows - 1) / kTileRows, height = (s.rows + tiles - 1) / tiles;
        double products = 0;
        for (int64_t t = 0; t < tiles; ++t)
            products += std::max(kLeastProduct, static_cast<double>(std::min(height, s.rows - t * height)));
        const auto q = static_cast<double>(s.outer), c = static_cast<double>(s.columns);
        const double left = q * static_cast<double>(s.rows), right = c * static_cast<double>(groups_);
        const double accumulators = q * static_cast<double>(tiles) * c;
        const bool near = block_count > 1 || panel_bytes(s.columns) <= static_cast<double>(kL1PanelBytes);
        const double far = right_share_ * (near ? right / users : right) + (far_left_ ? left * left_share(s) : 0);
        return steps_ * std::max({q * c * products, (left + right) / kLinesPerCycle, far / kL2LinesPerCycle}) +
               accumulators * (kStoreTile + (block_count - 1) * (kStoreTile + kLoadTile)) +
               q * static_cast<double>(s.rows) * c * kEpilogueVector + 40;
    }

    double panel_bytes(int64_t columns) const {
        return static_cast<double>(columns * groups_ * kTileRowBytes) * steps_ * right_share_;
    }

    /// The share of the left operand's lines that a register tile reads for the first time: windows overlap.
    double left_share(const TileShapes& s) const {
        double& known = shares_[{s.rows, s.outer}];
        if (known > 0) return known;
        std::vector<int64_t> tile(w_.axes(), 1);
        tile[t_.unit.rows] = s.rows;
        if (t_.outer_rows) tile[*t_.outer_rows] = s.outer;
        for (size_t a = w_.e.spatial; a < w_.axes(); ++a) tile[a] = w_.extent(a);
        const double points = static_cast<double>(s.rows * s.outer) * w_.sum_points();
        const auto bytes = static_cast<double>(box_bytes(w_.stages, w_.e.accesses[t_.slots.left], tile));
        return known = std::min(1.0, bytes / (points * static_cast<double>(matrix_bytes(t_.unit.type))));
    }

    /// Blocks of the reduction whose panel of columns fits kL1PanelBytes, by its loops from the outermost on; none if
    /// the whole panel fits.
    ///     3 x 3 windows of 256 channels, 32 columns: a block is one position of the window, 16 KB of 144
    SumBlocks blocks_of(int64_t columns) const {
        auto bytes = static_cast<int64_t>(panel_bytes(columns));
        std::vector<size_t> loops;  // windows, then the sum that an instruction adds up
        for (size_t a = w_.e.spatial; a < w_.axes(); ++a)
            if (a != t_.unit.sum) loops.push_back(a);
        loops.push_back(t_.unit.sum);
        SumBlocks blocks;
        for (const size_t a : loops) {
            if (!w_.fixed(a)) return {};
            if (bytes <= kL1PanelBytes) break;
            const int64_t unit = a == t_.unit.sum ? t_.step : 1, units = w_.extent(a) / unit;
            if (units == 1) continue;
            int64_t points = 1;
            for (int64_t n = 1; n <= units; ++n)
                if (units % n == 0 && bytes / units * n <= kL1PanelBytes) points = n;
            bytes = bytes / units * points;
            blocks.push_back({a, points * unit});
        }
        return blocks;
    }

    const OperandWalks& w_;
    const MatrixAxes& t_;
    const double steps_;    ///< of the sum
    const int64_t groups_;  ///< lines of a step of the right operand, for each tile of columns
    const int64_t rows_, outer_, columns_;
    bool far_left_ = false;  ///< the left operand exceeds L1: each panel of columns reads it from L2 again
    double left_bytes_ = 0;
    double right_share_ = 1;  ///< of a panel's lines, those that no other step reads: terms are read by several
    mutable std::map<std::pair<int64_t, int64_t>, double> shares_;
};

}  // namespace

bool choose_tile_micro(const OperandWalks& w, StageChoice& choice) {
    if (w.target.gpu || (!w.target.bf16_tiles() && !w.target.byte_tiles())) return false;
    const auto axes = matrix_axes(w, MatrixForm::Tile);
    if (!axes || !(axes->unit.type == MatrixType::I8 ? w.target.byte_tiles() : w.target.bf16_tiles())) return false;
    Micro& micro = choice.micro;
    TileShapes shapes = TileChoice(w, *axes).run();
    micro.registers[axes->unit.columns] = shapes.columns * kTileColumns;
    micro.registers[axes->unit.rows] = shapes.rows;
    if (axes->outer_rows) micro.registers[*axes->outer_rows] = shapes.outer;
    choice.sum_blocks = std::move(shapes.blocks);
    choice.keeps_left = shapes.keeps_left;
    finish_matrix_micro(w, *axes, choice);
    return true;
}

}  // namespace tilewright
