#include "backend/cpu/optimize.h"

#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/Analysis/LoopInfo.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/LICM.h>
#include <llvm/Transforms/Scalar/LoopPassManager.h>
#include <llvm/Transforms/Scalar/LoopStrengthReduce.h>
#include <llvm/Transforms/Scalar/SROA.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>
#include <llvm/Transforms/Utils/LoopUtils.h>

#include <algorithm>
#include <iterator>

namespace tilewright::cpu {

namespace {

/// LLVM's pass, for all loops that neither are tails nor stand in one.
class StrengthReduction : public llvm::PassInfoMixin<StrengthReduction> {
  public:
    // Static, as LLVM calls it on an object that may have no state.
    static llvm::PreservedAnalyses run(llvm::Loop& loop, llvm::LoopAnalysisManager& analyses,
                                       llvm::LoopStandardAnalysisResults& results, llvm::LPMUpdater& updater) {
        for (const llvm::Loop* l = &loop; l != nullptr; l = l->getParentLoop())
            if (llvm::getBooleanLoopAttribute(l, kTailLoop)) return llvm::PreservedAnalyses::all();
        return llvm::LoopStrengthReducePass().run(loop, analyses, results, updater);
    }
};

void run(llvm::FunctionPassManager passes, llvm::Module& module, llvm::TargetMachine& machine) {
    llvm::LoopAnalysisManager lam;
    llvm::FunctionAnalysisManager fam;
    llvm::CGSCCAnalysisManager cgam;
    llvm::ModuleAnalysisManager mam;
    llvm::PassBuilder builder(&machine);
    builder.registerModuleAnalyses(mam);
    builder.registerCGSCCAnalyses(cgam);
    builder.registerFunctionAnalyses(fam);
    builder.registerLoopAnalyses(lam);
    builder.crossRegisterProxies(lam, fam, cgam, mam);
    for (llvm::Function& f : module)
        if (!f.isDeclaration()) passes.run(f, fam);
}

}  // namespace

void mark_tail_loop(llvm::Instruction& back_edge) {
    llvm::LLVMContext& c = back_edge.getContext();
    llvm::MDNode* loop = llvm::MDNode::getDistinct(
        c, {nullptr, llvm::MDNode::get(c, {llvm::MDString::get(c, kTailLoop)})});  // the first operand is the node
    loop->replaceOperandWith(0, loop);
    back_edge.setMetadata(llvm::LLVMContext::MD_loop, loop);
}

void optimize(llvm::Module& module, llvm::TargetMachine& machine) {
    llvm::FunctionPassManager fpm;
    fpm.addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
    fpm.addPass(llvm::EarlyCSEPass(true));
    fpm.addPass(llvm::InstCombinePass());
    fpm.addPass(llvm::SimplifyCFGPass());
    fpm.addPass(llvm::createFunctionToLoopPassAdaptor(llvm::LICMPass(llvm::LICMOptions()), true));
    fpm.addPass(llvm::EarlyCSEPass(true));
    fpm.addPass(llvm::SimplifyCFGPass());
    run(std::move(fpm), module, machine);
}

void reduce_strength(llvm::Module& module, llvm::TargetMachine& machine) {
    llvm::FunctionPassManager fpm;
    fpm.addPass(llvm::createFunctionToLoopPassAdaptor(StrengthReduction()));
    run(std::move(fpm), module, machine);
}

void CodeGeneratorPasses::add(llvm::Pass* pass) {
    std::unique_ptr<llvm::Pass> owned(pass);
    // reduce_strength() stands for the first; the second prepares loops for it. The next three look for integers of
    // more than 64 bits, which no kernel has, and for scalars that mask registers could hold: they changed no kernel of
    // the seven models whose machine code was compared. The last orders instructions again, after the machine scheduler
    // and register allocation, for processors that run them in order: up to a fifth of the code generator's time.
    constexpr llvm::StringLiteral kWithout[] = {
        "Loop Strength Reduction",      "Canonicalize Freeze Instructions in Loops",
        "Expand large div/rem",         "Expand large fp convert",
        "X86 Domain Reassignment Pass", "Post RA top-down list latency scheduler"};
    if (std::find(std::begin(kWithout), std::end(kWithout), pass->getPassName()) == std::end(kWithout))
        passes_.add(owned.release());
}

}  // namespace tilewright::cpu
