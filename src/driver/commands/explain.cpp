#include <CLI/CLI.hpp>
#include <cstdio>

#include "driver/commands.h"
#include "driver/commands/common.h"
#include "driver/explain/write.h"
#include "driver/files.h"

namespace tilewright {

namespace {

struct ExplainCommand {
    ModelOptions model;
    DataOptions data;
    double seconds = 0;
    size_t kernels = 20;
    bool no_assembly = false;
    std::string json, html;
};

int command_explain(const ExplainCommand& o) {
    if (o.seconds > 0 && o.model.target != "cpu")
        throw CLI::ValidationError("--time", "plans for a GPU are not run: `bench --target cuda` runs this one");
    for (const std::string& path : {o.json, o.html})  // checked before measuring, which may take minutes
        if (!path.empty()) check_writable(path);
    explain::Report report;
    std::vector<explain::CodeText> codes;
    {
        Progress progress("explaining " + o.model.model, o.model.progress);
        PipelineOptions pipeline = pipeline_options(o.model);
        pipeline.keep_rewritten = pipeline.compile.keep_refusals = true;
        pipeline.compile.ranges = dim_settings(o.data.dims).ranges;
        if (given(o.data)) pipeline.compile.inputs = sample_inputs(o.data);
        const Compilation c = compile(o.model, pipeline, progress);
        explain::ExplainOptions how;
        how.seconds = o.seconds;
        how.sized = given(o.data);
        how.inputs = [&](const Compilation& of) { return inputs_of(of, o.data); };
        how.progress = [&](const std::string& step) { progress.step(step); };
        report = explain::explain(c, pipeline, how);
        report.model = o.model.model;
        if (!o.html.empty()) {
            progress.step("printing code");
            codes = explain::codes_of(*c.model, !o.no_assembly);
        }
    }
    std::fputs(explain::print(report, o.kernels).c_str(), stdout);
    if (!o.json.empty()) write_json(o.json, explain::to_json(report));
    if (!o.html.empty()) {
        write_file(o.html, {explain::to_page(report, codes)});
        std::printf("\npage -> %s\n", o.html.c_str());
    }
    return 0;
}

}  // namespace

void add_explain_command(CLI::App& app, int& status) {
    auto o = std::make_shared<ExplainCommand>();
    CLI::App* c = app.add_subcommand("explain", "print the kernels of a plan, their primitives and estimated times");
    add_model_options(*c, o->model);
    add_kv_cache_option(*c, o->model);
    add_target_options(*c, o->model);
    add_data_options(*c, o->data);
    c->add_option("--time", o->seconds,
                  "run this plan and the two it is compared with in turns, for this many seconds each")
        ->check(CLI::Range(0.0, 3600.0));
    c->add_option("--kernels", o->kernels, "describe the N slowest kernels (20)")->check(CLI::Range(0, 100000));
    add_json_option(*c, o->json);
    c->add_option("--html", o->html, "write a page that shows the primitives and their kernels, for any browser");
    c->add_flag("--no-assembly", o->no_assembly, "omit machine code from the page");
    c->footer(
        "A kernel's limit is the longer of: its multiply-adds at the measured peak; its operands and results once, at\n"
        "the bandwidth of the first cache that holds them. Times are estimates of the cost model unless --time or\n"
        "--measure says otherwise; they assume the sizes that --dim, --data and --input give to dynamic dimensions,\n"
        "otherwise the heaviest declared samples (1 of a batch, else 128). \"(again)\" marks primitives that another\n"
        "kernel computes too. With --target the plan, its limits and estimates are those of a GPU, which need not be\n"
        "there; limits then count products at the rate of --precision.\n\n"
        "JSON: execution_states, candidates, distinct_candidates (kernels of equal text and weights: one), measured,\n"
        "measured_share (of distinct_candidates), sizes, blp_columns, blp_rows, blp_status, blp_gap,\n"
        "emitted_gap (the gap of the kernels that run), greedy_pieces (that keep the greedy plan's kernels),\n"
        "capped_pieces (with excluded convex sets), compile_ms, plan_ms, greedy_ms, operators_ms (one kernel an\n"
        "operator), plans, refused, cuts, pieces, rewrites, kernels (each with not_fused), primitives,\n"
        "operator_totals (a kernel's time is divided among its operators by their arithmetic), roofline, launch_us;\n"
        "precision (with --precision bf16 or auto: precision, note, products, rounded, max_error, error, "
        "error_of_all,\n"
        "estimate_ms, f32_estimate_ms, in_f32 (tensor, nodes, reason, error_alone));\n"
        "blp_roots: the relaxations of both binary programs (--blp both); and\n"
        "choice: plan_ms, greedy_ms, bound_ms, emitted_ms (of the kernels that run) by the costs that optimal\n"
        "orchestration used (--profile).\n\n"
        "Examples:\n"
        "  tilewright explain model.onnx\n"
        "  tilewright explain model.onnx --orchestrate optimal --time 1 --json plan.json\n"
        "  tilewright explain model.onnx --orchestrate optimal --html plan.html\n"
        "  tilewright explain model.onnx --target cuda --precision tf32    (the plan for an H200, without one)\n"
        "  tilewright explain model.onnx --precision auto    (which products are in bf16, and why)\n"
        "  tilewright explain model.onnx --no-fission    (the plan with operators as units)");
    c->callback([o, &status] { status = command_explain(*o); });
}

}  // namespace tilewright
