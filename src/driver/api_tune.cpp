// The part of the C interface that tunes models.

#include "base/cancelled.h"
#include "driver/api_call.h"
#include "driver/api_options.h"
#include "driver/inputs.h"
#include "driver/tune_report.h"
#include "tune/allocation.h"

using namespace tilewright;
using namespace tilewright::api;

struct tilewright_tuning {
    TuneReport report;
    std::string text, json;
};

namespace {

void refuse_what_cannot_be_tuned(const tilewright_options* given) {
    const tilewright_options o = options_of(given);
    if (o.orchestrator == TILEWRIGHT_OPTIMAL)
        invalid("plans of greedy orchestration are tuned, not TILEWRIGHT_OPTIMAL");
    if (o.measure != 0) invalid("a tuning measures by itself: leave out options->measure");
    if (o.tuned != 0) invalid("a tuning looks for a plan by itself: leave out options->tuned");
    if (o.precision == TILEWRIGHT_AUTO_PRODUCTS) invalid("tune for one precision, not TILEWRIGHT_AUTO_PRODUCTS");
}

/// `name`: of the model, in reports; `compile(pipeline)` compiles it.
template <class Compile>
tilewright_tuning* tuned(const std::string& name, const tilewright_options* options, const char* budget,
                         Compile&& compile) {
    require_pointer(budget, "budget");
    refuse_what_cannot_be_tuned(options);
    PipelineOptions p = pipeline_options(options);
    if (p.compile.joint) p.compile.joint->measure = false;
    TunedModel about = {name, budget, p.compile.threads, {}};
    p.compile.inputs = [&, sizes = sample_sizes(options)](const std::vector<ModelIo>& declared) {
        InputRequest request;
        request.dims = sizes;
        return make_inputs(declared, request, &about.assumed);
    };
    TunePlanOptions t;
    t.budget = parse_tuning_budget(budget);
    bool cancelled = false;  // ends the tuning, not the compilation that reports it
    const auto step = [&cancelled, say = p.passes.progress](const std::string& what) {
        if (!cancelled) try {
                say(what);
            } catch (const Cancelled&) {
                cancelled = true;
            }
    };
    p.passes.progress = step;
    t.watch = [&](const TuningState& s) { step(to_text(s)); };
    t.interrupted = [&] { return cancelled; };
    auto made = std::make_unique<tilewright_tuning>();
    p.compile.tune = [&](const PlanToTune& plan) { made->report = tune_plan(plan, t); };
    compile(p);
    made->text = to_text(made->report, about);
    made->json = to_json(made->report, about);
    return made.release();
}

}  // namespace

extern "C" {

tilewright_status tilewright_tune_file(const char* path, const tilewright_options* options, const char* budget,
                                       tilewright_tuning** tuning, tilewright_error** error) {
    return guarded(error, [&] {
        require_pointer(path, "path");
        require_pointer(tuning, "tuning");
        *tuning = tuned(path, options, budget, [&](const PipelineOptions& p) { compile_model(std::string(path), p); });
    });
}

tilewright_status tilewright_tune_memory(const void* bytes, size_t size, const tilewright_options* options,
                                         const char* budget, tilewright_tuning** tuning, tilewright_error** error) {
    return guarded(error, [&] {
        require_pointer(bytes, "bytes");
        require_pointer(tuning, "tuning");
        *tuning = tuned("<memory>", options, budget, [&](const PipelineOptions& p) { compile_model(bytes, size, p); });
    });
}

double tilewright_tuning_default_ms(const tilewright_tuning* t) { return t != nullptr ? 1e3 * t->report.initial : 0; }
double tilewright_tuning_tuned_ms(const tilewright_tuning* t) { return t != nullptr ? 1e3 * t->report.tuned : 0; }
int32_t tilewright_tuning_kept(const tilewright_tuning* t) { return t != nullptr && t->report.kept ? 1 : 0; }
const char* tilewright_tuning_text(const tilewright_tuning* t) { return t != nullptr ? t->text.c_str() : ""; }
const char* tilewright_tuning_json(const tilewright_tuning* t) { return t != nullptr ? t->json.c_str() : ""; }
void tilewright_tuning_free(tilewright_tuning* tuning) { delete tuning; }

}  // extern "C"
