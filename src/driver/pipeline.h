#pragma once
// The way of a model, from a file to machine code, in one function.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <functional>

#include "graph/graph.h"
#include "model/session.h"
#include "ops/lowering.h"
#include "program/rewrite/search.h"

namespace tilewright {

/// All rules; transformed weights may take as much folding as they are worth.
RewriteSearch default_rewrites();

struct PipelineOptions {
    CompileOptions compile;
    std::vector<std::string> skip;  ///< passes to leave out, by name ("fold_constants")
    bool verify = false;            ///< check the program after every pass
    /// Keep the contents of Compilation::program's constants, which interpret reads. Else they are freed as soon as the
    /// model does not need them any more.
    bool reference = true;
    /// Search for a cheaper equivalent program, judged as it would be planned; none: the program stays as it is.
    std::optional<RewriteSearch> rewrite = default_rewrites();
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
/// It is the program before it was rewritten; its constants have contents where PipelineOptions::reference is set.
struct Compilation {
    Program program;
    std::shared_ptr<const CompiledModel> model;
    std::vector<PassTime> passes;
    RewriteReport rewrites;  ///< where PipelineOptions::rewrite asked for them
    double load_ms = 0, compile_ms = 0;
};

/// Throws ModelError, and RuntimeError where the machine does not suffice (driver/limits.h).
Compilation compile_model(const Model& model, const PipelineOptions& options = {});
Compilation compile_model(const std::string& path, const PipelineOptions& options = {});
Compilation compile_model(const void* bytes, size_t size, const PipelineOptions& options = {});
/// The passes before code generation alone.
Program make_program(const Model& model, const PipelineOptions& options, std::vector<PassTime>* passes = nullptr);
/// The first half of them: operators as primitives, what is known folded.
Program lower_model(const Model& model, const PipelineOptions& options, std::vector<PassTime>* passes = nullptr);
/// The second half: the program in a form that does not depend on spelling, and by cheaper ways where the options ask
/// for it.
Program rewrite_program(Program program, const PipelineOptions& options, std::vector<PassTime>* passes = nullptr,
                        RewriteReport* report = nullptr);

}  // namespace tilewright
