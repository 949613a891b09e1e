#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>

#include "base/error.h"
#include "cost/target.h"
#include "driver/commands.h"

namespace tilewright {

void add_info_command(CLI::App& app, int& status) {
    auto measure = std::make_shared<bool>(false);
    auto json = std::make_shared<std::string>();
    CLI::App* c = app.add_subcommand("info", "what this machine can do\n  tilewright info --calibrate");
    c->add_flag("--calibrate", *measure,
                "measure caches, bandwidths and the FMA peak (some ten seconds) and keep them");
    c->add_option("--json", *json, "write the description to this file");
    c->callback([=, &status] {
        Target target;
        if (*measure) {
            target = calibrate();
            std::printf("kept in %s\n", save_target(target).c_str());
        } else {
            target = load_target().value_or(host_target());
        }
        std::fputs(print(target).c_str(), stdout);
        if (!json->empty()) {
            std::ofstream out(*json);
            out << to_json(target) << "\n";
            if (!out) throw RuntimeError("cannot write '" + *json + "'");
        }
        status = 0;
    });
}

}  // namespace tilewright
