#include "driver/zoo/zoo.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "driver/commands.h"
#include "driver/commands/common.h"

namespace tilewright {

namespace {

int command_zoo(const std::string& name, const std::string& path, bool list, uint64_t seed,
                const std::vector<std::string>& settings) {
    if (list || name.empty()) {
        for (const ZooEntry& e : zoo()) {
            std::printf("%-22s %s (%.1f M parameters, %.2f GMACs)\n", e.name.c_str(), e.description.c_str(),
                        static_cast<double>(e.parameters) * 1e-6, static_cast<double>(e.macs) * 1e-9);
            for (const ZooOption& o : e.options)
                std::printf("%-22s   --set %s=%lld  %s\n", "", o.name.c_str(), static_cast<long long>(o.fallback),
                            o.help.c_str());
        }
        return 0;
    }
    ZooSettings values;
    for (const std::string& s : settings) {
        const auto [name_of_setting, value] = parse_setting("--set", s);
        values[name_of_setting] = value;
    }
    const std::string file = path.empty() ? name + ".onnx" : path;
    write_zoo_model(name, file, seed, values);
    std::printf("wrote %s\n", file.c_str());
    return 0;
}

}  // namespace

void add_zoo_command(CLI::App& app, int& status) {
    auto name = std::make_shared<std::string>();
    auto path = std::make_shared<std::string>();
    auto list = std::make_shared<bool>(false);
    auto seed = std::make_shared<uint64_t>(0);
    auto settings = std::make_shared<std::vector<std::string>>();
    CLI::App* c = app.add_subcommand("zoo", "write a well-known architecture with seeded weights");
    c->add_option("name", *name, "the model; without a name, or with --list, all are listed");
    c->add_option("-o,--output", *path, "file to write; default: NAME.onnx");
    c->add_flag("--list", *list, "list the models and their settings");
    c->add_option("--seed", *seed, "of the weights");
    c->add_option("--set", *settings, "a setting: batch=8")->allow_extra_args(false);
    c->footer(
        "Examples:\n"
        "  tilewright zoo --list\n"
        "  tilewright zoo resnet50 -o resnet50.onnx --set batch=8 --seed 1");
    c->callback([=, &status] { status = command_zoo(*name, *path, *list, *seed, *settings); });
}

}  // namespace tilewright
