#pragma once
// From a plan to an executable: machine code, and constants in the form and place that kernels read.

#include <cstdint>
#include <memory>
#include <vector>

#include "compile/options.h"
#include "compile/pass.h"
#include "model/compiled_model.h"

namespace tilewright {

/// Sets the inputs, outputs and other attributes that a compiled model takes from its program and options.
void describe_interface(CompiledModel::Impl& model, const Program& program, const CompileOptions& options);

/// Returns the code of each kernel: generated for this CPU, or a library's.
std::vector<cpu::CompiledKernel> code_of(const KernelSet& kernels, const Target& target, const CompileOptions& options);
/// Replaces constants of library kernels by the library's packed form. Constants without another reader are freed.
void prepare_constants(Plan& plan, const std::vector<cpu::CompiledKernel>& code);
/// Both of the above for the model's plan; for a GPU, its kernels as CUDA C++.
void generate_code(CompiledModel::Impl& model, const CompileOptions& options);

/// Moves constants that have no huge pages (base/tensor.h) into one block, in huge pages where the system has them: a
/// contraction reads megabytes of weights, and each 4 KiB page costs a TLB miss. The weights of a loop's body stay in a
/// cache of their size only if they are contiguous.
void gather_constants(Plan& plan);

/// Returns the model with the times of its passes. Memory that compiling has freed is the system's again.
std::shared_ptr<const CompiledModel> finished(std::unique_ptr<CompiledModel::Impl> model,
                                              const std::vector<PassTime>& passes);

}  // namespace tilewright
