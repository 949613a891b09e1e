// run, verify: prints, stores and compares a model's outputs.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "artifact/model_file.h"
#include "backend/cpu/kernel.h"
#include "base/error.h"
#include "driver/commands.h"
#include "driver/commands/common.h"
#include "driver/data.h"
#include "driver/files.h"
#include "driver/gpu_run.h"
#include "driver/npy.h"
#include "driver/npz.h"
#include "driver/precision_report.h"
#include "driver/rounding.h"
#include "graph/graph.h"
#include "graph/import.h"
#include "program/random_program.h"
#include "tile/matrix.h"
#include "tune/check.h"

namespace tilewright {

namespace {

using Json = nlohmann::ordered_json;

struct Summary {
    double min = HUGE_VAL, max = -HUGE_VAL, mean = 0;
    int64_t finite = 0;
};

Summary summarize(const Tensor& t) {
    Summary s;
    for (int64_t k = 0; k < t.count(); ++k) {
        const double v = t.get(k);
        if (!std::isfinite(v)) continue;
        s.min = std::min(s.min, v);
        s.max = std::max(s.max, v);
        s.mean += v;
        ++s.finite;
    }
    if (s.finite > 0) s.mean /= static_cast<double>(s.finite);
    return s;
}

/// A file in `folder` for each output. Names that only differ in characters not allowed in file names are numbered.
std::vector<std::string> files_for(const std::vector<ModelIo>& outputs, const std::string& folder) {
    std::vector<std::string> paths;
    std::set<std::string> used;
    for (const ModelIo& io : outputs) {
        const std::string base = file_name_of(io.name);
        std::string name = base;
        for (int n = 1; !used.insert(name).second; ++n) name = fmt::format("{}_{}", base, n);
        paths.push_back(folder + "/" + name + ".npy");
    }
    return paths;
}

/// Compares with expected outputs and prints a line each; true if all agree. `sensitivity`, asked if some do not: of
/// each expected output to its own roundings; differences of up to kSensitivities times as much agree.
bool report_comparison(const std::vector<ModelIo>& declared, const std::vector<Tensor>& actual,
                       const std::vector<Tensor>& expected, const Tolerance& tolerance, Json& list,
                       const std::function<std::vector<Sensitivity>()>& sensitivity = {}) {
    std::optional<std::vector<Sensitivity>> apart;
    bool ok = actual.size() >= expected.size();
    if (!ok) std::printf("the model has %zu outputs, and %zu are expected\n", actual.size(), expected.size());
    for (size_t i = 0; i < std::min(actual.size(), expected.size()); ++i) {
        const std::string what = fmt::format("output {}", quoted_name(declared[i].name));
        Comparison r = compare(actual[i], expected[i], tolerance, what);
        if (!r.ok && sensitivity && !apart) apart = sensitivity();
        const Sensitivity itself = apart ? (*apart)[i] : Sensitivity{};
        if (!r.ok && itself.largest > 0) {
            std::printf(
                "%s differs by %.3g, root mean square %.2g, from itself where what it rounds moves by 2^-12; ours "
                "may differ by %.0f times as much\n",
                what.c_str(), itself.largest, itself.rms, kSensitivities);
            r = compare_rounded(actual[i], expected[i], itself, what);
        }
        if (r.ok)
            std::printf("%s agrees: largest difference %.3g, largest magnitude %.3g\n", what.c_str(), r.max_difference,
                        r.max_magnitude);
        else
            std::printf("%s\n", r.reason.c_str());
        list.push_back({{"name", declared[i].name},
                        {"ok", r.ok},
                        {"reason", r.reason},
                        {"max_difference", r.max_difference},
                        {"rms_difference", r.rms_difference},
                        {"max_magnitude", r.max_magnitude}});
        if (itself.largest > 0)
            list.back()["rounding_sensitivity"] = {{"largest", itself.largest}, {"rms", itself.rms}};
        ok = ok && r.ok;
    }
    return ok;
}

std::vector<Tensor> stored_outputs(const std::string& folder) {
    std::vector<Tensor> expected = load_numbered(folder, "output");
    if (expected.empty()) model_error("'{}' holds no output_0.pb to compare with", folder);
    return expected;
}

struct RunOptions {
    ModelOptions model;
    DataOptions data;
    ToleranceOptions tolerance;
    std::string output_dir, output_npz, json, reference;
    bool kernels = false, lockstep = false;
};

std::vector<Tensor> outputs_in_lockstep(const RunOptions& o, const Compilation& c, const std::vector<Tensor>& inputs) {
    Progress progress("running " + o.model.model + " in lockstep");
    return run_in_lockstep(*c.model, inputs, [&](const std::string& step) { progress.step(step); });
}

/// The outputs of a session. On a GPU the first run launches kernels one by one, and later runs launch a graph of them:
/// both are run. Throws RuntimeError if they differ by more than `allowed`, relative to 1 + |x|.
std::vector<Tensor> outputs_of_session(const RunOptions& o, const Compilation& c, const std::vector<Tensor>& inputs,
                                       double allowed) {
    Session session = session_of(o.model, c);
    std::vector<Tensor> first = session.run(inputs);
    if (o.model.target == "cpu") return first;
    for (int run = 2; run <= 3; ++run)
        if (const double difference = largest_difference(first, session.run(inputs)); !(difference <= allowed))
            throw RuntimeError(
                fmt::format("run {}, as a graph of kernels, gives other results than the first, kernel "
                            "by kernel: they are {:.3g} apart",
                            run, difference));
    return first;
}

void print_verdict(const RunOptions& o, bool ok) {
    std::printf("%s\n", ok ? "verified" : "MISMATCH");
    if (!ok && !artifact::is_model_file(o.model.model))
        std::fprintf(stderr,
                     "hint: `tilewright bisect %s` with the same inputs shows which tensor differs first, and why\n",
                     o.model.model.c_str());
}

int command_run(const RunOptions& o) {
    const Compilation c = compile(o.model, o.data, false);
    const std::vector<Tensor> inputs = inputs_of(c, o.data);
    Session session = session_of(o.model, c);
    const double start = now_ms();
    const std::vector<Tensor> outputs = session.run(inputs);
    const double ran = now_ms() - start;
    const std::string made = c.kept
                                 ? fmt::format("loaded from the code cache in {:.0f} ms", c.load_ms)
                                 : fmt::format("loaded in {:.0f} ms, compiled in {:.0f} ms", c.load_ms, c.compile_ms);
    std::printf("%s: %s (%d kernels), ran in %.2f ms\n", o.model.model.c_str(), made.c_str(), c.model->stats().kernels,
                ran);
    std::vector<std::string> paths;
    if (!o.output_dir.empty()) {
        std::error_code error;
        std::filesystem::create_directories(o.output_dir, error);
        if (error) throw RuntimeError(fmt::format("cannot make folder '{}': {}", o.output_dir, error.message()));
        paths = files_for(c.model->outputs(), o.output_dir);
    }
    Json list = Json::array();
    std::vector<NamedTensor> named;
    for (size_t i = 0; i < outputs.size(); ++i) {
        const Tensor& t = outputs[i];
        const std::string& name = c.model->outputs()[i].name;
        const Summary s = summarize(t);
        std::string line = fmt::format("output {} {}{}", quoted_name(name), to_string(t.dtype()), to_string(t.shape()));
        Json entry = {{"name", name}, {"dtype", to_string(t.dtype())}, {"shape", t.shape()}};
        if (s.finite > 0) {
            line += fmt::format(": min {:.6g}, mean {:.6g}, max {:.6g}", s.min, s.mean, s.max);
            entry["min"] = s.min;
            entry["mean"] = s.mean;
            entry["max"] = s.max;
        }
        if (s.finite < t.count()) line += fmt::format(", {} not finite", t.count() - s.finite);
        entry["not_finite"] = t.count() - s.finite;
        if (!paths.empty()) {
            save_npy(paths[i], t);
            line += " -> " + paths[i];
            entry["file"] = paths[i];
        }
        std::printf("%s\n", line.c_str());
        list.push_back(std::move(entry));
        named.push_back({name, t});
    }
    if (!o.output_npz.empty()) {
        save_npz(o.output_npz, named);
        std::printf("outputs -> %s\n", o.output_npz.c_str());
    }
    Json j = {{"model", o.model.model},    {"load_ms", c.load_ms}, {"compile_ms", c.compile_ms},
              {"from_cache", c.kept},      {"run_ms", ran},        {"kernels", c.model->stats().kernels},
              {"outputs", std::move(list)}};
    bool ok = true;
    const std::string& folder = o.data.request.folder;
    if (!folder.empty() && std::filesystem::exists(folder + "/output_0.pb")) {
        Json comparison = Json::array();
        ok = report_comparison(c.model->outputs(), outputs, stored_outputs(folder), o.tolerance.get(), comparison);
        print_verdict(o, ok);
        j["ok"] = ok;
        j["comparison"] = std::move(comparison);
    }
    write_json(o.json, j.dump(2));
    return ok ? 0 : 1;
}

/// Checks every kernel of the model separately, on random operands, against its stages in exact arithmetic.
int verify_kernels(const RunOptions& o) {
    if (artifact::is_model_file(o.model.model))
        throw CLI::ValidationError("--kernels", "a compiled model does not have its kernels' expressions");
    const Compilation c = compile(o.model, o.data);
    const std::map<std::string, int64_t> sizes = dims_of(o.data);
    Progress progress("checking kernels of " + o.model.model);
    ThreadPool pool(o.model.threads);
    Json list = Json::array();
    int wrong = 0, right = 0, open = 0;
    const std::vector<TileProgram>& kernels = c.model->kernels();
    for (size_t k = 0; k < kernels.size(); ++k) {
        progress.step(fmt::format("{} of {}", k + 1, kernels.size()));
        const cpu::CompiledKernel kernel = cpu::compile(kernels[k], c.model->target());
        CheckOptions options;
        options.f16_sums = sums_in_f16(kernels[k]);
        bool known = true;
        for (const Var v : kernel.names) {
            known = known && v.kind == VarKind::Symbol;
            if (!known) break;
            const int64_t step = size_name(v).step;
            const auto size = std::find_if(sizes.begin(), sizes.end(),
                                           [&](const auto& d) { return symbol(d.first, step) == Expr::var(v); });
            options.bindings[v] = size == sizes.end() ? 3 : size->second / step;
        }
        Json entry = {{"kernel", k}, {"name", kernels[k].name}};
        if (!known) {
            ++open;
            entry["skipped"] = "data-dependent sizes";
        } else {
            const CheckResult r = check_kernel(kernel, kernels[k].stages, pool, options);
            entry["ok"] = r.ok;
            entry["worst"] = r.worst;
            if (!r.ok) {
                entry["reason"] = r.reason;
                std::printf("kernel %zu is wrong: %s\n    computes %s\n", k, r.reason.c_str(), kernels[k].name.c_str());
            }
            ++(r.ok ? right : wrong);
        }
        list.push_back(std::move(entry));
    }
    std::printf("%d kernels right, %d wrong, %d not checked\n", right, wrong, open);
    write_json(o.json, Json{{"model", o.model.model}, {"ok", wrong == 0}, {"kernels", std::move(list)}}.dump(2));
    return wrong == 0 ? 0 : 1;
}

/// The program of the model that a compiled model was made of, whose outputs are expected.
void take_reference(Compilation& c, const RunOptions& o) {
    if (!o.reference.empty()) {
        if (!artifact::is_model_file(o.model.model))
            throw CLI::ValidationError("--reference", "the model itself is the reference");
        PipelineOptions options;
        options.compile.operators = shared_operators(o.model.operators.libraries);
        c.program = lower_model(load_model(o.reference, {}, function_libraries(o.model.operators.functions)), options);
    } else if (c.program.values.empty() && o.data.request.folder.empty()) {
        throw CLI::ValidationError("verify", "a compiled model has no program: give --reference MODEL.onnx or --data");
    }
}

/// Compiles with the reference program; products are chosen on the inputs that are compared. `narrowed`: the program
/// that narrow_operands left, if it ran.
Compilation compile_for_verification(const RunOptions& o, std::optional<Program>& narrowed) {
    if (artifact::is_model_file(o.model.model)) return compile(o.model, o.data);
    Progress progress("compiling " + o.model.model, o.model.progress || o.model.scheduler.measure);
    PipelineOptions p = pipeline_options(o.model);
    p.compile.ranges = dim_settings(o.data.dims).ranges;
    if (given(o.data) || p.compile.max_error > 0) p.compile.inputs = sample_inputs(o.data);
    p.passes.after = [&](const std::string& pass, const PassResult& result) {
        if (pass == "narrow_operands" && result.unit != nullptr && o.model.target == "cpu")
            narrowed = result.unit->whole_program();
    };
    return compile(o.model, std::move(p), progress);
}

/// The type to which operands of products were rounded.
std::string products_in(const RunOptions& o, const Compilation& c) {
    if (!c.precision) return o.model.precision;
    return std::string(to_string(c.precision->rounded() > 0 ? c.precision->precision : Precision::F32));
}

/// The tolerance of outputs that are compared without --rtol, --atol and --max-relative: a budget of errors is one,
/// beside those of f32.
double allowed_by_default(const RunOptions& o, const Compilation& c) {
    const double usual = default_tolerance(products_in(o, c), c.program);
    return c.precision && c.precision->error
               ? std::min(usual, default_tolerance("f32", c.program) + c.precision->max_error)
               : usual;
}

/// Prints which products are in bf16, and the results whose errors are largest.
void report_precision(const PrecisionChoice& choice, const std::optional<ProductErrors>& products,
                      const std::optional<Program>& narrowed, const std::vector<Tensor>& inputs, Json& j) {
    std::fputs(print(choice).c_str(), stdout);
    j["products"] = Json::parse(to_json(choice));
    const Json error = j.contains("error") ? j["error"]["largest"] : Json();
    if (choice.max_error > 0 && error.is_number() && error.get<double>() > choice.max_error)
        std::printf("the error of %.2g passes --max-error %.2g%s\n", error.get<double>(), choice.max_error,
                    choice.rounded() == 0 ? ", even with all products in f32" : " by f32's own error");
    if (!products) return;
    const std::vector<ProductError> errors = products->of(*narrowed, inputs);
    std::fputs(print(errors).c_str(), stdout);
    j["product_errors"] = Json::parse(to_json(errors));
}

int command_verify(const RunOptions& o) {
    if (o.lockstep && o.model.target == "cpu")
        throw CLI::ValidationError("--lockstep", "it runs kernels for a GPU: give --target cuda as well");
    if (o.kernels && o.model.target != "cpu")
        throw CLI::ValidationError("--kernels",
                                   "it checks machine code of this CPU; --lockstep checks kernels for a GPU");
    if (o.kernels) return verify_kernels(o);
    std::optional<Program> narrowed;
    Compilation c = compile_for_verification(o, narrowed);
    take_reference(c, o);
    const std::vector<Tensor> inputs = inputs_of(c, o.data);
    const double usual = allowed_by_default(o, c);
    const std::vector<Tensor> actual =
        o.lockstep ? outputs_in_lockstep(o, c, inputs) : outputs_of_session(o, c, inputs, usual);
    const std::string& folder = o.data.request.folder;
    std::optional<ProductErrors> products;
    if (c.precision && c.precision->rounded() > 0 && narrowed && !c.program.values.empty())
        products.emplace(*c.precision);
    const bool interprets = folder.empty() || products;
    const std::vector<Tensor> exact =
        interprets ? interpret(c.program, inputs, {}, products ? products->reference(c.program) : WatchValues())
                   : std::vector<Tensor>();
    const std::vector<Tensor> expected = folder.empty() ? exact : stored_outputs(folder);
    Tolerance tolerance = o.tolerance.get();
    if (!o.tolerance.given()) tolerance.max_relative = usual;
    Json comparison = Json::array();
    const auto sensitivity = [&] { return rounding_sensitivity(c.program, inputs, expected); };
    const bool ok = folder.empty() && !o.tolerance.given()
                        ? report_comparison(c.model->outputs(), actual, expected, tolerance, comparison, sensitivity)
                        : report_comparison(c.model->outputs(), actual, expected, tolerance, comparison);
    print_verdict(o, ok);
    Json j = {{"model", o.model.model}, {"ok", ok}, {"precision", o.model.precision}};
    if (tolerance.max_relative > 0) j["allowed"] = tolerance.max_relative;
    if (folder.empty()) {
        // The interpreter computes in double precision, so the difference is the rounding error of the kernels.
        double largest = 0, mean = 0;
        for (const Json& output : comparison) {
            const double magnitude = output["max_magnitude"];
            if (!(magnitude > 0)) continue;
            largest = std::max(largest, output["max_difference"].get<double>() / magnitude);
            mean = std::max(mean, output["rms_difference"].get<double>() / magnitude);
        }
        std::printf(
            "error against float64, products in %s: largest %.2g, root mean square %.2g of the largest magnitude%s\n",
            products_in(o, c).c_str(), largest, mean,
            tolerance.max_relative > 0 ? fmt::format("; {:.2g} is allowed", tolerance.max_relative).c_str() : "");
        j["error"] = {{"largest", largest}, {"rms", mean}};
    }
    if (c.precision) report_precision(*c.precision, products, narrowed, inputs, j);
    j["comparison"] = std::move(comparison);
    write_json(o.json, j.dump(2));
    return ok ? 0 : 1;
}

std::shared_ptr<RunOptions> add_run_options(CLI::App& command) {
    auto o = std::make_shared<RunOptions>();
    o->tolerance.tolerance.max_relative = 1e-4;
    add_model_options(command, o->model);
    add_kv_cache_option(command, o->model);
    add_copy_weights_option(command, o->model);
    add_target_options(command, o->model);
    add_data_options(command, o->data);
    add_tolerance_options(command, o->tolerance);
    add_json_option(command, o->json);
    return o;
}

}  // namespace

void add_run_command(CLI::App& app, int& status) {
    CLI::App* c = app.add_subcommand("run", "compile a model, run it once, print its outputs");
    auto o = add_run_options(*c);
    c->add_option("--output-dir", o->output_dir, "write each output to this folder as NAME.npy");
    c->add_option("--output-npz", o->output_npz, "write all outputs to this archive, by name");
    c->footer(
        "With --data, outputs are also compared with output_0.pb, ... of the folder; a difference gives exit status "
        "1.\n\n"
        "Examples:\n"
        "  tilewright run model.onnx --dim batch=8\n"
        "  tilewright run model.onnx --input x=x.npy --input mask=mask.pb --output-dir out\n"
        "  tilewright run model.onnx --input inputs.npz --output-npz outputs.npz\n"
        "  tilewright run model.onnx --data test_data_set_0");
    c->callback([o, &status] { status = command_run(*o); });
}

void add_verify_command(CLI::App& app, int& status) {
    CLI::App* c = app.add_subcommand("verify", "compare machine code with the interpreter, or with stored outputs");
    auto o = add_run_options(*c);
    c->add_option("--reference", o->reference, "for a file of `compile`: the ONNX file that it was made of");
    c->add_flag("--kernels", o->kernels,
                "check every kernel separately, on random operands (dimensions without --dim are 3)");
    c->add_flag(
        "--lockstep", o->lockstep,
        "with --target cuda: run its kernels on this CPU, thread by thread, every access checked; small models");
    c->footer(
        "Without --data, the reference interpreter computes the expected outputs in double precision, and the error "
        "against\n"
        "it is printed. The default tolerance is --max-relative 1e-4; with --precision tf32 or f16, or a model in f16, "
        "1e-2; bf16 8e-2; with --max-error that error and 1e-4. Outputs of a model that rounds, such as a quantised "
        "one, may differ by 3 times what they "
        "differ by,\n"
        "at most and in the root mean square, where what it rounds moves by 2^-12.\n\n"
        "With --precision bf16 or auto the results of products are listed whose errors against float64 are largest.\n\n"
        "JSON: ok, precision, allowed, error.{largest,rms} (without --data), comparison; products (as precision of "
        "explain)\n"
        "and product_errors (a list: tensor, nodes, error, rounded) with --precision bf16; with --kernels ok, kernels "
        "(a "
        "list: kernel, name, ok, worst, reason or skipped).\n\n"
        "Examples:\n"
        "  tilewright verify model.onnx --dim batch=3\n"
        "  tilewright verify model.onnx --kernels\n"
        "  tilewright verify model.so --reference model.onnx\n"
        "  tilewright verify model.onnx --target cuda:sm_80 --precision tf32 --lockstep\n"
        "  tilewright verify model.onnx --precision bf16 --keep-f32 '/head/*' --keep-f32 conv1.weight\n"
        "  tilewright verify model.onnx --precision bf16 --max-error 0.01 --data test_data_set_0\n"
        "  tilewright verify model.onnx --data test_data_set_0 --rtol 1e-3 --atol 1e-6");
    c->callback([o, &status] { status = command_verify(*o); });
}

}  // namespace tilewright
