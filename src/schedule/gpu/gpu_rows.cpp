// Products of a few rows (decoding): every weight is read once, so nothing is gained by copies in shared memory.
// Threads read 16 bytes at a time where they lie side by side, along the columns or along the sum, and share the sum.
//
//     y[m, n] = sum(k) x[m, k] w[k, n]    vector n lanes 8: a warp reads 256 columns of a row of w, warps other rows
//     y[m, n] = sum(k) x[m, k] w[n, k]    vector k lanes 8: a warp reads 256 numbers of two or four rows of w

#include <algorithm>

#include "base/numbers.h"
#include "program/analysis/contraction.h"
#include "schedule/gpu/gpu_nest.h"
#include "schedule/gpu/gpu_schedule.h"

namespace tilewright {

namespace {

constexpr int64_t kMostRows = 8;

/// The roles of the axes.
struct RowProduct {
    std::vector<size_t> rows;  ///< of few points together
    size_t columns = 0, sum = 0;
    bool along_sum = false;  ///< weights lie side by side along the sum
    int64_t vector = 1;      ///< numbers of them in 16 bytes, or as many as the length of their rows permits
};

/// Points of the axes; nothing where one is dynamic.
std::optional<int64_t> points(const TensorExpr& e, const std::vector<size_t>& axes) {
    int64_t n = 1;
    for (const size_t a : axes) {
        if (!e.extents[a].is_constant()) return std::nullopt;
        n *= e.extents[a].constant();
    }
    return n;
}

size_t longest_of(const TensorExpr& e, const std::vector<size_t>& axes) {
    return *std::max_element(axes.begin(), axes.end(),
                             [&](size_t a, size_t b) { return guess(e.extents[a]) < guess(e.extents[b]); });
}

std::optional<RowProduct> row_product(const Program& stages, const TensorExpr& e) {
    const auto c = contraction(e);
    if (!c || !c->of_reals()) return std::nullopt;
    const ContractionAxes by_factor = axes(e, *c);
    if (by_factor.sum.empty() || !by_factor.one_sided.empty()) return std::nullopt;
    for (const size_t weights : {1, 0}) {
        const auto& many = weights == 1 ? by_factor.columns : by_factor.rows;
        const auto& few = weights == 1 ? by_factor.rows : by_factor.columns;
        const auto rows = points(e, few);
        const auto slot = c->factors[weights].read;
        if (many.empty() || !rows || *rows > kMostRows || !slot || e.accesses[*slot].index.empty()) continue;
        const Access& a = e.accesses[*slot];
        RowProduct p{few, longest_of(e, many), longest_of(e, by_factor.sum)};
        const auto lies_along = [&](const std::vector<size_t>& list) {
            return std::find_if(list.begin(), list.end(), [&](size_t k) { return a.index.back() == axis(k); });
        };
        if (const auto k = lies_along(by_factor.sum); k != by_factor.sum.end()) {
            p.along_sum = true;
            p.sum = *k;
        } else if (const auto n = lies_along(many); n != many.end()) {
            p.columns = *n;
        } else {
            continue;
        }
        const Value& value = stages.values[a.value];
        p.vector = 16 / static_cast<int64_t>(byte_size(value.dtype));
        const Expr length = value.shape.back();
        while (p.vector > 1 && !(length.is_constant() && length.constant() % p.vector == 0)) p.vector /= 2;
        return p;
    }
    return std::nullopt;
}

/// How a block's threads share its columns.
struct RowTiles {
    int64_t columns = 1;  ///< of a thread, or of threads that share a sum
    int64_t block = 32;   ///< of a block
    int64_t part = 0;     ///< points of the sum in a block's part (split-K); 0: all
};

TileProgram row_tree(const Program& stages, const RowProduct& p, const RowTiles& tiles) {
    constexpr int64_t kLoads = 8;  // of 16 bytes that a thread has under way
    const PrimitiveId id(0);
    const TensorExpr& e = *stages.primitives[id].expr();
    Micro m;
    m.padding = Padding::Local;
    m.registers.assign(e.extents.size(), 1);
    for (const size_t a : p.rows) m.registers[a] = e.extents[a].constant();
    m.registers[p.columns] = tiles.columns;
    m.registers[p.sum] = p.along_sum ? p.vector * std::max<int64_t>(1, kLoads / tiles.columns) : kLoads;
    m.vector_axis = p.along_sum ? p.sum : p.columns;
    m.lanes = p.vector;
    TileProgram t = without_body(stages);
    t.body.push_back(Stmt{Compute{id, m}});
    const auto around = [&](size_t a, int64_t step) {
        if (!e.extents[a].is_constant() || e.extents[a].constant() > step)
            t.body = in_parallel(a, step, std::move(t.body));
    };
    if (tiles.part != 0) around(p.sum, tiles.part);
    around(p.columns, tiles.block);
    for (size_t a = e.spatial; a-- > 0;)
        if (a != p.columns && std::find(p.rows.begin(), p.rows.end(), a) == p.rows.end()) around(a, 1);
    return t;
}

/// Parts of the sum of equal length, in whole vectors of a warp, for blocks that are fewer than two a multiprocessor;
/// 0: no parts.
std::vector<int64_t> parts_of(const TensorExpr& e, const RowProduct& p, double blocks, const GpuTarget& target) {
    constexpr int64_t kMostParts = 32;
    std::vector<int64_t> out{0};
    if (!e.extents[p.sum].is_constant()) return out;
    const int64_t length = e.extents[p.sum].constant(), unit = 32 * (p.along_sum ? p.vector : 1);
    for (int64_t n = 2; n <= kMostParts && static_cast<double>(n) * blocks <= 4.0 * target.multiprocessors; ++n)
        if (length % n == 0 && length / n % unit == 0) out.push_back(length / n);
    return out;
}

}  // namespace

std::vector<std::pair<double, TileProgram>> gpu_row_schedules(const Program& stages, const Target& target) {
    std::vector<std::pair<double, TileProgram>> out;
    const TensorExpr& e = *stages.primitives[PrimitiveId(0)].expr();
    const auto p = row_product(stages, e);
    if (!p) return out;
    const int64_t all_columns = guess(e.extents[p->columns]);
    std::vector<RowTiles> tiles;
    if (p->along_sum) {
        for (const int64_t columns : {1, 2, 4})
            for (const int64_t warps : {1, 2, 4, 8}) tiles.push_back({columns, columns * warps});
    } else {
        for (const int64_t threads : {32, 64, 128}) tiles.push_back({p->vector, p->vector * threads});
    }
    const double others = [&] {
        double n = 1;
        for (size_t a = 0; a < e.spatial; ++a)
            if (a != p->columns && std::find(p->rows.begin(), p->rows.end(), a) == p->rows.end())
                n *= static_cast<double>(guess(e.extents[a]));
        return n;
    }();
    for (RowTiles t : tiles) {
        if (t.columns > all_columns || (t.block > t.columns && t.block >= 2 * all_columns)) continue;
        const double blocks = others * static_cast<double>(ceil_of(all_columns, t.block));
        for (const int64_t part : parts_of(e, *p, blocks, *target.gpu)) {
            t.part = part;
            TileProgram program = row_tree(stages, *p, t);
            if (!verify(program).empty()) continue;
            const double seconds = gpu_estimate(program, *target.gpu).seconds * (part == 0 ? 1 : kSplitMargin);
            out.emplace_back(seconds, std::move(program));
        }
    }
    std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    return out;
}

}  // namespace tilewright
