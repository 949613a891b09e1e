#include "driver/estimate_errors.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "cost/estimate.h"
#include "driver/run_times.h"
#include "orchestrate/schedules.h"
#include "program/analysis/access.h"
#include "program/analysis/contraction.h"
#include "tile/walk.h"

namespace tilewright {

namespace {

/// The number of points of these axes; 1 for unknown ones.
double points(const TensorExpr& e, const std::vector<size_t>& axes, const Bindings& sizes) {
    double n = 1;
    for (const size_t a : axes) {
        const Expr extent = substitute(e.extents[a], [&](Var v) -> std::optional<Expr> {
            const auto known = sizes.find(v);
            return known != sizes.end() ? std::optional<Expr>(known->second) : std::nullopt;
        });
        if (extent.is_constant()) n *= static_cast<double>(extent.constant());
    }
    return n;
}

/// Whether an index adds a position in a window to that of the result.
bool reads_windows(const TensorExpr& e) {
    return std::any_of(e.accesses.begin(), e.accesses.end(), [&](const Access& a) {
        return std::any_of(a.index.begin(), a.index.end(), [&](Expr index) {
            bool spatial = false, reduced = false;
            for (const uint32_t axis : axes_of(std::span(&index, 1)))
                (axis < e.spatial ? spatial : reduced) |= !e.extents[axis].is_constant(1);
            return spatial && reduced;
        });
    });
}

std::string kind_of_product(const TensorExpr& e, const Contraction& c, bool on_tiles, const Bindings& sizes) {
    const ContractionAxes a = axes(e, c);
    const bool windows = reads_windows(e);
    const double rows = points(e, a.rows, sizes), columns = points(e, a.columns, sizes);
    if (windows && columns == 1) return "depthwise convolution";
    if (on_tiles) return windows ? "convolution on tile registers" : "product on tile registers";
    if (windows) return "convolution";
    return std::min(rows, columns) == 1 ? "matrix-vector product" : "matrix product";
}

double logarithm(const KernelTime& k) { return std::log(k.measured_us / k.estimated_us); }

EstimateErrors errors_of(std::string kind, const std::vector<const KernelTime*>& kernels) {
    EstimateErrors out;
    out.kind = std::move(kind);
    out.kernels = kernels.size();
    const auto n = static_cast<double>(kernels.size());
    double off = 0, bias = 0, x = 0, y = 0, xx = 0, yy = 0, xy = 0;
    const KernelTime* worst = kernels.front();
    for (const KernelTime* k : kernels) {
        const double a = std::log(k->estimated_us), b = std::log(k->measured_us);
        out.measured_us += k->measured_us;
        off += std::fabs(b - a) / n;
        bias += (b - a) / n;
        x += a / n;
        y += b / n;
        xx += a * a / n;
        yy += b * b / n;
        xy += a * b / n;
        if (std::fabs(logarithm(*k)) > std::fabs(logarithm(*worst))) worst = k;
    }
    out.error = std::exp(off);
    out.bias = std::exp(bias);
    out.worst = *worst;
    const double spread = (xx - x * x) * (yy - y * y);
    if (kernels.size() >= 3 && spread > 0) out.correlation = (xy - x * y) / std::sqrt(spread);
    return out;
}

}  // namespace

std::string kind_of(const TileProgram& kernel, const Bindings& sizes) {
    bool on_tiles = false;
    for (const auto& [path, compute] : walk(kernel).computes)
        on_tiles = on_tiles || (compute->micro.matrix && compute->micro.matrix->tile());
    size_t products = 0;
    bool reduces = false, computes = false;
    std::string kind;
    for (const Primitive& p : kernel.stages.primitives) {
        const TensorExpr* e = p.expr();
        if (e == nullptr) continue;
        const auto c = contraction(*e, Casts::Through);
        if (c && !axes(*e, *c).sum.empty()) {
            ++products;
            kind = kind_of_product(*e, *c, on_tiles, sizes);
        }
        reduces = reduces || e->reducer != Reducer::None;
        const Category of = category(kernel.stages, p);
        computes = computes || (of != Category::Layout && of != Category::Broadcast);
    }
    if (products > 1) return "GEMM chain";
    if (products == 1) return kind;
    return reduces ? "reduction" : computes ? "element-wise" : "copy";
}

std::vector<KernelTime> kernel_times(const CompiledModel& model, Session& session, const std::vector<Tensor>& inputs,
                                     const Bindings& sizes, const Target& target, const ResidualModel* residual) {
    constexpr int kRuns = 15;
    std::map<int, std::vector<double>> us;  // the mean of a run's calls
    std::map<int, std::string> names;
    session.run_in_place(inputs);
    for (int run = 0; run < kRuns; ++run) {
        std::map<int, std::pair<double, int>> sums;
        for (const StepTime& s : profiled_run(session, inputs)) {
            if (s.kernel < 0) continue;
            names.try_emplace(s.kernel, s.name);
            auto& [sum, calls] = sums[s.kernel];
            sum += s.duration_us;
            ++calls;
        }
        for (const auto& [kernel, sum] : sums) us[kernel].push_back(sum.first / sum.second);
    }
    std::vector<KernelTime> out;
    for (const auto& [kernel, times] : us) {
        const TileProgram& tiles = model.kernels().at(static_cast<size_t>(kernel));
        const double seconds = corrected_seconds(tiles, target, stage_models(tiles.stages, sizes), sizes, residual);
        out.push_back({kind_of(tiles, sizes), names[kernel], (seconds + kKernelSeconds) * 1e6, median(times)});
    }
    return out;
}

std::vector<EstimateErrors> estimate_errors(std::span<const KernelTime> kernels, double least_us) {
    std::map<std::string, std::vector<const KernelTime*>> by_kind;
    std::vector<const KernelTime*> all;
    for (const KernelTime& k : kernels) {
        if (k.measured_us < least_us || k.estimated_us <= 0) continue;
        by_kind[k.kind].push_back(&k);
        all.push_back(&k);
    }
    std::vector<EstimateErrors> out;
    if (all.empty()) return out;
    for (const auto& [kind, of] : by_kind) out.push_back(errors_of(kind, of));
    std::stable_sort(out.begin(), out.end(),
                     [](const EstimateErrors& a, const EstimateErrors& b) { return a.measured_us > b.measured_us; });
    out.insert(out.begin(), errors_of("all", all));
    return out;
}

}  // namespace tilewright
