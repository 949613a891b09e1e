// tune: measures schedules of a model's kernels within a budget, and keeps the plan that they make.

#include <CLI/CLI.hpp>
#include <cstdio>

#include "artifact/model_file.h"
#include "base/error.h"
#include "compile/tune_plan.h"
#include "driver/commands.h"
#include "driver/commands/common.h"
#include "driver/files.h"
#include "driver/tune_report.h"
#include "tune/allocation.h"

namespace tilewright {

namespace {

struct TuneCommand {
    ModelOptions model;
    DataOptions data;
    std::string budget = "60s", json;
    size_t jobs = 0;  ///< 0: measures on this machine
};

void refuse_what_cannot_be_tuned(const TuneCommand& o) {
    const auto refuse = [](const char* option, const char* why) { throw CLI::ValidationError(option, why); };
    if (artifact::is_model_file(o.model.model)) refuse("tune", "the model is compiled already: give the ONNX file");
    const SchedulerOptions& s = o.model.scheduler;
    if (s.measure || !s.profile.empty() || searches(scheduler_from_string(s.scheduler).value()))
        refuse("tune", "it measures by itself: leave out --measure, --profile and this --scheduler");
    if (s.orchestrate != "greedy") refuse("--orchestrate", "plans of greedy orchestration are tuned");
    if (!o.model.target_file.empty())
        refuse("--target-file", "kernels of another machine cannot be measured on this one");
    if (o.jobs > 0 && !parse_tuning_budget(o.budget).candidates)
        refuse("--jobs", "a budget of time is of one machine: give --budget a number of candidates");
    if (o.model.precision == "auto") refuse("--precision", "tune for one precision: f32 or bf16");
}

int command_tune(const TuneCommand& o) {
    refuse_what_cannot_be_tuned(o);
    if (!o.json.empty()) check_writable(o.json);
    TunePlanOptions t;
    t.budget = parse_tuning_budget(o.budget);
    t.jobs = o.jobs;
    std::map<std::string, int64_t> assumed;
    PipelineOptions p = pipeline_options(o.model);
    p.reference = false;
    p.compile.ranges = dim_settings(o.data.dims).ranges;
    if (p.compile.joint) p.compile.joint->measure = false;
    p.compile.inputs = [&](const std::vector<ModelIo>& declared) {
        InputRequest request = o.data.request;
        request.dims = dims_of(o.data);
        return make_inputs(declared, request, &assumed);
    };
    TuneReport report;
    {
        const Interrupts interrupts;
        Progress progress("tuning " + o.model.model, o.model.progress);
        t.watch = [&](const TuningState& s) { progress.step(to_text(s)); };
        t.interrupted = Interrupts::seen;
        p.compile.tune = [&](const PlanToTune& plan) { report = tune_plan(plan, t); };
        compile(o.model, p, progress);
    }
    if (o.jobs > 0) {
        for (const TuneJob& job : report.jobs) std::puts(to_json_line(job).c_str());
        return 0;
    }
    const TunedModel about = {o.model.model, o.budget, p.compile.threads, assumed};
    write_json(o.json, to_json(report, about));
    std::fputs(to_text(report, about).c_str(), stdout);
    return 0;
}

}  // namespace

void add_tune_command(CLI::App& app, int& status) {
    CLI::App* c = app.add_subcommand("tune", "measure schedules of a model's kernels within a budget, keep what gains");
    auto o = std::make_shared<TuneCommand>();
    add_model_options(*c, o->model);
    add_precision_option(*c, o->model);
    add_data_options(*c, o->data);
    c->add_option("--budget", o->budget,
                  fmt::format("candidates that are tried (1000), or time (90s, 10m, 1.5h) ({})", o->budget))
        ->check([](const std::string& text) -> std::string {
            try {
                parse_tuning_budget(text);
                return "";
            } catch (const ModelError& e) {
                return fmt::format("{}: {}", e.what(), e.hint());
            }
        });
    c->add_option(
         "--jobs", o->jobs,
         "measure nothing: print at most this many rounds of the budget that are not measured yet, as jobs for "
         "`tilewright measure`, on any machine like this one; no line is left when all are")
        ->check(CLI::Range(1, 100000));
    add_json_option(*c, o->json);
    c->footer(
        "Every candidate is checked against exact arithmetic and measured at the plan's number of threads; the result\n"
        "is kept in the tuning database. The tuned plan is kept if its whole runs are 2 % faster than the default\n"
        "plan's, in turns; run, bench, compile and others use it with --tuned, and do not measure. The same command\n"
        "continues after an interrupt or a crash, and recalls what was measured. A number of candidates counts "
        "recalled\n"
        "ones, too; a time is of this call. The first Ctrl-C ends with the table, the second at once.\n\n"
        "Columns: calls in the default (-> tuned) plan; share of the kernels' time; microseconds of the default and "
        "of\n"
        "the tuned schedule; limit: the machine's lower bound, as a share of the tuned time; how the schedule was "
        "found.\n"
        "JSON: default_ms, tuned_ms (null: not compared), kept, reason, ended, candidates, failed, wrong, recalled,\n"
        "layouts (--layouts joint or ppo: kept, default_ms, ms),\n"
        "kernels (name, chain, calls, tuned_calls, share, default_us, tuned_us, limit_us, schedule, candidates, "
        "...).\n\n"
        "Examples:\n"
        "  tilewright tune model.onnx --budget 60s\n"
        "  tilewright tune model.onnx --budget 1000 --threads 2 --json tuned.json\n"
        "  tilewright tune decoder.onnx --dim seq=1..512:1,128 --dim seq=128 --budget 10m\n"
        "  tilewright bench model.onnx --tuned --threads 2");
    c->callback([o, &status] { status = command_tune(*o); });
}

}  // namespace tilewright
