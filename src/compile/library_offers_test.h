#pragma once
// What NVIDIA's libraries are offered of a model that was compiled for a GPU.

#include <map>
#include <string>

#include "backend/cuda/library_offer.h"
#include "compile/pipeline.h"
#include "libraries/cut.h"
#include "model/model_sources.h"
#include "program/analysis/contraction.h"

namespace tilewright::test {

/// Sums of products of two tensors: products, convolutions, and two for each attention.
struct LibraryOffers {
    int all = 0;
    int whole = 0;                       ///< of these, in kernels that cuBLASLt or cuDNN are offered as they are
    int parts = 0;                       ///< as parts of their kernels, with generated kernels for the rest
    int graphs = 0;                      ///< products that cuDNN is offered as graphs with what follows
    std::map<std::string, int> refused;  ///< the others, by the reason against the sum alone
};

inline int sums_of_products(const Program& stages) {
    int sums = 0;
    for (const Primitive& p : stages.primitives) {
        const auto c = contraction(*p.expr());
        sums += c && c->reads_two() ? 1 : 0;
    }
    return sums;
}

inline LibraryOffers count_offers(const CompiledModel& compiled) {
    LibraryOffers out;
    const auto& of_kernels = compiled.impl().sources->parts;
    for (const Step& step : compiled.plan().steps) {
        const auto* call = std::get_if<KernelCall>(&step.what);
        if (call == nullptr) continue;
        const Program& stages = compiled.kernels()[call->kernel].stages;
        const int sums = sums_of_products(stages);
        if (sums == 0) continue;
        out.all += sums;
        out.graphs += cuda::is_product_graph(stages) ? 1 : 0;
        if (!cuda::library_refusal(stages)) {
            out.whole += sums;
            continue;
        }
        const auto found = of_kernels.find(call->kernel);
        const int parts = found == of_kernels.end() ? 0 : static_cast<int>(found->second.library_kernels());
        out.parts += parts;
        if (parts == sums) continue;
        const auto cut = cut_at_sums(stages, compiled.impl().sources->precision, cuda::library_refusal);
        const auto* none = std::get_if<Refusal>(&cut);
        out.refused[none != nullptr ? none->reason : std::get<KernelCut>(cut).refused.at(0).reason] += sums - parts;
    }
    return out;
}

}  // namespace tilewright::test
