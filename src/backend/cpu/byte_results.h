#pragma once
// Results of 8 bits that an expression rounds and saturates, four vectors at a time.
//
// A kernel that quantises its results converts one vector of floats to one quarter of a register of bytes. Converted
// vector by vector, rounding, both bounds and the truncation take ten instructions for 16 results. The packing
// instructions saturate, so four vectors of 16 floats become one register of 64 bytes by
//
//     4 x vcvtps2dq, 2 x vpackssdw, 2 x vpaddsw (the zero point), 1 x vpackuswb, 1 x vpermd
//
// A function of the quantised byte (program/transform/byte_tables.h) is then four registers of a table, of which two
// vpermi2b and a blend take 64 elements (AVX512_VBMI).

#include <llvm/IR/IRBuilder.h>

#include <array>
#include <optional>
#include <vector>

#include "program/scalar.h"

namespace tilewright::cpu {

/// A body of which the result is round(real) + zero, saturated to 8 bits, or a function of that.
struct ByteResult {
    ScalarId real;               ///< F32, not rounded yet
    int64_t zero = 0;            ///< of the type `type`
    DType type = DType::U8;      ///< to which the sum is saturated: U8 or I8
    std::vector<uint8_t> table;  ///< the result by the bits of that number; empty: the result is that number
};

/// Returns nothing if the body ends otherwise.
///     u8(add(round(x), 127))   ->   real x, zero 127;   u8(table{...}(i64(u8(round(x)))))   ->   real x, a table
std::optional<ByteResult> byte_result(const ScalarBody& body);

/// Number of vectors that emit_byte_results() converts at once.
inline constexpr size_t kPackedVectors = 4;

/// The results of up to kPackedVectors vectors of `real`, floats that fill a register of `vector_bits` (256: AVX2, 512:
/// AVX-512BW; with a table AVX512_VBMI), as vectors of as many i8. NaN becomes 0 in `type`.
std::vector<llvm::Value*> emit_byte_results(llvm::IRBuilder<>& builder, const ByteResult& result,
                                            const std::vector<llvm::Value*>& reals, int vector_bits);

}  // namespace tilewright::cpu
