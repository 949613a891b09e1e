#pragma once
// Execution of a compiled model.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "model/compiled_model.h"
#include "model/counters.h"

namespace tilewright {

class GpuModel;
class KvCache;
class ThreadPool;
struct TensorView;

/// One step of a run, for profiles.
struct StepTime {
    std::string name;
    double start_us = 0, duration_us = 0;
    double flops = 0;  ///< of products and convolutions, 2 a multiply-add
    int kernel = -1;   ///< number of the kernel in dumps; -1: no generated kernel
    double bytes = 0;  ///< of a kernel's inputs and outputs, each once and whole
};

/// Returns the memory for output `i`, whose element type and shape are given (its data is null), or null for the
/// session's own memory.
using OutputMemory = std::function<void*(size_t i, const TensorView& output)>;

/// What the caller of one run controls.
struct RunControl {
    /// Called once per output: before the run if the output's size depends on the input shapes alone, otherwise after
    /// it. An output is written directly to memory that is aligned to 64 bytes and overlaps neither an input nor
    /// another output; otherwise it is copied there when the run ends. Empty: all outputs are in the session's memory.
    OutputMemory output_memory;
    /// Called between kernels, from the pool's threads as well. Once it returns true, the run ends with Cancelled.
    std::function<bool()> cancelled;
    /// Holds the inputs of CompiledModel::appends, which are ignored, and takes their outputs, which are empty tensors
    /// (no rows). It grows when the run succeeds. Null: these inputs and outputs are tensors like others, whose
    /// elements the session rearranges.
    KvCache* cache = nullptr;
};

/// The buffers of one run after another. One thread at a time; sessions are independent of each other, and results do
/// not depend on how many run, nor on the number of threads.
class Session {
  public:
    /// threads: 0: default_thread_count(). Sessions with equal thread counts share one pool.
    /// Throws RuntimeError for a model whose kernels are for a GPU.
    /// memory: bytes that the model's weights and this session's buffers may take together; 0: usable_memory().
    explicit Session(std::shared_ptr<const CompiledModel> model, int threads = 0, uint64_t memory = 0);
    /// With a pool of the caller's.
    Session(std::shared_ptr<const CompiledModel> model, std::shared_ptr<ThreadPool> pool, uint64_t memory = 0);
    /// On a GPU (model/gpu_model.h); several sessions may share one. `memory`: bytes of the host.
    explicit Session(std::shared_ptr<const GpuModel> model, uint64_t memory = 0);
    ~Session();
    /// Inputs by position. Throws ModelError naming the input whose type or shape is not what the model declares, and
    /// RuntimeError where the buffers for these shapes, or what a loop collects, pass the memory.
    std::vector<Tensor> run(const std::vector<Tensor>& inputs);
    /// The same without copies: the views are valid until the next run. Once shapes repeat, nothing is allocated.
    const std::vector<Tensor>& run_in_place(const std::vector<Tensor>& inputs, const RunControl& options = {});
    /// Floating-point operations of the last run's products and convolutions (2 per multiply-add).
    double last_flops() const;
    /// Since the session was made, its fallback included.
    RunCounts counts() const;
    /// Counts bytes of outputs that the caller's interface copies.
    void note_copied(uint64_t bytes);
    int64_t arena_bytes() const;  ///< of the GPU's memory too, where it runs there
    /// When not null, every step of later runs is timed into it.
    void set_profile(std::vector<StepTime>* profile);

    struct Impl;

  private:
    void run_with_workers(const std::vector<Tensor>& inputs, const RunControl& options);

    std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright
