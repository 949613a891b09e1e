#pragma once
// Runs of a compiled region by ONNX Runtime.

#include <memory>
#include <mutex>
#include <vector>

#include "model/compiled_model.h"
#include "provider/api.h"
#include "tilewright/tilewright.h"

namespace tilewright::provider {

/// A compiled region. Threads may run it at the same time: each run takes a session that no other one uses.
class Runner {
  public:
    /// `threads` 0: the CPUs that this process may use. Inputs and outputs of the model are those of the node that
    /// takes the region's place, in this order.
    Runner(const Api& api, std::shared_ptr<const CompiledModel> model, int threads);
    ~Runner();
    Runner(const Runner&) = delete;
    Runner& operator=(const Runner&) = delete;

    /// Reads the inputs from where they are, writes the outputs to the memory that ONNX Runtime gives, and computes on
    /// ONNX Runtime's threads. Throws ApiError.
    void run(OrtKernelContext* context);

  private:
    struct Lane;
    std::unique_ptr<Lane> take();

    const Api& api_;
    std::unique_ptr<tilewright_model, void (*)(tilewright_model*)> model_;
    const int threads_;
    std::mutex mutex_;
    std::vector<std::unique_ptr<Lane>> idle_;
};

}  // namespace tilewright::provider
