// compile, inspect: write a compiled model to a file, and say what such a file has.

#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "artifact/model_file.h"
#include "base/clock.h"
#include "base/error.h"
#include "driver/commands.h"
#include "driver/commands/common.h"
#include "driver/files.h"
#include "graph/graph.h"
#include "opaque/custom.h"

namespace tilewright {

namespace {

using Json = nlohmann::ordered_json;

struct CompileCommand {
    ModelOptions model;
    std::vector<std::string> isas;
    std::vector<std::string> dims;
    std::string output, json;
};

constexpr std::string_view kHeaderStart = "/* The model in ";

/// What NAME.h beside the archive NAME.a declares.
std::string header_of(const std::string& symbol, const std::string& archive) {
    std::string guard = symbol + "_h";
    std::transform(guard.begin(), guard.end(), guard.begin(), [](unsigned char c) { return std::toupper(c); });
    return fmt::format(R"({3}{0}, for programs that are linked with it and with tilewright_runtime:
 *
 *     tilewright_load_linked(&{1}, &model, &error)
 *
 * Written by `tilewright compile`. */
#ifndef {2}
#define {2}

#include <tilewright/tilewright.h>

#ifdef __cplusplus
extern "C" {{
#endif

extern const tilewright_linked_model {1};

#ifdef __cplusplus
}}
#endif

#endif
)",
                       archive, symbol, guard, kHeaderStart);
}

/// "out/resnet-50.a" -> "tilewright_model_resnet_50"
std::string symbol_for(const std::filesystem::path& archive) {
    std::string out = "tilewright_model_" + archive.stem().string();
    for (char& c : out)
        if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
    return out;
}

std::filesystem::path header_beside(std::filesystem::path archive) { return archive.replace_extension(".h"); }

/// Throws ModelError where NAME.h exists and `compile` has not written it.
void check_header(const std::filesystem::path& archive) {
    const std::string header = header_beside(archive).string();
    check_writable(header);
    if (std::filesystem::exists(header) && !read_file(header).starts_with(kHeaderStart))
        throw ModelError(fmt::format("'{}', which declares the model of the archive, exists and was not written by "
                                     "`tilewright compile`",
                                     header),
                         "give the archive another name");
}

artifact::ModelFileInfo write_archive(const artifact::Compilations& models, const artifact::ModelOrigin& origin,
                                      const std::filesystem::path& path) {
    const std::string symbol = symbol_for(path);
    artifact::ModelFileInfo written = artifact::write_model_archive(models, origin, path.string(), symbol);
    write_file(header_beside(path).string(), {header_of(symbol, path.filename().string())});
    return written;
}

std::vector<std::string> all_levels() {
    std::vector<std::string> names;
    for (const CodeLevel& level : code_levels()) names.emplace_back(level.name);
    return names;
}

/// The levels that the user named, each once, from the least to the most; {""} for this machine's.
std::vector<std::string> levels_of(const std::vector<std::string>& named) {
    std::vector<std::string> out;
    std::set<std::string_view> archs;
    for (const CodeLevel& level : code_levels()) {
        if (std::find(named.begin(), named.end(), level.name) == named.end()) continue;
        out.emplace_back(level.name);
        archs.insert(level.arch());
    }
    if (archs.size() > 1)
        throw CLI::ValidationError(
            "--isa", fmt::format("a file is for one architecture, and these are for {}", fmt::join(archs, " and ")));
    if (out.empty()) out.emplace_back();
    return out;
}

uint64_t kernels_of(const artifact::ModelFileInfo& file) {
    uint64_t sum = 0;
    for (const artifact::ModelFileInfo::Variant& v : file.variants) sum += v.kernels;
    return sum;
}

int command_compile(const CompileCommand& o) {
    const bool archive = std::filesystem::path(o.output).extension() == ".a";
    check_writable(o.output);
    if (archive) check_header(o.output);
    PipelineOptions p = pipeline_options(o.model);
    p.reference = false;
    p.compile.keep_objects = true;
    p.compile.provider = nullptr;  // kernels of libraries cannot be saved
    DimSettings dims = dim_settings(o.dims);
    p.compile.dims = std::move(dims.sizes);
    p.compile.ranges = std::move(dims.ranges);
    const double start = now_ms();
    const std::string hash = artifact::content_hash_of_file(o.model.model);
    const std::vector<std::string> levels = levels_of(o.isas);
    Progress progress("compiling " + o.model.model, o.model.progress || o.model.scheduler.measure);
    artifact::Compilations models;
    artifact::ModelOrigin origin{hash, {}};
    for (const std::string& level : levels) {
        p.compile.isa = level;
        Compilation c = compile(o.model, p, progress);
        models.push_back(std::move(c.model));
        origin.info = std::move(c.info);
    }
    progress.step("linking");
    artifact::ModelFileInfo written;
    if (archive)
        written = write_archive(models, origin, o.output);
    else
        written = artifact::write_model_file(models, origin, o.output);
    const double ms = now_ms() - start;
    const auto kernels = static_cast<unsigned long long>(kernels_of(written));
    std::printf("%s -> %s: %.0f ms, %llu kernels, %.1f MB of weights, %.1f MB in all\n", o.model.model.c_str(),
                o.output.c_str(), ms, kernels, static_cast<double>(written.weight_bytes) * 1e-6,
                static_cast<double>(written.file_bytes) * 1e-6);
    write_json(o.json, Json{{"model", o.model.model},
                            {"output", o.output},
                            {"levels", o.isas.empty() ? Json::array() : Json(levels)},
                            {"ms", ms},
                            {"kernels", kernels},
                            {"weight_bytes", written.weight_bytes},
                            {"file_bytes", written.file_bytes}}
                           .dump(2));
    return 0;
}

Json described(const std::vector<ModelIo>& all, const char* what) {
    Json list = Json::array();
    for (const ModelIo& io : all) {
        const std::string shape = to_string(std::span<const Expr>(io.shape));
        std::printf("%s %s %s%s\n", what, quoted_name(io.name).c_str(), std::string(to_string(io.dtype)).c_str(),
                    shape.c_str());
        list.push_back({{"name", io.name}, {"dtype", to_string(io.dtype)}, {"shape", shape}});
    }
    return list;
}

/// Prints the variants of a file, and returns them. `runs`: the one that this CPU runs.
Json described(const std::vector<artifact::ModelFileInfo::Variant>& variants, std::optional<size_t> runs) {
    Json list = Json::array();
    for (size_t v = 0; v < variants.size(); ++v) {
        const Platform& p = variants[v].platform;
        std::printf("target     %s, %s%s: %llu kernels, a plan of %llu bytes%s\n", p.arch.c_str(),
                    std::string(to_string(p.isa)).c_str(),
                    p.cpu.empty() ? "" : fmt::format(", CPUs like {}", p.cpu).c_str(),
                    static_cast<unsigned long long>(variants[v].kernels),
                    static_cast<unsigned long long>(variants[v].plan_bytes), runs == v ? "; runs here" : "");
        std::printf("  needs    %s\n",
                    p.features.empty() ? "nothing else" : fmt::format("{}", fmt::join(p.features, " ")).c_str());
        list.push_back({{"arch", p.arch},
                        {"isa", to_string(p.isa)},
                        {"cpu", p.cpu},
                        {"features", p.features},
                        {"kernels", variants[v].kernels},
                        {"plan_bytes", variants[v].plan_bytes},
                        {"runs_here", runs == v}});
    }
    return list;
}

/// Adds the caller's operators that the plan calls.
void add_operators(const Plan& plan, std::set<std::string>& names) {
    for (const Step& step : plan.steps) {
        if (const auto* id = std::get_if<PrimitiveId>(&step.what))
            if (const auto* node = std::get_if<Opaque>(&plan.program.primitives[*id].kind))
                if (const auto op = custom_operator_of(*node->op)) names.insert(operator_title(op->domain, op->name));
        for (const auto& body : step.bodies) add_operators(*body, names);
    }
}

int command_inspect(const std::string& path, const std::string& json) {
    const artifact::ModelFileInfo f = artifact::inspect_model_file(path);
    const artifact::About& a = f.about;
    Json j = {{"file", path},
              {"compiler", a.compiler},
              {"format", artifact::kFormatVersion},
              {"abi", artifact::kModelAbi},
              {"model_blake3", a.origin.hash}};
    j["inputs"] = described(f.model->inputs(), "input");
    j["outputs"] = described(f.model->outputs(), "output");
    std::printf("compiler   %s, format %u, interface %u\n", a.compiler.c_str(), artifact::kFormatVersion,
                artifact::kModelAbi);
    std::printf("model      BLAKE3 %s\n", a.origin.hash.c_str());
    j["variants"] = described(f.variants, artifact::variant_for(f.variants, host_features()));
    const bool strict = f.model->impl().fallback_model() != nullptr;
    std::printf("steps      %d%s\n", f.model->stats().steps,
                strict ? "; kernels are also those of the strict model" : "");
    std::printf("bytes      %llu, weights %llu\n", static_cast<unsigned long long>(f.file_bytes),
                static_cast<unsigned long long>(f.weight_bytes));
    j["steps"] = f.model->stats().steps;
    j["strict_model"] = strict;
    std::set<std::string> operators;
    add_operators(f.model->plan(), operators);
    if (!operators.empty())
        std::printf("operators  %s, of the caller\n", fmt::format("{}", fmt::join(operators, ", ")).c_str());
    j["operators"] = operators;
    j["file_bytes"] = f.file_bytes;
    j["weight_bytes"] = f.weight_bytes;
    write_json(json, j.dump(2));
    return 0;
}

}  // namespace

void add_compile_command(CLI::App& app, int& status) {
    CLI::App* c = app.add_subcommand("compile", "compile a model to a file that runs without compilation");
    auto o = std::make_shared<CompileCommand>();
    add_model_options(*c, o->model);
    add_kv_cache_option(*c, o->model);
    c->remove_option(c->get_option("--isa"));
    c->add_option("--isa", o->isas,
                  fmt::format("instruction sets to generate for instead of this machine's best, as in avx2,avx512,amx: "
                              "the file has code for each, and a CPU runs the last one that it has: {}",
                              fmt::join(all_levels(), ", ")))
        ->delimiter(',')
        ->check(CLI::IsMember(all_levels()));
    c->add_option("-o,--output", o->output,
                  "file to write: a shared object; or NAME.a, a static archive with NAME.h beside it")
        ->required();
    add_fixed_dim_option(*c, o->dims);
    add_json_option(*c, o->json);
    c->footer(
        "run, bench and verify accept the file in place of a model, and programs load it with tilewright_load. It has\n"
        "machine code, so load files of trusted origin only. It runs on CPUs like this one; with --isa, on all that\n"
        "have one of these sets of instructions. Equal compilations give equal bytes. Kernels of libraries are not "
        "used. A file\n"
        "NAME.a is an archive to link a program with; NAME.h beside it declares the model for "
        "tilewright_load_linked.\n\n"
        "Examples:\n"
        "  tilewright compile model.onnx -o model.so\n"
        "  tilewright compile model.onnx -o model.so --isa avx2,avx512,amx --dim batch=1\n"
        "  tilewright compile model.onnx -o model.so --isa neon        (for AArch64)\n"
        "  tilewright compile model.onnx -o model.a\n"
        "  tilewright run model.so --input x=x.npy");
    c->callback([o, &status] { status = command_compile(*o); });
}

void add_inspect_command(CLI::App& app, int& status) {
    CLI::App* c = app.add_subcommand("inspect", "print what a compiled model needs and has");
    auto path = std::make_shared<std::string>();
    auto json = std::make_shared<std::string>();
    c->add_option("file", *path, "written by `tilewright compile`: a shared object or an archive")->required();
    add_json_option(*c, *json);
    c->footer(
        "The file may be for another machine: nothing of it is loaded or run.\n\n"
        "Examples:\n"
        "  tilewright inspect model.so\n"
        "  tilewright inspect model.a --json model.json");
    c->callback([path, json, &status] { status = command_inspect(*path, *json); });
}

}  // namespace tilewright
