// How long `tilewright bisect` takes to find a planted fault of each kind.

#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/clock.h"
#include "driver/bisect/plant_test.h"
#include "driver/bisect/report.h"
#include "driver/inputs.h"
#include "graph/import.h"

using namespace tilewright;

namespace {

/// The machine code of the first kernel from the middle on that `edit` changes.
void plant_code(bisect::Options& o, bool (*edit)(TileProgram&)) {
    o.compile = [edit](const Model& m, const PipelineOptions& p) {
        Compilation c = compile_model(m, p);
        const size_t n = c.model->kernels().size();
        for (size_t k = 0; k < n; ++k) {
            TileProgram other = c.model->kernels()[(n / 2 + k) % n];
            if (edit(other)) return bisect::with_code_of(c, (n / 2 + k) % n, other);
        }
        return c;
    };
}

void plant(bisect::Options& o, const std::string& kind) {
    if (kind == "rewrite")
        o.pipeline.passes.after = [](const std::string& pass, const PassResult& r) {
            if (pass == "rewrite") bisect::break_sum(*r.program, bisect::sums(*r.program).size() / 2);
        };
    if (kind == "layout")
        o.pipeline.passes.after = [](const std::string& pass, const PassResult& r) {
            if (pass == "apply_layouts") bisect::mirror_last_index(*r.unit);
        };
    if (kind == "kernel") plant_code(o, bisect::scale_result);
    if (kind == "precision") plant_code(o, bisect::round_to_bf16);
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"How long it takes to find a planted fault of each kind."};
    std::string path, only;
    int threads = 0;
    bool verbose = false;
    app.add_option("model", path, "ONNX file")->required();
    app.add_option("--threads", threads, "worker threads");
    app.add_option("--kind", only, "rewrite, layout, kernel or precision; all of them by default");
    app.add_flag("-v,--verbose", verbose, "print steps and reports");
    CLI11_PARSE(app, argc, argv);
    const Model model = load_model(path);
    std::printf("%-10s %-9s %8s  %s\n", "planted", "found", "seconds", "where");
    for (const std::string kind : {"none", "rewrite", "layout", "kernel", "precision"}) {
        if (!only.empty() && kind != only) continue;
        bisect::Options o;
        o.model = model;
        o.pipeline.compile.threads = threads;
        o.pipeline.reference = false;
        o.tolerance.max_relative = 1e-4;
        o.inputs = [](const std::vector<ModelIo>& declared) { return make_inputs(declared, {}); };
        plant(o, kind);
        const double start = now_ms();
        if (verbose)
            o.progress = [&](const std::string& step) {
                std::fprintf(stderr, "%7.1f s  %s\n", (now_ms() - start) / 1e3, step.c_str());
            };
        const bisect::Finding f = bisect::find(o);
        std::string where = f.kernel ? f.kernel->at.call->name : f.wrong_after;
        if (!f.first.empty()) where += ", " + f.first[0].name;
        std::printf("%-10s %-9s %8.1f  %s\n", kind.c_str(), std::string(to_string(f.fault)).c_str(),
                    (now_ms() - start) / 1e3, where.c_str());
        if (verbose) std::fputs(bisect::text_of(f, o).c_str(), stdout);
        std::fflush(stdout);
    }
    return 0;
}
