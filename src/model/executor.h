#pragma once
// Runs a Plan: one Executor per plan and session, nested ones for bodies of control flow.

#include <cstddef>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "model/counters.h"
#include "model/session.h"
#include "program/plan.h"
#include "runtime/arena.h"
#include "runtime/kernel.h"
#include "runtime/memory_limit.h"
#include "runtime/thread_pool.h"

namespace tilewright {

/// Numbers of symbols and scalars, by slot. The slots are those of the whole model: bodies of control flow see the
/// names of the plan around them.
class Names {
  public:
    explicit Names(const std::vector<Var>& vars);
    size_t slot(Var v) const;
    bool has(Var v) const { return slots_.count(v) != 0; }
    int64_t value(size_t slot) const { return values_[slot]; }
    void set(size_t slot, int64_t v) { values_[slot] = v; }
    int64_t evaluate(Expr e) const;

  private:
    /// The value of a polynomial over names; nothing for other expressions, or where a number exceeds 64 bits.
    std::optional<int64_t> polynomial(Expr e) const;

    std::map<Var, size_t> slots_;
    std::vector<int64_t> values_;
};

/// Every variable a plan and its bodies mention.
std::vector<Var> variables_of(const Plan& plan, const std::vector<cpu::CompiledKernel>& kernels);

/// 2 operations for each multiply-add of products; what else a kernel does is not counted.
double product_flops(const KernelCall& call, const Names& names);

/// What all executors of one session share.
struct ExecutionContext {
    const std::vector<cpu::CompiledKernel>* kernels = nullptr;
    ThreadPool* pool = nullptr;
    Names* names = nullptr;
    MemoryBudget* memory = nullptr;
    RunCounters* counters = nullptr;
    std::byte* scratch = nullptr;  ///< one block per worker
    int64_t scratch_stride = 0;
    std::vector<StepTime>* profile = nullptr;
    double flops = 0;
    const std::function<bool()>* cancelled = nullptr;  ///< RunControl::cancelled; may be empty

    /// memcpy that is counted, and takes null pointers where there is nothing to copy: a caller's empty tensor need not
    /// lie anywhere.
    void copy(void* to, const void* from, size_t bytes) const {
        if (bytes == 0) return;
        std::memcpy(to, from, bytes);
        counters->bytes_copied += bytes;
    }
};

/// What OutputMemory returned for an output.
struct GivenMemory {
    bool requested = false;
    void* data = nullptr;
};

class Executor {
  public:
    /// `known`: variables bound before the plan starts, besides those of its inputs' shapes.
    Executor(const Plan& plan, ExecutionContext& context, const std::vector<Var>& known);
    ~Executor();
    /// The order in which inputs are set, by set_input or set_rows: later ones' shapes depend on those before.
    const std::vector<size_t>& input_order() const;
    /// data stays the caller's until run() returns. Throws ModelError when the shape is not what the plan declares.
    void set_input(size_t i, void* data, std::span<const int64_t> shape);
    /// Before a run, after its inputs are set: requests memory for the outputs whose sizes are known, and lets the run
    /// write to it where that is possible. Memory of an earlier call is not used any more.
    void place_outputs(const OutputMemory& memory, std::vector<GivenMemory>& given);
    /// As set_input, for an input of which only the first dimension is given: the others are those of the other inputs'
    /// symbols, which are set before.
    void set_rows(size_t i, int64_t rows);
    /// The shape of an output that an Append computes; inputs are set before.
    Shape appended_shape(size_t output) const;
    /// Before a run, after its inputs are set and its outputs placed: the memory of such an output, 64-byte aligned,
    /// which begins with the rows of the input. The run writes the others behind them. Null: the input is elsewhere,
    /// and the output in the session's own memory.
    void bind(size_t input, size_t output, void* data);
    void run();
    TensorView output(size_t i) const;
    int64_t arena_bytes() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright
