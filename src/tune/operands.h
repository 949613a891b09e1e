#pragma once
// The operands of a kernel that is run by itself, to be timed or checked.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/cpu/kernel.h"
#include "program/analysis/dynamic.h"
#include "runtime/arena.h"
#include "runtime/thread_pool.h"
#include "tune/measure.h"

namespace tilewright {

/// The stages with their symbols and scalars replaced by numbers. InternalError naming one that `bindings` lacks.
Program with_sizes(const Program& stages, const Bindings& bindings);
/// Every symbol of the stages at `size`, to measure a kernel whose sizes only the run knows as the cost model estimates
/// it. Nothing where scalars take part: what the data decides cannot be assumed.
std::optional<Bindings> assumed_sizes(const Program& stages, int64_t size = kAssumedExtent);

enum class Spread : uint8_t {
    Usual,  ///< floats in [-1, 1]: sums of products are as large as a model's scores, for timing
    Wide    ///< one in 64 is up to 30, which finds errors that cancel among small numbers, for checks
};

/// Inputs for stages without symbols, decided by `seed`. Floats have full mantissas and some are zeros. Integers are
/// indices where a stage uses them so, then inside every dimension that they index; else -100 (0) to 100.
std::vector<Tensor> kernel_inputs(const Program& stages, uint64_t seed, Spread spread);

/// A kernel's stages and inputs as a library's call wants them: what it has prepared is a row of numbers of its own.
struct PreparedInputs {
    Program stages;
    std::vector<Tensor> inputs;
};
PreparedInputs prepared_inputs(Program stages, std::vector<Tensor> inputs, const cpu::LibraryCall& call);

struct OperandOptions {
    Warmth warmth = Warmth::warm;
    /// Per input of the stages: whether the model has it as a constant. Empty: none is.
    std::vector<bool> weights = {};  // NOLINT(readability-redundant-member-init): g++ wants it where it is left out
    /// What the cache holds. For cold weights there are copies of twice that many bytes (as far as a quarter of the
    /// free memory goes), and each run takes another: so they come from memory without anything being flushed.
    int64_t cache_bytes = int64_t{32} << 20;
    /// Leaves room around every tensor, which intact() looks at. Moves tensors apart, so not for timing.
    bool guarded = false;
};

/// Memory for the inputs and outputs of stages without symbols, written once by the calling thread, aligned as in a
/// model (kBufferAlignment). Several kernels of the same stages may run on it in turn.
class Operands {
  public:
    /// Throws RuntimeError when the memory is not to be had.
    Operands(const Program& stages, const std::vector<Tensor>& inputs, const OperandOptions& options = {});

    /// Addresses of inputs, then outputs, for the next run.
    void* const* next();
    int64_t copies() const { return copies_; }  ///< of the weights
    Tensor output(size_t i) const;              ///< a copy
    const void* output_data(size_t i) const;    ///< the output itself
    void fill_outputs(unsigned char byte);
    /// Empty; or which input, or what memory beside which tensor, is not as it was. With `guarded` only.
    std::string intact() const;

  private:
    struct Place {
        std::string name;
        DType dtype = DType::F32;
        Shape shape;
        int64_t bytes = 0, offset = 0;
    };
    size_t inputs_ = 0;
    std::vector<Place> places_;  ///< inputs, then outputs
    std::vector<Tensor> given_;  ///< guarded: what the inputs were
    int64_t copies_ = 1, step_ = 1, copy_ = 0;
    std::vector<void*> addresses_;  ///< copies times the places
    Arena memory_, weights_;
};

/// The kernel on the operands, with scratch of its own. Operands (of a library's kernel: of its prepared_inputs) and
/// pool must outlive it; runs must not overlap.
class KernelRun {
  public:
    /// `bindings`: numbers of CompiledKernel::names and of what the grid mentions. A library has as many threads as the
    /// pool.
    KernelRun(const cpu::CompiledKernel& kernel, const Bindings& bindings, Operands& operands, ThreadPool& pool);
    void operator()();
    void fill_scratch(unsigned char byte);

  private:
    cpu::CompiledKernel kernel_;
    std::vector<int64_t> names_;
    int64_t tasks_ = 1, stride_ = 0, scratch_bytes_ = 0;
    Operands* operands_;
    ThreadPool* pool_;
    std::shared_ptr<Arena> scratch_;  ///< shared, so that a KernelRun can be copied into a std::function
    std::shared_ptr<cpu::LibraryCall::Runs> library_;
};

}  // namespace tilewright
