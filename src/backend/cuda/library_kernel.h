#pragma once
// Kernels of NVIDIA's libraries on the device. What they compute: libraries/kernel_library.h.

#include <vector>

#include "backend/cuda/gpu.h"
#include "libraries/kernel_library.h"
#include "tile/tile.h"

namespace tilewright::cuda {

/// One kernel of a library for one operation.
class LibraryPlan {
  public:
    virtual ~LibraryPlan() = default;
    /// Of memory that it takes besides its tensors.
    virtual int64_t workspace_bytes() const = 0;
    /// Of memory for what it makes of the constants among its tensors: the same in every run, and at all sizes.
    virtual int64_t prepared_bytes() const { return 0; }
    /// Enqueues what fills that memory. Arguments: as of run().
    virtual void prepare(const Gpu::Stream& /*stream*/, const std::vector<void*>& /*tensors*/,
                         void* /*workspace*/) const {}
    /// Enqueues it on the stream. `tensors`: addresses, in the order of the kernel; then, if prepared_bytes() > 0, that
    /// of the memory that prepare() has filled. From any thread.
    virtual void run(const Gpu::Stream& stream, const std::vector<void*>& tensors, void* workspace) const = 0;
};

/// Loaded at run time. From any thread.
using KernelLibrary = tilewright::KernelLibrary<LibraryPlan>;

}  // namespace tilewright::cuda
