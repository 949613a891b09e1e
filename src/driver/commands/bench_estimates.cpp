#include "driver/commands/bench_estimates.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/option_error.h"
#include "compile/limits.h"
#include "cost/residual.h"
#include "driver/estimate_errors.h"
#include "driver/files.h"
#include "driver/gpu_run.h"
#include "runtime/thread_count.h"

namespace tilewright {

namespace {

using Json = nlohmann::ordered_json;

/// Shorter times are mostly those of the clock and of handing out tasks.
constexpr double kLeastMicroseconds = 5;

std::vector<KernelTime> kernel_times(const ModelOptions& o, const DataOptions& data) {
    Progress progress("estimating " + o.model, o.progress);
    PipelineOptions pipeline = pipeline_options(o);
    pipeline.keep_rewritten = true;  // a model from the cache has no tile programs
    pipeline.compile.ranges = dim_settings(data.dims).ranges;
    const Compilation c = compile(o, pipeline, progress);
    const std::vector<Tensor> inputs = inputs_of(c, data);
    progress.step("running");
    Session session = session_of(o, c);
    Target target = c.model->target();
    target.workers = default_thread_count(o.threads);
    const auto residual = o.no_calibrate ? std::nullopt : load_residual(target);
    return kernel_times(*c.model, session, inputs, bind_inputs(c.program, inputs), target,
                        residual ? &*residual : nullptr);
}

Json to_json(const KernelTime& k) {
    return {{"kind", k.kind}, {"name", k.name}, {"estimated_us", k.estimated_us}, {"measured_us", k.measured_us}};
}

void print(const std::vector<EstimateErrors>& errors) {
    std::printf("%-29s %7s %9s %11s %6s %6s  %s\n", "kind", "kernels", "ms", "correlation", "error", "bias",
                "worst: measured, estimated");
    for (const EstimateErrors& e : errors) {
        const std::string correlation = e.kernels < 3 ? "" : fmt::format("{:.3f}", e.correlation);
        std::printf("%-29s %7zu %9.2f %11s %6.2f %6.2f  %.0f us, %.0f us: %s\n", e.kind.c_str(), e.kernels,
                    e.measured_us * 1e-3, correlation.c_str(), e.error, e.bias, e.worst.measured_us,
                    e.worst.estimated_us, e.worst.name.c_str());
    }
}

}  // namespace

int bench_estimates(ModelOptions o, const DataOptions& data, const std::vector<std::string>& models,
                    const std::string& json) {
    if (gpu_of(o.target)) throw OptionError("--estimates is for CPUs", "leave --target out");
    std::vector<KernelTime> kernels;
    Json list = Json::array();
    for (const std::string& model : models) {
        o.model = model;
        for (const KernelTime& k : kernel_times(o, data)) {
            Json entry = to_json(k);
            entry["model"] = model;
            list.push_back(std::move(entry));
            kernels.push_back(k);
        }
    }
    const std::vector<EstimateErrors> errors = estimate_errors(kernels, kLeastMicroseconds);
    if (!json.empty()) {
        Json kinds = Json::array();
        for (const EstimateErrors& e : errors)
            kinds.push_back({{"kind", e.kind},
                             {"kernels", e.kernels},
                             {"measured_us", e.measured_us},
                             {"correlation", e.correlation},
                             {"error", e.error},
                             {"bias", e.bias},
                             {"worst", to_json(e.worst)}});
        write_json(json, Json{{"least_us", kLeastMicroseconds}, {"kinds", kinds}, {"kernels", list}}.dump(2));
    }
    std::printf("%zu kernels of %zu models, %d threads; those of %.0f us and more:\n", kernels.size(), models.size(),
                default_thread_count(o.threads), kLeastMicroseconds);
    print(errors);
    return 0;
}

}  // namespace tilewright
