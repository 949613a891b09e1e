#include "schedule/default_schedule.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/numbers.h"
#include "cost/cache_sets.h"
#include "program/analysis/contraction.h"
#include "program/transform/contiguous_axes.h"
#include "schedule/default/steps.h"
#include "schedule/tasks.h"
#include "tile/annotate/prefetch.h"

namespace tilewright {

namespace {

/// The loops of a task around a product whose reduction is blocked (StageChoice::sum_blocks), innermost first: over the
/// blocks, over panels of columns, and over blocks of rows, whose partial sums stay in L2.
///     1024 x 768 sums of 3072 terms:  for m by 512 { for n by 32 { for k by 384 { compute } } }
std::vector<std::pair<size_t, int64_t>> sum_block_loops(const TensorExpr& e, const StageChoice& choice,
                                                        const Tasks& tasks) {
    const int64_t kMostRows = choice.keeps_left ? kKeptRows : 512;  // partial sums of 64 KB beside 32 columns
    if (choice.sum_blocks.empty()) return {};
    const Micro& micro = choice.micro;
    const size_t columns = micro.matrix ? micro.matrix->columns : *micro.vector_axis;
    const int64_t panel = micro.registers[columns] * (choice.right_blocks.empty() ? 1 : kPackedPanels);
    std::vector<std::pair<size_t, int64_t>> loops;
    if (choice.keeps_left) loops.emplace_back(columns, panel);
    for (size_t k = choice.sum_blocks.size(); k-- > 0;)
        loops.emplace_back(choice.sum_blocks[k].axis, choice.sum_blocks[k].points);
    if (!choice.keeps_left) loops.emplace_back(columns, panel);
    int64_t rows = 1;
    std::vector<std::pair<size_t, int64_t>> items;  // of a batch, whose factors are packed one after the other
    for (size_t a = e.spatial; a-- > 0;) {
        if (a == columns) continue;
        const int64_t unit = std::max<int64_t>(1, micro.registers[a]);
        if (!choice.right_blocks.empty() && unit == 1) {
            if (!e.extents[a].is_constant() || tasks.inside[a] > 1) items.emplace_back(a, 1);
            continue;
        }
        int64_t most = std::max(unit, kMostRows / rows / unit * unit);
        if (!choice.right_blocks.empty())  // a short last block would pack all columns for few rows
            most = ceil_of(ceil_of(tasks.inside[a], std::max<int64_t>(1, tasks.inside[a] / most)), unit) * unit;
        if (!e.extents[a].is_constant() || tasks.inside[a] > most) loops.emplace_back(a, most);
        rows *= std::min(most, tasks.inside[a]);
    }
    loops.insert(loops.end(), items.begin(), items.end());
    return loops;
}

/// Blocks of a sum whose panel of weights is too large to be prefetched as a whole. Each of at least three register
/// tiles of rows would read it from L2, and the first one would wait for memory. One core, milliseconds: 128 x 768 sums
/// of 3072 terms 3.92 -> 3.59, 1024 x 1024 of 1024 14.1 -> 13.2 (Intel Xeon 6/167).
///     32 columns, 3072 terms:                  for k by 1024
///     32 columns, 512 channels, 3 x 3 pixels:  for y by 1 { for x by 1
std::vector<StageChoice::SumBlock> blocks_of_panel(const Program& stages, const TensorExpr& e,
                                                   const StageChoice& choice, const Tasks& tasks) {
    const Micro& micro = choice.micro;
    if (!choice.contraction || micro.matrix || choice.strip || choice.summed_rows || !micro.vector_axis ||
        *micro.vector_axis >= e.spatial)
        return {};
    const auto product = contraction(e);
    if (!product || product->type != DType::F32 || !product->reads_plainly() ||
        stages.values[stages.primitives[PrimitiveId(0)].outputs[0]].dtype != DType::F32)  // it keeps the partial sums
        return {};
    const int64_t row = micro.registers[*micro.vector_axis] * byte_size(DType::F32);
    int64_t tiles = 1, terms = 1;
    for (size_t a = 0; a < e.extents.size(); ++a) {
        if (a >= e.spatial && (!e.extents[a].is_constant() || micro.registers[a] != 1)) return {};
        if (a >= e.spatial) terms *= e.extents[a].constant();
        if (a < e.spatial && a != *micro.vector_axis)
            tiles *= (tasks.inside[a] + micro.registers[a] - 1) / micro.registers[a];
    }
    if (tiles < 3 || terms * row <= kNearPanelBytes) return {};
    std::vector<size_t> order = micro.order;
    if (order.empty())
        for (size_t a = 0; a < e.extents.size(); ++a) order.push_back(a);
    std::vector<StageChoice::SumBlock> blocks;  // innermost first
    int64_t block = row;                        // bytes
    for (auto a = order.rbegin(); a != order.rend(); ++a) {
        if (*a < e.spatial) continue;
        const int64_t extent = e.extents[*a].constant();
        int64_t points = 1;
        for (int64_t n = 1; n <= extent && n * block <= kNearPanelBytes && blocks.empty(); ++n)
            if (extent % n == 0) points = n;
        block *= points;
        if (points < extent) blocks.push_back({*a, points});
    }
    if (block < kNearPanelBytes / 3) return {};
    return {blocks.rbegin(), blocks.rend()};
}

/// The axis of the register tile's rows.
std::optional<size_t> row_axis(const Micro& micro) {
    for (size_t a = 0; a < micro.registers.size(); ++a)
        if (a != micro.vector_axis && micro.registers[a] > 1) return a;
    return std::nullopt;
}

/// Whether the rows of a right factor lie on other pages, and a panel of them in more lines than L1 holds for the next
/// register tile.
bool scattered_panel(const TensorExpr& e, const OperandWalk& right, const Micro& micro, const Target& target) {
    const int64_t panel = micro.registers[*micro.vector_axis] * byte_size(DType::F32);
    const Expr terms = e.extents[e.spatial];
    if (terms.is_constant() && terms.constant() * panel <= l1_bytes(target)) return false;
    const auto row = right.stride(e.spatial);
    return !row || *row * byte_size(DType::F32) >= kPageBytes / 2;  // unknown at compile time, or far
}

/// Blocks of both factors of a product of many rows are packed where the right one is computed at run time and its rows
/// are far apart: each register tile of rows would read a line of every one of them again.
///     [256, k] x [k, n], one thread of Zen 2, GFLOP/s of 107: k = 768 and n = 2304 56 -> 91, 1024 and 4096 21 -> 90
void pack_blocks(const Program& stages, const TensorExpr& e, const Target& target, StageChoice& choice) {
    constexpr int64_t kLeastRows = 64, kLeastColumns = 256;  // an element that is copied is used that often
    const Micro& micro = choice.micro;
    const size_t sum = e.spatial;
    if (!choice.contraction || micro.matrix || choice.strip || choice.summed_rows || choice.loads.size() > 1 ||
        !micro.vector_axis || *micro.vector_axis >= sum || e.extents.size() != sum + 1 || micro.registers[sum] != 1)
        return;
    const std::optional<size_t> rows = row_axis(micro);
    const auto product = contraction(e);
    if (!rows || !product || product->type != DType::F32 || !product->reads_plainly() || e.accesses.size() != 2 ||
        stages.values[stages.primitives[PrimitiveId(0)].outputs[0]].dtype != DType::F32)  // it keeps the partial sums
        return;
    for (const Access& a : e.accesses)
        for (const Expr i : a.index)
            if (!is_uniform(i) && !i.as_var()) return;
    for (const size_t i : {0, 1}) {
        const Access &right = e.accesses[i], &left = e.accesses[1 - i];
        const auto walk = [&](const Access& a) {
            return walk_of(stages, e, a.value, a.index, false, static_cast<int>(micro.lanes));
        };
        const OperandWalk r = walk(right), l = walk(left);
        if (!r.depends(*micro.vector_axis) || !r.unit(*micro.vector_axis) || !r.depends(sum) || r.depends(*rows) ||
            !l.depends(*rows) || !l.depends(sum) || l.depends(*micro.vector_axis) ||
            !scattered_panel(e, r, micro, target) || guessed_extent(stages, e.extents[*rows]) < kLeastRows ||
            (e.extents[*micro.vector_axis].is_constant() &&
             guessed_extent(stages, e.extents[*micro.vector_axis]) < kLeastColumns))
            continue;
        // A task that copies the right factor once for all of its rows does so again for each block of them otherwise.
        const bool few = guessed_extent(stages, e.extents[*rows]) <= 2 * kKeptRows;
        if (!choice.loads.empty() && (choice.loads[0] != i || !few)) continue;
        choice.loads.clear();
        const int64_t row = micro.registers[*micro.vector_axis] * byte_size(DType::F32);
        choice.sum_blocks = {{sum, std::max<int64_t>(16, l1_bytes(target) / 2 / row / 16 * 16)}};
        choice.right_blocks = {i};
        choice.left_blocks = {1 - i};
        choice.keeps_left = true;
        return;
    }
}

TileProgram schedule_one(Program stages, const Target& target) {
    const PrimitiveId id(0);
    // Merging makes tensors one-dimensional. It hides conditions that a Load would decide, and the layout that it
    // packs.
    const auto packs = [&] {
        const TensorExpr& whole = *stages.primitives[id].expr();
        return !choose_micro(stages, whole, DType::F32, target).loads.empty();
    };
    if (auto merged = merge_contiguous_axes(stages); merged && !packs()) stages = std::move(*merged);
    const TensorExpr& e = *stages.primitives[id].expr();
    const size_t n = e.extents.size();
    StageChoice choice = choose_micro(stages, e, stages.values[stages.primitives[id].outputs[0]].dtype, target);
    const Micro& micro = choice.micro;

    if (choice.sum_blocks.empty() && !target.gpu) pack_blocks(stages, e, target, choice);
    const Tasks tasks = cut_tasks(stages, choice, target);
    if (choice.sum_blocks.empty() && !target.gpu) choice.sum_blocks = blocks_of_panel(stages, e, choice, tasks);
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
    std::vector<Stmt> body{Stmt{Compute{id, micro}}};
    const auto wrap = [&](size_t axis, int64_t step, bool parallel) {
        TileLoop loop;
        loop.axis = axis;
        loop.step = step;
        loop.parallel = parallel;
        loop.body = std::move(body);
        body.clear();
        body.push_back(Stmt{std::move(loop)});
    };
    const auto copy = [&](const std::vector<size_t>& accesses, std::optional<size_t> panels = {}) {
        std::vector<Stmt> loads = make_loads(t.stages, id, accesses, micro, panels);
        body.insert(body.begin(), std::make_move_iterator(loads.begin()), std::make_move_iterator(loads.end()));
    };
    copy(choice.right_blocks, micro.vector_axis);
    for (const auto& [axis, step] : sum_block_loops(expr, choice, tasks)) {
        if (axis == expr.spatial) copy(choice.left_blocks, row_axis(micro));
        wrap(axis, step, false);
    }
    copy(tasks.loads);
    if (choice.strip && inside[*micro.vector_axis] > *choice.strip) {
        wrap(*micro.vector_axis, *choice.strip, false);
        for (size_t a = expr.spatial; a-- > 0;)
            if (a != choice.transposed && a != micro.vector_axis && inside[a] > unit(a)) wrap(a, unit(a), false);
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

TileProgram default_schedule(Program stages, const Target& target) {
    IndexVector<PrimitiveId, std::vector<size_t>> none(stages.primitives.size());
    return default_schedule(std::move(stages), none, target);
}

TileProgram default_schedule(Program stages, const IndexVector<PrimitiveId, std::vector<size_t>>& row_axes,
                             const Target& target) {
    const std::string name = stages.name;
    if (stages.primitives.size() == 1) {
        TileProgram t = schedule_one(std::move(stages), target);
        t.name = name;
        return t;
    }
    // Several stages: the grid is over rows, and the stages run in order inside a row.
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
        // Inside a row the shared axes have one point.
        Program view = t.stages;
        for (const size_t a : row_axes[id]) view.primitives[id].expr()->extents[a] = 1;
        StageChoice choice = choose_micro(view, *view.primitives[id].expr(),
                                          t.stages.values[t.stages.primitives[id].outputs[0]].dtype, target);
        for (const size_t a : row_axes[id]) choice.micro.registers[a] = 1;
        body.push_back(Stmt{Compute{id, choice.micro}});
    }
    // A task of the grid is one row.
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
