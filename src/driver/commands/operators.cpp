// Operators of the command line: functions of ONNX files, and shared libraries.

#include <CLI/CLI.hpp>
#include <memory>

#include "driver/api_operator.h"
#include "driver/commands/common.h"
#include "graph/import.h"

namespace tilewright {

void add_operator_options(CLI::App& command, OperatorOptions& o) {
    command
        .add_option("--functions", o.functions,
                    "ONNX file whose functions define operators that the model uses; may be given several times")
        ->allow_extra_args(false);
    command
        .add_option("--operators", o.libraries,
                    "shared library with operators that the model uses (tilewright/operator_library.h); its code runs "
                    "in this process; may be given several times")
        ->allow_extra_args(false);
}

std::vector<FunctionLibrary> function_libraries(const std::vector<std::string>& paths) {
    std::vector<FunctionLibrary> out;
    for (const std::string& path : paths) out.push_back(read_function_library(path));
    return out;
}

std::shared_ptr<const CustomOperators> shared_operators(const std::vector<std::string>& paths) {
    if (paths.empty()) return nullptr;
    auto all = std::make_shared<CustomOperators>();
    for (const std::string& path : paths) api::add_library(path, *all);
    return all;
}

Model load_model(const ModelOptions& o) { return load_model(o.model, {}, function_libraries(o.operators.functions)); }

}  // namespace tilewright
