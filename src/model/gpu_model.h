#pragma once
// A compiled model on a GPU: what its sessions there share, and the plan as such a session runs it.
//
// Kernels that follow each other become one step of the session's plan: an operator that copies what they read to the
// device, runs them there one behind the other on the session's stream, and copies back what the host reads. What lies
// between them stays on the device, packed by lifetimes into one block as a CPU's session does; what a later step of
// kernels reads stays there as well, in memory of its own. Everything else
// (sorting, control flow) is run by the host as ever, so that any model runs; a model without such steps is one
// operator, and the second time its shapes come it is one CUDA graph, transfers included.

#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/gpu.h"
#include "model/executor.h"
#include "model/gpu_offers.h"
#include "model/session.h"

namespace tilewright {

/// Throws RuntimeError: the model was compiled for a CPU, for instructions that this GPU has not, or for more shared
/// memory; it says for what to compile it.
void check_fits(const CompiledModel& model, const GpuTarget& gpu);

/// The kernels and weights of a model on one device. Immutable; any number of sessions, in any number of threads.
class GpuModel {
  public:
    /// `code`: of each of the model's gpu_kernels(), as cuda::machine_code gives it for this device. Throws
    /// RuntimeError: what check_fits() says, or its weights do not fit.
    /// Of each kernel that libraries have as well the fastest runs (gpu_offers.h), of those whose results are the
    /// kernel's. A library's kernel that fails, or has no room, leaves the others as they are.
    GpuModel(std::shared_ptr<const CompiledModel> model, const cuda::Gpu& gpu, const std::vector<std::string>& code,
             const GpuLibraries& libraries = {});

    const std::shared_ptr<const CompiledModel>& model() const { return model_; }
    const cuda::Gpu& gpu() const { return gpu_; }
    const cuda::Gpu::Kernel& kernel(size_t k) const { return kernels_[k]; }
    /// What runs in place of kernels.
    const GpuOffers& offers() const { return offers_; }
    int library_kernels() const { return offers_.library_kernels(); }
    const std::vector<std::string>& library_notes() const { return offers_.notes(); }
    /// Where a constant lies on the device, by where it lies on the host; null where no kernel reads it.
    void* weight(const void* host) const;
    /// What the library plans of the call's kernel have made of its constants (LibraryPlan::prepare); null: they make
    /// nothing, or there was no memory for it.
    void* prepared(const Plan& plan, const KernelCall& call) const;
    /// With what has been made of them.
    int64_t weight_bytes() const { return weight_bytes_; }

  private:
    /// A kernel, and the constants among its tensors.
    using Prepared = std::pair<size_t, std::vector<const void*>>;

    void add_weights(const Plan& plan, std::vector<const Tensor*>& found) const;
    static Prepared key_of(const Plan& plan, const KernelCall& call);
    void prepare(const Plan& plan);
    void prepare(const Plan& plan, const KernelCall& call, const cuda::LibraryPlan& library);

    std::shared_ptr<const CompiledModel> model_;
    cuda::Gpu gpu_;
    std::vector<cuda::Gpu::Kernel> kernels_;
    GpuOffers offers_;
    std::shared_ptr<void> block_;
    std::map<const void*, int64_t> weights_;  ///< offset in the block
    std::map<Prepared, std::shared_ptr<void>> prepared_;
    int64_t weight_bytes_ = 0;
};

/// What all steps of one session have on the device: a stream, and memory that each of them uses as it likes while it
/// runs.
class GpuMemory {
  public:
    GpuMemory(const cuda::Gpu& gpu, ExecutionContext& context) : gpu_(gpu), stream_(gpu.stream()), context_(context) {}

    const cuda::Gpu::Stream& stream() const { return stream_; }
    ExecutionContext& context() const { return context_; }
    /// At least so much from here on; what lies there is lost where it grows. Throws RuntimeError where there is not
    /// enough.
    void reserve(int64_t device_bytes, int64_t pinned_bytes);
    std::byte* device() const { return static_cast<std::byte*>(device_.get()); }
    std::byte* pinned() const { return static_cast<std::byte*>(pinned_.get()); }
    /// Another number whenever one of them has moved.
    uint64_t generation() const { return generation_; }
    int64_t device_bytes() const { return device_bytes_ + kept_bytes_; }

    /// The place of a value that one step leaves on the device for later ones.
    size_t new_place() { return kept_.emplace_back(), kept_.size() - 1; }
    /// At least so much there; what lies there is lost where it grows.
    void keep(size_t place, int64_t bytes);
    void* kept(size_t place) const { return kept_[place].memory.get(); }

  private:
    struct Kept {
        std::shared_ptr<void> memory;
        int64_t bytes = -1;
    };
    cuda::Gpu gpu_;
    cuda::Gpu::Stream stream_;
    ExecutionContext& context_;
    std::shared_ptr<void> device_, pinned_;
    int64_t device_bytes_ = 0, pinned_bytes_ = 0, kept_bytes_ = 0;
    std::vector<Kept> kept_;
    uint64_t generation_ = 0;
};

/// The plan with its kernels as steps that a GPU runs, bodies of control flow included. `model`, `memory` and its
/// context outlive it.
Plan on_gpu(const Plan& plan, const GpuModel& model, GpuMemory& memory);

}  // namespace tilewright
