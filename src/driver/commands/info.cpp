#include <CLI/CLI.hpp>
#include <cstdio>

#include "cost/target.h"
#include "driver/commands.h"
#include "driver/commands/common.h"

namespace tilewright {

void add_info_command(CLI::App& app, int& status) {
    auto measure = std::make_shared<bool>(false);
    auto json = std::make_shared<std::string>();
    CLI::App* c = app.add_subcommand("info", "describe this machine");
    c->add_flag("--calibrate", *measure,
                "measure caches, bandwidths and the FMA peak (some ten seconds) and store them");
    add_json_option(*c, *json);
    c->footer(
        "Examples:\n"
        "  tilewright info\n"
        "  tilewright info --calibrate --json machine.json");
    c->callback([=, &status] {
        Target target;
        if (*measure) {
            target = calibrate(CalibrationLength::full);
        } else {
            target = current_target();
        }
        std::fputs(print(target).c_str(), stdout);
        write_json(*json, to_json(target));
        if (*measure) std::printf("stored in %s; later plans use these rates\n", save_target(target).c_str());
        status = 0;
    });
}

}  // namespace tilewright
