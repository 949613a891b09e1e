// compile, inspect: write a compiled model to a file, and say what such a file has.

#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "artifact/model_file.h"
#include "base/clock.h"
#include "base/error.h"
#include "driver/commands.h"
#include "driver/commands/common.h"
#include "driver/files.h"
#include "graph/graph.h"

namespace tilewright {

namespace {

using Json = nlohmann::ordered_json;

struct CompileCommand {
    ModelOptions model;
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

artifact::ModelFileInfo write_archive(const Compilation& c, const std::string& hash,
                                      const std::filesystem::path& path) {
    const std::string symbol = symbol_for(path);
    artifact::ModelFileInfo written = artifact::write_model_archive(c.model, {hash, c.info}, path.string(), symbol);
    write_file(header_beside(path).string(), {header_of(symbol, path.filename().string())});
    return written;
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
    const std::string hash = artifact::content_hash(read_file(o.model.model));
    Progress progress("compiling " + o.model.model, o.model.progress || o.model.scheduler.measure);
    const Compilation c = compile(o.model, std::move(p), progress);
    progress.step("linking");
    artifact::ModelFileInfo written;
    if (archive)
        written = write_archive(c, hash, o.output);
    else
        artifact::write_model_file(c.model, {hash, c.info}, o.output);
    const double ms = now_ms() - start;
    if (!archive) written = artifact::inspect_model_file(o.output);
    std::printf("%s -> %s: %.0f ms, %u kernels, %.1f MB of weights, %.1f MB in all\n", o.model.model.c_str(),
                o.output.c_str(), ms, written.kernels, static_cast<double>(written.weight_bytes) * 1e-6,
                static_cast<double>(written.file_bytes) * 1e-6);
    write_json(o.json, Json{{"model", o.model.model},
                            {"output", o.output},
                            {"ms", ms},
                            {"kernels", written.kernels},
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

int command_inspect(const std::string& path, const std::string& json) {
    const artifact::ModelFileInfo f = artifact::inspect_model_file(path);
    const artifact::About& a = f.about;
    const Platform& p = a.platform;
    Json j = {{"file", path},
              {"compiler", a.compiler},
              {"format", artifact::kFormatVersion},
              {"abi", artifact::kModelAbi},
              {"model_blake3", a.origin.hash},
              {"arch", p.arch},
              {"isa", to_string(p.isa)},
              {"cpu", p.cpu},
              {"features", p.features}};
    j["inputs"] = described(f.model->inputs(), "input");
    j["outputs"] = described(f.model->outputs(), "output");
    std::printf("compiler   %s, format %u, interface %u\n", a.compiler.c_str(), artifact::kFormatVersion,
                artifact::kModelAbi);
    std::printf("target     %s, %s%s\n", p.arch.c_str(), std::string(to_string(p.isa)).c_str(),
                p.cpu.empty() ? "" : fmt::format(", CPUs like {}", p.cpu).c_str());
    std::printf("needs      %s\n",
                p.features.empty() ? "nothing else" : fmt::format("{}", fmt::join(p.features, " ")).c_str());
    std::printf("model      BLAKE3 %s\n", a.origin.hash.c_str());
    std::printf("kernels    %u%s; %d steps\n", f.kernels,
                f.model->impl().fallback_model() ? ", those of the strict model included" : "", f.model->stats().steps);
    std::printf("bytes      %llu: plan %llu, weights %llu\n", static_cast<unsigned long long>(f.file_bytes),
                static_cast<unsigned long long>(f.plan_bytes), static_cast<unsigned long long>(f.weight_bytes));
    j["kernels"] = f.kernels;
    j["steps"] = f.model->stats().steps;
    j["strict_model"] = f.model->impl().fallback_model() != nullptr;
    j["file_bytes"] = f.file_bytes;
    j["plan_bytes"] = f.plan_bytes;
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
    c->add_option("-o,--output", o->output,
                  "file to write: a shared object; or NAME.a, a static archive with NAME.h beside it")
        ->required();
    c->add_option("--dim", o->dims,
                  "fix a named dimension of the inputs: batch=8; or declare its range, with samples and "
                  "weights: seq=1..512:8,64,128@3")
        ->allow_extra_args(false);
    add_json_option(*c, o->json);
    c->footer(
        "run, bench and verify accept the file in place of a model, and programs load it with tilewright_load. It has\n"
        "machine code, so load files of trusted origin only. It runs on CPUs like this one; with --isa, on all that\n"
        "have these instructions. Equal compilations give equal bytes. Kernels of libraries are not used. A file\n"
        "NAME.a is an archive to link a program with; NAME.h beside it declares the model for "
        "tilewright_load_linked.\n\n"
        "Examples:\n"
        "  tilewright compile model.onnx -o model.so\n"
        "  tilewright compile model.onnx -o model.so --isa avx2 --dim batch=1\n"
        "  tilewright compile model.onnx -o model.a\n"
        "  tilewright run model.so --input x=x.npy");
    c->callback([o, &status] { status = command_compile(*o); });
}

void add_inspect_command(CLI::App& app, int& status) {
    CLI::App* c = app.add_subcommand("inspect", "print what a compiled model needs and has");
    auto path = std::make_shared<std::string>();
    auto json = std::make_shared<std::string>();
    c->add_option("file", *path, "written by `tilewright compile`")->required();
    add_json_option(*c, *json);
    c->footer("Examples:\n  tilewright inspect model.so");
    c->callback([path, json, &status] { status = command_inspect(*path, *json); });
}

}  // namespace tilewright
