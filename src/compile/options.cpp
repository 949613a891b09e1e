#include "compile/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "base/error.h"
#include "compile/measured_costs.h"
#include "cost/first_calibration.h"
#include "cost/residual.h"
#include "cost/target.h"
#include "model/gpu_costs.h"
#include "orchestrate/options.h"
#include "runtime/thread_count.h"
#include "schedule/dynamic/joint_schedules.h"
#include "tune/local_model.h"

namespace tilewright {

namespace {

/// Throws RuntimeError where this machine has no GPU.
std::shared_ptr<const KernelCosts> costs_on_gpu(const Scheduling& s, const CompileOptions& options) {
    const cuda::Gpu gpu;
    const auto note = [&](const std::string& text) {
        if (options.note) options.note(text);
    };
    GpuMeasuring how;
    if (auto kept = code_cache(options)) how.cache = std::move(kept);
    how.threads = s.target.workers;
    how.seconds = options.measure_seconds;
    how.database = open_database(options);
    how.warn = options.warn;
    return std::make_shared<const GpuCosts>(gpu, s.target, s.precision, gpu_libraries(gpu, note), std::move(how));
}

/// Sets the scheduler of `o` and its kernel costs.
void choose_scheduler(OrchestrateOptions& o, const CompileOptions& options, int64_t weight_bytes) {
    Scheduling& s = o.scheduling;
    s.kind = options.scheduler;
    s.trials = options.trials;
    s.chains_without = options.chains_without;
    s.all_chains = options.all_chains;
    s.precision = options.precision;
    s.gpu_libraries = options.gpu_libraries;
    if (s.target.gpu) {
        const bool selects = options.orchestrator == Orchestrator::Optimal;
        if (selects && (options.measure || options.optimal.profile != Profile::None))
            throw RuntimeError(
                "optimal orchestration measures this CPU's kernels only: use --profile none without --measure, or "
                "--orchestrate greedy, for a GPU");
        s.estimates = true;
        if (options.measure) s.costs = costs_on_gpu(s, options);
        return;
    }
    if (s.kind == SchedulerKind::Default && options.orchestrator == Orchestrator::Greedy && !options.joint) return;
    s.estimates = true;
    MeasuringOptions measuring;
    measuring.schedules = options.measure || searches(s.kind);
    const bool selects = options.orchestrator == Orchestrator::Optimal && options.optimal.profile != Profile::None;
    const bool tunes_layouts = options.layouts && options.joint && options.joint->measure;
    measuring.kernels = selects || tunes_layouts;
    if (!measuring.schedules && !measuring.kernels) return;
    if (options.measure)
        measuring.seconds = options.measure_seconds;
    else if (tunes_layouts && !selects)
        measuring.seconds = options.joint->measure_seconds;
    measuring.weight_bytes = weight_bytes;
    measuring.target = s.target;
    Measuring found = measure_on_host(measuring, options, estimated_costs(s));
    s.costs = std::move(found.costs);
    o.remember = std::move(found.remember);
}

/// Number of threads of schedules under Numerics::Strict; it determines the order of sums.
constexpr int kStrictThreads = 8;

}  // namespace

Target target_of(const CompileOptions& options) {
    Target target = options.machine ? *options.machine : current_target();
    if (!options.isa.empty()) {
        const std::optional<CodeLevel> level = code_level_from_string(options.isa);
        const bool here = level && level->arch() == kHostArch;
        if (!here && !(level && options.keep_objects))
            model_error("unknown instruction set '{}': expected {}", options.isa, fmt::join(selectable_isas(), " or "));
        target = restricted(here ? std::move(target) : generic_target(level->isa), *level);
    }
    target.workers = options.threads > 0 ? options.threads : default_thread_count();
    if (options.numerics == Numerics::Strict) target.workers = kStrictThreads;
    target.gpu = options.gpu;
    target.sums_in_f16 = (target.sums_in_f16 || options.precision == Precision::F16) && !options.gpu;
    return target;
}

void complete_machine(CompileOptions& options) {
    if (options.machine) return;
    options.machine =
        options.calibrate && !options.gpu ? calibrated_target(options.note, options.warn) : current_target();
    if (!options.calibrate || options.gpu || !options.isa.empty() || options.tuned || options.tune) return;
    std::string why;
    if (auto learned = load_residual(target_of(options), &why))
        options.residual = std::make_shared<const ResidualModel>(*std::move(learned));
    else if (!why.empty() && options.warn)
        options.warn(fmt::format("estimates are not corrected: {}", why));
}

std::shared_ptr<const CodeCache> code_cache(const CompileOptions& options) {
    if (options.code_folder.empty()) return nullptr;
    return std::make_shared<CodeCache>(options.code_folder, options.warn);
}

void choose_precision_automatically(CompileOptions& options) {
    options.precision = Precision::BF16;
    options.where_faster = true;
    if (options.max_error == 0) options.max_error = kAutoMaxError;
}

std::string_view to_string(Numerics numerics) {
    constexpr std::array<std::string_view, 3> kNames = {"strict", "default", "fast"};
    return kNames[static_cast<size_t>(numerics)];
}

std::optional<Numerics> numerics_from_string(std::string_view text) {
    for (const Numerics n : {Numerics::Strict, Numerics::Default, Numerics::Fast})
        if (to_string(n) == text) return n;
    return std::nullopt;
}

bool compares_layouts(const CompileOptions& options) {
    return options.gpu && options.precision == Precision::F32 && options.layouts && !options.without.layouts_first;
}

int bf16_terms_of(const CompileOptions& options) {
    if (options.precision != Precision::F32 || options.gpu || options.keep_subnormals ||
        options.orchestrator == Orchestrator::Optimal)
        return 0;
    if (options.fast_f32) return 2;
    return options.numerics == Numerics::Strict ? 0 : 3;
}

OrchestrateOptions orchestrate_options(const CompileOptions& options, int64_t weight_bytes) {
    OrchestrateOptions o;
    static_cast<GroupingOptions&>(o) = options;
    o.bf16_terms = bf16_terms_of(options);
    o.layouts = options.layouts && !compares_layouts(options);
    o.sizes_apart = !options.gpu;
    o.schedules = options.schedules;
    o.kept = code_cache(options);
    o.scheduling.target = target_of(options);
    o.scheduling.residual = options.residual;
    choose_scheduler(o, options, weight_bytes);
    return o;
}

void search_jointly(Scheduling& how, const std::vector<SizeSample>& samples, const CompileOptions& options) {
    if (how.kind != SchedulerKind::DietCode || how.target.gpu || samples.size() < 2) return;
    const auto report = [note = options.note](const std::string& kernel, const dynamic::JointResult& r) {
        if (!note) return;
        note(
            fmt::format("{}: {} micro-kernels of {} for {} samples of sizes, mean loss {:.1f} %, worst {:.1f} %; "
                        "{} measurements, {} left out, predictions off by {:.0f} %; {}",
                        kernel, r.cover.ways.size(), r.kernels, r.chosen.size(), 100 * r.cover.mean_loss,
                        100 * r.cover.worst_loss, r.pairs, r.skipped, 100 * (r.error - 1), r.ended));
    };
    how.joint = std::make_shared<dynamic::JointSchedules>(samples, options.joint_search, make_local_model, report);
}

}  // namespace tilewright
