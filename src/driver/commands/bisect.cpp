// bisect: where the results of a compiled model part from a reference.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>

#include "artifact/model_file.h"
#include "base/error.h"
#include "driver/bisect/onnxruntime.h"
#include "driver/bisect/report.h"
#include "driver/commands.h"
#include "driver/commands/common.h"
#include "driver/data.h"
#include "driver/gpu_run.h"
#include "driver/npz.h"
#include "graph/import.h"

namespace tilewright {

namespace {

struct BisectCommand {
    ModelOptions model;
    DataOptions data;
    ToleranceOptions tolerance;
    std::string against = "interpreter", python = "python3", output_dir, json;
    bool lockstep = false;
};

bool given_inputs(const DataOptions& o) { return !o.request.files.empty() || !o.request.folder.empty(); }

std::vector<NamedTensor> named(const std::vector<ModelIo>& declared, const std::vector<Tensor>& tensors) {
    std::vector<NamedTensor> out;
    for (size_t k = 0; k < std::min(declared.size(), tensors.size()); ++k)
        out.push_back({declared[k].name, tensors[k]});
    return out;
}

/// --against: sets the reference, and for a test data set the inputs.
void take_reference(bisect::Options& o, BisectCommand& c) {
    if (c.against == "interpreter") return;
    o.reference_name = c.against;
    if (c.against == "onnxruntime") {
        o.reference_name = "ONNX Runtime";
        o.reference = [python = c.python, model = c.model.model](const std::vector<ModelIo>& declared,
                                                                 const std::vector<Tensor>& inputs) {
            return bisect::onnxruntime_tensors(python, model, named(declared, inputs));
        };
        return;
    }
    std::vector<NamedTensor> given;
    if (std::filesystem::is_directory(c.against)) {
        if (given_inputs(c.data))
            throw CLI::ValidationError("--against", "a test data set has the inputs: leave out --input and --data");
        c.data.request.folder = c.against;
        const std::vector<Tensor> outputs = load_numbered(c.against, "output");
        if (outputs.empty()) model_error("'{}' holds no output_0.pb to compare with", c.against);
        for (size_t k = 0; k < std::min(outputs.size(), o.model.graph.outputs.size()); ++k)
            given.push_back({o.model.graph.outputs[k].name, outputs[k]});
    } else if (c.against.ends_with(".npz")) {
        if (!given_inputs(c.data))
            throw CLI::ValidationError("--against", "the file has results for inputs: give --input or --data as well");
        given = load_npz(c.against);
    } else {
        throw CLI::ValidationError("--against",
                                   "'" + c.against +
                                       "' is not interpreter, onnxruntime, an .npz file or the folder of a "
                                       "test data set");
    }
    o.reference = [given](const std::vector<ModelIo>&, const std::vector<Tensor>&) { return given; };
}

/// Models for a GPU run on this machine's, or in the lockstep executor; their kernels in the latter.
void take_target(bisect::Options& o, const BisectCommand& c) {
    if (c.model.target == "cpu") return;
    o.kernel_bounds = c.model.precision == "f32";
    if (c.lockstep)
        o.run = [](const Compilation& compiled, const std::vector<Tensor>& inputs) {
            return run_in_lockstep(*compiled.model, inputs);
        };
    else
        o.run = [model = c.model](const Compilation& compiled, const std::vector<Tensor>& inputs) {
            return session_of(model, compiled).run(inputs);
        };
    o.kernels = [](const Compilation& compiled) { return lockstep_kernels(*compiled.model); };
}

int command_bisect(BisectCommand c) {
    if (artifact::is_model_file(c.model.model))
        throw CLI::ValidationError("bisect", "a compiled model has no passes: give the ONNX file");
    if (c.model.precision == "auto")
        throw CLI::ValidationError("--precision", "it compares one plan: give the precision that `explain` prints");
    if (c.lockstep && c.model.target == "cpu")
        throw CLI::ValidationError("--lockstep", "it runs kernels for a GPU: give --target cuda as well");
    bisect::Options o;
    o.pipeline = pipeline_options(c.model);
    o.pipeline.reference = false;
    o.pipeline.compile.ranges = dim_settings(c.data.dims).ranges;
    o.model = load_model(c.model);
    take_reference(o, c);
    take_target(o, c);
    o.inputs = [data = c.data](const std::vector<ModelIo>& declared) {
        InputRequest request = data.request;
        request.dims = dims_of(data);
        return make_inputs(declared, request);
    };
    o.tolerance = c.tolerance.get();
    if (!c.tolerance.given())
        o.tolerance.max_relative = default_tolerance(c.model.precision, lower_model(o.model, o.pipeline));
    Progress progress("bisecting " + c.model.model, c.model.progress);
    o.progress = [&](const std::string& step) { progress.step(step); };
    o.pipeline.passes.progress = [&](const std::string& pass) { progress.step("compiling: " + pass); };
    const bisect::Finding found = bisect::find(o);
    std::fputs(bisect::text_of(found, o).c_str(), stdout);
    if (found.fault != bisect::Fault::None && !c.output_dir.empty()) {
        bisect::write_folder(found, o, c.output_dir);
        std::printf("test case -> %s\n", c.output_dir.c_str());
    }
    write_json(c.json, bisect::json_of(found, o));
    return found.fault == bisect::Fault::None ? 0 : 1;
}

}  // namespace

void add_bisect_command(CLI::App& app, int& status) {
    CLI::App* c = app.add_subcommand("bisect", "find the pass, the kernel and the tensors where results part");
    auto o = std::make_shared<BisectCommand>();
    o->tolerance.tolerance.max_relative = 1e-4;
    add_model_options(*c, o->model);
    add_target_options(*c, o->model);
    add_data_options(*c, o->data);
    add_tolerance_options(*c, o->tolerance);
    c->add_option("--against", o->against,
                  "what is right: interpreter (default), onnxruntime, an .npz file with tensors of the model by name "
                  "(outputs, and any between), or the folder of an ONNX test data set");
    c->add_option("--python", o->python, "the Python that has onnxruntime, for --against onnxruntime (python3)");
    c->add_option("--output-dir", o->output_dir, "write a test case that shows the fault to this folder");
    c->add_flag("--lockstep", o->lockstep, "with --target cuda: run its kernels on this CPU, as `verify` does");
    add_json_option(*c, o->json);
    c->footer(
        "If the outputs part, the model is compared with the reference as operators define it, then after each pass "
        "in\n"
        "double precision by the interpreter, then kernel by kernel on the interpreter's inputs, within error bounds. "
        "The\n"
        "result is an operator, a pass, a kernel, rounding errors (numerics) or the session. Tolerances are those of\n"
        "`verify`. Exit status is 1 if the outputs part.\n\n"
        "JSON: fault, outputs, right_after, wrong_after, first (tensors), kernel, notes.\n\n"
        "Examples:\n"
        "  tilewright bisect model.onnx\n"
        "  tilewright bisect model.onnx --against onnxruntime --python venv/bin/python --output-dir case\n"
        "  tilewright bisect model.onnx --input inputs.npz --against tensors.npz\n"
        "  tilewright bisect model.onnx --against test_data_set_0 --rtol 1e-3 --atol 1e-5\n"
        "  tilewright bisect model.onnx --numerics fast --input x=x.npy\n"
        "  tilewright bisect model.onnx --target cuda:sm_80 --precision tf32 --lockstep");
    c->callback([o, &status] { status = command_bisect(*o); });
}

}  // namespace tilewright
