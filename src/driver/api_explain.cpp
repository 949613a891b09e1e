// The part of the C interface that explains plans.

#include <cmath>

#include "compile/limits.h"
#include "driver/api_call.h"
#include "driver/api_options.h"
#include "driver/explain/write.h"
#include "driver/inputs.h"

using namespace tilewright;

struct tilewright_explanation {
    std::string text, json, html;
};

namespace {

/// `name`: of the model, in the explanation; `compiled(pipeline)` compiles it.
template <class Compile>
tilewright_explanation* explained(const std::string& name, const tilewright_options* options, double seconds,
                                  Compile&& compiled) {
    constexpr double kMostSeconds = 3600;
    constexpr size_t kKernels = 20;  // as the tool prints
    if (!(seconds >= 0 && seconds <= kMostSeconds))
        api::invalid("seconds is {}: expected 0 to {}", seconds, kMostSeconds);
    PipelineOptions pipeline = api::pipeline_options(options);
    pipeline.reference = pipeline.keep_rewritten = pipeline.compile.keep_refusals = true;
    const Compilation c = compiled(pipeline);
    const std::map<std::string, int64_t> sizes = api::sample_sizes(options);
    explain::ExplainOptions how;
    how.seconds = seconds;
    how.sized = !sizes.empty();
    how.progress = pipeline.passes.progress;
    how.inputs = [&](const Compilation& of) {
        InputRequest request;
        request.dims = sizes;
        std::vector<Tensor> inputs = make_inputs(of.model->inputs(), request);
        check_limits(of.program, bind_inputs(of.program, inputs));
        return inputs;
    };
    explain::Report report = explain::explain(c, pipeline, how);
    report.model = name;
    return new tilewright_explanation{explain::print(report, kKernels), explain::to_json(report),
                                      explain::to_page(report, explain::codes_of(*c.model, true))};
}

}  // namespace

extern "C" {

tilewright_status tilewright_explain_file(const char* path, const tilewright_options* options, double seconds,
                                          tilewright_explanation** explanation, tilewright_error** error) {
    return api::guarded(error, [&] {
        api::require_pointer(path, "path");
        api::require_pointer(explanation, "explanation");
        *explanation = explained(path, options, seconds,
                                 [&](const PipelineOptions& p) { return compile_model(std::string(path), p); });
    });
}

tilewright_status tilewright_explain_memory(const void* bytes, size_t size, const tilewright_options* options,
                                            double seconds, tilewright_explanation** explanation,
                                            tilewright_error** error) {
    return api::guarded(error, [&] {
        api::require_pointer(bytes, "bytes");
        api::require_pointer(explanation, "explanation");
        *explanation = explained("<memory>", options, seconds,
                                 [&](const PipelineOptions& p) { return compile_model(bytes, size, p); });
    });
}

const char* tilewright_explanation_text(const tilewright_explanation* e) { return e != nullptr ? e->text.c_str() : ""; }
const char* tilewright_explanation_json(const tilewright_explanation* e) { return e != nullptr ? e->json.c_str() : ""; }
const char* tilewright_explanation_html(const tilewright_explanation* e) { return e != nullptr ? e->html.c_str() : ""; }
void tilewright_explanation_free(tilewright_explanation* explanation) { delete explanation; }

}  // extern "C"
