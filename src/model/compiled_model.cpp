#include "model/compiled_model.h"

#include <fmt/format.h>

#include "base/error.h"

namespace tilewright {

CompiledModel::CompiledModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CompiledModel::~CompiledModel() = default;
const std::vector<ModelIo>& CompiledModel::inputs() const { return impl_->inputs; }
const std::vector<ModelIo>& CompiledModel::outputs() const { return impl_->outputs; }
const CompileStats& CompiledModel::stats() const { return impl_->stats; }
const Plan& CompiledModel::plan() const { return impl_->plan; }
const std::vector<TileProgram>& CompiledModel::kernels() const { return impl_->kernels.kernels(); }
const std::vector<cuda::KernelText>& CompiledModel::gpu_kernels() const { return impl_->gpu_kernels; }

const Target& CompiledModel::target() const { return impl_->target; }

std::string CompiledModel::dump(const std::string& stage) const {
    if (stage == "plan") return impl_->plan.print();
    std::string s;
    for (size_t i = 0; i < impl_->kernels.kernels().size(); ++i) {
        const TileProgram& k = impl_->kernels.kernels()[i];
        const bool for_gpu = !impl_->gpu_kernels.empty();
        if (for_gpu ? stage == "llvm" || stage == "asm" : stage == "cuda")
            model_error("stage '{}' is there of models for a {}: give --target {}", stage, for_gpu ? "CPU" : "GPU",
                        for_gpu ? "cpu" : "cuda");
        s += fmt::format("{} kernel {}\n", stage == "cuda" ? "//" : "#", i);
        if (stage == "cuda")
            s += impl_->gpu_kernels[i].text;
        else if (stage == "tiles")
            s += print(k);
        else if (stage == "llvm")
            s += cpu::print_llvm(k, impl_->target);
        else if (stage == "asm")
            s += cpu::print_assembly(k, impl_->target);
        else
            model_error("unknown stage '{}': expected graph, program, plan, tiles, llvm, asm or cuda", stage);
        s += "\n";
    }
    return s;
}

}  // namespace tilewright
