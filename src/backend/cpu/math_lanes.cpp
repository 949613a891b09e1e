#include "backend/cpu/math_lanes.h"

#include <llvm/ADT/StringExtras.h>
#include <llvm/IR/Module.h>
#include <llvm/TargetParser/X86TargetParser.h>

#include <numeric>

namespace tilewright::cpu {

bool has_avx512(llvm::IRBuilderBase& b) {
    const llvm::Function* f = b.GetInsertBlock()->getParent();
    const llvm::StringRef cpu = f->getFnAttribute("target-cpu").getValueAsString();
    llvm::SmallVector<llvm::StringRef> features;
    if (!cpu.empty() && llvm::X86::parseArchX86(cpu) != llvm::X86::CK_None)
        llvm::X86::getFeaturesForCPU(cpu, features, /*NeedPlus=*/true);
    // Explicit features override those that the CPU implies: the last occurrence counts.
    f->getFnAttribute("target-features").getValueAsString().split(features, ',', -1, /*KeepEmpty=*/false);
    bool has = false;
    for (const llvm::StringRef feature : features) {
        if (feature.starts_with("+avx512")) has = true;  // each of them implies AVX-512F
        if (feature == "-avx512f") has = false;
    }
    return has;
}

llvm::Value* call_libm(llvm::IRBuilderBase& b, const char* name, llvm::ArrayRef<llvm::Value*> operands) {
    llvm::Type* number = b.getDoubleTy();
    const llvm::SmallVector<llvm::Type*> parameters(operands.size(), number);
    llvm::Module* module = b.GetInsertBlock()->getModule();
    llvm::FunctionCallee callee =
        module->getOrInsertFunction(name, llvm::FunctionType::get(number, parameters, /*isVarArg=*/false));
    auto* function = llvm::cast<llvm::Function>(callee.getCallee());
    // errno is not read here, so that calls may be moved and merged.
    function->setDoesNotAccessMemory();
    function->setDoesNotThrow();
    function->setWillReturn();

    llvm::Type* type = operands[0]->getType();
    if (!type->isVectorTy()) return b.CreateCall(callee, operands);
    llvm::Value* result = llvm::PoisonValue::get(type);
    for (unsigned lane = 0; lane < lane_count(type); ++lane) {
        llvm::SmallVector<llvm::Value*> scalars;
        for (llvm::Value* operand : operands) scalars.push_back(b.CreateExtractElement(operand, lane));
        result = b.CreateInsertElement(result, b.CreateCall(callee, scalars), lane);
    }
    return result;
}

namespace {

llvm::SmallVector<int> indices(unsigned first, unsigned count) {
    llvm::SmallVector<int> out(count);
    std::iota(out.begin(), out.end(), static_cast<int>(first));
    return out;
}

/// Returns 16 lanes of v from `first` on, undefined beyond its end.
llvm::Value* sixteen(llvm::IRBuilderBase& b, llvm::Value* v, unsigned first) {
    llvm::Type* type = v->getType();
    if (!type->isVectorTy()) {
        llvm::Type* wide = llvm::FixedVectorType::get(type, 16);
        return b.CreateInsertElement(llvm::PoisonValue::get(wide), v, uint64_t{0});
    }
    llvm::SmallVector<int> pick = indices(first, 16);
    for (int& lane : pick)
        if (static_cast<unsigned>(lane) >= lane_count(type)) lane = llvm::PoisonMaskElem;
    return b.CreateShuffleVector(v, pick);
}

}  // namespace

Real in_sixteens(llvm::ArrayRef<Real> operands, llvm::function_ref<Real(llvm::ArrayRef<Real>)> f) {
    llvm::IRBuilderBase& b = *operands[0].b;
    llvm::Type* type = operands[0].type();
    const unsigned lanes = lane_count(type);
    if (lanes == 16) return f(operands);

    llvm::SmallVector<llvm::Value*> pieces;
    for (unsigned first = 0; first < lanes; first += 16) {
        llvm::SmallVector<Real> piece;
        for (const Real& x : operands) piece.push_back({{&b, sixteen(b, x.v, first)}});
        pieces.push_back(f(piece).v);
    }
    if (!type->isVectorTy()) return {{&b, b.CreateExtractElement(pieces[0], uint64_t{0})}};
    for (unsigned width = 16; pieces.size() > 1; width *= 2) {
        llvm::SmallVector<llvm::Value*> joined;
        for (size_t i = 0; i < pieces.size(); i += 2) {
            llvm::Value* other = i + 1 < pieces.size() ? pieces[i + 1] : llvm::PoisonValue::get(pieces[i]->getType());
            joined.push_back(b.CreateShuffleVector(pieces[i], other, indices(0, 2 * width)));
        }
        pieces = std::move(joined);
    }
    return {{&b, b.CreateShuffleVector(pieces[0], indices(0, lanes))}};
}

}  // namespace tilewright::cpu
