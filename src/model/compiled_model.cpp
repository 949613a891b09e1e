#include "model/compiled_model.h"

#include <algorithm>

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

size_t kernels_called(const Plan& plan) {
    size_t n = 0;
    for (const Step& s : plan.steps) {
        if (const auto* call = std::get_if<KernelCall>(&s.what)) n = std::max(n, call->kernel + 1);
        for (const auto& body : s.bodies) n = std::max(n, kernels_called(*body));
    }
    return n;
}

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
const std::vector<Append>& CompiledModel::appends() const { return impl_->appends; }
const CompileStats& CompiledModel::stats() const { return impl_->stats; }
const Plan& CompiledModel::plan() const { return impl_->plan; }

}  // namespace tilewright
