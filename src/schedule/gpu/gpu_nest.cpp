#include "schedule/gpu/gpu_nest.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "base/error.h"

namespace tilewright {

namespace {

constexpr int64_t kBanks = 32, kBankBytes = 4, kVectorBytes = 16, kWarp = 32;

int64_t ceil_of(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }

}  // namespace

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
    result_bytes_ = bytes_of(stages.primitives[id].outputs[0]);
    if (!product) return;
    TileProgram bare;
    bare.stages = stages;
    for (size_t i = 0; i < e.accesses.size(); ++i) {
        const auto load = gpu_load(bare, id, i, *product);
        if (!load) continue;
        loads_.push_back(*load);
        const Access& a = e.accesses[i];
        Copied c;
        c.access = i;
        c.element_bytes = static_cast<int64_t>(byte_size(stages.values[a.value].dtype));
        c.order.resize(a.index.size());
        std::iota(c.order.begin(), c.order.end(), size_t{0});
        for (const layout::Primitive& primitive : load->layout.primitives) {
            const auto* pad = std::get_if<layout::Pad>(&primitive);
            if (const auto* turned = std::get_if<layout::Reorder>(&primitive)) {
                c.order = turned->permutation;
            } else {
                TW_CHECK(pad != nullptr && pad->dim + 1 == c.order.size() && pad->before == 0,
                         "copies are padded rows");
                c.room = pad->after;
            }
        }
        for (const Expr& index : a.index) {
            c.reaches.emplace_back(index, 1);
            c.coefficients.emplace_back(e.extents.size(), 0);
            for (size_t k = 0; k < e.extents.size(); ++k)
                if (const auto linear = linear_in(index, {VarKind::Axis, static_cast<uint32_t>(k)}))
                    c.coefficients.back()[k] = linear->coefficient.constant();
        }
        copied_.push_back(std::move(c));
    }
}

int64_t GpuNest::Copied::elements(std::span<const int64_t> tile) const {
    int64_t n = 1;
    for (size_t d = 0; d < order.size(); ++d)
        n *= reaches[order[d]].over(tile) + 1 + (d + 1 == order.size() ? room : 0);
    return n;
}

std::vector<int64_t> GpuNest::Copied::strides(std::span<const int64_t> tile) const {
    std::vector<int64_t> out(tile.size(), 0);
    int64_t stride = 1;
    for (size_t d = order.size(); d-- > 0;) {
        for (size_t a = 0; a < out.size(); ++a) out[a] += stride * coefficients[order[d]][a];
        stride *= reaches[order[d]].over(tile) + 1 + (d + 1 == order.size() ? room : 0);
    }
    return out;
}

std::vector<int64_t> GpuNest::clipped(std::span<const int64_t> tile) const {
    std::vector<int64_t> out(tile.begin(), tile.end());
    for (size_t a = 0; a < out.size(); ++a) out[a] = std::min(out[a], stage_.extents[a]);
    return out;
}

int64_t GpuNest::copy_bytes(std::span<const int64_t> tile) const {
    const std::vector<int64_t> points = clipped(tile);
    int64_t bytes = 0;
    // As plan_buffers: whole cache lines, and room for a vector behind each.
    for (const Copied& c : copied_) bytes += ceil_of(c.elements(points) * c.element_bytes, 64) * 64 + 64;
    return bytes;
}

GpuWork GpuNest::work(const Micro& micro, std::vector<int64_t> tile, int ahead, const GpuTarget& target) const {
    tile = clipped(tile);
    GpuWork w;
    double steps = 1;
    for (size_t a = 0; a < tile.size(); ++a)
        (a < stage_.spatial ? w.blocks : steps) *= static_cast<double>(ceil_of(stage_.extents[a], tile[a]));
    const double trips = w.blocks * steps;
    add_compute(w, stage_, micro, tile, trips, target);
    for (size_t i = 0; i + 1 < stage_.operands.size(); ++i) {
        const double bytes = stage_.operands[i].bytes(tile) * trips;
        w.memory_bytes += bytes;
        if (std::any_of(copied_.begin(), copied_.end(), [&](const Copied& c) { return c.access == i; }))
            w.shared_bytes += bytes;
    }
    w.memory_bytes += product_ ? result_bytes_ : stage_.result().bytes(tile) * trips;
    w.once_bytes = once_bytes_;
    w.waits = std::max(1.0, steps / ahead);
    w.block_bytes = ahead * copy_bytes(tile);
    return w;
}

std::vector<double> GpuNest::bank_conflicts(const Micro& micro, std::span<const int64_t> tile) const {
    std::vector<double> out(stage_.operands.size(), 0);
    const std::vector<int64_t> points = clipped(tile);
    // As partition.h deals tiles: the vector axis fastest, then the others from the last to the first.
    std::vector<size_t> order;
    if (micro.vector_axis && *micro.vector_axis < stage_.spatial) order.push_back(*micro.vector_axis);
    for (size_t a = stage_.spatial; a-- > 0;)
        if (micro.vector_axis != a) order.push_back(a);
    std::vector<std::vector<int64_t>> first(kWarp, std::vector<int64_t>(points.size(), 0));  // point of each thread
    for (int64_t t = 0; t < kWarp; ++t) {
        int64_t rest = t;
        for (const size_t a : order) {
            const int64_t registers = std::min(std::max<int64_t>(1, micro.registers[a]), points[a]);
            const int64_t tiles = ceil_of(points[a], registers);
            // A strip of it lies side by side, the others as far apart as all tiles' strips reach.
            const int64_t virtual_threads = a < micro.virtual_threads.size() ? micro.virtual_threads[a] : 1;
            first[static_cast<size_t>(t)][a] = rest % tiles * (registers / std::max<int64_t>(1, virtual_threads));
            rest /= tiles;
        }
    }
    for (const Copied& c : copied_) {
        const std::vector<int64_t> strides = c.strides(points);
        // Vectors where some register tile lies side by side.
        bool vectors = false;
        for (size_t a = 0; a < stage_.spatial; ++a) {
            const int64_t strip = micro.registers[a] / std::max<int64_t>(1, micro.virtual_threads[a]);
            vectors = vectors || (strides[a] == 1 && strip * c.element_bytes >= kVectorBytes);
        }
        const int64_t bytes = vectors ? kVectorBytes : c.element_bytes;
        const int64_t together = std::min(kWarp, kBanks * kBankBytes / bytes);  // threads served at a time
        double loads = 0;
        for (int64_t from = 0; from < kWarp; from += together) {
            std::map<int64_t, std::set<int64_t>> words;  // of each bank
            for (int64_t t = from; t < from + together; ++t) {
                int64_t offset = 0;
                for (size_t a = 0; a < points.size(); ++a) offset += first[static_cast<size_t>(t)][a] * strides[a];
                const int64_t begin = offset * c.element_bytes / kBankBytes;
                for (int64_t w = begin; w < begin + std::max<int64_t>(1, bytes / kBankBytes); ++w)
                    words[w % kBanks].insert(w);
            }
            size_t most = 1;
            for (const auto& [bank, at] : words) most = std::max(most, at.size());
            loads += static_cast<double>(most);
        }
        out[c.access] = loads * static_cast<double>(together) / kWarp;
    }
    return out;
}

}  // namespace tilewright
