#pragma once
// A compiled model: a plan, its kernels and their code.

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "program/append.h"
#include "program/plan.h"
#include "program/program.h"
#include "runtime/cpu_features.h"
#include "runtime/kernel.h"

namespace tilewright {

struct ModelSources;
struct Target;
struct TileProgram;
namespace cuda {
struct KernelText;
}

struct ModelIo {
    std::string name;
    DType dtype = DType::F32;
    std::vector<Expr> shape;
};

struct CompileStats {
    double load_ms = 0, lower_ms = 0, plan_ms = 0, codegen_ms = 0, compile_ms = 0;
    double schedule_ms = 0;  ///< of plan_ms: constructing the kernels' schedules
    int kernels = 0;         ///< different ones
    int steps = 0;           ///< launched in one run (bodies of control flow counted once)
    int64_t weight_bytes = 0;
};

/// Of the constants of a program, without those of its bodies.
int64_t bytes_of_constants(const Program& program);
/// 1 more than the last kernel that a step calls; 0: none does.
size_t kernels_called(const Plan& plan);
/// Sets what the statistics have of a plan: kernels, steps and weight_bytes.
void count_plan(const Plan& plan, size_t kernels, CompileStats& stats);

/// Immutable; any number of sessions in any number of threads may share one.
class CompiledModel {
  public:
    struct Impl;
    explicit CompiledModel(std::unique_ptr<Impl> impl);
    ~CompiledModel();
    const std::vector<ModelIo>& inputs() const;
    const std::vector<ModelIo>& outputs() const;
    /// Inputs that outputs extend, which a KvCache may hold (model/kv_cache.h).
    const std::vector<Append>& appends() const;
    const CompileStats& stats() const;
    const Plan& plan() const;
    const Impl& impl() const { return *impl_; }

    // Of a model that this process compiled (model_sources.cpp).

    /// The different kernels, by KernelCall::kernel. Empty for a model from a file.
    const std::vector<TileProgram>& kernels() const;
    /// For a GPU: the text of each of them; else empty.
    const std::vector<cuda::KernelText>& gpu_kernels() const;
    const Target& target() const;  ///< the machine it was compiled for; none for a model from a file
    /// stage: "plan", "tiles"; "llvm", "asm" of a model for a CPU; "cuda" of one for a GPU.
    std::string dump(const std::string& stage) const;

  private:
    std::unique_ptr<Impl> impl_;
};

struct CompiledModel::Impl {
    std::vector<ModelIo> inputs, outputs;
    CompileStats stats;
    Plan plan;
    std::vector<Append> appends;            ///< whose inputs and outputs have another shape in the plan than here
    std::vector<cpu::CompiledKernel> code;  ///< for a CPU: of each kernel
    Platform platform;                      ///< that the code runs on
    bool for_gpu = false;
    bool keep_subnormals = false;
    std::shared_ptr<ModelSources> sources;  ///< null for a model from a file
    std::function<std::shared_ptr<const CompiledModel>()> make_fallback;
    mutable std::mutex fallback_mutex;  // not call_once: making it may throw, which TSan's does not come back from
    mutable std::shared_ptr<const CompiledModel> fallback;

    /// Compiled at the first call, and at the next one where that fails; null where there is none.
    std::shared_ptr<const CompiledModel> fallback_model() const {
        if (!make_fallback) return fallback;
        const std::lock_guard lock(fallback_mutex);
        if (!fallback) fallback = make_fallback();
        return fallback;
    }
};

}  // namespace tilewright
