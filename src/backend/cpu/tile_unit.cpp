#include "backend/cpu/tile_unit.h"

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include "backend/cpu/dot_unit.h"
#include "backend/cpu/stage_emitter.h"

namespace tilewright::cpu {

namespace {

// The configuration that ldtilecfg reads: palette, bytes of a row of each register, rows of each register.
constexpr uint64_t kConfigBytes = 64, kRowBytesAt = 16, kRowsAt = 48;
constexpr uint64_t kRegisterBytes = kTileRows * kTileRowBytes;

}  // namespace

TileUnit::TileUnit(llvm::IRBuilder<>& builder, TileProducts products, bool emulated)
    : b_(builder), products_(products), emulated_(emulated) {
    llvm::BasicBlock& entry = b_.GetInsertBlock()->getParent()->getEntryBlock();
    llvm::IRBuilder<> at_entry(&entry, entry.begin());
    const uint64_t bytes = emulated ? kTileRegisters * kRegisterBytes : kConfigBytes;
    memory_ = at_entry.CreateAlloca(llvm::ArrayType::get(b_.getInt8Ty(), bytes), nullptr, "tiles");
    memory_->setAlignment(llvm::Align(64));
}

void TileUnit::configure(const std::array<TileShape, kTileRegisters>& shapes) {
    shapes_ = shapes;
    if (emulated_) return;
    b_.CreateMemSet(memory_, b_.getInt8(0), kConfigBytes, llvm::MaybeAlign(64));
    const auto at = [&](uint64_t byte) { return b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), memory_, byte); };
    b_.CreateStore(b_.getInt8(1), at(0));
    for (uint64_t t = 0; t < kTileRegisters; ++t) {
        const TileShape& shape = shapes[t];
        if (shape.rows == nullptr) continue;
        b_.CreateStore(b_.getInt16(static_cast<uint16_t>(shape.row_bytes)), at(kRowBytesAt + 2 * t));
        b_.CreateStore(b_.CreateTrunc(shape.rows, b_.getInt8Ty()), at(kRowsAt + t));
    }
    b_.CreateIntrinsic(llvm::Intrinsic::x86_ldtilecfg, {}, {memory_});
}

void TileUnit::release() {
    if (!emulated_) b_.CreateIntrinsic(llvm::Intrinsic::x86_tilerelease, {}, {});
}

llvm::Value* TileUnit::row(int t, llvm::Value* number) {
    llvm::Value* first =
        b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), memory_, static_cast<uint64_t>(t) * kRegisterBytes);
    return b_.CreateGEP(b_.getInt8Ty(), first, b_.CreateMul(number, b_.getInt64(kTileRowBytes)));
}

void TileUnit::each_row(int t, const std::function<void(llvm::Value*)>& body) {
    emit_loop(b_, b_.getInt64(0), shapes_[static_cast<size_t>(t)].rows, 1, body, "row");
}

void TileUnit::zero(int t) {
    if (!emulated_) {
        b_.CreateIntrinsic(llvm::Intrinsic::x86_tilezero, {}, {b_.getInt8(static_cast<uint8_t>(t))});
        return;
    }
    b_.CreateMemSet(row(t, b_.getInt64(0)), b_.getInt8(0), kRegisterBytes, llvm::MaybeAlign(64));
}

void TileUnit::load(int t, llvm::Value* from, llvm::Value* stride, bool streamed) {
    if (!emulated_) {
        b_.CreateIntrinsic(streamed ? llvm::Intrinsic::x86_tileloaddt164 : llvm::Intrinsic::x86_tileloadd64, {},
                           {b_.getInt8(static_cast<uint8_t>(t)), from, stride});
        return;
    }
    each_row(t, [&](llvm::Value* r) {
        llvm::Value* there = b_.CreateGEP(b_.getInt8Ty(), from, b_.CreateMul(r, stride));
        b_.CreateMemCpy(row(t, r), llvm::MaybeAlign(1), there, llvm::MaybeAlign(1),
                        static_cast<uint64_t>(shapes_[static_cast<size_t>(t)].row_bytes));
    });
}

void TileUnit::store(int t, llvm::Value* to, llvm::Value* stride) {
    if (!emulated_) {
        b_.CreateIntrinsic(llvm::Intrinsic::x86_tilestored64, {}, {b_.getInt8(static_cast<uint8_t>(t)), to, stride});
        return;
    }
    each_row(t, [&](llvm::Value* r) {
        llvm::Value* there = b_.CreateGEP(b_.getInt8Ty(), to, b_.CreateMul(r, stride));
        b_.CreateMemCpy(there, llvm::MaybeAlign(1), row(t, r), llvm::MaybeAlign(1),
                        static_cast<uint64_t>(shapes_[static_cast<size_t>(t)].row_bytes));
    });
}

void TileUnit::product(int acc, int left, int right) {
    if (!emulated_) {
        const auto number = [&](int t) { return b_.getInt8(static_cast<uint8_t>(t)); };
        const auto instruction = products_ == TileProducts::BF16             ? llvm::Intrinsic::x86_tdpbf16ps
                                 : products_ == TileProducts::UnsignedSigned ? llvm::Intrinsic::x86_tdpbusd
                                                                             : llvm::Intrinsic::x86_tdpbsud;
        b_.CreateIntrinsic(instruction, {}, {number(acc), number(left), number(right)});
    } else if (products_ == TileProducts::BF16) {
        emulate_pairs(acc, left, right);
    } else {
        emulate_bytes(acc, left, right);
    }
}

void TileUnit::emulate_bytes(int acc, int left, int right) {
    constexpr auto kColumns = static_cast<unsigned>(kTileColumns);
    llvm::Type* sums = llvm::FixedVectorType::get(b_.getInt32Ty(), kColumns);
    const auto align = llvm::Align(kTileRowBytes);
    const auto groups = static_cast<uint64_t>(shapes_[static_cast<size_t>(left)].row_bytes / 4);
    each_row(acc, [&](llvm::Value* m) {
        emit_loop(
            b_, b_.getInt64(0), b_.getInt64(groups), 1,
            [&](llvm::Value* p) {
                llvm::Value* at = b_.CreateGEP(b_.getInt32Ty(), row(left, m), p);
                llvm::Value* x = b_.CreateVectorSplat(kColumns, b_.CreateLoad(b_.getInt32Ty(), at));
                llvm::Value* y = b_.CreateAlignedLoad(sums, row(right, p), align);
                if (products_ == TileProducts::SignedUnsigned) std::swap(x, y);
                llvm::Value* sum = b_.CreateAlignedLoad(sums, row(acc, m), align);
                b_.CreateAlignedStore(emit_dot_bytes(b_, sum, x, y, ByteDots::Emulated), row(acc, m), align);
            },
            "group");
    });
}

void TileUnit::emulate_pairs(int acc, int left, int right) {
    constexpr auto kColumns = static_cast<unsigned>(kTileColumns);
    llvm::Type* sums = llvm::FixedVectorType::get(b_.getFloatTy(), kColumns);
    llvm::Type* pairs = llvm::FixedVectorType::get(b_.getInt32Ty(), kColumns);
    const auto align = llvm::Align(kTileRowBytes);
    llvm::BasicBlock& entry = b_.GetInsertBlock()->getParent()->getEntryBlock();
    llvm::IRBuilder<> at_entry(&entry, entry.begin());
    llvm::Value* even = at_entry.CreateAlloca(sums, nullptr, "even");
    llvm::Value* odd = at_entry.CreateAlloca(sums, nullptr, "odd");
    each_row(acc, [&](llvm::Value* m) {
        for (llvm::Value* sum : {even, odd}) b_.CreateStore(llvm::Constant::getNullValue(sums), sum);
        emit_loop(
            b_, b_.getInt64(0), b_.getInt64(static_cast<uint64_t>(shapes_[static_cast<size_t>(left)].row_bytes / 4)), 1,
            [&](llvm::Value* p) {
                llvm::Value* at = b_.CreateGEP(b_.getInt32Ty(), row(left, m), p);
                const auto x = widened_pairs(b_, b_.CreateLoad(b_.getInt32Ty(), at));
                const auto y = widened_pairs(b_, b_.CreateAlignedLoad(pairs, row(right, p), align));
                const auto add = [&](llvm::Value* sum, llvm::Value* a, llvm::Value* b) {
                    llvm::Value* wide = b_.CreateVectorSplat(kColumns, a);
                    b_.CreateStore(
                        b_.CreateIntrinsic(llvm::Intrinsic::fma, {sums}, {wide, b, b_.CreateLoad(sums, sum)}), sum);
                };
                add(even, x.first, y.first);
                add(odd, x.second, y.second);
            },
            "pair");
        llvm::Value* part = b_.CreateFAdd(b_.CreateLoad(sums, even), b_.CreateLoad(sums, odd));
        llvm::Value* before = b_.CreateAlignedLoad(sums, row(acc, m), align);
        b_.CreateAlignedStore(b_.CreateFAdd(before, part), row(acc, m), align);
    });
}

}  // namespace tilewright::cpu
