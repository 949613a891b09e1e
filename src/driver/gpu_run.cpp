#include "driver/gpu_run.h"

#include "backend/cuda/gpu.h"
#include "backend/cuda/lockstep.h"
#include "backend/cuda/machine_code.h"
#include "backend/cuda/nvrtc.h"
#include "base/error.h"
#include "cost/gpu_target_file.h"
#include "driver/files.h"

namespace tilewright {

namespace {

struct ThisGpu {
    std::optional<GpuTarget> gpu;  ///< nothing: no driver, no GPU, or one that is too old
    std::string why;               ///< see with_kept_rates
};
const ThisGpu& this_gpu() {
    static const ThisGpu found = [] {
        ThisGpu out;
        try {
            out.gpu = with_kept_rates(cuda::Gpu().target(), &out.why);
        } catch (const RuntimeError&) {  // NOLINT(bugprone-empty-catch): there is none
        }
        return out;
    }();
    return found;
}

}  // namespace

std::optional<GpuTarget> gpu_of(const std::string& target, std::string* why) {
    if (target == "cuda") {
        if (why != nullptr) *why = this_gpu().why;
        return this_gpu().gpu.value_or(h200());
    }
    if (target.ends_with(".json")) try {
            return gpu_target_from_json(read_file(target));
        } catch (const RuntimeError& e) {
            throw RuntimeError(fmt::format("{}: {}", target, e.what()));
        }
    if (target == "cuda:sm_90a") return h200();
    if (target == "cuda:sm_80") return a100();
    return std::nullopt;
}

KernelRunner lockstep_kernels(const CompiledModel& model, const std::function<void(const std::string&)>& progress) {
    constexpr size_t kTogether = 16;  // kernels per translation unit
    const std::vector<cuda::KernelText>& texts = model.gpu_kernels();
    const auto parts = std::make_shared<std::vector<cuda::Lockstep>>();
    for (size_t from = 0; from < texts.size(); from += kTogether) {
        if (progress) progress(fmt::format("compiling kernels from {} of {}", from, texts.size()));
        const size_t to = std::min(from + kTogether, texts.size());
        parts->emplace_back(std::vector<cuda::KernelText>(texts.begin() + static_cast<std::ptrdiff_t>(from),
                                                          texts.begin() + static_cast<std::ptrdiff_t>(to)));
    }
    return [&model, parts, progress](const CallSite& at, const std::vector<Tensor>& operands, const Bindings& names) {
        const size_t kernel = at.call->kernel;
        if (progress) progress(fmt::format("kernel {} of {}", kernel, model.gpu_kernels().size()));
        return (*parts)[kernel / kTogether].run(kernel % kTogether, model.kernels()[kernel].stages, operands, names);
    };
}

std::vector<Tensor> run_in_lockstep(const CompiledModel& model, const std::vector<Tensor>& inputs,
                                    const std::function<void(const std::string&)>& progress) {
    return interpret(program_of(model.plan(), model.kernels(), lockstep_kernels(model, progress)), inputs);
}

bool has_gpu() {
    try {
        const cuda::Gpu gpu;
        return true;
    } catch (const RuntimeError&) {
        return false;
    }
}

bool has_gpu_libraries() {
    static const bool found = [] {
        try {
            return !gpu_libraries(cuda::Gpu(), {}).libraries.empty();
        } catch (const RuntimeError&) {
            return false;
        }
    }();
    return found;
}

void compile_for_gpu(const CompiledModel& model, int capability, const CodeCache& cache, int threads,
                     const std::function<void(const std::string&)>& progress) {
    cuda::machine_code(
        model.gpu_kernels(), capability, cache, [] { return cuda::Nvrtc(); }, threads, progress);
}

std::shared_ptr<const GpuModel> load_on_gpu(const std::shared_ptr<const CompiledModel>& model, const CodeCache& cache,
                                            int threads, const std::function<void(const std::string&)>& progress) {
    const cuda::Gpu gpu;
    check_fits(*model, gpu.target());  // before compiling, which takes minutes
    const GpuLibraries libraries = gpu_libraries(gpu, progress);
    auto loaded = std::make_shared<const GpuModel>(
        model, gpu,
        cuda::machine_code(
            model->gpu_kernels(), gpu.target().capability(), cache, [] { return cuda::Nvrtc(); }, threads, progress),
        libraries);
    if (progress)
        for (const std::string& note : loaded->library_notes()) progress(note);
    return loaded;
}

}  // namespace tilewright
