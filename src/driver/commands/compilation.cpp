// From the options of a command to a compiled model and a session: compiled, kept before, or a file of `compile`.

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>

#include "artifact/model_file.h"
#include "base/clock.h"
#include "base/error.h"
#include "compile/kept_models.h"
#include "cost/target.h"
#include "driver/commands/common.h"
#include "driver/files.h"
#include "driver/gpu_run.h"
#include "runtime/thread_count.h"
#include "tune/database.h"

namespace tilewright {

namespace {

/// The folder of cached machine code and schedules; empty: no cache.
std::string code_folder(const ModelOptions& o) {
    const auto folder = cache_folder();
    return folder && !o.no_code_cache ? *folder + "/code" : "";
}

void plan_for_file(CompileOptions& o, const std::string& target_file) {
    if (o.measure || searches(o.scheduler) || o.optimal.profile != Profile::None || (o.joint && o.joint->measure))
        throw CLI::ValidationError("--target-file", "kernels of another machine cannot be measured on this one");
    o.machine = target_from_json(read_file(target_file));
}

void set_precision(CompileOptions& c, const ModelOptions& o) {
    const bool chooses = o.precision == "bf16" || o.precision == "f16" || o.precision == "auto";
    const char* given = !o.keep_f32.empty() ? "--keep-f32" : o.max_error > 0 ? "--max-error" : nullptr;
    if (given != nullptr && !chooses)
        throw CLI::ValidationError(given, "it is about products in 16 bits: give --precision bf16, f16 or auto");
    c.keep_f32 = o.keep_f32;
    c.max_error = o.max_error;
    c.fast_f32 = o.precision == "f32-fast";
    if (o.precision == "auto")
        choose_precision_automatically(c);
    else if (!c.fast_f32)
        c.precision = precision_from_string(o.precision).value();
    if (c.fast_f32 ? c.gpu.has_value() : !c.gpu && o.precision != "f32" && !chooses)
        throw CLI::ValidationError("--precision",
                                   c.gpu ? "f32-fast is for CPUs: give tf32 for a GPU"
                                         : "a CPU computes in f32, bf16 or f16: give --target cuda as well");
}

}  // namespace

PipelineOptions pipeline_options(const ModelOptions& o) {
    PipelineOptions p;
    p.compile.functions = function_libraries(o.operators.functions);
    p.compile.operators = shared_operators(o.operators.libraries);
    p.compile.threads = default_thread_count(o.threads);
    p.compile.isa = o.isa;
    p.compile.fuse = !o.no_fuse;
    p.compile.keep_subnormals = o.keep_subnormals;
    p.compile.numerics = numerics_from_string(o.numerics).value();
    p.compile.check_values = o.check_values;
    p.compile.kv_cache = o.kv_cache;
    std::string refused;
    p.compile.gpu = gpu_of(o.target, &refused);
    if (!refused.empty()) warn_once(fmt::format("the GPU's rates are assumed: {}", refused));
    p.compile.gpu_libraries = o.gpu_libraries || (o.target == "cuda" && has_gpu_libraries());
    set_precision(p.compile, o);
    p.compile.without = o.without;
    p.compile.code_folder = code_folder(o);
    p.compile.warn = warn_once;
    p.compile.calibrate = !o.no_calibrate;
    p.compile.note = print_note;
    o.scheduler.apply(p.compile);
    if (o.no_layouts) p.compile.layouts = false;
    if (!o.target_file.empty()) plan_for_file(p.compile, o.target_file);
    o.rewrite.apply(p);
    o.passes.apply(p);
    return p;
}

namespace {

/// "measuring a kernel of 2 stages, estimated 31 us (12 of 40), 4 s left"
std::string text_of(const OrchestrationProgress& p) {
    std::string text = p.total > 0 ? fmt::format("{} ({} of {})", p.what, p.done + 1, p.total) : p.what;
    if (p.seconds_left > 0) text += fmt::format(", {:.0f} s left", std::ceil(p.seconds_left));
    return text;
}

}  // namespace

Compilation compile(const ModelOptions& o, bool reference) { return compile(o, DataOptions(), reference); }

namespace {

/// A file of `tilewright compile`. There is no program.
Compilation compiled_before(const ModelOptions& o) {
    if (o.target != "cpu") throw CLI::ValidationError("--target", "the model is compiled already, for a CPU");
    for (const CLI::Option* option : o.compiling)
        if (option->count() > 0)
            warn_once(fmt::format("'{}' is compiled already: {} has no effect", o.model, option->get_name()));
    Compilation c;
    const double start = now_ms();
    artifact::ModelFileInfo file =
        artifact::load_model_file(o.model, shared_operators(o.operators.libraries).get(), o.copy_weights);
    c.model = std::move(file.model);
    c.info = std::move(file.about.origin.info);
    c.load_ms = now_ms() - start;
    return c;
}

}  // namespace

Compilation compile(const ModelOptions& o, const DataOptions& data, bool reference) {
    if (artifact::is_model_file(o.model)) {
        if (!dim_settings(data.dims).ranges.empty())
            warn_once(fmt::format("'{}' is compiled already: a range of --dim has no effect", o.model));
        return compiled_before(o);
    }
    Progress progress("compiling " + o.model, o.progress || o.scheduler.measure);
    PipelineOptions p = pipeline_options(o);
    p.reference = reference;
    p.compile.ranges = dim_settings(data.dims).ranges;
    if (given(data)) p.compile.inputs = sample_inputs(data);
    return compile(o, std::move(p), progress);
}

namespace {

void print_times(const std::vector<PassTime>& passes) {
    double all = 0;
    for (const PassTime& p : passes) all += p.ms;
    for (const PassTime& p : passes)
        std::fprintf(stderr, "%10.2f ms %5.1f %%  %s\n", p.ms, 100 * p.ms / all, p.name.c_str());
    std::fprintf(stderr, "%10.2f ms %5.1f %%  all passes\n", all, 100.0);
}

}  // namespace

Compilation compile(const ModelOptions& o, PipelineOptions p, Progress& progress) {
    p.passes.progress = [&](const std::string& pass) { progress.step(pass); };
    p.compile.watch = [&](const OrchestrationProgress& at) { progress.step(text_of(at)); };
    std::optional<Interrupts> interrupts;
    size_t measured = 0;
    if (p.compile.optimal.profile != Profile::None) {
        interrupts.emplace();
        p.compile.watch = [&, show = p.compile.watch](const OrchestrationProgress& at) {
            show(at);
            measured = std::max(measured, at.measured);
            if (Interrupts::seen())
                throw RuntimeError(fmt::format(
                    "interrupted; the {} kernels measured so far are in '{}', and the same command continues from "
                    "there",
                    measured, p.compile.database.empty() ? TuningDatabase::default_path() : p.compile.database));
        };
    }
    Compilation c = o.passes.time ? compile_model(o.model, p) : compile_or_load(o.model, p);
    if (o.passes.time) print_times(c.passes);
    return c;
}

Session session_of(const ModelOptions& o, const Compilation& c) {
    const int threads = default_thread_count(o.threads);
    const std::optional<GpuTarget> gpu = gpu_of(o.target);
    if (!gpu) return Session(c.model, threads);
    Progress progress("compiling kernels of " + o.model);
    const CodeCache cache(code_folder(o), warn_once);
    const auto step = [&](const std::string& text) {
        if (o.progress && text.starts_with("kernel "))  // what libraries have
            std::fprintf(stderr, "%s\n", text.c_str());
        else
            progress.step(text);
    };
    try {
        return Session(load_on_gpu(c.model, cache, threads, step));
    } catch (const RuntimeError& e) {
        std::string kept;
        if (!has_gpu()) try {  // compile for a machine that has a GPU
                compile_for_gpu(*c.model, gpu->capability(), cache, threads, step);
                kept = ", whose machine code is kept";
            } catch (const RuntimeError&) {
                kept = ", as text, since NVRTC is not here";
            }
        throw RuntimeError(fmt::format("{} was compiled for {} ({} kernels{}), but cannot run here: {}", o.model,
                                       o.target, c.model->gpu_kernels().size(), kept, e.what()));
    }
}

}  // namespace tilewright
