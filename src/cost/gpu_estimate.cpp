#include "cost/gpu_estimate.h"

#include <algorithm>
#include <cmath>

#include "cost/stage_model.h"
#include "tile/matrix.h"
#include "tile/walk.h"

namespace tilewright {

namespace {

constexpr int64_t kAssumed = 128;     ///< extent of what only the run knows
constexpr double kCacheSpeed = 2.5;   ///< of the second-level cache, in bandwidths of the memory
constexpr double kSharedBytes = 128;  ///< a clock and SM
constexpr double kWait = 0.7e-6;      ///< seconds from a copy's beginning to its end

double number(Expr e, const Bindings& bindings) {
    if (e.is_constant()) return static_cast<double>(e.constant());
    Bindings all = bindings;
    for (const Var v : variables(e)) all.emplace(v, kAssumed);
    return static_cast<double>(std::max<int64_t>(1, evaluate(e, all)));
}

class Model {
  public:
    Model(const TileProgram& p, const GpuTarget& target, const Bindings& bindings)
        : p_(p), target_(target), bindings_(bindings), tree_(walk(p)) {}

    GpuEstimate run() {
        GpuEstimate out;
        double steps = 1;
        for (const auto& [path, compute] : tree_.computes) {
            const PrimitiveId s = compute->stage;
            const StageModel model = stage_model(p_.stages, s, bindings_);
            const std::vector<int64_t> tile = tile_at(scope_of(path), s);
            const double trips = trips_of(path);
            arithmetic(model, *compute, tile, trips, out);
            for (size_t i = 0; i < model.operands.size(); ++i) {
                const bool result = i + 1 == model.operands.size();
                const ValueId v =
                    result ? p_.stages.primitives[s].outputs[0] : p_.stages.primitives[s].expr()->accesses[i].value;
                const double bytes = model.operands[i].bytes(tile) * trips;
                if (!result && loaded(s, i)) continue;
                (in_memory(v, result) ? memory_ : shared_) += bytes;
            }
            out.blocks = std::max(out.blocks, parallel_trips(path));
            steps = std::max(steps, waits(path));
        }
        for (const auto& [path, load] : tree_.loads) {
            const StageModel model = stage_model(p_.stages, load->stage, bindings_);
            const double bytes =
                model.operands[load->access].bytes(tile_at(scope_of(path), load->stage)) * trips_of(path);
            memory_ += bytes;
            shared_ += bytes;
        }
        for (const auto& [path, store] : tree_.stores) memory_ += value_bytes(store->value);
        double once = 0;
        for (const auto* list : {&p_.stages.inputs, &p_.stages.outputs})
            for (const ValueId v : *list) once += value_bytes(v);
        const double bandwidth = target_.memory_gbps * 1e9;
        out.memory_seconds = std::max(std::min(once, memory_) / bandwidth, memory_ / (kCacheSpeed * bandwidth));
        out.shared_seconds = shared_ / (kSharedBytes * target_.ghz * 1e9 * target_.multiprocessors);
        const double waves = std::ceil(out.blocks / target_.multiprocessors);
        out.wait_seconds = waves * steps * kWait;
        const double most = std::max({out.compute_seconds, out.memory_seconds, out.shared_seconds});
        const double all = out.compute_seconds + out.memory_seconds + out.shared_seconds;
        const double spread = (out.blocks + target_.multiprocessors) / out.blocks;  // equation 5
        out.seconds = std::max(most + 0.1 * (all - most), out.wait_seconds / 4) * spread + target_.launch_us * 1e-6;
        return out;
    }

  private:
    static double product_of(const std::vector<int64_t>& tile, size_t count) {
        double n = 1;
        for (size_t k = 0; k < count; ++k) n *= static_cast<double>(tile[k]);
        return n;
    }
    double value_bytes(ValueId v) const {
        double n = static_cast<double>(byte_size(p_.stages.values[v].dtype));
        for (const Expr& d : p_.stages.values[v].shape) n *= number(d, bindings_);
        return n;
    }
    std::vector<int64_t> tile_at(const TreePath& scope, PrimitiveId s) const {
        std::vector<int64_t> out;
        for (const size_t a : p_.stage_axes[s])
            out.push_back(static_cast<int64_t>(number(tree_.extents.at(scope)[a], bindings_)));
        return out;
    }
    double trips_at(const TreePath& loop) const {
        const TileLoop& l = *tree_.loops.at(loop);
        return std::ceil(number(tree_.extents.at(scope_of(loop))[l.axis], bindings_) / static_cast<double>(l.step));
    }
    template <class F>
    double over_loops(const TreePath& statement, const F& factor) const {
        double n = 1;
        for (size_t k = 1; k < statement.size(); ++k) {
            const TreePath loop(statement.begin(), statement.begin() + static_cast<std::ptrdiff_t>(k));
            n *= factor(*tree_.loops.at(loop), trips_at(loop));
        }
        return n;
    }
    double trips_of(const TreePath& s) const {
        return over_loops(s, [](const TileLoop&, double trips) { return trips; });
    }
    double parallel_trips(const TreePath& s) const {
        return over_loops(s, [](const TileLoop& l, double trips) { return l.parallel ? trips : 1; });
    }
    double waits(const TreePath& s) const {
        return over_loops(
            s, [](const TileLoop& l, double trips) { return l.parallel ? 1 : std::max(1.0, trips / l.stages); });
    }
    bool loaded(PrimitiveId s, size_t access) const {
        return std::any_of(tree_.loads.begin(), tree_.loads.end(),
                           [&](const auto& l) { return l.second->stage == s && l.second->access == access; });
    }
    bool in_memory(ValueId v, bool result) const {
        if (is_input(p_, v)) return true;
        if (!is_output(p_, v)) return false;
        return std::none_of(tree_.stores.begin(), tree_.stores.end(),
                            [&](const auto& store) { return store.second->value == v; }) ||
               !result;
    }

    void arithmetic(const StageModel& model, const Compute& compute, std::vector<int64_t> tile, double trips,
                    GpuEstimate& out) {
        const Micro& m = compute.micro;
        if (!model.product) {
            const double work = (model.body_operations + model.epilogue_operations) * product_of(tile, tile.size());
            out.compute_seconds += work * trips / (target_.f32_gflops * 0.5e9);
            return;
        }
        for (size_t a = 0; a < tile.size() && a < m.registers.size(); ++a) {
            const int64_t unit = m.matrix && a == m.matrix->sum ? matrix_sum(m.matrix->type) : m.registers[a];
            const bool rounds = a < model.spatial || (m.matrix && a == m.matrix->sum);
            if (rounds && unit > 1) tile[a] = (tile[a] + unit - 1) / unit * unit;
        }
        const double points = product_of(tile, tile.size()) * trips;
        out.compute_seconds += 2 * points / gpu_flops(target_, m.matrix);
        double reuse = 0;  // words of both operands a multiply-add
        for (size_t a = 0; a < model.spatial; ++a)
            if (a < m.registers.size() && m.registers[a] > 1) reuse += 1 / static_cast<double>(m.registers[a]);
        const double word = m.matrix && m.matrix->type != MatrixType::TF32 ? 2 : 4;
        shared_ += points * std::min(reuse > 0 ? reuse : 2, 2.0) * word;
    }

    const TileProgram& p_;
    const GpuTarget& target_;
    const Bindings& bindings_;
    const Walk tree_;
    double memory_ = 0, shared_ = 0;
};

}  // namespace

double gpu_flops(const GpuTarget& t, const std::optional<MatrixUnit>& unit) {
    constexpr double kReached = 0.75;  // of the data sheet's rates, by mma.sync
    if (!unit) return t.f32_gflops * 1e9 * kReached;
    return (unit->type == MatrixType::TF32 ? t.tf32_gflops : t.f16_gflops) * 1e9 * kReached;
}

GpuEstimate gpu_estimate(const TileProgram& program, const GpuTarget& target, const Bindings& bindings) {
    return Model(program, target, bindings).run();
}

double gpu_lower_bound(const Program& stages, const GpuTarget& target, const Bindings& bindings) {
    double bytes = 0, flops = 0;
    for (const auto* list : {&stages.inputs, &stages.outputs})
        for (const ValueId v : *list) {
            double n = static_cast<double>(byte_size(stages.values[v].dtype));
            for (const Expr& d : stages.values[v].shape) n *= number(d, bindings);
            bytes += n;
        }
    for (const PrimitiveId s : stages.primitives.ids()) {
        const StageModel model = stage_model(stages, s, bindings);
        if (model.product) flops += model.flops();
    }
    const double peak = std::max({target.f32_gflops, target.tf32_gflops, target.f16_gflops}) * 1e9;
    return std::max(flops / peak, bytes / (target.memory_gbps * 1e9));
}

}  // namespace tilewright
