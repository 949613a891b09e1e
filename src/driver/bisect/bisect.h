#pragma once
// Finds the first tensors, and the pass or kernel, where the results of a compiled model part from a reference.
//
//     reference   ==  program after `lower`       no: an operator is lowered wrong, or the reference differs
//     program after each pass, interpreted        the first one that parts: a wrong rewrite or layout
//     kernel by kernel, on interpreted inputs     the first one beyond its error bound: a wrong kernel
//     kernels one after the other                 rounding errors that add up; if they agree: a fault of the session
//
// Programs are interpreted in double precision, so that a pass that only changes roundings stays right, and every
// tensor that keeps its name from the last right program to the first wrong one is compared.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compile/pipeline.h"
#include "driver/bisect/evidence.h"
#include "driver/bisect/kernels.h"
#include "driver/bisect/snapshots.h"

namespace tilewright::bisect {

struct Options {
    Model model;
    PipelineOptions pipeline;
    /// One tensor for each declared input.
    std::function<std::vector<Tensor>(const std::vector<ModelIo>&)> inputs;
    /// Tensors of the model by name, at least one output among them, for these inputs. Empty: the interpreter's.
    std::function<std::vector<NamedTensor>(const std::vector<ModelIo>&, const std::vector<Tensor>&)> reference;
    std::string reference_name = "the interpreter";  ///< in texts
    Tolerance tolerance;                             ///< of outputs, and of tensors between passes
    bool kernel_bounds = true;                       ///< KernelSearchOptions::bounds
    std::function<void(const std::string&)> progress = {};

    // How a model is compiled and run; by default for and on this CPU.
    std::function<Compilation(const Model&, const PipelineOptions&)> compile = {};
    std::function<std::vector<Tensor>(const Compilation&, const std::vector<Tensor>&)> run = {};
    std::function<KernelRunner(const Compilation&)> kernels = {};
};

/// What is at fault.
enum class Fault : uint8_t {
    None,      ///< the outputs agree
    Operator,  ///< the reference parts from the operators' definitions, before any pass
    Pass,      ///< a pass changes the results
    Kernel,    ///< a kernel is wrong
    Numerics,  ///< every pass and kernel is right: rounding errors pass the tolerance
    Session    ///< as Numerics, but kernels one after the other give the right results
};
std::string_view to_string(Fault fault);

/// A tensor that parts.
struct PartedTensor {
    std::string name;
    Comparison comparison;
    std::string expression;          ///< of the primitive that computes it, in the wrong program
    std::vector<std::string> nodes;  ///< of the model: "conv1 (Conv)"
};

struct OutputResult {
    std::string name;
    Comparison comparison;
};

struct Finding {
    Fault fault = Fault::None;
    std::vector<OutputResult> outputs;
    std::string right_after, wrong_after;  ///< passes: of Pass, and of Numerics where rounding passes the tolerance
    std::vector<PartedTensor> first;       ///< in topological order, each with all that it depends on in agreement
    std::optional<KernelFault> kernel;
    std::string tiling;                       ///< of the kernel
    std::vector<std::string> kernel_results;  ///< names
    std::vector<std::string> kernel_nodes;    ///< "conv1 (Conv)"
    std::vector<std::string> notes;           ///< what else was found, a sentence each
    Evidence evidence;
    std::shared_ptr<const Snapshots> snapshots;  ///< has the plan that `kernel` refers to
};

/// Throws ModelError for a reference that has none of the model's outputs, and what compilation and execution throw.
Finding find(const Options& options);

}  // namespace tilewright::bisect
