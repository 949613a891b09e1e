#pragma once
// From a plan to something that runs: machine code, and constants where kernels read them.

#include <cstdint>
#include <memory>
#include <vector>

#include "compile/options.h"
#include "compile/pass.h"
#include "model/compiled_model.h"

namespace tilewright {

/// Inputs, outputs and what else a compiled model has of its program and its options.
void describe_interface(CompiledModel::Impl& model, const Program& program, const CompileOptions& options);

/// The code of each kernel: generated for this CPU, or a library's.
std::vector<cpu::CompiledKernel> code_of(const KernelSet& kernels, const Target& target, const CompileOptions& options);
/// Constants of library kernels are replaced by the library's form of them (packed weights). Those without another
/// reader are freed.
void prepare_constants(Plan& plan, const std::vector<cpu::CompiledKernel>& code);
/// Both, for the model's plan; for a GPU its kernels as CUDA C++.
void generate_code(CompiledModel::Impl& model, const CompileOptions& options);

/// Moves the smaller constants into one block, in huge pages where the system has them: a product reads megabytes of
/// weights, and each 4 KiB page of them costs a miss of the address cache. The weights of a loop's body stay in a cache
/// of their size only where they are contiguous.
void gather_constants(Plan& plan);

/// The model, with the times of its passes.
std::shared_ptr<const CompiledModel> finished(std::unique_ptr<CompiledModel::Impl> model,
                                              const std::vector<PassTime>& passes);

}  // namespace tilewright
