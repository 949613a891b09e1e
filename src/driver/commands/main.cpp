#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>
#include <new>

#include "base/error.h"
#include "driver/commands.h"
#include "tilewright/tilewright.h"

namespace tilewright {

int run_command(int argc, const char* const* argv) {
    CLI::App app{"Tilewright compiles ONNX models to machine code and runs them."};
    app.name("tilewright");
    app.set_version_flag("--version", tilewright_version());
    app.require_subcommand(1);
    app.footer(
        "Exit status: 0, 1 (it failed; one `error:` line says where and why) or 2 (the command line was wrong).\n\n"
        "Examples:\n"
        "  tilewright zoo resnet18 -o resnet18.onnx\n"
        "  tilewright bench resnet18.onnx --threads 2\n"
        "  tilewright run --help");
    int status = 0;
    add_run_command(app, status);
    add_bench_command(app, status);
    add_explain_command(app, status);
    add_op_command(app, status);
    add_verify_command(app, status);
    add_check_command(app, status);
    add_dump_command(app, status);
    add_conformance_command(app, status);
    add_zoo_command(app, status);
    add_info_command(app, status);
    add_db_command(app, status);
    try {
        app.parse(argc, const_cast<char**>(argv));
    } catch (const CLI::Success& e) {
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
    return status;
}

}  // namespace tilewright
