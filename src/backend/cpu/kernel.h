#pragma once
// TileProgram -> machine code for CPUs, through LLVM.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/provider.h"
#include "base/code_cache.h"
#include "cost/target.h"
#include "runtime/kernel.h"
#include "tile/tile.h"

namespace tilewright::cpu {

/// The CPU of a target in LLVM's terms: the host's, or the generic one of the target's instruction set.
struct LlvmCpu {
    std::string triple;    ///< "x86_64-pc-linux-gnu"
    std::string name;      ///< "znver4", "x86-64-v3"
    std::string features;  ///< "+avx512f,...", in addition to those of `name`
};
LlvmCpu llvm_cpu(const Target& target);

/// Compiles the kernels of one model together. Thread-safe: independent calls may run at the same time.
///
/// Outputs larger than the target's last-level cache are written by non-temporal stores, since they would be evicted
/// before they are read, after evicting other data. They must be 64-byte aligned. `known`: the code cache; null: none.
/// `keep_objects`: fill CompiledKernel::object. Kernels for another architecture have no `run`.
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
