#pragma once
// Kernels of equal stages on a GPU, generated ones and libraries': their operands, to compare and time them.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/gpu.h"
#include "backend/cuda/library_kernel.h"
#include "libraries/kernel_library.h"

namespace tilewright {

/// Vendors' libraries whose kernels are candidates beside generated ones.
struct GpuLibraries {
    std::vector<std::shared_ptr<const cuda::KernelLibrary>> libraries;
    /// Seconds that a stream takes for the work; empty: measured on the device.
    std::function<double(const cuda::Gpu::Stream& stream, const std::function<void()>& work)> time;
};

/// cuBLASLt and cuDNN, where they are installed. `missing`: is told why one is not used; may be empty.
GpuLibraries gpu_libraries(const cuda::Gpu& gpu, const std::function<void(const std::string&)>& missing);

/// Kernels of a library that are compared, per form of a kernel.
constexpr size_t kMostOfALibrary = 4;

/// A kernel of a library that may stand for a generated one.
struct GpuLibraryCandidate {
    std::string name;      ///< of library and kernel
    size_t library = 0;    ///< number in GpuLibraries
    LibraryKernel kernel;  ///< the form of the generated kernel that it computes
    std::shared_ptr<const cuda::LibraryPlan> plan;
};
/// The first `most` of each library for each form of a kernel of these stages, whose sizes are numbers. `precision`: to
/// which they may round f32 operands. `refused`: is told which library has none, and why.
std::vector<GpuLibraryCandidate> library_candidates(
    const Program& stages, Precision precision, const GpuLibraries& libraries,
    const std::function<void(const std::string& library, const std::string& why)>& refused,
    size_t most = kMostOfALibrary);

/// Seconds of `work` on the stream, the median of some repetitions, several times the work in each. As a graph, which
/// is how sessions run it: what the host does for each launch, such as a library's descriptions of its operands, is no
/// part of the time.
double median_seconds(const cuda::Gpu::Stream& stream, const std::function<void()>& work);

/// The operands of a kernel on the device, for the kernel and what may stand for it. Throws RuntimeError where there is
/// not enough memory.
struct GpuTrial {
    using Work = std::function<void()>;

    GpuTrial(const cuda::Gpu& device, const Program& program);
    GpuTrial(const GpuTrial&) = delete;
    ~GpuTrial() { finish(); }

    /// Enqueues a generated kernel, whose stages are these for `sizes` of its names. Valid as long as the trial and the
    /// text.
    Work launch(const cuda::Gpu::Kernel& kernel, const cuda::KernelText& text, const Bindings& sizes = {});
    /// Enqueues a library's kernel: `whole` prepares what it makes of constants first, `again` has it from there. Valid
    /// as long as the trial and the plan. Throws RuntimeError where there is not enough memory.
    struct OfLibrary {
        Work whole, again;
    };
    OfLibrary launch(const cuda::LibraryPlan& plan);
    /// Waits for what a failure has left under way: it must not outlive its memory.
    void finish() const noexcept;

    /// How far the results of two ways are apart, as a multiple of what is allowed.
    double difference(const Work& one, const Work& other, Precision precision) const;
    /// The same where `other` is a library's, or has parts of it: of one sum also with an operand that has a NaN and an
    /// infinity; of an attention with masks that leave nothing of some rows. `kernel`: null of parts.
    double difference(const Work& one, const Work& other, const LibraryKernel* kernel, Precision precision) const;

    const cuda::Gpu& gpu;
    const Program& stages;
    cuda::Gpu::Stream stream;
    std::vector<void*> tensors;

  private:
    struct Room {
        std::shared_ptr<void> memory;
        int64_t bytes = 0;
    };
    void reserve(Room& room, int64_t bytes) const;
    void* allocate(int64_t bytes);
    void put(const Tensor& t);
    /// The difference with another tensor as input i.
    double difference_with(const Tensor& t, size_t i, const Work& one, const Work& other, Precision precision) const;
    std::vector<Tensor> results(const Work& way) const;

    std::vector<Tensor> inputs, nothing;
    std::vector<std::shared_ptr<void>> memory;
    Room workspace, prepared;
};

}  // namespace tilewright
