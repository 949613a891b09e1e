#include "model/compiled_model.h"

#include <fmt/format.h>

#include "base/error.h"

namespace tilewright {

namespace {

/// Bodies of control flow are counted once.
int steps_in(const Plan& plan) {
    int n = static_cast<int>(plan.steps.size());
    for (const Step& s : plan.steps)
        for (const auto& body : s.bodies) n += steps_in(*body);
    return n;
}

}  // namespace

int64_t bytes_of_constants(const Program& program) {
    int64_t bytes = 0;
    for (const auto& [v, t] : program.constants) bytes += static_cast<int64_t>(t.bytes());
    return bytes;
}

void count_plan(const Plan& plan, size_t kernels, CompileStats& stats) {
    stats.kernels = static_cast<int>(kernels);
    stats.steps = steps_in(plan);
    stats.weight_bytes = bytes_of_constants(plan.program);
}

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
