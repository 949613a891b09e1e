#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <new>

#include "base/error.h"
#include "driver/commands.h"
#include "tilewright/tilewright.h"

namespace tilewright {

namespace {

/// Status 1, with an error message unless one was printed, if standard output could not be written.
int printed(int status, bool reported) {
    errno = 0;
    std::cout.flush();
    const bool now = std::fflush(stdout) != 0;
    const int error = errno;
    if ((!now && std::ferror(stdout) == 0 && std::cout.good()) || reported) return status;
    std::fprintf(stderr, "error: cannot write to standard output%s%s\n", error != 0 ? ": " : "",
                 error != 0 ? std::strerror(error) : "");
    return 1;
}

int run(int argc, const char* const* argv, bool& reported) {
    CLI::App app{"Tilewright compiles ONNX models to machine code and runs them."};
    app.name("tilewright");
    app.set_version_flag("--version", tilewright_version());
    app.require_subcommand(1);
    app.failure_message([](const CLI::App*, const CLI::Error& e) {
        return fmt::format(
            "error: {}\nhint: `tilewright --help` lists the commands, `tilewright COMMAND --help` the "
            "options of one\n",
            e.what());
    });
    app.footer(
        "Exit status: 0, 1 (failure, with one `error:` line) or 2 (the command line was wrong).\n\n"
        "Examples:\n"
        "  tilewright zoo resnet18 -o resnet18.onnx\n"
        "  tilewright bench resnet18.onnx --threads 2\n"
        "  tilewright run --help");
    int status = 0;
    reported = true;
    add_run_command(app, status);
    add_bench_command(app, status);
    add_tune_command(app, status);
    add_measure_command(app, status);
    add_compile_command(app, status);
    add_inspect_command(app, status);
    add_explain_command(app, status);
    add_op_command(app, status);
    add_verify_command(app, status);
    add_bisect_command(app, status);
    add_quantize_command(app, status);
    add_check_command(app, status);
    add_dump_command(app, status);
    add_passes_command(app, status);
    add_conformance_command(app, status);
    add_zoo_command(app, status);
    add_info_command(app, status);
    add_db_command(app, status);
    try {
        app.parse(argc, const_cast<char**>(argv));
    } catch (const CLI::Success& e) {
        reported = false;
        return app.exit(e);
    } catch (const CLI::ParseError& e) {
        app.exit(e);
        return 2;
    } catch (const ModelError& e) {
        std::fprintf(stderr, "error: %s\n", e.what());
        if (!e.hint().empty()) std::fprintf(stderr, "hint: %s\n", e.hint().c_str());
        return 1;
    } catch (const InternalError& e) {
        std::fprintf(stderr, "error: %s\nhint: this is a bug of Tilewright; please report it with the model\n",
                     e.what());
        return 1;
    } catch (const std::bad_alloc&) {
        std::fputs("error: not enough memory\n", stderr);
        return 1;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "error: %s\n", e.what());
        return 1;
    }
    reported = false;
    return status;
}

}  // namespace

int run_command(int argc, const char* const* argv) {
    bool reported = false;
    const int status = run(argc, argv, reported);
    return printed(status, reported);
}

}  // namespace tilewright
