#include "cost/gpu_estimate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "cost/gpu_slots.h"
#include "program/analysis/access.h"
#include "program/analysis/dynamic.h"
#include "tile/gpu_block.h"
#include "tile/gpu_memory.h"
#include "tile/live_steps.h"
#include "tile/matrix.h"
#include "tile/walk.h"

namespace tilewright {

namespace {

constexpr double kJoinWaits = 3;    ///< for what a block has written, for the counter, for the parts
constexpr double kBusyPhases = 16;  ///< warps that keep an SM busy where products of single warps wait for others

double product_of(const std::vector<int64_t>& tile, size_t count) {
    double n = 1;
    for (size_t k = 0; k < count; ++k) n *= static_cast<double>(tile[k]);
    return n;
}

double number(Expr e, const Bindings& bindings) { return static_cast<double>(assumed_extent(e, bindings)); }

/// Nothing where a box has no constant bound.
std::optional<gpu::BlockMemory> memory_of(const TileProgram& program) {
    try {
        return gpu::block_memory(program, kGpuBlockThreads, INT64_MAX / 2);
    } catch (const InternalError&) {
        return std::nullopt;
    }
}

class Model {
  public:
    Model(const TileProgram& p, const GpuTarget& target, const Bindings& bindings)
        : p_(p), target_(target), bindings_(bindings), tree_(walk(p)), memory_(memory_of(p)) {
        if (memory_) held_ = memory_->registers.all();
        for (const auto& [path, compute] : tree_.computes) {
            matrix_ = matrix_ || compute->micro.matrix;
            chain_ = chain_ || (tree_.computes.size() > 1 && stage_model(p_.stages, compute->stage, bindings_).product);
        }
    }

    GpuWork run() {
        GpuWork out;
        out.phases = tree_.computes.size() > 1;
        for (const auto& [path, compute] : tree_.computes) {
            const PrimitiveId s = compute->stage;
            const StageModel model = stage_model(p_.stages, s, bindings_);
            const std::vector<int64_t> tile = tile_at(scope_of(path), s);
            const double trips = trips_of(path);
            add_compute(out, path, model, *compute, tile, trips);
            for (size_t i = 0; i < model.operands.size(); ++i) {
                const bool result = i + 1 == model.operands.size();
                const ValueId v =
                    result ? p_.stages.primitives[s].outputs[0] : p_.stages.primitives[s].expr()->accesses[i].value;
                const double bytes = model.operands[i].bytes(tile) * trips;
                if (!result && loaded(s, i)) continue;
                if (in_memory(v, result))
                    out.memory_bytes += bytes;
                else if (!kept(v, result))
                    out.shared_bytes += bytes;
            }
            out.blocks = std::max(out.blocks, parallel_trips(path));
            out.waits = std::max(out.waits, waits(path));
            if (compute->micro.matrix && !in_flight(path)) out.drains += trips / parallel_trips(path);
        }
        for (const auto& [path, load] : tree_.loads) {
            const StageModel model = stage_model(p_.stages, load->stage, bindings_);
            const double bytes =
                model.operands[load->access].bytes(tile_at(scope_of(path), load->stage)) * trips_of(path);
            out.memory_bytes += bytes;
            out.shared_bytes += bytes;
        }
        for (const auto& [path, store] : tree_.stores) out.memory_bytes += value_bytes(store->value);
        for (const auto* list : {&p_.stages.inputs, &p_.stages.outputs})
            for (const ValueId v : *list) out.once_bytes += value_bytes(v);
        if (tree_.split) {
            const PrimitiveId s(0);
            const TensorExpr& e = *p_.stages.primitives[s].expr();
            const std::vector<int64_t> tile = tile_at(*tree_.split, s);
            add_parts(out, trips_at(*tree_.split),
                      product_of(tile, e.spatial) * static_cast<double>(byte_size(e.body.dtype())));
        }
        out.block_bytes = memory_ ? memory_->shared_bytes : 0;
        if (chain_ && memory_) out.threads = memory_->threads;
        if (chain_ && matrix_) add_slots(out);
        if (out.phases && std::any_of(tree_.computes.begin(), tree_.computes.end(), [](const auto& c) {
                return c.second->micro.matrix && !c.second->micro.matrix->group();
            }))
            out.busy_warps = kBusyPhases;
        return out;
    }

  private:
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
        double n = over_loops(s, [](const TileLoop&, double trips) { return trips; });
        for (size_t k = 1; k < s.size(); ++k)
            n *= live_share(TreePath(s.begin(), s.begin() + static_cast<std::ptrdiff_t>(k)));
        return n;
    }
    /// The share of a loop's steps that run (tile/live_steps.h), on average over the blocks of rows around it.
    double live_share(const TreePath& loop) const {
        const TileLoop& l = *tree_.loops.at(loop);
        if (l.parallel) return 1;
        const auto [it, is_new] = live_.try_emplace(loop, 1.0);
        if (!is_new) return it->second;
        const std::vector<Expr> conditions = live_conditions(p_, tree_, loop);
        if (conditions.empty()) return 1;
        std::vector<AxisBounds> ranges;
        for (const Expr& extent : tree_.extents.at({})) ranges.push_back({0, Expr(assumed_extent(extent, bindings_))});
        // Blocks of the axis that the conditions move along.
        const TileLoop* rows = nullptr;
        for (size_t k = 1; k < loop.size(); ++k) {
            const TileLoop* around =
                tree_.loops.at(TreePath(loop.begin(), loop.begin() + static_cast<std::ptrdiff_t>(k)));
            if (index_uses(conditions, around->axis)) rows = around;
        }
        constexpr int64_t kMostBlocks = 64;
        const int64_t extent = rows == nullptr ? 1 : ranges[rows->axis].hi.constant(),
                      step = rows == nullptr ? 1 : rows->step;
        const int64_t blocks = (extent + step - 1) / step, every = (blocks + kMostBlocks - 1) / kMostBlocks;
        const int64_t length = ranges[l.axis].hi.constant(), steps = (length + l.step - 1) / l.step;
        double ran = 0, all = 0;
        for (int64_t b = 0; b < blocks; b += every) {
            if (rows != nullptr) ranges[rows->axis] = {Expr(b * step), Expr(std::min(extent, (b + 1) * step))};
            const LiveRange live = live_range(conditions, l.axis, ranges);
            const auto at = [&](const std::optional<Expr>& e, int64_t otherwise) {
                return e && e->is_constant() ? std::clamp<int64_t>(e->constant(), 0, length) : otherwise;
            };
            const int64_t begin = at(live.begin, 0) / l.step, end = (at(live.end, length) + l.step - 1) / l.step;
            ran += static_cast<double>(std::max<int64_t>(1, end - begin));
            all += static_cast<double>(steps);
        }
        return it->second = ran / all;
    }
    double parallel_trips(const TreePath& s) const {
        return over_loops(s, [](const TileLoop& l, double trips) { return l.parallel ? trips : 1; });
    }
    double waits(const TreePath& s) const {
        return over_loops(
            s, [&](const TileLoop& l, double trips) { return l.parallel ? 1 : std::max(1.0, trips / steps_ahead(l)); });
    }
    /// Whether warpgroup products of one step of a loop may still run when the next step begins. The next step then
    /// copies to the buffer that the step before the last has read (Annotations::overlap).
    static bool in_flight(const TileLoop& l) {
        const auto product = std::find_if(l.body.begin(), l.body.end(),
                                          [](const Stmt& s) { return std::holds_alternative<Compute>(s.kind); });
        if (product == l.body.end() || !gpu::may_overlap(l)) return false;
        return std::get<Compute>(product->kind).micro.annotations.overlap.value_or(true);
    }
    bool in_flight(const TreePath& s) const {
        const auto it = tree_.loops.find(scope_of(s));
        return it != tree_.loops.end() && in_flight(*it->second);
    }
    static int steps_ahead(const TileLoop& l) { return l.stages - (in_flight(l) ? 1 : 0); }
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

    /// Whether the value stays in registers (tile/gpu_memory.h), as the sums of a result do until a Store writes it.
    bool kept(ValueId v, bool result) const {
        return held_.count(v) != 0 || (result && std::any_of(tree_.stores.begin(), tree_.stores.end(),
                                                             [&](const auto& s) { return s.second->value == v; }));
    }
    /// The threads of warps that have a part of the statement.
    double threads_of(const TreePath& path, const Compute& compute) const {
        const Primitive& stage = p_.stages.primitives[compute.stage];
        const auto kept = memory_->registers.values.find(stage.outputs[0]);
        const auto adopted = memory_->registers.stages.find(compute.stage);
        const gpu::Partition share =
            kept != memory_->registers.values.end() ? kept->second
            : adopted != memory_->registers.stages.end()
                ? adopted->second
                : gpu::make_partition(*stage.expr(), compute.micro, gpu::share_of(p_, tree_, path, compute.stage),
                                      memory_->threads);
        if (!share.count) return memory_->threads;
        const double threads = static_cast<double>(*share.count * share.takes());
        return std::min<double>(memory_->threads, std::ceil(threads / target_.warp) * target_.warp);
    }
    void add_compute(GpuWork& out, const TreePath& path, const StageModel& model, const Compute& compute,
                     const std::vector<int64_t>& tile, double trips) const {
        const int threads = out.threads;
        std::vector<GpuCopy> copies;
        for (const auto& [at, load] : tree_.loads)
            if (load->stage == compute.stage) copies.emplace_back(p_.stages, *load);
        const std::vector<Access>& accesses = p_.stages.primitives[compute.stage].expr()->accesses;
        std::vector<bool> held;
        held.reserve(accesses.size());
        for (const Access& a : accesses) held.push_back(held_.count(a.value) != 0);
        const double seconds = out.compute_seconds, registers = out.registers;
        tilewright::add_compute(out, model, compute.micro, tile, trips, copies, target_, held);
        // The tiles of matrix instructions, where there are any, determine the number of threads.
        if (matrix_ && !compute.micro.matrix) out.threads = threads;
        if (!chain_) return;
        // Other warps of the block wait for those that have a part.
        if (!matrix_ && memory_) {
            out.compute_seconds =
                seconds + (out.compute_seconds - seconds) * memory_->threads / threads_of(path, compute);
            out.threads = threads;
        }
        // Beside products on matrix units, all else is issue slots. Results of all products are in registers at once.
        if (matrix_ && !model.product) out.compute_seconds = seconds;
        if (model.product || matrix_)
            out.registers = registers + (model.product ? gpu_registers(model, compute.micro).results : 0);
    }

    /// Instructions of statements and of steps.
    void add_slots(GpuWork& out) const {
        const GpuSlots slots(p_, tree_, held_);
        for (const auto& [path, compute] : tree_.computes) {
            const StageModel model = stage_model(p_.stages, compute->stage, bindings_);
            if (model.product && !compute->micro.matrix) continue;
            out.slots += trips_of(path) * slots.of(path, *compute, tile_at(scope_of(path), compute->stage));
        }
        for (const auto& [path, loop] : tree_.loops) {
            TreePath inside = path;
            inside.push_back(0);
            if (!loop->parallel) out.slots += kStepSlots * trips_of(inside) * out.threads / target_.warp;
        }
    }

    const TileProgram& p_;
    const GpuTarget& target_;
    const Bindings& bindings_;
    const Walk tree_;
    const std::optional<gpu::BlockMemory> memory_;
    std::set<ValueId> held_;  ///< in registers
    bool matrix_ = false;     ///< some statement is on matrix instructions
    bool chain_ = false;      ///< one of several statements is a product
    mutable std::map<TreePath, double> live_;
};

int64_t register_tile(const Micro& m, size_t a) {
    return a < m.registers.size() ? std::max<int64_t>(1, m.registers[a]) : 1;
}

/// Bytes per operand element in a register of a matrix instruction, or of the ordinary cores.
double word_of(const Micro& m) { return m.matrix && m.matrix->type != MatrixType::TF32 ? 2 : 4; }

}  // namespace

double gpu_flops(const GpuTarget& t, const std::optional<MatrixUnit>& unit) {
    const GpuRates& r = t.rates;
    if (!unit) return r.f32_gflops * 1e9;
    const bool tf32 = unit->type == MatrixType::TF32;
    return (unit->group() ? tf32 ? r.group_tf32_gflops : r.group_f16_gflops
            : tf32        ? r.warp_tf32_gflops
                          : r.warp_f16_gflops) *
           1e9;
}

GpuEstimate gpu_estimate(const TileProgram& program, const GpuTarget& target, const Bindings& bindings) {
    return gpu_estimate(Model(program, target, bindings).run(), target);
}

int blocks_at_a_time(const GpuWork& w, const GpuTarget& target) {
    const int registers = static_cast<int>(std::min<double>(w.registers, target.thread_registers));
    return std::max(1, blocks_of_sm(target, w.threads, registers, std::min(w.block_bytes, target.block_shared_bytes)));
}

GpuEstimate gpu_estimate(const GpuWork& w, const GpuTarget& target) {
    GpuEstimate out;
    const GpuRates& rates = target.rates;
    const double sms = target.multiprocessors, clocks = target.ghz * 1e9 * sms;  // of all SMs, in a second
    out.blocks = w.blocks;
    out.registers = w.registers;
    out.compute_seconds = w.compute_seconds;
    out.memory_seconds = std::max(std::min(w.once_bytes, w.memory_bytes) / (rates.memory_gbps * 1e9),
                                  w.memory_bytes / (rates.cache_bytes * clocks));
    out.shared_seconds = w.shared_bytes / (rates.shared_bytes * clocks);
    out.issue_seconds = w.slots / (kGpuSchedulers * clocks);
    const double held = blocks_at_a_time(w, target);
    const double rounds = std::ceil(w.blocks / (held * sms));
    out.wait_seconds = rounds * w.waits * rates.copy_us * 1e-6;
    const double most = std::max({out.compute_seconds, out.memory_seconds, out.shared_seconds, out.issue_seconds});
    const double all = out.compute_seconds + out.memory_seconds + out.shared_seconds + out.issue_seconds;
    // In place of equation 5's (blocks + SMs) / blocks: the busiest SM has a whole number of blocks.
    const double spread = std::ceil(w.blocks / sms) * sms / w.blocks;
    const double warps = std::min(held, std::max(1.0, w.blocks / sms)) * w.threads / target.warp;
    // Units of an SM are idle while one of its blocks waits, unless another resident block has work for them.
    const double beside = std::min(held, std::max(1.0, std::ceil(w.blocks / sms)));
    const double exposed = w.phases ? std::max(0.1, 1 / beside) : 0.1;
    const double busy = (most + exposed * (all - most)) * spread / std::min(1.0, warps / w.busy_warps) +
                        rounds * w.drains * rates.drain_us * 1e-6 / held;
    if (w.parts > 1)
        out.join_seconds = kJoinWaits * rates.copy_us * 1e-6 + std::ceil(w.blocks / w.parts / sms) * w.parts *
                                                                   w.part_bytes * sms / (rates.cache_bytes * clocks);
    out.seconds = std::max(busy, out.wait_seconds) + 0.2 * out.wait_seconds + out.join_seconds + rates.launch_us * 1e-6;
    return out;
}

void add_parts(GpuWork& work, double parts, double part_bytes) {
    work.parts = parts;
    work.part_bytes = part_bytes;
    if (parts > 1) work.memory_bytes += 2 * work.blocks * part_bytes;
}

GpuRegisters gpu_registers(const StageModel& stage, const Micro& m) {
    GpuRegisters out;
    std::vector<int64_t> tile(stage.extents.size(), 1);
    for (size_t a = 0; a < tile.size(); ++a) {
        if (a < stage.spatial) out.results *= static_cast<double>(tile[a] = register_tile(m, a));
        if (m.matrix && a == m.matrix->sum) tile[a] = matrix_sum(m.matrix->type);
    }
    for (const OperandModel& o : stage.operands)
        if (o.in_body && !o.result) out.operands += o.elements(tile);
    if (m.matrix && m.matrix->group()) {  // a warpgroup instruction reads operands from shared memory
        out.results /= 128;
        out.operands = 0;
        // But for floats that lie along the rows (left_along_rows): words of a step while those of the last are read.
        const MatrixUnit& u = *m.matrix;
        for (const OperandModel& o : stage.operands)
            if (u.type == MatrixType::TF32 && o.in_body && !o.result && o.depends[u.rows] && !o.depends[u.columns] &&
                o.strides[u.rows] == 1 && o.strides[u.sum] != 1)
                out.operands = 2.0 * static_cast<double>(register_tile(m, u.rows) * register_tile(m, u.sum)) / 128;
    } else if (m.matrix) {  // 32 threads share the registers of a warp
        out.results /= 32;
        out.operands *= word_of(m) / 4 / 32;
    }
    return out;
}

void add_compute(GpuWork& work, const StageModel& stage, const Micro& m, std::vector<int64_t> tile, double trips,
                 std::span<const GpuCopy> copies, const GpuTarget& target, const std::vector<bool>& held) {
    std::vector<double> conflicts(stage.operands.size(), 1);
    for (const GpuCopy& c : copies) conflicts[c.access()] = c.conflicts(stage, m, tile);
    double tiles = 1;
    for (size_t a = 0; a < tile.size(); ++a) {
        const int64_t own = register_tile(m, a);
        const int64_t unit = m.matrix && a == m.matrix->sum ? matrix_sum(m.matrix->type) : own;
        if (a < stage.spatial) tiles *= std::ceil(static_cast<double>(tile[a]) / static_cast<double>(own));
        const bool rounds = a < stage.spatial || (m.matrix && a == m.matrix->sum);
        if (stage.product && rounds) tile[a] = (tile[a] + unit - 1) / unit * unit;
    }
    double points = product_of(tile, tile.size()) * trips;
    double threads = tiles * (m.matrix ? m.matrix->group() ? 128 : 32 : 1);
    // Threads share the reduction of a tile where there are more threads than tiles.
    if (!stage.product && stage.reduces) threads *= std::max(1.0, points / trips / product_of(tile, stage.spatial) / 2);
    const double whole = std::ceil(threads / target.warp) * target.warp;
    points *= whole / threads;
    if (stage.product) {
        work.compute_seconds += 2 * points / gpu_flops(target, m.matrix);
        double words = 0;  // operand words read per multiply-add; each word serves all axes that do not move it
        for (size_t i = 0; i < stage.operands.size(); ++i) {
            const OperandModel& o = stage.operands[i];
            if (!o.in_body || o.result || (i < held.size() && held[i])) continue;
            double served = 1;
            for (size_t a = 0; a < stage.spatial; ++a) {
                if (o.depends[a]) continue;
                // A warpgroup instruction reads its columns once for 64 rows.
                const bool rows = m.matrix && m.matrix->group() && a == m.matrix->rows;
                served *= static_cast<double>(rows ? kGroupRows : register_tile(m, a));
            }
            words += conflicts[i] / served;
        }
        work.shared_bytes += points * words * word_of(m);
    } else {
        work.compute_seconds +=
            (stage.body_operations + stage.epilogue_operations) * points / (target.f32_gflops * 0.5e9);
    }
    work.threads = std::max(work.threads, static_cast<int>(std::min<double>(kGpuBlockThreads, whole)));
    if (m.matrix && m.matrix->group()) work.busy_warps = 4;  // one warpgroup saturates the matrix units
    const GpuRegisters r = gpu_registers(stage, m);
    work.registers = std::max(work.registers, kGpuOtherRegisters + r.results + r.operands);
}

std::optional<int64_t> shared_bytes(const TileProgram& program) {
    const auto memory = memory_of(program);
    return memory ? std::optional(memory->shared_bytes) : std::nullopt;
}

double gpu_memory_seconds(const GpuTarget& target, double bytes) {
    return target.rates.copy_us * 1e-6 + bytes * target.multiprocessors / (target.rates.memory_gbps * 1e9);
}

double gpu_shared_seconds(const GpuTarget& target, double bytes) {
    return (target.rates.shared_clocks + bytes / target.rates.shared_bytes) / (target.ghz * 1e9);
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
    return std::max(flops / peak, bytes / (std::max(target.memory_gbps, target.rates.memory_gbps) * 1e9));
}

}  // namespace tilewright
