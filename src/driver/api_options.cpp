// The C interface's options, as the pipeline's.

#include "driver/api_options.h"
#include "backend/cpu/onednn.h"
#include "cost/target.h"
#include "driver/api_call.h"
#include "driver/api_operator.h"
#include "driver/inputs.h"
#include "runtime/thread_count.h"

namespace tilewright::api {

tilewright_options options_of(const tilewright_options* given) {
    constexpr size_t kFirst = offsetof(tilewright_options, dim_sizes) + sizeof given->dim_sizes;
    tilewright_options o = tilewright_default_options();
    if (given != nullptr)
        copy_known_fields(given, given->struct_size == 0 ? kFirst : given->struct_size, kFirst, &o, sizeof o,
                          "tilewright_options");
    return o;
}

namespace {

/// `kind`: "dim" or "sample", the prefix of the fields.
std::map<std::string, int64_t> sizes_of(size_t count, const char* const* names, const int64_t* sizes,
                                        const std::string& kind) {
    std::map<std::string, int64_t> out;
    if (count > 0) {
        require_pointer(names, ("options->" + kind + "_names").c_str());
        require_pointer(sizes, ("options->" + kind + "_sizes").c_str());
    }
    for (size_t i = 0; i < count; ++i) {
        require_pointer(names[i], ("options->" + kind + "_names[i]").c_str());
        if (sizes[i] < 0) invalid("dimension '{}' is {}", names[i], sizes[i]);
        out[names[i]] = sizes[i];
    }
    return out;
}

std::map<std::string, DimRange> ranges_of(const tilewright_options& o) {
    std::map<std::string, DimRange> out;
    if (o.range_count > 0) {
        require_pointer(o.range_names, "options->range_names");
        require_pointer(o.ranges, "options->ranges");
    }
    for (size_t i = 0; i < o.range_count; ++i) {
        require_pointer(o.range_names[i], "options->range_names[i]");
        require_pointer(o.ranges[i], "options->ranges[i]");
        out[o.range_names[i]] = parse_dim_range(o.ranges[i]);
    }
    return out;
}

std::vector<FunctionLibrary> functions_of(const tilewright_options& o) {
    std::vector<FunctionLibrary> out;
    if (o.function_library_count > 0) require_pointer(o.function_libraries, "options->function_libraries");
    for (size_t i = 0; i < o.function_library_count; ++i) {
        const tilewright_function_library& f = o.function_libraries[i];
        if (f.path != nullptr) {
            out.push_back(read_function_library(f.path));
            continue;
        }
        require_pointer(f.bytes, "options->function_libraries[i].bytes");
        out.push_back({fmt::format("<functions {}>", i), std::string(static_cast<const char*>(f.bytes), f.size), {}});
    }
    return out;
}

/// The library whose kernels are measured beside generated ones; null if it is not installed.
std::shared_ptr<const cpu::KernelProvider> measured_library() {
    try {
        return std::make_shared<const cpu::OneDnn>();
    } catch (const RuntimeError&) {
        return nullptr;
    }
}

void choose_kernels(const tilewright_options& o, CompileOptions& p) {
    switch (o.orchestrator) {
        case TILEWRIGHT_GREEDY:
            break;
        case TILEWRIGHT_OPTIMAL:
            p.orchestrator = Orchestrator::Optimal;
            break;
        default:
            invalid("options->orchestrator is {}: expected 0 (TILEWRIGHT_GREEDY) or 1 (TILEWRIGHT_OPTIMAL)",
                    static_cast<int>(o.orchestrator));
    }
    if (!(o.measure_seconds >= 0)) invalid("options->measure_seconds is {}: expected at least 0", o.measure_seconds);
    if (o.measure_seconds > 0) p.measure_seconds = o.measure_seconds;
    p.measure = o.measure != 0;
    if (p.measure && p.orchestrator == Orchestrator::Optimal) {
        p.optimal.profile = Profile::Lazy;
        p.provider = measured_library();
    }
    const auto samples = sizes_of(o.sample_count, o.sample_names, o.sample_sizes, "sample");
    if (!samples.empty())
        p.inputs = [samples](const std::vector<ModelIo>& declared) {
            InputRequest request;
            request.dims = samples;
            return make_inputs(declared, request);
        };
}

void choose_layouts(const tilewright_options& o, CompileOptions& p) {
    if (!(o.layout_seconds >= 0)) invalid("options->layout_seconds is {}: expected at least 0", o.layout_seconds);
    switch (o.layouts) {
        case TILEWRIGHT_RULE_LAYOUTS:
            return;
        case TILEWRIGHT_ROW_MAJOR:
            p.layouts = false;
            return;
        case TILEWRIGHT_JOINT_LAYOUTS:
            p.joint.emplace();
            p.joint->measure = o.layout_seconds > 0 && o.tuned == 0;
            p.joint->measure_seconds = o.layout_seconds;
            return;
    }
    invalid("options->layouts is {}: expected 0 to 2 (TILEWRIGHT_..._LAYOUTS, TILEWRIGHT_ROW_MAJOR)",
            static_cast<int>(o.layouts));
}

/// The plan that a tuning has kept.
void choose_tuned_plan(const tilewright_options& o, CompileOptions& p) {
    if (o.tuned == 0) return;
    if (o.measure != 0) invalid("options->tuned measures nothing: leave out options->measure");
    if (o.orchestrator == TILEWRIGHT_OPTIMAL)
        invalid("plans of greedy orchestration are tuned, not TILEWRIGHT_OPTIMAL");
    p.tuned = true;
}

void choose_precision(const tilewright_options& o, CompileOptions& p) {
    if (o.keep_f32_count > 0) require_pointer(o.keep_f32, "options->keep_f32");
    for (size_t i = 0; i < o.keep_f32_count; ++i) {
        require_pointer(o.keep_f32[i], "options->keep_f32[i]");
        p.keep_f32.emplace_back(o.keep_f32[i]);
    }
    if (!(o.max_error >= 0)) invalid("options->max_error is {}: expected at least 0", o.max_error);
    p.max_error = o.max_error;
    switch (o.precision) {
        case TILEWRIGHT_F32_PRODUCTS:
            break;
        case TILEWRIGHT_BF16_PRODUCTS:
            p.precision = Precision::BF16;
            break;
        case TILEWRIGHT_F16_PRODUCTS:
            p.precision = Precision::F16;
            break;
        case TILEWRIGHT_AUTO_PRODUCTS:
            choose_precision_automatically(p);
            break;
        case TILEWRIGHT_F32_FAST_PRODUCTS:
            p.fast_f32 = true;
            break;
        default:
            invalid("options->precision is {}: expected 0 to 4 (TILEWRIGHT_..._PRODUCTS)", o.precision);
    }
}

/// Passes the caller's functions on.
void connect_functions(const tilewright_options& o, PipelineOptions& p) {
    const auto say = [log = o.log, user = o.user](tilewright_severity severity, const std::string& text) {
        if (log != nullptr) log(user, severity, text.c_str());
    };
    const auto step = [say, cancelled = o.cancelled, user = o.user](const std::string& what) {
        if (cancelled != nullptr && cancelled(user) != 0) throw Cancelled("the compilation was cancelled");
        say(TILEWRIGHT_INFO, what);
    };
    p.compile.warn = [say](const std::string& text) { say(TILEWRIGHT_WARNING, text); };
    p.compile.note = [say](const std::string& text) { say(TILEWRIGHT_INFO, text); };
    p.passes.progress = step;
    p.compile.watch = [step](const OrchestrationProgress& at) { step(at.what); };
}

}  // namespace

std::string code_folder(const std::string& folder) {
    if (!folder.empty()) return folder + "/code";
    const auto shared = cache_folder();
    return shared ? *shared + "/code" : "";
}

std::string output_file(const tilewright_options* given) {
    const char* file = options_of(given).output_file;
    return file != nullptr ? file : "";
}

std::map<std::string, int64_t> sample_sizes(const tilewright_options* given) {
    const tilewright_options o = options_of(given);
    return sizes_of(o.sample_count, o.sample_names, o.sample_sizes, "sample");
}

PipelineOptions pipeline_options(const tilewright_options* given) {
    PipelineOptions p;
    const tilewright_options o = options_of(given);
    if (o.threads < 0 || o.threads > kMaxThreads) invalid("{} threads: expected 0 to {}", o.threads, kMaxThreads);
    p.compile.threads = default_thread_count(o.threads);
    if (o.isa != nullptr) p.compile.isa = o.isa;
    p.compile.keep_subnormals = o.keep_subnormals != 0;
    switch (o.numerics) {
        case TILEWRIGHT_NUMERICS_DEFAULT:
            break;
        case TILEWRIGHT_NUMERICS_STRICT:
            p.compile.numerics = Numerics::Strict;
            break;
        case TILEWRIGHT_NUMERICS_FAST:
            p.compile.numerics = Numerics::Fast;
            break;
        default:
            invalid("options->numerics is {}: expected 0 to 2 (TILEWRIGHT_NUMERICS_...)", static_cast<int>(o.numerics));
    }
    choose_precision(o, p.compile);
    p.compile.check_values = o.check_values != 0;
    p.compile.kv_cache = o.kv_cache != 0;
    p.compile.dims = sizes_of(o.dim_count, o.dim_names, o.dim_sizes, "dim");
    p.compile.ranges = ranges_of(o);
    p.compile.functions = functions_of(o);
    p.compile.operators = operators_of({o.operator_count, o.operators, o.operator_library_count, o.operator_libraries});
    p.compile.keep_objects = o.output_file != nullptr;
    choose_kernels(o, p.compile);
    choose_layouts(o, p.compile);
    choose_tuned_plan(o, p.compile);
    if (o.cache_folder != nullptr) {
        p.compile.code_folder = code_folder(o.cache_folder);
        if (o.cache_folder[0] != '\0') p.compile.database = std::string(o.cache_folder) + "/tuning.db";
        p.compile.calibrate = true;
    }
    connect_functions(o, p);
    p.reference = false;
    return p;
}

}  // namespace tilewright::api
