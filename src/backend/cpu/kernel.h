#pragma once
// TileProgram -> machine code for CPUs, through LLVM.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/provider.h"
#include "base/code_cache.h"
#include "cost/target.h"
#include "tile/tile.h"

namespace tilewright::cpu {

/// The CPU of a target in LLVM's terms: the host's, or the generic one of the target's instruction set.
struct LlvmCpu {
    std::string triple;    ///< "x86_64-pc-linux-gnu"
    std::string name;      ///< "znver4", "x86-64-v3"
    std::string features;  ///< "+avx512f,...", in addition to those of `name`
};
LlvmCpu llvm_cpu(const Target& target);

/// The signature of all generated code. Runs tasks [begin, end) of the kernel's grid (row-major over its parallel
/// loops). tensors: inputs, then outputs, of TileProgram::stages. names: values of `CompiledKernel::names`. scratch:
/// 64-byte aligned, `scratch_bytes`, private to the call.
using KernelFn = void (*)(void* const* tensors, const int64_t* names, int64_t begin, int64_t end, void* scratch);

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

/// Compiles the kernels of one model. Thread-safe.
///
/// Outputs larger than the target's last-level cache are written by non-temporal stores, since they would be evicted
/// before they are read, after evicting other data. They must be 64-byte aligned. `known`: the code cache; null: none.
/// `keep_objects`: fill CompiledKernel::object.
std::vector<CompiledKernel> compile(const std::vector<const TileProgram*>& programs, const Target& target,
                                    const std::shared_ptr<const CodeCache>& known = nullptr, bool keep_objects = false);
CompiledKernel compile(const TileProgram& program, const Target& target,
                       const std::shared_ptr<const CodeCache>& known = nullptr);
/// Returns the LLVM IR before optimisation, with numbered instructions and blocks.
std::string print_emitted(const TileProgram& program, const Target& target);
/// Return the optimised LLVM IR and the assembly, for `tilewright dump`.
std::string print_llvm(const TileProgram& program, const Target& target);
std::string print_assembly(const TileProgram& program, const Target& target);

}  // namespace tilewright::cpu
