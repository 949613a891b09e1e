#pragma once
// The implementation of Session: on the CPU (session.cpp), and what a session on a GPU shares with it
// (gpu_session.cpp).

#include <functional>
#include <memory>
#include <vector>

#include "model/executor.h"
#include "model/session.h"

namespace tilewright {

struct Session::Impl {
    std::shared_ptr<const CompiledModel> model;
    std::shared_ptr<ThreadPool> pool;
    Names names;
    uint64_t most_memory;
    MemoryBudget memory;
    RunCounters counters;
    ExecutionContext context;
    Arena scratch;
    std::unique_ptr<Executor> executor;
    std::vector<Tensor> outputs;
    std::vector<GivenMemory> given;                                             ///< for the outputs of the current run
    std::vector<std::vector<std::byte>> rearranged_inputs, rearranged_outputs;  ///< by append, without a cache
    std::function<bool()> cancelled;                                            ///< of the current run
    std::unique_ptr<Session> fallback;                                          ///< once a run needed it
    std::vector<StepTime>* profile = nullptr;

    /// On the CPU.
    Impl(std::shared_ptr<const CompiledModel> m, std::shared_ptr<ThreadPool> threads, uint64_t most);
    /// Without threads, scratch memory and an executor. `vars`: all that the plan mentions.
    Impl(std::shared_ptr<const CompiledModel> m, uint64_t most, const std::vector<Var>& vars);
    virtual ~Impl();
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    virtual bool on_gpu() const { return false; }
    virtual int64_t device_bytes() const { return 0; }  ///< of a GPU's memory

    void set_inputs(const std::vector<Tensor>& inputs, KvCache* cache);
    // --- session_append.cpp: inputs and outputs of appends
    const Append* append_to(size_t input) const;
    const Append* append_from(size_t output) const;
    void set_appended(const Append& a, const Tensor& tensor, const KvCache* cache);
    /// Once outputs are placed.
    void bind_cache(KvCache* cache);
    /// The output in row-major order: in the caller's memory, or the session's own.
    void take_appended(const Append& a, KvCache* cache, const OutputMemory& requested);
    /// The run with the strict code, where a cache is in use.
    void run_fallback_with(KvCache& cache, std::vector<Tensor> inputs, const RunControl& options);
    /// The run with the strict code.
    void run_fallback(const std::vector<Tensor>& inputs, const RunControl& options);
    void take_outputs(const RunControl& options);
    void take_output(size_t i, const TensorView& v);
};

}  // namespace tilewright
