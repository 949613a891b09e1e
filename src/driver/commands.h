#pragma once
// The tool's commands. Each adds itself to the command line; `run_command` is main() without the process around it.

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tilewright {

/// Options that mean the same in every command that takes them.
struct CommonOptions {
    std::string model;
    std::vector<std::string> dims;    ///< "batch=8"
    std::vector<std::string> inputs;  ///< "x=file.npy", "x=random"
    int threads = 0;
    uint64_t seed = 0;
    std::string isa;
    std::string json;
    bool no_fuse = false, no_layouts = false;
};

void add_model_commands(CLI::App& app, int& status);  ///< run, bench, verify, dump, check
void add_conformance_command(CLI::App& app, int& status);
void add_zoo_command(CLI::App& app, int& status);
void add_info_command(CLI::App& app, int& status);

/// Exit status: 0, 1 (it failed: one `error:` line, then `hint:` lines), 2 (usage).
int run_command(int argc, const char* const* argv);

}  // namespace tilewright
