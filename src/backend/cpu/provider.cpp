#include "backend/cpu/provider.h"

#include <fmt/format.h>

#include "base/error.h"

namespace tilewright::cpu {

namespace {

/// Returns the first operation of the stages that the library supports, or why there is none.
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

std::vector<KernelLibrary::Candidate> LibraryProvider::candidates(const Program& stages,
                                                                  const std::vector<bool>& weights, int threads,
                                                                  size_t most) const {
    const auto form = accepted_form(*this, stages, weights);
    if (const auto* refusal = std::get_if<Refusal>(&form)) throw RuntimeError(refusal->reason);
    auto found = candidates(std::get<LibraryKernel>(form), {threads, Precision::F32}, most);
    if (const auto* refusal = std::get_if<Refusal>(&found)) throw RuntimeError(refusal->reason);
    return std::get<std::vector<Candidate>>(std::move(found));
}

std::shared_ptr<const LibraryCall> KernelProvider::provide(const Program& stages, const std::vector<bool>& weights,
                                                           int threads) const {
    return candidates(stages, weights, threads, 1).front().make();
}

std::shared_ptr<const LibraryCall> KernelProvider::provide(const Program& stages, const std::vector<bool>& weights,
                                                           int threads, const std::string& name) const {
    for (const Candidate& c : candidates(stages, weights, threads, kMostLibraryKernels))
        if (name_of(c.kernel) == name) return c.make();
    throw RuntimeError(fmt::format("{} has no kernel '{}' for these stages", this->name(), name));
}

}  // namespace tilewright::cpu
