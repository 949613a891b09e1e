#pragma once
// Models compiled for a GPU: what --target names, and running them, on a GPU or in the lockstep executor.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/session.h"

namespace tilewright {

/// "cuda", "cuda:sm_80", "cuda:sm_90a" -> the GPU that stands for it (h200, a100, h200). Nothing for anything else.
std::optional<GpuTarget> gpu_of(const std::string& target);

/// Runs every kernel in the lockstep executor, thread by thread on this CPU, and the rest in the interpreter. Minutes
/// for what is not small. Throws RuntimeError that says which kernel did what it must not (backend/cuda/lockstep.h).
/// `progress`: "compiling kernels", "kernel 3 of 17".
std::vector<Tensor> run_in_lockstep(const CompiledModel& model, const std::vector<Tensor>& inputs,
                                    const std::function<void(const std::string&)>& progress = {});

/// The kernels as machine code of the GPU, by NVRTC. Throws RuntimeError where there is none, or it refuses a text.
std::string gpu_code(const CompiledModel& model, const GpuTarget& target);

/// Runs the model on this machine's first GPU, kernel by kernel, with its operands copied there and its results back.
/// Throws RuntimeError: no driver, no such GPU, too little memory.
std::vector<Tensor> run_on_gpu(const CompiledModel& model, const std::vector<Tensor>& inputs);

}  // namespace tilewright
