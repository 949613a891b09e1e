#pragma once
// Models compiled for a GPU: what --target names, and running them, on a GPU or in the lockstep executor.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/code_cache.h"
#include "model/gpu_model.h"

namespace tilewright {

/// "cuda", "cuda:sm_80", "cuda:sm_90a" -> the GPU that stands for it (h200, a100, h200). Nothing for anything else.
std::optional<GpuTarget> gpu_of(const std::string& target);

/// Runs every kernel in the lockstep executor, thread by thread on this CPU, and the rest in the interpreter. Minutes
/// for what is not small. Throws RuntimeError that says which kernel did what it must not (backend/cuda/lockstep.h).
/// `progress`: "compiling kernels", "kernel 3 of 17".
std::vector<Tensor> run_in_lockstep(const CompiledModel& model, const std::vector<Tensor>& inputs,
                                    const std::function<void(const std::string&)>& progress = {});

/// The model on this machine's first GPU, for sessions there. Code of kernels that `cache` does not have is compiled,
/// on `threads` threads, and kept there. Throws RuntimeError: no driver, no such GPU, no NVRTC, too little memory.
/// `progress`: "compiling kernel 3 of 17".
std::shared_ptr<const GpuModel> load_on_gpu(const std::shared_ptr<const CompiledModel>& model, const CodeCache& cache,
                                            int threads = 1,
                                            const std::function<void(const std::string&)>& progress = {});

/// Whether this machine has a GPU that models can run on.
bool has_gpu();
/// Compiles the model's kernels for GPUs of this compute capability (80, 90), and keeps their code. Needs no GPU.
/// Throws RuntimeError: no NVRTC.
void compile_for_gpu(const CompiledModel& model, int capability, const CodeCache& cache, int threads = 1,
                     const std::function<void(const std::string&)>& progress = {});

}  // namespace tilewright
