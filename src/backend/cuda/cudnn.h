#pragma once
// cuDNN, NVIDIA's library of neural networks, loaded at run time: its engines for convolutions and attentions are
// candidates beside generated kernels. Both are described as operation graphs (cuDNN's backend interface, versions 8.9
// and 9), so that bias and activation, or scale, mask and softmax, are one launch with the products.

#include "backend/cuda/library_kernel.h"

namespace tilewright::cuda {

class Cudnn : public KernelLibrary {
  public:
    /// Throws RuntimeError that says where it was looked for. `names`: of the library; empty: the usual ones.
    explicit Cudnn(const Gpu& gpu, const std::vector<std::string>& names = {});
    Cudnn(const Gpu& gpu, const SharedLibrary& library);
    /// Without a GPU: plans for one that cuDNN is told of in its own words (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
    /// 9.8 and newer). They are made as far as they go without a driver, and cannot run.
    Cudnn(const SharedLibrary& library, const std::string& device);
    /// The usual names, or these. Throws RuntimeError where there is none.
    static SharedLibrary find(const std::vector<std::string>& names = {});

    std::string name() const override { return "cuDNN"; }
    std::optional<Refusal> refusal(const LibraryKernel& operation) const override;
    std::variant<std::vector<Candidate>, Refusal> candidates(const LibraryKernel& operation,
                                                             const LibraryConditions& conditions,
                                                             size_t most) const override;
    /// 90100 is 9.1.0.
    size_t version() const;

  private:
    struct Numbers;
    struct Functions;
    struct Plan;
    class Graph;
    std::shared_ptr<const Functions> call_;
};

}  // namespace tilewright::cuda
