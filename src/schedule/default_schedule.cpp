#include "schedule/default_schedule.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/error.h"
#include "program/analysis/contraction.h"
#include "program/transform/contiguous_axes.h"
#include "program/weighed_sum.h"
#include "schedule/boxes.h"
#include "schedule/tasks.h"

namespace tilewright {

namespace {

/// How an operand or the result is walked along every axis.
struct OperandWalk {
    std::vector<std::optional<Expr>> strides;
    std::vector<bool> unit_lanes;  ///< neighbours inside a vector are neighbours in memory
    bool result = false;

    bool depends(size_t a) const { return !strides[a] || !strides[a]->is_constant(0); }
    bool unit(size_t a) const { return unit_lanes[a]; }
    /// How many elements lanes are apart, where that is little enough for loads of neighbours (kMostSpread); else 0.
    int64_t spread(size_t a) const {
        const bool known = strides[a] && strides[a]->is_constant();
        const int64_t apart = known ? strides[a]->constant() : 0;
        return apart > 1 && apart <= kMostSpread ? apart : 0;
    }
};

OperandWalk walk_of(const Program& stages, const TensorExpr& e, ValueId value, const std::vector<Expr>& index,
                    bool result, int lanes) {
    OperandWalk w;
    w.strides = axis_strides(stages, e, value, index);
    w.result = result;
    for (size_t a = 0; a < e.extents.size(); ++a) {
        bool unit = w.strides[a] && w.strides[a]->is_constant(1);
        if (!w.strides[a] && lanes > 1) {
            const auto stride = lane_stride(stages, e, value, index, a, lanes);
            unit = stride && stride->is_constant(1);
        }
        w.unit_lanes.push_back(unit);
    }
    return w;
}

std::vector<OperandWalk> walks_of(const Program& stages, const TensorExpr& e, ValueId out, int lanes) {
    std::vector<OperandWalk> walks;
    for (const Access& a : e.accesses) walks.push_back(walk_of(stages, e, a.value, a.index, false, lanes));
    walks.push_back(walk_of(stages, e, out, result_index(e), true, lanes));
    return walks;
}

/// The axis along which an operand lies in memory that vectors along `a` run across: blocks of lanes x lanes of it are
/// loaded row by row and turned around in registers. Copies and elementwise code only.
std::optional<size_t> turning_axis(const TensorExpr& e, const OperandWalk& w, size_t a, int lanes) {
    if (e.reducer != Reducer::None || w.result || !w.depends(a) || w.unit(a)) return std::nullopt;
    for (size_t u = 0; u < e.spatial; ++u)
        if (u != a && w.unit(u) && guessed_extent(e.extents[u]) >= lanes) return u;
    return std::nullopt;
}

/// Relative cost of one element when `a` is the vector axis: contiguous operands cost a lane's share, blocks that are
/// turned some shuffles, lanes s apart s loads and s - 1 shuffles, others a gather.
double vector_cost(const TensorExpr& e, const std::vector<OperandWalk>& walks, size_t a, int lanes) {
    const double extent = static_cast<double>(guessed_extent(e.extents[a]));
    const double waste = std::ceil(extent / lanes) * lanes / extent;
    double reduction_points = 1;
    for (size_t r = e.spatial; r < e.extents.size(); ++r)
        reduction_points *= static_cast<double>(guessed_extent(e.extents[r]));
    const bool reduces = a >= e.spatial;
    double cost = 0.5 / lanes;  // the arithmetic itself
    for (const OperandWalk& w : walks) {
        if (w.result) {
            // A result is written once per reduction; across a reduced vector axis it costs a few shuffles.
            if (reduces)
                cost += 8.0 / reduction_points;
            else
                cost += (w.unit(a) ? 1.0 / lanes : 1.5) / reduction_points;
        } else if (!w.depends(a)) {
            cost += 0.25 / lanes;
        } else {
            cost += w.unit(a)                      ? 1.0 / lanes
                    : turning_axis(e, w, a, lanes) ? 6.0 / lanes
                    : w.spread(a)                  ? static_cast<double>(2 * w.spread(a) - 1) / lanes
                                                   : 1.5;
        }
    }
    return cost * waste;
}

bool single_index_condition(const Access& access, Expr condition) {
    return std::any_of(access.index.begin(), access.index.end(),
                       [&](Expr i) { return is_uniform(condition - i) || is_uniform(condition + i); });
}

bool affine(const Access& access) {
    for (const Expr& i : access.index)
        for (const Var v : variables(i)) {
            if (v.kind == VarKind::Load) return false;
            if (v.kind != VarKind::Axis) continue;
            const auto linear = linear_in(i, v);
            if (!linear || !linear->coefficient.is_constant()) return false;
        }
    return true;
}

/// The largest divisor-friendly register tile <= limit: the one that wastes least of `extent`, larger ones first.
int64_t register_tile(int64_t extent, int64_t limit) {
    if (extent <= limit) return std::max<int64_t>(1, extent);
    int64_t best = limit;
    double best_cost = 1e30;
    for (int64_t t = limit; t >= std::max<int64_t>(1, limit / 2); --t) {
        const int64_t full = extent / t, rest = extent % t;
        // A tile of t rows costs its rows plus a fixed share for the operand they have in common.
        const double cost = static_cast<double>(full) * (static_cast<double>(t) + 1.0) +
                            (rest > 0 ? static_cast<double>(rest) + 1.5 : 0.0);
        if (cost < best_cost - 1e-9) {
            best_cost = cost;
            best = t;
        }
    }
    return best;
}

/// Cycles of one reduction step of a register tile of rows x columns vectors: two multiply-adds and two loads a cycle,
/// as few accumulators as hide no latency wait for it, and the vectors come at `bytes_a_cycle`.
double tile_cycles(int64_t rows, int64_t columns, double vector_bytes, double bytes_a_cycle) {
    const auto r = static_cast<double>(rows), c = static_cast<double>(columns);
    return std::max({r * c / 2, (r + c) / 2, 4.0, c * vector_bytes / bytes_a_cycle});
}

// What a panel of vectors streams at: from the second level, and from behind it. Of the first level it may take half.
constexpr double kNearBytes = 16 * 1024, kSecondBytesACycle = 14, kFarBytesACycle = 8;

constexpr int64_t kPage = 4096;       // bytes
constexpr int64_t kStripVectors = 8;  // of rows that are turned around, one after the other: lines of a row

/// Every row of a tile walks through memory on its own. Rows whose distance is a multiple of 4 KiB (the size of a way
/// in all first-level caches of x86) fight for one set: how many do, where most do.
int64_t lines_in_one_set(int64_t outer, int64_t outer_stride, int64_t inner, int64_t inner_stride) {
    std::map<int64_t, int64_t> sets;
    int64_t most = 0;
    for (int64_t i = 0; i < outer; ++i)
        for (int64_t j = 0; j < inner; ++j)
            most = std::max(most, ++sets[(i * outer_stride + j * inner_stride) * 4 / 64 % 64]);
    return most;
}
constexpr int64_t kFreeWays = 6;  // of eight: the vectors stream through the others

/// The register tile of a product: vectors along the vector axis, rows along one or two others.
struct ProductTile {
    int64_t columns = 1;
    int64_t outer_rows = 1, rows = 1;
};

/// Tries every tile that fits the registers on the whole extents, rests included; the cheapest wins, of equals the one
/// with most accumulators.
///     16 registers of 8:  14 x 14 pixels: 2 x 3 pixels x 2 vectors, not 6 of a row (6 + 6 + 2)
///                         7 x 7 pixels: 2 x 7 pixels x 1 vector
ProductTile product_tile(int64_t wide, int64_t outer, int64_t inner, int64_t outer_stride, int64_t inner_stride,
                         double steps, const ScheduleTarget& target) {
    ProductTile best;
    double best_cost = 1e300;
    const double vector_bytes = 4.0 * target.lanes;
    const auto over = [](int64_t extent, int64_t tile, const auto& cost) {
        const int64_t full = extent / tile, rest = extent % tile;
        return (full > 0 ? static_cast<double>(full) * cost(tile) : 0.0) + (rest > 0 ? cost(rest) : 0.0);
    };
    for (int64_t c = 1; c <= std::min<int64_t>(4, wide); ++c) {
        // The operand's vectors stay in registers beside the accumulators; the broadcast needs one where it is no
        // memory operand of the multiply-add.
        const int64_t spare = target.vector_registers - c - (target.vector_registers < 32 ? 1 : 0);
        const int64_t most = std::min<int64_t>(spare / c, 14);
        for (int64_t r = std::min(inner, most); r >= 1; --r)
            for (int64_t q = std::min(outer, most / r); q >= 1; --q) {
                if (lines_in_one_set(q, outer_stride, r, inner_stride) > kFreeWays) continue;
                const double cost = over(wide, c, [&](int64_t columns) {
                    // A panel is read again for every tile of rows: the first time from far away.
                    const double panel = static_cast<double>(columns) * vector_bytes * steps;
                    const double near = panel <= kNearBytes ? 64 : kSecondBytesACycle;
                    const double first = tile_cycles(r * q, columns, vector_bytes, kFarBytesACycle) -
                                         tile_cycles(r * q, columns, vector_bytes, near);
                    return first * steps + over(outer, q, [&](int64_t rows1) {
                               return over(inner, r, [&](int64_t rows0) {
                                   const int64_t rows = rows0 * rows1;
                                   return tile_cycles(rows, columns, vector_bytes, near) * steps +
                                          static_cast<double>(rows * columns) + 8;
                               });
                           });
                });
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

}  // namespace

/// Whether a panel's vectors, one for every step of the sum, fall into one set of the caches: a matrix whose rows are a
/// multiple of 4 KiB long. Each row of tiles would fetch them anew; many rows pay for packing.
bool clashes(const TensorExpr& e, const OperandWalk& w, size_t vector) {
    constexpr int64_t kWay = 1024;  // elements
    if (!w.unit(vector)) return false;
    int64_t rows = 1;
    for (size_t a = 0; a < e.spatial; ++a)
        if (!w.depends(a)) rows *= guessed_extent(e.extents[a]);
    for (size_t r = e.spatial; r < e.extents.size(); ++r)
        if (w.strides[r] && w.strides[r]->is_constant() && w.strides[r]->constant() != 0 &&
            w.strides[r]->constant() % kWay == 0 && guessed_extent(e.extents[r]) >= 32)
            return rows >= 128;
    return false;
}

/// How many elements of its operand an access reads, each once.
double elements_of(const Program& stages, const TensorExpr& e, const Access& a) {
    std::vector<int64_t> extents;
    extents.reserve(e.extents.size());
    for (const Expr& x : e.extents) extents.push_back(guessed_extent(x));
    return static_cast<double>(box_bytes(stages, a, extents)) /
           static_cast<double>(byte_size(stages.values[a.value].dtype));
}

/// The operand's strides where a stage only puts runs of memory elsewhere (heads of an attention): in its order the
/// hardware's streams go on, and lines that are written whole may lie anywhere. 2.5 times as fast as in the order of
/// the result, measured.
std::optional<std::vector<int64_t>> rearranged(const TensorExpr& e, const std::vector<OperandWalk>& walks,
                                               std::optional<size_t> vector) {
    if (!vector || *vector >= e.spatial || e.reducer != Reducer::None || e.accesses.size() != 1) return std::nullopt;
    if (!walks[0].unit(*vector) || !walks[1].unit(*vector)) return std::nullopt;
    std::vector<int64_t> strides;
    for (const auto& s : walks[0].strides) {
        if (!s || !s->is_constant()) return std::nullopt;
        strides.push_back(std::abs(s->constant()));
    }
    return strides;
}

/// A sum down the columns of a matrix that no near cache holds:
///     for 128 columns, for all rows        touches a page for every 512 bytes
///     for each row, for 128 columns        reads memory from its beginning to its end; 3 times as fast, measured
/// The sums so far wait in the result, which must be of their type, and in the first-level cache. Where the matrix is
/// packed in panels of no more columns than a register tile has, each panel is read from its beginning to its end
/// anyway, and 32 panels a row at a time are 32 streams: 25088 x 4096 takes 19 ms like that, 13 panel by panel.
constexpr int64_t kSummedVectors = 8;  // of a register tile
std::optional<size_t> summed_rows(const Program& stages, const TensorExpr& e, const std::vector<OperandWalk>& walks,
                                  DType out_type, size_t vector, const ScheduleTarget& target) {
    if (compute_type(out_type) != out_type || out_type != e.body.dtype()) return std::nullopt;
    if (guessed_extent(e.extents[vector]) <= kSummedVectors * target.lanes || e.extents.size() != e.spatial + 1)
        return std::nullopt;
    const size_t r = e.spatial;
    if (!e.extents[r].is_constant() || e.extents[r].constant() < 64) return std::nullopt;
    for (size_t i = 0; i < e.accesses.size(); ++i) {
        const OperandWalk& w = walks[i];
        const auto bytes = static_cast<int64_t>(byte_size(stages.values[e.accesses[i].value].dtype));
        if (!w.unit(vector) || !w.strides[r] || !w.strides[r]->is_constant()) continue;
        if (std::abs(w.strides[r]->constant()) <= kSummedVectors * target.lanes) continue;
        if (e.extents[r].constant() * guessed_extent(e.extents[vector]) * bytes > target.l2_bytes) return r;
    }
    return std::nullopt;
}

/// Rows of an operand whose lines a register tile of `tile` points along axis a meets in turns, where they lie within a
/// page: windows of 3 rows at a step of 2 touch 3 rows for one row of the result, 9 for four.
int64_t rows_in_turn(const TensorExpr& e, const OperandWalk& w, int64_t element_bytes, size_t a, int64_t tile) {
    const auto apart = [&](size_t axis_number) -> int64_t {
        const auto& s = w.strides[axis_number];
        const int64_t elements = s && s->is_constant() ? std::abs(s->constant()) : 0;
        return elements * element_bytes >= 64 && elements * element_bytes < kPage ? elements : 0;
    };
    if (apart(a) == 0) return 1;
    for (size_t r = e.spatial; r < e.extents.size(); ++r)
        if (apart(r) > 0 && apart(a) % apart(r) == 0 && e.extents[r].is_constant())
            return (tile - 1) * (apart(a) / apart(r)) + e.extents[r].constant();
    return tile;
}

/// The hardware follows a few rows of what comes from memory, not many: one row of maxima from three of the operand
/// takes half as long as four from nine, although those load a quarter less (measured).
constexpr int64_t kRowsFollowed = 4;

/// Axes along which both operands of a product and its result move.
std::vector<size_t> batches_of(const TensorExpr& e, const std::vector<OperandWalk>& walks) {
    std::vector<size_t> out;
    const std::vector<uint32_t> slots = e.body.slots();
    for (size_t a = 0; a < e.spatial; ++a)
        if (!e.extents[a].is_constant(1) && walks.back().depends(a) &&
            std::all_of(slots.begin(), slots.end(), [&](uint32_t k) { return walks[k].depends(a); }))
            out.push_back(a);
    return out;
}

/// Whether the parts of the broadcast operand that belong to a batch lie inside its rows, while the weights of all
/// batches stay in a near cache.
bool in_rows(const Program& stages, const TensorExpr& e, const std::vector<OperandWalk>& walks, const Micro& micro,
             size_t batch, size_t vector, const ScheduleTarget& target) {
    bool inside = false;
    double weights = 0;
    for (const uint32_t k : e.body.slots()) {
        const OperandWalk& w = walks[k];
        const auto bytes = static_cast<double>(byte_size(stages.values[e.accesses[k].value].dtype));
        if (w.depends(vector)) weights += bytes * elements_of(stages, e, e.accesses[k]);
        if (w.depends(vector) || !w.strides[batch] || !w.strides[batch]->is_constant()) continue;
        for (size_t a = 0; a < e.spatial; ++a)
            if (a != vector && micro.registers[a] > 1 && w.strides[a] && w.depends(a) && w.strides[a]->is_constant())
                inside = inside || std::abs(w.strides[batch]->constant()) < std::abs(w.strides[a]->constant());
    }
    return inside && weights <= static_cast<double>(target.l2_bytes) / 8;
}

bool slides(const Program& stages, const TensorExpr& e, size_t a) {
    for (const Access& access : e.accesses) {
        const auto steps = axis_strides(stages, e, access.value, access.index);
        for (size_t r = e.spatial; r < e.extents.size(); ++r) {
            if (steps[a] && steps[r] && steps[a]->is_constant() && steps[r]->is_constant()) {
                const int64_t step = std::abs(steps[a]->constant()), inner = std::abs(steps[r]->constant());
                if (step > 0 && inner > 0 && step % inner == 0 && step / inner < guessed_extent(e.extents[r]))
                    return true;
                continue;
            }
            for (const Expr& i : access.index)
                if (uses(i, {VarKind::Axis, static_cast<uint32_t>(a)}) &&
                    uses(i, {VarKind::Axis, static_cast<uint32_t>(r)}))
                    return true;
        }
    }
    return false;
}

/// Whether what the windows of all channels of a plane read and write is more than the near caches hold, by far.
/// Batches count once: they lie outside.
bool streams(const Program& stages, const TensorExpr& e, DType out_type, size_t vector, const ScheduleTarget& target) {
    std::vector<int64_t> plane;
    double results = static_cast<double>(byte_size(out_type));
    for (size_t a = 0; a < e.extents.size(); ++a) {
        const bool counts = a == vector || a >= e.spatial || slides(stages, e, a);
        plane.push_back(counts ? guessed_extent(e.extents[a]) : 1);
        if (a < e.spatial) results *= static_cast<double>(plane.back());
    }
    double bytes = results;
    for (const Access& a : e.accesses) bytes += static_cast<double>(box_bytes(stages, a, plane));
    return bytes > 2.5 * static_cast<double>(target.l2_bytes);
}

/// The vector axis of a sum weighed by known numbers: none of the map's own axes, the cheapest of the others.
std::optional<size_t> map_lanes(const TensorExpr& e, const std::vector<OperandWalk>& walks, const WeighedSum& map,
                                int lanes) {
    std::optional<size_t> best;
    double least = 0;
    for (size_t a = 0; a < e.spatial; ++a) {
        if (std::find(map.rows.begin(), map.rows.end(), a) != map.rows.end()) continue;
        if (e.extents[a].is_constant() && e.extents[a].constant() < std::max(2, lanes / 4)) continue;
        const double cost = vector_cost(e, walks, a, lanes);
        if (best && cost >= least) continue;
        least = cost;
        best = a;
    }
    return best;
}

/// All rows and columns of the map in the register tile, where its weights are known; vectors innermost, so that every
/// row of it is written as memory has it.
void hold_map(const TensorExpr& e, const WeighedSum& map, size_t vector, int lanes, Micro& micro) {
    micro.vector_axis = vector;
    micro.lanes = lanes;
    micro.registers[vector] = lanes;
    for (size_t k = 0; k < map.rows.size(); ++k) micro.registers[map.rows[k]] = map.row_extents[k];
    for (size_t k = 0; k < map.columns.size(); ++k) micro.registers[map.columns[k]] = map.column_extents[k];
    for (size_t a = 0; a < e.extents.size(); ++a)
        if (a < e.spatial && a != vector) micro.order.push_back(a);
    micro.order.push_back(vector);
    for (size_t a = e.spatial; a < e.extents.size(); ++a) micro.order.push_back(a);
}

StageChoice choose_micro(const Program& stages, const TensorExpr& e, DType out_type, const ScheduleTarget& target) {
    StageChoice choice;
    const size_t n = e.extents.size();
    Micro& micro = choice.micro;
    micro.registers.assign(n, 1);
    micro.virtual_threads.assign(n, 1);
    ValueId out;
    for (const Primitive& p : stages.primitives)
        if (p.expr() == &e) out = p.outputs[0];
    const int lanes = target.lanes;
    const std::vector<OperandWalk> walks = walks_of(stages, e, out, lanes);

    // The vector axis: a reuse pattern of a contraction decides first, cost otherwise.
    std::optional<size_t> vector;
    double best = std::max(1.5, 0.5 * static_cast<double>(walks.size()));  // scalar code, two operands a cycle
    for (size_t a = 0; a < n; ++a) {
        if (e.extents[a].is_constant() && e.extents[a].constant() < std::max(2, lanes / 4)) continue;
        const double cost = vector_cost(e, walks, a, lanes);
        if (cost < best) {
            best = cost;
            vector = a;
        }
    }
    // Operands that only lack contiguous lanes can be copied: a product whose right operand is stored transposed.
    const auto factors = contraction(e);
    const bool product = factors && factors->reads_two();
    if (product) {
        std::optional<size_t> spatial_vector;
        for (size_t a = 0; a < e.spatial; ++a)
            if (walks.back().unit(a) && guessed_extent(e.extents[a]) >= lanes / 2) spatial_vector = a;
        if (spatial_vector) vector = spatial_vector;
        // A long sum whose computed operand runs along it rather than along the result: whole vectors of products are
        // added, and their lanes once at the end. Three output planes from 32 channels side by side, 9 x 9 window:
        // packing the pixels anew for every row of windows costs more than that. Nor is an operand packed that nobody
        // reads again: the keys of a single query.
        const auto packable = [&](uint32_t slot) { return stages.is_constant(e.accesses[slot].value); };
        double points = 1, sum = 1;
        for (const Expr& x : e.extents) points *= static_cast<double>(guessed_extent(x));
        for (size_t r = e.spatial; r < n; ++r) sum *= static_cast<double>(guessed_extent(e.extents[r]));
        if (spatial_vector && sum >= lanes)
            for (const uint32_t slot : e.body.slots()) {
                const OperandWalk& w = walks[slot];
                if (packable(slot) || !w.depends(*spatial_vector) || w.unit(*spatial_vector)) continue;
                const double reads = points / elements_of(stages, e, e.accesses[slot]);
                if (sum < 64.0 * lanes && reads >= 4) continue;
                for (size_t r = e.spatial; r < n; ++r) {
                    if (!e.extents[r].is_constant() || e.extents[r].constant() % lanes != 0) continue;
                    const auto slots = e.body.slots();
                    if (std::all_of(slots.begin(), slots.end(), [&](uint32_t k) {
                            return walks[k].unit(r) || (packable(k) && walks[k].depends(r));
                        }))
                        vector = r;
                }
            }
    }
    if (const auto map = weighed_sum(e)) {
        if (const auto lanes_along = map_lanes(e, walks, *map, lanes)) {
            hold_map(e, *map, *lanes_along, lanes, micro);
            return choice;
        }
    }
    micro.lanes = vector ? lanes : 1;
    micro.vector_axis = vector;

    const auto reuses = [&](size_t a) {
        // Some operand that varies along the vector axis does not vary along a: its vectors serve all rows of a tile.
        if (!vector) return false;
        for (const uint32_t slot : e.body.slots())
            if (walks[slot].depends(*vector) && !walks[slot].depends(a)) return true;
        return false;
    };
    if (vector && *vector < e.spatial && e.reducer != Reducer::None) {
        std::vector<size_t> rows;
        for (size_t a = e.spatial; a-- > 0;)
            if (a != *vector && reuses(a) && !e.extents[a].is_constant(1)) rows.push_back(a);
        // An outer product needs an operand that is broadcast; where all move with the lanes (a depthwise convolution)
        // nothing is gained by packing, and the windows of neighbours share what is loaded.
        const std::vector<uint32_t> slots = e.body.slots();
        const bool broadcast =
            std::any_of(slots.begin(), slots.end(), [&](uint32_t k) { return !walks[k].depends(*vector); });
        choice.contraction = !rows.empty() && broadcast;
        micro.registers[*vector] = lanes;
        int64_t left = 4;
        if (choice.contraction) {
            double steps = 1;
            for (size_t r = e.spatial; r < n; ++r) steps *= static_cast<double>(guessed_extent(e.extents[r]));
            const int64_t wide = (guessed_extent(e.extents[*vector]) + lanes - 1) / lanes;
            // How far apart rows lie in the operand that is broadcast.
            const auto stride = [&](size_t a) {
                for (const OperandWalk& w : walks)
                    if (!w.result && !w.depends(*vector) && w.strides[a] && w.strides[a]->is_constant())
                        return w.strides[a]->constant();
                return int64_t{0};
            };
            // Two axes share the tile only where both extents are known: a tile of several batches is wasted on one.
            const bool two = rows.size() > 1 && e.extents[rows[0]].is_constant() && e.extents[rows[1]].is_constant();
            const ProductTile tile =
                product_tile(wide, two ? guessed_extent(e.extents[rows[1]]) : 1, guessed_extent(e.extents[rows[0]]),
                             two ? stride(rows[1]) : 0, stride(rows[0]), steps, target);
            micro.registers[*vector] = tile.columns * lanes;
            micro.registers[rows[0]] = tile.rows;
            if (two) micro.registers[rows[1]] = tile.outer_rows;
        }
        if (!choice.contraction) {
            choice.summed_rows = summed_rows(stages, e, walks, out_type, *vector, target);
            const bool rows_slide = slides(stages, e, *vector);  // not pixels with their channels side by side
            size_t along = n;
            for (size_t a = e.spatial; a-- > 0 && left > 1 && !choice.summed_rows;)
                if (a != *vector && guessed_extent(e.extents[a]) > 1) {
                    const auto too_many = [&](uint32_t slot) {
                        const Value& v = stages.values[e.accesses[slot].value];
                        const auto bytes = static_cast<int64_t>(byte_size(v.dtype));
                        return rows_slide &&
                               elements_of(stages, e, e.accesses[slot]) * static_cast<double>(bytes) >
                                   static_cast<double>(target.cache_bytes) &&
                               rows_in_turn(e, walks[slot], bytes, a, left) > kRowsFollowed;
                    };
                    while (left > 1 && std::any_of(slots.begin(), slots.end(), too_many)) --left;
                    micro.registers[a] = register_tile(guessed_extent(e.extents[a]), left);
                    left = 1;
                    along = a;
                }
            // Windows that slide over two axes: those of two rows share rows, and what they are multiplied with.
            for (size_t a = along; a-- > 0 && along < n;)
                if (a != *vector && slides(stages, e, a) && slides(stages, e, along)) {
                    micro.registers[a] = std::min<int64_t>(2, guessed_extent(e.extents[a]));
                    choice.windows = a;
                    break;
                }
            // One row (a product with a vector): only neighbouring vectors hide the latency of the sums.
            const int64_t wide = guessed_extent(e.extents[*vector]) / lanes;
            if (left > 1 && wide > 1) micro.registers[*vector] = lanes * register_tile(wide, kSummedVectors);
        }
    } else if (vector && *vector >= e.spatial) {
        // Independent partial sums hide the latency of the addition.
        const int64_t wide = std::max<int64_t>(1, guessed_extent(e.extents[*vector]) / lanes);
        micro.registers[*vector] = std::min<int64_t>(wide, 4) * lanes;
        if (product) {
            // Or independent sums: neighbours that share an operand's vectors.
            int64_t left = (target.vector_registers - 4) * 3 / 4;
            bool shared = false;
            for (size_t a = e.spatial; a-- > 0 && left >= 2;) {
                if (!reuses(a) || e.extents[a].is_constant(1)) continue;
                micro.registers[a] = register_tile(guessed_extent(e.extents[a]), std::min<int64_t>(left, 4));
                left /= micro.registers[a];
                shared = true;
            }
            if (shared) micro.registers[*vector] = lanes;
        }
    } else if (vector) {
        std::optional<size_t> turned;
        for (const OperandWalk& w : walks)
            if (const auto u = turning_axis(e, w, *vector, lanes)) turned = u;
        // Blocks that are turned around write a line in each of as many rows. Where those are pages apart, blocks
        // below each other come first: each row gets several lines, and the operand's rows go on to the next block.
        if (turned && walks.back().strides[*turned] && walks.back().strides[*turned]->is_constant() &&
            std::abs(walks.back().strides[*turned]->constant()) * static_cast<int64_t>(byte_size(out_type)) >= kPage) {
            choice.strip = kStripVectors * lanes;
            micro.order.clear();
            for (size_t a = 0; a < e.spatial; ++a)
                if (a != *turned && a != *vector) micro.order.push_back(a);
            micro.order.insert(micro.order.end(), {*turned, *vector});
        }
        const int64_t wide = std::max<int64_t>(1, guessed_extent(e.extents[*vector]) / lanes);
        const bool light = e.accesses.size() <= 3 && e.body.nodes().size() <= 12 && !turned;
        micro.registers[*vector] = std::min<int64_t>(wide, light ? 2 : 1) * lanes;
        if (turned) micro.registers[*turned] = lanes;
    }
    for (size_t a = 0; a < n; ++a)
        if (a != micro.vector_axis.value_or(n) && e.extents[a].is_constant() &&
            micro.registers[a] > e.extents[a].constant())
            micro.registers[a] = e.extents[a].constant();

    // Small windows are unrolled whole: their bodies share loads.
    int64_t unrolled = 1;
    if (!choice.contraction)
        for (size_t a = n; a-- > e.spatial;)
            if (a != micro.vector_axis.value_or(n) && e.extents[a].is_constant() &&
                e.extents[a].constant() * unrolled <= 9) {
                micro.registers[a] = e.extents[a].constant();
                unrolled *= e.extents[a].constant();
            }

    // Order: vector panels outside rows, so that a panel of the right operand serves every row; reductions innermost,
    // the one along which the broadcast operand is contiguous last.
    // Batches, along which everything moves, come outside of the panels: one matrix after the other. Groups, whose
    // operand memory has side by side in each row, come inside of the rows where all their weights stay near.
    //     16 heads of 17 x 16 x 16384: 2.9 ms in place of 4.6; 24 groups of 16 channels, 16384 pixels: 5.2 of 8.4
    std::vector<size_t> groups;
    if (choice.contraction) {
        const std::vector<size_t> batches = batches_of(e, walks);
        for (const size_t a : batches)
            if (in_rows(stages, e, walks, micro, a, *vector, target))
                groups.push_back(a);
            else
                micro.order.push_back(a);
        micro.order.push_back(*vector);
    }
    const auto ordered = [&](size_t a) {
        return std::find(micro.order.begin(), micro.order.end(), a) != micro.order.end() ||
               std::find(groups.begin(), groups.end(), a) != groups.end();
    };
    for (size_t a = 0; a < e.spatial; ++a)
        if (!ordered(a)) micro.order.push_back(a);
    if (!groups.empty() && micro.order.back() != *vector) choice.shared = micro.order.back();
    micro.order.insert(micro.order.end(), groups.begin(), groups.end());
    // A vector of channels for the whole plane keeps its weights in registers, but touches one line of each pixel: from
    // memory, all channels of a tile of windows come before its neighbours, so that lines are read as they lie there.
    // (128 channels of 512 x 512 pixels, 3 x 3: 8.7 ms instead of 20; of 14 x 14: a fifth slower.)
    if (choice.windows && streams(stages, e, out_type, *vector, target)) {
        const auto at = std::find(micro.order.begin(), micro.order.end(), *choice.windows);
        const auto channels = std::find(micro.order.begin(), at, *vector);
        if (channels != at) {
            micro.order.erase(channels);
            micro.order.push_back(*vector);
        }
        choice.shared = choice.windows;
    }
    if (const auto strides = rearranged(e, walks, vector))
        std::stable_sort(micro.order.begin(), micro.order.end(), [&](size_t a, size_t b) {
            return a != *vector && (b == *vector || (*strides)[a] > (*strides)[b]);
        });
    std::vector<size_t> reductions;
    for (size_t a = e.spatial; a < n; ++a) reductions.push_back(a);
    const auto reach = [&](size_t a) {
        for (const OperandWalk& w : walks)
            if (!w.result && w.strides[a] && !w.strides[a]->is_constant(0) && !(vector && w.depends(*vector)))
                return w.strides[a]->is_constant() ? std::abs(w.strides[a]->constant()) : INT64_MAX / 2;
        return int64_t{1};
    };
    if (choice.contraction)
        std::stable_sort(reductions.begin(), reductions.end(), [&](size_t a, size_t b) { return reach(a) > reach(b); });
    micro.order.insert(micro.order.end(), reductions.begin(), reductions.end());

    if (choice.contraction)
        for (size_t i = 0; i < e.accesses.size(); ++i) {
            const Access& a = e.accesses[i];
            if (!affine(a)) continue;
            const bool in_body = [&] {
                const auto slots = e.body.slots();
                return std::find(slots.begin(), slots.end(), static_cast<uint32_t>(i)) != slots.end();
            }();
            if (!in_body) continue;
            const bool decidable =
                std::all_of(a.valid.begin(), a.valid.end(), [&](Expr c) { return single_index_condition(a, c); });
            const bool strided = walks[i].depends(*vector) && !walks[i].unit(*vector);
            if (decidable && (!a.valid.empty() || strided || clashes(e, walks[i], *vector))) choice.loads.push_back(i);
        }
    return choice;
}

namespace {

/// Packs a loaded operand so that the lanes lie side by side: the dimension indexed by the vector axis goes last, in
/// blocks of the register tile. [n, k] -> split(0, 32) reorder(0, 2, 1): [n/32, k, 32].
Layout pack_for_lanes(const Access& a, size_t vector, int64_t block) {
    std::optional<size_t> dim;
    for (size_t d = 0; d < a.index.size(); ++d)
        if (uses(a.index[d], {VarKind::Axis, static_cast<uint32_t>(vector)})) dim = d;
    Layout layout;
    if (!dim) return layout;
    const size_t rank = a.index.size();
    const auto alone = a.index[*dim].as_var();
    if (!alone) {
        // A window slides along the dimension: blocks would tear its neighbours apart.
        layout::Reorder reorder;
        for (size_t d = 0; d < rank; ++d)
            if (d != *dim) reorder.permutation.push_back(d);
        reorder.permutation.push_back(*dim);
        layout.primitives.emplace_back(reorder);
        return layout;
    }
    layout.primitives.emplace_back(layout::Split{*dim, block});
    layout::Reorder reorder;
    for (size_t d = 0; d <= rank; ++d)
        if (d != *dim + 1) reorder.permutation.push_back(d);
    reorder.permutation.push_back(*dim + 1);
    layout.primitives.emplace_back(reorder);
    return layout;
}

struct GridChoice {
    size_t axis;
    int64_t step;
};

}  // namespace

std::vector<Stmt> make_loads(const Program& stages, PrimitiveId id, const std::vector<size_t>& loads,
                             const Micro& micro) {
    const TensorExpr& expr = *stages.primitives[id].expr();
    std::vector<Stmt> out;
    for (const size_t i : loads) {
        Load load;
        load.stage = id;
        load.access = i;
        const OperandWalk w =
            walk_of(stages, expr, expr.accesses[i].value, expr.accesses[i].index, false, static_cast<int>(micro.lanes));
        const size_t vector = *micro.vector_axis;
        if (w.depends(vector) && (!w.unit(vector) || clashes(expr, w, vector)))
            load.layout = pack_for_lanes(expr.accesses[i], vector, std::max<int64_t>(1, micro.registers[vector]));
        out.push_back(Stmt{load});
    }
    return out;
}

namespace {

TileProgram schedule_one(Program stages, const ScheduleTarget& target) {
    const PrimitiveId id(0);
    // Merging makes tensors one-dimensional, which hides the conditions a Load could decide and what it could pack.
    const auto packs = [&] {
        const TensorExpr& whole = *stages.primitives[id].expr();
        return !choose_micro(stages, whole, DType::F32, target).loads.empty();
    };
    if (auto merged = merge_contiguous_axes(stages); merged && !packs()) stages = std::move(*merged);
    const TensorExpr& e = *stages.primitives[id].expr();
    const size_t n = e.extents.size();
    StageChoice choice = choose_micro(stages, e, stages.values[stages.primitives[id].outputs[0]].dtype, target);
    const Micro& micro = choice.micro;

    const Tasks tasks = cut_tasks(stages, choice, target);
    const std::vector<int64_t>& inside = tasks.inside;
    const auto unit = [&](size_t a) { return std::max<int64_t>(1, micro.registers[a]); };
    TileProgram t;
    t.stages = std::move(stages);
    const TensorExpr& expr = *t.stages.primitives[id].expr();
    std::vector<size_t> identity(n);
    std::iota(identity.begin(), identity.end(), 0);
    t.stage_axes.push_back(identity);
    for (size_t a = 0; a < n; ++a)
        t.axes.push_back({fmt::format("{}{}", a < e.spatial ? "s" : "r", a), expr.extents[a]});
    std::vector<Stmt> body = make_loads(t.stages, id, tasks.loads, micro);
    body.push_back(Stmt{Compute{id, micro}});
    const auto wrap = [&](size_t axis, int64_t step, bool parallel) {
        TileLoop loop;
        loop.axis = axis;
        loop.step = step;
        loop.parallel = parallel;
        loop.body = std::move(body);
        body.clear();
        body.push_back(Stmt{std::move(loop)});
    };
    if (choice.strip && inside[*micro.vector_axis] > *choice.strip) {
        const size_t turned = micro.order[micro.order.size() - 2];
        wrap(*micro.vector_axis, *choice.strip, false);
        for (size_t a = expr.spatial; a-- > 0;)
            if (a != turned && a != micro.vector_axis && inside[a] > unit(a)) wrap(a, unit(a), false);
    }
    if (choice.summed_rows) {
        wrap(*choice.summed_rows, 1, false);
        for (size_t a = expr.spatial; a-- > 0;)
            if (a != micro.vector_axis && inside[a] > unit(a)) wrap(a, unit(a), false);
    }
    for (size_t k = tasks.grid.size(); k-- > 0;) wrap(tasks.grid[k], inside[tasks.grid[k]], true);
    t.body = std::move(body);
    return t;
}

}  // namespace

TileProgram default_schedule(Program stages, const ScheduleTarget& target) {
    IndexVector<PrimitiveId, std::vector<size_t>> none(stages.primitives.size());
    return default_schedule(std::move(stages), none, target);
}

TileProgram default_schedule(Program stages, const IndexVector<PrimitiveId, std::vector<size_t>>& row_axes,
                             const ScheduleTarget& target) {
    const std::string name = stages.name;
    if (stages.primitives.size() == 1) {
        TileProgram t = schedule_one(std::move(stages), target);
        t.name = name;
        return t;
    }
    // Several stages: rows in the grid, one by one; inside a row the stages run one after the other.
    TileProgram t;
    t.name = name;
    t.stages = std::move(stages);
    const PrimitiveId first(0);
    const size_t rows = row_axes[first].size();
    const TensorExpr& lead = *t.stages.primitives[first].expr();
    for (size_t r = 0; r < rows; ++r) t.axes.push_back({fmt::format("s{}", r), lead.extents[row_axes[first][r]]});
    std::vector<Stmt> body;
    for (const PrimitiveId id : t.stages.primitives.ids()) {
        const TensorExpr& e = *t.stages.primitives[id].expr();
        TW_CHECK(row_axes[id].size() == rows);
        std::vector<size_t> axes(e.extents.size());
        for (size_t a = 0; a < e.extents.size(); ++a) {
            const auto it = std::find(row_axes[id].begin(), row_axes[id].end(), a);
            if (it != row_axes[id].end()) {
                axes[a] = static_cast<size_t>(it - row_axes[id].begin());
            } else {
                axes[a] = t.axes.size();
                t.axes.push_back({fmt::format("{}{}_{}", a < e.spatial ? "s" : "r", id.value, a), e.extents[a]});
            }
        }
        t.stage_axes.push_back(axes);
        // Inside a row the shared axes have one point: choose as if they did.
        TensorExpr row = e;
        Program view = t.stages;
        for (const size_t a : row_axes[id]) view.primitives[id].expr()->extents[a] = 1;
        StageChoice choice = choose_micro(view, *view.primitives[id].expr(),
                                          t.stages.values[t.stages.primitives[id].outputs[0]].dtype, target);
        for (const size_t a : row_axes[id]) choice.micro.registers[a] = 1;
        body.push_back(Stmt{Compute{id, choice.micro}});
    }
    // Rows one by one, but enough of them in a task that dispatching costs nothing.
    for (size_t r = rows; r-- > 0;) {
        TileLoop loop;
        loop.axis = r;
        loop.step = 1;
        loop.parallel = true;
        loop.body = std::move(body);
        body.clear();
        body.push_back(Stmt{std::move(loop)});
    }
    t.body = std::move(body);
    return t;
}

}  // namespace tilewright
