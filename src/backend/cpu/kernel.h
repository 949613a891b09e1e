#pragma once
// TileProgram -> machine code for CPUs, through LLVM.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/provider.h"
#include "base/code_cache.h"
#include "tile/tile.h"

namespace tilewright::cpu {

/// What to generate for. The host's by default.
struct Isa {
    std::string triple;    ///< "x86_64-pc-linux-gnu"; empty: the host's
    std::string cpu;       ///< LLVM's name ("znver4", "x86-64-v3"); empty: the host's
    std::string features;  ///< "+avx512f,..."; used with an explicit cpu
    int vector_bits = 0;   ///< 0: what cpu and features have (512, 256, 128)

    static Isa host();
    static Isa avx2();    ///< x86-64-v3 (AVX2, FMA, F16C), runs on any host that has it
    static Isa avx512();  ///< x86-64-v4
    /// "avx2", "avx512", "": the host's. Throws ModelError for anything else.
    static Isa named(const std::string& name);
    int lanes_f32() const { return vector_bits / 32; }
};

/// The one signature of generated code. Runs tasks [begin, end) of the kernel's grid (row-major over its parallel
/// loops). tensors: inputs, then outputs, of TileProgram::stages. names: values of `CompiledKernel::names`. scratch:
/// 64-byte aligned, `scratch_bytes`, private to the call.
using KernelFn = void (*)(void* const* tensors, const int64_t* names, int64_t begin, int64_t end, void* scratch);

struct CompiledKernel {
    std::string name;
    KernelFn run = nullptr;
    std::vector<Var> names;            ///< symbols and scalars the code reads, in order
    std::vector<Expr> grid;            ///< trip counts of the parallel loops; their product is the number of tasks
    int64_t scratch_bytes = 0;         ///< per concurrent call
    std::shared_ptr<const void> code;  ///< keeps the machine code alive
    /// A library's: computes the kernel in place of `run`, which there is none of then, nor anything else but the name.
    std::shared_ptr<const LibraryCall> library;
};

struct CodegenOptions {
    Isa isa = Isa::host();
    /// Outputs of more bytes than this are written by non-temporal stores: they would be evicted before they are read,
    /// after evicting other data. They must be 64-byte aligned. 0: none is.
    int64_t cache_bytes = 0;
    std::shared_ptr<const CodeCache> known = nullptr;  ///< machine code made before, and where it is kept; null: none
};

/// Compiles the kernels of one model together. Thread-safe: independent calls may run at the same time.
std::vector<CompiledKernel> compile(const std::vector<const TileProgram*>& programs,
                                    const CodegenOptions& options = {});
CompiledKernel compile(const TileProgram& program, const CodegenOptions& options = {});
/// The LLVM IR before optimisation. Instructions and blocks have numbers in place of names.
std::string print_emitted(const TileProgram& program, const CodegenOptions& options = {});
/// The optimised LLVM IR, and the assembly, for `tilewright dump`.
std::string print_llvm(const TileProgram& program, const CodegenOptions& options = {});
std::string print_assembly(const TileProgram& program, const CodegenOptions& options = {});

}  // namespace tilewright::cpu
