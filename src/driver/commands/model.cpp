// run, bench, verify, dump, check.

#include <sys/resource.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cost/target.h"
#include "driver/commands.h"
#include "driver/compare.h"
#include "driver/data.h"
#include "driver/pipeline.h"
#include "graph/import.h"
#include "runtime/thread_count.h"

namespace tilewright {

namespace {

using Json = nlohmann::ordered_json;

double now_ms() {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::pair<std::string, std::string> split_assignment(const std::string& text, const char* what) {
    const size_t at = text.find('=');
    if (at == std::string::npos || at == 0) model_error("{} '{}': expected name=value", what, text);
    return {text.substr(0, at), text.substr(at + 1)};
}

std::map<std::string, int64_t> parse_dims(const std::vector<std::string>& texts) {
    std::map<std::string, int64_t> dims;
    for (const std::string& t : texts) {
        const auto [name, value] = split_assignment(t, "--dim");
        char* end = nullptr;
        const long long v = std::strtoll(value.c_str(), &end, 10);
        if (value.empty() || *end != '\0' || v < 0) model_error("--dim '{}': '{}' is no size", t, value);
        dims[name] = v;
    }
    return dims;
}

void add_common(CLI::App& command, CommonOptions& o) {
    command.add_option("model", o.model, "ONNX file")->required();
    command.add_option("--dim", o.dims, "size of a named dimension of the inputs: batch=8");
    command.add_option("--input", o.inputs, "input from a .npy or .pb file: x=x.npy; others are random");
    command.add_option("--threads", o.threads, "worker threads; default: the processors this process may use");
    command.add_option("--seed", o.seed, "of random inputs");
    command.add_option("--isa", o.isa, "generate for avx2 or avx512 instead of this machine's best");
    command.add_option("--json", o.json, "write the figures to this file");
    command.add_flag("--no-fuse", o.no_fuse, "one kernel a primitive");
    command.add_flag("--no-layouts", o.no_layouts, "keep every tensor row-major");
}

PipelineOptions pipeline_options(const CommonOptions& o) {
    PipelineOptions p;
    p.compile.threads = default_thread_count(o.threads);
    p.compile.isa = o.isa;
    p.compile.fuse = !o.no_fuse;
    p.compile.layouts = !o.no_layouts;
    return p;
}

std::vector<Tensor> make_inputs(const std::vector<ModelIo>& declared, const CommonOptions& o) {
    std::map<std::string, std::string> given;
    for (const std::string& t : o.inputs) given.insert(split_assignment(t, "--input"));
    const std::map<std::string, int64_t> dims = parse_dims(o.dims);
    std::vector<Tensor> inputs;
    for (const ModelIo& io : declared) {
        const auto it = given.find(io.name);
        if (it == given.end() || it->second == "random")
            inputs.push_back(random_tensor(io.name, io.dtype, input_shape(io, dims), o.seed));
        else
            inputs.push_back(load_tensor(it->second));
        if (it != given.end()) given.erase(it);
    }
    if (!given.empty()) {
        std::string names;
        for (const ModelIo& io : declared) names += (names.empty() ? "" : ", ") + io.name;
        throw ModelError(fmt::format("the model has no input '{}'", given.begin()->first), "its inputs: " + names);
    }
    return inputs;
}

void write_json(const std::string& path, const Json& json) {
    if (path.empty()) return;
    std::ofstream out(path);
    out << json.dump(2) << "\n";
    out.flush();
    if (!out) throw RuntimeError("cannot write '" + path + "'");
}

std::string file_name(const std::string& tensor) {
    std::string s;
    for (const char c : tensor)
        s += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.' ? c : '_';
    return s.empty() || s[0] == '.' ? "_" + s : s;
}

int command_run(const CommonOptions& o, const std::string& output_dir) {
    const Compilation c = compile_model(o.model, pipeline_options(o));
    Session session(c.model, o.threads);
    const std::vector<Tensor> inputs = make_inputs(c.model->inputs(), o);
    const double start = now_ms();
    const std::vector<Tensor> outputs = session.run(inputs);
    const double first = now_ms() - start;
    std::printf("%s: loaded in %.0f ms, compiled in %.0f ms (%d kernels), ran in %.2f ms\n", o.model.c_str(), c.load_ms,
                c.compile_ms, c.model->stats().kernels, first);
    if (!output_dir.empty() && ::mkdir(output_dir.c_str(), 0777) != 0 && errno != EEXIST)
        throw RuntimeError("cannot make folder '" + output_dir + "'");
    for (size_t i = 0; i < outputs.size(); ++i) {
        const Tensor& t = outputs[i];
        double lo = HUGE_VAL, hi = -HUGE_VAL, sum = 0;
        int64_t finite = 0;
        for (int64_t k = 0; k < t.count(); ++k) {
            const double v = t.get(k);
            if (!std::isfinite(v)) continue;
            lo = std::min(lo, v);
            hi = std::max(hi, v);
            sum += v;
            ++finite;
        }
        std::printf("output '%s' %s%s", c.model->outputs()[i].name.c_str(), std::string(to_string(t.dtype())).c_str(),
                    to_string(t.shape()).c_str());
        if (finite > 0) std::printf(": min %.6g, mean %.6g, max %.6g", lo, sum / static_cast<double>(finite), hi);
        if (finite < t.count()) std::printf(", %lld not finite", static_cast<long long>(t.count() - finite));
        if (!output_dir.empty()) {
            const std::string path = output_dir + "/" + file_name(c.model->outputs()[i].name) + ".npy";
            save_npy(path, t);
            std::printf(" -> %s", path.c_str());
        }
        std::printf("\n");
    }
    return 0;
}

double percentile(const std::vector<double>& sorted, double p) {
    const auto i = static_cast<size_t>(std::ceil(p * static_cast<double>(sorted.size()))) - 1;
    return sorted[std::min(i, sorted.size() - 1)];
}

int command_bench(const CommonOptions& o, int iterations, int warmup, const std::string& profile) {
    const Compilation c = compile_model(o.model, pipeline_options(o));
    const int threads = default_thread_count(o.threads);
    Session session(c.model, threads);
    const std::vector<Tensor> inputs = make_inputs(c.model->inputs(), o);
    double start = now_ms();
    session.run_in_place(inputs);
    const double first = now_ms() - start;
    for (int i = 0; i < warmup; ++i) session.run_in_place(inputs);
    std::vector<double> times;
    for (int i = 0; i < iterations; ++i) {
        start = now_ms();
        session.run_in_place(inputs);
        times.push_back(now_ms() - start);
    }
    std::sort(times.begin(), times.end());
    const double median =
        times.size() % 2 != 0 ? times[times.size() / 2] : (times[times.size() / 2 - 1] + times[times.size() / 2]) / 2;
    double mean = 0;
    for (const double t : times) mean += t / static_cast<double>(times.size());
    const Target target = load_target().value_or(host_target());
    const double peak = threads == 1 ? target.fma_gflops_1.value
                                     : std::min(target.fma_gflops_all.value, target.fma_gflops_1.value * threads);
    const double gflops = session.last_flops() / median * 1e-6;
    struct rusage usage {};
    ::getrusage(RUSAGE_SELF, &usage);
    Json j;
    j["model"] = o.model;
    j["threads"] = threads;
    j["iterations"] = iterations;
    j["latency_ms"] = {{"min", times.front()},
                       {"median", median},
                       {"mean", mean},
                       {"p90", percentile(times, 0.90)},
                       {"p95", percentile(times, 0.95)},
                       {"p99", percentile(times, 0.99)},
                       {"max", times.back()}};
    j["load_ms"] = c.load_ms;
    j["compile_ms"] = c.compile_ms;
    j["first_run_ms"] = first;
    j["kernels"] = c.model->stats().kernels;
    j["steps"] = c.model->stats().steps;
    j["gflops"] = gflops;
    j["peak_share"] = peak > 0 ? gflops / peak : 0;
    j["peak_gflops"] = peak;
    j["peak_calibrated"] = target.calibrated;
    j["peak_rss_mb"] = static_cast<double>(usage.ru_maxrss) / 1024.0;
    for (const PassTime& p : c.passes) j["passes_ms"][p.name] = p.ms;
    write_json(o.json, j);
    std::printf("%s, %d thread%s, %d runs\n", o.model.c_str(), threads, threads == 1 ? "" : "s", iterations);
    std::printf("latency  min %.3f  median %.3f  p90 %.3f  p99 %.3f ms\n", times.front(), median,
                percentile(times, 0.9), percentile(times, 0.99));
    std::printf("load %.0f ms, compile %.0f ms, first run %.2f ms, %d kernels, %d steps\n", c.load_ms, c.compile_ms,
                first, c.model->stats().kernels, c.model->stats().steps);
    std::printf("%.1f GFLOP/s, %.0f %% of the %s FMA peak (%.0f GFLOP/s); peak memory %.0f MB\n", gflops,
                100 * (peak > 0 ? gflops / peak : 0),
                target.calibrated ? "measured" : "assumed (see `tilewright info --calibrate`)", peak,
                static_cast<double>(usage.ru_maxrss) / 1024.0);
    if (!profile.empty()) {
        std::vector<StepTime> steps;
        session.set_profile(&steps);
        session.run_in_place(inputs);
        session.set_profile(nullptr);
        Json events = Json::array();
        for (const StepTime& s : steps)
            events.push_back(
                {{"name", s.name}, {"ph", "X"}, {"pid", 1}, {"tid", 1}, {"ts", s.start_us}, {"dur", s.duration_us}, {"args", {{"kernel", s.kernel}, {"gflops", s.duration_us > 0 ? s.flops / s.duration_us * 1e-3 : 0}}}});
        write_json(profile, {{"traceEvents", events}});
    }
    return 0;
}

int command_verify(const CommonOptions& o, const std::string& data, const Tolerance& tolerance) {
    const Compilation c = compile_model(o.model, pipeline_options(o));
    Session session(c.model, o.threads);
    std::vector<Tensor> inputs, expected;
    if (data.empty()) {
        inputs = make_inputs(c.model->inputs(), o);
        expected = interpret(c.program, inputs);
    } else {
        inputs = load_numbered(data, "input");
        expected = load_numbered(data, "output");
    }
    const std::vector<Tensor> actual = session.run(inputs);
    bool ok = actual.size() >= expected.size();
    for (size_t i = 0; i < std::min(actual.size(), expected.size()); ++i) {
        const Comparison r =
            compare(actual[i], expected[i], tolerance, fmt::format("output {} '{}'", i, c.model->outputs()[i].name));
        if (r.ok)
            std::printf("output %zu '%s': largest difference %.3g of %.3g\n", i, c.model->outputs()[i].name.c_str(),
                        r.max_difference, r.max_magnitude);
        else
            std::printf("%s\n", r.reason.c_str());
        ok = ok && r.ok;
    }
    std::printf("%s\n", ok ? "verified" : "MISMATCH");
    return ok ? 0 : 1;
}

int command_dump(const CommonOptions& o, const std::string& stage) {
    const Model model = load_model(o.model);
    if (stage == "graph") {
        std::fputs(model.graph.print().c_str(), stdout);
    } else if (stage == "program") {
        std::fputs(print(make_program(model, pipeline_options(o))).c_str(), stdout);
    } else {
        std::fputs(compile_model(model, pipeline_options(o)).model->dump(stage).c_str(), stdout);
    }
    return 0;
}

int command_check(const CommonOptions& o) {
    const Model model = load_model(o.model);
    std::vector<Problem> problems;
    lower(model, {}, &problems);
    Json j = Json::array();
    for (const Problem& p : problems) {
        std::printf("node '%s': %s %s, opset %lld, inputs (%s): %s\n", p.node.c_str(),
                    p.domain.empty() ? "ai.onnx" : p.domain.c_str(), p.op.c_str(), static_cast<long long>(p.opset),
                    p.types.c_str(), p.reason.c_str());
        j.push_back({{"node", p.node},
                     {"op", p.op},
                     {"domain", p.domain},
                     {"opset", p.opset},
                     {"types", p.types},
                     {"reason", p.reason},
                     {"unsupported", p.unsupported}});
    }
    write_json(o.json, {{"model", o.model}, {"ok", problems.empty()}, {"problems", j}});
    if (problems.empty())
        std::printf("%s: every node is supported\n", o.model.c_str());
    else
        std::fprintf(stderr, "error: %s: %zu node%s cannot be compiled\n", o.model.c_str(), problems.size(),
                     problems.size() == 1 ? "" : "s");
    return problems.empty() ? 0 : 1;
}

}  // namespace

void add_model_commands(CLI::App& app, int& status) {
    auto o = std::make_shared<CommonOptions>();
    {
        auto dir = std::make_shared<std::string>();
        CLI::App* c = app.add_subcommand("run",
                                         "compile a model, run it once, show its outputs\n  tilewright run model.onnx "
                                         "--input x=x.npy --output-dir out");
        add_common(*c, *o);
        c->add_option("--output-dir", *dir, "write outputs there as .npy");
        c->callback([o, dir, &status] { status = command_run(*o, *dir); });
    }
    {
        auto iterations = std::make_shared<int>(100);
        auto warmup = std::make_shared<int>(3);
        auto profile = std::make_shared<std::string>();
        CLI::App* c = app.add_subcommand(
            "bench",
            "compile a model and time it\n  tilewright bench model.onnx --threads 2 --iterations 100 --json out.json");
        add_common(*c, *o);
        c->add_option("--iterations", *iterations, "timed runs")->check(CLI::Range(1, 1000000));
        c->add_option("--warmup", *warmup, "runs before that")->check(CLI::Range(0, 1000000));
        c->add_option("--profile", *profile, "write the steps of one run as a Chrome trace");
        c->callback([=, &status] { status = command_bench(*o, *iterations, *warmup, *profile); });
    }
    {
        auto data = std::make_shared<std::string>();
        auto tolerance = std::make_shared<Tolerance>();
        tolerance->max_relative = 1e-4;
        CLI::App* c = app.add_subcommand("verify",
                                         "compare machine code with the interpreter, or with stored outputs\n  "
                                         "tilewright verify model.onnx --data test_data_set_0");
        add_common(*c, *o);
        c->add_option("--data", *data, "folder of input_N.pb and output_N.pb");
        c->add_option("--max-relative", tolerance->max_relative,
                      "largest difference as a share of the largest magnitude");
        c->callback([=, &status] { status = command_verify(*o, *data, *tolerance); });
    }
    {
        auto stage = std::make_shared<std::string>("program");
        CLI::App* c = app.add_subcommand(
            "dump", "print what the compiler made of a model\n  tilewright dump model.onnx --stage plan");
        add_common(*c, *o);
        c->add_option("--stage", *stage, "graph, program, plan, tiles, llvm or asm")
            ->check(CLI::IsMember({"graph", "program", "plan", "tiles", "llvm", "asm"}));
        c->callback([=, &status] { status = command_dump(*o, *stage); });
    }
    {
        CLI::App* c = app.add_subcommand(
            "check",
            "list every node that cannot be compiled, and why\n  tilewright check model.onnx --json problems.json");
        add_common(*c, *o);
        c->callback([=, &status] { status = command_check(*o); });
    }
}

}  // namespace tilewright
