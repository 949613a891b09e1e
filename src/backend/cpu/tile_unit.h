#pragma once
// The tile registers of Intel AMX, and code that does the same on machines without them.

#include <llvm/IR/IRBuilder.h>

#include <array>
#include <cstdint>
#include <functional>

#include "tile/matrix.h"

namespace tilewright::cpu {

/// Rows and bytes of a row of a tile register. `rows`: (i64) 1 to kTileRows.
struct TileShape {
    llvm::Value* rows = nullptr;
    int64_t row_bytes = kTileRowBytes;
};

/// What a product multiplies: bf16 into sums of f32, or bytes into sums of 32-bit integers.
enum class TileProducts {
    BF16,
    UnsignedSigned,  ///< left operand U8, right I8
    SignedUnsigned
};

/// Emits operations on the eight tile registers, at the builder's insertion point.
///
/// Emulated, the registers are memory of the function's frame and each operation is a loop over rows. A product adds
/// pairs of exact products in the order of Intel's description (TDPBF16PS), subnormal numbers excepted. Sums of bytes
/// are modulo 2^32 (TDPBUSD, TDPBSUD).
class TileUnit {
  public:
    TileUnit(llvm::IRBuilder<>& builder, TileProducts products, bool emulated);

    /// Sets the shapes of all registers and clears them. Takes about 50 ns on hardware.
    void configure(const std::array<TileShape, kTileRegisters>& shapes);
    void zero(int t);
    /// `stride`: (i64) bytes between rows. `streamed`: a hint that caches need not keep the lines
    /// (TILELOADDT1).
    void load(int t, llvm::Value* from, llvm::Value* stride, bool streamed = false);
    void store(int t, llvm::Value* to, llvm::Value* stride);
    /// acc[m, n] += sum over p of left[m, 2p] * right[p, 2n] + left[m, 2p + 1] * right[p, 2n + 1]; of bytes, groups of
    /// four in place of pairs.
    void product(int acc, int left, int right);
    /// Marks the registers as unused, so that a context switch need not save them.
    void release();

  private:
    llvm::Value* row(int t, llvm::Value* number);
    void each_row(int t, const std::function<void(llvm::Value*)>& body);
    void emulate_pairs(int acc, int left, int right);
    void emulate_bytes(int acc, int left, int right);

    llvm::IRBuilder<>& b_;
    TileProducts products_;
    bool emulated_;
    llvm::AllocaInst* memory_ = nullptr;  ///< the configuration, or the emulated registers
    std::array<TileShape, kTileRegisters> shapes_ = {};
};

}  // namespace tilewright::cpu
