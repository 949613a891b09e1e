#include "driver/gpu_run.h"

#include <map>
#include <optional>

#include "backend/cuda/gpu.h"
#include "backend/cuda/lockstep.h"
#include "backend/cuda/nvrtc.h"
#include "base/error.h"
#include "model/plan_program.h"

namespace tilewright {

std::optional<GpuTarget> gpu_of(const std::string& target) {
    if (target == "cuda" || target == "cuda:sm_90a") return h200();
    if (target == "cuda:sm_80") return a100();
    return std::nullopt;
}

std::vector<Tensor> run_in_lockstep(const CompiledModel& model, const std::vector<Tensor>& inputs,
                                    const std::function<void(const std::string&)>& progress) {
    constexpr size_t kTogether = 16;  // kernels of a translation unit
    const std::vector<cuda::KernelText>& texts = model.gpu_kernels();
    std::vector<cuda::Lockstep> parts;
    for (size_t from = 0; from < texts.size(); from += kTogether) {
        if (progress) progress(fmt::format("compiling kernels from {} of {}", from, texts.size()));
        const size_t to = std::min(from + kTogether, texts.size());
        parts.emplace_back(std::vector<cuda::KernelText>(texts.begin() + static_cast<std::ptrdiff_t>(from),
                                                         texts.begin() + static_cast<std::ptrdiff_t>(to)));
    }
    const auto run = [&](size_t kernel, const std::vector<Tensor>& operands, const Bindings& names) {
        if (progress) progress(fmt::format("kernel {} of {}", kernel, texts.size()));
        return parts[kernel / kTogether].run(kernel % kTogether, model.kernels()[kernel].stages, operands, names);
    };
    return interpret(program_of(model.plan(), model.kernels(), run), inputs);
}

std::string gpu_code(const CompiledModel& model, const GpuTarget& target) {
    return cuda::Nvrtc().compile(model.gpu_kernels(), target.capability());
}

std::vector<Tensor> run_on_gpu(const CompiledModel& model, const std::vector<Tensor>& inputs) {
    const cuda::Gpu gpu;
    const std::string code = gpu_code(model, gpu.target());
    std::map<size_t, cuda::Gpu::Kernel> loaded;
    const auto run = [&](size_t kernel, const std::vector<Tensor>& operands, const Bindings& names) {
        const cuda::KernelText& text = model.gpu_kernels()[kernel];
        auto it = loaded.find(kernel);
        if (it == loaded.end()) it = loaded.emplace(kernel, gpu.load(code, text)).first;
        return gpu.run(it->second, text, model.kernels()[kernel].stages, operands, names);
    };
    return interpret(program_of(model.plan(), model.kernels(), run), inputs);
}

}  // namespace tilewright
