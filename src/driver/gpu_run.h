#pragma once
// Models compiled for a GPU: parsing of --target, and execution on a GPU or in the lockstep executor.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/code_cache.h"
#include "model/gpu_model.h"
#include "model/plan_program.h"

namespace tilewright {

/// "cuda": this machine's first GPU, as its driver describes it and with the rates that are kept for it; without one,
/// an H200. "cuda:sm_80", "cuda:sm_90a": a100, h200. A path that ends in .json: the GPU that the file describes
/// (bench_probe, `info --json`); throws RuntimeError. Nothing for anything else. `why`: see with_kept_rates.
std::optional<GpuTarget> gpu_of(const std::string& target, std::string* why = nullptr);

/// Compiles the model's kernels for the lockstep executor, and runs them there one by one. `model` must outlive the
/// result. `progress`: "compiling kernels", "kernel 3 of 17".
KernelRunner lockstep_kernels(const CompiledModel& model, const std::function<void(const std::string&)>& progress = {});

/// Runs every kernel in the lockstep executor, thread by thread on this CPU, and all other steps in the interpreter.
/// Takes minutes for models that are not small. Throws RuntimeError with the kernel of an invalid access
/// (backend/cuda/lockstep.h). `progress`: "compiling kernels", "kernel 3 of 17".
std::vector<Tensor> run_in_lockstep(const CompiledModel& model, const std::vector<Tensor>& inputs,
                                    const std::function<void(const std::string&)>& progress = {});

/// Loads the model on this machine's first GPU, for sessions there. Kernels that are not in `cache` are compiled on
/// `threads` threads and stored there. Throws RuntimeError: no driver, no such GPU, no NVRTC, too little memory.
/// `progress`: "compiling kernel 3 of 17".
std::shared_ptr<const GpuModel> load_on_gpu(const std::shared_ptr<const CompiledModel>& model, const CodeCache& cache,
                                            int threads = 1,
                                            const std::function<void(const std::string&)>& progress = {});

/// True if this machine has a GPU that can run models.
bool has_gpu();
/// Whether cuBLASLt or cuDNN works on it.
bool has_gpu_libraries();
/// Compiles the model's kernels for GPUs of this compute capability (80, 90), and caches their code. Needs no GPU.
/// Throws RuntimeError: no NVRTC.
void compile_for_gpu(const CompiledModel& model, int capability, const CodeCache& cache, int threads = 1,
                     const std::function<void(const std::string&)>& progress = {});

}  // namespace tilewright
