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

double peak_gflops(const Target& target) {
    return target.workers == 1 ? target.fma_gflops_1.value
                               : std::min(target.fma_gflops_all.value, target.fma_gflops_1.value * target.workers);
}

Limit limit_of(const Work& work, const Target& target) {
    Limit limit;
    limit.gflops = peak_gflops(target);
    for (const Bandwidth& b : bandwidths(target)) {
        if (work.bytes > b.bytes) continue;
        limit.level = b.level;
        limit.gbps = b.gbps;
        break;
    }
    if (work.bf16_flops > 0.5 * work.flops) limit.unit = "bf16";
    if (work.byte_flops > 0.5 * work.flops) limit.unit = "int8";
    const double multiplied = work.flops - work.bf16_flops - work.byte_flops +
                              work.bf16_flops / matrix_advantage(target, 2) +
                              work.byte_flops / matrix_advantage(target, 1);
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
