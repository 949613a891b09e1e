#include "tile/gpu_partition.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "tile/matrix.h"

namespace tilewright::gpu {

namespace {

constexpr int64_t kWarpThreads = 32;
constexpr int64_t kDynamicGroup = 8;  ///< threads that share a sum whose length is dynamic

int64_t power_of_two_from(int64_t n) { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n))); }

bool reduces_vector(const TensorExpr& e, const Micro& m) { return m.vector_axis && *m.vector_axis >= e.spatial; }

/// The reduction axis that cooperating threads share: the vector axis, or else the longest.
size_t axis_to_share(const TensorExpr& e, const Micro& m, const std::vector<Expr>& most) {
    if (m.vector_axis && *m.vector_axis >= e.spatial) return *m.vector_axis;
    size_t best = e.spatial;
    for (size_t a = e.spatial; a < most.size(); ++a)
        if (most[a].is_constant() && (!most[best].is_constant() || most[a].constant() > most[best].constant()))
            best = a;
    return best;
}

/// Points of the reduced vector axis that a thread takes at a time.
int64_t vector_of_sum(const TensorExpr& e, const Micro& m) {
    constexpr int64_t kMost = 16;
    return reduces_vector(e, m) && !m.matrix ? std::min(m.lanes, kMost) : 1;
}

/// The largest number of threads that can share one tile: at most the points of the axis.
int64_t most_in_group(const TensorExpr& e, const Micro& m, const Share& share) {
    const std::vector<Expr>& most = share.most;
    if (e.spatial == most.size() || (share.cut && !reduces_vector(e, m))) return 1;
    const Expr length = most[axis_to_share(e, m, most)];
    if (!length.is_constant()) return reduces_vector(e, m) ? kWarpThreads : m.vector_axis ? kDynamicGroup : 1;
    // At least a vector or two points per thread: the exchange costs more than one point.
    return power_of_two_from(std::max<int64_t>(1, length.constant() / std::max<int64_t>(2, vector_of_sum(e, m))));
}

/// Axes of a micro-kernel, slowest first; the vector axis, or the columns of a matrix unit, come last.
std::vector<size_t> order_of(const TensorExpr& e, const Micro& m) {
    std::optional<size_t> last = m.vector_axis;
    if (m.matrix) last = m.matrix->columns;
    std::vector<size_t> out;
    for (const size_t a : m.order)
        if (a < e.spatial && a != last) out.push_back(a);
    for (size_t a = 0; a < e.spatial; ++a)
        if (a != last && std::find(out.begin(), out.end(), a) == out.end()) out.push_back(a);
    if (last && *last < e.spatial) out.push_back(*last);
    return out;
}

void count_tiles(Partition& p, const std::vector<Expr>& most, size_t spatial) {
    p.count = 1;
    for (size_t a = 0; a < spatial; ++a) {
        p.tiles.push_back(ceil_div(most[a], p.span(a)));
        if (p.tiles.back().is_constant() && p.count)
            *p.count *= p.tiles.back().constant();
        else
            p.count.reset();
    }
}

/// Tiles of warps or warpgroups on matrix instructions, no larger than the ranges need.
Partition matrix_tiles(const TensorExpr& e, const Micro& m, const std::vector<Expr>& most) {
    const MatrixUnit& u = *m.matrix;
    Partition p;
    p.warps = u.group() ? 4 : 1;
    const bool pairs = left_along_rows(e, u);
    for (size_t a = 0; a < most.size(); ++a) {
        const int64_t unit = a == u.rows ? matrix_rows(u) : a == u.columns ? kMatrixColumns : matrix_sum(u.type);
        const bool spread = a == u.rows || a == u.columns || a == u.sum;
        int64_t tile = spread || a < e.spatial ? m.registers[a] : 1;
        if (most[a].is_constant()) {
            const int64_t whole = std::max<int64_t>(1, most[a].constant());
            tile = std::min(tile, spread ? (whole + unit - 1) / unit * unit : whole);
        }
        p.spread.push_back(!spread               ? Spread::Strip
                           : a == u.rows         ? (pairs ? Spread::RowPairs : Spread::Rows)
                           : pairs && a == u.sum ? Spread::Quads
                                                 : Spread::Columns);
        p.registers.push_back(a == u.rows ? tile / (8 * p.warps) : spread ? tile / 4 : tile);
        const bool apart = p.spread.back() == Spread::Rows || p.spread.back() == Spread::Quads;
        p.strip.push_back(apart ? 1 : spread ? 2 : tile);
    }
    count_tiles(p, most, e.spatial);
    p.order = order_of(e, m);
    return p;
}

Partition tiles_of(const TensorExpr& e, const Micro& m, const std::vector<Expr>& most) {
    if (m.matrix) return matrix_tiles(e, m, most);
    Partition p;
    for (size_t a = 0; a < most.size(); ++a) {
        int64_t tile = 1, threads = 1;
        if (a < e.spatial) {
            if (a < m.registers.size()) tile = std::max<int64_t>(1, m.registers[a]);
            if (m.vector_axis == a) tile = std::max(tile, m.lanes);
            // No thread's tile extends beyond the axis.
            if (most[a].is_constant() && tile > most[a].constant()) tile = std::max<int64_t>(1, most[a].constant());
            if (a < m.virtual_threads.size() && m.virtual_threads[a] > 1 && tile % m.virtual_threads[a] == 0)
                threads = m.virtual_threads[a];
        } else if (m.vector_axis == a) {
            tile = vector_of_sum(e, m);
            if (most[a].is_constant() && tile > most[a].constant()) tile = 1;
        }
        p.registers.push_back(tile);
        p.strip.push_back(tile / threads);
        p.spread.push_back(Spread::Strip);
    }
    count_tiles(p, most, e.spatial);
    p.order = order_of(e, m);
    return p;
}

}  // namespace

Share share_of(const TileProgram& p, const Walk& tree, const TreePath& statement, PrimitiveId stage) {
    Share share;
    const std::vector<size_t>& axes = p.stage_axes[stage];
    const TreePath scope = scope_of(statement);
    for (const size_t a : axes) share.most.push_back(tree.extents.at(scope)[a]);
    const std::set<size_t> narrowed = tree.narrowed(scope);
    for (size_t k = p.stages.primitives[stage].expr()->spatial; k < axes.size(); ++k)
        share.cut = share.cut || narrowed.count(axes[k]) != 0;
    return share;
}

Partition make_partition(const TensorExpr& e, const Micro& m, const Share& share, int threads) {
    Partition p = tiles_of(e, m, share.most);
    if (e.spatial == share.most.size() || p.warps != 0) return p;
    const int64_t useful = most_in_group(e, m, share);
    int64_t group = reduces_vector(e, m) ? std::min(useful, kWarpThreads) : 1;
    if (p.count && *p.count > 0) {
        const int64_t even = threads & -threads;  // a number of cooperating threads that divides the block
        const int64_t free = even / power_of_two_from(*p.count);
        group = std::max(group, std::min(useful, free));
    }
    p.group = group;
    if (group == 1) return p;
    p.shared_axis = axis_to_share(e, m, share.most);
    const int64_t apart = threads / group;
    if (m.vector_axis && *m.vector_axis < e.spatial && (apart >= kWarpThreads || std::has_single_bit(uint64_t(apart))))
        p.apart = apart;
    return p;
}

std::vector<size_t> Partition::array_axes() const {
    std::vector<size_t> out(registers.size());
    std::iota(out.begin(), out.end(), size_t{0});
    const auto place = [&](size_t a) {
        if (spread[a] == Spread::Quads) return 0;
        return a >= order.size() ? 3 : spread[a] == Spread::Columns ? 2 : 1;
    };
    std::stable_sort(out.begin(), out.end(), [&](size_t a, size_t b) { return place(a) < place(b); });
    return out;
}

int64_t Partition::exchange_bytes(int threads, int64_t size, size_t spatial) const {
    if (!spans_warps()) return 0;
    if (apart == 1) return threads / kWarpThreads * size;
    int64_t sums = 1;
    for (size_t a = 0; a < spatial; ++a) sums *= registers[a];
    return std::min(sums, kExchanged) * threads * size;
}

std::optional<int64_t> wanted_threads(const TensorExpr& e, const Micro& m, const Share& share) {
    const Partition p = tiles_of(e, m, share.most);
    if (!p.count) return std::nullopt;
    return *p.count * (p.warps != 0 ? p.takes() : most_in_group(e, m, share));
}

}  // namespace tilewright::gpu
