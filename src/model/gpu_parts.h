#pragma once
// A kernel on a GPU as parts that run one behind the other, of which libraries compute the sums
// (orchestrate/library_parts.h).

#include "model/gpu_trial.h"
#include "orchestrate/library_parts.h"

namespace tilewright {

/// A generated kernel on a device.
struct GpuGenerated {
    cuda::Gpu::Kernel kernel;
    const cuda::KernelText* text = nullptr;
};
using GeneratedKernels = std::function<GpuGenerated(size_t number)>;

/// Candidates for each part of a library, in order.
using GpuPartCandidates = std::vector<std::vector<GpuLibraryCandidate>>;

/// Nothing where a library has no kernel for some part. `sizes`: of the kernel's names; the rest as of
/// library_candidates.
std::optional<GpuPartCandidates> part_candidates(
    const LibraryParts& parts, const Bindings& sizes, Precision precision, const GpuLibraries& libraries,
    const std::function<void(const std::string& library, const std::string& why)>& refused,
    size_t most = kMostOfALibrary);

/// The parts as one plan, for these sizes. `libraries`: what computes each part of a library, in order. What lies
/// between parts is in the plan's workspace, packed by lifetimes with the workspaces of the parts; what parts make of
/// constants is in its prepared memory. Throws RuntimeError where a generated part needs memory of its own across
/// launches.
std::shared_ptr<const cuda::LibraryPlan> plan_of_parts(
    const LibraryParts& parts, const Bindings& sizes,
    const std::vector<std::shared_ptr<const cuda::LibraryPlan>>& libraries, const GeneratedKernels& generated);

/// Parts whose library kernels are chosen.
struct GpuChosenParts {
    std::string name;  ///< "cuBLASLt, algorithm 0, and 1 generated kernel"
    std::shared_ptr<const cuda::LibraryPlan> plan;
    std::vector<size_t> choice;  ///< which candidate computes each part of a library
    double seconds = 0;
};
/// The fastest of the candidates for one part after the other. `seconds`: of parts; nothing where they must not run.
std::optional<GpuChosenParts> fastest_parts(
    const LibraryParts& parts, const Bindings& sizes, const GpuPartCandidates& candidates,
    const GeneratedKernels& generated, const std::function<std::optional<double>(const GpuChosenParts& made)>& seconds);

}  // namespace tilewright
