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
    /// Enqueues it on the stream. `tensors`: addresses, in the order of the kernel. From any thread.
    virtual void run(const Gpu::Stream& stream, const std::vector<void*>& tensors, void* workspace) const = 0;
};

/// Loaded at run time. From any thread.
using KernelLibrary = tilewright::KernelLibrary<LibraryPlan>;

}  // namespace tilewright::cuda
