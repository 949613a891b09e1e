#pragma once
// What NVIDIA's libraries are offered of a model that was compiled for a GPU.

#include <map>
#include <string>

#include "backend/cuda/library_convolution.h"
#include "backend/cuda/library_product.h"
#include "compile/pipeline.h"
#include "libraries/kernel_library.h"
#include "program/analysis/contraction.h"

namespace tilewright::test {

/// Sums of products of two tensors: products, convolutions, and two for each attention.
struct LibraryOffers {
    int all = 0;
    int offered = 0;                     ///< of these, in a form that cuBLASLt or cuDNN takes
    std::map<std::string, int> refused;  ///< the others, by the reason
};

/// Nothing where cuBLASLt or cuDNN are offered the kernel, else why they are not.
inline std::optional<std::string> refusal_of(const Program& stages) {
    const auto forms = library_kernels(stages);
    if (const auto* none = std::get_if<Refusal>(&forms)) return none->reason;
    std::optional<std::string> first;
    for (const LibraryKernel& form : std::get<std::vector<LibraryKernel>>(forms)) {
        const auto* operation = std::get_if<LibraryOperation>(&form);
        if (operation == nullptr) return std::nullopt;
        const auto product = cuda::library_product(*operation);
        const auto convolution = cuda::library_convolution(*operation);
        const auto* no_product = std::get_if<Refusal>(&product);
        const auto* no_convolution = std::get_if<Refusal>(&convolution);
        if (no_product == nullptr || no_convolution == nullptr) return std::nullopt;
        if (!first) first = operation->convolution ? no_convolution->reason : no_product->reason;
    }
    return first;
}

inline LibraryOffers count_offers(const CompiledModel& compiled) {
    LibraryOffers out;
    for (const Step& step : compiled.plan().steps) {
        const auto* call = std::get_if<KernelCall>(&step.what);
        if (call == nullptr) continue;
        const Program& stages = compiled.kernels()[call->kernel].stages;
        int sums = 0;
        for (const Primitive& p : stages.primitives) {
            const auto c = contraction(*p.expr());
            sums += c && c->reads_two() ? 1 : 0;
        }
        if (sums == 0) continue;
        out.all += sums;
        if (const auto reason = refusal_of(stages))
            out.refused[*reason] += sums;
        else
            out.offered += sums;
    }
    return out;
}

}  // namespace tilewright::test
