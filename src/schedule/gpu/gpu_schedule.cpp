#include "schedule/gpu/gpu_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/numbers.h"
#include "cost/gpu_estimate.h"
#include "program/transform/contiguous_axes.h"
#include "schedule/default_schedule.h"
#include "schedule/gpu/gpu_nest.h"
#include "schedule/gpu/retarget.h"
#include "tile/gpu_memory.h"
#include "tile/matrix.h"
#include "tile/walk.h"

namespace tilewright {

TileProgram without_body(Program stages) {
    TileProgram t;
    t.name = stages.name;
    t.stages = std::move(stages);
    const TensorExpr& e = *t.stages.primitives[PrimitiveId(0)].expr();
    std::vector<size_t> identity(e.extents.size());
    std::iota(identity.begin(), identity.end(), 0);
    t.stage_axes.push_back(identity);
    for (size_t a = 0; a < e.extents.size(); ++a)
        t.axes.push_back({fmt::format("{}{}", a < e.spatial ? "s" : "r", a), e.extents[a]});
    return t;
}

std::vector<Stmt> in_parallel(size_t axis, int64_t step, std::vector<Stmt> body) {
    TileLoop loop;
    loop.axis = axis;
    loop.step = step;
    loop.parallel = true;
    loop.body = std::move(body);
    std::vector<Stmt> out;
    out.push_back(Stmt{std::move(loop)});
    return out;
}

namespace {

std::vector<size_t> ascending(size_t axes) {
    std::vector<size_t> out(axes);
    std::iota(out.begin(), out.end(), size_t{0});
    return out;
}

/// A tree of one stage: a grid of tiles of `inside` points per spatial axis, with `body` inside. `order`: of the axes,
/// outermost first; empty: ascending.
TileProgram one_stage(Program stages, const std::vector<int64_t>& inside, std::vector<Stmt> body,
                      std::vector<size_t> order = {}) {
    TileProgram t = without_body(std::move(stages));
    const TensorExpr& e = *t.stages.primitives[PrimitiveId(0)].expr();
    if (order.empty()) order = ascending(e.spatial);
    for (size_t k = e.spatial; k-- > 0;) {
        const size_t a = order[k];
        if (inside[a] == 0 || (e.extents[a].is_constant() && inside[a] >= e.extents[a].constant())) continue;
        body = in_parallel(a, inside[a], std::move(body));
    }
    t.body = std::move(body);
    return t;
}

// --- products

/// The tiles among which the default heuristic chooses.
std::vector<GpuTiles> candidates(const GpuProduct& p, int64_t all_rows, int64_t all_columns, int64_t all_sum) {
    std::vector<GpuTiles> out;
    const int64_t row_unit = p.matrix ? 16 : 8, column_unit = p.matrix ? 8 : 4;
    const auto sizes = [](int64_t extent, int64_t unit) {
        std::vector<int64_t> s;
        for (int64_t n = unit; n <= 128; n *= 2) {
            s.push_back(n);
            if (n >= extent) break;
        }
        return s;
    };
    const auto warps = [&](const GpuTiles& t) {
        const int64_t tiles = ceil_of(t.rows, t.warp_rows) * ceil_of(t.columns, t.warp_columns);
        return p.matrix ? tiles : ceil_of(tiles, 32);
    };
    for (const int64_t rows : sizes(all_rows, row_unit))
        for (const int64_t columns : sizes(all_columns, column_unit))
            for (const int64_t sum : p.matrix ? std::vector<int64_t>{16, 32, 64} : std::vector<int64_t>{8, 16, 32})
                for (const int stages : {1, 2, 3, 4})
                    for (const int64_t warp_rows :
                         p.matrix ? std::vector<int64_t>{16, 32, 64} : std::vector<int64_t>{4, 8})
                        for (const int64_t warp_columns :
                             p.matrix ? std::vector<int64_t>{8, 16, 32, 64} : std::vector<int64_t>{4, 8}) {
                            GpuTiles t{rows, columns, sum, warp_rows, warp_columns, stages};
                            if (warp_rows > rows || warp_columns > columns || warps(t) > kGpuBlockThreads / 32)
                                continue;
                            if (p.matrix && warp_rows * warp_columns > 64 * 32) continue;
                            if (sum > 16 && sum >= 2 * all_sum) continue;
                            if (stages > 1 && sum * (stages - 1) >= all_sum) continue;
                            out.push_back(t);
                        }
    return out;
}

/// The same for warpgroup instructions. Tiles stay inside the product, because an instruction reads all of its rows,
/// columns and points of the sum.
std::vector<GpuTiles> group_candidates(int64_t all_rows, int64_t all_columns, int64_t all_sum) {
    constexpr int64_t kGroups = kGpuBlockThreads / 128;
    constexpr int64_t kMostSums = 128;  // registers of a thread
    std::vector<GpuTiles> out;
    for (const int64_t rows : {64, 128, 256})
        for (const int64_t columns : {8, 16, 32, 64, 128, 256})
            for (const int64_t sum : {32, 64, 128})
                for (const int stages : {1, 2, 3, 4})
                    for (const int64_t group_rows : {64, 128})
                        for (const int64_t group_columns : {columns, columns / 2}) {
                            if (rows > all_rows || columns > all_columns || sum > all_sum) continue;
                            if (group_rows > rows || group_columns < 8) continue;
                            if (rows / group_rows * (columns / group_columns) > kGroups) continue;
                            if (group_rows * group_columns / 128 > kMostSums) continue;
                            if (stages > 1 && sum * (stages - 1) >= all_sum) continue;
                            out.push_back({rows, columns, sum, group_rows, group_columns, stages});
                        }
    return out;
}

/// The number of row tiles before the next column of tiles: the divisor for which concurrent blocks read least, where
/// L2 does not hold both operands.
///
///     parallel m by 1024 { parallel n by 256 { parallel m by 128 { ... } } }     8 of them
int64_t rows_together(const GpuNest& nest, const GpuProduct& p, const GpuTiles& tiles, const GpuWork& work,
                      const GpuTarget& target) {
    const std::vector<int64_t>& extents = nest.stage().extents;
    const double row_bytes = nest.operand_bytes(p.rows), column_bytes = nest.operand_bytes(p.columns);
    if (row_bytes + column_bytes < 0.5 * static_cast<double>(target.l2_bytes)) return 1;
    const int64_t rows = ceil_of(extents[p.rows], tiles.rows), columns = ceil_of(extents[p.columns], tiles.columns);
    const int64_t at_once = int64_t{target.multiprocessors} * blocks_at_a_time(work, target);
    const auto read = [&](int64_t together) {
        int64_t of_rows = together, of_columns = ceil_of(at_once, together);
        if (of_columns > columns) {
            of_rows = together * ceil_of(at_once, together * columns);
            of_columns = columns;
        }
        return row_bytes * static_cast<double>(std::min(of_rows, rows)) / static_cast<double>(rows) +
               column_bytes * static_cast<double>(of_columns) / static_cast<double>(columns);
    };
    int64_t best = 1;
    for (int64_t n = 2; n <= std::min<int64_t>(rows, 32); ++n)
        if (rows % n == 0 && read(n) < 0.95 * read(best)) best = n;
    return best;
}

/// The tile program of a product. `together`: of rows_together.
TileProgram product_tree(const Program& stages, const GpuProduct& p, const GpuTiles& tiles, int64_t together) {
    const PrimitiveId id(0);
    const TensorExpr& e = *stages.primitives[id].expr();
    std::vector<int64_t> inside(e.spatial, 1);
    inside[p.rows] = tiles.rows * together;
    inside[p.columns] = tiles.columns;
    TileLoop steps;
    steps.axis = p.sum;
    steps.step = tiles.sum;
    const Micro micro = gpu_micro(e, p, tiles);
    steps.body.push_back(Stmt{Compute{id, micro}});
    Store store;
    store.value = stages.primitives[id].outputs[0];
    std::vector<Stmt> body;
    body.push_back(Stmt{std::move(steps)});
    body.push_back(Stmt{store});
    if (tiles.part != 0) body = in_parallel(p.sum, tiles.part, std::move(body));
    if (together > 1) body = in_parallel(p.rows, tiles.rows, std::move(body));
    std::vector<size_t> order = ascending(e.spatial);  // groups of rows go outside of columns
    if (together > 1 && p.rows > p.columns) std::swap(order[p.rows], order[p.columns]);
    TileProgram t = one_stage(stages, inside, std::move(body), std::move(order));
    // Copies stand before the Compute in the innermost body.
    std::vector<Stmt>* at = &t.body;
    while (std::get<TileLoop>(at->front().kind).parallel) at = &std::get<TileLoop>(at->front().kind).body;
    auto& loop = std::get<TileLoop>(at->front().kind);
    for (size_t i = e.accesses.size(); i-- > 0;)
        if (const auto load = gpu_load(t, id, i, p, &micro)) loop.body.insert(loop.body.begin(), Stmt{*load});
    if (loop.body.size() > 1) loop.stages = tiles.stages;
    return t;
}

/// The tiles, and the same in parts of the sum (split-K) where they alone are fewer blocks than there are
/// multiprocessors: in powers of two, and in as many as fill one or two blocks of each.
std::vector<GpuTiles> with_parts(const GpuTiles& tiles, int64_t blocks, int64_t sum, const GpuTarget& target) {
    std::vector<GpuTiles> out{tiles};
    const int64_t all = target.multiprocessors;
    if (blocks >= all) return out;
    std::set<int64_t> parts{all / blocks, 2 * all / blocks};
    for (int64_t n = 2; n * blocks < 2 * all; n *= 2) parts.insert(n);
    std::set<int64_t> seen;
    for (const int64_t n : parts) {
        GpuTiles t = tiles;
        t.part = ceil_of(ceil_of(sum, n), t.sum) * t.sum;
        // A part with fewer steps than are under way at a time is none but waits; in one step threads would share sums.
        if (n < 2 || t.part >= sum || t.part < t.sum * std::max(2, t.stages) || !seen.insert(t.part).second) continue;
        out.push_back(t);
    }
    return out;
}

}  // namespace

std::vector<TileProgram> gpu_product_schedules(const Program& stages, const Target& target, Precision precision,
                                               size_t most) {
    std::vector<TileProgram> out;
    if (stages.primitives.size() != 1) return out;
    const TensorExpr& e = *stages.primitives[PrimitiveId(0)].expr();
    std::vector<std::pair<double, TileProgram>> of_rows = gpu_row_schedules(stages, target);
    const auto found = gpu_product(stages, e, stages.primitives[PrimitiveId(0)].outputs[0], precision);
    const GpuProduct group = found ? on_groups(stages, e, *found, *target.gpu) : GpuProduct();
    struct Ranked {
        double seconds;
        const GpuProduct* product;
        GpuTiles tiles;
        int64_t together;
    };
    std::vector<Ranked> ranked;
    for (const GpuProduct* p : {found ? &*found : nullptr, found ? &group : nullptr}) {
        if (p == nullptr) break;
        if (p->group && !fits_group(stages, e, *p, *target.gpu)) continue;
        const GpuNest nest(stages, *p, kAssumedTiled);
        const std::vector<int64_t>& extents = nest.stage().extents;
        const int64_t rows = extents[p->rows], columns = extents[p->columns], sum = extents[p->sum];
        const bool closed = e.extents[p->rows].is_constant() && e.extents[p->columns].is_constant();
        const bool splits = std::all_of(e.extents.begin(), e.extents.end(), [](Expr n) { return n.is_constant(); });
        const bool whole_steps = p->group && !zeros_behind_sum(stages, e, *p);
        for (const GpuTiles& t : p->group ? group_candidates(rows, columns, sum) : candidates(*p, rows, columns, sum)) {
            if (whole_steps && sum % t.sum != 0) continue;
            std::vector<int64_t> tile(e.extents.size(), 1);
            for (size_t a = e.spatial; a < tile.size(); ++a) tile[a] = extents[a];
            tile[p->rows] = t.rows;
            tile[p->columns] = t.columns;
            tile[p->sum] = t.sum;
            const Micro micro = gpu_micro(e, *p, t);
            const GpuWork whole = nest.work(micro, tile, t.stages, *target.gpu);
            if (whole.block_bytes > target.gpu->block_shared_bytes || whole.registers > target.gpu->thread_registers)
                continue;
            const auto blocks = static_cast<int64_t>(whole.blocks);
            for (const GpuTiles& own : splits ? with_parts(t, blocks, sum, *target.gpu) : std::vector<GpuTiles>{t}) {
                const GpuWork work = own.part == 0 ? whole : nest.work(micro, tile, t.stages, *target.gpu, own.part);
                ranked.push_back({gpu_estimate(work, *target.gpu).seconds, p, own,
                                  closed ? rows_together(nest, *p, own, work, *target.gpu) : 1});
            }
        }
    }
    std::stable_sort(ranked.begin(), ranked.end(),
                     [](const Ranked& a, const Ranked& b) { return a.seconds < b.seconds; });
    auto row = of_rows.begin();
    const auto rows_below = [&](double seconds) {
        for (; row != of_rows.end() && row->first <= seconds && out.size() < most; ++row)
            out.push_back(std::move(row->second));
    };
    for (const auto& [seconds, p, tiles, together] : ranked) {
        rows_below(seconds);
        if (out.size() == most) break;
        TileProgram t = product_tree(stages, *p, tiles, together);
        if (!verify(t).empty()) continue;
        const auto bytes = shared_bytes(t);
        if (bytes && *bytes <= target.gpu->block_shared_bytes) out.push_back(std::move(t));
    }
    rows_below(std::numeric_limits<double>::infinity());
    return out;
}

namespace {

// --- everything else

/// The tree of one statement; with the parts of its longest sum in blocks of their own (split-K) where that is faster.
TileProgram best_parts(const Program& stages, const std::vector<int64_t>& inside, const Micro& micro,
                       const Target& target) {
    const PrimitiveId id(0);
    const TensorExpr& e = *stages.primitives[id].expr();
    const auto tree = [&](std::optional<size_t> axis, int64_t part) {
        std::vector<Stmt> body;
        body.push_back(Stmt{Compute{id, micro}});
        if (axis) body = in_parallel(*axis, part, std::move(body));
        return one_stage(stages, inside, std::move(body));
    };
    TileProgram best = tree(std::nullopt, 0);
    std::optional<size_t> longest;
    for (size_t a = e.spatial; a < e.extents.size(); ++a)
        if (e.extents[a].is_constant() && (!longest || e.extents[a].constant() > e.extents[*longest].constant()))
            longest = a;
    if (!longest) return best;
    const GpuEstimate whole = gpu_estimate(best, *target.gpu);
    const auto blocks = static_cast<int64_t>(whole.blocks), all = int64_t{target.gpu->multiprocessors};
    double least = whole.seconds;
    for (int64_t n = 2; n * blocks <= 4 * all && blocks < all; n *= 2) {
        constexpr int64_t kLeastPart = 1024;  // points of one thread's vectors and its neighbours'
        const int64_t part = ceil_of(ceil_of(e.extents[*longest].constant(), n), kLeastPart) * kLeastPart;
        if (part >= e.extents[*longest].constant()) break;
        TileProgram t = tree(longest, part);
        const double seconds = gpu_estimate(t, *target.gpu).seconds * kSplitMargin;
        if (seconds >= least || !verify(t).empty()) continue;
        least = seconds;
        best = std::move(t);
    }
    return best;
}

/// The schedule of a kernel that is no product: a few thousand points per block, and a few blocks per SM.
TileProgram schedule_points(Program stages, const Target& target) {
    if (auto merged = merge_contiguous_axes(stages)) stages = std::move(*merged);
    const PrimitiveId id(0);
    const TensorExpr& e = *stages.primitives[id].expr();
    const Micro micro = choose_micro(stages, e, DType::F32, target).micro;
    std::vector<int64_t> inside(e.spatial);
    double points = 1, sum = 1;
    for (size_t a = 0; a < e.extents.size(); ++a) {
        if (a < e.spatial) inside[a] = guess(e.extents[a]);
        (a < e.spatial ? points : sum) *= static_cast<double>(guess(e.extents[a]));
    }
    const double wanted = std::clamp(points * sum / (4.0 * target.gpu->multiprocessors), 512.0, 8192.0);
    const auto unit = [&](size_t a) {
        return std::max<int64_t>(a < micro.registers.size() ? micro.registers[a] : 1, micro.vector_axis == a ? 128 : 1);
    };
    const auto block = [&] {
        double n = sum;
        for (const int64_t i : inside) n *= static_cast<double>(i);
        return n;
    };
    std::vector<size_t> order;
    for (size_t a = 0; a < e.spatial; ++a)
        if (micro.vector_axis != a) order.push_back(a);
    if (micro.vector_axis && *micro.vector_axis < e.spatial) order.push_back(*micro.vector_axis);
    for (const size_t a : order)
        while (block() > wanted && inside[a] > unit(a))
            inside[a] = std::max(unit(a), ceil_of(ceil_of(inside[a], 2), unit(a)) * unit(a));
    // Dynamic axes are always split: they may be long.
    for (size_t a = 0; a < e.spatial; ++a)
        if (!e.extents[a].is_constant() && inside[a] >= kAssumedTiled) inside[a] = std::max(unit(a), int64_t{256});
    return best_parts(stages, inside, micro, target);
}

// --- trees for a CPU's caches, converted to a GPU's micro-kernels and copies

class Retarget {
  public:
    /// `group`: products on warpgroup instructions.
    Retarget(TileProgram t, const Target& target, Precision precision, bool group)
        : t_(std::move(t)), target_(target), precision_(precision), group_(group) {}

    /// Nothing where products must run on warpgroups and one of them cannot.
    std::optional<TileProgram> run() {
        t_.buffer_layouts.clear();
        without_loads(t_.body);
        const Walk tree = walk(t_);
        for (const auto& [path, compute] : tree.computes)
            if (!micro(path, *compute)) return std::nullopt;
        if (group_ && products_.empty()) return std::nullopt;
        for (const auto& [stage, product, micro] : products_)
            for (size_t i = 0; i < t_.stages.primitives[stage].expr()->accesses.size(); ++i)
                if (const auto load = gpu_load(t_, stage, i, product, group_ ? &micro : nullptr)) place(t_.body, *load);
        run_ahead(t_.body);
        return std::move(t_);
    }

  private:
    static void without_loads(std::vector<Stmt>& body) {
        std::erase_if(body, [](const Stmt& s) { return std::holds_alternative<Load>(s.kind); });
        for (Stmt& s : body)
            if (auto* loop = std::get_if<TileLoop>(&s.kind)) without_loads(loop->body);
    }

    Stmt& statement(const TreePath& path) {
        std::vector<Stmt>* body = &t_.body;
        for (size_t k = 0; k + 1 < path.size(); ++k) body = &std::get<TileLoop>((*body)[path[k]].kind).body;
        return (*body)[path.back()];
    }

    /// Warps lie along the rows, and each has all columns of the block. Values between two products then stay in
    /// registers.
    bool micro(const TreePath& path, const Compute& compute) {
        const PrimitiveId s = compute.stage;
        const Walk tree = walk(t_);
        Program view = t_.stages;
        TensorExpr& e = *view.primitives[s].expr();
        for (size_t k = 0; k < e.extents.size(); ++k) {
            const Expr most = tree.extents.at(scope_of(path))[t_.stage_axes[s][k]];
            if (most.is_constant()) e.extents[k] = most;
        }
        auto& out = std::get<Compute>(statement(path).kind);
        auto p = gpu_product(view, e, view.primitives[s].outputs[0], precision_);
        if (!p) {
            out.micro = choose_micro(view, e, DType::F32, target_).micro;
            return true;
        }
        GpuTiles tiles;
        if (group_) {
            p->group = true;
            if (!fits_group(view, e, *p, *target_.gpu, true)) return false;
            const auto whole = [&](size_t axis, int64_t unit) {
                return e.extents[axis].is_constant() && e.extents[axis].constant() % unit == 0;
            };
            // The values between two products are whole operands of instructions, and one tile has all columns.
            constexpr int64_t kMostColumns = 256;
            if (!whole(p->rows, kGroupRows) || !whole(p->columns, 8) || !whole(p->sum, matrix_sum(*p->matrix)) ||
                e.extents[p->columns].constant() > kMostColumns)
                return false;
            const TensorExpr& all = *t_.stages.primitives[s].expr();
            const Expr sum = all.extents[p->sum];
            const bool whole_steps = sum.is_constant() && sum.constant() % e.extents[p->sum].constant() == 0;
            if (!whole_steps && !zeros_behind_sum(t_.stages, all, *p)) return false;
            tiles.sum = e.extents[p->sum].constant();
            tiles.warp_rows = kGroupRows;
            tiles.warp_columns = e.extents[p->columns].constant();
            out.micro = gpu_micro(e, *p, tiles);
            products_.push_back({s, *p, out.micro});
            return true;
        }
        const int64_t rows = guess(e.extents[p->rows]), columns = guess(e.extents[p->columns]);
        tiles.sum = p->matrix ? ceil_of(guess(e.extents[p->sum]), 16) * 16 : 8;
        tiles.warp_rows = p->matrix ? (rows > 128 ? 32 : 16) : std::min<int64_t>(8, rows);
        tiles.warp_columns = p->matrix ? std::min<int64_t>(128, ceil_of(columns, 8) * 8) : 4;
        out.micro = gpu_micro(e, *p, tiles);
        products_.push_back({s, *p, out.micro});
        return true;
    }

    bool holds(const std::vector<Stmt>& body, PrimitiveId stage) const {
        return std::any_of(body.begin(), body.end(), [&](const Stmt& s) {
            if (const auto* loop = std::get_if<TileLoop>(&s.kind)) return holds(loop->body, stage);
            const auto* compute = std::get_if<Compute>(&s.kind);
            return compute != nullptr && compute->stage == stage;
        });
    }
    bool moves(const Load& load, size_t axis) const {
        const TensorExpr& e = *t_.stages.primitives[load.stage].expr();
        for (size_t k = 0; k < e.extents.size(); ++k)
            if (t_.stage_axes[load.stage][k] == axis && index_uses(e.accesses[load.access].index, k)) return true;
        return false;
    }
    /// Inserts the copy at the start of the outermost body in the grid whose inner loops do not cut it.
    void place(std::vector<Stmt>& body, const Load& load) {
        for (Stmt& s : body)
            if (auto* loop = std::get_if<TileLoop>(&s.kind);
                loop != nullptr && holds(loop->body, load.stage) && (loop->parallel || cut_below(*loop, load)))
                return place(loop->body, load);
        body.insert(body.begin(), Stmt{load});
    }
    bool cut_below(const TileLoop& loop, const Load& load) const {
        if (moves(load, loop.axis)) return true;
        return std::any_of(loop.body.begin(), loop.body.end(), [&](const Stmt& s) {
            const auto* inner = std::get_if<TileLoop>(&s.kind);
            return inner != nullptr && holds(inner->body, load.stage) && cut_below(*inner, load);
        });
    }
    static void run_ahead(std::vector<Stmt>& body) {
        for (Stmt& s : body)
            if (auto* loop = std::get_if<TileLoop>(&s.kind)) {
                run_ahead(loop->body);
                if (!loop->parallel && !loop->body.empty() && std::holds_alternative<Load>(loop->body[0].kind))
                    loop->stages = 2;
            }
    }

    TileProgram t_;
    const Target& target_;
    const Precision precision_;
    const bool group_;
    struct Product {
        PrimitiveId stage;
        GpuProduct product;
        Micro micro;
    };
    std::vector<Product> products_;
};

}  // namespace

TileProgram for_gpu(TileProgram tree, const Target& target, Precision precision) {
    return *Retarget(std::move(tree), target, precision, false).run();
}

std::optional<TileProgram> for_gpu_groups(TileProgram tree, const Target& target, Precision precision) {
    if (!target.gpu->has_wgmma()) return std::nullopt;
    return Retarget(std::move(tree), target, precision, true).run();
}

TileProgram gpu_schedule(Program stages, const IndexVector<PrimitiveId, std::vector<size_t>>& row_axes,
                         const Target& target, Precision precision) {
    const std::string name = stages.name;
    TileProgram out;
    if (stages.primitives.size() > 1) {
        out = default_schedule(std::move(stages), row_axes, target);
    } else if (auto products = gpu_product_schedules(merge_dimensions(stages).value_or(stages), target, precision, 1);
               !products.empty()) {
        out = std::move(products[0]);
    } else {
        out = schedule_points(std::move(stages), target);
    }
    out.name = name;
    return out;
}

std::optional<TileProgram> gpu_chain_schedule(const chain::Chain& c, const Target& target, Precision precision,
                                              const chain::SearchOptions& options) {
    chain::Ways ways;
    ways.capacity = static_cast<double>(target.gpu->block_shared_bytes);
    const GpuChainBytes bytes_of(c);
    ways.bytes = [&](const chain::Candidate& k) { return bytes_of(k); };
    // Whole instructions of warpgroups, also where they reach beyond an axis.
    if (target.gpu->capability() == 90) {
        ways.also = {kGroupRows, 2 * kGroupRows};
        ways.halves = kMatrixColumns;
    }
    ways.realise = [&](const chain::Candidate& k) -> std::optional<TileProgram> {
        auto tree = chain::realise(c, k, target);
        if (!tree) return std::nullopt;
        const auto fits = [&](const TileProgram& t) {
            if (!verify(t).empty()) return false;
            const auto bytes = shared_bytes(t);
            return bytes && *bytes <= target.gpu->block_shared_bytes;
        };
        // Products run on warps or on warpgroups, whichever has the lower estimate.
        auto groups = for_gpu_groups(*tree, target, precision);
        TileProgram t = for_gpu(std::move(*tree), target, precision);
        if (groups && fits(*groups)) {
            if (!fits(t) || gpu_estimate(*groups, *target.gpu).seconds < gpu_estimate(t, *target.gpu).seconds)
                return groups;
        }
        if (!fits(t)) return std::nullopt;
        return t;
    };
    const EstimatedCosts estimates(target);
    ways.costs = options.costs != nullptr ? options.costs : &estimates;
    chain::SearchResult found = chain::search(c, ways, options);
    if (found.top.empty()) return std::nullopt;
    return std::move(found.top[0].program);
}

}  // namespace tilewright
