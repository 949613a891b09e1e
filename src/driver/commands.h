#pragma once
// The tool's commands. Each registers itself with the command line; `run_command` is main() without process setup.

namespace CLI {
class App;
}

namespace tilewright {

void add_run_command(CLI::App& app, int& status);
void add_compile_command(CLI::App& app, int& status);
void add_inspect_command(CLI::App& app, int& status);
void add_verify_command(CLI::App& app, int& status);
void add_bisect_command(CLI::App& app, int& status);
void add_quantize_command(CLI::App& app, int& status);
void add_bench_command(CLI::App& app, int& status);
void add_tune_command(CLI::App& app, int& status);
void add_measure_command(CLI::App& app, int& status);
void add_op_command(CLI::App& app, int& status);
void add_dump_command(CLI::App& app, int& status);
void add_passes_command(CLI::App& app, int& status);
void add_check_command(CLI::App& app, int& status);
void add_conformance_command(CLI::App& app, int& status);
void add_zoo_command(CLI::App& app, int& status);
void add_info_command(CLI::App& app, int& status);
void add_explain_command(CLI::App& app, int& status);
void add_db_command(CLI::App& app, int& status);

/// The exit status: 0, 1 (failure: one `error:` line, then `hint:` lines), or 2 (wrong command line).
int run_command(int argc, const char* const* argv);

}  // namespace tilewright
