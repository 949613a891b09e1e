#include "backend/cpu/dot_unit.h"

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include "base/error.h"

namespace tilewright::cpu {

std::pair<llvm::Value*, llvm::Value*> widened_pairs(llvm::IRBuilder<>& b, llvm::Value* pairs) {
    llvm::Type* number = b.getFloatTy();
    if (auto* v = llvm::dyn_cast<llvm::FixedVectorType>(pairs->getType()))
        number = llvm::FixedVectorType::get(number, v->getNumElements());
    llvm::Value* even = b.CreateShl(pairs, llvm::ConstantInt::get(pairs->getType(), 16));
    llvm::Value* odd = b.CreateAnd(pairs, llvm::ConstantInt::get(pairs->getType(), 0xffff0000U));
    return {b.CreateBitCast(even, number), b.CreateBitCast(odd, number)};
}

llvm::Value* emit_dot_bf16(llvm::IRBuilder<>& b, llvm::Value* sums, llvm::Value* left, llvm::Value* right,
                           bool emulated) {
    const auto lanes = llvm::cast<llvm::FixedVectorType>(sums->getType())->getNumElements();
    if (emulated) {
        const auto x = widened_pairs(b, left), y = widened_pairs(b, right);
        sums = b.CreateIntrinsic(llvm::Intrinsic::fma, {sums->getType()}, {x.second, y.second, sums});
        return b.CreateIntrinsic(llvm::Intrinsic::fma, {sums->getType()}, {x.first, y.first, sums});
    }
    TW_CHECK(lanes == 8 || lanes == 16, "no dot product of {} lanes", lanes);
    llvm::Type* pairs = llvm::FixedVectorType::get(b.getBFloatTy(), 2 * lanes);
    return b.CreateIntrinsic(
        lanes == 16 ? llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512 : llvm::Intrinsic::x86_avx512bf16_dpbf16ps_256, {},
        {sums, b.CreateBitCast(left, pairs), b.CreateBitCast(right, pairs)});
}

namespace {

/// The low half of each lane, of f16, as float.
llvm::Value* low_halves(llvm::IRBuilder<>& b, llvm::Value* pairs) {
    const auto lanes = llvm::cast<llvm::FixedVectorType>(pairs->getType())->getNumElements();
    llvm::Value* words = b.CreateTrunc(pairs, llvm::FixedVectorType::get(b.getInt16Ty(), lanes));
    return b.CreateFPExt(b.CreateBitCast(words, llvm::FixedVectorType::get(b.getHalfTy(), lanes)),
                         llvm::FixedVectorType::get(b.getFloatTy(), lanes));
}
llvm::Value* high_halves(llvm::IRBuilder<>& b, llvm::Value* pairs) { return low_halves(b, b.CreateLShr(pairs, 16)); }

llvm::Value* words_of(llvm::IRBuilder<>& b, llvm::Value* numbers, llvm::Type* pairs) {
    const auto lanes = llvm::cast<llvm::FixedVectorType>(pairs)->getNumElements();
    llvm::Value* halves = b.CreateFPTrunc(numbers, llvm::FixedVectorType::get(b.getHalfTy(), lanes));
    return b.CreateZExt(b.CreateBitCast(halves, llvm::FixedVectorType::get(b.getInt16Ty(), lanes)), pairs);
}

llvm::Type* halves_of(llvm::IRBuilder<>& b, llvm::Value* pairs) {
    const auto lanes = llvm::cast<llvm::FixedVectorType>(pairs->getType())->getNumElements();
    return llvm::FixedVectorType::get(b.getHalfTy(), 2 * lanes);
}

}  // namespace

llvm::Value* emit_dot_f16(llvm::IRBuilder<>& b, llvm::Value* sums, llvm::Value* left, llvm::Value* right,
                          bool emulated) {
    llvm::Type* pairs = sums->getType();
    if (!emulated) {
        llvm::Type* halves = halves_of(b, sums);
        const auto of = [&](llvm::Value* v) { return b.CreateBitCast(v, halves); };
        return b.CreateBitCast(b.CreateIntrinsic(llvm::Intrinsic::fma, {halves}, {of(left), of(right), of(sums)}),
                               pairs);
    }
    const auto half = [&](const auto& part) {
        llvm::Value* sum = part(b, sums);
        sum = b.CreateIntrinsic(llvm::Intrinsic::fma, {sum->getType()}, {part(b, left), part(b, right), sum});
        return words_of(b, sum, pairs);
    };
    llvm::Value* even = half(low_halves);
    return b.CreateOr(even, b.CreateShl(half(high_halves), 16));
}

llvm::Value* emit_add_pairs_f16(llvm::IRBuilder<>& b, llvm::Value* sums, llvm::Value* pairs, bool emulated) {
    llvm::Value* both = nullptr;
    if (emulated) {
        both = words_of(b, b.CreateFAdd(low_halves(b, pairs), high_halves(b, pairs)), pairs->getType());
    } else {
        llvm::Type* halves = halves_of(b, pairs);
        llvm::Value* turned = b.CreateIntrinsic(llvm::Intrinsic::fshl, {pairs->getType()},
                                                {pairs, pairs, llvm::ConstantInt::get(pairs->getType(), 16)});
        both = b.CreateBitCast(b.CreateFAdd(b.CreateBitCast(pairs, halves), b.CreateBitCast(turned, halves)),
                               pairs->getType());
    }
    return b.CreateFAdd(sums, low_halves(b, both));
}

namespace {

/// The same by 16-bit numbers: of each lane's bytes, those at even and those at odd positions are one pair each.
llvm::Value* emit_dot_words(llvm::IRBuilder<>& b, llvm::Value* sums, llvm::Value* left, llvm::Value* right,
                            unsigned lanes) {
    llvm::Type* words = llvm::FixedVectorType::get(b.getInt16Ty(), 2 * lanes);
    llvm::Value *x = b.CreateBitCast(left, words), *y = b.CreateBitCast(right, words);
    const auto pairs = [&](llvm::Value* u, llvm::Value* s) {
        return b.CreateIntrinsic(
            lanes == 16 ? llvm::Intrinsic::x86_avx512_pmaddw_d_512 : llvm::Intrinsic::x86_avx2_pmadd_wd, {}, {u, s});
    };
    llvm::Value* even = pairs(b.CreateAnd(x, 255), b.CreateAShr(b.CreateShl(y, 8), 8));
    llvm::Value* odd = pairs(b.CreateLShr(x, 8), b.CreateAShr(y, 8));
    return b.CreateAdd(sums, b.CreateAdd(even, odd));
}

}  // namespace

llvm::Value* emit_dot_bytes(llvm::IRBuilder<>& b, llvm::Value* sums, llvm::Value* left, llvm::Value* right,
                            ByteDots how) {
    llvm::Type* type = sums->getType();
    const auto lanes = llvm::cast<llvm::FixedVectorType>(type)->getNumElements();
    if (how == ByteDots::Emulated) {
        const auto bits = [&](uint64_t n) { return llvm::ConstantInt::get(type, n); };
        for (uint64_t k = 0; k < 4; ++k) {
            llvm::Value* x = b.CreateAnd(b.CreateLShr(left, bits(8 * k)), bits(255));
            llvm::Value* y = b.CreateAShr(b.CreateShl(right, bits(24 - 8 * k)), bits(24));
            sums = b.CreateAdd(sums, b.CreateMul(x, y));
        }
        return sums;
    }
    TW_CHECK(lanes == 8 || lanes == 16, "no dot product of {} lanes", lanes);
    if (how == ByteDots::Words) return emit_dot_words(b, sums, left, right, lanes);
    return b.CreateIntrinsic(
        lanes == 16 ? llvm::Intrinsic::x86_avx512_vpdpbusd_512 : llvm::Intrinsic::x86_avx512_vpdpbusd_256, {},
        {sums, left, right});
}

}  // namespace tilewright::cpu
