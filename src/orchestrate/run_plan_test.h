#pragma once
// Execution of a plan's kernels by the tile interpreter.

#include <map>
#include <vector>

#include "orchestrate/plan.h"

namespace tilewright::test {

inline bool runs_at(const Plan& plan, const KernelCall& call, const Bindings& sizes) {
    return runs(plan, call, [&](Expr e) { return evaluate(e, sizes); });
}

/// The outputs of the program, computed by the kernels of its plan.
inline std::vector<Tensor> run_by_tiles(const Plan& plan, const KernelSet& kernels, const std::vector<Tensor>& inputs) {
    const Program& p = plan.program;
    std::map<ValueId, Tensor> values(p.constants.begin(), p.constants.end());
    Bindings bindings;
    for (size_t i = 0; i < inputs.size(); ++i) {
        bind_shape(bindings, p.values[p.inputs[i]].shape, inputs[i].shape(), p.values[p.inputs[i]].name);
        values[p.inputs[i]] = inputs[i];
    }
    for (const Step& step : plan.steps) {
        const auto& call = std::get<KernelCall>(step.what);
        if (!runs_at(plan, call, bindings)) continue;
        const TileProgram& kernel = kernels.kernels()[call.kernel];
        std::vector<Tensor> operands;
        operands.reserve(kernel.stages.inputs.size());
        for (const ValueId v : kernel.stages.inputs)  // kernels may have flattened tensors
            operands.push_back(
                values.at(call.tensors[operands.size()]).reshaped(evaluate(kernel.stages.values[v].shape, bindings)));
        const std::vector<Tensor> results = interpret(kernel, operands, bindings);
        for (size_t k = 0; k < results.size(); ++k) {
            const ValueId v = call.tensors[operands.size() + k];
            values[v] = results[k].reshaped(evaluate(p.values[v].shape, bindings));
        }
    }
    std::vector<Tensor> outputs;
    outputs.reserve(p.outputs.size());
    for (const ValueId v : p.outputs) outputs.push_back(values.at(v));
    return outputs;
}

}  // namespace tilewright::test
