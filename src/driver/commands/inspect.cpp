// dump, check, passes: inspect the compilation of a model without running it.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "driver/commands.h"
#include "driver/commands/common.h"
#include "driver/kernel_texts.h"
#include "graph/import.h"
#include "ops/lowering.h"

namespace tilewright {

namespace {

using Json = nlohmann::ordered_json;

struct DumpOptions {
    ModelOptions model;
    std::string stage = "program", texts;
    std::vector<std::string> dims;
};

/// Planned, without machine code.
std::shared_ptr<const CompiledModel> planned(const ModelOptions& o, const std::vector<std::string>& dims) {
    PipelineOptions p = pipeline_options(o);
    p.compile.code = false;
    DimSettings settings = dim_settings(dims);
    p.compile.dims = std::move(settings.sizes);
    p.compile.ranges = std::move(settings.ranges);
    Progress progress("compiling " + o.model, o.progress);
    return compile(o, std::move(p), progress).model;
}

void dump_hashes(const DumpOptions& o) {
    const auto model = planned(o.model, o.dims);
    const std::vector<KernelTexts> kernels = kernel_texts(*model);
    if (!o.texts.empty()) save_texts(kernels, o.texts);
    std::fputs(print_hashes(*model, kernels).c_str(), stdout);
}

int command_dump(const DumpOptions& options) {
    const ModelOptions& o = options.model;
    const std::string& stage = options.stage;
    if (!options.texts.empty() && stage != "hashes")
        throw CLI::ValidationError("--texts", "needs hashes: give --stage hashes");
    if (!options.dims.empty() && (stage == "graph" || stage == "program"))
        throw CLI::ValidationError("--dim", "it is about planned models: give --stage plan, tiles, llvm, asm or cuda");
    if (stage == "graph")
        std::fputs(load_model(o).graph.print().c_str(), stdout);
    else if (stage == "program")
        std::fputs(print(make_program(load_model(o), pipeline_options(o))).c_str(), stdout);
    else if (stage == "cuda" && o.target == "cpu") {
        ModelOptions for_gpu = o;
        for_gpu.target = "cuda";
        std::fputs(planned(for_gpu, options.dims)->dump(stage).c_str(), stdout);
    } else if (stage == "hashes")
        dump_hashes(options);
    else
        std::fputs(planned(o, options.dims)->dump(stage).c_str(), stdout);
    return 0;
}

/// A name from the file without quotes.
std::string clean(const std::string& name) {
    const std::string quoted = quoted_name(name);
    return quoted.ends_with('\'') ? quoted.substr(1, quoted.size() - 2) : quoted;
}

int command_check(const std::string& path, const OperatorOptions& operators, const std::string& json) {
    const Model model = load_model(path, {}, function_libraries(operators.functions));
    std::vector<Problem> problems;
    LowerOptions options;
    options.operators = shared_operators(operators.libraries);
    lower(model, options, &problems);
    Json list = Json::array();
    for (const Problem& p : problems) {
        std::printf("node %s: %s %s, opset %lld, inputs (%s): %s\n", quoted_name(p.node).c_str(),
                    p.domain.empty() ? "ai.onnx" : clean(p.domain).c_str(), clean(p.op).c_str(),
                    static_cast<long long>(p.opset), p.types.c_str(), p.reason.c_str());
        list.push_back({{"node", p.node},
                        {"op", p.op},
                        {"domain", p.domain},
                        {"opset", p.opset},
                        {"types", p.types},
                        {"reason", p.reason},
                        {"unsupported", p.unsupported}});
    }
    // Names from the file may be arbitrary bytes: invalid UTF-8 is replaced.
    write_json(json, Json{{"model", path}, {"ok", problems.empty()}, {"problems", std::move(list)}}.dump(
                         2, ' ', false, Json::error_handler_t::replace));
    if (problems.empty())
        std::printf("%s: every node is supported\n", path.c_str());
    else
        std::fprintf(stderr, "error: %s: %zu node%s cannot be compiled\n", path.c_str(), problems.size(),
                     problems.size() == 1 ? "" : "s");
    return problems.empty() ? 0 : 1;
}

}  // namespace

void add_dump_command(CLI::App& app, int& status) {
    auto o = std::make_shared<DumpOptions>();
    CLI::App* c = app.add_subcommand("dump", "print an intermediate form of a model");
    add_model_options(*c, o->model);
    add_target_options(*c, o->model);
    c->add_option("--stage", o->stage,
                  "graph, program (default), plan, tiles, llvm, asm, cuda, or hashes: a line for each kernel with the "
                  "hashes of its tile program and of its code before optimisation, both without names")
        ->check(CLI::IsMember({"graph", "program", "plan", "tiles", "llvm", "asm", "cuda", "hashes"}));
    c->add_option("--texts", o->texts,
                  "with --stage hashes: also write the hashed texts to files HASH.txt in this folder");
    add_fixed_dim_option(*c, o->dims);
    c->footer(
        "Examples:\n"
        "  tilewright dump model.onnx --stage plan --dim batch=8\n"
        "  tilewright dump model.onnx --stage asm --isa avx2\n"
        "  tilewright dump model.onnx --stage cuda --precision f16\n"
        "  tilewright dump model.onnx --stage hashes --target-file machine.json --threads 1 --texts kernels");
    c->callback([=, &status] { status = command_dump(*o); });
}

void add_passes_command(CLI::App& app, int& status) {
    CLI::App* c = app.add_subcommand("passes", "list the passes of the compiler, in the order in which they run");
    c->footer(
        "A pass in brackets runs only if an option enables it; one with * cannot be skipped.\n\n"
        "Examples:\n"
        "  tilewright passes\n"
        "  tilewright run model.onnx --skip fuse_rows --print-after fuse --time-passes\n"
        "  tilewright dump model.onnx --stage plan --verify-each");
    c->callback([&status] {
        for (const PassInfo& p : pipeline_passes()) {
            const std::string name = p.on ? std::string(p.name) : fmt::format("[{}]", p.name);
            std::printf("%c %-25s %s\n", p.required ? '*' : ' ', name.c_str(), std::string(p.what).c_str());
        }
        status = 0;
    });
}

void add_check_command(CLI::App& app, int& status) {
    auto model = std::make_shared<std::string>(), json = std::make_shared<std::string>();
    auto operators = std::make_shared<OperatorOptions>();
    CLI::App* c = app.add_subcommand("check", "list every node that cannot be compiled, and why");
    c->add_option("model", *model, "ONNX file")->required();
    add_operator_options(*c, *operators);
    add_json_option(*c, *json);
    c->footer(
        "Examples:\n"
        "  tilewright check model.onnx\n"
        "  tilewright check model.onnx --json problems.json");
    c->callback([=, &status] { status = command_check(*model, *operators, *json); });
}

}  // namespace tilewright
