#include "driver/opspec/limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "cost/estimate.h"
#include "orchestrate/plan.h"

namespace tilewright {

namespace {

double bytes_of(const Value& v) {
    double bytes = static_cast<double>(byte_size(v.dtype));
    for (const Expr d : v.shape) bytes *= static_cast<double>(d.constant());
    return bytes;
}

/// The number of different elements that an access of an expression reads: the product of the axes that its index uses.
double elements_read(const TensorExpr& e, const Access& access) {
    std::vector<bool> used(e.extents.size());
    const std::function<void(const Access&)> mark = [&](const Access& a) {
        for (const Expr x : a.index)
            for (const Var v : variables(x)) {
                if (v.kind == VarKind::Axis) used[v.id] = true;
                if (v.kind == VarKind::Load) mark(e.accesses[v.id]);
            }
    };
    mark(access);
    double elements = 1;
    for (size_t a = 0; a < used.size(); ++a)
        if (used[a]) elements *= static_cast<double>(e.extents[a].constant());
    return elements;
}

/// An upper bound of the number of elements of each value that some primitives read.
class Reads {
  public:
    void add(const Program& program, const Primitive& p) {
        if (const TensorExpr* e = p.expr())
            for (const Access& a : e->accesses) elements_[a.value] += elements_read(*e, a);
        else
            for (const ValueId v : p.inputs()) elements_[v] += bytes_of(program.values[v]);
    }
    double bytes(const Program& program, ValueId v) const {
        const auto it = elements_.find(v);
        if (it == elements_.end()) return 0;
        const Value& value = program.values[v];
        return std::min(bytes_of(value), it->second * static_cast<double>(byte_size(value.dtype)));
    }

  private:
    std::map<ValueId, double> elements_;
};

}  // namespace

double bytes_of(const Program& program) {
    Reads reads;
    for (const Primitive& p : program.primitives) reads.add(program, p);
    double bytes = 0;
    for (const ValueId v : program.inputs) bytes += reads.bytes(program, v);
    for (const auto& constant : program.constants) bytes += reads.bytes(program, constant.first);
    for (const ValueId v : program.outputs) bytes += bytes_of(program.values[v]);
    return bytes;
}

std::vector<Bandwidth> bandwidths(const Target& target) {
    std::vector<Bandwidth> out;
    if (target.gpu) {
        const GpuTarget& gpu = *target.gpu;
        return {{"L2", gpu.rates.cache_bytes * gpu.ghz * gpu.multiprocessors, static_cast<double>(gpu.l2_bytes)},
                {"memory", gpu.rates.memory_gbps, std::numeric_limits<double>::infinity()}};
    }
    for (const CacheLevel& cache : target.caches) {
        const int copies = std::max(1, target.workers / std::max(1, cache.shared_by));
        out.push_back({fmt::format("L{}", cache.level), cache.load_gbps.value * target.workers,
                       static_cast<double>(cache.usable_bytes()) * copies});
    }
    out.push_back({"memory",
                   target.workers == 1
                       ? target.memory_gbps_1.value
                       : std::min(target.memory_gbps_all.value, target.memory_gbps_1.value * target.workers),
                   std::numeric_limits<double>::infinity()});
    return out;
}

double peak_gflops(const Target& target, Precision precision) {
    if (target.gpu) {
        const GpuRates& r = target.gpu->rates;
        if (precision == Precision::F32) return r.f32_gflops;
        return precision == Precision::TF32 ? std::max(r.warp_tf32_gflops, r.group_tf32_gflops)
                                            : std::max(r.warp_f16_gflops, r.group_f16_gflops);
    }
    return target.workers == 1 ? target.fma_gflops_1.value
                               : std::min(target.fma_gflops_all.value, target.fma_gflops_1.value * target.workers);
}

Limit limit_of(const Work& work, const Target& target, Precision precision) {
    Limit limit;
    limit.gflops = peak_gflops(target, precision);
    for (const Bandwidth& b : bandwidths(target)) {
        if (work.bytes > b.bytes) continue;
        limit.level = b.level;
        limit.gbps = b.gbps;
        break;
    }
    if (target.gpu && precision != Precision::F32) limit.unit = to_string(precision);
    if (work.bf16_flops > 0.5 * work.flops) limit.unit = target.gpu ? "f16" : "bf16";
    if (work.byte_flops > 0.5 * work.flops && !target.gpu) limit.unit = "int8";
    // How many products of such factors take the time of one of f32.
    const double pairs = target.gpu ? peak_gflops(target, Precision::F16) / limit.gflops : matrix_advantage(target, 2),
                 bytes = target.gpu ? 1 : matrix_advantage(target, 1);
    const double multiplied =
        work.flops - work.bf16_flops - work.byte_flops + work.bf16_flops / pairs + work.byte_flops / bytes;
    const double compute = multiplied / limit.gflops * 1e-6, memory = work.bytes / limit.gbps * 1e-6;
    limit.compute = compute >= memory;
    limit.ms = std::max(compute, memory);
    return limit;
}

double estimate_ms(const CompiledModel& model, const Target& target) {
    double ms = 0;
    for (const Step& step : model.plan().steps)
        if (const auto* call = std::get_if<KernelCall>(&step.what))
            ms += estimate(model.kernels()[call->kernel], target).seconds * 1e3;
    return ms;
}

}  // namespace tilewright
