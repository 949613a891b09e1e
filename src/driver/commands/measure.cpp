// measure: runs the jobs of `tune --jobs` on this machine.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <iterator>

#include "base/error.h"
#include "base/whole_file.h"
#include "compile/tune_jobs.h"
#include "driver/commands.h"
#include "driver/commands/common.h"
#include "driver/files.h"
#include "tune/exchange.h"

namespace tilewright {

namespace {

struct MeasureCommand {
    std::string jobs = "-";
    bool estimates = false;
};

int command_measure(const MeasureCommand& o) {
    const bool standard_input = o.jobs == "-";
    const std::string text =
        standard_input ? std::string(std::istreambuf_iterator<char>(std::cin), {}) : read_file(o.jobs);
    CompileOptions options;
    options.warn = warn_once;
    for (const TuneJob& job : parse_jobs(text, standard_input ? "standard input" : "'" + o.jobs + "'"))
        for (const Measurement& m : run_job(job, options, o.estimates)) {
            std::puts(to_json_line(m).c_str());
            std::fflush(stdout);
        }
    return 0;
}

}  // namespace

void add_measure_command(CLI::App& app, int& status) {
    CLI::App* c = app.add_subcommand("measure", "measure jobs of `tune --jobs` on this machine");
    auto o = std::make_shared<MeasureCommand>();
    c->add_option("jobs", o->jobs, "a file of jobs, one a line (-: standard input)");
    c->add_flag("--estimates", o->estimates,
                "run nothing, and print estimates as if they were measured: to test what distributes jobs");
    c->footer(
        "Every candidate is checked and measured as `tune` does it. Records go to standard output, a line each, for\n"
        "`tilewright db merge`; nothing is kept here. Jobs are for machines of one kind (CPU, caches, usable CPUs), "
        "and\n"
        "others refuse them. Nothing else should run on the machine.\n\n"
        "Examples:\n"
        "  tilewright tune model.onnx --budget 1000 --jobs 8 > jobs\n"
        "  ssh node tilewright measure - < jobs > records\n"
        "  tilewright db merge records\n"
        "  tilewright tune model.onnx --budget 1000");
    c->callback([o, &status] { status = command_measure(*o); });
}

}  // namespace tilewright
