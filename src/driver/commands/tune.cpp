// tune: measures schedules of a model's kernels within a budget, and keeps the plan that they make.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "artifact/model_file.h"
#include "base/error.h"
#include "compile/tune_plan.h"
#include "driver/commands.h"
#include "driver/commands/common.h"
#include "driver/files.h"
#include "tune/database.h"

namespace tilewright {

namespace {

using Json = nlohmann::ordered_json;

struct TuneCommand {
    ModelOptions model;
    DataOptions data;
    std::string budget = "60s", json;
};

void refuse_what_cannot_be_tuned(const TuneCommand& o) {
    const auto refuse = [](const char* option, const char* why) { throw CLI::ValidationError(option, why); };
    if (artifact::is_model_file(o.model.model)) refuse("tune", "the model is compiled already: give the ONNX file");
    const SchedulerOptions& s = o.model.scheduler;
    if (s.measure || !s.profile.empty() || s.scheduler == to_string(SchedulerKind::Search))
        refuse("tune", "it measures by itself: leave out --measure, --profile and --scheduler search");
    if (s.orchestrate != "greedy") refuse("--orchestrate", "plans of greedy orchestration are tuned");
    if (!o.model.target_file.empty())
        refuse("--target-file", "kernels of another machine cannot be measured on this one");
    if (o.model.precision == "auto") refuse("--precision", "tune for one precision: f32 or bf16");
}

/// "conv1 (112 candidates; 31.2 us, by default 40.1), 34 s left"
std::string text_of(const TuningState& s) {
    if (s.kernel.empty()) return "whole runs";
    std::string text = fmt::format("{} ({} candidates", s.kernel.substr(0, 40), s.tried);
    if (s.initial > 0) text += fmt::format("; {:.1f} us, by default {:.1f}", 1e6 * s.best, 1e6 * s.initial);
    text += ')';
    if (s.seconds_left > 0) text += fmt::format(", {:.0f} s left", std::ceil(s.seconds_left));
    return text;
}

Json to_json(const TuneReport& r, const TuneCommand& o, int threads, const std::map<std::string, int64_t>& assumed) {
    Json j = {{"model", o.model.model}, {"threads", threads},     {"budget", o.budget}, {"seconds", r.seconds},
              {"ended", r.ended},       {"candidates", r.tried},  {"failed", r.failed}, {"wrong", r.wrong},
              {"recalled", r.recalled}, {"assumed_dims", assumed}};
    const auto ms = [](double seconds) { return seconds > 0 ? Json(1e3 * seconds) : Json(); };
    const auto us = [](double seconds) { return seconds > 0 ? Json(1e6 * seconds) : Json(); };
    j["others"] = r.others;
    j["default_ms"] = ms(r.initial);
    j["tuned_ms"] = ms(r.tuned);
    j["kept"] = r.kept;
    j["reason"] = r.reason;
    j["kernels"] = Json::array();
    for (const TuneReport::Kernel& k : r.kernels)
        j["kernels"].push_back({{"name", k.name},
                                {"chain", k.chain},
                                {"calls", k.calls},
                                {"tuned_calls", k.tuned_calls},
                                {"share", k.share},
                                {"default_us", us(k.initial)},
                                {"tuned_us", us(k.seconds)},
                                {"limit_us", us(k.limit)},
                                {"schedule", to_string(k.source)},
                                {"dropped", k.dropped},
                                {"candidates", k.tried},
                                {"failed", k.failed},
                                {"wrong", k.wrong}});
    return j;
}

void print_kernel(const TuneReport::Kernel& k) {
    const std::string calls =
        k.calls == k.tuned_calls ? std::to_string(k.calls) : fmt::format("{}->{}", k.calls, k.tuned_calls);
    std::string name = k.name.size() > 60 ? k.name.substr(0, 60) + "..." : k.name;
    if (k.chain) name = "chain: " + name;
    if (k.dropped) name += " (another schedule was faster alone, and slower in whole runs)";
    std::string candidates = std::to_string(k.tried);
    if (k.failed + k.wrong > 0) candidates += fmt::format(" ({} failed, {} wrong)", k.failed, k.wrong);
    fmt::print("{:>6} {:>5.1f}% {:>11.2f} {:>11.2f} {:>5.1f}% {:>5.0f}%  {:<12}  {:>10}  {}\n", calls, 100 * k.share,
               1e6 * k.initial, 1e6 * k.seconds, 100 * (1 - k.seconds / k.initial),
               std::min(100.0, 100 * k.limit / k.seconds), to_string(k.source), candidates, name);
}

void print_report(const TuneReport& r, const TuneCommand& o, int threads,
                  const std::map<std::string, int64_t>& assumed) {
    fmt::print(
        "{}, {} thread{}: {} candidates of {} distinct kernels ({} failed, {} wrong, {} recalled) in {:.1f} s; {}\n",
        o.model.model, threads, threads == 1 ? "" : "s", r.tried, r.kernels.size() + r.others, r.failed, r.wrong,
        r.recalled, r.seconds, r.ended);
    if (!assumed.empty())
        fmt::print("sizes assumed in whole runs: {} (--dim NAME=SIZE, --input or --data set them)\n",
                   sizes_text(assumed));
    fmt::print("{:>6} {:>6} {:>11} {:>11} {:>6} {:>6}  {:<12}  {:>10}  {}\n", "calls", "share", "default us",
               "tuned us", "gain", "limit", "schedule", "candidates", "computes");
    size_t untried = 0;
    double share = 0;
    for (const TuneReport::Kernel& k : r.kernels) {
        if (k.initial > 0 && k.seconds > 0) {
            print_kernel(k);
            continue;
        }
        ++untried;
        share += k.share;
    }
    if (untried > 0)
        fmt::print("not measured: {} kernel{}, estimated at {:.1f} % of the time\n", untried, untried == 1 ? "" : "s",
                   100 * share);
    if (r.others > 0) fmt::print("measured, and in neither plan: {} kernel{}\n", r.others, r.others == 1 ? "" : "s");
    if (r.initial > 0)
        fmt::print("whole runs: {:.3f} ms by default, {:.3f} ms tuned ({:+.1f} %)\n", 1e3 * r.initial, 1e3 * r.tuned,
                   100 * (r.tuned / r.initial - 1));
    fmt::print("{}\n", r.kept ? "the tuned plan is kept: --tuned uses it"
                              : "nothing is gained, the default plan stays: " + r.reason);
}

int command_tune(const TuneCommand& o) {
    refuse_what_cannot_be_tuned(o);
    if (!o.json.empty()) check_writable(o.json);
    TunePlanOptions t;
    t.budget = parse_tuning_budget(o.budget);
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
        t.watch = [&](const TuningState& s) { progress.step(text_of(s)); };
        t.interrupted = Interrupts::seen;
        p.compile.tune = [&](const PlanToTune& plan) { report = tune_plan(plan, t); };
        compile(o.model, p, progress);
    }
    write_json(o.json, to_json(report, o, p.compile.threads, assumed).dump(2));
    print_report(report, o, p.compile.threads, assumed);
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
