// What a CompiledModel says of its compilation.

#include "model/model_sources.h"

#include <fmt/format.h>

#include "base/error.h"

namespace tilewright {

const std::vector<TileProgram>& CompiledModel::kernels() const {
    static const std::vector<TileProgram> none;
    return impl_->sources ? impl_->sources->kernels.kernels() : none;
}

const std::vector<cuda::KernelText>& CompiledModel::gpu_kernels() const {
    static const std::vector<cuda::KernelText> none;
    return impl_->sources ? impl_->sources->gpu_kernels : none;
}

const Target& CompiledModel::target() const {
    TW_CHECK(impl_->sources, "the target of a model from a file");
    return impl_->sources->target;
}

std::string CompiledModel::dump(const std::string& stage) const {
    if (stage == "plan") return impl_->plan.print();
    std::string s;
    for (size_t i = 0; i < kernels().size(); ++i) {
        const TileProgram& k = kernels()[i];
        const bool for_gpu = !gpu_kernels().empty();
        if (for_gpu ? stage == "llvm" || stage == "asm" : stage == "cuda")
            model_error("stage '{}' is there of models for a {}: give --target {}", stage, for_gpu ? "CPU" : "GPU",
                        for_gpu ? "cpu" : "cuda");
        s += fmt::format("{} kernel {}\n", stage == "cuda" ? "//" : "#", i);
        if (stage == "cuda")
            s += gpu_kernels()[i].text;
        else if (stage == "tiles")
            s += print(k);
        else if (stage == "llvm")
            s += cpu::print_llvm(k, target());
        else if (stage == "asm")
            s += cpu::print_assembly(k, target());
        else
            model_error("unknown stage '{}': expected graph, program, plan, tiles, llvm, asm or cuda", stage);
        s += '\n';
    }
    return s;
}

}  // namespace tilewright
