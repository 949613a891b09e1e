#include "tile/random_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "tile/verify_tree.h"
#include "tile/walk.h"

namespace tilewright {

namespace {

constexpr int kTries = 24;
constexpr int64_t kAssumedExtent = 4;  // of dynamic sizes

class Scheduler {
  public:
    Scheduler(Program stages, uint64_t seed, const RandomScheduleOptions& options)
        : rng_(seed * 0x9E3779B97F4A7C15ull + 3), options_(options) {
        base_.name = stages.name;
        base_.stages = std::move(stages);
    }

    TileProgram run() {
        for (int k = 0; k < kTries; ++k) {
            // Later attempts are simpler.
            TileProgram t = attempt(k < kTries / 2 ? 4 : 1);
            if (verify_tree(t).empty() && small(t)) return t;
        }
        return plain();
    }

  private:
    int64_t upto(int64_t lo, int64_t hi) {
        return lo + static_cast<int64_t>(rng_() % static_cast<uint64_t>(hi - lo + 1));
    }
    bool one_in(int64_t n) { return upto(1, n) == 1; }
    template <class T>
    const T& pick(const std::vector<T>& list) {
        return list[static_cast<size_t>(upto(0, static_cast<int64_t>(list.size()) - 1))];
    }
    template <class T>
    void shuffle(std::vector<T>& list, size_t from, size_t to) {
        for (size_t k = to; k > from + 1; --k)
            std::swap(list[k - 1],
                      list[static_cast<size_t>(upto(static_cast<int64_t>(from), static_cast<int64_t>(k) - 1))]);
    }

    const TensorExpr& expr(PrimitiveId s) const { return *base_.stages.primitives[s].expr(); }
    ValueId result(PrimitiveId s) const { return base_.stages.primitives[s].outputs[0]; }

    bool small(const TileProgram& t) const {
        const BufferPlan plan = plan_buffers(t);
        return std::all_of(plan.buffers.begin(), plan.buffers.end(),
                           [&](const Buffer& b) { return b.bytes <= options_.most_tile_bytes; });
    }

    // --- axes

    using StageAxis = std::pair<PrimitiveId, size_t>;

    /// Merges axes that an index identifies (an axis of the reader walks the dimension that an axis of the writer
    /// walks), unless a stage would then have an axis twice.
    void share_axes(bool share) {
        const auto producers = base_.stages.producers();
        std::map<StageAxis, size_t> group;
        std::vector<std::vector<StageAxis>> members;
        for (const PrimitiveId s : base_.stages.primitives.ids())
            for (size_t a = 0; a < expr(s).extents.size(); ++a) {
                group[{s, a}] = members.size();
                members.push_back({{s, a}});
            }
        const auto unite = [&](StageAxis x, StageAxis y) {
            const size_t gx = group[x], gy = group[y];
            if (gx == gy || !(expr(x.first).extents[x.second] == expr(y.first).extents[y.second])) return;
            for (const StageAxis& m : members[gx])
                for (const StageAxis& n : members[gy])
                    if (m.first == n.first) return;
            for (const StageAxis& n : members[gy]) {
                group[n] = gx;
                members[gx].push_back(n);
            }
            members[gy].clear();
        };
        for (const PrimitiveId s : base_.stages.primitives.ids()) {
            if (!share) break;
            for (const Access& a : expr(s).accesses) {
                const PrimitiveId from = producers[a.value];
                if (!from) continue;
                const std::vector<Expr> written = result_index(expr(from));
                for (size_t d = 0; d < a.index.size(); ++d) {
                    const auto w = written[d].as_var(), r = a.index[d].as_var();
                    if (w && r && w->kind == VarKind::Axis && r->kind == VarKind::Axis && !one_in(8))
                        unite({from, w->id}, {s, r->id});
                }
            }
        }
        base_.axes.clear();
        base_.stage_axes = IndexVector<PrimitiveId, std::vector<size_t>>(base_.stages.primitives.size());
        std::map<size_t, size_t> number;
        for (const PrimitiveId s : base_.stages.primitives.ids())
            for (size_t a = 0; a < expr(s).extents.size(); ++a) {
                const auto [it, fresh] = number.try_emplace(group[{s, a}], base_.axes.size());
                if (fresh) base_.axes.push_back(TileAxis{fmt::format("a{}", it->second), expr(s).extents[a]});
                base_.stage_axes[s].push_back(it->second);
            }
    }

    // --- the tree

    /// The context of a subtree under construction: its ranges, and whether every range is whole tiles.
    struct Here {
        std::vector<Expr> extents;  ///< largest
        std::vector<bool> exact;    ///< whether every range has exactly that extent
        int depth = 0;
    };

    int64_t guess(Expr e) const { return e.is_constant() ? std::max<int64_t>(1, e.constant()) : kAssumedExtent; }

    TileProgram attempt(int64_t wildness) {
        wildness_ = wildness;
        share_axes(true);
        loaded_.clear();
        stored_.clear();
        base_.buffer_layouts.clear();
        for (const PrimitiveId s : base_.stages.primitives.ids()) {
            const ValueId v = result(s);
            const bool output = is_output(base_, v);
            // A Store iterates over the result's dimensions, so the stage must as well.
            if (output && expr(s).output_index.empty() && one_in(2)) stored_.insert(v);
            if ((!output || stored_.count(v) != 0) && one_in(3))
                base_.buffer_layouts[v] = random_layout(base_.stages.values[v].shape.size(), false);
        }
        Here here;
        for (const TileAxis& a : base_.axes) {
            here.extents.push_back(a.extent);
            here.exact.push_back(a.extent.is_constant());
        }
        TileProgram t = base_;
        t.body = tree(base_.stages.primitives.ids(), here, true);
        return t;
    }

    /// A sequence of Computes; values between them are whole.
    TileProgram plain() {
        share_axes(false);
        base_.buffer_layouts.clear();
        TileProgram t = base_;
        for (const PrimitiveId s : t.stages.primitives.ids()) {
            const size_t n = expr(s).extents.size();
            Compute c;
            c.stage = s;
            c.micro.registers.assign(n, 1);
            c.micro.virtual_threads.assign(n, 1);
            t.body.push_back(Stmt{c});
        }
        return t;
    }

    bool has(PrimitiveId s, size_t a) const {
        const auto& axes = base_.stage_axes[s];
        return std::find(axes.begin(), axes.end(), a) != axes.end();
    }
    bool reduces(PrimitiveId s, size_t a) const {
        const auto& axes = base_.stage_axes[s];
        return std::find(axes.begin() + static_cast<std::ptrdiff_t>(expr(s).spatial), axes.end(), a) != axes.end();
    }

    /// Axes along which all these stages may be cut together: all have them and none reduces them. Occasionally an axis
    /// that some stages lack; these are then recomputed.
    std::vector<size_t> candidates(const std::vector<PrimitiveId>& stages, const Here& here, bool grid) {
        std::vector<size_t> out;
        const bool again = !grid && stages.size() > 1 && one_in(4);
        for (size_t a = 0; a < base_.axes.size(); ++a) {
            if (here.extents[a].is_constant() && here.extents[a].constant() <= 1) continue;
            const bool all = std::all_of(stages.begin(), stages.end(), [&](PrimitiveId s) { return has(s, a); });
            const bool some = std::any_of(stages.begin(), stages.end(), [&](PrimitiveId s) { return has(s, a); });
            const bool summed = std::any_of(stages.begin(), stages.end(), [&](PrimitiveId s) { return reduces(s, a); });
            if ((all || (again && some)) && !summed) out.push_back(a);
        }
        return out;
    }

    std::vector<Stmt> tree(const std::vector<PrimitiveId>& stages, const Here& here, bool grid) {
        const std::vector<size_t> axes = candidates(stages, here, grid);
        // A dynamic axis must be cut before a buffer can hold it.
        std::vector<size_t> unknown;
        for (const size_t a : axes)
            if (!here.extents[a].is_constant()) unknown.push_back(a);
        const bool must = stages.size() > 1 && !unknown.empty();
        if (!axes.empty() && here.depth < 6 && (must || (wildness_ > 1 && !one_in(3)))) {
            TileLoop loop;
            loop.axis = must ? pick(unknown) : pick(axes);
            loop.parallel = grid && !one_in(4);
            const Expr extent = here.extents[loop.axis];
            const int64_t most = guess(extent);
            loop.step = one_in(3) ? (most + 1) / 2 : upto(1, std::min<int64_t>(most, 6));
            Here inside = here;
            inside.depth = here.depth + 1;
            const bool whole = here.exact[loop.axis] && extent.is_constant() && extent.constant() % loop.step == 0;
            inside.exact[loop.axis] = whole;
            inside.extents[loop.axis] = extent.is_constant() ? min(extent, loop.step) : Expr(loop.step);
            // The grid contains an axis once.
            loop.body = tree(stages, inside, loop.parallel && !one_in(3));
            if (loop.parallel && loop.body.size() == 1)
                if (auto* inner = std::get_if<TileLoop>(&loop.body[0].kind)) same_axis_leaves_grid(*inner, loop.axis);
            std::vector<Stmt> out;
            out.push_back(Stmt{std::move(loop)});
            return out;
        }
        if (stages.size() > 1) {
            const auto cut = stages.begin() + upto(1, static_cast<int64_t>(stages.size()) - 1);
            std::vector<Stmt> out = tree({stages.begin(), cut}, here, false);
            for (Stmt& s : tree({cut, stages.end()}, here, false)) out.push_back(std::move(s));
            return out;
        }
        return leaf(stages[0], here);
    }

    /// Makes a second grid loop over an axis, and the grid loops inside it, sequential loops of the task.
    static void same_axis_leaves_grid(TileLoop& loop, size_t axis) {
        if (loop.parallel && loop.axis == axis) {
            leave_grid(loop);
            return;
        }
        if (loop.body.size() == 1)
            if (auto* inner = std::get_if<TileLoop>(&loop.body[0].kind)) same_axis_leaves_grid(*inner, axis);
    }
    static void leave_grid(TileLoop& loop) {
        loop.parallel = false;
        for (Stmt& s : loop.body)
            if (auto* inner = std::get_if<TileLoop>(&s.kind)) leave_grid(*inner);
    }

    // --- statements of one stage

    std::vector<Stmt> leaf(PrimitiveId s, const Here& here) {
        std::vector<Stmt> out;
        const TensorExpr& e = expr(s);
        for (size_t k = 0; k < e.accesses.size(); ++k)
            if (one_in(3) && loaded_.emplace(s, k).second)
                if (auto load = random_load(s, k, here)) out.push_back(Stmt{*load});
        // A separate loop between its Loads and its Compute: the copy serves several steps.
        std::vector<size_t> own;
        for (const size_t a : base_.stage_axes[s])
            if (!(here.extents[a].is_constant() && here.extents[a].constant() <= 1)) own.push_back(a);
        const bool partial_fits = base_.stages.values[result(s)].dtype == e.body.dtype();
        if (wildness_ > 1 && !own.empty() && one_in(2) && here.depth < 8) {
            TileLoop loop;
            loop.axis = pick(own);
            if (!reduces(s, loop.axis) || partial_fits) {
                const Expr extent = here.extents[loop.axis];
                loop.step = upto(1, std::min<int64_t>(guess(extent), 5));
                Here inside = here;
                inside.depth = here.depth + 1;
                inside.exact[loop.axis] =
                    here.exact[loop.axis] && extent.is_constant() && extent.constant() % loop.step == 0;
                inside.extents[loop.axis] = extent.is_constant() ? min(extent, loop.step) : Expr(loop.step);
                const bool sums = reduces(s, loop.axis);
                // The Store follows the reduction, or stays in the loop with the Compute.
                std::optional<Store> store;
                if (sums) store = take_store(s, here);
                loop.body = leaf(s, inside);
                out.push_back(Stmt{std::move(loop)});
                if (store) out.push_back(Stmt{*store});
                return out;
            }
        }
        out.push_back(Stmt{Compute{s, random_micro(s, here)}});
        if (auto store = take_store(s, here)) out.push_back(Stmt{*store});
        return out;
    }

    std::optional<Store> take_store(PrimitiveId s, const Here& here) {
        const ValueId v = result(s);
        if (stored_.erase(v) == 0) return std::nullopt;
        return Store{v, random_padding(s, here, true)};
    }

    Padding random_padding(PrimitiveId s, const Here& here, bool whole_ranges) {
        bool exact = options_.global_padding && whole_ranges;
        for (const size_t a : base_.stage_axes[s]) exact = exact && here.exact[a];
        return one_in(2) ? Padding::Partition : exact && one_in(2) ? Padding::Global : Padding::Local;
    }

    static bool affine(Expr i) {
        for (const Var v : variables(i)) {
            if (v.kind == VarKind::Load) return false;
            if (v.kind != VarKind::Axis) continue;
            const auto linear = linear_in(i, v);
            if (!linear || !linear->coefficient.is_constant()) return false;
        }
        return true;
    }

    std::optional<Load> random_load(PrimitiveId s, size_t k, const Here& here) {
        const Access& a = expr(s).accesses[k];
        if (!is_input(base_, a.value)) return std::nullopt;
        bool bounded = true;
        for (const Expr& i : a.index) {
            if (!affine(i)) return std::nullopt;
            for (const Var v : variables(i))
                if (v.kind == VarKind::Axis) bounded = bounded && here.extents[base_.stage_axes[s][v.id]].is_constant();
        }
        const bool decidable =
            std::all_of(a.valid.begin(), a.valid.end(), [&](Expr c) { return condition_on_index(a, c).has_value(); });
        if (!bounded || !decidable) return std::nullopt;
        Load load;
        load.stage = s;
        load.access = k;
        if (one_in(2)) load.layout = random_layout(a.index.size(), options_.unfolded_loads);
        load.padding = random_padding(s, here, a.valid.empty());
        return load;
    }

    /// A layout for a box whose extents are not known yet, so one that fits any extents.
    Layout random_layout(size_t rank, bool unfold) {
        Layout layout;
        for (int64_t k = upto(1, 3); k > 0 && rank > 0; --k) {
            const auto dim = static_cast<size_t>(upto(0, static_cast<int64_t>(rank) - 1));
            switch (upto(0, unfold ? 4 : 3)) {
                case 0:
                    layout.primitives.emplace_back(layout::Split{dim, upto(1, 4)});
                    ++rank;
                    break;
                case 1: {
                    layout::Reorder r;
                    r.permutation.resize(rank);
                    std::iota(r.permutation.begin(), r.permutation.end(), size_t{0});
                    shuffle(r.permutation, 0, rank);
                    layout.primitives.emplace_back(std::move(r));
                    break;
                }
                case 2: {
                    const auto count = static_cast<size_t>(upto(1, static_cast<int64_t>(rank - dim)));
                    layout.primitives.emplace_back(layout::Fuse{dim, count});
                    rank -= count - 1;
                    break;
                }
                case 3:
                    layout.primitives.emplace_back(layout::Pad{dim, upto(0, 2), upto(0, 2)});
                    break;
                default: {
                    const int64_t tile = upto(1, 4);
                    layout.primitives.emplace_back(layout::Unfold{dim, tile, upto(1, tile)});
                    ++rank;
                }
            }
        }
        return layout;
    }

    Micro random_micro(PrimitiveId s, const Here& here) {
        const TensorExpr& e = expr(s);
        const size_t n = e.extents.size();
        Micro m;
        m.registers.assign(n, 1);
        m.virtual_threads.assign(n, 1);
        m.order.resize(n);
        std::iota(m.order.begin(), m.order.end(), size_t{0});
        shuffle(m.order, 0, e.spatial);
        shuffle(m.order, e.spatial, n);
        if (n > 0 && !one_in(4)) {
            m.vector_axis = static_cast<size_t>(upto(0, static_cast<int64_t>(n) - 1));
            while (m.lanes < options_.most_lanes && !one_in(3)) m.lanes *= 2;
            if (m.lanes == 1) m.vector_axis.reset();
        }
        int64_t room = options_.most_registers;
        for (size_t a = 0; a < n; ++a) {
            const int64_t tile = one_in(2) ? upto(1, std::min<int64_t>(4, std::max<int64_t>(1, room))) : 1;
            m.registers[a] = m.vector_axis == a ? m.lanes * std::min<int64_t>(tile, 3) : tile;
            room /= tile;
            const int64_t units = m.vector_axis == a ? m.registers[a] / m.lanes : m.registers[a];
            if (a < e.spatial && units > 1 && one_in(3)) m.virtual_threads[a] = units;
        }
        m.padding = one_in(2) ? Padding::Partition : Padding::Local;
        bool exact = options_.global_padding;
        for (size_t a = 0; a < n; ++a) {
            const size_t k = base_.stage_axes[s][a];
            exact = exact && here.exact[k] && here.extents[k].constant() % m.registers[a] == 0;
        }
        if (exact && one_in(2)) m.padding = Padding::Global;
        return m;
    }

    std::mt19937_64 rng_;
    const RandomScheduleOptions options_;
    TileProgram base_;
    int64_t wildness_ = 4;
    std::set<StageAxis> loaded_;
    std::set<ValueId> stored_;
};

/// Generates every program that is one step simpler.
class Simpler {
  public:
    explicit Simpler(const TileProgram& program) : p_(program) {}

    std::vector<TileProgram> all() {
        for (const auto& [v, layout] : p_.buffer_layouts) {
            TileProgram t = p_;
            t.buffer_layouts.erase(v);
            out_.push_back(std::move(t));
        }
        visit({});
        return std::move(out_);
    }

  private:
    static std::vector<Stmt>& body_at(TileProgram& t, const TreePath& scope) {
        std::vector<Stmt>* body = &t.body;
        for (const size_t i : scope) body = &std::get<TileLoop>((*body)[i].kind).body;
        return *body;
    }

    template <class F>
    void with(const TreePath& scope, const F& change) {
        TileProgram t = p_;
        change(body_at(t, scope));
        out_.push_back(std::move(t));
    }

    void visit(const TreePath& scope) {
        TileProgram copy = p_;
        const std::vector<Stmt> body = body_at(copy, scope);
        for (size_t i = 0; i < body.size(); ++i) {
            const auto at = static_cast<std::ptrdiff_t>(i);
            if (const auto* loop = std::get_if<TileLoop>(&body[i].kind)) {
                with(scope, [&](std::vector<Stmt>& b) {
                    b.erase(b.begin() + at);
                    b.insert(b.begin() + at, loop->body.begin(), loop->body.end());
                });
                if (loop->parallel)
                    with(scope, [&](std::vector<Stmt>& b) { std::get<TileLoop>(b[i].kind).parallel = false; });
                TreePath inside = scope;
                inside.push_back(i);
                visit(inside);
            } else if (const auto* compute = std::get_if<Compute>(&body[i].kind)) {
                visit(scope, i, compute->micro);
            } else {
                with(scope, [&](std::vector<Stmt>& b) { b.erase(b.begin() + at); });
                if (const auto* load = std::get_if<Load>(&body[i].kind); load != nullptr && !load->layout.is_identity())
                    with(scope, [&](std::vector<Stmt>& b) { std::get<Load>(b[i].kind).layout = {}; });
            }
        }
    }

    void visit(const TreePath& scope, size_t i, const Micro& m) {
        const auto micro = [i](std::vector<Stmt>& b) -> Micro& { return std::get<Compute>(b[i].kind).micro; };
        if (m.vector_axis)
            with(scope, [&](std::vector<Stmt>& b) {
                micro(b).registers[*m.vector_axis] /= m.lanes;
                micro(b).vector_axis.reset();
                micro(b).lanes = 1;
            });
        for (size_t a = 0; a < m.registers.size(); ++a) {
            const int64_t least = m.vector_axis == a ? m.lanes : 1;
            if (m.registers[a] > least)
                with(scope, [&](std::vector<Stmt>& b) {
                    micro(b).registers[a] = least;
                    if (a < m.virtual_threads.size()) micro(b).virtual_threads[a] = 1;
                });
        }
        if (std::any_of(m.virtual_threads.begin(), m.virtual_threads.end(), [](int64_t t) { return t != 1; }))
            with(scope, [&](std::vector<Stmt>& b) {
                std::fill(micro(b).virtual_threads.begin(), micro(b).virtual_threads.end(), 1);
            });
        if (!std::is_sorted(m.order.begin(), m.order.end()))
            with(scope, [&](std::vector<Stmt>& b) { std::sort(micro(b).order.begin(), micro(b).order.end()); });
        if (m.padding != Padding::Partition)
            with(scope, [&](std::vector<Stmt>& b) { micro(b).padding = Padding::Partition; });
    }

    const TileProgram& p_;
    std::vector<TileProgram> out_;
};

}  // namespace

TileProgram random_schedule(Program stages, uint64_t seed, const RandomScheduleOptions& options) {
    return Scheduler(std::move(stages), seed, options).run();
}

TileProgram shrink(TileProgram program, const std::function<bool(const TileProgram&)>& fails) {
    for (bool smaller = true; smaller;) {
        smaller = false;
        for (TileProgram& t : Simpler(program).all()) {
            if (!verify_tree(t).empty() || !fails(t)) continue;
            program = std::move(t);
            smaller = true;
            break;
        }
    }
    return program;
}

}  // namespace tilewright
