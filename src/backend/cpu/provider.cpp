#include "backend/cpu/provider.h"

#include "base/error.h"

namespace tilewright::cpu {

namespace {

/// The first form of the stages that the library has kernels for, or why there is none.
std::variant<LibraryKernel, Refusal> accepted_form(const KernelLibrary& library, const Program& stages,
                                                   const std::vector<bool>& weights) {
    auto forms = library_kernels(stages, weights);
    if (auto* refusal = std::get_if<Refusal>(&forms)) return std::move(*refusal);
    std::optional<Refusal> first;
    for (LibraryKernel& form : std::get<std::vector<LibraryKernel>>(forms)) {
        auto refusal = library.refusal(form);
        if (!refusal) return std::move(form);
        if (!first) first = std::move(refusal);
    }
    return *std::move(first);
}

}  // namespace

std::optional<std::string> LibraryProvider::refusal(const Program& stages, const std::vector<bool>& weights) const {
    auto form = accepted_form(*this, stages, weights);
    const auto* refusal = std::get_if<Refusal>(&form);
    return refusal != nullptr ? std::optional(refusal->reason) : std::nullopt;
}

std::shared_ptr<const LibraryCall> LibraryProvider::provide(const Program& stages, const std::vector<bool>& weights,
                                                            int threads) const {
    const auto form = accepted_form(*this, stages, weights);
    if (const auto* refusal = std::get_if<Refusal>(&form)) throw RuntimeError(refusal->reason);
    const auto found = candidates(std::get<LibraryKernel>(form), {threads, Precision::F32}, 1);
    if (const auto* refusal = std::get_if<Refusal>(&found)) throw RuntimeError(refusal->reason);
    return make(std::get<std::vector<Candidate>>(found).front());
}

}  // namespace tilewright::cpu
