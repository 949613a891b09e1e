#include "backend/cpu/optimize.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <llvm/AsmParser/Parser.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/TargetSelect.h>

#include "backend/cpu/kernel.h"
#include "backend/cpu/run_kernel_test.h"

namespace tilewright::cpu::test {
namespace {

using testing::HasSubstr, testing::Not;

/// Clears every n-th element: the address is a product of the loop's variable.
std::string strided_loop(const std::string& mark) {
    return R"(
define void @strided(ptr %a, i64 %n, i64 %count) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %offset = mul i64 %i, %n
  %p = getelementptr float, ptr %a, i64 %offset
  store float 0.0, ptr %p
  %next = add nsw i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %done)" +
           mark + R"(
done:
  ret void
}
!0 = distinct !{!0, !1}
!1 = !{!"tilewright.tail"}
)";
}

/// The assembly of this LLVM IR, optimised as kernels are.
std::string assembly_of(const std::string& text) {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    std::string error;
    const llvm::Target* target = llvm::TargetRegistry::lookupTarget("x86_64-pc-linux-gnu", error);
    if (target == nullptr) return error;
    const std::unique_ptr<llvm::TargetMachine> machine(
        target->createTargetMachine("x86_64-pc-linux-gnu", "x86-64", "", {}, llvm::Reloc::PIC_));
    llvm::LLVMContext context;
    llvm::SMDiagnostic problem;
    const std::unique_ptr<llvm::Module> module = llvm::parseAssemblyString(text, problem, context);
    if (module == nullptr) return problem.getMessage().str();
    module->setDataLayout(machine->createDataLayout());
    optimize(*module, *machine);
    reduce_strength(*module, *machine);
    llvm::SmallVector<char, 0> bytes;
    llvm::raw_svector_ostream stream(bytes);
    CodeGeneratorPasses passes;
    machine->addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::AssemblyFile);
    passes.run(*module);
    return {bytes.data(), bytes.size()};
}

TEST(Optimize, ProductsInAddressesBecomeSums) {
    EXPECT_THAT(assembly_of(strided_loop("")), AllOf(HasSubstr("strided:"), Not(HasSubstr("imul"))));
}

TEST(Optimize, AddressesInTailsStay) {
    EXPECT_THAT(assembly_of(strided_loop(", !llvm.loop !0")), AllOf(HasSubstr("strided:"), HasSubstr("imul")));
}

TEST(Optimize, TailsOfDynamicAxesAreMarked) {
    const auto marked = [](const char* rows) {
        const TileProgram t = parse_tile_program(fmt::format(R"(tile product {{
stages {{
program product {{
  input x: f32[{0}, 64]
  input w: f32[64, 16]
  y: f32[{0}, 16] = [{0}, 16] sum(i2 < 64) mul(@0, @1) where @0 = x[i0, i2], @1 = w[i2, i1]  ; y ""
  output y
}}
}}
axes s0="{0}" s1="16" r2="64"
stage 0 over [s0 s1 r2]
compute 0 vector s1 lanes 8 registers [s0=8 s1=16] order [s1 s0 r2] padding partition
}}
)",
                                                             rows));
        return print_emitted(t, avx2()).find(kTailLoop) != std::string::npos;
    };
    EXPECT_TRUE(marked("$rows"));
    EXPECT_FALSE(marked("13"));
}

}  // namespace
}  // namespace tilewright::cpu::test
