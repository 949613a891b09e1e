#pragma once
// The passes over a kernel's LLVM IR before LLVM's code generator.

#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

namespace tilewright::cpu {

/// Version of these passes and of the code generator's options; a change invalidates cached code.
inline constexpr int kPasses = 5;

/// The metadata of loops over tails of unknown extent in stages with dynamic sizes. Their addresses stay as the emitter
/// wrote them: strength reduction took 40 % of the time of LLVM's code generator for such kernels, most of it for their
/// many tails, and saves 3 of 25 instructions of such a loop (docs/codegen.md, "Tails").
inline constexpr const char* kTailLoop = "tilewright.tail";
/// Gives the loop of this back edge, the branch to its header, that metadata.
void mark_tail_loop(llvm::Instruction& back_edge);

/// The generator already chose tiles, vectors and unrolling: only clean-up is left.
void optimize(llvm::Module& module, llvm::TargetMachine& machine);

/// Strength reduction of addresses in all loops but those of tails, before LLVM's code generator.
void reduce_strength(llvm::Module& module, llvm::TargetMachine& machine);

/// The passes of LLVM's code generator, without its own strength reduction of all loops and without the second
/// scheduling. A pass that is skipped, as by
/// llvm::OptPassGate, would still cost the analysis of all users of induction variables.
class CodeGeneratorPasses : public llvm::legacy::PassManagerBase {
  public:
    void add(llvm::Pass* pass) override;  ///< owns it
    void run(llvm::Module& module) { passes_.run(module); }

  private:
    llvm::legacy::PassManager passes_;
};

}  // namespace tilewright::cpu
