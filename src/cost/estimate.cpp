#include "cost/estimate.h"

#include <algorithm>

#include "base/error.h"
#include "tile/online.h"
#include "tile/walk.h"

namespace tilewright {

namespace {

constexpr double kNextStage = 8;  // cycles to enter a micro-kernel that follows another stage in the same task

}  // namespace

int64_t factor_bytes(const StageModel& stage) {
    int64_t most = stage.product ? 1 : 4;
    for (const OperandModel& o : stage.operands)
        if (o.in_body && !o.result) most = std::max(most, o.element_bytes);
    return most;
}

double matrix_advantage(const Target& target, int64_t factor_bytes) {
    double most = 1;
    if (factor_bytes == 2 && target.bf16_tiles())
        most = std::max(most, target.tile_gflops_1.value / target.fma_gflops_1.value);
    if (factor_bytes == 2 && target.bf16_dots())
        most = std::max(most, target.dot_gflops_1.value / target.fma_gflops_1.value);
    if (factor_bytes == 2 && target.f16_sums())
        most = std::max(most, target.f16_gflops_1.value / target.fma_gflops_1.value);
    if (factor_bytes == 1 && target.byte_dots()) most = target.byte_dot_instructions() ? 4 : 2;
    // An instruction takes the time of one of bf16, and has twice the products.
    if (factor_bytes == 1 && target.byte_tiles())
        most = std::max(most, 2 * target.tile_gflops_1.value / target.fma_gflops_1.value);
    return most;
}

double lower_bound(const Program& stages, const Target& target, const Bindings& bindings, bool warm) {
    const CycleRates m(target);
    double flops = 0, bytes = 0;
    for (const PrimitiveId s : stages.primitives.ids()) {
        const StageModel stage = stage_model(stages, s, bindings);
        flops += stage.flops() / matrix_advantage(target, factor_bytes(stage));
    }
    const auto bytes_of = [&](ValueId v) {
        double n = static_cast<double>(byte_size(stages.values[v].dtype));
        for (const Expr& d : stages.values[v].shape) {
            Bindings all = bindings;
            all.insert(stages.assumed.begin(), stages.assumed.end());
            for (const Var x : variables(d)) all.try_emplace(x, 1);
            n *= static_cast<double>(std::max<int64_t>(0, evaluate(d, all)));
        }
        return n;
    };
    for (const ValueId v : stages.inputs) bytes += bytes_of(v);
    for (const ValueId v : stages.outputs) bytes += bytes_of(v);
    if (warm && bytes <= m.caches.back().bytes) bytes = 0;
    const double compute = flops / (2 * m.fmas_per_cycle * target.lanes(DType::F32) * m.workers);
    return std::max(compute, bytes / (m.memory.bytes_per_cycle * m.workers)) / (m.ghz * 1e9);
}

namespace {

class TreeEstimate {
  public:
    TreeEstimate(const TileProgram& p, const Target& target, const StageModels& models, const Bindings& bindings)
        : p_(p),
          m_(target),
          sizes_(bindings),
          lanes_(target.lanes(DType::F32)),
          tree_(walk(p)),
          plan_(plan_buffers(p)),
          models_(models) {
        sizes_.insert(p.stages.assumed.begin(), p.stages.assumed.end());
        scales_ = online_scales(p.stages, online_maxima(p));
        extents_.assign(p.axes.size(), 1);
        for (const PrimitiveId s : p.stages.primitives.ids())
            for (size_t k = 0; k < p.stage_axes[s].size(); ++k) extents_[p.stage_axes[s][k]] = models_[s].extents[k];
    }

    Estimate run() {
        double cycles = 0, compute = 0, memory = 0;
        for (const auto& [path, load] : tree_.loads) cycles += copy_cycles(path, *load);
        for (const auto& [path, compute_at] : tree_.computes) {
            const NestCost c = cost_of(path, *compute_at);
            const double again = trips_outside(path, compute_at->stage);
            cycles += c.cycles * again;
            compute += c.compute_cycles * again;
            memory += c.memory_cycles * again;
        }
        for (const auto& [path, store] : tree_.stores) {
            double n = static_cast<double>(byte_size(p_.stages.values[store->value].dtype)) / 4;
            for (const Expr& d : p_.stages.values[store->value].shape)
                n *= static_cast<double>(assumed_extent(d, sizes_));
            cycles += 2 * n / lanes_ / m_.loads_per_cycle;
        }
        Estimate e;
        std::vector<TaskAxis> grid;
        for (const TileLoop* loop : tree_.loops_below({}, tree_.computes.at(0).first)) {
            if (!loop->parallel) break;
            grid.push_back({extents_[loop->axis], loop->step});
        }
        e.tasks = task_count(grid);
        const double share = slowest_share(grid, m_.workers);
        const double hz = m_.ghz * 1e9;
        e.seconds = (cycles * share + m_.dispatch_cycles) / hz;
        e.compute_seconds = compute * share / hz;
        e.memory_seconds = memory * share / hz;
        e.scratch_bytes = static_cast<double>(plan_.scratch_bytes);
        return e;
    }

  private:
    /// The kernel's loops around a statement as loops of the stage's own axes.
    Nest nest_of(const TreePath& path, PrimitiveId s, const Micro& micro) const {
        Nest nest;
        nest.micro = &micro;
        const std::vector<size_t>& axes = p_.stage_axes[s];
        std::vector<size_t> loops_at(path.size(), 0);  // the stage's own loops among the first k tree loops
        const auto loops = tree_.loops_below({}, path);
        for (size_t k = 0; k < loops.size(); ++k) {
            const auto it = std::find(axes.begin(), axes.end(), loops[k]->axis);
            if (it != axes.end()) {
                nest.loops.push_back({static_cast<size_t>(it - axes.begin()), loops[k]->step});
                if (loops[k]->parallel) ++nest.parallel;
            }
            loops_at[k + 1] = nest.loops.size();
        }
        const Primitive& stage = p_.stages.primitives[s];
        const auto home = [&](const auto& is) {
            for (const Buffer& b : plan_.buffers)
                if (!b.correction && is(b)) return loops_at[std::min(b.scope.size(), path.size() - 1)];
            return size_t{0};
        };
        const std::vector<Access>& accesses = stage.expr()->accesses;
        for (size_t i = 0; i < accesses.size(); ++i)
            nest.home.push_back(home([&](const Buffer& b) {
                return b.access ? *b.access == std::pair(s, i) : b.value == accesses[i].value;
            }));
        nest.home.push_back(home([&](const Buffer& b) { return !b.access && b.value == stage.outputs[0]; }));
        return nest;
    }

    NestCost cost_of(const TreePath& path, const Compute& compute) const {
        StageModel model = models_[compute.stage];
        // Packed operands are contiguous along the vectors.
        for (const auto& [at, load] : tree_.loads)
            if (load->stage == compute.stage && !load->layout.is_identity() && compute.micro.vector_axis)
                model.operands[load->access].strides[*compute.micro.vector_axis] = 1;
        Nest nest = nest_of(path, compute.stage, compute.micro);
        if (p_.stages.primitives.size() > 1) nest.entry_cycles = kNextStage;
        NestCost c = nest_cost(model, nest, m_);
        // The online maximum's rescaling factor, and the sums that it multiplies.
        const StageModel& s = models_[compute.stage];
        const double steps = reduction_trips(path, compute.stage);
        if (compute.online) c.cycles += s.results() * steps * 18 / lanes_ / m_.fmas_per_cycle;
        if (scales_[compute.stage] && s.reduces && steps > 1)
            c.cycles += s.results() * steps / lanes_ / m_.fmas_per_cycle;
        return c;
    }

    double trips_of(const TileLoop& loop, std::vector<int64_t>& range) const {
        const int64_t step = std::min(loop.step, range[loop.axis]);
        const double trips = static_cast<double>(range[loop.axis]) / static_cast<double>(std::max<int64_t>(1, step));
        range[loop.axis] = step;
        return trips;
    }

    double reduction_trips(const TreePath& path, PrimitiveId s) const {
        std::vector<int64_t> range = extents_;
        const auto reductions = std::span(p_.stage_axes[s]).subspan(models_[s].spatial);
        double n = 1;
        for (const TileLoop* loop : tree_.loops_below({}, path)) {
            const double trips = trips_of(*loop, range);
            if (std::find(reductions.begin(), reductions.end(), loop->axis) != reductions.end()) n *= trips;
        }
        return n;
    }

    /// Trips of the surrounding loops that are not over the stage's axes. Each trip repeats the whole statement.
    double trips_outside(const TreePath& path, PrimitiveId s) const {
        std::vector<int64_t> range = extents_;
        const std::vector<size_t>& axes = p_.stage_axes[s];
        double n = 1;
        for (const TileLoop* loop : tree_.loops_below({}, path)) {
            const double trips = trips_of(*loop, range);
            if (std::find(axes.begin(), axes.end(), loop->axis) == axes.end()) n *= trips;
        }
        return n;
    }

    double copy_cycles(const TreePath& path, const Load& load) const {
        std::vector<int64_t> range = extents_;
        double trips = 1;
        for (const TileLoop* loop : tree_.loops_below({}, path)) trips *= trips_of(*loop, range);
        std::vector<int64_t> tile;
        for (const size_t a : p_.stage_axes[load.stage]) tile.push_back(range[a]);
        const OperandModel& o = models_[load.stage].operands[load.access];
        const double vectors = o.elements(tile) / lanes_;
        const double each = load.layout.is_identity() ? 3 : 6;  // a transpose takes shuffles
        const double cycles = trips * (vectors * each / m_.loads_per_cycle + 20);
        if (o.residence != Residence::Memory) return cycles;
        // Once from memory, run by run; a transpose reads vectors of several rows in turns.
        const double whole = o.bytes(models_[load.stage].extents);
        const double run = load.layout.is_identity() ? o.bytes(tile) / o.runs(tile) : lanes_ * o.element_bytes;
        return std::max(cycles, whole / m_.memory.bytes_per_cycle + whole / run * stream_start_cycles(run, m_));
    }

    const TileProgram& p_;
    const CycleRates m_;
    Bindings sizes_;
    const int lanes_;
    Walk tree_;
    BufferPlan plan_;
    const StageModels& models_;
    IndexVector<PrimitiveId, std::optional<OnlineScale>> scales_;
    std::vector<int64_t> extents_;
};

}  // namespace

Estimate estimate(const TileProgram& program, const Target& target, const Bindings& bindings) {
    return estimate(program, target, stage_models(program.stages, bindings), bindings);
}

Estimate estimate(const TileProgram& program, const Target& target, const StageModels& models,
                  const Bindings& bindings) {
    return TreeEstimate(program, target, models, bindings).run();
}

}  // namespace tilewright
