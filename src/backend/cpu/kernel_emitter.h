#pragma once
// TileProgram -> one LLVM function.

#include <llvm/IR/Module.h>

#include <memory>

#include "backend/cpu/kernel.h"

namespace tilewright::cpu {

struct EmittedKernel {
    std::vector<Var> names;
    std::vector<Expr> grid;
    int64_t scratch_bytes = 0;
};

/// Adds `symbol` with the signature of KernelFn to the module.
EmittedKernel emit_kernel(llvm::Module& module, const std::string& symbol, const TileProgram& program,
                          const Target& target);

}  // namespace tilewright::cpu
