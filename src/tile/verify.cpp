// The invariants of a tile program that computes its stages. They follow from the semantics in tile.h: a reader must
// find complete values inside its own part of the tile, and nothing may be accumulated or written twice.

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/numbers.h"
#include "tile/annotate/annotate.h"
#include "tile/annotate/gpu.h"
#include "tile/matrix.h"
#include "tile/online.h"
#include "tile/verify_tree.h"
#include "tile/walk.h"

namespace tilewright {

namespace {

class Verifier {
  public:
    explicit Verifier(const TileProgram& program) : p_(program) {}

    std::vector<std::string> run() {
        if (!form()) return faults_;
        tree_ = walk(p_);
        computes_once();
        for (const auto& [path, load] : tree_.loads) load_rules(path, *load);
        for (const auto& [path, store] : tree_.stores) store_rules(path, *store);
        for (const auto& [path, compute] : tree_.computes) micro_rules(*compute);
        buffer_layout_rules();
        near_rules();
        if (!faults_.empty()) return faults_;
        for (const auto& [path, compute] : tree_.computes) annotation_rules(path, *compute);
        scales_ = online_scales(p_.stages, online_maxima(p_));
        for (const PrimitiveId s : p_.stages.primitives.ids()) value_rules(s);
        for (const auto& [path, compute] : tree_.computes)
            if (compute->online) online_rules(path, *compute);
        if (!faults_.empty()) return faults_;
        try {
            plan_buffers(p_);
        } catch (const std::exception& e) {
            fault("{}", e.what());
        }
        if (faults_.empty() && tree_.split) faults_ = gpu::split_faults(p_, {kGpuBlockThreads, INT64_MAX / 2});
        if (!faults_.empty() || !gpu::has_annotations(tree_)) return faults_;
        return gpu::annotation_faults(p_, {kGpuBlockThreads, INT64_MAX / 2});
    }

  private:
    template <class... Args>
    void fault(fmt::format_string<Args...> format, Args&&... args) {
        faults_.push_back(fmt::format(format, std::forward<Args>(args)...));
    }

    std::string name(ValueId v) const { return p_.stages.values[v].name; }
    const TensorExpr& expr(PrimitiveId s) const { return *p_.stages.primitives[s].expr(); }
    ValueId result(PrimitiveId s) const { return p_.stages.primitives[s].outputs[0]; }
    const std::string& axis_name(size_t a) const { return p_.axes[a].name; }

    // --- preconditions of all other invariants

    /// Returns false when axes, stages or values do not exist.
    bool form() {
        for (const Primitive& s : p_.stages.primitives)
            if (s.expr() == nullptr || s.outputs.size() != 1) fault("stage '{}' is not a tensor expression", s.name);
        if (!p_.stages.constants.empty()) fault("constants of a kernel must be inputs");
        std::set<std::string> names;
        for (const TileAxis& a : p_.axes)
            if (!names.insert(a.name).second) fault("duplicate axis name {}", a.name);
        if (p_.stage_axes.size() != p_.stages.primitives.size())
            fault("axes are given for {} stages of {}", p_.stage_axes.size(), p_.stages.primitives.size());
        if (!faults_.empty()) return false;
        for (const PrimitiveId s : p_.stages.primitives.ids()) stage_axes(s);
        statements_exist(p_.body, true);
        return faults_.empty();
    }

    void stage_axes(PrimitiveId s) {
        const TensorExpr& e = expr(s);
        const std::vector<size_t>& axes = p_.stage_axes[s];
        if (axes.size() != e.extents.size())
            return fault("stage {} has {} axes, {} are given", s.value, e.extents.size(), axes.size());
        std::set<size_t> seen;
        for (size_t k = 0; k < axes.size(); ++k) {
            if (axes[k] >= p_.axes.size())
                fault("stage {}: axis {} of {}", s.value, axes[k], p_.axes.size());
            else if (!seen.insert(axes[k]).second)
                fault("stage {} has the axis {} twice", s.value, axis_name(axes[k]));
            else if (!simplify(p_.axes[axes[k]].extent - e.extents[k], {}).is_constant(0))
                fault("stage {}: axis {} has extent {}, but the stage iterates over {}", s.value, axis_name(axes[k]),
                      p_.axes[axes[k]].extent.text(), e.extents[k].text());
        }
    }

    bool reduces(size_t a) const {
        for (const PrimitiveId s : p_.stages.primitives.ids())
            for (size_t k = expr(s).spatial; k < p_.stage_axes[s].size(); ++k)
                if (p_.stage_axes[s][k] == a) return true;
        return false;
    }

    void statements_exist(const std::vector<Stmt>& body, bool grid) {
        for (const Stmt& s : body) {
            if (const auto* loop = std::get_if<TileLoop>(&s.kind)) {
                loop_rules(*loop, grid && body.size() == 1);
            } else if (const auto* load = std::get_if<Load>(&s.kind)) {
                if (!p_.stages.primitives.contains(load->stage))
                    fault("a load names stage {} of {}", load->stage.value, p_.stages.primitives.size());
                else if (load->access >= expr(load->stage).accesses.size())
                    fault("a load names access {} of stage {}, which has {}", load->access, load->stage.value,
                          expr(load->stage).accesses.size());
            } else if (const auto* compute = std::get_if<Compute>(&s.kind)) {
                if (!p_.stages.primitives.contains(compute->stage))
                    fault("a compute names stage {} of {}", compute->stage.value, p_.stages.primitives.size());
            } else if (const ValueId v = std::get<Store>(s.kind).value; !p_.stages.values.contains(v)) {
                fault("a store names value {} of {}", v.value, p_.stages.values.size());
            }
        }
    }

    void loop_rules(const TileLoop& loop, bool grid) {
        if (loop.axis >= p_.axes.size()) return fault("a loop names axis {} of {}", loop.axis, p_.axes.size());
        const std::string& a = axis_name(loop.axis);
        if (loop.step <= 0) fault("the loop over {} has step {}", a, loop.step);
        if (loop.parallel) {
            if (!grid) fault("parallel loops must be outermost and perfectly nested: {}", a);
            if (reduces(loop.axis)) split_rules(loop);
            if (const auto [outer, is_new] = grid_steps_.emplace(loop.axis, loop.step); !is_new) {
                if (!parts_evenly(p_.axes[loop.axis].extent, outer->second, loop.step))
                    fault("axis {} is in the grid twice and some tasks would be empty", a);
                outer->second = loop.step;
            }
        }
        if (loop.body.empty()) fault("the loop over {} is empty", a);
        if (loop.stages != 1) stage_rules(loop);
        statements_exist(loop.body, grid && loop.parallel);
    }

    /// Whether every step of `outer` points, including the last, consists of the same number of `inner` steps.
    static bool parts_evenly(Expr extent, int64_t outer, int64_t inner) {
        return extent.is_constant() && inner > 0 && outer % inner == 0 &&
               ceil_of(extent.constant(), inner) % (outer / inner) == 0;
    }

    /// Split-K: a task has a part of the kernel's sums.
    void split_rules(const TileLoop& loop) {
        const std::string what = fmt::format("the parallel loop over {} cuts a reduction", axis_name(loop.axis));
        if (p_.stages.primitives.size() != 1)
            return fault("{}: the kernel has {} stages, not one", what, p_.stages.primitives.size());
        if (loop.body.size() == 1)
            if (const auto* inner = std::get_if<TileLoop>(&loop.body[0].kind); inner != nullptr && inner->parallel)
                fault("{}: it is not the innermost one", what);
        if (grid_steps_.count(loop.axis) != 0) fault("{}: another one cuts it as well", what);
        const PrimitiveId s(0);
        whole_steps(loop.body, loop, what);
        for (const Stmt* c : computes_in(loop.body)) {
            const auto& compute = std::get<Compute>(c->kind);
            if (compute.online) fault("{}: an online maximum is no part of a sum", what);
            if (compute.micro.matrix && (compute.micro.matrix->tile() || compute.micro.matrix->dot()))
                fault("{}: no code for CPUs adds the parts", what);
            const size_t k = static_cast<size_t>(
                std::find(p_.stage_axes[s].begin(), p_.stage_axes[s].end(), loop.axis) - p_.stage_axes[s].begin());
            if (k < compute.micro.registers.size() && compute.micro.matrix && compute.micro.registers[k] > 0 &&
                loop.step % compute.micro.registers[k] != 0)
                fault("{}: parts of {} are no whole tiles of {}", what, loop.step, compute.micro.registers[k]);
        }
    }

    /// Behind the end of a part lies the next one, and no zeros.
    void whole_steps(const std::vector<Stmt>& body, const TileLoop& split, const std::string& what) {
        for (const Stmt& s : body)
            if (const auto* loop = std::get_if<TileLoop>(&s.kind)) {
                if (loop->axis == split.axis && loop->step > 0 && split.step % loop->step != 0)
                    fault("{}: parts of {} are no whole steps of {}", what, split.step, loop->step);
                whole_steps(loop->body, split, what);
            }
    }
    static std::vector<const Stmt*> computes_in(const std::vector<Stmt>& body) {
        std::vector<const Stmt*> out;
        for (const Stmt& s : body)
            if (const auto* loop = std::get_if<TileLoop>(&s.kind)) {
                const std::vector<const Stmt*> inside = computes_in(loop->body);
                out.insert(out.end(), inside.begin(), inside.end());
            } else if (std::holds_alternative<Compute>(s.kind)) {
                out.push_back(&s);
            }
        return out;
    }

    void stage_rules(const TileLoop& loop) {
        const auto is_load = [](const Stmt& s) { return std::holds_alternative<Load>(s.kind); };
        const auto behind = std::find_if_not(loop.body.begin(), loop.body.end(), is_load);
        if (loop.stages < 1 || loop.stages > 16 || loop.parallel || behind == loop.body.begin() ||
            std::any_of(behind, loop.body.end(), is_load))
            fault(
                "the loop over {} has {} stages: 1 to 16, of a loop that is not parallel and begins with all its loads",
                axis_name(loop.axis), loop.stages);
    }

    // --- statements

    void computes_once() {
        std::map<PrimitiveId, int> count;
        for (const auto& [path, compute] : tree_.computes) {
            ++count[compute->stage];
            if (compute->online) online_.insert(compute->stage);
            compute_at_[compute->stage] = path;
        }
        for (const PrimitiveId s : p_.stages.primitives.ids())
            if (count[s] != 1) fault("stage {} is computed by {} statements, not one", s.value, count[s]);
        std::set<ValueId> stored;
        for (const auto& [path, store] : tree_.stores)
            if (!stored.insert(store->value).second) fault("'{}' is stored by two statements", name(store->value));
        std::set<std::pair<PrimitiveId, size_t>> loaded;
        for (const auto& [path, load] : tree_.loads)
            if (!loaded.emplace(load->stage, load->access).second)
                fault("access {} of stage {} is loaded by two statements", load->access, load->stage.value);
    }

    void load_rules(const TreePath& path, const Load& load) {
        const std::string what = fmt::format("load {} access {}", load.stage.value, load.access);
        const Access& access = expr(load.stage).accesses[load.access];
        if (!is_input(p_, access.value))
            fault("{}: '{}' is computed in the kernel, but a load needs an input", what, name(access.value));
        for (const Expr& c : access.valid)
            if (!condition_on_index(access, c))
                fault("{}: the condition {} >= 0 does not depend on exactly one index", what, c.text());
        if (load.padding == Padding::Global && !access.valid.empty())
            fault("{}: global padding requires an access without conditions", what);
        if (stores_at(load.layout)) fault("{}: store_at is not allowed in a buffer layout", what);
        if (load.swizzle != 0 && load.swizzle != 32 && load.swizzle != 64 && load.swizzle != 128)
            fault("{}: swizzle needs rows of 32, 64 or 128 bytes, not {}", what, load.swizzle);
        const auto at = compute_at_.find(load.stage);
        if (at == compute_at_.end()) return;
        const TreePath scope = scope_of(path);
        if (common_scope({path, at->second}) != scope)
            fault("{} is nested deeper than the compute that reads it", what);
        else if (at->second[scope.size()] < path.back())
            fault("{} comes after the compute that reads it", what);
    }

    void store_rules(const TreePath& path, const Store& store) {
        const std::string what = fmt::format("store {}", name(store.value));
        if (!is_output(p_, store.value)) return fault("{}: the value is not an output of the kernel", what);
        if (store.non_temporal.value_or(0) < 0) fault("{}: negative size for non-temporal stores", what);
        const PrimitiveId s = p_.stages.producers()[store.value];
        if (!s) return fault("{}: no stage computes this value", what);
        const auto spatial = std::span(p_.stage_axes[s]).first(expr(s).spatial);
        for (const TileLoop* loop : tree_.loops_below({}, path))
            if (!(loop->parallel && reduces(loop->axis)) &&
                std::find(spatial.begin(), spatial.end(), loop->axis) == spatial.end())
                fault("{}: the loop over {} writes the same elements again", what, axis_name(loop->axis));
    }

    static bool stores_at(const Layout& layout) {
        return std::any_of(layout.primitives.begin(), layout.primitives.end(), [](const layout::Primitive& primitive) {
            return std::holds_alternative<layout::StoreAt>(primitive);
        });
    }

    void buffer_layout_rules() {
        for (const auto& [v, layout] : p_.buffer_layouts) {
            if (!p_.stages.values.contains(v)) {
                fault("a buffer layout names value {} of {}", v.value, p_.stages.values.size());
                continue;
            }
            const bool unfolds = std::any_of(layout.primitives.begin(), layout.primitives.end(),
                                             [](const auto& x) { return std::holds_alternative<layout::Unfold>(x); });
            if (unfolds)
                fault("layout {} of '{}' duplicates elements, which a computed value must not", print(layout), name(v));
            if (stores_at(layout)) fault("'{}': store_at is not allowed in a buffer layout", name(v));
            if (in_memory(v)) fault("'{}' has a buffer layout, but no buffer", name(v));
        }
    }

    void near_rules() {
        for (const ValueId v : p_.near)
            if (!p_.stages.values.contains(v))
                fault("a cache hint names value {} of {}", v.value, p_.stages.values.size());
            else if (!is_output(p_, v) &&
                     std::find(p_.stages.inputs.begin(), p_.stages.inputs.end(), v) == p_.stages.inputs.end())
                fault("'{}' has a cache hint, but the kernel does not access it", name(v));
    }

    void micro_rules(const Compute& compute) {
        const TensorExpr& e = expr(compute.stage);
        const Micro& m = compute.micro;
        const size_t n = e.extents.size();
        const std::string what = fmt::format("compute {}", compute.stage.value);
        if (m.lanes < 1 || (m.lanes & (m.lanes - 1)) != 0)
            fault("{}: lane count {} is not a power of two", what, m.lanes);
        if (!m.vector_axis && m.lanes != 1) fault("{}: {} lanes, but no vector axis", what, m.lanes);
        if (m.vector_axis && *m.vector_axis >= n) fault("{}: vector axis {} of {}", what, *m.vector_axis, n);
        if (!m.registers.empty() && m.registers.size() != n)
            fault("{}: register tiles for {} axes of {}", what, m.registers.size(), n);
        if (!m.virtual_threads.empty() && m.virtual_threads.size() != n)
            fault("{}: virtual threads for {} axes of {}", what, m.virtual_threads.size(), n);
        for (size_t a = 0; a < std::min(n, m.registers.size()); ++a)
            if (m.registers[a] < 1)
                fault("{}: a register tile of {} along {}", what, m.registers[a], stage_axis(compute.stage, a));
        if (m.vector_axis && *m.vector_axis < m.registers.size() && m.lanes > 0 &&
            m.registers[*m.vector_axis] % m.lanes != 0)
            fault("{}: the register tile {} along {} is not a multiple of {} lanes", what, m.registers[*m.vector_axis],
                  stage_axis(compute.stage, *m.vector_axis), m.lanes);
        for (size_t a = 0; a < std::min(n, m.virtual_threads.size()); ++a) {
            const int64_t threads = m.virtual_threads[a];
            if (threads == 1) continue;
            const int64_t tile = a < m.registers.size() ? m.registers[a] : 1;
            const int64_t unit = m.vector_axis == a ? m.lanes : 1;
            if (threads < 1 || a >= e.spatial || unit < 1 || tile % (threads * unit) != 0)
                fault("{}: {} virtual threads do not divide the register tile {} along {}", what, threads, tile,
                      stage_axis(compute.stage, a));
        }
        if (m.matrix) matrix_rules(compute, what);
        if (m.order.empty()) return;
        std::vector<size_t> sorted = m.order, all(n);
        std::sort(sorted.begin(), sorted.end());
        std::iota(all.begin(), all.end(), size_t{0});
        if (sorted != all) return fault("{}: the loop order is not a permutation of its {} axes", what, n);
        for (size_t k = 0; k < n; ++k)
            if ((m.order[k] < e.spatial) != (k < e.spatial))
                return fault("{}: in the loop order a reduction axis is outside a spatial axis", what);
    }

    void annotation_rules(const TreePath& path, const Compute& compute) {
        if (compute.micro.annotations == Annotations()) return;
        const StageSite site = site_of(p_, tree_, path, compute);
        for (const std::string& f : annotation_faults(compute.micro.annotations, site))
            fault("compute {}: {}", compute.stage.value, f);
    }

    void matrix_rules(const Compute& compute, const std::string& what) {
        const TensorExpr& e = expr(compute.stage);
        const Micro& m = compute.micro;
        const MatrixUnit& u = *m.matrix;
        if (u.rows >= e.spatial || u.columns >= e.spatial || u.rows == u.columns || u.sum < e.spatial ||
            u.sum >= e.extents.size() || !matrix_factors(e, u))
            return fault(
                "{}: a matrix unit takes a sum of products of floats, one factor along its rows, one along its "
                "columns, both along its sum",
                what);
        if (u.tile()) return matrix_tile_rules(compute, what);
        if (u.dot()) return matrix_dot_rules(compute, what);
        for (const auto& [axis, unit] : {std::pair(u.rows, matrix_rows(u)), std::pair(u.columns, kMatrixColumns),
                                         std::pair(u.sum, matrix_sum(u.type))})
            if (axis >= m.registers.size() || m.registers[axis] % unit != 0)
                fault("{}: the tile along {} is not a multiple of the matrix unit's {}", what,
                      stage_axis(compute.stage, axis), unit);
        if (std::any_of(m.virtual_threads.begin(), m.virtual_threads.end(), [](int64_t n) { return n != 1; }))
            fault("{}: virtual threads are not allowed with a matrix unit", what);
    }

    void matrix_tile_rules(const Compute& compute, const std::string& what) {
        const Micro& m = compute.micro;
        const MatrixUnit& u = *m.matrix;
        const auto tile = [&](size_t a) { return a < m.registers.size() ? m.registers[a] : 1; };
        if (m.vector_axis != u.columns || m.lanes != kTileColumns)
            fault("{}: the vector axis of tile registers is their columns, with {} lanes", what, kTileColumns);
        for (size_t a = expr(compute.stage).spatial; a < m.registers.size(); ++a)
            if (a != u.sum && tile(a) != 1 && !expr(compute.stage).extents[a].is_constant(tile(a)))
                fault("{}: tile registers sum along {} in steps; {} is not unrolled as a whole", what,
                      stage_axis(compute.stage, u.sum), stage_axis(compute.stage, a));
        const Expr sum = expr(compute.stage).extents[u.sum];
        if (tile(u.sum) % dot_step(u.type) != 0 || tile(u.sum) > tile_sum(u.type) || !sum.is_constant() ||
            sum.constant() % tile(u.sum) != 0)
            fault("{}: a step of {} products along {} is not a divisor of its extent in multiples of {} up to {}", what,
                  tile(u.sum), stage_axis(compute.stage, u.sum), dot_step(u.type), tile_sum(u.type));
        if (!tile_grid(expr(compute.stage), m).fits())
            fault("{}: the register tile needs more than {} tile registers", what, kTileRegisters);
        const std::string operands = matrix_operand_fault(p_, compute);
        if (!operands.empty()) fault("{}: {}", what, operands);
    }

    void matrix_dot_rules(const Compute& compute, const std::string& what) {
        const TensorExpr& e = expr(compute.stage);
        const Micro& m = compute.micro;
        const MatrixUnit& u = *m.matrix;
        if (m.vector_axis != u.columns || m.lanes < 2)
            fault("{}: the vector axis of dot products is their columns", what);
        const auto tile = [&](size_t a) { return a < m.registers.size() ? m.registers[a] : 1; };
        const int64_t least = dot_step(u.type), most = u.type == MatrixType::F16 ? kF16Step : least;
        for (size_t a = e.spatial; a < e.extents.size(); ++a)
            if (a != u.sum && tile(a) != 1)
                fault("{}: dot products have steps of 1 along {}, not {}", what, stage_axis(compute.stage, a), tile(a));
        if (tile(u.sum) < least || tile(u.sum) % least != 0 || tile(u.sum) > most)
            fault("{}: dot products have steps of {} along {}, not {}", what,
                  most > least ? fmt::format("multiples of {} up to {}", least, most) : std::to_string(least),
                  stage_axis(compute.stage, u.sum), tile(u.sum));
        const Expr sum = e.extents[u.sum];
        if (!sum.is_constant() || sum.constant() % std::max(least, tile(u.sum)) != 0)
            fault("{}: the extent of {} is not a multiple of {}", what, stage_axis(compute.stage, u.sum),
                  std::max(least, tile(u.sum)));
        const std::string operands = matrix_operand_fault(p_, compute);
        if (!operands.empty()) fault("{}: {}", what, operands);
    }

    const std::string& stage_axis(PrimitiveId s, size_t a) const { return axis_name(p_.stage_axes[s][a]); }

    // --- values: where they are stored and when they are read

    /// Whether the Compute itself writes the result to memory.
    bool in_memory(ValueId v) const {
        return is_output(p_, v) && std::none_of(tree_.stores.begin(), tree_.stores.end(),
                                                [&](const auto& store) { return store.second->value == v; });
    }

    struct Reader {
        std::string what;
        TreePath path;
        std::vector<Expr> index;  ///< over kernel axes
        bool scaled = false;      ///< by the value, which is a maximum
    };

    static std::vector<Expr> over_kernel_axes(const std::vector<Expr>& index, const std::vector<size_t>& axes) {
        std::vector<Expr> kernel, out;
        for (const size_t a : axes) kernel.push_back(axis(a));
        for (const Expr& i : index) out.push_back(substitute_axes(i, kernel));
        return out;
    }

    std::vector<Reader> readers(PrimitiveId s) const {
        std::vector<Reader> out;
        const ValueId v = result(s);
        for (const auto& [path, store] : tree_.stores)
            if (store->value == v)
                out.push_back({"store " + name(v), path, over_kernel_axes(result_index(expr(s)), p_.stage_axes[s])});
        for (const auto& [path, compute] : tree_.computes)
            for (const Access& a : expr(compute->stage).accesses)
                if (a.value == v)
                    out.push_back({fmt::format("compute {}", compute->stage.value), path,
                                   over_kernel_axes(a.index, p_.stage_axes[compute->stage]),
                                   scales_[compute->stage] && scales_[compute->stage]->maximum == v});
        return out;
    }

    void value_rules(PrimitiveId s) {
        const ValueId v = result(s);
        const TensorExpr& e = expr(s);
        const TreePath& at = compute_at_.at(s);
        const bool memory = in_memory(v);
        const std::vector<Reader> all = readers(s);
        if (all.empty() && !memory) return fault("'{}' is neither read nor an output", name(v));
        const TreePath home = memory ? TreePath{} : home_of(p_, tree_, v);
        const std::vector<size_t>& axes = p_.stage_axes[s];
        for (const TileLoop* loop : tree_.loops_below(home, at))
            if (std::find(axes.begin(), axes.end(), loop->axis) == axes.end())
                fault("compute {}: the loop over {} recomputes '{}'", s.value, axis_name(loop->axis), name(v));
        const std::set<size_t> cut = tree_.narrowed(scope_of(at));
        for (size_t k = e.spatial; k < axes.size(); ++k)
            if (memory && cut.count(axes[k]) != 0 && p_.stages.values[v].dtype != e.body.dtype() &&
                !partial_sums_of(p_, tree_, v))
                fault("compute {}: partial sums along {} are stored as {}, but accumulated as {}", s.value,
                      axis_name(axes[k]), to_string(p_.stages.values[v].dtype), to_string(e.body.dtype()));
        for (const Reader& r : all) {
            const TreePath shared = common_scope({at, r.path});
            const std::set<size_t> narrowed = tree_.narrowed(shared);
            for (size_t k = e.spatial; k < axes.size(); ++k)
                if (narrowed.count(axes[k]) != 0 && !(online_.count(s) != 0 && r.scaled))
                    fault("{} reads '{}' while the loop over {} still adds to it", r.what, name(v), axis_name(axes[k]));
            if (r.path[shared.size()] < at[shared.size()])
                fault("{} reads '{}' before it is computed", r.what, name(v));
            else if (const auto a = outside_part(s, r, narrowed))
                fault("{} reads '{}' outside the part that the loop over {} computes", r.what, name(v), axis_name(*a));
        }
    }

    /// A stage that is scaled by an online maximum must advance in lockstep with it.
    void online_rules(const TreePath& at, const Compute& maximum) {
        const PrimitiveId s = maximum.stage;
        const ValueId v = result(s);
        const TensorExpr& e = expr(s);
        if (e.reducer != Reducer::Max || !is_float(e.body.dtype()) || !e.epilogue.empty() || in_memory(v))
            return fault("compute {}: '{}' is marked online, but is not a floating-point maximum in a buffer", s.value,
                         name(v));
        const std::set<size_t> cut_here = tree_.narrowed(scope_of(at));
        std::set<size_t> cut;  // reduction axes of the maximum that are cut
        for (size_t k = e.spatial; k < e.extents.size(); ++k)
            if (cut_here.count(p_.stage_axes[s][k]) != 0) cut.insert(p_.stage_axes[s][k]);
        if (cut.empty()) return;
        const auto inside = [&](const TreePath& path) { return inside_reduction(p_, tree_, s, at, path); };
        /// Checks the loops below the common scope of both statements: each must be over a spatial axis of its stage,
        /// since any other would run one statement more often.
        const auto in_step = [&](const TreePath& path, PrimitiveId stage) {
            const TreePath shared = common_scope({at, path});
            const auto spatial_only = [&](const TreePath& statement, PrimitiveId of) {
                const auto axes = std::span(p_.stage_axes[of]).first(expr(of).spatial);
                for (const TileLoop* loop : tree_.loops_below(shared, statement))
                    if (std::find(axes.begin(), axes.end(), loop->axis) == axes.end()) return false;
                return true;
            };
            return spatial_only(at, s) && spatial_only(path, stage);
        };
        for (const auto& [path, compute] : tree_.computes) {
            const PrimitiveId t = compute->stage;
            if (!scales_[t] || scales_[t]->maximum != v || !inside(path)) continue;
            const TensorExpr& term = expr(t);
            size_t along = 0;
            for (size_t k = term.spatial; k < term.extents.size(); ++k) along += cut.count(p_.stage_axes[t][k]);
            const std::string what = fmt::format("compute {}", t.value);
            if (!in_step(path, t)) fault("{} does not advance in lockstep with the online maximum '{}'", what, name(v));
            if (along == cut.size()) continue;
            if (along != 0) fault("{} reduces only a part of what the online maximum '{}' does", what, name(v));
            if (is_output(p_, result(t)))
                fault("output '{}' is valid only within a step of '{}'", name(result(t)), name(v));
            for (const Reader& r : readers(t))
                if (!inside(r.path))
                    fault("{} reads '{}', which is valid only within a step of the online maximum '{}'", r.what,
                          name(result(t)), name(v));
        }
    }

    /// Under loops over these axes the stage computes a part of its value. Returns an axis along which the reader may
    /// leave that part, or nothing. The reader stays inside if it uses the stage's indices in every dimension that
    /// depends on those axes, or shares an axis with such a dimension: the result's index is injective, so those axes
    /// then agree.
    std::optional<size_t> outside_part(PrimitiveId s, const Reader& reader, std::set<size_t> moving) const {
        const std::vector<Expr> written = over_kernel_axes(result_index(expr(s)), p_.stage_axes[s]);
        const auto spatial = std::span(p_.stage_axes[s]).first(expr(s).spatial);
        for (auto it = moving.begin(); it != moving.end();)
            it = std::find(spatial.begin(), spatial.end(), *it) == spatial.end() ? moving.erase(it) : std::next(it);
        if (moving.empty()) return std::nullopt;
        const auto moves = [&](Expr i) {
            const std::vector<Var> vars = variables(i);
            return std::any_of(vars.begin(), vars.end(),
                               [&](Var v) { return v.kind == VarKind::Axis && moving.count(v.id) != 0; });
        };
        const std::set<size_t> cut = moving;
        for (size_t before = 0; before != moving.size();) {
            before = moving.size();
            for (const Expr& w : written)
                if (moves(w))
                    for (const Var v : variables(w))
                        if (v.kind == VarKind::Axis) moving.insert(v.id);
        }
        for (size_t d = 0; d < written.size(); ++d)
            if (moves(written[d]) && !(written[d] == reader.index[d])) {
                for (const Var v : variables(written[d]))
                    if (v.kind == VarKind::Axis && cut.count(v.id) != 0) return v.id;
                return *cut.begin();
            }
        return std::nullopt;
    }

    const TileProgram& p_;
    std::vector<std::string> faults_;
    std::map<size_t, int64_t> grid_steps_;  ///< per axis: the step of the innermost parallel loop so far
    Walk tree_;
    std::map<PrimitiveId, TreePath> compute_at_;
    std::set<PrimitiveId> online_;
    IndexVector<PrimitiveId, std::optional<OnlineScale>> scales_;
};

/// A source of the kernel's inputs.
class Call : public OpaqueOp {
  public:
    std::string print() const override { return "call"; }
    void run(std::span<const TensorView>, OpaqueOutputs&) const override {}
};

/// The stages as a program that binds all its names, which a kernel receives from outside.
Program with_names_bound(const Program& stages) {
    Program out = stages;
    std::set<Var> seen;
    std::vector<Expr> symbols;
    std::vector<std::string> scalars;
    const auto collect = [&](Expr e) {
        for (const Var v : variables(e)) {
            if (v.kind == VarKind::Symbol && seen.insert(v).second) symbols.push_back(Expr::var(v));
            if (v.kind == VarKind::Scalar && seen.insert(v).second) scalars.push_back(var_name(v));
        }
    };
    const auto collect_body = [&](const ScalarBody& body) {
        for (const ScalarNode& n : body.nodes())
            if (n.op == ScalarOp::Index) collect(n.index);
    };
    for (const Value& v : stages.values)
        for (const Expr& d : v.shape) collect(d);
    for (const Primitive& s : stages.primitives) {
        const TensorExpr* e = s.expr();
        if (e == nullptr) continue;
        for (const Expr& x : e->extents) collect(x);
        for (const Access& a : e->accesses) {
            for (const Expr& i : a.index) collect(i);
            for (const Expr& c : a.valid) collect(c);
        }
        for (const Expr& i : e->output_index) collect(i);
        collect_body(e->body);
        collect_body(e->epilogue);
    }
    std::vector<Expr> shape = symbols;
    shape.emplace_back(static_cast<int64_t>(scalars.size()) + 1);
    const ValueId names = out.values.push_back({"the kernel's symbols and scalars", DType::I64, shape});
    out.inputs = {names};
    out.primitives = {};
    for (size_t k = 0; k < scalars.size(); ++k) {
        Primitive read;
        read.name = fmt::format("reads ?{}", scalars[k]);
        read.kind = ReadScalar{names, static_cast<int64_t>(k), scalars[k]};
        out.primitives.push_back(std::move(read));
    }
    Primitive call;
    call.name = "the kernel's call";
    call.outputs = stages.inputs;
    call.kind = Opaque{std::make_shared<const Call>(), {}};
    out.primitives.push_back(std::move(call));
    for (const Primitive& s : stages.primitives) out.primitives.push_back(s);
    return out;
}

}  // namespace

std::vector<std::string> verify_tree(const TileProgram& program) { return Verifier(program).run(); }

std::vector<std::string> verify(const TileProgram& program) {
    std::vector<std::string> faults = verify(with_names_bound(program.stages));
    if (!faults.empty()) return faults;
    return verify_tree(program);
}

}  // namespace tilewright
