#pragma once
// The operands of a single kernel that is timed or checked.

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

/// The stages with their symbols and scalars replaced by values. InternalError with one that `bindings` lacks.
Program with_sizes(const Program& stages, const Bindings& bindings);
/// Binds every symbol of the stages to the size that it is assumed to have, `size` if there is none, to measure a
/// kernel with dynamic sizes for the sizes that the cost model assumes. Nothing if there are scalars, whose values
/// depend on the data, or if a dimension would be negative: the kernel belongs to a branch for other sizes.
std::optional<Bindings> assumed_sizes(const Program& stages, int64_t size = kAssumedExtent);

enum class Spread : uint8_t {
    Usual,  ///< floats in [-1, 1]: sums of products have realistic magnitudes, for timing
    Wide    ///< one in 64 is up to 30: finds errors that cancel among small numbers, for checks
};

/// Inputs for stages without symbols, determined by `seed`. Floats have full mantissas and some are zeros. Integers
/// that the stages use as indices are in bounds of all indexed dimensions; others are in -100 (0 if unsigned) to 100.
std::vector<Tensor> kernel_inputs(const Program& stages, uint64_t seed, Spread spread);

/// A kernel's stages and inputs in the form of a library call, whose prepared numbers are a further input.
struct PreparedInputs {
    Program stages;
    std::vector<Tensor> inputs;
};
/// RuntimeError if the library writes outside the memory of a prepared input.
PreparedInputs prepared_inputs(Program stages, std::vector<Tensor> inputs, const cpu::LibraryCall& call);

struct OperandOptions {
    Warmth warmth = Warmth::warm;
    /// Per input of the stages: whether it is a constant of the model. Empty: none is.
    std::vector<bool> weights = {};  // NOLINT(readability-redundant-member-init): designated initialisers omit it
    /// The size of the cache. For cold weights there are copies of twice that many bytes (limited to a quarter of the
    /// free memory), and each run uses another copy, so that weights come from memory without a flush.
    int64_t cache_bytes = int64_t{32} << 20;
    /// Leaves space around every tensor, which intact() checks. Changes the placement of tensors, so not for timing.
    bool guarded = false;
};

/// Memory for the inputs and outputs of stages without symbols, written once by the calling thread, aligned as in a
/// model (kBufferAlignment). Several kernels of the same stages may run on it in turn.
class Operands {
  public:
    /// Throws RuntimeError when out of memory.
    Operands(const Program& stages, const std::vector<Tensor>& inputs, const OperandOptions& options = {});

    /// The addresses of inputs, then outputs, for the next run.
    void* const* next();
    int64_t copies() const { return copies_; }  ///< of the weights
    Tensor output(size_t i) const;              ///< a copy
    const void* output_data(size_t i) const;    ///< the output itself
    void fill_outputs(unsigned char byte);
    /// Empty, or the input or the memory beside a tensor that was overwritten. With `guarded` only.
    std::string intact() const;
    bool guarded() const { return guarded_; }

  private:
    struct Place {
        std::string name;
        DType dtype = DType::F32;
        Shape shape;
        int64_t bytes = 0, offset = 0;
    };
    size_t inputs_ = 0;
    std::vector<Place> places_;  ///< inputs, then outputs
    std::vector<Tensor> given_;  ///< guarded: the original inputs
    bool guarded_ = false;
    int64_t copies_ = 1, step_ = 1, copy_ = 0;
    std::vector<void*> addresses_;  ///< for each copy, the addresses of all places
    Arena memory_, weights_;
};

/// Runs the kernel on the operands, with its own scratch memory. Operands (for a library kernel: of its
/// prepared_inputs) and pool must outlive it; runs must not overlap.
class KernelRun {
  public:
    /// `bindings`: values of CompiledKernel::names and of the symbols of the grid. A library kernel uses as many
    /// threads as the pool has.
    KernelRun(const cpu::CompiledKernel& kernel, const Bindings& bindings, Operands& operands, ThreadPool& pool);
    void operator()();
    void fill_scratch(unsigned char byte);
    /// As Operands::intact(), of the scratch memory, which has space around it where operands have.
    std::string intact() const;

  private:
    cpu::CompiledKernel kernel_;
    std::vector<int64_t> names_;
    int64_t tasks_ = 1;
    int64_t guard_ = 0, parts_ = 1;           ///< bytes beside each part of the scratch memory; a part for each worker
    int64_t scratch_bytes_ = 0, stride_ = 0;  ///< of a part
    Operands* operands_;
    ThreadPool* pool_;
    std::shared_ptr<Arena> scratch_;  ///< shared, so that a KernelRun can be copied into a std::function
    std::shared_ptr<cpu::LibraryCall::Runs> library_;
};

}  // namespace tilewright
