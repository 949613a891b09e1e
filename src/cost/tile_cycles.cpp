// The cycles of one register tile.

#include <algorithm>
#include <cmath>

#include "cost/cache_sets.h"
#include "cost/estimate.h"
#include "tile/matrix.h"
#include "tile/register_tile.h"

namespace tilewright {

namespace {

constexpr double kInstructionWindow = 300;  // instructions in flight
constexpr double kIssueWidth = 5;           // sustained instructions per cycle in a loop
constexpr double kTileOverhead = 20;        // cycles per register tile: addresses, latency of the last sums
constexpr double kSetConflict = 8;          // cycles of a store to an overfull set of L1
// Measured with AMX at 3.3 GHz.
constexpr double kLeastTileProduct = 9;     // cycles of a product of few rows; others take a cycle a row
constexpr double kTileLine = 1.6;           // cycles to load a line of a tile register from L2, which products wait for
constexpr double kSharedLoads = 14.0 / 24;  // of the loads of six pairs of terms, those that no register has yet
constexpr double kTileStore = 14;           // cycles to store a tile register
constexpr double kF16Joined = 3;            // cycles to add a vector of pairs of f16 to sums of f32 (Intel Xeon 6/207)
constexpr double kLaneSum = 10;             // cycles to reduce a vector across lanes

/// A register tile of a stage: `tile` vectors along the vector axis, points along the others.
class RegisterTileModel {
  public:
    RegisterTileModel(const StageModel& stage, const Micro& micro, std::span<const int64_t> tile, const CycleRates& m,
                      bool clamped)
        : s_(stage), micro_(micro), tile_(tile), m_(m), va_(micro.vector_axis.value_or(stage.extents.size())) {
        for (size_t a = 0; a < s_.spatial; ++a) vectors_ *= static_cast<double>(tile_[a]);
        block_.assign(tile_.begin(), tile_.end());
        block_.resize(s_.extents.size(), 1);
        // Completely unrolled windows share loads: 4 pixels of 3 points need 6 loads, not 12.
        if (!clamped)
            for (size_t a = s_.spatial; a < s_.extents.size() && a < micro_.registers.size(); ++a)
                if (a != va_ && micro_.registers[a] > 1 && micro_.registers[a] == s_.extents[a]) {
                    block_[a] = micro_.registers[a];
                    unrolled_ *= static_cast<double>(block_[a]);
                }
        if (has_lanes() && unrolled_ > 1) block_[va_] *= micro_.lanes;
    }

    double cycles(double steps) const {
        if (micro_.matrix && micro_.matrix->tile()) return tile_register_cycles(steps);
        if (micro_.matrix && micro_.matrix->dot()) return dot_cycles(steps);
        if (const double transforms = whole_transforms(); transforms > 0) return transform_cycles(transforms);
        return step_cycles(steps) * steps + end_cycles() + (s_.reduces ? kTileOverhead : 1);
    }

  private:
    bool has_lanes() const { return va_ < s_.extents.size(); }
    bool lanes_reduce() const { return has_lanes() && va_ >= s_.spatial; }

    /// On tile registers: products and the loads of their operands in each of steps / k passes over the sum; then the
    /// accumulators are stored. One core, Intel Xeon 6/167: products of bf16 reach 40 % of the peak, pairs of terms 55.
    double tile_register_cycles(double steps) const {
        const MatrixUnit& u = *micro_.matrix;
        const auto step = static_cast<double>(micro_.registers[u.sum]);
        const int64_t tiles = (tile_[u.rows] + kTileRows - 1) / kTileRows;
        const double rows = static_cast<double>(tile_[u.rows]) / static_cast<double>(tiles);
        const double row_tiles = vectors_ / static_cast<double>(tile_[u.columns]) / rows;
        const double accumulators = row_tiles * static_cast<double>(tile_[u.columns]);
        const double products = accumulators * std::max(kLeastTileProduct, rows);
        const double lines =
            row_tiles * rows + static_cast<double>(tile_[u.columns]) * step / static_cast<double>(dot_step(u.type));
        double loads = 1;
        for (size_t a = s_.spatial; a < micro_.registers.size(); ++a)
            if (a != u.sum && micro_.registers[a] > 1) loads = kSharedLoads;
        return steps / step * (products + loads * lines * kTileLine) + accumulators * kTileStore + 2 * kTileOverhead;
    }

    /// By dot products: as multiply-adds, with half or a quarter of the steps. A left operand is a memory operand of
    /// the instruction.
    double dot_cycles(double steps) const {
        const auto columns = static_cast<double>(tile_[micro_.matrix->columns]);
        const bool bytes = micro_.matrix->type == MatrixType::I8, f16 = micro_.matrix->type == MatrixType::F16;
        const double rows = vectors_ / columns, loads = rows + columns;
        const double instructions = bytes && m_.byte_words ? 4 * vectors_ + 3 * (rows + columns) + 2
                                                           : vectors_ + columns + (f16 ? rows : 0) + 2;
        const double rate = bytes ? m_.byte_dots_per_cycle : f16 ? m_.f16_per_cycle : m_.dots_per_cycle;
        const double dots = rate > 0 ? rate : m_.fmas_per_cycle / 4;  // emulated
        const double pairs = steps / static_cast<double>(dot_step(micro_.matrix->type));
        const double together = std::max(1.0, kInstructionWindow / std::max(1.0, instructions * pairs));
        const double step = std::max({vectors_ / dots, loads / m_.loads_per_cycle, instructions / kIssueWidth,
                                      (bytes || f16 ? m_.fma_latency : kDotLatency) / together});
        const double joined = f16 ? steps / static_cast<double>(micro_.registers[micro_.matrix->sum]) : 0;
        return pairs * step + joined * vectors_ * kF16Joined + end_cycles() + kTileOverhead;
    }

    /// The number of whole matrices of a linear transform that the tile holds.
    double whole_transforms() const {
        if (!s_.map || va_ >= s_.spatial) return 0;
        double n = vectors_;
        for (size_t k = 0; n > 0 && k < s_.map->rows.size(); ++k) {
            const uint32_t a = s_.map->rows[k];
            const int64_t rows = s_.map->row_extents[k], held = a < micro_.registers.size() ? micro_.registers[a] : 1;
            if (a == va_ || held % rows != 0) n = 0;
            n *= std::ceil(static_cast<double>(tile_[a]) / static_cast<double>(rows)) / static_cast<double>(tile_[a]);
        }
        return n;
    }

    /// Registers do not hold the sums along the first axis of a transform. They are stored in memory for the sums along
    /// the second.
    double transform_cycles(double transforms) const {
        const StageModel::Map& map = *s_.map;
        const double moved = 2 * map.column_count;
        const double gathered = s_.operands[0].strides[va_] == 1 ? 1 : micro_.lanes;
        const double sums = std::max({map.operations / m_.fmas_per_cycle, moved * gathered / m_.loads_per_cycle,
                                      (map.operations + moved + map.row_count) / kIssueWidth});
        return transforms * sums + vectors_ * 2 / m_.loads_per_cycle + kTileOverhead;
    }

    /// Whether the stride between lanes is small enough for loads and shuffles.
    bool spread(const OperandModel& o) const {
        return has_lanes() && !o.result && !o.irregular && !o.picked_along(va_) && o.strides[va_] > 1 &&
               o.strides[va_] <= kMostSpread;
    }

    /// Loads or stores per vector: one for a vector or a broadcast; a row of a block and its share of an in-register
    /// transpose; contiguous loads and shuffles for a small stride between lanes; otherwise one per lane.
    double accesses_per_vector(const OperandModel& o) const {
        if (!has_lanes() || !o.depends[va_] || (o.strides[va_] == 1 && !o.picked_along(va_))) return 1.0;
        if (!o.result && !s_.reduces && !o.irregular)
            for (size_t u = 0; u < s_.spatial; ++u)
                if (u != va_ && o.strides[u] == 1 && tile_[u] % micro_.lanes == 0)
                    return 1 + std::log2(static_cast<double>(micro_.lanes));
        if (spread(o)) return static_cast<double>(o.strides[va_]);
        return static_cast<double>(micro_.lanes) * (o.result ? 1.5 : 1.0);
    }

    /// Loads of an operand per reduction step.
    double loads_of(const OperandModel& o) const {
        double reads = 1;
        for (size_t a = 0; a < s_.spatial; ++a)
            if (o.depends[a]) reads *= static_cast<double>(tile_[a]);
        reads *= o.share();
        if (unrolled_ == 1) return reads * accesses_per_vector(o);
        const double elements = o.elements(block_);
        const double loads = has_lanes() && o.depends[va_] ? elements / micro_.lanes : elements;
        return std::min(reads * unrolled_, loads) / unrolled_ * accesses_per_vector(o);
    }

    /// The number of accumulators per sum.
    double accumulators(double steps) const {
        double n = 1;
        if (lanes_reduce() && va_ < micro_.registers.size()) {
            const int64_t whole = micro_.registers[va_] / std::max<int64_t>(1, micro_.lanes);
            n = std::max<double>(1, static_cast<double>(whole));
        }
        if (!lanes_reduce() && s_.product && unrolled_ == 1)
            n = static_cast<double>(micro_.annotations.accumulators.value_or(accumulators_for(std::llround(steps)))
                                        .per_sum(std::llround(vectors_)));
        return n;
    }

    /// Instructions that compute or convert factors, in a reduction step.
    double factor_operations() const {
        double sum = 0;
        for (const StageModel::FactorWork& work : s_.factors) {
            double n = work.operations;
            for (size_t a = 0; a < s_.spatial; ++a)
                if (work.depends[a]) n *= static_cast<double>(tile_[a]);
            sum += n;
        }
        return sum;
    }

    double step_cycles(double steps) const {
        double loads = 0, instructions = 2;
        for (const OperandModel& o : s_.operands) {
            if (o.result || !o.in_body) continue;
            const double n = loads_of(o);
            loads += n;
            if (spread(o))
                instructions += n * static_cast<double>(o.strides[va_] - 1) / static_cast<double>(o.strides[va_]);
            // Broadcasts are memory operands of the multiply-add where one tile row needs each once.
            if (!(s_.product && has_lanes() && !o.depends[va_])) instructions += n;
        }
        const double work = s_.factors.empty()
                                ? vectors_ * (s_.product ? std::max(1.0, s_.body_operations) : s_.body_operations)
                                : vectors_ + factor_operations();
        instructions += work;
        const double throughput =
            std::max({work / m_.fmas_per_cycle, loads / m_.loads_per_cycle, instructions / kIssueWidth});
        if (!s_.reduces) return throughput;
        // Short sums of several tiles overlap.
        const double together = std::max(1.0, kInstructionWindow / std::max(1.0, instructions * steps));
        return std::max(throughput, m_.fma_latency / accumulators(steps) / together);
    }

    /// Cycles after the last step: results are stored.
    double end_cycles() const {
        const OperandModel& result = s_.result();
        double cycles = vectors_ * accesses_per_vector(result) * 2 / m_.loads_per_cycle;
        // Rows that all map to one set of L1 evict each other before their lines are complete.
        for (size_t a = 0; a < s_.spatial; ++a)
            if (a != va_ && tile_[a] > kL1Ways && result.strides[a] != 0 &&
                steps_to_same_set(result.strides[a] * result.element_bytes) == 1)
                cycles += vectors_ * kSetConflict;
        if (lanes_reduce()) cycles += vectors_ * kLaneSum;
        return cycles;
    }

    const StageModel& s_;
    const Micro& micro_;
    const std::span<const int64_t> tile_;
    const CycleRates& m_;
    const size_t va_;             ///< the number of axes if there is no vector axis
    double vectors_ = 1;          ///< of results
    double unrolled_ = 1;         ///< reduction points that are unrolled
    std::vector<int64_t> block_;  ///< the tile with the unrolled reduction axes, in points
};

}  // namespace

double tile_cycles(const StageModel& s, const Micro& micro, std::span<const int64_t> tile, double steps,
                   const CycleRates& m, bool clamped) {
    return RegisterTileModel(s, micro, tile, m, clamped).cycles(steps);
}

}  // namespace tilewright
