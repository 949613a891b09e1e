#include "schedule/gpu/gpu_nest.h"

#include <algorithm>
#include <cmath>

#include "base/numbers.h"

namespace tilewright {

GpuNest::GpuNest(const Program& stages, const std::optional<GpuProduct>& product, int64_t assumed)
    : stage_(stage_model(stages, PrimitiveId(0), {}, assumed)), product_(product) {
    const PrimitiveId id(0);
    const TensorExpr& e = *stages.primitives[id].expr();
    const auto bytes_of = [&](ValueId v) {
        double n = static_cast<double>(byte_size(stages.values[v].dtype));
        for (const Expr& d : stages.values[v].shape) {
            Bindings all;
            for (const Var x : variables(d)) all.emplace(x, assumed);
            n *= static_cast<double>(evaluate(d, all));
        }
        return n;
    };
    for (const auto* list : {&stages.inputs, &stages.outputs})
        for (const ValueId v : *list) once_bytes_ += bytes_of(v);
    sum_bytes_ = static_cast<double>(byte_size(e.body.dtype()));
    result_bytes_ = bytes_of(stages.primitives[id].outputs[0]);
    if (!product) return;
    TileProgram bare;
    bare.stages = stages;
    for (size_t i = 0; i < e.accesses.size(); ++i) {
        const auto load = gpu_load(bare, id, i, *product);
        if (!load) continue;
        loads_.push_back(*load);
        Load copied = *load;
        if (product->group) copied.layout = {};  // the width of swizzled rows depends on the step
        copies_.emplace_back(stages, copied);
    }
}

std::vector<int64_t> GpuNest::clipped(std::span<const int64_t> tile) const {
    std::vector<int64_t> out(tile.begin(), tile.end());
    for (size_t a = 0; a < out.size(); ++a) out[a] = std::min(out[a], stage_.extents[a]);
    return out;
}

int64_t GpuNest::copy_bytes(std::span<const int64_t> tile) const {
    const std::vector<int64_t> points = clipped(tile);
    int64_t bytes = 0;
    for (const GpuCopy& c : copies_) bytes += c.bytes(points);
    return bytes;
}

double GpuNest::operand_bytes(size_t axis) const {
    double bytes = 0;
    for (const OperandModel& o : stage_.operands)
        if (o.in_body && !o.result && o.depends[axis]) bytes += o.bytes(stage_.extents);
    return bytes;
}

GpuWork GpuNest::work(const Micro& micro, std::vector<int64_t> tile, int ahead, const GpuTarget& target,
                      int64_t part) const {
    tile = clipped(tile);
    GpuWork w;
    double steps = 1, parts = 1;
    for (size_t a = 0; a < tile.size(); ++a) {
        int64_t extent = stage_.extents[a];
        if (part != 0 && product_ && a == product_->sum) {
            parts = static_cast<double>(ceil_of(extent, part));
            extent = part;
        }
        (a < stage_.spatial ? w.blocks : steps) *= static_cast<double>(ceil_of(extent, tile[a]));
    }
    w.blocks *= parts;
    const double trips = w.blocks * steps;
    add_compute(w, stage_, micro, tile, trips, copies_, target);
    for (size_t i = 0; i + 1 < stage_.operands.size(); ++i) {
        const double bytes = stage_.operands[i].bytes(tile) * trips;
        w.memory_bytes += bytes;
        if (std::any_of(copies_.begin(), copies_.end(), [&](const GpuCopy& c) { return c.access() == i; }))
            w.shared_bytes += bytes;
    }
    w.memory_bytes += product_ ? result_bytes_ : stage_.result().bytes(tile) * trips;
    w.once_bytes = once_bytes_;
    double results = 1;
    for (size_t a = 0; a < stage_.spatial; ++a) results *= static_cast<double>(tile[a]);
    if (part != 0) add_parts(w, parts, results * sum_bytes_);
    const bool in_flight = micro.matrix && micro.matrix->group() && ahead > 2;
    w.waits = std::max(1.0, steps / (in_flight ? ahead - 1 : ahead));
    if (micro.matrix && !in_flight) w.drains = steps;
    w.block_bytes = ahead * copy_bytes(tile);
    return w;
}

}  // namespace tilewright
