#pragma once
// cuBLASLt, NVIDIA's library of matrix products, loaded at run time: its products are candidates beside our kernels.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/cuda/gpu.h"
#include "backend/cuda/library_product.h"

namespace tilewright::cuda {

/// A copy is the same library. From any thread.
class CublasLt {
  public:
    /// Throws RuntimeError that says where it was looked for. `names`: of the library; empty: the usual ones.
    explicit CublasLt(const Gpu& gpu, const std::vector<std::string>& names = {});
    CublasLt(const Gpu& gpu, const Library& library);

    /// A product as the library would compute it here: its own choice among its algorithms.
    class Plan {
      public:
        /// Of memory that it takes besides its tensors.
        int64_t workspace_bytes() const;
        /// Asks the stream for it. `tensors`: addresses, in the order of the kernel; returns before it has happened.
        void run(const Gpu::Stream& stream, const std::vector<void*>& tensors, void* workspace) const;

      private:
        friend class CublasLt;
        struct State;
        std::shared_ptr<const State> state_;
    };
    /// Nothing where the library has no algorithm for it.
    std::optional<Plan> plan(const LibraryProduct& product) const;

  private:
    struct Functions;
    std::shared_ptr<const Functions> call_;
};

}  // namespace tilewright::cuda
