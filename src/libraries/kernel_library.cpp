#include "libraries/kernel_library.h"

namespace tilewright {

std::variant<std::vector<LibraryKernel>, Refusal> library_kernels(const Program& stages,
                                                                  const std::vector<bool>& constants) {
    auto attention = library_attention(stages);
    if (auto* found = std::get_if<LibraryAttention>(&attention)) return std::vector<LibraryKernel>{std::move(*found)};
    auto operations = library_operations(stages, constants);
    if (auto* refusal = std::get_if<Refusal>(&operations)) return std::move(*refusal);
    auto& forms = std::get<std::vector<LibraryOperation>>(operations);
    return std::vector<LibraryKernel>(forms.begin(), forms.end());
}

}  // namespace tilewright
