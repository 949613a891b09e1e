#pragma once
// What became of the attentions of a model that was compiled for a GPU.

#include <algorithm>
#include <string>
#include <vector>

#include "compile/pipeline.h"
#include "libraries/attention.h"
#include "program/analysis/contraction.h"
#include "tile/walk.h"

namespace tilewright::test {

/// How many attentions became what.
struct AttentionCount {
    int kernels = 0;     ///< with a product of two computed tensors or inputs, or a softmax between such
    int fused = 0;       ///< of these, with both products and the softmax, on matrix instructions
    int warpgroups = 0;  ///< of these, with all products on warpgroup instructions
    int offered = 0;     ///< of the fused ones, that libraries have a form for
    std::string why;     ///< what is missing, for messages
};

inline bool is_attention_product(const Program& stages, const TensorExpr& e, const std::vector<bool>& constants) {
    const auto c = contraction(e);
    if (!c || !c->reads_two()) return false;
    return std::none_of(e.accesses.begin(), e.accesses.end(), [&](const Access& a) {
        const auto in = std::find(stages.inputs.begin(), stages.inputs.end(), a.value);
        const bool factor = std::any_of(c->factors.begin(), c->factors.end(), [&](const Contraction::Factor& f) {
            return f.slot && &e.accesses[*f.slot] == &a;
        });
        return factor && in != stages.inputs.end() && constants[static_cast<size_t>(in - stages.inputs.begin())];
    });
}

/// exp(x - y)
inline bool is_exponential(const TensorExpr& e) {
    const IndexVector<ScalarId, ScalarNode>& nodes = e.body.nodes();
    return std::any_of(nodes.begin(), nodes.end(),
                       [&](const ScalarNode& n) { return n.op == ScalarOp::Exp && nodes[n.a].op == ScalarOp::Sub; });
}

inline AttentionCount count_attentions(const CompiledModel& compiled) {
    AttentionCount out;
    for (const Step& step : compiled.plan().steps) {
        const auto* call = std::get_if<KernelCall>(&step.what);
        if (call == nullptr) continue;
        const TileProgram& kernel = compiled.kernels()[call->kernel];
        const Program& stages = kernel.stages;
        std::vector<bool> constants;
        for (size_t i = 0; i < stages.inputs.size(); ++i)
            constants.push_back(compiled.plan().program.is_constant(call->tensors[i]));
        const Walk tree = walk(kernel);
        int products = 0, units = 0, groups = 0, exponentials = 0;
        for (const auto& [path, compute] : tree.computes) {
            const TensorExpr& e = *stages.primitives[compute->stage].expr();
            exponentials += is_exponential(e) ? 1 : 0;
            if (!is_attention_product(stages, e, constants)) continue;
            ++products;
            units += compute->micro.matrix ? 1 : 0;
            groups += compute->micro.matrix && compute->micro.matrix->group() ? 1 : 0;
        }
        if (products == 0 && exponentials == 0) continue;
        ++out.kernels;
        const bool fused = products >= 2 && exponentials >= 1 && units == products;
        if (fused) ++out.fused;
        if (fused && groups == products) ++out.warpgroups;
        if (!fused || groups < products)
            out.why += fmt::format("{} products, {} on matrix instructions, {} on warpgroups, {} softmax:\n{}",
                                   products, units, groups, exponentials, print(kernel));
        const auto form = library_attention(stages);
        if (std::holds_alternative<LibraryAttention>(form))
            ++out.offered;
        else if (fused)
            out.why += std::get<Refusal>(form).reason + "\n";
    }
    return out;
}

}  // namespace tilewright::test
