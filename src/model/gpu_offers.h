#pragma once
// Which kernels of libraries run in place of a model's generated kernels on a GPU.
//
// Each is compared with the generated kernel when the model is loaded: its results, and its time. A kernel of dynamic
// sizes is compared at the samples of its sizes (program/sizes.h). A run takes what was fastest at the nearest sample:
// the library's own heuristic chooses an algorithm for the sizes of the run, without measurements, and the generated
// kernel runs where the library has none.
//
//     samples of rows: 1, 16, 128     fastest: generated, cuBLASLt, its sum by cuBLASLt
//     rows = 20                       -> cuBLASLt, as at 16; its heuristic's first algorithm for 20 rows
//     rows = 400                      -> parts, as at 128; no algorithm for 400 rows: the generated kernel

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "model/gpu_parts.h"
#include "model/model_sources.h"

namespace tilewright {

class GpuOffers {
  public:
    /// Without libraries: all kernels are generated.
    GpuOffers() = default;
    /// `sources` outlive this; `kernels`: its kernels on the device. The plan calls the first `called` of them; the
    /// others are parts of those.
    GpuOffers(const ModelSources& sources, std::vector<cuda::Gpu::Kernel> kernels, size_t called, const cuda::Gpu& gpu,
              GpuLibraries libraries);

    /// What runs in place of kernel k at these sizes of its names: a library's kernel, or parts of which libraries have
    /// some; null: itself. From any thread.
    std::shared_ptr<const cuda::LibraryPlan> plan(size_t k, const Bindings& sizes) const;
    /// The names on whose sizes that depends. Empty: it is the same plan for every run.
    const std::vector<Var>& names(size_t k) const;
    /// A plan that may run in place of kernel k, and makes something of constants first (LibraryPlan::prepare): the
    /// same for all of them. Null: none does.
    const cuda::LibraryPlan* preparing(size_t k) const;
    /// Kernels that a library runs, or parts of them, at some sizes.
    int library_kernels() const;
    /// What each library said of each kernel that it might have: what is faster, or why it is refused.
    const std::vector<std::string>& notes() const { return notes_; }

  private:
    class Comparison;
    /// How libraries compute a kernel: its whole, or each part of a library.
    struct Way {
        struct Of {
            size_t library = 0;
            LibraryKernel form;
        };
        bool parts = false;
        std::vector<Of> of;
        /// Equal for ways of the same libraries and forms.
        std::string key() const;
    };
    struct AtSample {
        Bindings sizes;
        std::optional<Way> way;  ///< the fastest; nothing: the generated kernel
        std::shared_ptr<const cuda::LibraryPlan> plan;
    };
    struct OfKernel {
        std::vector<Var> names;
        std::vector<AtSample> samples;
        std::set<std::string> wrong;  ///< keys of ways with other results at some sample
    };

    std::vector<Bindings> samples_of(const OfKernel& kernel, const Program& stages) const;
    void decide(size_t k);
    /// Leaves no expressions behind: a model may run at any number of sizes. Null where anything is wrong.
    std::shared_ptr<const cuda::LibraryPlan> at_new_sizes(size_t k, const Way& way, const Bindings& sizes) const;
    std::shared_ptr<const cuda::LibraryPlan> instance(size_t k, const Way& way, const Bindings& sizes) const;
    std::shared_ptr<const cuda::LibraryPlan> instance(const Way::Of& of, const Program& stages) const;
    void note(size_t k, const Bindings& sizes, const std::string& library, const std::string& what);
    GpuGenerated generated(size_t kernel) const { return {kernels_[kernel], &sources_->gpu_kernels[kernel]}; }

    const ModelSources* sources_ = nullptr;
    std::vector<cuda::Gpu::Kernel> kernels_;
    std::optional<cuda::Gpu> gpu_;
    GpuLibraries libraries_;
    std::vector<OfKernel> of_;
    std::vector<std::string> notes_;
};

}  // namespace tilewright
