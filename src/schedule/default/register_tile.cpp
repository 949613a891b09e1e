// The register tile of a micro-kernel. There are four cases: a product, a reduction across rows, vectors along the
// reduction, and elementwise code.

#include <algorithm>
#include <cmath>

#include "cost/cache_sets.h"
#include "cost/cycle_rates.h"
#include "schedule/default/product_tile.h"
#include "schedule/default/steps.h"

namespace tilewright {

namespace {

constexpr int64_t kStripVectors = 8;  // transposed blocks of a strip: lines written per row

/// Rows of an operand in memory that hardware prefetchers follow. One row of maxima from three rows of the operand
/// takes half as long as four from nine, although the latter load a quarter less (measured).
constexpr int64_t kPrefetchedRows = 4;

/// The reduction axis of a sum down the columns of a matrix that exceeds L2:
///     for 128 columns, for all rows        touches a page for every 512 bytes
///     for each row, for 128 columns        reads memory from its beginning to its end; 3 times as fast, measured
/// Partial sums stay in the result, which must have their type, and in L1. A matrix in panels no wider than a register
/// tile is excluded. Each panel is contiguous already, and 32 panels read a row at a time are 32 streams (25088 x 4096:
/// 19 ms like that, 13 panel by panel).
std::optional<size_t> choose_summed_rows(const OperandWalks& w, size_t vector) {
    const TensorExpr& e = w.e;
    if (compute_type(w.out_type) != w.out_type || w.out_type != e.body.dtype()) return std::nullopt;
    const int64_t tile = kSummedVectors * w.target.micro_lanes();
    if (w.extent(vector) <= tile || w.axes() != e.spatial + 1) return std::nullopt;
    const size_t r = e.spatial;
    if (!w.fixed(r) || e.extents[r].constant() < 64) return std::nullopt;
    for (size_t i = 0; i < e.accesses.size(); ++i) {
        const auto stride = w.walks[i].stride(r);
        if (!w.walks[i].unit(vector) || !stride || std::abs(*stride) <= tile) continue;
        if (e.extents[r].constant() * w.extent(vector) * w.element_bytes(i) > w.target.task_bytes()) return r;
    }
    return std::nullopt;
}

/// Rows of an operand within a page that a register tile of `tile` points along axis `a` reads alternately. Windows of
/// 3 rows at a stride of 2 touch 3 rows for one row of the result, 9 for four.
int64_t alternating_rows(const OperandWalks& w, size_t access, size_t a, int64_t tile) {
    const int64_t element_bytes = w.element_bytes(access);
    const auto row_stride = [&](size_t axis_number) -> int64_t {
        const int64_t elements = std::abs(w.walks[access].stride(axis_number).value_or(0));
        const int64_t bytes = elements * element_bytes;
        return bytes >= kLineBytes && bytes < kPageBytes ? elements : 0;
    };
    if (row_stride(a) == 0) return 1;
    for (size_t r = w.e.spatial; r < w.axes(); ++r)
        if (row_stride(r) > 0 && row_stride(a) % row_stride(r) == 0 && w.fixed(r))
            return (tile - 1) * (row_stride(a) / row_stride(r)) + w.e.extents[r].constant();
    return tile;
}

/// Axes other than the vector axis along which an operand's vectors are reused, innermost first.
std::vector<size_t> reused_rows(const OperandWalks& w, size_t vector) {
    std::vector<size_t> rows;
    for (size_t a = w.e.spatial; a-- > 0;)
        if (a != vector && w.reused_along(a, vector) && !w.e.extents[a].is_constant(1)) rows.push_back(a);
    return rows;
}

/// The columns of the panels in which the factor along the vectors is packed; 0: none.
///     w[i0 % 32 + 2048*(i0 // 32) + 32*i2]  ->  32
int64_t packed_columns(const OperandWalks& w, size_t vector) {
    int64_t columns = 0;
    for (const uint32_t slot : w.slots) {
        const OperandWalk& operand = w.walks[slot];
        if (!operand.depends(vector) || !operand.unit(vector) || operand.stride(vector)) continue;
        for (size_t r = w.e.spatial; r < w.axes(); ++r)
            if (const int64_t step = std::abs(operand.stride(r).value_or(0)); step > 0)
                columns = columns == 0 ? step : std::min(columns, step);
    }
    return columns;
}

/// Whether two axes become one (merge_contiguous_axes): wherever an operand or the result moves along them, the outer
/// one's points adjoin.
bool merge(const OperandWalks& w, size_t outer, size_t inner) {
    return std::all_of(w.walks.begin(), w.walks.end(), [&](const OperandWalk& operand) {
        if (!operand.depends(outer) && !operand.depends(inner)) return true;
        const auto o = operand.stride(outer), i = operand.stride(inner);
        return o && i && *o == *i * w.extent(inner);
    });
}

void tile_product(const OperandWalks& w, const std::vector<size_t>& rows, Micro& micro) {
    const size_t vector = *micro.vector_axis;
    const auto stride = [&](size_t a) {
        for (const OperandWalk& operand : w.walks)
            if (!operand.result && !operand.depends(vector) && operand.stride(a)) return *operand.stride(a);
        return int64_t{0};
    };
    ProductShape shape;
    shape.vectors = (w.extent(vector) + w.target.micro_lanes() - 1) / w.target.micro_lanes();
    // Panels of one vector are as good side by side.
    const int64_t lanes = w.target.micro_lanes();
    if (const int64_t columns = packed_columns(w, vector); columns > lanes && columns % lanes == 0)
        shape.columns = columns / lanes;
    shape.rows = w.extent(rows[0]);
    shape.stride = stride(rows[0]);
    shape.steps = w.sum_points();
    for (const uint32_t slot : w.slots)
        if (w.walks[slot].depends(vector) && w.stages.residence(w.e.accesses[slot].value) == Residence::Memory)
            shape.far_bytes = CycleRates(w.target).memory.bytes_per_cycle;
    // Two axes share the tile only where both extents are known: a tile of several batch items is wasted on one.
    const bool two = rows.size() > 1 && w.fixed(rows[0]) && w.fixed(rows[1]);
    if (two && rows.size() == 2 && shape.columns == 0 && merge(w, rows[1], rows[0])) {
        // Weights are packed before the axes are merged, in the panels of a tile of merged ones.
        ProductShape merged = shape;
        merged.rows *= w.extent(rows[1]);
        shape.columns = choose_product_tile(merged, w.target).columns;
    }
    if (two) {
        shape.outer_rows = w.extent(rows[1]);
        shape.outer_stride = stride(rows[1]);
    }
    const ProductTile tile = choose_product_tile(shape, w.target);
    micro.registers[vector] = tile.columns * w.target.micro_lanes();
    micro.registers[rows[0]] = tile.rows;
    if (two) micro.registers[rows[1]] = tile.outer_rows;
}

/// The maximum of rows along axis `a` for a reduction that is no product: fewer than 4 where an operand in memory would
/// be read in more alternating rows than prefetchers follow.
int64_t most_window_rows(const OperandWalks& w, size_t a, bool vectors_slide) {
    int64_t rows = 4;
    const auto too_many = [&](uint32_t slot) {
        return vectors_slide &&
               w.elements(slot) * static_cast<double>(w.element_bytes(slot)) >
                   static_cast<double>(w.target.resident_bytes()) &&
               alternating_rows(w, slot, a, rows) > kPrefetchedRows;
    };
    while (rows > 1 && std::any_of(w.slots.begin(), w.slots.end(), too_many)) --rows;
    return rows;
}

/// A reduction whose vectors run across it, without reuse along rows: windows, sums down columns.
void tile_reduction(const OperandWalks& w, StageChoice& choice) {
    Micro& micro = choice.micro;
    const size_t vector = *micro.vector_axis;
    choice.summed_rows = choose_summed_rows(w, vector);
    std::optional<size_t> along;
    for (size_t a = w.e.spatial; a-- > 0 && !along && !choice.summed_rows;)
        if (a != vector && w.extent(a) > 1) along = a;
    if (!along) {
        // One row (a matrix-vector product): only neighbouring vectors hide the latency of the sums.
        const int64_t wide = w.extent(vector) / w.target.micro_lanes();
        if (wide > 1) micro.registers[vector] = w.target.micro_lanes() * choose_rows(wide, kSummedVectors);
        return;
    }
    const bool vectors_slide = w.slides(vector);  // no sliding along contiguous channels
    micro.registers[*along] = choose_rows(w.extent(*along), most_window_rows(w, *along, vectors_slide));
    // Windows that slide over two axes: windows of two rows share input rows and weights.
    for (size_t a = *along; a-- > 0;)
        if (a != vector && w.slides(a) && w.slides(*along)) {
            micro.registers[a] = std::min<int64_t>(2, w.extent(a));
            choice.windows = a;
            break;
        }
}

/// Vectors along the reduction.
void tile_vector_sum(const OperandWalks& w, Micro& micro) {
    const size_t vector = *micro.vector_axis;
    const int lanes = w.target.micro_lanes();
    // Multiple accumulators hide the latency of the addition.
    const int64_t wide = std::max<int64_t>(1, w.extent(vector) / lanes);
    micro.registers[vector] = std::min<int64_t>(wide, 4) * lanes;
    if (!w.product) return;
    // Alternatively, sums of neighbours that share an operand's vectors.
    int64_t left = (w.target.micro_registers() - 4) * 3 / 4;
    bool shared = false;
    for (size_t a = w.e.spatial; a-- > 0 && left >= 2;) {
        if (!w.reused_along(a, vector) || w.e.extents[a].is_constant(1)) continue;
        micro.registers[a] = choose_rows(w.extent(a), std::min<int64_t>(left, 4));
        left /= micro.registers[a];
        shared = true;
    }
    if (shared) micro.registers[vector] = lanes;
}

/// Whether the axis numbers a few results of one operand, as terms of a number (orchestrate/bf16_terms.h): these
/// share what they compute.
bool numbers_results(const OperandWalks& w, size_t a) {
    constexpr int64_t kMostResults = 4;
    const auto moves = [&](const OperandWalk& operand) { return !operand.result && operand.depends(a); };
    const auto numbers = [&](const ScalarNode& n) {
        return n.op == ScalarOp::Index && uses(n.index, {VarKind::Axis, static_cast<uint32_t>(a)});
    };
    const auto& nodes = w.e.body.nodes();
    return w.e.accesses.size() == 1 && w.fixed(a) && w.extent(a) <= kMostResults &&
           std::none_of(w.walks.begin(), w.walks.end(), moves) && std::any_of(nodes.begin(), nodes.end(), numbers);
}

void tile_elementwise(const OperandWalks& w, StageChoice& choice) {
    Micro& micro = choice.micro;
    const size_t vector = *micro.vector_axis;
    const int lanes = w.target.micro_lanes();
    for (const OperandWalk& operand : w.walks)
        if (const auto u = w.transposed_axis(operand, vector)) choice.transposed = u;
    // A transposed block writes a line in each of `lanes` rows. Where rows are a page or more apart, the blocks of a
    // strip are computed first: each row gets several lines, and the operand's rows continue in the next block.
    if (choice.transposed) {
        const auto apart = w.result().stride(*choice.transposed);
        if (apart && std::abs(*apart) * static_cast<int64_t>(byte_size(w.out_type)) >= kPageBytes)
            choice.strip = kStripVectors * lanes;
    }
    for (size_t a = 0; a < w.axes(); ++a)
        if (a != vector && numbers_results(w, a)) micro.registers[a] = w.extent(a);
    const auto interleaved = w.interleaved_axis(vector);
    if (interleaved) micro.registers[interleaved->axis] = interleaved->points;
    const int64_t wide = std::max<int64_t>(1, w.extent(vector) / lanes);
    const bool light = w.e.accesses.size() <= 3 && w.e.body.nodes().size() <= 12 && !choice.transposed && !interleaved;
    micro.registers[vector] = std::min<int64_t>(wide, light ? 2 : 1) * lanes;
    if (choice.transposed) micro.registers[*choice.transposed] = lanes;  // a multiple of what is interleaved
}

/// Reductions whose vectors run along the result.
void tile_across_sum(const OperandWalks& w, StageChoice& choice) {
    const size_t vector = *choice.micro.vector_axis;
    const std::vector<size_t> rows = reused_rows(w, vector);
    // An outer product needs an operand that is broadcast. Where all operands vary along the lanes (a depthwise
    // convolution), packing gains nothing, and neighbouring windows share loads.
    choice.contraction = !rows.empty() && std::any_of(w.slots.begin(), w.slots.end(),
                                                      [&](uint32_t k) { return !w.walks[k].depends(vector); });
    choice.micro.registers[vector] = w.target.micro_lanes();
    if (choice.contraction)
        tile_product(w, rows, choice.micro);
    else
        tile_reduction(w, choice);
}

}  // namespace

void choose_register_tile(const OperandWalks& w, StageChoice& choice) {
    Micro& micro = choice.micro;
    if (micro.vector_axis && *micro.vector_axis >= w.e.spatial)
        tile_vector_sum(w, micro);
    else if (micro.vector_axis && w.e.reducer != Reducer::None)
        tile_across_sum(w, choice);
    else if (micro.vector_axis)
        tile_elementwise(w, choice);
    for (size_t a = 0; a < w.axes(); ++a)
        if (a != micro.vector_axis && w.fixed(a))
            micro.registers[a] = std::min(micro.registers[a], std::max<int64_t>(1, w.e.extents[a].constant()));
}

void unroll_windows(const OperandWalks& w, StageChoice& choice) {
    constexpr int64_t kMostUnrolled = 9;
    Micro& micro = choice.micro;
    // Codes of one word (quantised weights) are decoded with constant shifts.
    if (w.product)
        for (size_t a = w.e.spatial; a < w.axes(); ++a)
            if (a != micro.vector_axis.value_or(w.axes()) && w.fixed(a) && w.extent(a) <= kMostCodes &&
                std::any_of(w.slots.begin(), w.slots.end(), [&](uint32_t k) {
                    return w.stages.values[w.e.accesses[k].value].dtype == DType::U32 && !w.walks[k].depends(a);
                }))
                micro.registers[a] = w.extent(a);
    if (choice.contraction) return;
    int64_t unrolled = 1;
    for (size_t a = w.axes(); a-- > w.e.spatial;)
        if (a != micro.vector_axis.value_or(w.axes()) && w.fixed(a) &&
            w.e.extents[a].constant() * unrolled <= kMostUnrolled) {
            micro.registers[a] = std::max<int64_t>(1, w.e.extents[a].constant());
            unrolled *= micro.registers[a];
        }
}

}  // namespace tilewright
