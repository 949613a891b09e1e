#pragma once
// A kernel of a model for the CPU, as a run calls it: generated machine code, or a library's function.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "index/expr.h"

namespace tilewright::cpu {

/// The signature of all generated code. Runs tasks [begin, end) of the kernel's grid (row-major over its parallel
/// loops). tensors: inputs, then outputs, of the kernel's stages. names: values of `CompiledKernel::names`. scratch:
/// 64-byte aligned, `scratch_bytes`, private to the call.
using KernelFn = void (*)(void* const* tensors, const int64_t* names, int64_t begin, int64_t end, void* scratch);

/// One library kernel for one operation. Immutable; thread-safe.
class LibraryCall {
  public:
    virtual ~LibraryCall() = default;

    /// A constant input of the stages with another layout in the library; run() takes the prepared form in its place.
    struct Prepared {
        size_t input = 0;
        int64_t bytes = 0;
        friend bool operator==(const Prepared&, const Prepared&) = default;
    };
    virtual std::vector<Prepared> prepared() const = 0;
    /// Writes prepared()[which]. `constant`: in the layout of the stages; `to`: 64-byte aligned.
    virtual void prepare(size_t which, const void* constant, void* to) const = 0;
    /// Returns the scratch bytes of one run on `threads` threads; 64-byte aligned. Throws RuntimeError as runs() does.
    virtual int64_t scratch_bytes(int threads) const = 0;

    /// The state for consecutive runs; one thread at a time.
    class Runs {
      public:
        virtual ~Runs() = default;
        /// `tensors`: inputs, then outputs, of the stages. Throws RuntimeError if the library fails.
        virtual void run(void* const* tensors, void* scratch) = 0;
    };
    /// Runs on `threads` threads of the library. Throws RuntimeError.
    virtual std::unique_ptr<Runs> runs(int threads) const = 0;
};

struct CompiledKernel {
    std::string name;
    KernelFn run = nullptr;
    std::vector<Var> names;            ///< symbols and scalars that the code reads, in order
    std::vector<Expr> grid;            ///< trip counts of the parallel loops; their product is the number of tasks
    int64_t scratch_bytes = 0;         ///< per concurrent call
    std::shared_ptr<const void> code;  ///< keeps the machine code alive
    std::string object;                ///< its ELF object file, whose function is `kernel`; empty unless requested
    /// A library kernel to call instead of `run`, which is then null; all other fields but the name are then empty.
    std::shared_ptr<const LibraryCall> library;
};

}  // namespace tilewright::cpu
