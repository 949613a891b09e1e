#pragma once
// The way of a model, from a file to machine code, in one function.

#include <memory>
#include <string>
#include <vector>

#include <functional>

#include "graph/graph.h"
#include "model/session.h"
#include "ops/lowering.h"

namespace tilewright {

struct PipelineOptions {
    CompileOptions compile;
    std::vector<std::string> skip;  ///< passes to leave out, by name ("fold_constants")
    bool verify = false;            ///< check the program after every pass
    /// Called with each pass's name and the program after it.
    std::function<void(const std::string&, const Program&)> dump;
    /// Called with the name of what begins: each pass, then "orchestrate and generate code".
    std::function<void(const std::string&)> progress;
};

struct PassTime {
    std::string name;
    double ms = 0;
};

/// What the compiler made of a model. `program` is the reference: interpret(program) says what the outputs should be.
struct Compilation {
    Program program;
    std::shared_ptr<const CompiledModel> model;
    std::vector<PassTime> passes;
    double load_ms = 0, compile_ms = 0;
};

/// Throws ModelError, and RuntimeError where the machine does not suffice (driver/limits.h).
Compilation compile_model(const Model& model, const PipelineOptions& options = {});
Compilation compile_model(const std::string& path, const PipelineOptions& options = {});
Compilation compile_model(const void* bytes, size_t size, const PipelineOptions& options = {});
/// The passes before code generation alone.
Program make_program(const Model& model, const PipelineOptions& options, std::vector<PassTime>* passes = nullptr);

}  // namespace tilewright
