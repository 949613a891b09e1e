#include "schedule/chain/realise.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "program/analysis/dynamic.h"
#include "tile/online.h"
#include "tile/verify_tree.h"

namespace tilewright::chain {

namespace {

class Tree {
  public:
    Tree(const Chain& c, const Candidate& candidate, const Target& target, StageChoices* known, Ablation without)
        : c_(c), candidate_(candidate), target_(target), known_(known), hoists_(hoists(without)), range_(c.extents) {}

    std::optional<TileProgram> run() {
        t_.stages = c_.stages;
        t_.name = c_.stages.name;
        t_.axes = c_.axes;
        t_.stage_axes = c_.stage_axes;
        grid();
        pad_buffers();
        size_buffers();
        std::vector<PrimitiveId> all;
        for (const PrimitiveId s : c_.stages.primitives.ids()) all.push_back(s);
        std::vector<Stmt> body = nest(0, all);
        // An online maximum is in a buffer. Where it is a result of the kernel, it is stored when it is final.
        for (const PrimitiveId s : all)
            if (const ValueId v = c_.stages.primitives[s].outputs[0]; cut_maximum(s) && is_given(v))
                body.push_back(Stmt{Store{v, Padding::Local}});
        for (size_t k = grid_.size(); k-- > 0;) {
            TileLoop loop;
            loop.axis = grid_[k].axis;
            loop.step = grid_[k].step;
            loop.parallel = grid_[k].parallel;
            loop.body = std::move(body);
            body.clear();
            body.push_back(Stmt{std::move(loop)});
        }
        t_.body = std::move(body);
        const std::vector<Stmt> without_loads = t_.body;
        place_loads();
        mark_online();
        if (verify_tree(t_).empty()) return std::move(t_);
        if (!target_.gpu) return std::nullopt;
        // Kernels of a GPU have copies of their own (for_gpu). Those for a CPU may be without a bound.
        t_.body = without_loads;
        mark_online();
        if (!verify_tree(t_).empty()) return std::nullopt;
        return std::move(t_);
    }

  private:
    struct Loop {
        size_t axis;
        int64_t step;
        bool parallel;
    };

    bool is_given(ValueId v) const {
        const auto& outputs = c_.stages.outputs;
        return std::find(outputs.begin(), outputs.end(), v) != outputs.end();
    }
    bool on_grid(size_t a) const {
        return std::any_of(grid_.begin(), grid_.end(), [&](const Loop& l) { return l.axis == a; });
    }
    int64_t tile_of(size_t i) const {
        const size_t a = c_.tiled[i];
        return c_.open[a] ? candidate_.tiles[i] : std::min(candidate_.tiles[i], c_.extents[a]);
    }
    /// Whether there can be more than one tile.
    bool divided(size_t i) const { return c_.open[c_.tiled[i]] || tile_of(i) < c_.extents[c_.tiled[i]]; }

    /// The grid: batches, then nested rows that no stage reduces. Where batches alone keep all threads busy, the rows
    /// are a loop inside the task, and copies may stand around it. On a GPU dynamic batches count as one, which they
    /// often are.
    void grid() {
        double tasks = 1;
        for (size_t a = 0; a < c_.axes.size(); ++a)
            if (c_.batch[a] && (c_.open[a] || c_.extents[a] > 1)) {
                grid_.push_back({a, 1, true});
                range_[a] = 1;
                if (!c_.open[a] || !target_.gpu) tasks *= static_cast<double>(c_.extents[a]);
            }
        const bool enough = tasks >= 2.0 * target_.tasks_at_a_time() || target_.tasks_at_a_time() == 1;
        for (size_t i = 0; i < c_.tiled.size(); ++i) {
            const size_t a = c_.tiled[i];
            if (c_.reduced[a] || !divided(i)) continue;
            bool grouped = false;
            for (const auto& g : candidate_.expression.groups)
                grouped = grouped || std::find(g.begin(), g.end(), i) != g.end();
            if (grouped) continue;
            grid_.push_back({a, tile_of(i), !enough});
            range_[a] = tile_of(i);
        }
    }

    /// The number of nested loops around a stage; 0: it is outside of all.
    size_t depth_of(PrimitiveId s) const {
        size_t depth = 0;
        for (size_t k = 0; k < candidate_.expression.nested.size(); ++k)
            if (has(s, c_.tiled[candidate_.expression.nested[k]]) && cuts(candidate_.expression.nested[k]))
                depth = k + 1;
        return depth;
    }
    bool has(PrimitiveId s, size_t a) const {
        return std::find(c_.stage_axes[s].begin(), c_.stage_axes[s].end(), a) != c_.stage_axes[s].end();
    }
    bool cuts(size_t i) const { return divided(i) && !on_grid(c_.tiled[i]); }

    /// The statements of these stages inside the first `k` nested loops.
    std::vector<Stmt> nest(size_t k, const std::vector<PrimitiveId>& stages) {
        const std::vector<size_t>& nested = candidate_.expression.nested;
        while (k < nested.size() && !cuts(nested[k])) ++k;
        std::vector<PrimitiveId> deeper;
        for (const PrimitiveId s : stages)
            if (k < nested.size() && depth_of(s) > k) deeper.push_back(s);
        std::vector<Stmt> out;
        if (k == nested.size()) {
            for (const PrimitiveId s : stages) out.push_back(grouped(s));
            return out;
        }
        bool emitted = deeper.empty();
        for (const PrimitiveId s : stages) {
            const bool inside = std::find(deeper.begin(), deeper.end(), s) != deeper.end();
            if (!inside) {
                out.push_back(grouped(s));
            } else if (!emitted) {
                emitted = true;
                const size_t a = c_.tiled[nested[k]];
                const int64_t before = range_[a];
                range_[a] = tile_of(nested[k]);
                TileLoop loop;
                loop.axis = a;
                loop.step = range_[a];
                loop.body = nest(k + 1, deeper);
                range_[a] = before;
                out.push_back(Stmt{std::move(loop)});
            }
        }
        return out;
    }

    /// A stage inside the loops of its own group.
    Stmt grouped(PrimitiveId s) {
        std::vector<size_t> loops;
        for (const auto& g : candidate_.expression.groups)
            for (const size_t i : g)
                if (has(s, c_.tiled[i]) && cuts(i)) loops.push_back(i);
        const std::vector<int64_t> before = range_;
        for (const size_t i : loops) range_[c_.tiled[i]] = tile_of(i);
        Stmt out{compute(s)};
        for (size_t k = loops.size(); k-- > 0;) {
            TileLoop loop;
            loop.axis = c_.tiled[loops[k]];
            loop.step = tile_of(loops[k]);
            loop.body.push_back(std::move(out));
            out = Stmt{std::move(loop)};
        }
        range_ = before;
        return out;
    }

    Compute compute(PrimitiveId s) {
        Compute out;
        out.stage = s;
        note(out, known_ == nullptr ? choose(s) : known_->of(choice_key(s), [&] { return choose(s); }));
        return out;
    }
    void note(Compute& out, const StageChoice& choice) {
        out.micro = choice.micro;
        if (!choice.loads.empty()) loads_[out.stage] = choice.loads;
        micros_[out.stage] = choice.micro;
    }

    /// What `choose` reads of the candidate.
    std::vector<int64_t> choice_key(PrimitiveId s) const {
        std::vector<int64_t> key{static_cast<int64_t>(s.index())};
        for (const size_t a : c_.stage_axes[s]) key.push_back(range_[a]);
        const auto add = [&](ValueId v) {
            const auto made = buffers_.find(v);
            if (made == buffers_.end()) return;
            for (const auto& [dimension, size] : made->second) key.push_back(size);
        };
        for (const Access& a : c_.stages.primitives[s].expr()->accesses) add(a.value);
        add(c_.stages.primitives[s].outputs[0]);
        return key;
    }

    /// The default heuristic's micro-kernel for the tile as a stage of its own.
    StageChoice choose(PrimitiveId s) const {
        Program view = c_.stages;
        TensorExpr& e = *view.primitives[s].expr();
        for (size_t k = 0; k < e.extents.size(); ++k) e.extents[k] = range_[c_.stage_axes[s][k]];
        for (const auto& [v, sizes] : buffers_)
            for (const auto& [dimension, size] : sizes) view.values[v].shape[dimension] = size;
        const DType type = view.values[view.primitives[s].outputs[0]].dtype;
        StageChoice choice = choose_micro(view, e, type, target_);
        if (choice.micro.matrix && !in_whole_vectors(s, choice.micro))
            choice = choose_micro(view, e, type, restricted(target_, target_.isa));
        return choice;
    }

    /// Sizes of the buffers. Their rows are as long as the tile, plus padding where that would be a power of two.
    void size_buffers() {
        for (const PrimitiveId s : c_.stages.primitives.ids()) {
            const ValueId v = c_.stages.primitives[s].outputs[0];
            if (is_given(v)) continue;
            const std::vector<Expr> written = result_index(*c_.stages.primitives[s].expr());
            for (size_t d = 0; d < written.size(); ++d)
                if (const auto x = written[d].as_var())
                    buffers_[v].emplace_back(d, buffer_range(s, x->id) + (d + 1 == written.size() ? padding_of(v) : 0));
        }
    }

    /// Whether every tile of the matrix instructions' columns starts at a vector, where their operands are grouped.
    bool in_whole_vectors(PrimitiveId s, const Micro& micro) const {
        const size_t columns = c_.stage_axes[s][micro.matrix->columns];
        return range_[columns] % micro.lanes == 0 || range_[columns] >= c_.extents[columns];
    }

    int64_t buffer_range(PrimitiveId s, size_t k) const {
        const size_t a = c_.stage_axes[s][k];
        if (c_.batch[a]) return 1;
        for (size_t i = 0; i < c_.tiled.size(); ++i)
            if (c_.tiled[i] == a) return tile_of(i);
        return c_.extents[a];
    }

    int64_t padding_of(ValueId v) const { return t_.buffer_layouts.count(v) != 0 ? 16 : 0; }

    /// Pads rows of a tile that are a multiple of 1 KiB apart: they conflict in a few sets of L1 when several of them
    /// are read at once.
    void pad_buffers() {
        for (const PrimitiveId s : c_.stages.primitives.ids()) {
            const ValueId v = c_.stages.primitives[s].outputs[0];
            if (is_given(v)) continue;
            const TensorExpr& e = *c_.stages.primitives[s].expr();
            const std::vector<Expr> written = result_index(e);
            if (written.size() < 2) continue;
            const auto last = written.back().as_var();
            if (!last || buffer_range(s, last->id) * 4 % 1024 != 0) continue;
            Layout layout;
            layout.primitives.emplace_back(layout::Pad{written.size() - 1, 0, 16});
            t_.buffer_layouts[v] = layout;
        }
    }

    // --- copies

    /// Each copy stands in the outermost place inside the grid where a third of the cache holds it, or in its own loops
    /// (Ablation::Unhoisted).
    void place_loads() {
        for (const auto& [s, accesses] : loads_)
            for (const size_t access : accesses) {
                const auto& inputs = c_.stages.inputs;
                const ValueId v = c_.stages.primitives[s].expr()->accesses[access].value;
                if (std::find(inputs.begin(), inputs.end(), v) == inputs.end()) continue;
                Load load = std::get<Load>(make_loads(c_.stages, s, {access}, micros_.at(s))[0].kind);
                std::vector<int64_t> range = most_extents();
                insert(t_.body, load, range, hoists_ ? std::set<size_t>() : own_loops(load));
            }
    }

    /// Extents that bound a copy. A copy along an axis without a bound must stand inside a loop over it, which repeats
    /// it; that pays at some sizes only. Where none is assumed, the copy stands outside, and the chain is illegal.
    std::vector<int64_t> most_extents() const {
        constexpr int64_t kUnbounded = int64_t{1} << 40;
        std::vector<int64_t> out;
        for (size_t a = 0; a < c_.axes.size(); ++a) {
            const Expr extent = c_.axes[a].extent;
            const int64_t open = sizes_assumed(c_.stages, extent) ? kUnbounded : c_.extents[a];
            out.push_back(most_value(extent, c_.stages.at_most).value_or(open));
        }
        return out;
    }

    /// The axes of the loops around a copy that is not hoisted: the grid, and the expression up to its rightmost loop
    /// over an axis of the copy. That loop counts even if it has one step, and so has no place in the tree.
    ///     mhnk, copy of a[m, k]: inside n, which repeats it, whether k is cut or not
    std::set<size_t> own_loops(const Load& load) const {
        const Access& access = c_.stages.primitives[load.stage].expr()->accesses[load.access];
        std::set<size_t> read, out;
        for (size_t k = 0; k < c_.stage_axes[load.stage].size(); ++k)
            if (std::any_of(access.index.begin(), access.index.end(), [&](Expr i) {
                    return uses(i, {VarKind::Axis, static_cast<uint32_t>(k)});
                }))
                read.insert(c_.stage_axes[load.stage][k]);
        for (const Loop& l : grid_) out.insert(l.axis);
        std::vector<size_t> order = candidate_.expression.nested;
        for (const auto& group : candidate_.expression.groups)
            for (const size_t i : group)
                if (has(load.stage, c_.tiled[i])) order.push_back(i);
        while (!order.empty() && read.count(c_.tiled[order.back()]) == 0) order.pop_back();
        for (const size_t i : order) out.insert(c_.tiled[i]);
        return out;
    }

    /// Inserts the copy in front of the statement that holds its stage, inside the loops of `around`.
    bool insert(std::vector<Stmt>& body, const Load& load, std::vector<int64_t>& range,
                const std::set<size_t>& around) {
        const auto stays_outside = [&](const Stmt& s) {
            const auto* loop = std::get_if<TileLoop>(&s.kind);
            return loop == nullptr || around.count(loop->axis) == 0;
        };
        const bool only_loop = body.size() == 1 && std::holds_alternative<TileLoop>(body[0].kind) &&
                               std::get<TileLoop>(body[0].kind).parallel;
        if (!only_loop && (!hoists_ || bytes(load, range) <= static_cast<double>(target_.task_bytes()) / 3)) {
            for (size_t i = 0; i < body.size(); ++i)
                if (holds(body[i], load.stage) && stays_outside(body[i])) {
                    body.insert(body.begin() + static_cast<std::ptrdiff_t>(i), Stmt{load});
                    return true;
                }
        }
        for (size_t i = 0; i < body.size(); ++i) {
            if (!holds(body[i], load.stage)) continue;
            if (auto* loop = std::get_if<TileLoop>(&body[i].kind)) {
                range[loop->axis] = std::min(range[loop->axis], loop->step);
                return insert(loop->body, load, range, around);
            }
            body.insert(body.begin() + static_cast<std::ptrdiff_t>(i), Stmt{load});
            return true;
        }
        return false;
    }

    static bool holds(const Stmt& s, PrimitiveId stage) {
        if (const auto* compute = std::get_if<Compute>(&s.kind)) return compute->stage == stage;
        if (const auto* loop = std::get_if<TileLoop>(&s.kind))
            return std::any_of(loop->body.begin(), loop->body.end(), [&](const Stmt& x) { return holds(x, stage); });
        return false;
    }

    double bytes(const Load& load, const std::vector<int64_t>& range) const {
        std::vector<int64_t> tile;
        for (const size_t a : c_.stage_axes[load.stage]) tile.push_back(range[a]);
        const Access& access = c_.stages.primitives[load.stage].expr()->accesses[load.access];
        double n = static_cast<double>(byte_size(c_.stages.values[access.value].dtype));
        for (const Expr& i : access.index) n *= static_cast<double>(IndexReach(i, 0).over(tile) + 1);
        return n;
    }

    // --- online maxima

    void mark_online() {
        std::set<ValueId> maxima;
        for (const PrimitiveId s : c_.stages.primitives.ids())
            if (cut_maximum(s)) maxima.insert(c_.stages.primitives[s].outputs[0]);
        if (maxima.empty()) return;
        const auto scales = online_scales(c_.stages, maxima);
        std::set<ValueId> used;
        for (const auto& scale : scales)
            if (scale) used.insert(scale->maximum);
        mark(t_.body, used);
    }
    bool cut_maximum(PrimitiveId s) const {
        const TensorExpr& e = *c_.stages.primitives[s].expr();
        if (e.reducer != Reducer::Max) return false;
        for (size_t k = e.spatial; k < e.extents.size(); ++k)
            for (size_t i = 0; i < c_.tiled.size(); ++i)
                if (c_.tiled[i] == c_.stage_axes[s][k] && cuts(i)) return true;
        return false;
    }
    void mark(std::vector<Stmt>& body, const std::set<ValueId>& maxima) {
        for (Stmt& s : body)
            if (auto* loop = std::get_if<TileLoop>(&s.kind))
                mark(loop->body, maxima);
            else if (auto* compute = std::get_if<Compute>(&s.kind))
                compute->online = maxima.count(c_.stages.primitives[compute->stage].outputs[0]) != 0;
    }

    const Chain& c_;
    const Candidate& candidate_;
    const Target& target_;
    StageChoices* const known_;
    const bool hoists_;
    TileProgram t_;
    std::vector<Loop> grid_;
    std::vector<int64_t> range_;
    std::map<PrimitiveId, std::vector<size_t>> loads_;
    std::map<PrimitiveId, Micro> micros_;
    std::map<ValueId, std::vector<std::pair<size_t, int64_t>>> buffers_;  ///< sizes of dimensions
};

}  // namespace

StageChoice StageChoices::of(const std::vector<int64_t>& key, const std::function<StageChoice()>& choose) {
    {
        const std::lock_guard lock(mutex_);
        if (const auto found = known_.find(key); found != known_.end()) return found->second;
    }
    StageChoice choice = choose();  // threads may make the same choice twice, but do not wait for each other
    const std::lock_guard lock(mutex_);
    return known_.try_emplace(key, std::move(choice)).first->second;
}

size_t StageChoices::size() const {
    const std::lock_guard lock(mutex_);
    return known_.size();
}

std::optional<TileProgram> realise(const Chain& chain, const Candidate& candidate, const Target& target,
                                   StageChoices* known, Ablation without) {
    return Tree(chain, candidate, target, known, without).run();
}

}  // namespace tilewright::chain
