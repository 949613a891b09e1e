#include "backend/cuda/library_offer.h"

#include <algorithm>

#include "backend/cuda/library_convolution.h"
#include "backend/cuda/library_matmul.h"
#include "backend/cuda/library_product.h"
#include "program/transform/substitute.h"

namespace tilewright::cuda {

namespace {

std::variant<std::vector<LibraryKernel>, Refusal> forms_of(const Program& stages) {
    const auto sized = at_sizes(stages, {});
    if (!sized) return Refusal{"no elements at the sizes that are assumed"};
    return library_kernels(*sized);
}

}  // namespace

std::optional<Refusal> library_refusal(const Program& stages) {
    const auto forms = forms_of(stages);
    if (const auto* none = std::get_if<Refusal>(&forms)) return *none;
    std::optional<Refusal> first;
    for (const LibraryKernel& form : std::get<std::vector<LibraryKernel>>(forms)) {
        const auto* operation = std::get_if<LibraryOperation>(&form);
        if (operation == nullptr) return std::nullopt;
        const auto product = library_product(*operation);
        const auto convolution = library_convolution(*operation);
        const auto* no_product = std::get_if<Refusal>(&product);
        const auto* no_convolution = std::get_if<Refusal>(&convolution);
        if (no_product == nullptr || no_convolution == nullptr) return std::nullopt;
        if (!first) first = operation->convolution ? *no_convolution : *no_product;
    }
    return first;
}

bool is_product_graph(const Program& stages) {
    const auto forms = forms_of(stages);
    const auto* all = std::get_if<std::vector<LibraryKernel>>(&forms);
    return all != nullptr && std::any_of(all->begin(), all->end(), [](const LibraryKernel& form) {
               const auto* operation = std::get_if<LibraryOperation>(&form);
               return operation != nullptr && std::holds_alternative<LibraryMatmul>(library_matmul(*operation));
           });
}

}  // namespace tilewright::cuda
