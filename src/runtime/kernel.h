#pragma once
// A kernel of a model for the CPU, as a run uses it: machine code that was generated, or a library's function.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "index/expr.h"

namespace tilewright::cpu {

/// The one signature of generated code. Runs tasks [begin, end) of the kernel's grid (row-major over its parallel
/// loops). tensors: inputs, then outputs, of the kernel's stages. names: values of `CompiledKernel::names`. scratch:
/// 64-byte aligned, `scratch_bytes`, private to the call.
using KernelFn = void (*)(void* const* tensors, const int64_t* names, int64_t begin, int64_t end, void* scratch);

/// One kernel of a library for one operation. Immutable; from any thread.
class LibraryCall {
  public:
    virtual ~LibraryCall() = default;

    /// An input of the stages that is a constant, and has another layout in the library: run() takes it in its place.
    struct Prepared {
        size_t input = 0;
        int64_t bytes = 0;
        friend bool operator==(const Prepared&, const Prepared&) = default;
    };
    virtual std::vector<Prepared> prepared() const = 0;
    /// Writes what stands for prepared()[which]. `constant`: as the stages have it; `to`: 64-byte aligned.
    virtual void prepare(size_t which, const void* constant, void* to) const = 0;
    /// Scratch memory of one run on so many threads, 64-byte aligned. Throws RuntimeError as runs() does.
    virtual int64_t scratch_bytes(int threads) const = 0;

    /// What one run after another needs; one thread at a time.
    class Runs {
      public:
        virtual ~Runs() = default;
        /// `tensors`: inputs, then outputs, of the stages. Throws RuntimeError where the library fails.
        virtual void run(void* const* tensors, void* scratch) = 0;
    };
    /// On so many threads, of the library's own. Throws RuntimeError.
    virtual std::unique_ptr<Runs> runs(int threads) const = 0;
};

struct CompiledKernel {
    std::string name;
    KernelFn run = nullptr;
    std::vector<Var> names;            ///< symbols and scalars the code reads, in order
    std::vector<Expr> grid;            ///< trip counts of the parallel loops; their product is the number of tasks
    int64_t scratch_bytes = 0;         ///< per concurrent call
    std::shared_ptr<const void> code;  ///< keeps the machine code alive
    std::string object;                ///< its ELF object file, whose function is `kernel`; empty unless requested
    /// A library's: computes the kernel in place of `run`, which there is none of then, nor anything else but the name.
    std::shared_ptr<const LibraryCall> library;
};

}  // namespace tilewright::cpu
