#include "backend/cpu/guarded.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Target/TargetMachine.h>

#include <atomic>
#include <stdexcept>

#include "backend/cpu/kernel.h"
#include "base/error.h"
#include "tile/examples_test.h"

namespace tilewright::cpu {
namespace {

using testing::HasSubstr;

std::string message_of(const std::function<void()>& work) {
    try {
        run_guarded(1, work);
    } catch (const InternalError& e) {
        return e.what();
    }
    return "no internal error";
}

/// Compiles an AVX-512 instruction for a CPU without AVX-512.
void compile_what_has_no_code() {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    std::string error;
    const llvm::Target* target = llvm::TargetRegistry::lookupTarget("x86_64-pc-linux-gnu", error);
    if (target == nullptr) llvm::report_fatal_error("this LLVM has no x86");
    const std::unique_ptr<llvm::TargetMachine> machine(
        target->createTargetMachine("x86_64-pc-linux-gnu", "x86-64", "", {}, llvm::Reloc::PIC_));
    llvm::LLVMContext context;
    llvm::Module module("m", context);
    module.setDataLayout(machine->createDataLayout());
    llvm::IRBuilder<> b(context);
    llvm::Type* vector = llvm::FixedVectorType::get(b.getFloatTy(), 16);
    auto* type = llvm::FunctionType::get(vector, {vector}, false);
    auto* f = llvm::Function::Create(type, llvm::Function::ExternalLinkage, "f", module);
    b.SetInsertPoint(llvm::BasicBlock::Create(context, "", f));
    llvm::Value* x = f->getArg(0);
    b.CreateRet(b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, {},
                                  {x, x, x, b.getInt16(0xFFFF), b.getInt32(4)}));
    llvm::SmallVector<char, 0> bytes;
    llvm::raw_svector_ostream stream(bytes);
    llvm::legacy::PassManager passes;
    machine->addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::ObjectFile);
    passes.run(module);
}

TEST(Guarded, AFatalErrorOfLlvmIsAnExceptionAndTheProcessGoesOn) {
    for (int i = 0; i < 3; ++i)
        EXPECT_THAT(message_of([] {
                        set_guarded_work("softmax");
                        compile_what_has_no_code();
                    }),
                    HasSubstr("LLVM cannot compile kernel 'softmax'"));
    EXPECT_NE(compile(parse_tile_program(kGemm), host_target()).run, nullptr);
}

TEST(Guarded, FatalErrorsOnSeveralThreadsAreOneException) {
    std::atomic<int> calls = 0;
    const auto work = [&] {
        ++calls;
        llvm::report_fatal_error("made up");
    };
    EXPECT_THROW(run_guarded(4, work), InternalError);
    EXPECT_EQ(calls, 4);
}

TEST(Guarded, ThrowsWhatTheWorkThrows) {
    EXPECT_THROW(run_guarded(2, [] { throw std::out_of_range("x"); }), std::out_of_range);
    EXPECT_NO_THROW(run_guarded(2, [] {}));
}

TEST(Guarded, MemoryThatRunsOutIsTheMachinesFailure) {
    EXPECT_THROW(run_guarded(1, [] { llvm::report_bad_alloc_error("Allocation failed"); }), RuntimeError);
}

}  // namespace
}  // namespace tilewright::cpu
