#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "cost/gpu_target_file.h"
#include "cost/target.h"
#include "driver/commands.h"
#include "driver/commands/common.h"
#include "driver/gpu_run.h"

namespace tilewright {

namespace {

/// Where the rates come from.
std::string origin(const GpuTarget& gpu, const std::string& refused) {
    if (!refused.empty()) return "assumed; not used is " + refused;
    if (gpu.measured) return "measured on this device by bench_probe";
    if (gpu.driver == 0) return "assumed";
    return fmt::format("assumed; bench_probe measures them and keeps them in {}", target_path(gpu));
}

void describe_gpu(const std::string& text, const std::string& json) {
    std::string refused;
    const GpuTarget gpu = gpu_of(text, &refused).value();
    if (text == "cuda" && gpu.driver == 0) std::printf("no GPU is here; without one plans are made for this one:\n");
    std::fputs(print(gpu).c_str(), stdout);
    std::printf("%-10s%s\n", "rates", origin(gpu, refused).c_str());
    write_json(json, to_json(gpu));
}

}  // namespace

void add_info_command(CLI::App& app, int& status) {
    auto target_text = std::make_shared<std::string>("cpu");
    auto measure = std::make_shared<bool>(false);
    auto json = std::make_shared<std::string>();
    CLI::App* c = app.add_subcommand("info", "describe this machine");
    c->add_flag("--calibrate", *measure,
                "measure caches, bandwidths and the FMA peak (some ten seconds) and store them");
    add_target_option(*c, *target_text);
    add_json_option(*c, *json);
    c->footer(
        "Examples:\n"
        "  tilewright info\n"
        "  tilewright info --calibrate --json machine.json\n"
        "  tilewright info --target cuda");
    c->callback([=, &status] {
        status = 0;
        if (*target_text != "cpu") {
            if (*measure) throw CLI::ValidationError("--calibrate", "bench_probe measures a GPU");
            return describe_gpu(*target_text, *json);
        }
        Target target;
        if (*measure) {
            target = calibrate(CalibrationLength::full);
        } else {
            target = current_target();
        }
        std::fputs(print(target).c_str(), stdout);
        write_json(*json, to_json(target));
        if (*measure) std::printf("stored in %s; later plans use these rates\n", save_target(target).c_str());
    });
}

}  // namespace tilewright
