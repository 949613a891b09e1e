#include "compile/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "base/error.h"
#include "compile/measured_costs.h"
#include "cost/target.h"
#include "orchestrate/options.h"
#include "runtime/thread_count.h"

namespace tilewright {

namespace {

/// Sets the scheduler of `o` and its kernel costs.
void choose_scheduler(OrchestrateOptions& o, const CompileOptions& options, const Target& host,
                      const cpu::CodegenOptions& codegen, int64_t weight_bytes) {
    Scheduling& s = o.scheduling;
    s.kind = options.scheduler;
    s.trials = options.trials;
    s.gpu = options.gpu;
    if (s.gpu && options.orchestrator == Orchestrator::Optimal)
        throw RuntimeError(
            "optimal orchestration has costs of this CPU's kernels only: use --orchestrate greedy for a GPU");
    if (s.gpu) return;
    if (s.kind == SchedulerKind::Default && options.orchestrator == Orchestrator::Greedy) return;
    Target machine = host;
    machine.vector_bits = codegen.isa.vector_bits;
    machine.vector_registers = o.target.vector_registers;
    s.machine.emplace(machine, o.target.threads);
    MeasuringOptions measuring;
    measuring.schedules = options.measure || s.kind == SchedulerKind::Search;
    measuring.kernels = options.orchestrator == Orchestrator::Optimal && options.optimal.profile != Profile::None;
    if (!measuring.schedules && !measuring.kernels) return;
    if (options.measure) measuring.seconds = options.measure_seconds;
    measuring.threads = o.target.threads;
    measuring.weight_bytes = weight_bytes;
    measuring.host = host;
    measuring.codegen = codegen;
    Measuring found = measure_on_host(measuring, options, estimated_costs(s));
    s.costs = std::move(found.costs);
    o.remember = std::move(found.remember);
}

/// The number of threads of schedules, and with it the order of sums, under Numerics::Strict.
constexpr int kStrictThreads = 8;

}  // namespace

Target planned_machine(const CompileOptions& options) { return options.machine ? *options.machine : current_target(); }

cpu::CodegenOptions codegen_options(const CompileOptions& options) {
    cpu::CodegenOptions codegen;
    codegen.isa = cpu::Isa::named(options.isa);
    codegen.cache_bytes = last_cache_bytes(planned_machine(options));
    if (!options.code_folder.empty())
        codegen.known = std::make_shared<CodeCache>(options.code_folder, CodeCache::kMostBytes, options.warn);
    return codegen;
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

ScheduleTarget schedule_target(const Target& machine, const cpu::Isa& isa, int threads) {
    ScheduleTarget rule;
    rule.lanes = isa.lanes_f32();
    rule.vector_registers = isa.vector_bits == 512 ? 32 : 16;
    rule.threads = threads;
    for (const CacheLevel& level : machine.caches)
        if (level.level == 2) rule.l2_bytes = level.usable_bytes();
    rule.cache_bytes = last_cache_bytes(machine);
    return rule;
}

OrchestrateOptions orchestrate_options(const CompileOptions& options, int64_t weight_bytes) {
    const cpu::CodegenOptions codegen = codegen_options(options);
    OrchestrateOptions o;
    static_cast<GroupingOptions&>(o) = options;
    o.layouts = options.layouts && !options.gpu;  // blocks of channels are for a CPU's vectors
    o.schedules = options.schedules;
    o.kept = codegen.known;
    int threads = options.threads > 0 ? options.threads : default_thread_count();
    if (options.numerics == Numerics::Strict) threads = kStrictThreads;
    const Target machine = planned_machine(options);
    o.target = schedule_target(machine, codegen.isa, threads);
    choose_scheduler(o, options, machine, codegen, weight_bytes);
    return o;
}

}  // namespace tilewright
