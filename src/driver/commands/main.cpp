#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>

#include "base/error.h"
#include "driver/commands.h"

namespace tilewright {

int run_command(int argc, const char* const* argv) {
    CLI::App app{
        "Tilewright compiles ONNX models to machine code and runs them.\n\n"
        "  tilewright zoo resnet18 -o resnet18.onnx\n"
        "  tilewright bench resnet18.onnx --threads 2"};
    app.name("tilewright");
    app.require_subcommand(1);
    app.fallthrough();
    int status = 0;
    add_model_commands(app, status);
    add_conformance_command(app, status);
    add_zoo_command(app, status);
    add_info_command(app, status);
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
    } catch (const std::exception& e) {
        std::fprintf(stderr, "error: %s\n", e.what());
        return 1;
    }
    return status;
}

}  // namespace tilewright
